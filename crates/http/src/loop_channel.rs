//! Messages from one event loop to another: a [`Mailbox`] for each.
//!
//! An event loop looks into its mailbox in each turn, and marks itself asleep before it waits. So a
//! message to itself needs no system call.
//!
//! The mailbox of an event loop that has ended drops all messages. A connection in a message is
//! closed, and a thread that waits for a reply gets an error.
//!
//! Bounds: the senders bound the messages: one for a client that waits, one for a client that
//! disconnects, one for an object, an event loop and a batch, one for a connection that is
//! accepted.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

use larder_io::reactor::Waker;
use larder_mem::object::{Notice, Post};
use larder_serve::mailbox::{Mailbox, Wake};

use crate::coalescing::{Flight, Outcome, Waiter};
use crate::handoff::Handoff;

/// A message.
#[derive(Debug)]
pub enum Message {
    /// About an object that a connection of this event loop reads or fills.
    Notice(Notice),
    /// To a client of this event loop that waits.
    Outcome(u64, Outcome),
    /// No client waits any more for a fetch of this event loop.
    Abandoned(Arc<Flight>),
    /// A client's connection, from a TLS bridge.
    Handoff(Handoff),
    /// Delete a URL, and reply whether it was cached.
    Forget(Vec<u8>, SyncSender<bool>),
}

/// An event loop begins after its mailbox was made, so its waker comes later.
type Inbox = Mailbox<Message, OnceLock<Waker>>;

/// The mailboxes of all event loops. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LoopChannels {
    boxes: Arc<[Inbox]>,
}

impl LoopChannels {
    /// For this many event loops.
    pub fn new(loops: usize) -> LoopChannels {
        let boxes = (0..loops).map(|_| Mailbox::new(OnceLock::new(), usize::MAX));
        LoopChannels { boxes: boxes.collect() }
    }

    fn of(&self, loop_number: u32) -> Option<&Inbox> {
        self.boxes.get(loop_number as usize)
    }

    /// Sets how other threads wake an event loop from now on.
    pub fn set_waker(&self, loop_number: u32, waker: Waker) {
        if let Some(mailbox) = self.of(loop_number) {
            // An event loop begins once.
            let _ = mailbox.waker().set(waker);
        }
    }

    /// Sends a message to an event loop.
    pub fn post(&self, loop_number: u32, message: Message) {
        if let Some(mailbox) = self.of(loop_number) {
            // The mailbox of an event loop that has ended gives the message back, and it is dropped
            // here.
            let _ = mailbox.send(message);
        }
    }

    /// Wakes all event loops.
    pub fn wake_all(&self) {
        self.boxes.iter().for_each(|mailbox| mailbox.waker().wake());
    }

    /// Gives a waiting client the outcome of its request.
    pub fn notify(&self, waiter: Waiter, outcome: Outcome) {
        self.post(waiter.loop_number, Message::Outcome(waiter.client, outcome));
    }

    /// Takes the messages to an event loop, in order.
    pub fn take(&self, loop_number: u32, into: &mut VecDeque<Message>) {
        if let Some(mailbox) = self.of(loop_number) {
            mailbox.take(usize::MAX, into);
        }
    }

    /// An event loop has ended.
    pub fn close(&self, loop_number: u32) {
        if let Some(mailbox) = self.of(loop_number) {
            mailbox.close();
        }
    }

    /// An event loop has nothing to do: true where it has no message, and the next sender wakes it.
    pub fn may_sleep(&self, loop_number: u32) -> bool {
        self.of(loop_number).is_none_or(Inbox::may_sleep)
    }
}

impl Post for LoopChannels {
    fn post(&self, notice: Notice) {
        LoopChannels::post(self, notice.loop_number, Message::Notice(notice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first message wakes an event loop that sleeps; later ones do not before it sleeps again.
    /// An event loop with messages does not sleep.
    #[test]
    fn sleepers_are_woken() {
        let (mut reactor, mut batch) =
            larder_io::reactor::Reactor::new(&larder_io::reactor::Options::default()).unwrap();
        let channels = LoopChannels::new(1);
        channels.set_waker(0, reactor.waker());
        let mut woken = || {
            reactor.wait(&mut batch, Some(std::time::Duration::ZERO)).unwrap();
            let mut count = 0;
            while batch.next().is_some() {
                count += 1;
            }
            count
        };
        let message = || Message::Outcome(1, Outcome::Alone);
        let mut messages = VecDeque::new();
        channels.take(0, &mut messages);
        channels.post(0, message());
        assert_eq!(woken(), 0, "it does not sleep");
        assert!(!channels.may_sleep(0), "there is a message");
        channels.take(0, &mut messages);
        assert_eq!(messages.len(), 1);
        assert!(channels.may_sleep(0));
        channels.post(0, message());
        channels.post(0, message());
        assert_eq!(woken(), 1);
        channels.post(0, message());
        assert_eq!(woken(), 0, "it was woken");
    }

    /// A connection for an event loop that has ended is closed, whether it came before or after the
    /// end. The other side gets an end that is not whole.
    #[test]
    fn the_ended_receive_nothing() {
        use std::io::Read;
        use std::os::unix::net::UnixStream;

        use crate::handoff::CloseState;

        let channels = LoopChannels::new(1);
        let hand_off = || {
            let (mut ours, socket) = UnixStream::pair().unwrap();
            ours.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
            let close_state = CloseState::default();
            let peer = "192.0.2.1:9".parse().unwrap();
            let handoff = Handoff {
                socket,
                peer,
                close_state: close_state.clone(),
                peer_close_state: CloseState::default(),
                speaks_http2: true,
            };
            channels.post(0, Message::Handoff(handoff));
            move || (ours.read(&mut [0]).map_err(|error| error.kind()), close_state.is_whole())
        };
        let mut before = hand_off();
        channels.close(0);
        assert_eq!(before(), (Ok(0), false));
        assert_eq!(hand_off()(), (Ok(0), false));
        assert!(channels.may_sleep(0));
    }
}
