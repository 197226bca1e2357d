//! Messages from any thread to one that sleeps in the kernel.
//!
//! Many senders share a mailbox with one receiver: an event loop that waits in epoll or io_uring,
//! and whose wait a waker ends (an eventfd among its descriptors). A wake is a system call and
//! costs more than the message. A receiver that runs gets none: it looks before it sleeps.
//!
//! ```text
//! asleep    the next message wakes the receiver    send -> awake, and one wake; take -> awake
//! awake     messages are queued without a wake     may_sleep -> asleep, unless there is a message
//! closed    senders get their messages back        stays
//! ```
//!
//! A new mailbox is asleep. There are two ways to receive, and both end with
//! [`Mailbox::may_sleep`]:
//!
//! ```text
//! in each turn              wait, but not if !may_sleep(); take; work
//! only when there is mail   wait; if has_mail() { while !may_sleep() { take; work } }
//! ```
//!
//! Invariants
//! 1. A message that `send` accepted is taken once, or dropped by `close`. Messages of one thread
//!    are taken in the order in which it sent them.
//! 2. No message waits for a sleeper: the first one wakes the receiver, which falls asleep only
//!    while there is none. After that wake the receiver sees the message, also by
//!    [`Mailbox::has_mail`].
//! 3. A receiver gets at most one wake for each time that it falls asleep, however many messages
//!    come.
//! 4. At most `messages_max` messages wait. `send` gives back any more.
//! 5. After `close` no message waits, and `send` gives back each.
//! 6. No message is dropped and no waker is called under the lock: both may use this mailbox.
//!
//! Cost: a lock, held while one message is pushed or two queues are swapped. A queue without a lock
//! is no cheaper (`docs/decisions/0012-mail-under-a-lock.md`). The second way to receive costs one
//! relaxed load when there is no mail.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crate::sync::{AtomicBool, Mutex, Ordering};

/// Ends the wait of a receiver.
pub trait Wake {
    /// Ends the receiver's present wait, or its next one. The receiver then sees all that the
    /// caller stored before this call.
    fn wake(&self);
}

impl Wake for larder_io::epoll::Waker {
    fn wake(&self) {
        // An eventfd that cannot be written no longer exists, and neither does its receiver.
        let _ = self.wake();
    }
}

impl Wake for larder_io::reactor::Waker {
    fn wake(&self) {
        self.wake();
    }
}

impl<W: Wake> Wake for Arc<W> {
    fn wake(&self) {
        W::wake(self);
    }
}

/// For a receiver that starts later than its senders: it must look before it sleeps for the first
/// time.
impl<W: Wake> Wake for OnceLock<W> {
    fn wake(&self) {
        if let Some(waker) = self.get() {
            waker.wake();
        }
    }
}

/// A queue of messages to one receiver.
#[derive(Debug)]
pub struct Mailbox<T, W> {
    waker: W,
    messages_max: usize,
    /// Whether the queue has messages: written under the lock, read without it.
    has_mail: AtomicBool,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    is_asleep: bool,
    is_closed: bool,
}

impl<T, W: Wake> Mailbox<T, W> {
    /// A mailbox for at most `messages_max` waiting messages, whose receiver `waker` wakes.
    pub fn new(waker: W, messages_max: usize) -> Mailbox<T, W> {
        let state = State { queue: VecDeque::new(), is_asleep: true, is_closed: false };
        let has_mail = AtomicBool::new(false);
        Mailbox { waker, messages_max, has_mail, state: Mutex::new(state) }
    }

    /// The receiver's waker, for events that are no messages.
    pub fn waker(&self) -> &W {
        &self.waker
    }

    /// Sends a message, or gives it back when the mailbox is full or closed.
    pub fn send(&self, message: T) -> Result<(), T> {
        let was_asleep = {
            let mut state = self.state.lock();
            if state.is_closed || state.queue.len() >= self.messages_max {
                return Err(message);
            }
            state.queue.push_back(message);
            self.has_mail.store(true, Ordering::Relaxed);
            std::mem::take(&mut state.is_asleep)
        };
        if was_asleep {
            self.waker.wake();
        }
        Ok(())
    }

    /// Whether there are messages, without the lock: a message may be seen late, but never later
    /// than the wake that it caused.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Relaxed)
    }

    /// Appends the oldest messages, at most `messages_max`, to `into`. The receiver is awake from
    /// now on.
    pub fn take(&self, messages_max: usize, into: &mut VecDeque<T>) {
        let mut state = self.state.lock();
        state.is_asleep = false;
        if into.is_empty() && state.queue.len() <= messages_max {
            std::mem::swap(&mut state.queue, into);
        } else {
            let count = state.queue.len().min(messages_max);
            into.extend(state.queue.drain(..count));
        }
        self.has_mail.store(!state.queue.is_empty(), Ordering::Relaxed);
    }

    /// True when there is no message: the receiver may wait, and the next message wakes it.
    pub fn may_sleep(&self) -> bool {
        let mut state = self.state.lock();
        state.is_asleep = state.queue.is_empty();
        state.is_asleep
    }

    /// Ends the mailbox together with its receiver: drops all waiting messages, and accepts no
    /// more.
    pub fn close(&self) {
        let unread = {
            let mut state = self.state.lock();
            state.is_closed = true;
            self.has_mail.store(false, Ordering::Relaxed);
            std::mem::take(&mut state.queue)
        };
        drop(unread);
    }
}
