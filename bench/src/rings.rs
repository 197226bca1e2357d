//! Queues between cores: one consumer, one or more producers, messages of one item or of 32.
//!
//! Every queue holds 1024 messages and is used as its documentation shows. Channels that can block do; the
//! rings that cannot yield the core when they are full or empty. With several producers the rings for one are
//! as many rings, and the consumer takes them in turn. A message of 32 items is an array: that is what
//! a front end sends when it works in batches, and it asks nothing of the queue.
//!
//! Items are numbers; the consumer adds them up, and a wrong sum is an error.

use std::sync::{Arc, Barrier, mpsc};
use std::thread::yield_now;
use std::time::Instant;

/// Messages that a queue holds.
pub const CAPACITY: usize = 1024;

/// So many items, sent at once.
pub type Message<const N: usize> = [u64; N];

/// One producer's end.
trait Send1<const N: usize>: Send {
    fn send(&mut self, message: Message<N>);
}

/// The consumer's end.
trait Receive<const N: usize>: Send {
    /// The next message; waits for it.
    fn receive(&mut self) -> Message<N>;
}

impl<const N: usize, F: FnMut(Message<N>) + Send> Send1<N> for F {
    fn send(&mut self, message: Message<N>) {
        self(message);
    }
}

/// A queue under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// A ring for one producer and one consumer.
    Rtrb,
    /// A bounded ring for many.
    ArrayQueue,
    /// crossbeam's bounded channel.
    Crossbeam,
    /// The standard library's bounded channel.
    Std,
    /// kanal's bounded channel.
    Kanal,
    /// flume's bounded channel.
    Flume,
}

impl Queue {
    /// All of them; ratios are to the first.
    pub const ALL: [Queue; 6] =
        [Queue::Rtrb, Queue::ArrayQueue, Queue::Crossbeam, Queue::Std, Queue::Kanal, Queue::Flume];

    /// As tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Queue::Rtrb => "rtrb",
            Queue::ArrayQueue => "crossbeam ArrayQueue",
            Queue::Crossbeam => "crossbeam channel",
            Queue::Std => "std mpsc",
            Queue::Kanal => "kanal",
            Queue::Flume => "flume",
        }
    }

    /// Sends `items` through it, `N` a message: nanoseconds an item by the clock.
    pub fn run<const N: usize>(self, producers: usize, items: usize) -> Result<f64, String> {
        match self {
            Queue::Rtrb => {
                let (senders, receivers): (Vec<_>, Vec<_>) = (0..producers)
                    .map(|_| rtrb::RingBuffer::<Message<N>>::new(CAPACITY))
                    .map(|(producer, consumer)| (Ring(producer), consumer))
                    .unzip();
                carry(senders, Rings { receivers, next: 0 }, items)
            }
            Queue::ArrayQueue => {
                let queue = Arc::new(crossbeam_queue::ArrayQueue::<Message<N>>::new(CAPACITY));
                let senders = (0..producers).map(|_| Shared(queue.clone())).collect();
                carry(senders, Shared(queue), items)
            }
            Queue::Crossbeam => {
                let (sender, receiver) = crossbeam_channel::bounded::<Message<N>>(CAPACITY);
                // A closed channel loses a message, which the sum shows.
                let send = move |message| {
                    let _ = sender.send(message);
                };
                carry(vec![send; producers], From(move || receiver.recv().ok()), items)
            }
            Queue::Std => {
                let (sender, receiver) = mpsc::sync_channel::<Message<N>>(CAPACITY);
                // A closed channel loses a message, which the sum shows.
                let send = move |message| {
                    let _ = sender.send(message);
                };
                carry(vec![send; producers], From(move || receiver.recv().ok()), items)
            }
            Queue::Kanal => {
                let (sender, receiver) = kanal::bounded::<Message<N>>(CAPACITY);
                // A closed channel loses a message, which the sum shows.
                let send = move |message| {
                    let _ = sender.send(message);
                };
                carry(vec![send; producers], From(move || receiver.recv().ok()), items)
            }
            Queue::Flume => {
                let (sender, receiver) = flume::bounded::<Message<N>>(CAPACITY);
                // A closed channel loses a message, which the sum shows.
                let send = move |message| {
                    let _ = sender.send(message);
                };
                carry(vec![send; producers], From(move || receiver.recv().ok()), items)
            }
        }
    }
}

struct Ring<T>(rtrb::Producer<T>);

impl<const N: usize> Send1<N> for Ring<Message<N>> {
    fn send(&mut self, mut message: Message<N>) {
        while let Err(rtrb::PushError::Full(back)) = self.0.push(message) {
            message = back;
            yield_now();
        }
    }
}

struct Rings<T> {
    receivers: Vec<rtrb::Consumer<T>>,
    next: usize,
}

impl<const N: usize> Receive<N> for Rings<Message<N>> {
    fn receive(&mut self) -> Message<N> {
        loop {
            for _ in 0..self.receivers.len() {
                let at = self.next;
                // Stay with a ring that has something: its lines are here.
                if let Ok(message) = self.receivers[at].pop() {
                    return message;
                }
                self.next = (at + 1) % self.receivers.len();
            }
            yield_now();
        }
    }
}

struct Shared<T>(Arc<crossbeam_queue::ArrayQueue<T>>);

impl<const N: usize> Send1<N> for Shared<Message<N>> {
    fn send(&mut self, mut message: Message<N>) {
        while let Err(back) = self.0.push(message) {
            message = back;
            yield_now();
        }
    }
}

impl<const N: usize> Receive<N> for Shared<Message<N>> {
    fn receive(&mut self) -> Message<N> {
        loop {
            if let Some(message) = self.0.pop() {
                return message;
            }
            yield_now();
        }
    }
}

/// A channel's blocking end; a channel that was closed gives zeros, which the sum shows.
struct From<F>(F);

impl<const N: usize, F: FnMut() -> Option<Message<N>> + Send> Receive<N> for From<F> {
    fn receive(&mut self) -> Message<N> {
        (self.0)().unwrap_or([0; N])
    }
}

fn carry<const N: usize, S: Send1<N>, R: Receive<N>>(
    senders: Vec<S>,
    mut receiver: R,
    items: usize,
) -> Result<f64, String> {
    let messages = (items / N / senders.len()).max(1) as u64;
    let count = messages * senders.len() as u64;
    let barrier = Barrier::new(senders.len() + 1);
    let (sum, elapsed) = std::thread::scope(|scope| {
        for mut sender in senders {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for number in 0..messages {
                    sender.send([number; N]);
                }
            });
        }
        barrier.wait();
        let start = Instant::now();
        let sum = (0..count).fold(0u64, |sum, _| {
            receiver.receive().iter().fold(sum, |sum, item| sum.wrapping_add(*item))
        });
        (sum, start.elapsed())
    });
    let wanted = (count / messages) * N as u64 * (messages * (messages - 1) / 2);
    if sum != wanted {
        return Err(format!("the sum is {sum}, not {wanted}"));
    }
    Ok(elapsed.as_nanos() as f64 / (count * N as u64) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every queue delivers every item once, from one producer and from three, one by one and in batches.
    #[test]
    fn queues_deliver() {
        for queue in Queue::ALL {
            for producers in [1, 3] {
                assert!(queue.run::<1>(producers, 6000).is_ok(), "{queue:?}");
                assert!(queue.run::<32>(producers, 6000).is_ok(), "{queue:?}");
            }
        }
    }
}
