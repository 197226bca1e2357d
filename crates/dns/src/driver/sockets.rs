//! A core's sockets, what is queued at them, and who is told of what goes by.
//!
//! ```text
//! answer(write)   into the batch of the socket that the question came by; a batch that is full leaves
//! flush           at the end of a turn
//! ```
//!
//! Invariants
//! 1. Nothing waits: what the kernel has no room for is dropped, and counted.
//! 2. Each answer to a client is noted once, whatever carries it: in the counts, and by those who are told of messages.
//!
//! Bounds: a batch for each socket.

use std::sync::Arc;

use larder_io::event::Poller;
use larder_io::random::Random;
use larder_io::udp::{Route, SendBatch, UdpSocket};
use larder_wire::frame::Letter;

use super::ways::Ways;
use crate::answerer::Answerers;
use crate::bridge::Inbox;
use crate::core::Client;
use crate::metrics::Counts;
use crate::pool::Origin;
use crate::query_log::QueryLog;
use crate::trace::Trace;
use crate::xdp;

/// A listening UDP socket and what is to be sent by it.
pub(super) struct Listener {
    pub socket: UdpSocket,
    pub outgoing: SendBatch,
    /// It had questions when it was last asked.
    pub is_busy: bool,
}

/// Sockets of a core.
pub(super) struct Sockets {
    pub poller: Arc<Poller>,
    pub listeners: Vec<Listener>,
    /// What goes by each queue.
    pub outgoing: Vec<xdp::Outgoing>,
    /// What others decrypted, if there are any.
    pub inbox: Option<Inbox>,
    pub ways: Ways,
    pub answerers: Answerers,
    pub origin: Origin,
    /// Number of the last upstream socket that was opened.
    pub numbers: u32,
    pub random: Random,
    pub now_ms: u64,
    /// What the core does not see.
    pub counts: Counts,
    /// Who is told of messages.
    pub trace: Option<Trace>,
    pub log: Option<QueryLog>,
}

impl Listener {
    /// Sends what is queued; how much of it the kernel did not take.
    pub fn flush(&mut self) -> u64 {
        let sent = self.outgoing.send(&self.socket);
        let dropped = sent.failed + self.outgoing.len();
        self.outgoing.clear();
        dropped as u64
    }
}

impl Sockets {
    /// Tells of a question, if anybody wants to know.
    #[inline]
    pub fn note_question(&mut self, client: &Client, message: &[u8]) {
        if let Some(trace) = &mut self.trace {
            trace.asked(client, message);
        }
    }

    /// Queues what `write` makes for a client of a listening socket.
    #[inline]
    pub fn answer(
        &mut self,
        socket: u16,
        route: &Route,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let Sockets { listeners, counts, trace, log, .. } = self;
        let Some(listener) = listeners.get_mut(usize::from(socket)) else { return false };
        if listener.outgoing.len() == listener.outgoing.capacity() {
            counts.unsent_answers += listener.flush();
        }
        let Some(room) = listener.outgoing.slot() else { return false };
        let bytes_max = bytes_max.min(room.len());
        let Some(length) = write(&mut room[..bytes_max]) else { return false };
        note_answer(counts, (trace, log), &Client::Udp { socket, route: *route }, &room[..length]);
        listener.outgoing.commit(length, Some(route));
        true
    }

    /// Queues what `write` makes for a client of a queue.
    #[inline]
    pub fn answer_by_frame(
        &mut self,
        queue: u16,
        letter: &Letter,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let Sockets { outgoing, counts, trace, log, .. } = self;
        let Some(outgoing) = outgoing.get_mut(usize::from(queue)) else { return false };
        let answered = outgoing.answer(letter, bytes_max, |room| {
            let length = write(room)?;
            let client = Client::Frame { queue, letter: *letter };
            note_answer(counts, (trace, log), &client, &room[..length]);
            Some(length)
        });
        // Without room it is dropped, which is no reason to answer in another way.
        counts.unsent_answers += u64::from(answered.is_none());
        answered.unwrap_or(true)
    }
}

/// Counts an answer, and tells of it, if anybody wants to know.
#[inline]
pub(super) fn note_answer(
    counts: &mut Counts,
    (trace, log): (&mut Option<Trace>, &mut Option<QueryLog>),
    client: &Client,
    message: &[u8],
) {
    counts.answered(message);
    if let Some(trace) = trace {
        trace.answered(client, message);
    }
    if let Some(log) = log {
        log.answered(client, message);
    }
}
