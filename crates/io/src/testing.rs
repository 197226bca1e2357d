//! What the tests of sockets share: bounded waits, and lines that reach the run's log.

use std::net::SocketAddr;
use std::os::fd::AsFd;

pub(crate) use larder_testkit::skip::skip;

use crate::event::{Events, Interest, Poller};

/// Longest time that a test waits for what must come.
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

/// Whether nothing comes for a short while.
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
