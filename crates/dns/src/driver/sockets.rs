//! A core's sockets, and their outgoing batches.
//!
//! ```text
//! respond  queues into the batch of the socket at which the query arrived; a full batch is sent
//! flush    sends all batches at the end of a turn
//! ```
//!
//! Nothing waits: messages for which the kernel has no room are dropped and counted. Bounds: a
//! batch for each socket.

use std::sync::Arc;

use larder_io::epoll::Poller;
use larder_io::random::Random;
use larder_io::udp::{Route, SendBatch, UdpSocket};
use larder_wire::udp_frame::FrameAddresses;

use super::observers::Observers;
use super::upstream_sockets::UpstreamSockets;
use crate::backend::Backends;
use crate::core::{Client, Now};
use crate::side_query::Inbox;
use crate::upstream_udp::QuerySource;
use crate::xdp;

/// A listening UDP socket and its outgoing batch.
pub(super) struct Listener {
    pub socket: UdpSocket,
    pub outgoing: SendBatch,
    /// The last receive call returned queries.
    pub is_busy: bool,
}

/// Sockets of a core.
pub(super) struct Sockets {
    pub poller: Arc<Poller>,
    pub listeners: Vec<Listener>,
    /// The sending side of each AF_XDP queue.
    pub outgoing: Vec<xdp::Outgoing>,
    /// Queries of other transports.
    pub inbox: Option<Inbox>,
    pub upstream_sockets: UpstreamSockets,
    pub backends: Backends,
    pub origin: QuerySource,
    /// Number of the last socket to an upstream.
    pub numbers: u32,
    pub random: Random,
    pub now_ms: u64,
    pub observers: Observers,
}

impl Listener {
    /// Sends the batch, and returns the number of messages that the kernel did not take.
    pub fn flush(&mut self) -> u64 {
        let sent = self.outgoing.send(&self.socket);
        let dropped = sent.failed + self.outgoing.len();
        self.outgoing.clear();
        dropped as u64
    }
}

impl Sockets {
    /// Begins a turn.
    pub fn begin(&mut self, now: Now) {
        self.now_ms = now.us / 1_000;
        self.observers.begin(now);
    }

    /// Ends a turn: sends all batches.
    pub fn flush(&mut self) {
        let Sockets { listeners, outgoing, inbox, upstream_sockets, observers, now_ms, .. } = self;
        if let Some(inbox) = inbox {
            inbox.flush();
        }
        for listener in listeners {
            observers.counts.unsent_answers += listener.flush();
        }
        outgoing.iter_mut().for_each(xdp::Outgoing::flush);
        for pool in upstream_sockets.pools_mut() {
            pool.flush();
            pool.tick(*now_ms);
        }
        observers.flush();
    }

    /// Queues a response, made by `write`, to a client of a listening socket.
    #[inline]
    pub fn respond(
        &mut self,
        socket: u16,
        route: &Route,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let Sockets { listeners, observers, .. } = self;
        let Some(listener) = listeners.get_mut(usize::from(socket)) else { return false };
        if listener.outgoing.len() == listener.outgoing.capacity() {
            observers.counts.unsent_answers += listener.flush();
        }
        let Some(room) = listener.outgoing.slot() else { return false };
        let bytes_max = bytes_max.min(room.len());
        let Some(length) = write(&mut room[..bytes_max]) else { return false };
        observers.response(&Client::Udp { socket, route: *route }, &room[..length]);
        listener.outgoing.commit(length, Some(route));
        true
    }

    /// Queues a response, made by `write`, to a client of an AF_XDP queue.
    #[inline]
    pub fn respond_by_frame(
        &mut self,
        queue: u16,
        letter: &FrameAddresses,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let Sockets { outgoing, observers, .. } = self;
        let Some(outgoing) = outgoing.get_mut(usize::from(queue)) else { return false };
        let answered = outgoing.answer(letter, bytes_max, |room| {
            let length = write(room)?;
            observers.response(&Client::Frame { queue, letter: *letter }, &room[..length]);
            Some(length)
        });
        // Without room the response is dropped, and no other path is tried.
        observers.counts.unsent_answers += u64::from(answered.is_none());
        answered.unwrap_or(true)
    }
}
