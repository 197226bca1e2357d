//! Sockets that a service manager opened before it started us (socket activation,
//! sd_listen_fds(3)).
//!
//! The manager passes descriptors from 3 on. The environment states their number, their names, and
//! the process that they are for. The caller checks their types:
//! [`crate::udp::UdpSocket::from_fd`], [`crate::tcp::listener_from_fd`].
//!
//! Invariant: the descriptors are given out once, to the first caller in the process that the
//! environment names, so each has one owner.

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::socket::check;

/// Most descriptors taken; further ones stay untouched.
pub const INHERITED_MAX: usize = 256;

/// The first descriptor that a manager passes.
const FIRST: RawFd = 3;

/// A descriptor with the name that the manager's configuration gives it.
#[derive(Debug)]
pub struct Inherited {
    /// Its name (`FileDescriptorName=`); `unknown` where it has none.
    pub name: String,
    /// The descriptor, which programs that we start will not inherit.
    pub fd: OwnedFd,
}

/// Takes the passed descriptors; none if the manager passed none to this process, or at a second
/// call. Fails if the environment names descriptors that are not open, and then takes none.
///
/// Call it before anything else opens files: this function trusts the environment that descriptors
/// from 3 on are the manager's.
pub fn take_inherited() -> io::Result<Vec<Inherited>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let count = (number("LISTEN_FDS").unwrap_or(0) as usize).min(INHERITED_MAX);
    let numbers = FIRST..FIRST + count as RawFd;
    for fd in numbers.clone() {
        // SAFETY: takes integers only; fails where `fd` is not open.
        check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').filter(|name| !name.is_empty());
    let named = numbers.map(|fd| Inherited {
        name: names.next().unwrap_or("unknown").to_owned(),
        // SAFETY: open, as was just seen; by the protocol it is this process's to own, and by the
        // invariant we do this once.
        fd: unsafe { OwnedFd::from_raw_fd(fd) },
    });
    Ok(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{RecvBatch, UdpOptions, UdpSocket};
    use std::process::{Command, Stdio};

    const CHILD: &str = "LARDER_TEST_ACTIVATION";
    const TEST: &str = "activation::tests::sockets_are_taken_once";

    /// A process that is started with a socket takes it by its name, once, and uses it. Another
    /// process, and one whose environment is wrong, take nothing.
    #[test]
    fn sockets_are_taken_once() {
        if let Ok(case) = env::var(CHILD) {
            return child(&case);
        }
        for (case, environment) in [
            ("meant", "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=dns"),
            ("not meant", "LISTEN_PID=1 LISTEN_FDS=1 LISTEN_FDNAMES=dns"),
            ("a lie", "LISTEN_PID=$$ LISTEN_FDS=200"),
        ] {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"early", socket.local_addr().unwrap()).unwrap();
            let output = Command::new("sh")
                .args(["-c", &format!("{environment} exec \"$0\" \"$@\" 3<&0")])
                .arg(env::current_exe().unwrap())
                .args(["--exact", TEST])
                .env(CHILD, case)
                .stdin(Stdio::from(OwnedFd::from(socket)))
                .output()
                .unwrap();
            assert!(output.status.success(), "{case}: {output:?}");
        }
    }

    fn child(case: &str) {
        let taken = take_inherited();
        match case {
            "meant" => {
                let mut taken = taken.unwrap();
                assert_eq!((taken.len(), taken[0].name.as_str()), (1, "dns"));
                let fd = taken.remove(0).fd;
                let socket = UdpSocket::from_fd(fd, &UdpOptions::default()).unwrap();
                let mut batch = RecvBatch::new(2, 100);
                assert_eq!(batch.recv(&socket).unwrap(), 1);
                assert_eq!(batch.message(0).unwrap().bytes, b"early");
                assert!(take_inherited().unwrap().is_empty());
            }
            "not meant" => assert!(taken.unwrap().is_empty()),
            _ => assert_eq!(taken.unwrap_err().raw_os_error(), Some(libc::EBADF)),
        }
    }
}
