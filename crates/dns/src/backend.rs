//! Backends: upstreams that run in threads of this process and have no address.
//!
//! A core's event loop waits only for sockets. A backend works in another way, as a recursor or a
//! TLS client does: it receives queries, and returns responses when it has them.
//!
//! ```text
//! core:        ask(backend, tag, message) -> BackendQuery -----> Backend::ask, which stores it and returns at once
//! any thread:  BackendQuery::answer(bytes), or drop ----------> the core's mailbox, which wakes the core
//! core:        take() -> (tag, bytes or None)
//! ```
//!
//! Life of a query
//! ```text
//! wanted    the core waits for it                   answer, drop -> the core gets the response
//! unwanted  it has ended, or went elsewhere         answer, drop -> the core frees its slot
//! ```
//!
//! Invariants
//! 1. A query returns to its core exactly once, with a response or without: the drop returns it.
//! 2. A core has no more queries out than slots, and its mailbox has room for all of them. So no
//!    returned query is lost.
//! 3. A slot is used again only after its query returned. So a late response is never taken for
//!    another query's.
//!
//! Bounds: `queries_max` queries of a core, each with an allocation for its message, and a response
//! of at most [`ANSWER_BYTES_MAX`] bytes. Cost: an allocation and a hash for a query; one write to
//! an eventfd for all responses that arrive before the core looks. A core without responses pays
//! one relaxed load in a turn.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_io::epoll::Waker;
use larder_serve::mailbox::Mailbox;

pub use larder_serve::log::{self, Log};

use crate::metrics::Metric;

/// Queries of a core that a backend may have at a time, by default.
pub const QUERIES_MAX: usize = 4_096;

/// Bytes of the longest response, as on a stream. A longer one counts as no response.
pub const ANSWER_BYTES_MAX: usize = 65_535;

/// The content of the slot of an unwanted query. It is not a tag, since a query has fewer streams
/// than its spare bits can count.
const UNWANTED: u64 = u64::MAX;

/// A resolver in threads of its own.
///
/// ```text
/// start    once, before any query; its threads leave the process' signals alone
/// ask      from any core, at any time
/// stop     once, after the cores have ended; queries that are still out are dropped
/// ```
pub trait Backend: Debug + Send + Sync {
    /// Starts its threads, which log unreachable servers. An error ends the server before it
    /// serves, and says what to do.
    fn start(&self, log: &Log) -> io::Result<()>;

    /// Takes a query, and returns at once, since the core waits. Without room it drops the query,
    /// which the core receives as a failure.
    fn query(&self, query: BackendQuery);

    /// Ends its threads.
    fn stop(&self);

    /// Its counters.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }
}

/// The running state of a backend, from start to stop.
#[derive(Debug)]
pub struct Running<T>(Mutex<Option<Arc<T>>>);

impl<T> Running<T> {
    /// Not started.
    pub const fn nothing() -> Running<T> {
        Running(Mutex::new(None))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the running state.
    pub fn begin(&self, it: T) {
        *self.lock() = Some(Arc::new(it));
    }

    /// The running state, if it has started.
    pub fn get(&self) -> Option<Arc<T>> {
        self.lock().clone()
    }

    /// Takes the running state. `None` if another thread still uses it.
    pub fn end(&self) -> Option<T> {
        let it = self.lock().take();
        it.and_then(Arc::into_inner)
    }
}

/// A query that returns to its core.
#[derive(Debug)]
struct Returned {
    place: u32,
    bytes: Option<Vec<u8>>,
}

/// The state that a core shares with its queries.
#[derive(Debug)]
struct Home {
    /// By slot: the tag of a wanted query, or [`UNWANTED`].
    wanted: Box<[AtomicU64]>,
    mailbox: Mailbox<Returned, Arc<Waker>>,
}

/// A query on its way to a backend, and back.
#[derive(Debug)]
pub struct BackendQuery {
    home: Arc<Home>,
    place: u32,
    tag: u64,
    core: usize,
    wait_ms: u32,
    message: Box<[u8]>,
    bytes: Option<Vec<u8>>,
}

impl BackendQuery {
    /// The query: a whole DNS message with one question, RD, and CD, AD and EDNS with DO as the
    /// core sets them. Its ID is 0.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The number of the core.
    pub fn core(&self) -> usize {
        self.core
    }

