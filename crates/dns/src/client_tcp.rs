//! TCP from clients (RFC 7766): all connections of one core. It passes whole queries to the caller,
//! as many as a client sends at once, and takes responses in any order.
//!
//! The event loop calls in each turn, and nothing here waits or reads a clock:
//!
//! ```text
//! poller.wait(events, client_tcp.wait_ms(now))
//! the listener is ready: accept();  a token that it owns(): ready(), which calls each(id, client, query)
//! answer() or drop_question(), from within `each` or in any later turn
//! expire(), and at the end of the turn flush(): sends responses, and reads more where there is room
//! ```
//!
//! A stream is in one list, by the event that it waits for, and its time there is limited:
//!
//! | list | waits for | ends after | then |
//! |---|---|---|---|
//! | idle | the next query | `idle_ms`, less as the table fills | closed |
//! | partial | the rest of a query | `message_ms`, less as the table fills | closed |
//! | waiting | the caller's responses | `answer_ms` after its last query | closed |
//! | stalled | the client, to receive all that was unsent when this began | `stall_ms` | reset |
//!
//! A stream is not read while it has `unanswered_max` queries without a response, or half of the
//! bytes that may be unsent. The client's TCP window then makes it wait. A client that has finished
//! sending still gets its responses. A stream that broke the framing gets the responses to its
//! earlier queries.
//!
//! Invariants
//! 1. Only `flush` sends a stream's responses, or `answer` if it must make room, so the responses
//!    of a turn are sent together.
//! 2. Only `flush` changes the poller's interest in a stream. So an event matches the interest at
//!    the time of the wait.
//! 3. A stream whose state may have changed is in `dirty`, once, and `flush` empties it.
//! 4. Whole queries are stored only for a stream that may not be read.
//!
//! Bounds: [`Limits`]. An idle stream costs its slot. A busy one stores at most four times
//! `unsent_bytes_max` of responses, and four times (`message_bytes_max` and 16 kB) of queries. The
//! reason is that used bytes are discarded when they are half of a buffer, and that buffers grow by
//! doubling. Cost: O(1) for a call and a byte. A turn has one read for each ready stream, and one
//! write for each stream with responses.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use larder_io::epoll::{Event, Interest, Poller, Watched};
use larder_io::tcp;
use larder_serve::connection_limit::{ConnectionLimit, Permit};

use crate::tcp_framing::{
    Frames, Lengths, MESSAGE_BYTES_MAX, READ_BYTES, Received, Unsent, receive,
};
use larder_io::table::{Id, Table};

mod limits;
#[cfg(test)]
mod tests;

pub use limits::{Cause, Counters, Limits};

/// Connections accepted in one call: the others wait for the next turn.
const ACCEPTS_MAX: usize = 64;

/// Reads that discard bytes of a client before its stream is closed. The kernel resets a socket
/// that is closed with unread bytes, and the reset may reach the client before the last responses.
const DISCARDS_MAX: usize = 4;

/// A full table divides times by this.
const CROWDED_PART: u64 = 16;

// The lists of the table.
const IDLE: usize = 0;
const PARTIAL: usize = 1;
const WAITING: usize = 2;
const STALLED: usize = 3;

/// Names a stream, also after its end: then it names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId(Id);

impl StreamId {
    /// The ID as a number.
    pub fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The ID of such a number; any other number names nothing.
    pub fn from_bits(bits: u64) -> StreamId {
        StreamId(Id::from_bits(bits))
    }
}

/// All streams of a core. See the module header.
#[derive(Debug)]
pub struct ClientTcp {
    limits: Limits,
    lengths: Lengths,
    table: Table<Stream, 4>,
    /// Counts the streams of each client.
    clients: Arc<ConnectionLimit>,
    /// Streams that `flush` has to process.
    dirty: Vec<Id>,
    draining: bool,
    counters: Counters,
    /// Buffer of reads; taken out while its queries are processed.
    read_room: Box<[u8]>,
    /// Buffer in which responses are written.
    answer_room: Box<[u8]>,
}

#[derive(Debug)]
struct Stream {
    socket: Watched<TcpStream>,
    peer: SocketAddr,
    /// Counts it among its client's streams.
    _permit: Permit,
    frames: Frames,
    unsent: Unsent,
    /// Queries without a response.
    unanswered: usize,
    /// Bytes that the kernel must take before its time is up; 0 if it has taken all.
    stalled_bytes: usize,
    /// Why it is no longer read, and is closed when all responses are sent.
    ending: Option<Cause>,
    /// The poller's interest.
    interest: Interest,
    is_dirty: bool,
    /// A query arrived since the last `flush`: its time in a list restarts.
    has_received: bool,
    /// The kernel took the stalled bytes since the last `flush`.
    was_moved: bool,
}

