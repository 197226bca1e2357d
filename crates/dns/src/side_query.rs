//! Queries of other transports: other threads decrypt them, a core responds to them.
//!
//! ```text
//! a runtime's thread: SideSender::ask(query, reply) -> bounded mailbox, a wake -> a core: Inbox::take, Core::queries
//! the core: Net::respond -> Inbox::answer, and at the end of the turn flush -> reply(bytes), on the core's thread
//! ```
//!
//! A core's event loop handles epoll and plain sockets. TLS, HTTP/2 and QUIC come from libraries
//! with event loops of another kind. A server of theirs ([`SideServer`]) needs only a
//! [`SideSender`] for each core.
//!
//! Invariants
//! 1. Each query that a sender accepted gets one reply: a response, or `None`. If the core has
//!    ended, the reply is dropped without a call.
//! 2. Replies are called by `flush`, after other cores see what this core has stored.
//!
//! Bounds: the length of the mailbox is given; queries that a core has taken count against its
//! limits. Cost: nothing for plain queries. A side query costs two moves between threads, an
//! allocation for its bytes, one for its reply and one for its response.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use larder_io::epoll::Waker;
use larder_serve::mailbox::Mailbox;

use crate::core::Client;
use crate::dnstap::Protocol;
use crate::metrics::Metric;

/// Queries that are looked up together.
const TAKES_MAX: usize = 64;

/// Queries that may wait for a core.
pub const QUEUE_MAX: usize = 1_024;

/// Bytes of the longest response.
const ANSWER_BYTES_MAX: usize = 65_535;

/// Receives the response, or `None`. It is called on the core's thread, so it must not wait.
pub type Reply = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;

/// A decrypted query.
pub struct SideQuery {
    /// The transport.
    pub protocol: Protocol,
    /// The client's address.
    pub peer: SocketAddr,
    /// The message in wire form, as it arrived.
    pub message: Vec<u8>,
    /// Receives the response.
    pub reply: Reply,
}

impl fmt::Debug for SideQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SideQuery { protocol, peer, message, .. } = self;
        write!(f, "SideQuery({protocol:?}, {peer}, {} octets)", message.len())
    }
}

/// Sends queries to one core. Clones send to the same core.
#[derive(Debug, Clone)]
pub struct SideSender(Arc<Mailbox<SideQuery, Arc<Waker>>>);

/// The core's end: queries that were sent, and their replies.
pub struct Inbox {
    mailbox: Arc<Mailbox<SideQuery, Arc<Waker>>>,
    /// Taken from the mailbox by [`Inbox::take`], which leaves it empty.
    queries: VecDeque<SideQuery>,
    replies: HashMap<u64, Reply>,
    /// Responses for the next `flush`.
    done: Vec<(Reply, Vec<u8>)>,
    /// Number of the next query.
    next: u64,
    /// Buffer in which responses are written.
    room: Box<[u8]>,
}

/// A sender and the core's end. `waker` ends the core's wait; `queue_max` queries may wait between
/// both.
pub fn channel(waker: Arc<Waker>, queue_max: usize) -> (SideSender, Inbox) {
    let mailbox = Arc::new(Mailbox::new(waker, queue_max));
    let inbox = Inbox {
        mailbox: mailbox.clone(),
        queries: VecDeque::new(),
        replies: HashMap::new(),
        done: Vec::new(),
        next: 0,
        room: vec![0; ANSWER_BYTES_MAX].into(),
    };
    (SideSender(mailbox), inbox)
}