    /// How long the core waits, milliseconds. A later response is not used.
    pub fn wait_ms(&self) -> u32 {
        self.wait_ms
    }

    /// False if the query has ended or went elsewhere: the backend may drop it.
    pub fn is_wanted(&self) -> bool {
        let wanted = self.home.wanted.get(self.place as usize);
        wanted.is_some_and(|tag| tag.load(Ordering::Relaxed) == self.tag)
    }

    /// Returns a response: a whole DNS message that repeats the question. Its ID is ignored.
    pub fn answer(mut self, bytes: Vec<u8>) {
        self.bytes = Some(bytes).filter(|bytes| bytes.len() <= ANSWER_BYTES_MAX);
    }
}

impl Drop for BackendQuery {
    fn drop(&mut self) {
        let BackendQuery { home, place, bytes, .. } = self;
        // There is room, by invariant 2.
        let _ = home.mailbox.send(Returned { place: *place, bytes: bytes.take() });
    }
}

/// Counters of a core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Queries sent to backends.
    pub queries: u64,
    /// Queries refused because all slots were in use.
    pub refused_full: u64,
}

/// The core's side: its backends, and the queries that have not returned.
#[derive(Debug)]
pub struct Backends {
    backends: Vec<Arc<dyn Backend>>,
    core: usize,
    home: Arc<Home>,
    /// Taken from the mailbox, for [`Backends::take`].
    returned: VecDeque<Returned>,
    /// Slots of wanted queries, by tag.
    places: HashMap<u64, u32>,
    free: Vec<u32>,
    counters: Counters,
}

impl Backends {
    /// For the core of this number, which `waker` wakes; `queries_max` is at least 1.
    pub fn new(
        backends: &[Arc<dyn Backend>],
        core: usize,
        queries_max: usize,
        waker: Arc<Waker>,
    ) -> Backends {
        // Without backends no query is sent.
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

    /// Sends a query to the backend of a number. False if there is no such backend, if all slots
    /// are in use, or if a query with this tag is wanted.
    pub fn query(&mut self, backend: usize, tag: u64, message: &[u8], wait_ms: u32) -> bool {
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
        self.counters.queries += 1;
        backend.query(BackendQuery {
            home: self.home.clone(),
            place,
            tag,
            core: self.core,
            wait_ms,
            message: message.into(),
            bytes: None,
        });
        true
    }

    /// Ends the wait for the query with this tag, which becomes unwanted.
    pub fn cancel(&mut self, tag: u64) {
        if let Some(place) = self.places.remove(&tag) {
            self.home.wanted[place as usize].store(UNWANTED, Ordering::Relaxed);
        }
    }

    /// True if a query returned since [`Backends::take`] was last empty.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.home.mailbox.has_mail()
    }

    /// The next wanted query that returned: its tag, and the response or `None`. The core is woken
    /// again only after this has returned `None`.
    pub fn take(&mut self) -> Option<(u64, Option<Vec<u8>>)> {
        loop {
            let Some(Returned { place, bytes }) = self.returned.pop_front() else {
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
                return Some((tag, bytes));
            }
        }
    }

    /// Queries that have not returned, wanted or not.
    pub fn out(&self) -> usize {
        self.home.wanted.len() - self.free.len()
    }

    /// Counters since the start.
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

    /// Forwards queries to a thread.
    #[derive(Debug)]
    struct Thread(Mutex<Sender<BackendQuery>>);

    impl Backend for Thread {
        fn start(&self, _: &Log) -> io::Result<()> {
            Ok(())
        }

