//! Backends: upstreams that are no address, but somebody in other threads of this process.
//!
//! A core's loop waits for sockets and nothing else. Who works in another way, as a recursor or
//! what speaks TLS does, is handed questions, and hands answers back when it has them:
//!
//! ```text
//! core:      ask(backend, tag, message) -> BackendQuery ------- Backend::ask, which keeps it and returns at once
//! anywhere:  BackendQuery::answer(octets), or the query is dropped ----> the core's mailbox, which wakes the core
//! core:      take() -> (tag, octets or None)
//! ```
//!
//! Life of a query
//! ```text
//! wanted    the core waits for it                             answer, drop -> the core is told
//! unwanted  the question is over, or was asked elsewhere      answer, drop -> the core frees its place
//! ```
//!
//! Invariants
//! 1. A query comes back exactly once, answered or not, whoever holds it and however that ends:
//!    dropping it is what brings it back.
//! 2. No more queries of a core are out than it has places, and its mailbox has room for each:
//!    nothing that came back is lost.
//! 3. A place is given again only after its query came back, so a late answer is never another
//!    question's.
//!
//! Bounds: `queries_max` questions of a core, each an allocation of its message, and an answer of
//! at most [`ANSWER_BYTES_MAX`] octets. Cost: an allocation and a hash a question; a write to an
//! eventfd for each run of answers, however many they are. A core that got no answer pays one
//! relaxed load a turn.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_io::epoll::Waker;
use larder_serve::mailbox::Mailbox;

use crate::metrics::Gauge;

/// Queries of a core that are out at a time, unless told otherwise.
pub const QUERIES_MAX: usize = 4_096;

/// Octets of the longest answer, as of the longest message on a stream; what is longer is none.
pub const ANSWER_BYTES_MAX: usize = 65_535;

/// What stands in the place of a query that nobody waits for: no tag, since streams of a question
/// are fewer than its spare bits tell apart.
const UNWANTED: u64 = u64::MAX;

/// Somebody who answers questions, in threads of its own.
///
/// ```text
/// start    once, before any question; threads started here leave the process' signals alone
/// ask      from any core, at any time
/// stop     once, after the cores have ended; queries that are still out are dropped
/// ```
pub trait Backend: Debug + Send + Sync {
    /// Starts what it runs on. An error ends the server before it serves, and says what to do.
    fn start(&self) -> io::Result<()>;

    /// Takes a question, and returns at once: the core waits. Where it has no room, it drops the
    /// query, and the core hears of it as of a failure.
    fn ask(&self, query: BackendQuery);

    /// Ends what it runs on.
    fn stop(&self);

    /// A line for the operator, where there is one that was not told: whom it cannot reach, and
    /// why.
    fn news(&self) -> Option<String> {
        None
    }

    /// What it counts.
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }
}

/// What a backend runs on, from its start to its stop.
#[derive(Debug)]
pub struct Running<T>(Mutex<Option<Arc<T>>>);

