//! What a service manager is told: ready, reloading, stopping, still alive (the protocol of sd_notify(3)).
//!
//! ```text
//! start ... READY=1   WATCHDOG=1 now and then   RELOADING=1 ... READY=1   STOPPING=1 ... end
//! ```
//!
//! The manager names a datagram socket in `NOTIFY_SOCKET`: a path, or after `@` a name that has no file (Linux). Each
//! message is one datagram. Without that variable there is nobody to tell.
//!
//! Nothing waits: a manager that does not read loses what it is told, and the service goes on. Cost: a system call a
//! message.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// A service manager that wants to know.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    manager: SocketAddr,
    watchdog_us: Option<u64>,
}

impl Notifier {
    /// The manager that the environment names; `None` without one. Fails where it names what cannot be a socket: report it,
    /// and go on without.
    pub fn from_environment() -> io::Result<Option<Notifier>> {
        let Some(address) = env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty())
        else {
            return Ok(None);
        };
        let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        // Without a process it is meant for whoever reads it.
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog_us = number("WATCHDOG_USEC").filter(|us| is_ours && *us > 0);
        Notifier::new(&address, watchdog_us).map(Some)
    }

    /// The manager at an address as `NOTIFY_SOCKET` has it, which restarts us if it does not hear [`Notifier::alive`] for
    /// `watchdog_us` microseconds.
    pub fn new(address: &OsStr, watchdog_us: Option<u64>) -> io::Result<Notifier> {
        let manager = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
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

    /// How often [`Notifier::alive`] is to be called, milliseconds: half of what the manager waits. `None`: it does not
    /// watch.
    pub fn alive_every_ms(&self) -> Option<u64> {
        self.watchdog_us.map(|us| (us / 2_000).max(1))
    }

    /// The service answers, or answers again after a reload. `status` is a line for people.
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

    /// The supervisor's loop still turns.
    pub fn alive(&self) -> io::Result<()> {
        self.send("WATCHDOG=1")
    }

    /// A line for people, in `systemctl status`.
    pub fn status(&self, status: &str) -> io::Result<()> {
        self.send(&format!("STATUS={}", line(status)))
    }

    /// Sends a message. The manager may be gone or slow, which is an error that the service may pass over.
    fn send(&self, message: &str) -> io::Result<()> {
        self.socket.send_to_addr(message.as_bytes(), &self.manager).map(|_| ())
    }
}

/// A text's first line: another would be another assignment.
fn line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn heard(manager: &UnixDatagram) -> String {
        let mut message = [0; 200];
        let count = manager.recv(&mut message).unwrap();
        String::from_utf8(message[..count].to_vec()).unwrap()
    }

    fn tell_all(notifier: &Notifier, manager: &UnixDatagram) {
        notifier.ready("answers on 2 cores\nMAINPID=1").unwrap();
        assert_eq!(heard(manager), "READY=1\nSTATUS=answers on 2 cores");
        notifier.status("").unwrap();
        assert_eq!(heard(manager), "STATUS=");
        notifier.alive().unwrap();
        assert_eq!(heard(manager), "WATCHDOG=1");
        let clock = || {
            notifier.reloading().unwrap();
            let message = heard(manager);
            let us = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            us.parse::<u64>().unwrap()
        };
        let first = clock();
        assert!(first > 0 && clock() >= first);
        notifier.stopping().unwrap();
        assert_eq!(heard(manager), "STOPPING=1");
    }

    /// A manager hears each message, at a path and at a name without a file.
    #[test]
    fn managers_hear() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        tell_all(&Notifier::new(path.as_os_str(), None).unwrap(), &manager);
        let name = format!("larder-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        tell_all(&Notifier::new(OsStr::new(&format!("@{name}")), Some(7)).unwrap(), &manager);
    }

    /// A manager that went away, or does not read, is an error and holds nobody up.
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

    /// The environment names the manager and its patience, which counts for the process that it names only.
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
