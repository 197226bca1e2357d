//! poll(2), and a pair of sockets: for systems without epoll. Every wait gives the kernel all
//! descriptors, so its cost grows with their number; a server of thousands of connections wants
//! Linux.
//!
//! Any thread may add and remove. The wait that is under way meanwhile does not see it, and may
//! end without events.
//!
//! The kernel knows nothing of our table, so the drop of a [`Watched`] counts how often each number was
//! closed, and entries from before the last time are taken out.
//!
//! Invariants
//! 1. Descriptors that are polled are open, or their owner has broken invariant 1 of the module
//!    above: debug builds panic then.
//! 2. Of descriptors that are ready, the next wait begins behind the last one reported.
//!
//! Cost: one system call per wait, of `n` entries; memory for as many.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Event, Interest, Watched};
use crate::socket::check;

/// What waits, for messages.
pub const NAME: &str = "poll";

/// The bit that the peer sends no more, where there is one. Elsewhere the socket is readable, or
/// reports `POLLHUP`.
#[cfg(target_os = "linux")]
pub(super) const PEER_FINISHED: u32 = libc::POLLRDHUP as u32;
#[cfg(not(target_os = "linux"))]
pub(super) const PEER_FINISHED: u32 = 0;

/// By number of descriptor: how often it was closed.
static CLOSED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

impl<T: AsFd> Drop for Watched<T> {
    /// Before the descriptor is closed: then another thread may get its number, and have it watched.
    fn drop(&mut self) {
        let index = self.as_fd().as_raw_fd() as usize;
        let mut closed = lock(&CLOSED);
        if closed.len() <= index {
            closed.resize(index + 1, 0);
        }
        closed[index] = closed[index].wrapping_add(1);
    }
}

