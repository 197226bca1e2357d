//! Network namespaces of a test: one that the calling thread moves to, and a second one for
//! programs, which `ip netns exec` starts.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::process::Run;
use crate::skip::{has, skip};

/// Runs `ip` with these arguments.
pub fn ip(line: &str) -> Run {
    Run::of(Command::new("ip").args(line.split_whitespace()))
}

/// Like [`ip`], but panics if it fails.
#[track_caller]
pub fn must(line: &str) {
    let run = ip(line);
    assert_eq!(run.code, Some(0), "ip {line}: {}", run.err);
}

/// The second network namespace, deleted on drop. The kernel deletes the thread's own with the
/// thread.
#[derive(Debug)]
pub struct Network {
    /// Its name.
    pub name: String,
}

impl Network {
    /// Creates both namespaces, and moves the calling thread to its own. Prints SKIP and returns
    /// `None` if that is not permitted.
    pub fn new(test: &str) -> Option<Network> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !has(test, "ip") {
            return None;
        }
        if let Err(error) = larder_io::netns::enter_private_network() {
            skip(test, format_args!("no network of its own: {error}"));
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let network = Network { name: format!("larder-test-{}-{count}", std::process::id()) };
        let made = ip(&format!("netns add {}", network.name));
        if made.code != Some(0) {
            skip(test, format_args!("no second network: {}", made.err));
            return None;
        }
        Some(network)
    }

    /// Runs `ip` in the second namespace, and panics if it fails.
    #[track_caller]
    pub fn must(&self, line: &str) {
        must(&format!("-n {} {line}", self.name));
    }

    /// A program in the second namespace, without input. `ip` replaces itself with it.
    pub fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.stdin(Stdio::null()).args(["netns", "exec", &self.name, program]);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = ip(&format!("netns delete {}", self.name));
    }
}