impl Stream {
    /// Whether queries may be passed on: there are not too many without a response, or responses
    /// unsent.
    fn may_query(&self, limits: &Limits) -> bool {
        self.ending.is_none()
            && self.unanswered < limits.unanswered_max
            && self.unsent.len() <= limits.unsent_bytes_max / 2
    }

    fn list(&self, limits: &Limits) -> usize {
        if self.stalled_bytes > 0 {
            STALLED
        } else if !self.frames.is_empty() && self.may_query(limits) {
            PARTIAL
        } else if self.unanswered > 0 {
            WAITING
        } else {
            IDLE
        }
    }

    fn is_done(&self) -> bool {
        self.ending.is_some() && self.unanswered == 0 && self.unsent.len() == 0
    }

    /// Sends as many bytes as the kernel takes, and returns their number.
    fn send(&mut self) -> io::Result<usize> {
        let count = self.unsent.send(&*self.socket)?;
        if self.stalled_bytes > 0 {
            self.stalled_bytes = self.stalled_bytes.saturating_sub(count);
            self.was_moved = self.stalled_bytes == 0;
        }
        Ok(count)
    }
}

impl ClientTcp {
    /// No streams yet. `space` is the highest byte of their tokens, and of no others.
    pub fn new(limits: Limits, space: u8) -> ClientTcp {
        let limits = limits.within();
        ClientTcp {
            lengths: Lengths { least: 1, most: limits.message_bytes_max },
            table: Table::new(space, limits.streams_max),
            limits,
            clients: Arc::default(),
            dirty: Vec::new(),
            draining: false,
            counters: Counters::default(),
            read_room: vec![0; READ_BYTES].into(),
            answer_room: vec![0; MESSAGE_BYTES_MAX].into(),
        }
    }

    /// Open streams.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True if no stream is open: after [`ClientTcp::drain`], the end.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether a token belongs to a stream, open or closed since.
    pub fn owns(&self, token: u64) -> bool {
        self.table.owns(token)
    }

    /// Accepts at most 64 waiting connections. Errors are those of [`tcp::accept`]: the listener
    /// stays ready, and the caller should wait for a moment.
    pub fn accept(
        &mut self,
        listener: &TcpListener,
        poller: &Poller,
        now_ms: u64,
    ) -> io::Result<()> {
        for _ in 0..ACCEPTS_MAX {
            let Some((socket, peer)) = tcp::accept(listener)? else { break };
            self.admit(socket, peer, poller, now_ms);
        }
        Ok(())
    }

    /// Adds a connection, or closes it and counts why.
    fn admit(&mut self, socket: TcpStream, peer: SocketAddr, poller: &Poller, now_ms: u64) {
        let Some(permit) = self.clients.admit(peer.ip(), self.limits.per_client_max) else {
            self.counters.refused_client += 1;
            return;
        };
        if self.draining || (self.is_full() && !self.make_place()) {
            self.counters.refused_full += 1;
            return;
        }
        let stream = Stream {
            socket: Watched::new(socket),
            peer,
            _permit: permit,
            frames: Frames::default(),
            unsent: Unsent::default(),
            unanswered: 0,
            stalled_bytes: 0,
            ending: None,
            interest: Interest::READ,
            is_dirty: false,
            has_received: false,
            was_moved: false,
        };
        let Ok(id) = self.table.insert(stream, IDLE, now_ms) else { return };
        let token = self.table.token(id);
        let watched = self.table.get(id).map(|it| poller.add(&it.socket, token, Interest::READ));
        if !matches!(watched, Some(Ok(()))) {
            self.table.remove(id);
            self.counters.refused_unwatched += 1;
            return;
        }
        self.counters.opened += 1;
    }

    fn is_full(&self) -> bool {
        self.table.len() == self.table.entries_max()
    }

    /// Closes the stream that has been idle for longest. If none is idle, closes the stream that
    /// has taken longest over an incomplete query, if it waits for no response. False if it closed
    /// none.
    fn make_place(&mut self) -> bool {
        for list in [IDLE, PARTIAL] {
            let oldest = self.table.oldest(list).map(|(id, _)| id);
            let unused = oldest
                .filter(|&id| self.table.get(id).is_some_and(|stream| stream.unanswered == 0));
            if let Some(id) = unused {
                self.end(id, Cause::Crowded);
                return true;
            }
        }
        false
    }

