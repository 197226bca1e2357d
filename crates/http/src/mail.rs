//! Messages from one event loop to another: a [`Mailbox`] for each.
//!
//! A loop looks into its mailbox in each turn, and says before it waits that it sleeps: a loop that
//! sends to itself makes no system call.
//!
//! The mailbox of a loop that has ended drops all messages: the connection in one is closed, and a
//! thread that waits for a reply learns that there is none.
//!
//! Bounds: the senders bound the messages: one for a client that waits, one for a client that
//! leaves, one for an object, a loop and a batch, one for a connection that is accepted.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

use larder::mem::object::{Notice, Post};
use larder_io::reactor::Waker;
use larder_serve::mailbox::{Mailbox, Wake};

use crate::beside::Guest;
use crate::flights::{Flight, Landing, Waiter};

/// What may be said.
#[derive(Debug)]
pub enum Message {
    /// Of an object that somebody on this loop reads or fills.
    Notice(Notice),
    /// To a client on this loop that waits.
    Landed(u64, Landing),
    /// Nobody waits any more for what this loop fetches.
    Deserted(Arc<Flight>),
    /// A client's connection, made elsewhere.
    Guest(Guest),
    /// Forget a URL, and say whether there was something.
    Forget(Vec<u8>, SyncSender<bool>),
}

/// A loop begins after its mailbox was made, so its waker comes later.
type Inbox = Mailbox<Message, OnceLock<Waker>>;

/// All loops' messages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Mail {
    boxes: Arc<[Inbox]>,
}

impl Mail {
    /// For so many loops.
    pub fn new(loops: usize) -> Mail {
        let boxes = (0..loops).map(|_| Mailbox::new(OnceLock::new(), usize::MAX));
        Mail { boxes: boxes.collect() }
    }

    fn of(&self, loop_number: u32) -> Option<&Inbox> {
        self.boxes.get(loop_number as usize)
    }

    /// How a loop is woken from now on.
    pub fn set_waker(&self, loop_number: u32, waker: Waker) {
        if let Some(mailbox) = self.of(loop_number) {
            // A loop begins once.
            let _ = mailbox.waker().set(waker);
        }
    }

    /// Says something to a loop.
    pub fn post(&self, loop_number: u32, message: Message) {
        if let Some(mailbox) = self.of(loop_number) {
            // A loop that has ended gives the message back, and it is dropped here.
            let _ = mailbox.send(message);
        }
    }

    /// Wakes all.
    pub fn wake_all(&self) {
        self.boxes.iter().for_each(|mailbox| mailbox.waker().wake());
    }

    /// Tells those who waited what came of it.
    pub fn tell(&self, waiters: &[Waiter], landing: &Landing) {
        for waiter in waiters {
            let message = Message::Landed(waiter.client, landing.clone());
            self.post(waiter.loop_number, message);
        }
    }

    /// What has been said to a loop since the last time, in order.
    pub fn take(&self, loop_number: u32, into: &mut VecDeque<Message>) {
        if let Some(mailbox) = self.of(loop_number) {
            mailbox.take(usize::MAX, into);
        }
    }

    /// A loop has ended.
    pub fn close(&self, loop_number: u32) {
        if let Some(mailbox) = self.of(loop_number) {
            mailbox.close();
        }
    }

    /// A loop has nothing to do: true where nobody has said anything to it, and whoever does from now on wakes it.
    pub fn may_sleep(&self, loop_number: u32) -> bool {
        self.of(loop_number).is_none_or(Inbox::may_sleep)
    }
}

impl Post for Mail {
    fn post(&self, notice: Notice) {
        Mail::post(self, notice.loop_number, Message::Notice(notice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop that sleeps is woken by the first message, and by none before it sleeps again; one with messages does not sleep.
    #[test]
    fn sleepers_are_woken() {
        let (mut reactor, mut batch) =
            larder_io::reactor::Reactor::new(&larder_io::reactor::Options::default()).unwrap();
        let mail = Mail::new(1);
        mail.set_waker(0, reactor.waker());
        let mut woken = || {
            reactor.wait(&mut batch, Some(std::time::Duration::ZERO)).unwrap();
            let mut count = 0;
            while batch.next().is_some() {
                count += 1;
            }
            count
        };
        let message = || Message::Landed(1, Landing::Alone);
        let mut messages = VecDeque::new();
        mail.take(0, &mut messages);
        mail.post(0, message());
        assert_eq!(woken(), 0, "it does not sleep");
        assert!(!mail.may_sleep(0), "there is a message");
        mail.take(0, &mut messages);
        assert_eq!(messages.len(), 1);
        assert!(mail.may_sleep(0));
        mail.post(0, message());
        mail.post(0, message());
        assert_eq!(woken(), 1);
        mail.post(0, message());
        assert_eq!(woken(), 0, "it was woken");
    }

    /// A connection for a loop that has ended is closed, whether it came before that or after: its other end sees an end, not whole.
    #[test]
    fn the_ended_hear_nothing() {
        use std::io::Read;
        use std::os::unix::net::UnixStream;

        use crate::beside::{Door, Ending};

        let mail = Mail::new(1);
        let door = Door::new(mail.clone(), 1);
        let let_in = || {
            let (mut ours, socket) = UnixStream::pair().unwrap();
            ours.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
            let ending = Ending::default();
            let peer = "192.0.2.1:9".parse().unwrap();
            door.let_in(Guest {
                socket,
                peer,
                ending: ending.clone(),
                asking: Ending::default(),
                speaks_http2: true,
            });
            move || (ours.read(&mut [0]).map_err(|error| error.kind()), ending.is_whole())
        };
        let mut before = let_in();
        mail.close(0);
        assert_eq!(before(), (Ok(0), false));
        assert_eq!(let_in()(), (Ok(0), false));
        assert!(mail.may_sleep(0));
    }
}
