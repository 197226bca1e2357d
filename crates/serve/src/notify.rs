//! Messages to a service manager: ready, reloading, stopping, still alive (the protocol of
//! sd_notify(3)).
//!
//! ```text
//! start ... READY=1   WATCHDOG=1 now and then   RELOADING=1 ... READY=1   STOPPING=1 ... end
//! ```
//!
//! The manager names a datagram socket in `NOTIFY_SOCKET`: a path, or after `@` a name without a
//! file (Linux). Each message is one datagram. Without that variable there is no manager.
//!
//! No call waits: if a manager does not read, its messages are dropped and the service continues.
//! Cost: a system call a message.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// A service manager that receives messages.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    manager: SocketAddr,
    watchdog_us: Option<u64>,
}

impl Notifier {
    /// The manager that the environment names; `None` without one. Fails if the name cannot be that
    /// of a socket: the caller reports it, and continues without a manager.
    pub fn from_environment() -> io::Result<Option<Notifier>> {
        let Some(address) = env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty())
        else {
            return Ok(None);
        };
        let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        // Without a process ID the watchdog is for any process that reads it.
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog_us = number("WATCHDOG_USEC").filter(|us| is_ours && *us > 0);
        Notifier::new(&address, watchdog_us).map(Some)
    }

    /// The manager at an address in the form of `NOTIFY_SOCKET`. It restarts this process if it
    /// receives no [`Notifier::alive`] for `watchdog_us` microseconds.
    pub fn new(address: &OsStr, watchdog_us: Option<u64>) -> io::Result<Notifier> {
        let manager = match address.as_bytes() {
            [b'@', name @ ..] => without_file(name)?,
            [b'/', ..] => SocketAddr::from_pathname(address)?,
            _ => {
                let text = "NOTIFY_SOCKET is neither a path nor a name after @; unset it, or update the manager";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Notifier { socket, manager, watchdog_us })
    }

    /// The interval of [`Notifier::alive`], milliseconds: half of the manager's limit. `None`: the
    /// manager does not watch.
    pub fn alive_every_ms(&self) -> Option<u64> {
        self.watchdog_us.map(|us| (us / 2_000).max(1))
    }

    /// The service is ready, also again after a reload. `status` is a line for people.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        self.send(&format!("READY=1\nSTATUS={}", line(status)))
    }

    /// The configuration is being read again; [`Notifier::ready`] ends that.
    pub fn reloading(&self) -> io::Result<()> {
        let now = clock_gettime(ClockId::Monotonic);
        let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}"))
    }

    /// The end has begun.
    pub fn stopping(&self) -> io::Result<()> {
        self.send("STOPPING=1")
    }

    /// The supervisor's loop still runs.
    pub fn alive(&self) -> io::Result<()> {
        self.send("WATCHDOG=1")
    }

    /// A line for people, in `systemctl status`.
    pub fn status(&self, status: &str) -> io::Result<()> {
        self.send(&format!("STATUS={}", line(status)))
    }

    /// Sends a message. It fails if the manager has ended or is slow; the service may ignore that.
    fn send(&self, message: &str) -> io::Result<()> {
        self.socket.send_to_addr(message.as_bytes(), &self.manager).map(|_| ())
    }
}

/// The address of a name without a file.
#[cfg(target_os = "linux")]
fn without_file(name: &[u8]) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

/// Only Linux has names without a file.
#[cfg(not(target_os = "linux"))]
fn without_file(_: &[u8]) -> io::Result<SocketAddr> {
    let text = "NOTIFY_SOCKET is a name after @, which needs Linux; unset it";
    Err(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// A text's first line: a second one would be another assignment.
fn line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::process::Command;

    fn received(manager: &UnixDatagram) -> String {
        let mut message = [0; 200];
        let count = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..count].to_vec()).unwrap()
    }

    fn notify_all(notifier: &Notifier, manager: &UnixDatagram) {
        notifier.ready("answers on 2 cores\nMAINPID=1").unwrap();
        assert_eq!(received(manager), "READY=1\nSTATUS=answers on 2 cores");
        notifier.status("").unwrap();
        assert_eq!(received(manager), "STATUS=");
        notifier.alive().unwrap();
        assert_eq!(received(manager), "WATCHDOG=1");
        let clock = || {
            notifier.reloading().unwrap();
            let message = received(manager);
            let us = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            us.parse::<u64>().unwrap()
        };
        let first = clock();
        assert!(first > 0 && clock() >= first);
        notifier.stopping().unwrap();
        assert_eq!(received(manager), "STOPPING=1");
    }

    /// A manager receives each message, at a path and at a name without a file.
    #[test]
    fn managers_receive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        notify_all(&Notifier::new(path.as_os_str(), None).unwrap(), &manager);
        let name = format!("larder-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        notify_all(&Notifier::new(OsStr::new(&format!("@{name}")), Some(7)).unwrap(), &manager);
    }

    /// A manager that has ended, or does not read, gives an error and delays nothing.
    #[test]
    fn managers_may_be_deaf() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let notifier = Notifier::new(path.as_os_str(), None).unwrap();
        assert_eq!(notifier.alive().unwrap_err().kind(), io::ErrorKind::NotFound);
        let _manager = UnixDatagram::bind(&path).unwrap();
        let deaf = (0..1_000_000).find_map(|_| notifier.alive().err()).unwrap();
        assert_eq!(deaf.kind(), io::ErrorKind::WouldBlock);
        let vsock = Notifier::new(OsStr::new("vsock:2:1234"), None).unwrap_err();
        assert_eq!(vsock.kind(), io::ErrorKind::Unsupported);
    }

    /// The environment names the manager and its watchdog time, which applies only to the process
    /// that it names.
    #[test]
    fn the_environment_is_read() {
        const CHILD: &str = "LARDER_TEST_NOTIFY";
        if let Ok(expected) = env::var(CHILD) {
            let found = Notifier::from_environment().unwrap();
            let found = found.map(|notifier| notifier.alive_every_ms());
            assert_eq!(format!("{found:?}"), expected);
            return;
        }
        for (environment, expected) in [
            (&[][..], "None"),
            (&[("NOTIFY_SOCKET", "@x")], "Some(None)"),
            (&[("NOTIFY_SOCKET", "@x"), ("WATCHDOG_USEC", "5000000")], "Some(Some(2500))"),
            (&[("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "0")], "Some(None)"),
            (
                &[("NOTIFY_SOCKET", "/x"), ("WATCHDOG_USEC", "9"), ("WATCHDOG_PID", "1")],
                "Some(None)",
            ),
        ] {
            let mut child = Command::new(env::current_exe().unwrap());
            child.args(["--exact", "notify::tests::the_environment_is_read"]).env(CHILD, expected);
            for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
                child.env_remove(name);
            }
            let output = child.envs(environment.iter().copied()).output().unwrap();
            assert!(output.status.success(), "{environment:?}: {output:?}");
        }
    }
}
