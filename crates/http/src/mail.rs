//! What one loop has to say to another: a queue, and a wake-up.
//!
//! A message is put in under a lock that is held for as long as that takes, and the loop is woken if it sleeps: it says so under the
//! same lock, and only while there is nothing, so no message waits for a sleeper, and who talks to himself makes no system call.
//! A queue without a lock was no cheaper: what costs is the wake-up (`docs/decisions/0012-mail-under-a-lock.md`).
//!
//! A loop that has ended hears nothing: what is said to it is dropped, so that a connection for it is closed, and who waits for what
//! it says is told that there is nothing.
//!
//! Bounds: what is posted is bounded by who posts: one message a client that waits, one a client that leaves, one an object, a loop and batch, one a
//! connection that is let in.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

use larder::mem::object::{Notice, Post};
use larder_io::reactor::Waker;
use parking_lot::Mutex;

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

/// One loop's messages.
#[derive(Debug, Default)]
struct Mailbox {
    inbox: Mutex<Inbox>,
    waker: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct Inbox {
    queue: Vec<Message>,
    /// The loop waits for the kernel, or is about to.
    sleeps: bool,
    /// The loop has ended.
    is_closed: bool,
}

/// All loops' messages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Mail {
    boxes: Arc<[Mailbox]>,
}

impl Mail {
    /// For so many loops.
    pub fn new(loops: usize) -> Mail {
        Mail { boxes: (0..loops).map(|_| Mailbox::default()).collect() }
    }

    /// How a loop is woken from now on.
    pub fn set_waker(&self, loop_number: u32, waker: Waker) {
        if let Some(mailbox) = self.boxes.get(loop_number as usize) {
            // A loop begins once.
            let _ = mailbox.waker.set(waker);
        }
    }

    /// Says something to a loop.
    pub fn post(&self, loop_number: u32, message: Message) {
        let Some(mailbox) = self.boxes.get(loop_number as usize) else { return };
        let slept = {
            let mut inbox = mailbox.inbox.lock();
            if inbox.is_closed {
                return;
            }
            inbox.queue.push(message);
            std::mem::take(&mut inbox.sleeps)
        };
        if slept {
            self.wake(loop_number);
        }
    }

    /// Wakes a loop.
    pub fn wake(&self, loop_number: u32) {
        if let Some(waker) = self.boxes.get(loop_number as usize).and_then(|it| it.waker.get()) {
            waker.wake();
        }
    }

    /// Wakes all.
    pub fn wake_all(&self) {
        (0..self.boxes.len()).for_each(|number| self.wake(number as u32));
    }

    /// Tells those who waited what came of it.
    pub fn tell(&self, waiters: &[Waiter], landing: &Landing) {
        for waiter in waiters {
            let message = Message::Landed(waiter.client, landing.clone());
            self.post(waiter.loop_number, message);
        }
    }

    /// What has been said to a loop since the last time, in order, into an empty vector.
    pub fn take(&self, loop_number: u32, into: &mut Vec<Message>) {
        if let Some(mailbox) = self.boxes.get(loop_number as usize) {
            let mut inbox = mailbox.inbox.lock();
            inbox.sleeps = false;
            std::mem::swap(&mut inbox.queue, into);
        }
    }

    /// A loop has ended.
    pub fn close(&self, loop_number: u32) {
        let Some(mailbox) = self.boxes.get(loop_number as usize) else { return };
        let unread = {
            let mut inbox = mailbox.inbox.lock();
            inbox.is_closed = true;
            std::mem::take(&mut inbox.queue)
        };
        // What a message holds may have something to say to this loop when it goes: not under the lock.
        drop(unread);
    }

    /// A loop has nothing to do: true where nobody has said anything to it, and whoever does from now on wakes it.
    pub fn may_sleep(&self, loop_number: u32) -> bool {
        let Some(mailbox) = self.boxes.get(loop_number as usize) else { return true };
        let mut inbox = mailbox.inbox.lock();
        inbox.sleeps = inbox.queue.is_empty();
        inbox.sleeps
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
        mail.post(0, message());
        assert_eq!(woken(), 0, "it does not sleep");
        assert!(!mail.may_sleep(0), "there is a message");
        let mut messages = Vec::new();
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
