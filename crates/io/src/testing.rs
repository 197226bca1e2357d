//! Shared by tests of sockets: bounded waits, and lines for the run's log.

use std::net::SocketAddr;
use std::os::fd::AsFd;

pub(crate) use larder_testkit::skip::skip;

use crate::epoll::{Events, Interest, Poller};

/// The longest time that a test waits for an event.
const WAIT_MS: u64 = 10_000;

/// The loopback addresses of this machine, with port 0: IPv4, and IPv6 where there is one.
pub(crate) fn loopbacks(test: &str) -> Vec<SocketAddr> {
    let mut found = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let v6: SocketAddr = "[::1]:0".parse().unwrap();
    match std::net::UdpSocket::bind(v6) {
        Ok(_) => found.push(v6),
        Err(error) => skip(test, format_args!("no IPv6: {error}")),
    }
    found
}

/// Waits until something can be read, for a bounded time; whether it can.
pub(crate) fn readable(socket: &impl AsFd) -> bool {
    ready(socket, Interest::READ, WAIT_MS)
}

/// Waits until something can be written.
pub(crate) fn writable(socket: &impl AsFd) -> bool {
    ready(socket, Interest::WRITE, WAIT_MS)
}

/// Whether nothing arrives for a short while.
pub(crate) fn stays_silent(socket: &impl AsFd) -> bool {
    !ready(socket, Interest::READ, 50)
}

fn ready(socket: &impl AsFd, interest: Interest, wait_ms: u64) -> bool {
    let (poller, mut events) = (Poller::new().unwrap(), Events::new(1));
    poller.add(socket, 0, interest).unwrap();
    let start = std::time::Instant::now();
    loop {
        let left = wait_ms.saturating_sub(start.elapsed().as_millis() as u64);
        if poller.wait(&mut events, Some(left)).unwrap() > 0 {
            return true;
        }
        if left == 0 {
            return false;
        }
    }
}

/// Runs a test in its own network, if it may have one, after `ip` ran these lines there.
pub(crate) fn with_network(
    test: &'static str,
    lines: &'static [&str],
    body: impl FnOnce() + Send + 'static,
) {
    let ran = std::thread::spawn(move || {
        if let Err(error) = crate::netns::enter_private_network() {
            return skip(test, format_args!("not permitted: {error}"));
        }
        if !lines.iter().all(|line| ip(line)) {
            return skip(test, "no pair of interfaces can be made");
        }
        body();
    });
    ran.join().unwrap();
}

/// Runs `ip` with these words; whether it could.
pub(crate) fn ip(line: &str) -> bool {
    let done = std::process::Command::new("ip").args(line.split(' ')).status();
    done.is_ok_and(|status| status.success())
}
