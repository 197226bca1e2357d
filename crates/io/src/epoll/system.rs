//! epoll, and an eventfd.
//!
//! Invariant: `Events::ready[..count]` was written by the last wait.
//!
//! Cost: one system call per wait, no memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{Event, Interest};
use crate::socket::{check, owned};

/// What waits, for messages.
pub const NAME: &str = "epoll";

/// The bit that the peer sends no more.
pub(super) const PEER_FINISHED: u32 = libc::EPOLLRDHUP as u32;

impl Interest {
    /// Report once when the state changes, and not again until the next change. The event loop must
    /// then read (or write) until the call would block.
    pub const fn edge(self) -> Interest {
        Interest(self.0 | libc::EPOLLET as u32)
    }
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

    /// Ends watching `fd`.
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
        // If this wait fails, no event of an earlier one is left (the invariant).
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

impl Waker {
    /// For a loop that does not read it: each call is reported once.
    pub(crate) const UNREAD: Interest = Interest::READ.edge();

    /// To be called after an event of [`Waker::UNREAD`], before looking for messages.
    pub(crate) fn reported(&self) {}
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

    /// An edge is reported once, also if the bytes are not read.
    #[test]
    fn edges_are_reported_once() {
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(8));
        poller.add(&socket, 7, Interest::READ.edge()).unwrap();
        for _ in 0..2 {
            peer.write_all(b"x").unwrap();
            assert_eq!(poller.wait(&mut events, Some(10_000)).unwrap(), 1);
            assert_eq!(poller.wait(&mut events, Some(10)).unwrap(), 0);
        }
    }
}
