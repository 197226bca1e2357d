//! TCP with clients (RFC 7766): all connections of one core. Whole questions come out, as many at
//! once as a client cares to send; answers go in, in any order.
//!
//! A loop calls in each turn, and nothing here waits or reads a clock:
//!
//! ```text
//! poller.wait(events, streams.wait_ms(now))
//! the listener is ready: accept();  a token that it owns(): ready(), which calls each(id, client, question)
//! answer() or drop_question(), from within `each` or in any later turn
//! expire(), and at the end of the turn flush(): what was answered is sent, and more is read where there is room
//! ```
//!
//! A stream is in one list, by what it waits for, and its time there is limited:
//!
//! | list | waits for | ends after | then |
//! |---|---|---|---|
//! | idle | the next question | `idle_ms`, less as the table fills | closed |
//! | partial | the rest of a question | `message_ms`, less as the table fills | closed |
//! | waiting | the caller's answers | `answer_ms` after its last question | closed |
//! | stalled | the client, who must take all that was unsent when this began | `stall_ms` | reset |
//!
//! Nothing is read of a stream while it has `unanswered_max` questions open, or half of the octets
//! that may be unsent: the client's own window then makes it wait. A client that has finished
//! sending still gets its answers, and a stream that broke the framing those to what it had asked
//! before.
//!
//! Invariants
//! 1. A stream's answers are sent by `flush` only, or by `answer` where room must be made, so that
//!    the answers of a turn leave together.
//! 2. What a poller is told of a stream changes in `flush` only. So an event says what it said when
//!    it was waited for.
//! 3. A stream whose state may have changed is in `dirty`, once, and `flush` leaves nobody there.
//! 4. Whole questions are kept only of a stream that may not be read.
//!
//! Bounds: [`Limits`]. A stream at rest costs its slot. A busy one holds at most four times
//! `unsent_bytes_max`, and four times (`message_bytes_max` and 16 kB) of questions: what is done
//! with goes when it is half of a buffer, and buffers grow by doubling. Cost: O(1) a call and
//! octet, a read a ready stream and a write an answered stream a turn.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use larder_io::epoll::{Event, Interest, Poller};
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

/// Connections accepted in one call: the others come with the next turn.
const ACCEPTS_MAX: usize = 64;

/// Reads that throw away what a client sent in vain before its stream is closed. A socket that is
/// closed with octets unread is reset, and that may reach the client before the last answers do.
const DISCARDS_MAX: usize = 4;

/// A full table shortens patience to this part of itself.
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
    /// As a number, for those who can keep only that.
    pub fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// What [`StreamId::to_bits`] made; any other number names nothing.
    pub fn from_bits(bits: u64) -> StreamId {
        StreamId(Id::from_bits(bits))
    }
}

/// All streams of a core. See the head of the file.
#[derive(Debug)]
pub struct ClientTcp {
    limits: Limits,
    lengths: Lengths,
    table: Table<Stream, 4>,
    /// Streams of each client.
    clients: Arc<ConnectionLimit>,
    /// Streams that `flush` has to look at.
    dirty: Vec<Id>,
    draining: bool,
    counters: Counters,
    /// Where a read goes; taken out while questions of it are handed out.
    read_room: Box<[u8]>,
    /// Where answers are written.
    answer_room: Box<[u8]>,
}

#[derive(Debug)]
struct Stream {
    socket: TcpStream,
    peer: SocketAddr,
    /// Its place among its client's.
    _permit: Permit,
    frames: Frames,
    unsent: Unsent,
    /// Questions handed out and not answered.
    unanswered: usize,
    /// Octets that the kernel must take before its time is up; 0 where it took all.
    stalled_bytes: usize,
    /// Nothing is read any more: closed for this when all answers are sent.
    ending: Option<Cause>,
    /// What the poller was told.
    interest: Interest,
    is_dirty: bool,
    /// A question came since the last `flush`: its time in a list begins again.
    was_heard: bool,
    /// What stalled was taken since the last `flush`.
    was_moved: bool,
}

impl Stream {
    /// Whether questions may be handed out: neither they nor their answers pile up.
    fn may_ask(&self, limits: &Limits) -> bool {
        self.ending.is_none()
            && self.unanswered < limits.unanswered_max
            && self.unsent.len() <= limits.unsent_bytes_max / 2
    }

