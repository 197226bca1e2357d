//! The state of sockets, the operations armed for them, and the effect of completions. No system
//! call is made here. The invariants are those of [`super`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use io_uring::types::Fd;
use io_uring::{cqueue, opcode};

use super::super::batch::{Batch, Item};
use super::super::send_buffers::SendBuffers;
use super::super::{Waker, index_of, is_ready};
use super::receive_buffers::{GROUP, ReceiveBuffers};
use super::slots::{Listener, Outgoing, is_passing};
use super::{Queue, raw};
use crate::epoll::{Event, Interest};

/// The operation of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Receive,
    Watch,
    Send,
    Accept,
    Wake,
    /// No effect.
    Other,
}

const KINDS: [Kind; 6] =
    [Kind::Receive, Kind::Watch, Kind::Send, Kind::Accept, Kind::Wake, Kind::Other];

const GENERATION_BITS: u32 = 28;
const GENERATIONS: u32 = 1 << GENERATION_BITS;

/// Names an operation: by descriptor and generation, or by slot.
pub(super) fn name(kind: Kind, index: usize, generation: u32) -> u64 {
    debug_assert!(index <= u32::MAX as usize && generation < GENERATIONS);
    (u64::from(kind as u32) << GENERATION_BITS | u64::from(generation)) << 32 | index as u64
}

/// The other way.
fn parts(name: u64) -> (Kind, usize, u32) {
    let above = (name >> 32) as u32;
    let kind = KINDS.get((above >> GENERATION_BITS) as usize).copied().unwrap_or(Kind::Other);
    (kind, name as u32 as usize, above & (GENERATIONS - 1))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    Armed,
    Cancelling,
}

/// The state of a descriptor.
#[derive(Debug, Default)]
pub(super) struct Socket {
    pub(super) token: u64,
    /// Another one when the descriptor is closed.
    pub(super) generation: u32,
    pub(super) is_known: bool,
    /// In the list of those to settle.
    is_listed: bool,
    pub(super) should_receive: bool,
    pub(super) receiving: Phase,
    /// Whether bytes have arrived since receiving began.
    has_received: bool,
    pub(super) watched: Option<Interest>,
    pub(super) watching: Phase,
    /// The events it is watched for, while it is.
    armed: Option<Interest>,
    /// The slot of the send under way.
    pub(super) sending: Option<usize>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) buffers: ReceiveBuffers,
    /// By number of descriptor.
    pub(super) sockets: Vec<Socket>,
    /// Those to settle: numbers and generations.
    listed: Vec<(usize, u32)>,
    /// Whether buffers ran out since the last time.
    is_short: bool,
    pub(super) sends: Vec<Option<Outgoing>>,
    pub(super) sends_free: Vec<usize>,
    /// Slots of sends that were cut short.
    pub(super) sends_again: Vec<usize>,
    pub(super) listeners: Vec<Option<Listener>>,
    /// Slots of listeners that do not accept now.
    pub(super) accept_again: Vec<usize>,
    waker: Waker,
    is_waker_idle: bool,
    /// Operations that were begun and have not ended.
    pub(super) under_way: usize,
}

impl State {
    pub(super) fn new(buffers: ReceiveBuffers, waker: Waker) -> State {
        State {
            buffers,
            sockets: Vec::new(),
            listed: Vec::new(),
            is_short: false,
            sends: Vec::new(),
            sends_free: Vec::new(),
            sends_again: Vec::new(),
            listeners: Vec::new(),
            accept_again: Vec::new(),
            waker,
            is_waker_idle: true,
            under_way: 0,
        }
    }

