//! unbound as a child process of a test. It sends every query to one upstream, and ends when
//! dropped.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::dns::bind_both;

/// Attempts to find a free port.
const PORTS: usize = 8;

/// The output of `unbound -V`, the version first; `None` if unbound is not installed.
pub fn about() -> Option<String> {
    let said = Command::new("unbound").arg("-V").output().ok()?;
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// Calls `start` with addresses that are free over UDP and TCP, until it returns a value. Another
/// process may take the port before unbound binds it; unbound then ends.
pub fn at_a_free_port<T>(mut start: impl FnMut(SocketAddr) -> Option<T>) -> T {
    let free = || bind_both().1.local_addr().expect("bound");
    (0..PORTS).map(|_| free()).find_map(&mut start).expect("unbound does not start")
}

/// The child process.
#[derive(Debug)]
pub struct Unbound {
    /// The address at which it responds.
    pub address: SocketAddr,
    child: Child,
    /// The folder of its configuration and its log.
    folder: TempDir,
}

impl Unbound {
    /// Starts unbound with one thread and without DNSSEC validation. `more` is added to its
    /// configuration.
    pub fn start(address: SocketAddr, upstream: SocketAddr, more: &str) -> Unbound {
        let folder = TempDir::new().expect("a folder");
        let configuration = folder.path().join("unbound.conf");
        let text = format!(
            "server:\n  use-syslog: no\n  do-daemonize: no\n  username: \"\"\n  chroot: \"\"\n  \
             pidfile: \"\"\n  directory: \"{0}\"\n  logfile: \"{0}/log\"\n  \
             interface: 127.0.0.1@{1}\n  module-config: \"iterator\"\n  num-threads: 1\n  \
             do-ip6: no\n  do-not-query-localhost: no\n  rrset-roundrobin: no\n\
             remote-control:\n  control-enable: no\n\
             forward-zone:\n  name: \".\"\n  forward-addr: 127.0.0.1@{2}\n{more}",
            folder.path().display(),
            address.port(),
            upstream.port(),
        );
        fs::write(&configuration, text).expect("a written file");
        let child = Command::new("unbound")
            .arg("-d")
            .arg("-c")
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("unbound, which told its version");
        Unbound { address, child, folder }
    }

    /// True if it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        // The process may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
