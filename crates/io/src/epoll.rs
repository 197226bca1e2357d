//! Waiting for many descriptors at once: epoll, and a waker.
//!
//! An event loop registers each descriptor with a token of its choice, and waits; events carry the
//! token. Readiness is *level-triggered* by default: the next wait reports unread bytes again, so a
//! loop may stop after a fair share of one socket.
//!
//! ```text
//! add(fd, token, interest) -> modify -> remove, or the descriptor is closed
//! wait(events, timeout); handle each event; wait again
//! ```
//!
//! Invariants
//! 1. `Events::ready[..count]` was written by the last wait.
//! 2. The kernel stops watching a descriptor when it is closed, unless a copy of it (`dup`,
//!    `try_clone`, a forked child) is still open; then remove it before closing. So a token in the
//!    events of a wait may belong to a descriptor that an earlier event of the same wait closed:
//!    tokens that are used again need a generation.
//!
//! Bounds: the events of one wait; the next wait returns the others. Cost: one system call per
//! wait, no memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::socket::{check, owned};

/// The events to wait for on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// Something can be read, or the peer has finished.
    pub const READ: Interest = Interest((libc::EPOLLIN | libc::EPOLLRDHUP) as u32);
    /// There is room for writing.
    pub const WRITE: Interest = Interest(libc::EPOLLOUT as u32);
    /// Either.
    pub const BOTH: Interest = Interest(Interest::READ.0 | Interest::WRITE.0);
    /// Errors only, which are always reported: for a connection that waits for another one.
    pub const NONE: Interest = Interest(0);

    /// Report once when the state changes, and not again until the next change. The event loop must
    /// then read (or write) until the call would block.
    pub const fn edge(self) -> Interest {
        Interest(self.0 | libc::EPOLLET as u32)
    }

    /// Report one event, and nothing more, not even errors, until [`Poller::modify`].
    pub const fn once(self) -> Interest {
        Interest(self.0 | libc::EPOLLONESHOT as u32)
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
        self.0 & libc::EPOLLONESHOT as u32 != 0
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

/// Descriptors to wait for.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

/// The events of a wait. Separate from [`Poller`], so that a handler may add and remove descriptors
/// while it iterates over them.
pub struct Events {
    ready: Box<[libc::epoll_event]>,
    count: usize,
}

impl Events {
    /// Room for `events_max` events a wait, at least 1 and at most 65,536.
    pub fn new(events_max: usize) -> Events {
        let room = libc::epoll_event { events: 0, u64: 0 };
        Events { ready: vec![room; events_max.clamp(1, 1 << 16)].into_boxed_slice(), count: 0 }
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event> + use<'_> {
        self.ready[..self.count].iter().map(event_of)
    }

    /// One event of the last wait, by its place.
    pub fn get(&self, index: usize) -> Option<Event> {
        self.ready[..self.count].get(index).map(event_of)
    }
}

impl Poller {
    /// Watches nothing yet.
    pub fn new() -> io::Result<Poller> {
        // SAFETY: takes an integer; what it makes is ours.
        let epoll = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
        Ok(Poller { epoll })
    }

    /// Begins to watch `fd`. Fails with `AlreadyExists` where it is watched.
    pub fn add(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes the events that `fd` is watched for, and its token.
    pub fn modify(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Ends watching `fd`. Needed before closing only where a copy stays open (invariant 2).
    pub fn remove(&self, fd: &impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest::NONE)
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: &impl AsFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.0, u64: token };
        let (epoll, fd) = (self.epoll.as_raw_fd(), fd.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open while they are borrowed; the kernel reads `event`.
        check(unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut event) })?;
        Ok(())
    }

    /// Waits until a descriptor is ready or `timeout_ms` have passed (`None`: no limit; at most 24
    /// days), and returns the number of events. A signal ends the wait early, with no events.
    pub fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> io::Result<usize> {
        // If this wait fails, no event of an earlier one is left (invariant 1).
        events.count = 0;
        let timeout = timeout_ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
        let (room, length) = (events.ready.as_mut_ptr(), events.ready.len() as libc::c_int);
        // SAFETY: the kernel writes at most `length` events to `ready`, which has that many.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), room, length, timeout) };
        match check(count) {
            Ok(count) => events.count = count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(events.count)
    }
}

fn event_of(event: &libc::epoll_event) -> Event {
    Event::of(event.u64, event.events)
}

impl Event {
    /// From the bits of the kernel, which are the same for epoll and poll.
    pub(crate) fn of(token: u64, bits: u32) -> Event {
        const FAILED: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        Event {
            token,
            readable: bits & (Interest::READ.0 | FAILED) != 0,
            writable: bits & (Interest::WRITE.0 | FAILED) != 0,
            closed: bits & (libc::EPOLLRDHUP as u32 | FAILED) != 0,
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Ends another thread's wait. Register it in that thread's [`Poller`] for [`Interest::READ`], and
/// share it (`Arc`) with the threads that wake it.
#[derive(Debug)]
pub struct Waker(File);

impl Waker {
    /// A waker that no thread has called.
    pub fn new() -> io::Result<Waker> {
        // SAFETY: takes integers only; what it makes is ours.
        let fd = unsafe { owned(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)) }?;
        Ok(Waker(fd.into()))
    }

    /// Makes the waker readable. Calls before the next [`Waker::clear`] are one. The receiver sees
    /// data stored before the call after `clear` (both are system calls on one object of the
    /// kernel, which orders them).
    pub fn wake(&self) -> io::Result<()> {
        match (&self.0).write(&1u64.to_ne_bytes()) {
            // The counter is full: 2^64 - 2 calls are pending.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Takes all calls so far, and returns whether there were any. Look for messages after this
    /// call, not before.
    pub fn clear(&self) -> io::Result<bool> {
        match (&self.0).read(&mut [0; 8]) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// Unread bytes are reported again; edges are reported once; removed or closed descriptors are
    /// not reported, and a wait without events ends. Invariant 2.
    #[test]
    fn levels_and_edges() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&socket, 7, Interest::READ).unwrap();
        let again = poller.add(&socket, 8, Interest::READ).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert!(tokens(&poller, 10).is_empty());
        peer.write_all(b"x").unwrap();
        assert_eq!(tokens(&poller, 10_000), [7]);
        assert_eq!(tokens(&poller, 10_000), [7]);
        poller.modify(&socket, 9, Interest::READ.edge()).unwrap();
        assert_eq!(tokens(&poller, 10_000), [9]);
        assert!(tokens(&poller, 10).is_empty());
        poller.remove(&socket).unwrap();
        poller.add(&socket, 3, Interest::BOTH).unwrap();
        let events = wait(&poller, 10_000);
        assert_eq!(events, [Event { token: 3, readable: true, writable: true, closed: false }]);
        drop(peer);
        let events = wait(&poller, 10_000);
        assert!(events[0].closed);
        drop(socket);
        assert!(tokens(&poller, 10).is_empty());
    }

    /// Descriptors that one wait has no room for are returned by the next ones.
    #[test]
    fn room_is_a_bound() {
        let pairs: Vec<_> = (0..5).map(|_| UnixStream::pair().unwrap()).collect();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(2));
        for (token, (peer, socket)) in pairs.iter().enumerate() {
            poller.add(socket, token as u64, Interest::READ.edge()).unwrap();
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