    /// The table's line of a descriptor, which has this token.
    pub(super) fn known(&mut self, fd: BorrowedFd<'_>, token: u64) -> &mut Socket {
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

    /// Changes what a socket should do; [`State::settle`] applies it.
    pub(super) fn change(
        &mut self,
        fd: BorrowedFd<'_>,
        token: u64,
        change: impl FnOnce(&mut Socket),
    ) {
        change(self.known(fd, token));
        self.list(index_of(&fd));
    }

    fn list(&mut self, index: usize) {
        let socket = &mut self.sockets[index];
        if !std::mem::replace(&mut socket.is_listed, true) {
            self.listed.push((index, socket.generation));
        }
    }

    /// A descriptor is about to be closed.
    pub(super) fn forget(&mut self, index: usize) {
        let generation = (self.sockets[index].generation + 1) % GENERATIONS;
        self.sockets[index] = Socket { generation, ..Socket::default() };
    }

    /// The line of a descriptor that has not been closed since.
    pub(super) fn living(&mut self, index: usize, generation: u32) -> Option<&mut Socket> {
        self.sockets.get_mut(index).filter(|of| of.generation == generation && of.is_known)
    }

    /// Begins and ends operations, so that the running ones are those that should run.
    pub(super) fn settle(&mut self, queue: &mut Queue) {
        if std::mem::replace(&mut self.is_waker_idle, false) {
            let event = raw(&self.waker.0.event.as_fd());
            let entry = opcode::PollAdd::new(event, libc::POLLIN as u32).multi(true).build();
            queue.push(entry.user_data(name(Kind::Wake, 0, 0)));
            self.under_way += 1;
        }
        while let Some(slot) = self.accept_again.pop() {
            self.settle_listener(slot, queue);
        }
        while let Some(slot) = self.sends_again.pop() {
            self.settle_send(slot, queue);
        }
        let mut listed = std::mem::take(&mut self.listed);
        if std::mem::take(&mut self.is_short) {
            // Sockets that got no buffer come first, or busy ones would take all buffers.
            listed.sort_by_key(|(index, _)| self.sockets[*index].has_received);
        }
        for (index, generation) in listed.drain(..) {
            let Some(socket) = self.living(index, generation) else { continue };
            let begun = settle_socket(socket, index, queue);
            self.under_way += begun;
        }
        // Nothing was listed meanwhile; its memory is used again.
        self.listed = listed;
    }

    /// Records the result of a completion, and reports events.
    pub(super) fn complete(
        &mut self,
        completion: &cqueue::Entry,
        batch: &mut Batch,
        send_buffers: &mut SendBuffers,
    ) {
        let (kind, index, generation) = parts(completion.user_data());
        let result = match completion.result() {
            count @ 0.. => Ok(count as u32),
            error => Err(io::Error::from_raw_os_error(-error)),
        };
        let is_over = !cqueue::more(completion.flags());
        if is_over && kind != Kind::Other {
            self.under_way -= 1;
        }
        match kind {
            Kind::Receive => {
                let is_short = |error: &io::Error| error.raw_os_error() == Some(libc::ENOBUFS);
                self.is_short |= result.as_ref().is_err_and(is_short);
                // The completion returns the buffer to us, whatever its operation.
                let buffer = cqueue::buffer_select(completion.flags());
                let at = buffer.map_or(0, |id| self.buffers.take(id));
                let Some(socket) = self.living(index, generation) else { return };
                if is_over {
                    socket.receiving = Phase::Idle;
                }
                batch.items.extend(received(socket, result, at));
                if is_over && (socket.should_receive || socket.watched.is_some()) {
                    self.list(index);
                }
            }
            Kind::Watch => {
                let Some(socket) = self.living(index, generation) else { return };
                socket.watching = Phase::Idle;
                batch.items.extend(watched(socket, result));
                if socket.watched.is_some() {
                    self.list(index);
                }
            }
            Kind::Send => self.complete_send(index, result, batch, send_buffers),
            Kind::Accept => self.complete_accept(index, result, is_over, batch),
            Kind::Wake => {
                self.is_waker_idle |= is_over;
                if self.waker.take_calls() {
                    batch.items.push_back(Item::Woken);
                }
            }
            Kind::Other => {}
        }
    }
}

/// Begins and ends operations of one socket: how many were begun.
fn settle_socket(socket: &mut Socket, index: usize, queue: &mut Queue) -> usize {
    socket.is_listed = false;
    let (fd, mut begun) = (Fd(index as i32), 0);
    let receive = name(Kind::Receive, index, socket.generation);
    match (socket.receiving, socket.should_receive) {
        (Phase::Idle, true) => {
            queue.push(opcode::RecvMulti::new(fd, GROUP).build().user_data(receive));
            (socket.receiving, socket.has_received) = (Phase::Armed, false);
            begun += 1;
        }
        (Phase::Armed, false) => {
            queue.cancel(receive);
            socket.receiving = Phase::Cancelling;
        }
        _ => {}
    }
    let watch = name(Kind::Watch, index, socket.generation);
    // Invariant 5 of `uring`.
    let may_watch = socket.should_receive || socket.receiving == Phase::Idle;
    match (socket.watching, socket.watched) {
        (Phase::Idle, Some(interest)) if may_watch => {
            queue.push(opcode::PollAdd::new(fd, interest.bits()).build().user_data(watch));
            (socket.watching, socket.armed) = (Phase::Armed, Some(interest));
            begun += 1;
        }
        (Phase::Armed, watched) if watched != socket.armed => {
            queue.cancel(watch);
            socket.watching = Phase::Cancelling;
        }
        _ => {}
    }
    begun
}

/// The event for the result of a receive.
fn received(socket: &mut Socket, result: io::Result<u32>, at: usize) -> Option<Item> {
    let token = socket.token;
    match result {
        // For a socket that was paused meanwhile, the next receive reports it again.
        Ok(0) if !socket.should_receive => None,
        Ok(0) => {
            socket.should_receive = false;
            Some(Item::Finished { token })
        }
        Ok(count) => {
            socket.has_received = true;
            Some(Item::Received { token, at, len: count as usize })
        }
        Err(error) => match error.raw_os_error() {
            // ReceiveBuffers ran out: it is begun again when they are back.
            Some(libc::ECANCELED | libc::ENOBUFS) => None,
            _ if is_passing(&error) => None,
            _ => {
                socket.should_receive = false;
                Some(Item::Failed { token, error })
            }
        },
    }
}

/// The event for the result of a watch.
fn watched(socket: &mut Socket, result: io::Result<u32>) -> Option<Item> {
    let (token, interest) = (socket.token, socket.watched?);
    match result {
        Ok(bits) => {
            let event = Event::of(token, bits);
            if !is_ready(interest, &event) {
                return None;
            }
            socket.watched = None;
            let Event { readable, writable, closed, .. } = event;
            Some(Item::Ready { token, readable, writable, closed })
        }
        Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => None,
        Err(error) => {
            socket.watched = None;
            Some(Item::Failed { token, error })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name gives back its parts, at the ends of their ranges too.
    #[test]
    fn names_lead_back() {
        for kind in KINDS {
            for index in [0, 1, i32::MAX as usize, u32::MAX as usize] {
                for generation in [0, 1, GENERATIONS - 1] {
                    assert_eq!(parts(name(kind, index, generation)), (kind, index, generation));
                }
            }
        }
        assert_eq!(parts(u64::MAX).0, Kind::Other);
    }
}
