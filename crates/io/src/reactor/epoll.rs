//! The reactor by readiness: a [`Poller`] reports which sockets are ready, and each read, write and accept
//! is a system call.
//!
//! The kernel may watch for more events (`armed`) than are wanted. Unwanted ones are removed when
//! they fire, so that pausing and resuming costs nothing if no byte arrives between. All wanted
//! events are always armed.
//!
//! Sockets that one wait had no room for are the first of the next, so busy sockets cannot starve
//! them. Bytes of a wait are close together, in order: a receive takes the memory that it needs.
//!
//! Invariants
//! 1. A descriptor in the table is open: it is closed by [`Epoll::close`] or after
//!    [`Epoll::unlisten`], which take it out (rule 1 of the reactor).
//! 2. `armed` covers what is wanted, between calls.
//!
//! Cost: a wait, and a receive and a send a request; a change of what is armed.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use super::batch::{Batch, Item, Memory};
use super::send_buffers::SendBuffers;
use super::{ACCEPTED_MAX, Options, Sending, Waker, index_of, is_ready, plain};
use crate::epoll::{Event, Events, Interest, Poller};
use crate::tcp;

/// The token of the waker: no descriptor has this number.
const WAKER: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Epoll {
    poller: Poller,
    /// The events of the last poll; those from `events_at` on have not been handled.
    events: Events,
    events_at: usize,
    events_max: usize,
    receive_bytes: usize,
    /// By number of descriptor.
    sockets: Vec<Socket>,
}

/// The state of a descriptor.
#[derive(Debug, Default)]
struct Socket {
    token: u64,
    /// Incremented when the descriptor is closed, which identifies events from before.
    generation: u32,
    is_known: bool,
    is_listening: bool,
    is_receiving: bool,
    watched: Option<Interest>,
    outgoing: Option<Outgoing>,
    armed: Armed,
}

/// The events that epoll watches a descriptor for.
#[derive(Debug, Clone, Copy, Default)]
enum Armed {
    /// It is not in epoll's set.
    #[default]
    Absent,
    /// Watched with a one-shot event that has fired: nothing more is reported.
    Spent,
    For(Interest),
}

/// The rest of a send.
#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Socket {
    fn wanted(&self) -> Option<Interest> {
        let mut lasting = Interest::NONE;
        if self.is_listening || self.is_receiving {
            lasting = lasting.and(Interest::READ);
        }
        if self.outgoing.is_some() {
            lasting = lasting.and(Interest::WRITE);
        }
        if lasting == Interest::NONE {
            return self.watched.map(Interest::once);
        }
        Some(lasting.and(self.watched.unwrap_or(Interest::NONE)))
    }
}

impl Epoll {
    pub(super) fn new(
        options: &Options,
        waker: &crate::epoll::Waker,
    ) -> io::Result<(Epoll, Batch)> {
        let poller = Poller::new()?;
        poller.add(waker, WAKER, crate::epoll::Waker::UNREAD)?;
        let memory = vec![0; options.receive_bytes * options.buffers].into_boxed_slice();
        let epoll = Epoll {
            poller,
            events: Events::new(options.events_max),
            events_at: 0,
            events_max: options.events_max,
            receive_bytes: options.receive_bytes,
            sockets: Vec::new(),
        };
        Ok((epoll, Batch::new(Memory::Owned(memory))))
    }

    pub(super) fn listen(&mut self, listener: &TcpListener, token: u64) -> io::Result<()> {
        self.change(listener.as_fd(), token, |socket| socket.is_listening = true)
    }

