//! What it costs one loop to send something to another: `cargo bench -p larder-bench --bench mail`. Under `cargo test`
//! a few messages are sent, to show that it works.
//!
//! A loop on the last core receives messages of another on the first, and sleeps in the kernel when there are none.
//! Three queues: the one that loops of `larder http` have, a lock around a vector and a word that says whether the
//! reader sleeps; the standard library's channel, which has no lock, with a word of the same kind next to it; and the
//! same channel with a wake-up for each message. *One at a time*: the sender waits for an answer before it sends the
//! next, so that each finds a sleeper. *Many*: it sends without a pause, in bursts of 64.
//!
//! Figures are nanoseconds of both threads' processor time a message, medians of the rounds with their 95 % interval.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use larder_bench::clock::ThreadTime;
use larder_bench::pair::{Way, compare_ways};
use larder_bench::row::Unit;
use larder_http::coalescing::Outcome;
use larder_http::loop_channel::{LoopChannels, Message};
use larder_io::cores;
use larder_io::reactor::{Options, Reactor, Waker};

/// Messages of a burst.
const BURST: u64 = 64;

/// A queue to one reader, as its two sides see it.
trait Queue: Send + Sync {
    fn send(&self);
    /// How many there were.
    fn receive(&self, state: &mut ReaderState) -> u64;
    /// The reader has nothing to do: false where there is something after all.
    fn may_sleep(&self, state: &mut ReaderState) -> bool;
}

/// The state that the reader has besides the queue.
struct ReaderState {
    messages: VecDeque<Message>,
    channel: Option<mpsc::Receiver<Message>>,
    /// Taken out when it looked before it slept.
    early: u64,
}

fn message() -> Message {
    Message::Outcome(1, Outcome::Alone)
}

impl Queue for LoopChannels {
    fn send(&self) {
        self.post(0, message());
    }

    fn receive(&self, state: &mut ReaderState) -> u64 {
        self.take(0, &mut state.messages);
        state.messages.drain(..).count() as u64
    }

    fn may_sleep(&self, _state: &mut ReaderState) -> bool {
        LoopChannels::may_sleep(self, 0)
    }
}

/// The standard library's channel.
struct Channel {
    sender: mpsc::Sender<Message>,
    sleeps: AtomicBool,
    wakes_always: bool,
    waker: Waker,
}

impl Queue for Channel {
    fn send(&self) {
        // The reader stays until all is received.
        let _ = self.sender.send(message());
        if self.wakes_always || self.sleeps.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    fn receive(&self, state: &mut ReaderState) -> u64 {
        self.sleeps.store(false, Ordering::SeqCst);
        let more = state.channel.iter().flat_map(|it| it.try_iter()).count() as u64;
        more + std::mem::take(&mut state.early)
    }

    fn may_sleep(&self, state: &mut ReaderState) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        state.early += state.channel.iter().flat_map(|it| it.try_iter()).count() as u64;
        if state.early > 0 {
            self.sleeps.store(false, Ordering::SeqCst);
        }
        state.early == 0
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    LoopChannels,
    Channel,
    ChannelAlwaysWoken,
}

/// Sends `messages` messages, `burst` before each answer: nanoseconds a message.
fn run(kind: Kind, messages: u64, burst: u64) -> f64 {
    let (mut reactor, mut batch) = Reactor::new(&Options::default()).expect("a reactor");
    let (sender, receiver) = mpsc::channel();
    let queue: Arc<dyn Queue> = match kind {
        Kind::LoopChannels => {
            let channels = LoopChannels::new(1);
            channels.set_waker(0, reactor.waker());
            Arc::new(channels)
        }
        _ => Arc::new(Channel {
            sender,
            sleeps: AtomicBool::new(false),
            wakes_always: kind == Kind::ChannelAlwaysWoken,
            waker: reactor.waker(),
        }),
    };
    let received = Arc::new(AtomicU64::new(0));
    let all = cores::available_cores().unwrap_or_default();
    let reader = thread::spawn({
        let (queue, received, all) = (queue.clone(), received.clone(), all.clone());
        move || {
            let _ = all.last().map(|&core| cores::pin_to_core(core));
            let channel = (kind != Kind::LoopChannels).then_some(receiver);
            let mut state = ReaderState { messages: VecDeque::new(), channel, early: 0 };
            let time = ThreadTime::start();
            let mut count = 0;
            while count < messages {
                if queue.may_sleep(&mut state) {
                    reactor.wait(&mut batch, None).expect("a wait");
                    while batch.next().is_some() {}
                }
                count += queue.receive(&mut state);
                received.store(count, Ordering::Release);
            }
            time.elapsed_ns()
        }
    });
    let _ = all.first().map(|&core| cores::pin_to_core(core));
    let mut send_ns = 0.0;
    let mut sent = 0;
    while sent < messages {
        let time = ThreadTime::start();
        (0..burst).for_each(|_| queue.send());
        send_ns += time.elapsed_ns();
        sent += burst;
        // Not in the figure: a loop has other work meanwhile.
        while received.load(Ordering::Acquire) < sent {
            spin_loop();
        }
    }
    let receive_ns = reader.join().expect("it ends");
    (send_ns + receive_ns) / messages as f64
}

fn main() {
    let is_real = std::env::args().any(|word| word == "--bench");
    let (messages, rounds) = if is_real { (64 * 2_000, 11) } else { (64 * 4, 2) };
    for (work, messages, burst) in [("one at a time", messages / 8, 1), ("many", messages, BURST)] {
        let mut ways = [
            Way::new("mail", "a lock, and woken when it sleeps", || {
                run(Kind::LoopChannels, messages, burst)
            }),
            Way::new("channel", "no lock, and woken when it sleeps", || {
                run(Kind::Channel, messages, burst)
            }),
            Way::new("channel, always woken", "no lock, a call for each message", || {
                run(Kind::ChannelAlwaysWoken, messages, burst)
            }),
        ];
        for row in compare_ways(&format!("messages, {work}"), Unit::Ns, rounds, &mut ways) {
            println!("{}", row.to_json());
        }
    }
}