        fn query(&self, query: BackendQuery) {
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

    /// A query returns with its response. If it was dropped, or its response is too long, it
    /// returns without one. The core is woken once for all that returned before it looked.
    /// Invariant 1.
    #[test]
    fn queries_come_back() {
        let (mut backends, queries, waker) = backends(8);
        for tag in 0..4 {
            assert!(backends.query(0, tag, &[tag as u8], 250));
        }
        assert!(!backends.has_news() && !waker.clear().unwrap());
        for query in queries.try_iter() {
            assert_eq!((query.core(), query.wait_ms(), query.is_wanted()), (3, 250, true));
            match query.message() {
                [2] => drop(query),
                [3] => query.answer(vec![0; ANSWER_BYTES_MAX + 1]),
                message => {
                    let bytes = [message, b"!"].concat();
                    query.answer(bytes);
                }
            }
        }
        assert!(backends.has_news() && waker.clear().unwrap());
        let came: Vec<_> = std::iter::from_fn(|| backends.take()).collect();
        let of = |tag: u8| Some(vec![tag, b'!']);
        assert_eq!(came, [(0, of(0)), (1, of(1)), (2, None), (3, None)]);
        assert_eq!((backends.out(), backends.has_news()), (0, false));
    }

    /// A canceled query is unwanted and does not reach the core when it returns; its slot is in
    /// use until then. Invariants 2 and 3.
    #[test]
    fn cancelled_and_late() {
        let (mut backends, queries, _) = backends(1);
        assert!(backends.query(0, 7, b"one", 1));
        let late = queries.recv().unwrap();
        backends.cancel(7);
        assert!(!late.is_wanted());
        assert!(!backends.query(0, 7, b"two", 1), "there is one place");
        assert_eq!(backends.counters(), Counters { queries: 1, refused_full: 1 });
        late.answer(b"late".to_vec());
        assert_eq!(backends.take(), None);
        assert!(backends.query(0, 7, b"three", 1));
        assert!(!backends.query(0, 7, b"again", 1), "a tag in use");
        assert!(!backends.query(1, 8, b"whom?", 1), "no such backend");
        queries.recv().unwrap().answer(b"well".to_vec());
        assert_eq!(backends.take(), Some((7, Some(b"well".to_vec()))));
    }

    /// Queries may outlive their core.
    #[test]
    fn nobody_at_home() {
        let (mut backends, queries, waker) = backends(2);
        assert!(backends.query(0, 1, b"one", 1));
        drop((backends, waker));
        queries.recv().unwrap().answer(b"too late".to_vec());
    }

    /// Several threads respond in any order while the core sends, waits and cancels. Each query
    /// that was not canceled returns once with its own response, no wake-up is lost, and at the
    /// end every slot is free. Invariants 1, 2 and 3.
    #[test]
    fn many_threads() {
        const QUERIES: u64 = 20_000;
        let (mut backends, queries, waker) = backends(32);
        let queries = Arc::new(Mutex::new(queries));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let queries = queries.clone();
                thread::spawn(move || {
                    loop {
                        let query = queries.lock().unwrap().recv();
                        let Ok(query) = query else { return };
                        let bytes = query.message().to_vec();
                        query.answer(bytes);
                    }
                })
            })
            .collect();
        let (poller, mut events) = (Poller::new().unwrap(), Events::new(4));
        poller.add(&*waker, 0, Interest::READ).unwrap();
        let (mut next, mut came, mut cancelled) = (0, 0, 0);
        while next < QUERIES || backends.out() > 0 {
            while next < QUERIES && backends.query(0, next, &next.to_be_bytes(), 1) {
                if next % 7 == 0 {
                    backends.cancel(next);
                    cancelled += 1;
                }
                next += 1;
            }
            // Without a wake-up this would wait for ever.
            poller.wait(&mut events, None).unwrap();
            waker.clear().unwrap();
            while let Some((tag, bytes)) = backends.take() {
                assert_eq!(bytes.as_deref(), Some(&tag.to_be_bytes()[..]));
                assert_ne!(tag % 7, 0);
                came += 1;
            }
        }
        assert_eq!((came + cancelled, backends.places.len()), (QUERIES, 0));
        drop(backends);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