    /// Reads once from a ready stream, and passes its queries to `each`. Events of closed streams,
    /// and of other tokens, are ignored. Called from within `each`, it does nothing, and the poller
    /// reports the event again.
    pub fn ready(
        &mut self,
        event: Event,
        mut each: impl FnMut(&mut ClientTcp, StreamId, SocketAddr, &[u8]),
    ) {
        let Some(id) = self.table.id_of(event.token) else { return };
        let mut room = std::mem::take(&mut self.read_room);
        if room.is_empty() {
            return;
        }
        if let Some(stream) = self.table.get_mut(id) {
            let was_reading = [Interest::READ, Interest::BOTH].contains(&stream.interest);
            if event.readable && was_reading && stream.may_query(&self.limits) {
                match receive(&*stream.socket, &mut room) {
                    Received::Bytes(count) => {
                        self.counters.bytes_in += count as u64;
                        self.hand_out(id, &room[..count], &mut each);
                    }
                    Received::Nothing => {}
                    Received::End => self.stop_reading(id, Cause::Finished),
                    Received::Lost => self.end(id, Cause::Lost),
                }
            } else if event.closed && !was_reading {
                // The poller was not asked for the end of input (invariant 2), so the connection is
                // lost.
                self.end(id, Cause::Lost);
            }
        }
        self.read_room = room;
        self.mark(id);
    }

    /// Passes on the queries in the stored bytes and in `fresh`, as many as allowed, and stores the
    /// rest.
    fn hand_out(
        &mut self,
        id: Id,
        mut fresh: &[u8],
        each: &mut impl FnMut(&mut ClientTcp, StreamId, SocketAddr, &[u8]),
    ) {
        let Some(stream) = self.table.get_mut(id) else { return };
        let mut frames = std::mem::take(&mut stream.frames);
        // Looked up each time: `each` may have closed it.
        while let Some(stream) = self.table.get_mut(id).filter(|it| it.may_query(&self.limits)) {
            match frames.next(&mut fresh, self.lengths) {
                Ok(Some(message)) => {
                    stream.unanswered += 1;
                    stream.has_received = true;
                    self.counters.queries += 1;
                    let peer = stream.peer;
                    each(self, StreamId(id), peer, message);
                }
                Ok(None) => break,
                Err(_) => stream.ending = Some(Cause::BadLength),
            }
        }
        if let Some(stream) = self.table.get_mut(id).filter(|stream| stream.ending.is_none()) {
            frames.keep(fresh);
            stream.frames = frames;
        }
        self.mark(id);
    }

    /// Responds to a query of a stream. `write` gets room for `room_max` bytes, at most 65,535,
    /// with any content, and returns the number it wrote. If it returns `None` or 0, the query gets
    /// no response. False if no response was queued. If the stream is closed, `write` is not
    /// called.
    pub fn answer(
        &mut self,
        id: StreamId,
        room_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        let StreamId(id) = id;
        let Some(stream) = self.table.get_mut(id) else { return false };
        let room = &mut self.answer_room[..room_max.min(MESSAGE_BYTES_MAX)];
        let length = write(room).unwrap_or(0).min(room.len());
        stream.unanswered = stream.unanswered.saturating_sub(1);
        if length == 0 {
            self.mark(id);
            return false;
        }
        let wanted = 2 + length;
        let most = self.limits.unsent_bytes_max - wanted;
        if stream.unsent.len() > most {
            match stream.send() {
                Ok(count) => self.counters.bytes_out += count as u64,
                Err(_) => {
                    self.end(id, Cause::Lost);
                    return false;
                }
            }
            if stream.unsent.len() > most {
                self.end(id, Cause::SlowReader);
                return false;
            }
        }
        stream.unsent.push(&self.answer_room[..length]);
        self.counters.answers += 1;
        self.mark(id);
        true
    }

    /// A query of a stream gets no response.
    pub fn drop_query(&mut self, id: StreamId) {
        if let Some(stream) = self.table.get_mut(id.0) {
            stream.unanswered = stream.unanswered.saturating_sub(1);
            self.mark(id.0);
        }
    }

    /// Closes a stream at once.
    pub fn close(&mut self, id: StreamId) {
        self.end(id.0, Cause::Closed);
    }

    /// Ends a turn: sends its responses, passes on queries that had to wait for them, updates the
    /// poller, and closes streams that are done. Call it between the last event of a wait and the
    /// next wait.
    pub fn flush(
        &mut self,
        poller: &Poller,
        now_ms: u64,
        mut each: impl FnMut(&mut ClientTcp, StreamId, SocketAddr, &[u8]),
    ) {
        // This ends: a stream is processed again only for stored queries, and no bytes are read
        // here.
        while let Some(id) = self.dirty.pop() {
            let Some(stream) = self.table.get_mut(id) else { continue };
            stream.is_dirty = false;
            let Ok(count) = stream.send() else {
                self.end(id, Cause::Lost);
                continue;
            };
            self.counters.bytes_out += count as u64;
            if stream.may_query(&self.limits) && stream.frames.has_whole(self.lengths) {
                self.hand_out(id, &[], &mut each);
            } else {
                self.settle(id, poller, now_ms);
            }
        }
    }