    pub(super) fn unlisten(&mut self, listener: &TcpListener, token: u64) {
        let socket = self.known(listener.as_fd(), token);
        socket.is_listening = false;
        let index = index_of(listener);
        self.settle(index);
        self.forget(index);
    }

    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.change(fd, token, |socket| socket.is_receiving = true)
    }

    pub(super) fn pause(&mut self, fd: BorrowedFd<'_>, token: u64) {
        self.known(fd, token).is_receiving = false;
    }

    pub(super) fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let interest = plain(interest);
        self.change(fd, token, |socket| socket.watched = Some(interest))
    }

    pub(super) fn unwatch(&mut self, fd: BorrowedFd<'_>, token: u64) {
        self.known(fd, token).watched = None;
    }

    pub(super) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        token: u64,
        bytes: Vec<u8>,
        send_buffers: &mut SendBuffers,
    ) -> Sending {
        assert!(self.known(fd, token).outgoing.is_none(), "one send of a socket at a time");
        let sent = match tcp::write(&fd, &bytes) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => {
                send_buffers.give_back(bytes);
                return Sending::Failed(error);
            }
        };
        if sent == bytes.len() {
            send_buffers.give_back(bytes);
            return Sending::Done;
        }
        let outgoing = Outgoing { bytes, sent };
        match self.change(fd, token, |socket| socket.outgoing = Some(outgoing)) {
            Ok(()) => Sending::Later,
            Err(error) => {
                self.known(fd, token).outgoing = None;
                Sending::Failed(error)
            }
        }
    }

    pub(super) fn close(&mut self, fd: OwnedFd, token: u64, send_buffers: &mut SendBuffers) {
        if let Some(outgoing) = self.known(fd.as_fd(), token).outgoing.take() {
            send_buffers.give_back(outgoing.bytes);
        }
        self.forget(index_of(&fd));
        drop(crate::epoll::Watched::new(fd));
    }

    /// The table's line of a descriptor, which has this token.
    fn known(&mut self, fd: BorrowedFd<'_>, token: u64) -> &mut Socket {
        let index = index_of(&fd);
        if index >= self.sockets.len() {
            self.sockets.resize_with(index + 1, Socket::default);
        }
        let socket = &mut self.sockets[index];
        if !socket.is_known {
            (socket.is_known, socket.token) = (true, token);
        }
        assert_eq!(socket.token, token, "a socket has one token until it is closed by the reactor");
        socket
    }

    /// A descriptor is about to be closed, or is no longer ours.
    fn forget(&mut self, index: usize) {
        let generation = self.sockets[index].generation.wrapping_add(1);
        self.sockets[index] = Socket { generation, ..Socket::default() };
    }

    /// Changes the wanted events of a socket, and arms it for them (invariant 2).
    fn change(
        &mut self,
        fd: BorrowedFd<'_>,
        token: u64,
        change: impl FnOnce(&mut Socket),
    ) -> io::Result<()> {
        let socket = self.known(fd, token);
        change(socket);
        let is_covered = match (socket.armed, socket.wanted()) {
            (_, None) => true,
            (Armed::For(armed), Some(wanted)) => {
                armed.once().covers(wanted) && (wanted.is_once() || !armed.is_once())
            }
            _ => false,
        };
        if is_covered { Ok(()) } else { self.arm(index_of(&fd)) }
    }

    /// Makes epoll watch for exactly the wanted events.
    fn arm(&mut self, index: usize) -> io::Result<()> {
        let socket = &mut self.sockets[index];
        // SAFETY: open, by invariant 1.
        let fd = unsafe { BorrowedFd::borrow_raw(index as RawFd) };
        let name = u64::from(socket.generation) << 32 | index as u64;
        socket.armed = match (socket.armed, socket.wanted()) {
            (Armed::For(armed), Some(wanted)) if armed == wanted => return Ok(()),
            (Armed::Absent | Armed::Spent, None) => return Ok(()),
            (Armed::Absent, Some(wanted)) => {
                self.poller.add(&fd, name, wanted)?;
                Armed::For(wanted)
            }
            (_, Some(wanted)) => {
                self.poller.modify(&fd, name, wanted)?;
                Armed::For(wanted)
            }
            (Armed::For(_), None) => {
                self.poller.remove(&fd)?;
                Armed::Absent
            }
        };
        Ok(())
    }

    /// Like `settle`, where no error can be returned. Watching for fewer events needs no memory, so
    /// there is no error while invariant 1 holds.
    fn settle(&mut self, index: usize) {
        let settled = self.arm(index);
        debug_assert!(settled.is_ok(), "{settled:?}");
    }

    pub(super) fn wait(
        &mut self,
        batch: &mut Batch,
        timeout: Option<Duration>,
        send_buffers: &mut SendBuffers,
        waker: &Waker,
    ) -> io::Result<usize> {
        let timeout_ms = timeout.map(|timeout| {
            u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
        });
        let mut memory_used = 0;
        loop {
            let is_new = self.events.get(self.events_at).is_none();
            if is_new {
                self.events_at = 0;
                self.poller.wait(&mut self.events, timeout_ms)?;
            }
            while batch.len() < self.events_max
                && let Some(event) = self.events.get(self.events_at)
                && memory_used + self.receive_bytes <= batch.own_memory().len()
            {
                self.events_at += 1;
                if event.token != WAKER {
                    self.handle(&event, batch, &mut memory_used, send_buffers);
                    continue;
                }
                waker.0.event.reported();
                if waker.take_calls() {
                    batch.items.push_back(Item::Woken);
                }
            }
            // Old events may all have been of sockets that are closed now.
            if is_new || !batch.is_empty() {
                return Ok(batch.len());
            }
        }
    }

    /// Does the operations that a socket is ready for.
    fn handle(
        &mut self,
        event: &Event,
        batch: &mut Batch,
        memory_used: &mut usize,
        send_buffers: &mut SendBuffers,
    ) {
        let (index, generation) = (event.token as u32 as usize, (event.token >> 32) as u32);
        let Some(socket) = self.sockets.get_mut(index).filter(|of| of.generation == generation)
        else {
            return;
        };
        if let Armed::For(armed) = socket.armed
            && armed.is_once()
        {
            socket.armed = Armed::Spent;
        }
        // SAFETY: open, by invariant 1.
        let fd = unsafe { BorrowedFd::borrow_raw(index as RawFd) };
        if event.readable && socket.is_listening {
            accept(socket, fd, batch, self.events_max);
        }
        if event.readable && socket.is_receiving {
            let room = &mut batch.own_memory()[*memory_used..][..self.receive_bytes];
            let received = tcp::read_into(&fd, room);
            let at = *memory_used;
            let token = socket.token;
            match received {
                Ok(0) => {
                    socket.is_receiving = false;
                    batch.items.push_back(Item::Finished { token });
                }
                Ok(len) => {
                    *memory_used += len;
                    batch.items.push_back(Item::Received { token, at, len });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    socket.is_receiving = false;
                    batch.items.push_back(Item::Failed { token, error });
                }
            }
        }
        if event.writable && socket.outgoing.is_some() {
            go_on(socket, fd, batch, send_buffers);
        }
        if socket.watched.is_some_and(|watched| is_ready(watched, event)) {
            socket.watched = None;
            let &Event { readable, writable, closed, .. } = event;
            batch.items.push_back(Item::Ready { token: socket.token, readable, writable, closed });
        }
        if socket.is_known {
            self.settle(index);
        }
    }
}