    fn list(&self, limits: &Limits) -> usize {
        if self.stalled_bytes > 0 {
            STALLED
        } else if !self.frames.is_empty() && self.may_ask(limits) {
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

    /// Sends what the kernel takes: how much that was.
    fn send(&mut self) -> io::Result<usize> {
        let count = self.unsent.send(&self.socket)?;
        if self.stalled_bytes > 0 {
            self.stalled_bytes = self.stalled_bytes.saturating_sub(count);
            self.was_moved = self.stalled_bytes == 0;
        }
        Ok(count)
    }
}

impl ClientTcp {
    /// No streams yet. Their tokens have `space` as their highest octet, which nobody else's tokens
    /// may have.
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

    /// Streams that are open.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True where no stream is open: after [`ClientTcp::drain`], the end.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether a token is one of a stream, open or closed since.
    pub fn owns(&self, token: u64) -> bool {
        self.table.owns(token)
    }

    /// Accepts connections that wait, 64 at most in a call. Errors are those of [`tcp::accept`]:
    /// the listener stays ready, and is best left alone for a moment.
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

    /// Takes a connection in, or closes it and counts why.
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
            socket,
            peer,
            _permit: permit,
            frames: Frames::default(),
            unsent: Unsent::default(),
            unanswered: 0,
            stalled_bytes: 0,
            ending: None,
            interest: Interest::READ,
            is_dirty: false,
            was_heard: false,
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

    /// Closes the stream that has been idle for longest, or else the one that has taken longest
    /// over its first question; whether there was one.
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

    /// Reads of a stream that is ready, once, and hands out its questions with their stream and
    /// client. Events of streams that are gone, and of others' tokens, are passed over. From within
    /// `each` it does nothing; the event comes again.
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
            if event.readable && was_reading && stream.may_ask(&self.limits) {
                match receive(&stream.socket, &mut room) {
                    Received::Octets(count) => {
                        self.counters.octets_in += count as u64;
                        self.hand_out(id, &room[..count], &mut each);
                    }
                    Received::Nothing => {}
                    Received::End => self.stop_reading(id, Cause::Finished),
                    Received::Lost => self.end(id, Cause::Lost),
                }
            } else if event.closed && !was_reading {
                // The end of what is sent was not asked about (invariant 2), so this is the end of
                // everything.
                self.end(id, Cause::Lost);
            }
        }
        self.read_room = room;
        self.mark(id);
    }

    /// Hands out the questions in what a stream kept and in `fresh`, as many as it may ask, and
    /// keeps the rest.
    fn hand_out(
        &mut self,
        id: Id,
        mut fresh: &[u8],
        each: &mut impl FnMut(&mut ClientTcp, StreamId, SocketAddr, &[u8]),
    ) {
        let Some(stream) = self.table.get_mut(id) else { return };
        let mut frames = std::mem::take(&mut stream.frames);
        // Looked for each time: `each` may have closed it.
        while let Some(stream) = self.table.get_mut(id).filter(|it| it.may_ask(&self.limits)) {
            match frames.next(&mut fresh, self.lengths) {
                Ok(Some(message)) => {
                    stream.unanswered += 1;
                    stream.was_heard = true;
                    self.counters.questions += 1;
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

    /// Answers a question of a stream: `write` is given room for as many octets as `room_max` says,
    /// at most 65,535, with anything in it, and says how many it wrote. Where it says `None`, or
    /// none, the question gets no answer. Whether an answer is on its way: not where the stream is
    /// gone, and nothing was written then.
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
                Ok(count) => self.counters.octets_out += count as u64,
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

    /// A question of a stream gets no answer.
    pub fn drop_question(&mut self, id: StreamId) {
        if let Some(stream) = self.table.get_mut(id.0) {
            stream.unanswered = stream.unanswered.saturating_sub(1);
            self.mark(id.0);
        }
    }

    /// Closes a stream at once, whatever it waits for.
    pub fn close(&mut self, id: StreamId) {
        self.end(id.0, Cause::Closed);
    }

    /// The end of a turn of the loop: sends the answers of this turn, hands out questions that had
    /// to wait for them, tells the poller what is waited for, and closes what is done. Must come
    /// between the last event of a wait and the next wait.
    pub fn flush(
        &mut self,
        poller: &Poller,
        now_ms: u64,
        mut each: impl FnMut(&mut ClientTcp, StreamId, SocketAddr, &[u8]),
    ) {
        // It ends: a stream comes back only for questions of its own that were kept, and none are
        // read here.
        while let Some(id) = self.dirty.pop() {
            let Some(stream) = self.table.get_mut(id) else { continue };
            stream.is_dirty = false;
            let Ok(count) = stream.send() else {
                self.end(id, Cause::Lost);
                continue;
            };
            self.counters.octets_out += count as u64;
            if stream.may_ask(&self.limits) && stream.frames.has_whole(self.lengths) {
                self.hand_out(id, &[], &mut each);
            } else {
                self.settle(id, poller, now_ms);
            }
        }
    }

    /// Puts a stream where its state says, after as much was sent as could be.
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
        let renews = if list == STALLED { stream.was_moved } else { stream.was_heard };
        (stream.was_moved, stream.was_heard) = (false, false);
        let interest = match (stream.may_ask(&self.limits), stream.stalled_bytes > 0) {
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

    /// Begins to end: no connection is taken, nothing more is read, what was asked is answered, and
    /// then closed. All is done when [`ClientTcp::is_empty`]; to limit the time for it is the
    /// caller's part.
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
        // Waits are asked for anew each time: with each stream that goes, the others may stay
        // longer.
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

    /// A time, whole while the table is less than half full, and from there as much less as there
    /// is less room.
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
            // Closed gently, the kernel would keep what is unsent for minutes.
            Cause::SlowReader => {
                let _ =
                    rustix::net::sockopt::set_socket_linger(&stream.socket, Some(Duration::ZERO));
            }
            Cause::BadLength | Cause::Drained => {
                for _ in 0..DISCARDS_MAX {
                    match receive(&stream.socket, &mut self.read_room) {
                        Received::Octets(count) => self.counters.octets_in += count as u64,
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
            if stream.may_ask(&self.limits) {
                assert!(!stream.frames.has_whole(self.lengths), "invariant 4");
            }
        }
        assert_eq!(self.clients.open(), self.table.len());
    }
}
