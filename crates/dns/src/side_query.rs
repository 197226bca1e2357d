//! Questions that come from beside the cores: other threads decrypt them, a core answers them.
//!
//! ```text
//! a runtime's thread: SideSender::ask(question, reply) -> bounded mailbox, a wake -> a core: Inbox::take, Core::questions
//! the core: Net::answer -> Inbox::answer, and at the turn's end flush -> reply(octets), on the core's thread
//! ```
//!
//! A core's loop knows epoll and plain sockets. TLS, HTTP/2 and QUIC are well kept elsewhere, for
//! loops of another kind; whoever runs those ([`SideServer`]) needs nothing of a core but a
//! [`SideSender`].
//!
//! Invariants
//! 1. Each question that a sender took is replied to once: with an answer, or with `None` where
//!    there is none. Where the core has ended the reply is dropped without a call.
//! 2. Answers leave with `flush`, which the core calls when others see what it has stored.
//!
//! Bounds: the mailbox's length is given; questions that were taken wait in the core, whose limits
//! count them. Cost: off the path of plain questions, which meet nothing of this. A question costs
//! two moves between threads, an allocation for its octets, one for its reply and one for its
//! answer.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use larder_io::epoll::Waker;
use larder_serve::mailbox::Mailbox;

use crate::core::Client;
use crate::dnstap::Protocol;
use crate::metrics::Gauge;

/// Questions that are looked up together.
const TAKES_MAX: usize = 64;

/// Questions that may wait for a core to look at them.
pub const QUEUE_MAX: usize = 1_024;

/// Octets of the longest answer.
const ANSWER_BYTES_MAX: usize = 65_535;

/// Is given the answer, or `None` where there will be none. Called on the core's thread, so it must
/// not wait.
pub type Reply = Box<dyn FnOnce(Option<Vec<u8>>) + Send>;

/// A question, decrypted.
pub struct SideQuery {
    /// What carried it.
    pub protocol: Protocol,
    /// Who asks.
    pub peer: SocketAddr,
    /// The message in wire form, as it came.
    pub message: Vec<u8>,
    /// Where the answer goes.
    pub reply: Reply,
}

impl fmt::Debug for SideQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SideQuery { protocol, peer, message, .. } = self;
        write!(f, "SideQuery({protocol:?}, {peer}, {} octets)", message.len())
    }
}

/// Where questions for one core are handed in. Clones hand in at the same core.
#[derive(Debug, Clone)]
pub struct SideSender(Arc<Mailbox<SideQuery, Arc<Waker>>>);

/// A core's end: what was handed in, and where answers go.
pub struct Inbox {
    mailbox: Arc<Mailbox<SideQuery, Arc<Waker>>>,
    /// Taken from the mailbox by [`Inbox::take`], which leaves it empty.
    queries: VecDeque<SideQuery>,
    replies: HashMap<u64, Reply>,
    /// Answers that have not left.
    done: Vec<(Reply, Vec<u8>)>,
    /// Number of the next question.
    next: u64,
    /// Where answers are written.
    room: Box<[u8]>,
}

/// A sender of a core and the core's own end; `waker` ends the core's wait, and `queue_max`
/// questions may wait between both.
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
    /// Hands a question in. It comes back where the queue is full or the core has ended.
    pub fn ask(&self, query: SideQuery) -> Result<(), SideQuery> {
        self.0.send(query)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl Inbox {
    /// Takes what was handed in, 64 questions at most, to `out`, which is emptied first. The core's
    /// waker was cleared before; where more wait it is called again, and this is true.
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
            // A core that is not woken looks around within a second.
            let _ = self.mailbox.waker().wake();
        }
        is_more
    }

    /// Gives `write` room for an answer of `bytes_max` octets, of which as many leave as it says it
    /// wrote. `None`, and no answer yet, where it wrote none or the question was answered before.
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
        let octets = self.room.get(..length)?;
        let reply = self.replies.remove(&slot)?;
        self.done.push((reply, octets.to_vec()));
        Some(octets)
    }

    /// Lets the answers of a turn leave.
    pub fn flush(&mut self) {
        for (reply, octets) in self.done.drain(..) {
            reply(Some(octets));
        }
    }

    /// There will be no answer.
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

/// Servers of other transports, to be started with the cores.
pub trait SideServer: fmt::Debug + Send + Sync {
    /// Binds its sockets and starts its threads; questions go to the senders, one of each core. The
    /// error says what is wrong and what to do.
    fn start(&self, senders: Vec<SideSender>) -> Result<Arc<dyn Running>, String>;
}

/// Servers of other transports, at work. Dropped, they end at once.
pub trait Running: Send + Sync {
    /// Lines for the operator: where it answers.
    fn lines(&self) -> Vec<String>;

    /// Reads its files (certificates) anew. A line says how that ended; after an error all is as it
    /// was.
    fn reload(&self) -> String;

    /// What it counts.
    fn gauges(&self) -> Vec<Gauge>;

    /// Takes nothing new, and goes on with what it has taken. Does not wait.
    fn drain(&self);

    /// The cores have ended: sends what is left to send, for a short time.
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

    /// Questions come out in their order under their own numbers, each is replied to once, and an
    /// answer to a number that is not open goes nowhere. Invariants 1 and 2.
    #[test]
    fn each_is_replied_to_once() {
        let (sender, mut inbox, _) = pair(8);
        let (said, heard) = channel();
        for message in [b"a", b"b", b"c"] {
            let said = said.clone();
            let reply = Box::new(move |answer| said.send((message[0], answer)).unwrap());
            sender.ask(query(message, reply)).unwrap();
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
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [(b'c', None)], "invariant 2");
        inbox.flush();
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [(b'b', Some(b"ok".to_vec()))]);
        assert!(!inbox.take(&mut taken) && taken.is_empty());
    }

    /// A full queue gives questions back; the core is woken once for all that came before it
    /// looked, and again by itself where it left some.
    #[test]
    fn queue_is_bounded_and_wakes() {
        let (sender, mut inbox, waker) = pair(TAKES_MAX + 1);
        for _ in 0..=TAKES_MAX {
            sender.ask(query(b"", Box::new(|_| ()))).unwrap();
        }
        assert!(sender.ask(query(b"back", Box::new(|_| ()))).unwrap_err().message == b"back");
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
        sender.ask(query(b"", Box::new(|_| ()))).unwrap();
        assert!(waker.clear().unwrap(), "it has looked since");
        drop(inbox);
        assert!(sender.ask(query(b"", Box::new(|_| ()))).is_err(), "the core has ended");
    }
}
