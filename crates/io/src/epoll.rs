//! Waiting for many descriptors at once, and a waker: epoll and an eventfd (`system`), and on other
//! systems than Linux poll(2) and a pair of sockets (`poll`).
//!
//! An event loop registers each descriptor with a token of its choice, and waits; events carry the
//! token. Readiness is *level-triggered*: the next wait reports unread bytes again, so a loop may stop
//! after a fair share of one socket.
//!
//! ```text
//! add(fd, token, interest) -> modify -> remove, or the drop of a `Watched`
//! wait(events, timeout); handle each event; wait again
//! ```
//!
//! Invariants
//! 1. A descriptor that is watched belongs to a [`Watched`], or is removed before it is closed, or its
//!    poller is dropped before the next wait. epoll forgets closed ones in any case, unless a copy of
//!    it (`dup`, `try_clone`, a forked child) is still open: then remove it. With poll a number would
//!    be watched that another descriptor may have by then.
//!
//! A token in the events of a wait may belong to a descriptor that an earlier event of the same wait
//! closed: tokens that are used again need a generation.
//!
//! Bounds: the events of one wait; the next wait returns the others.

#[cfg_attr(any(feature = "portable", not(target_os = "linux")), path = "epoll/poll.rs")]
mod system;

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};

pub use system::{Events, NAME, Poller, Waker};

/// The events to wait for on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Something can be read, or the peer has finished.
    pub const READ: Interest = Interest(libc::POLLIN as u32 | system::PEER_FINISHED);
    /// There is room for writing.
    pub const WRITE: Interest = Interest(libc::POLLOUT as u32);
    /// As epoll has it; poll has no such bit.
    const ONCE: u32 = 1 << 30;
    /// Either.
    pub const BOTH: Interest = Interest(Interest::READ.0 | Interest::WRITE.0);
    /// Errors only, which are always reported: for a connection that waits for another one. (macOS
    /// reports them with other events only.)
    pub const NONE: Interest = Interest(0);

    /// Report one event, and nothing more, not even errors, until [`Poller::modify`].
    pub const fn once(self) -> Interest {
        Interest(self.0 | Interest::ONCE)
    }

    /// The events of both.
    pub const fn and(self, other: Interest) -> Interest {
        Interest(self.0 | other.0)
    }

    /// Whether `self` includes all events of `other`.
    pub const fn covers(self, other: Interest) -> bool {
        self.0 & other.0 == other.0
    }

    /// As the kernel has it, for epoll and for poll alike.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Whether this reports one event only.
    pub const fn is_once(self) -> bool {
        self.0 & Interest::ONCE != 0
    }
}

/// A descriptor that a [`Poller`] may watch until it is closed (invariant 1): by the drop of this.
#[derive(Debug)]
pub struct Watched<T: AsFd>(T);

impl<T: AsFd> Watched<T> {
    /// Takes a descriptor that no other value owns.
    pub fn new(fd: T) -> Watched<T> {
        Watched(fd)
    }
}

impl<T: AsFd> AsFd for Watched<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: AsFd> Deref for Watched<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsFd> DerefMut for Watched<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// One descriptor that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// As given to [`Poller::add`].
    pub token: u64,
    /// Reading will not block: bytes, the end, or an error.
    pub readable: bool,
    /// Writing will not block: room, or an error.
    pub writable: bool,
    /// The peer has finished sending, the connection is closed, or an error waits to be read.
    pub closed: bool,
}

