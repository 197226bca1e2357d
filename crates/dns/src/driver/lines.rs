//! What a core speaks through: [`Net`] over sockets, streams and answerers.
//!
//! Lines are lent for one call of the core and own nothing. Streams are apart from the sockets, since they hand out
//! questions and take answers in one call; whoever is called back with some of them makes lines anew.

use std::net::SocketAddr;

use super::sockets::Sockets;
use super::ways::Way;
use crate::core::{Client, Core, Net, Now};
use crate::dnstap::Protocol;
use crate::exchanges::{Exchanges, Outcome};
use crate::query_log::Source;
use crate::streams::{StreamId, Streams};
use crate::trace::Exchange;

/// What the core is given to speak through.
pub(super) struct Lines<'a> {
    pub sockets: &'a mut Sockets,
    pub streams: &'a mut Streams,
    pub exchanges: &'a mut Exchanges,
}

impl Net for Lines<'_> {
    #[inline]
    fn answer(
        &mut self,
        client: &Client,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        match client {
            Client::Udp { socket, route } => self.sockets.answer(*socket, route, bytes_max, write),
            Client::Frame { queue, letter } => {
                self.sockets.answer_by_frame(*queue, letter, bytes_max, write)
            }
            Client::Stream { stream, .. } => {
                let notes = &mut self.sockets.notes;
                self.streams.answer(StreamId::from_bits(*stream), bytes_max, |room| {
                    let length = write(room)?;
                    notes.answered(client, &room[..length]);
                    Some(length)
                })
            }
            Client::Beside { slot, .. } => {
                let Sockets { inbox, notes, .. } = &mut *self.sockets;
                let answered = inbox.as_mut().and_then(|it| it.answer(*slot, bytes_max, write));
                answered.map(|octets| notes.answered(client, octets)).is_some()
            }
        }
    }

    fn describe(&mut self, source: Source, since_us: Option<u64>) {
        if let Some(log) = &mut self.sockets.notes.log {
            log.describe(source, since_us);
        }
    }

    fn ignore(&mut self, client: &Client) {
        match client {
            Client::Udp { .. } | Client::Frame { .. } => {}
            Client::Stream { stream, .. } => {
                self.streams.drop_question(StreamId::from_bits(*stream));
            }
            Client::Beside { slot, .. } => {
                if let Some(inbox) = &mut self.sockets.inbox {
                    inbox.ignore(*slot);
                }
            }
        }
    }

    fn ask(
        &mut self,
        upstream: usize,
        write: impl FnOnce(u32, &mut [u8]) -> Option<usize>,
    ) -> bool {
        let Sockets { ways, origin, numbers, random, poller, now_ms, notes, .. } =
            &mut *self.sockets;
        let Some(pool) = ways.pool_mut(upstream) else { return false };
        let mut told = Vec::new();
        let asked = pool.ask(*now_ms, origin, numbers, random, poller, |socket, room| {
            let length = write(socket, room)?;
            if notes.trace.is_some() {
                told.extend_from_slice(&room[..length]);
            }
            Some(length)
        });
        if let (Some(trace), Ok(socket)) = (&mut notes.trace, &asked) {
            trace.forwarded(&pool.exchange(*socket, &told));
        }
        notes.counts.unsent_queries += u64::from(asked.is_err());
        asked.is_ok()
    }

    fn ask_by_stream(&mut self, upstream: usize, tag: u64, message: &[u8]) -> bool {
        let Sockets { ways, answerers, origin, poller, now_ms, notes, .. } = &mut *self.sockets;
        let address = match ways.get(upstream) {
            Some(Way::Server(pool)) => pool.address(),
            Some(Way::Answerer(to)) => {
                answerers.cancel(tag);
                return answerers.ask(to.number, tag, message, to.wait_ms);
            }
            None => return false,
        };
        let local = origin.address_for(address);
        // A tag that comes again stands for a question asked so often that its first stream is long given up.
        self.exchanges.cancel(tag);
        let is_asked = self.exchanges.ask(address, local, tag, message, poller, *now_ms).is_ok();
        if let (Some(trace), true) = (&mut notes.trace, is_asked) {
            trace.forwarded(&by_stream(address, message));
        }
        is_asked
    }

    fn forget(&mut self, tag: u64) {
        self.sockets.answerers.cancel(tag);
    }
}

impl Lines<'_> {
    /// Gives the core what a client asked by a stream.
    pub fn question(
        &mut self,
        core: &mut Core,
        now: Now,
        stream: StreamId,
        peer: SocketAddr,
        message: &[u8],
    ) {
        let client = Client::Stream { stream: stream.to_bits(), peer };
        self.sockets.notes.asked(&client, message);
        core.questions(now, std::iter::once((client, message)), self);
    }

    /// Gives the core what became of a question by a stream.
    pub fn take(&mut self, core: &mut Core, now: Now, tag: u64, outcome: Outcome<'_>) {
        let octets = outcome.answer();
        let Sockets { ways, notes, .. } = &mut *self.sockets;
        if let (Some(trace), Some(octets)) = (&mut notes.trace, octets)
            && let Some(upstream) = core.asked_by_stream(tag)
            && let Some(pool) = ways.pool(upstream)
        {
            trace.heard(&by_stream(pool.address(), octets));
        }
        core.answered_by_stream(now, tag, octets, self);
    }
}

/// A message to or from an upstream by a stream, whose own end is not known here.
fn by_stream(upstream: SocketAddr, message: &[u8]) -> Exchange<'_> {
    Exchange { protocol: Protocol::Tcp, local: None, upstream, message }
}