/// Takes connections, a fair share of them.
fn accept(socket: &mut Socket, listener: BorrowedFd<'_>, batch: &mut Batch, events_max: usize) {
    let token = socket.token;
    let share = ACCEPTED_MAX.min(events_max - batch.len());
    for _ in 0..share {
        match tcp::accept_from(&listener) {
            Ok(Some((socket, peer))) => {
                let peer = Some(peer);
                batch.items.push_back(Item::Accepted { token, socket: socket.into(), peer });
            }
            Ok(None) => return,
            Err(error) => {
                socket.is_listening = false;
                batch.items.push_back(Item::Failed { token, error });
                return;
            }
        }
    }
}

/// Sends the remaining bytes.
fn go_on(
    socket: &mut Socket,
    fd: BorrowedFd<'_>,
    batch: &mut Batch,
    send_buffers: &mut SendBuffers,
) {
    let token = socket.token;
    let Some(outgoing) = &mut socket.outgoing else { return };
    let item = match tcp::write(&fd, &outgoing.bytes[outgoing.sent..]) {
        Ok(sent) => {
            outgoing.sent += sent;
            if outgoing.sent < outgoing.bytes.len() {
                return;
            }
            Item::Sent { token }
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
        Err(error) => Item::Failed { token, error },
    };
    batch.items.push_back(item);
    if let Some(outgoing) = socket.outgoing.take() {
        send_buffers.give_back(outgoing.bytes);
    }
}