impl Event {
    /// From the bits of the kernel, which are the same for epoll and poll.
    pub(crate) fn of(token: u64, bits: u32) -> Event {
        const FAILED: u32 = (libc::POLLERR | libc::POLLHUP) as u32;
        Event {
            token,
            readable: bits & (Interest::READ.0 | FAILED) != 0,
            writable: bits & (Interest::WRITE.0 | FAILED) != 0,
            closed: bits & (system::PEER_FINISHED | FAILED) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn wait(poller: &Poller, timeout_ms: u64) -> Vec<Event> {
        let mut events = Events::new(8);
        let count = poller.wait(&mut events, Some(timeout_ms)).unwrap();
        assert_eq!(events.iter().len(), count);
        events.iter().collect()
    }

    fn tokens(poller: &Poller, timeout_ms: u64) -> Vec<u64> {
        wait(poller, timeout_ms).iter().map(|event| event.token).collect()
    }

    /// Unread bytes are reported again, or once if that is wanted; removed or closed descriptors are
    /// not reported, and a wait without events ends. The number of a closed one can be watched
    /// again. Invariant 1.
    #[test]
    fn readiness_is_reported() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&socket, 7, Interest::READ).unwrap();
        let again = poller.add(&socket, 8, Interest::READ).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert!(tokens(&poller, 10).is_empty());
        peer.write_all(b"x").unwrap();
        assert_eq!(tokens(&poller, 10_000), [7]);
        assert_eq!(tokens(&poller, 10_000), [7]);
        poller.modify(&socket, 9, Interest::READ.once()).unwrap();
        assert_eq!(tokens(&poller, 10_000), [9]);
        assert!(tokens(&poller, 10).is_empty());
        poller.remove(&socket).unwrap();
        poller.add(&socket, 3, Interest::BOTH).unwrap();
        let events = wait(&poller, 10_000);
        assert_eq!(events, [Event { token: 3, readable: true, writable: true, closed: false }]);
        drop(peer);
        let events = wait(&poller, 10_000);
        assert!(events[0].closed);
        let number = socket.as_raw_fd();
        drop(Watched::new(socket));
        assert!(tokens(&poller, 10).is_empty());
        let (_peer, again) = UnixStream::pair().unwrap();
        poller.add(&again, 1, Interest::WRITE).unwrap();
        assert_eq!(tokens(&poller, 10_000), [1], "{number}, now {}", again.as_raw_fd());
        let (gone, other) = UnixStream::pair().unwrap();
        assert_eq!(poller.remove(&gone).unwrap_err().kind(), io::ErrorKind::NotFound);
        let unknown = poller.modify(&other, 1, Interest::READ).unwrap_err();
        assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
    }

    /// Descriptors that one wait has no room for are returned by the next ones.
    #[test]
    fn room_is_a_bound() {
        let pairs: Vec<_> = (0..5).map(|_| UnixStream::pair().unwrap()).collect();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(2));
        for (token, (peer, socket)) in pairs.iter().enumerate() {
            poller.add(socket, token as u64, Interest::READ.once()).unwrap();
            (&mut &*peer).write_all(b"x").unwrap();
        }
        let mut seen = Vec::new();
        for _ in 0..3 {
            assert!(poller.wait(&mut events, Some(10_000)).unwrap() <= 2);
            seen.extend(events.iter().map(|event| event.token));
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }

    /// Descriptors that stay ready do not keep others from being reported.
    #[test]
    fn each_has_its_turn() {
        let pairs: Vec<_> = (0..5).map(|_| UnixStream::pair().unwrap()).collect();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(2));
        for (token, (_, socket)) in pairs.iter().enumerate() {
            poller.add(socket, token as u64, Interest::WRITE).unwrap();
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 {
            assert_eq!(poller.wait(&mut events, Some(10_000)).unwrap(), 2);
            seen.extend(events.iter().map(|event| event.token));
        }
        assert_eq!(seen.len(), 5);
    }

    /// A waker ends another thread's long wait at once; calls before a clear are one.
    #[test]
    fn wakers_wake() {
        let waker = Arc::new(Waker::new().unwrap());
        let poller = Poller::new().unwrap();
        poller.add(&*waker, 1, Interest::READ).unwrap();
        let caller = {
            let waker = Arc::clone(&waker);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake().unwrap();
                waker.wake().unwrap();
            })
        };
        let start = Instant::now();
        assert_eq!(tokens(&poller, 60_000), [1]);
        assert!(start.elapsed() < Duration::from_secs(60));
        caller.join().unwrap();
        assert!(waker.clear().unwrap());
        assert!(!waker.clear().unwrap());
        assert!(tokens(&poller, 10).is_empty());
    }
}