impl SideSender {
    /// Sends a query. The error returns it if the queue is full or the core has ended.
    pub fn query(&self, query: SideQuery) -> Result<(), SideQuery> {
        self.0.send(query)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl Inbox {
    /// Moves at most 64 queries to `out`, which is emptied first. The caller has cleared the core's
    /// waker. If more queries wait, this wakes the core again and returns true.
    pub fn take(&mut self, out: &mut Vec<(Client, Vec<u8>)>) -> bool {
        out.clear();
        self.mailbox.take(TAKES_MAX, &mut self.queries);
        for SideQuery { protocol, peer, message, reply } in self.queries.drain(..) {
            let slot = self.next;
            self.next = self.next.wrapping_add(1);
            self.replies.insert(slot, reply);
            out.push((Client::Side { slot, peer, protocol }, message));
        }
        let is_more = !self.mailbox.may_sleep();
        if is_more {
            // A core that is not woken looks again within a second.
            let _ = self.mailbox.waker().wake();
        }
        is_more
    }

    /// Calls `write` with room for a response of `bytes_max` bytes, and queues as many as it
    /// returns. `None` if it returned `None`, or if the query already has its response.
    pub fn answer(
        &mut self,
        slot: u64,
        bytes_max: usize,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<&[u8]> {
        if !self.replies.contains_key(&slot) {
            return None;
        }
        let bytes_max = bytes_max.min(self.room.len());
        let length = write(&mut self.room[..bytes_max])?;
        let bytes = self.room.get(..length)?;
        let reply = self.replies.remove(&slot)?;
        self.done.push((reply, bytes.to_vec()));
        Some(bytes)
    }

    /// Calls the replies of a turn.
    pub fn flush(&mut self) {
        for (reply, bytes) in self.done.drain(..) {
            reply(Some(bytes));
        }
    }

    /// Replies `None`.
    pub fn ignore(&mut self, slot: u64) {
        if let Some(reply) = self.replies.remove(&slot) {
            reply(None);
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({} open)", self.replies.len())
    }
}

/// A server of another transport, started with the cores.
pub trait SideServer: fmt::Debug + Send + Sync {
    /// Binds its sockets and starts its threads. It sends queries to `senders`, one for each core.
    /// The error says what is wrong and what to do.
    fn start(&self, senders: Vec<SideSender>) -> Result<Arc<dyn Running>, String>;
}

/// A running server of another transport. Dropped, it ends at once.
pub trait Running: Send + Sync {
    /// Where it listens: each transport and its address.
    fn listeners(&self) -> Vec<(&'static str, String)>;

    /// Reads its certificates again. The line states the result; after an error nothing has
    /// changed.
    fn reload(&self) -> String;

    /// Its counters.
    fn metrics(&self) -> Vec<Metric>;

    /// Accepts nothing new, and continues with what it has accepted. Does not wait.
    fn drain(&self);

    /// Sends the remaining responses, for a short time. Called when the cores have ended.
    fn finish(&self);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn pair(queue_max: usize) -> (SideSender, Inbox, Arc<Waker>) {
        let waker = Arc::new(Waker::new().unwrap());
        let (sender, inbox) = super::channel(waker.clone(), queue_max);
        (sender, inbox, waker)
    }

    fn query(message: &[u8], reply: Reply) -> SideQuery {
        let peer = SocketAddr::from(([192, 0, 2, 1], 7));
        SideQuery { protocol: Protocol::Tls, peer, message: message.to_vec(), reply }
    }

    /// Queries come out in order with distinct numbers, and each gets one reply. A response to a
    /// number that is not open is discarded. Invariants 1 and 2.
    #[test]
    fn each_is_replied_to_once() {
        let (sender, mut inbox, _) = pair(8);
        let (said, received) = channel();
        for message in [b"a", b"b", b"c"] {
            let said = said.clone();
            let reply = Box::new(move |answer| said.send((message[0], answer)).unwrap());
            sender.query(query(message, reply)).unwrap();
        }
        let mut taken = Vec::new();
        inbox.take(&mut taken);
        let slots: Vec<u64> = (taken.iter())
            .map(|(client, message)| match client {
                Client::Side { slot, protocol: Protocol::Tls, .. } => (*slot, message),
                other => panic!("{other:?}"),
            })
            .map(|(slot, _)| slot)
            .collect();
        assert_eq!(taken.iter().map(|it| it.1[0]).collect::<Vec<_>>(), b"abc");
        let write = |out: &mut [u8]| {
            out[..2].copy_from_slice(b"ok");
            Some(2)
        };
        assert_eq!(inbox.answer(slots[1], 512, |_| None), None, "nothing was written yet");
        assert_eq!(inbox.answer(slots[1], 512, write), Some(&b"ok"[..]));
        assert_eq!(inbox.answer(slots[1], 512, write), None);
        inbox.ignore(slots[1]);
        inbox.ignore(slots[2]);
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [(b'c', None)], "invariant 2");
        inbox.flush();
        assert_eq!(received.try_iter().collect::<Vec<_>>(), [(b'b', Some(b"ok".to_vec()))]);
        assert!(!inbox.take(&mut taken) && taken.is_empty());
    }

    /// A full queue returns queries. The core is woken once for all queries that arrived before it
    /// looked, and again if some remain.
    #[test]
    fn queue_is_bounded_and_wakes() {
        let (sender, mut inbox, waker) = pair(TAKES_MAX + 1);
        for _ in 0..=TAKES_MAX {
            sender.query(query(b"", Box::new(|_| ()))).unwrap();
        }
        assert!(sender.query(query(b"back", Box::new(|_| ()))).unwrap_err().message == b"back");
        let mut taken = Vec::new();
        for (count, is_woken_again) in [(TAKES_MAX, true), (1, false)] {
            assert!(waker.clear().unwrap());
            assert_eq!(inbox.take(&mut taken), is_woken_again);
            assert_eq!(taken.len(), count);
            assert_eq!(waker.clear().unwrap(), is_woken_again);
            if is_woken_again {
                waker.wake().unwrap();
            }
        }
        sender.query(query(b"", Box::new(|_| ()))).unwrap();
        assert!(waker.clear().unwrap(), "it has looked since");
        drop(inbox);
        assert!(sender.query(query(b"", Box::new(|_| ()))).is_err(), "the core has ended");
    }
}