/// How often a descriptor's number was closed.
fn closed(all: &[u32], fd: RawFd) -> u32 {
    all.get(fd as usize).copied().unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Descriptors to wait for.
#[derive(Debug)]
pub struct Poller {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    watched: BTreeMap<RawFd, Entry>,
    /// Incremented with each change.
    version: u64,
    /// The last descriptor that was reported.
    reported: RawFd,
}

#[derive(Debug)]
struct Entry {
    token: u64,
    interest: Interest,
    /// It reports once, and has.
    is_spent: bool,
    /// How often its number was closed before.
    closed: u32,
}

impl Entry {
    fn new(fd: RawFd, token: u64, interest: Interest) -> Entry {
        Entry { token, interest, is_spent: false, closed: closed(&lock(&CLOSED), fd) }
    }
}

/// The events of a wait. Separate from [`Poller`], so that a handler may add and remove descriptors
/// while it iterates over them.
pub struct Events {
    polled: Vec<libc::pollfd>,
    ready: Vec<Event>,
    events_max: usize,
}

impl Events {
    /// Room for `events_max` events a wait, at least 1 and at most 65,536.
    pub fn new(events_max: usize) -> Events {
        let events_max = events_max.clamp(1, 1 << 16);
        Events { polled: Vec::new(), ready: Vec::new(), events_max }
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event> + use<'_> {
        self.ready.iter().copied()
    }

    /// One event of the last wait, by its place.
    pub fn get(&self, index: usize) -> Option<Event> {
        self.ready.get(index).copied()
    }
}

impl Poller {
    /// Watches nothing yet.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller { table: Mutex::default() })
    }

    /// Begins to watch `fd`. Fails with `AlreadyExists` where it is watched.
    pub fn add(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let mut table = self.change();
        let fd = fd.as_fd().as_raw_fd();
        let new = Entry::new(fd, token, interest);
        if table.watched.get(&fd).is_some_and(|watched| watched.closed == new.closed) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        table.watched.insert(fd, new);
        Ok(())
    }

    /// Changes the events that `fd` is watched for, and its token.
    pub fn modify(&self, fd: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        let mut table = self.change();
        let fd = fd.as_fd().as_raw_fd();
        *table.watched.get_mut(&fd).ok_or(io::ErrorKind::NotFound)? =
            Entry::new(fd, token, interest);
        Ok(())
    }

    /// Ends watching `fd`.
    pub fn remove(&self, fd: &impl AsFd) -> io::Result<()> {
        let removed = self.change().watched.remove(&fd.as_fd().as_raw_fd());
        removed.map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Waits until a descriptor is ready or `timeout_ms` have passed (`None`: no limit; at most 24
    /// days), and returns the number of events. A signal ends the wait early, with no events.
    pub fn wait(&self, events: &mut Events, timeout_ms: Option<u64>) -> io::Result<usize> {
        let Events { polled, ready, events_max } = events;
        ready.clear();
        let version = self.table().list(polled);
        let timeout = timeout_ms.map_or(-1, |ms| i32::try_from(ms).unwrap_or(i32::MAX));
        let (first, count) = (polled.as_mut_ptr(), polled.len() as libc::nfds_t);
        // SAFETY: the kernel reads and writes as many entries as there are. It may find any numbers
        // in them.
        match check(unsafe { libc::poll(first, count, timeout) }) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(0),
            Err(error) => return Err(error),
        }
        let mut table = self.table();
        // After a change an entry may be another descriptor's. What is ready stays so.
        if table.version == version {
            table.report(polled, ready, *events_max);
        }
        Ok(ready.len())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn change(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table();
        table.version += 1;
        table
    }
}

impl Table {
    /// Lists what to wait for, in order of descriptors, and returns the version of that.
    fn list(&mut self, polled: &mut Vec<libc::pollfd>) -> u64 {
        let all = lock(&CLOSED);
        self.watched.retain(|fd, watched| watched.closed == closed(&all, *fd));
        drop(all);
        polled.clear();
        polled.extend(self.watched.iter().filter(|(_, watched)| !watched.is_spent).map(
            |(fd, watched)| {
                let events = (watched.interest.bits() & !Interest::ONCE) as libc::c_short;
                libc::pollfd { fd: *fd, events, revents: 0 }
            },
        ));
        self.version
    }

    /// Reports what is ready, as far as there is room (invariant 2).
    fn report(&mut self, polled: &[libc::pollfd], ready: &mut Vec<Event>, events_max: usize) {
        let behind = polled.partition_point(|entry| entry.fd <= self.reported);
        let (before, from) = polled.split_at(behind);
        for entry in from.iter().chain(before).filter(|entry| entry.revents != 0) {
            if ready.len() == events_max {
                return;
            }
            self.reported = entry.fd;
            let Some(watched) = self.watched.get_mut(&entry.fd) else { continue };
            if watched.closed != closed(&lock(&CLOSED), entry.fd) {
                continue;
            }
            if entry.revents & libc::POLLNVAL != 0 {
                debug_assert!(false, "invariant 1: {watched:?} was closed, and not by a `Watched`");
                self.watched.remove(&entry.fd);
                continue;
            }
            watched.is_spent = watched.interest.is_once();
            ready.push(event_of(watched, entry.revents));
        }
    }
}

fn event_of(watched: &Entry, bits: libc::c_short) -> Event {
    let mut event = Event::of(watched.token, u32::from(bits as u16));
    // Some systems report a peer that only finished sending by `POLLHUP`, if reading is wanted.
    let says_more = bits & (libc::POLLOUT | libc::POLLERR) != 0;
    event.writable &= says_more || !watched.interest.covers(Interest::READ);
    event
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Ends another thread's wait. Register it in that thread's [`Poller`] for [`Interest::READ`], and
/// share it (`Arc`) with the threads that wake it.
#[derive(Debug)]
pub struct Waker {
    /// The end that is watched.
    watched: UnixStream,
    called: UnixStream,
}

impl Waker {
    /// A waker that no thread has called.
    pub fn new() -> io::Result<Waker> {
        let (watched, called) = UnixStream::pair()?;
        watched.set_nonblocking(true)?;
        called.set_nonblocking(true)?;
        Ok(Waker { watched, called })
    }

    /// Makes the waker readable. Calls before the next [`Waker::clear`] are one. The receiver sees
    /// data stored before the call after `clear` (both are system calls on one object of the
    /// kernel, which orders them).
    pub fn wake(&self) -> io::Result<()> {
        match (&self.called).write(&[0]) {
            // Its buffer is full of calls that are pending.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Takes all calls so far, and returns whether there were any. Look for messages after this
    /// call, not before.
    pub fn clear(&self) -> io::Result<bool> {
        let mut was_called = false;
        loop {
            match (&self.watched).read(&mut [0; 256]) {
                Ok(_) => was_called = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(was_called),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// For a loop that does not read it.
    pub(crate) const UNREAD: Interest = Interest::READ;

    /// To be called after an event of [`Waker::UNREAD`], before looking for messages.
    pub(crate) fn reported(&self) {
        // An error would come again with the next event.
        let _ = self.clear();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}