    /// Puts a stream into the list of its state, after as much was sent as possible.
    fn settle(&mut self, id: Id, poller: &Poller, now_ms: u64) {
        let token = self.table.token(id);
        let before = self.table.list_of(id);
        let Some(stream) = self.table.get_mut(id) else { return };
        if stream.is_done() {
            let cause = stream.ending.unwrap_or(Cause::Finished);
            self.end(id, cause);
            return;
        }
        if stream.stalled_bytes == 0 {
            stream.stalled_bytes = stream.unsent.len();
        }
        let list = stream.list(&self.limits);
        let renews = if list == STALLED { stream.was_moved } else { stream.has_received };
        (stream.was_moved, stream.has_received) = (false, false);
        let interest = match (stream.may_query(&self.limits), stream.stalled_bytes > 0) {
            (true, true) => Interest::BOTH,
            (true, false) => Interest::READ,
            (false, true) => Interest::WRITE,
            (false, false) => Interest::NONE,
        };
        if interest != stream.interest {
            stream.interest = interest;
            if poller.modify(&stream.socket, token, interest).is_err() {
                self.end(id, Cause::Lost);
                return;
            }
        }
        if renews || before != Some(list) {
            self.table.wait_in(id, list, now_ms);
        }
    }

    /// Begins to end: accepts no connection, reads nothing more, and closes each stream after its
    /// responses. All is done when [`ClientTcp::is_empty`]; the caller limits the time.
    pub fn drain(&mut self) {
        self.draining = true;
        let all: Vec<Id> = self.table.ids().collect();
        for id in all {
            self.stop_reading(id, Cause::Drained);
            self.mark(id);
        }
    }

    /// Closes the streams whose time is up.
    pub fn expire(&mut self, now_ms: u64) {
        // The waits are computed again each time: with fewer streams, the others may stay longer.
        while let Some((id, list)) = self.table.overdue(self.waits_ms(), now_ms) {
            let cause = match list {
                IDLE => Cause::Idle,
                PARTIAL => Cause::SlowWriter,
                WAITING => Cause::Unanswered,
                _ => Cause::SlowReader,
            };
            self.end(id, cause);
        }
    }

    /// Milliseconds after which [`ClientTcp::expire`] has something to do; `None` without streams.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.table.wait_ms(self.waits_ms(), now_ms)
    }

    fn waits_ms(&self) -> [u64; 4] {
        let Limits { idle_ms, message_ms, stall_ms, answer_ms, .. } = self.limits;
        [self.shorten(idle_ms), self.shorten(message_ms), answer_ms, stall_ms]
    }

    /// A time, shortened in proportion to the free half of the table once it is more than half
    /// full.
    fn shorten(&self, ms: u64) -> u64 {
        let (count, most) = (self.table.len() as u64, self.table.entries_max() as u64);
        if 2 * count <= most {
            return ms;
        }
        let left = u128::from(ms) * 2 * u128::from(most - count) / u128::from(most);
        (left as u64).max(ms / CROWDED_PART)
    }

    fn stop_reading(&mut self, id: Id, cause: Cause) {
        if let Some(stream) = self.table.get_mut(id) {
            stream.ending.get_or_insert(cause);
            stream.frames = Frames::default();
        }
    }

    fn mark(&mut self, id: Id) {
        if let Some(stream) = self.table.get_mut(id).filter(|stream| !stream.is_dirty) {
            stream.is_dirty = true;
            self.dirty.push(id);
        }
    }

    /// Closes a stream.
    fn end(&mut self, id: Id, cause: Cause) {
        let Some(stream) = self.table.remove(id) else { return };
        self.counters.closed[cause as usize] += 1;
        match cause {
            // After a normal close, the kernel would store the unsent bytes for minutes.
            Cause::SlowReader => {
                let _ =
                    rustix::net::sockopt::set_socket_linger(&stream.socket, Some(Duration::ZERO));
            }
            Cause::BadLength | Cause::Drained => {
                for _ in 0..DISCARDS_MAX {
                    match receive(&*stream.socket, &mut self.read_room) {
                        Received::Bytes(count) => self.counters.bytes_in += count as u64,
                        _ => break,
                    }
                }
            }
            _ => {}
        }
    }

    /// Checks the invariants; for tests, after `flush`.
    #[cfg(test)]
    fn validate(&self) {
        self.table.validate();
        assert!(self.dirty.is_empty() && !self.read_room.is_empty());
        for id in self.table.ids() {
            let stream = self.table.get(id).unwrap();
            assert!(!stream.is_dirty, "invariant 3");
            assert!(!stream.is_done());
            assert_eq!(self.table.list_of(id), Some(stream.list(&self.limits)));
            assert_eq!(stream.stalled_bytes > 0, stream.unsent.len() > 0);
            if stream.may_query(&self.limits) {
                assert!(!stream.frames.has_whole(self.lengths), "invariant 4");
            }
        }
        assert_eq!(self.clients.open(), self.table.len());
    }
}