impl<T> Running<T> {
    /// Nothing yet.
    pub const fn nothing() -> Running<T> {
        Running(Mutex::new(None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has started.
    pub fn begin(&self, it: T) {
        *self.lock() = Some(Arc::new(it));
    }

    /// What runs, if anything does.
    pub fn get(&self) -> Option<Arc<T>> {
        self.lock().clone()
    }

    /// Nobody gets it any more; it is given to whoever ends it, unless somebody still has it.
    pub fn end(&self) -> Option<T> {
        let it = self.lock().take();
        it.and_then(Arc::into_inner)
    }
}

/// What comes back to a core.
#[derive(Debug)]
struct Returned {
    place: u32,
    octets: Option<Vec<u8>>,
}

/// What a core shares with its queries.
#[derive(Debug)]
struct Home {
    /// By place: the tag of the question that is waited for, or [`UNWANTED`].
    wanted: Box<[AtomicU64]>,
    mailbox: Mailbox<Returned, Arc<Waker>>,
}

/// A question on its way to a backend, and the way back.
#[derive(Debug)]
pub struct BackendQuery {
    home: Arc<Home>,
    place: u32,
    tag: u64,
    core: usize,
    wait_ms: u32,
    message: Box<[u8]>,
    octets: Option<Vec<u8>>,
}

impl BackendQuery {
    /// The question: a whole DNS message with one question, RD, and CD, AD and EDNS with DO as the
    /// core asks. Its ID is 0.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The number of the core that asks.
    pub fn core(&self) -> usize {
        self.core
    }

    /// How long the core waits, milliseconds since it asked: what takes longer is done for nobody.
    pub fn wait_ms(&self) -> u32 {
        self.wait_ms
    }

    /// False where the question is over, or was asked elsewhere instead: a good moment to drop it.
    pub fn is_wanted(&self) -> bool {
        let wanted = self.home.wanted.get(self.place as usize);
        wanted.is_some_and(|tag| tag.load(Ordering::Relaxed) == self.tag)
    }

    /// Brings an answer back: a whole DNS message that repeats the question; its ID is of no
    /// matter.
    pub fn answer(mut self, octets: Vec<u8>) {
        self.octets = Some(octets).filter(|octets| octets.len() <= ANSWER_BYTES_MAX);
    }
}

impl Drop for BackendQuery {
    fn drop(&mut self) {
        let BackendQuery { home, place, octets, .. } = self;
        // There is room, by invariant 2.
        let _ = home.mailbox.send(Returned { place: *place, octets: octets.take() });
    }
}

/// What a core counted of its queries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handed out.
    pub asked: u64,
    /// Not handed out, since as many as may be were out.
    pub refused_full: u64,
}

/// A core's side: whom it may ask, and what it waits for.
#[derive(Debug)]
pub struct Backends {
    backends: Vec<Arc<dyn Backend>>,
    core: usize,
    home: Arc<Home>,
    /// Taken from the mailbox, for [`Backends::take`].
    returned: VecDeque<Returned>,
    /// Places of queries that are wanted, by tag.
    places: HashMap<u64, u32>,
    free: Vec<u32>,
    counters: Counters,
}

impl Backends {
    /// For the core of a number, which `waker` wakes; `queries_max` is brought to 1 at least.
    pub fn new(
        backends: &[Arc<dyn Backend>],
        core: usize,
        queries_max: usize,
        waker: Arc<Waker>,
    ) -> Backends {
        // Without backends nothing is ever handed out.
        let places = if backends.is_empty() { 1 } else { queries_max.clamp(1, 1 << 24) };
        let home = Home {
            wanted: (0..places).map(|_| AtomicU64::new(UNWANTED)).collect(),
            mailbox: Mailbox::new(waker, places),
        };
        Backends {
            backends: backends.to_vec(),
            core,
            home: Arc::new(home),
            returned: VecDeque::new(),
            places: HashMap::new(),
            free: (0..places as u32).rev().collect(),
            counters: Counters::default(),
        }
    }

    /// Hands a question to a backend, by its number. False where there is none, where too many are
    /// out, or where one with this tag is wanted already: nothing will be heard of it.
    pub fn ask(&mut self, backend: usize, tag: u64, message: &[u8], wait_ms: u32) -> bool {
        let Some(backend) = self.backends.get(backend) else { return false };
        if tag == UNWANTED || self.places.contains_key(&tag) {
            return false;
        }
        let Some(place) = self.free.pop() else {
            self.counters.refused_full += 1;
            return false;
        };
        self.places.insert(tag, place);
        self.home.wanted[place as usize].store(tag, Ordering::Relaxed);
        self.counters.asked += 1;
        backend.ask(BackendQuery {
            home: self.home.clone(),
            place,
            tag,
            core: self.core,
            wait_ms,
            message: message.into(),
            octets: None,
        });
        true
    }

    /// Nothing more will be heard of the question with this tag; its query learns that nobody waits
    /// for it.
    pub fn cancel(&mut self, tag: u64) {
        if let Some(place) = self.places.remove(&tag) {
            self.home.wanted[place as usize].store(UNWANTED, Ordering::Relaxed);
        }
    }

    /// True where something came back since [`Backends::take`] had no more.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.home.mailbox.has_mail()
    }

    /// The next that came back and is waited for: its tag, and the answer, or `None` where there is
    /// none. The core is woken for the next one only after this has returned `None`.
    pub fn take(&mut self) -> Option<(u64, Option<Vec<u8>>)> {
        loop {
            let Some(Returned { place, octets }) = self.returned.pop_front() else {
                if self.home.mailbox.may_sleep() {
                    return None;
                }
                self.home.mailbox.take(usize::MAX, &mut self.returned);
                continue;
            };
            let tag = self.home.wanted[place as usize].swap(UNWANTED, Ordering::Relaxed);
            self.free.push(place);
            if tag != UNWANTED {
                self.places.remove(&tag);
                return Some((tag, octets));
            }
        }
    }

    /// Queries that have not come back, whether they are wanted or not.
    pub fn out(&self) -> usize {
        self.home.wanted.len() - self.free.len()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;

    use larder_io::epoll::{Events, Interest, Poller};

    /// Passes queries on to a thread.
    #[derive(Debug)]
    struct Thread(Mutex<Sender<BackendQuery>>);

    impl Backend for Thread {
        fn start(&self) -> io::Result<()> {
            Ok(())
        }

        fn ask(&self, query: BackendQuery) {
            self.0.lock().unwrap().send(query).unwrap();
        }

        fn stop(&self) {}
    }

    fn backends(queries_max: usize) -> (Backends, Receiver<BackendQuery>, Arc<Waker>) {
        let (sender, queries) = channel();
        let waker = Arc::new(Waker::new().unwrap());
        let thread: Arc<dyn Backend> = Arc::new(Thread(Mutex::new(sender)));
        (Backends::new(&[thread], 3, queries_max, waker.clone()), queries, waker)
    }

    /// A question comes back answered or, where its query was dropped or its answer is too long,
    /// not answered; the core was woken once for all that came before it looked. Invariant 1.
    #[test]
    fn queries_come_back() {
        let (mut backends, queries, waker) = backends(8);
        for tag in 0..4 {
            assert!(backends.ask(0, tag, &[tag as u8], 250));
        }
        assert!(!backends.has_news() && !waker.clear().unwrap());
        for query in queries.try_iter() {
            assert_eq!((query.core(), query.wait_ms(), query.is_wanted()), (3, 250, true));
            match query.message() {
                [2] => drop(query),
                [3] => query.answer(vec![0; ANSWER_BYTES_MAX + 1]),
                message => {
                    let octets = [message, b"!"].concat();
                    query.answer(octets);
                }
            }
        }
        assert!(backends.has_news() && waker.clear().unwrap());
        let came: Vec<_> = std::iter::from_fn(|| backends.take()).collect();
        let of = |tag: u8| Some(vec![tag, b'!']);
        assert_eq!(came, [(0, of(0)), (1, of(1)), (2, None), (3, None)]);
        assert_eq!((backends.out(), backends.has_news()), (0, false));
    }

    /// What is cancelled is told to its query, and not to the core when it comes back; its place is
    /// taken until then. Invariants 2 and 3.
    #[test]
    fn cancelled_and_late() {
        let (mut backends, queries, _) = backends(1);
        assert!(backends.ask(0, 7, b"one", 1));
        let late = queries.recv().unwrap();
        backends.cancel(7);
        assert!(!late.is_wanted());
        assert!(!backends.ask(0, 7, b"two", 1), "there is one place");
        assert_eq!(backends.counters(), Counters { asked: 1, refused_full: 1 });
        late.answer(b"late".to_vec());
        assert_eq!(backends.take(), None);
        assert!(backends.ask(0, 7, b"three", 1));
        assert!(!backends.ask(0, 7, b"again", 1), "a tag in use");
        assert!(!backends.ask(1, 8, b"whom?", 1), "no such backend");
        queries.recv().unwrap().answer(b"well".to_vec());
        assert_eq!(backends.take(), Some((7, Some(b"well".to_vec()))));
    }

    /// A core that ended before its queries is no trouble to them.
    #[test]
    fn nobody_at_home() {
        let (mut backends, queries, waker) = backends(2);
        assert!(backends.ask(0, 1, b"one", 1));
        drop((backends, waker));
        queries.recv().unwrap().answer(b"too late".to_vec());
    }

    /// With threads that answer in any order while the core asks, waits and cancels, each question
    /// that was not cancelled comes back once with its own answer, no wake-up is lost, and in the
    /// end every place is free. Invariants 1, 2 and 3.
    #[test]
    fn many_threads() {
        const ASKED: u64 = 20_000;
        let (mut backends, queries, waker) = backends(32);
        let queries = Arc::new(Mutex::new(queries));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let queries = queries.clone();
                thread::spawn(move || {
                    loop {
                        let query = queries.lock().unwrap().recv();
                        let Ok(query) = query else { return };
                        let octets = query.message().to_vec();
                        query.answer(octets);
                    }
                })
            })
            .collect();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(4));
        poller.add(&*waker, 0, Interest::READ).unwrap();
        let (mut next, mut came, mut cancelled) = (0, 0, 0);
        while next < ASKED || backends.out() > 0 {
            while next < ASKED && backends.ask(0, next, &next.to_be_bytes(), 1) {
                if next % 7 == 0 {
                    backends.cancel(next);
                    cancelled += 1;
                }
                next += 1;
            }
            // Without a wake-up this would wait for ever.
            poller.wait(&mut events, None).unwrap();
            waker.clear().unwrap();
            while let Some((tag, octets)) = backends.take() {
                assert_eq!(octets.as_deref(), Some(&tag.to_be_bytes()[..]));
                assert_ne!(tag % 7, 0);
                came += 1;
            }
        }
        assert_eq!((came + cancelled, backends.places.len()), (ASKED, 0));
        drop(backends);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
