//! Coalesced loads: of many callers that miss a key at once, one loads it and the others wait for
//! its result.
//!
//! ```text
//! absent -> flying -> landed       land(): waiters get the value; stored, unless superseded meanwhile
//!              |----> abandoned    the token was dropped (an error, a panic, a cancelled task): waiters are
//!              |                   notified, and one of them begins again
//!              '----> taken over   its deadline has passed and another began: the old token's value is dropped
//! ```
//!
//! Invariants
//! 1. A flight is found by its whole key: a waiter never gets another key's value.
//! 2. Of one key at most one token may store: that of the flight in the table, and of its last
//!    leader. While it stores (`Outcome::Storing`) it stays in the table, nobody can take over, and
//!    `supersede` waits.
//! 3. A load that began before an insert or a remove *was called* never overwrites its result. The
//!    caller first calls [`Flight::supersede`], which removes the flight from the table or waits
//!    until it has stored, and then writes. (A load that begins after that call may overwrite it:
//!    it sees at its source what the caller did before the call.)
//! 4. No caller's code runs under a lock, and no value is dropped there. The exception is the
//!    value's `clone` for each waiter, so let it be an `Arc`.
//! 5. A waiter is woken when the flight ends, however it ends, unless its leader sleeps forever. A
//!    blocked thread stops waiting after a time of its choice; a task is dropped by its own timer.
//!
//! Time is an argument, as everywhere. There is no runtime in here: a [`Waiter`] is a plain future,
//! and a thread waits by parking.
//!
//! Bounds: `flights_max` flights; each takes its key and about 200 bytes, and 24 for each waiter.
//! Cost: a lock of one of 64 shards to begin and to land; `supersede` is one load while there is no
//! flight.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, thread};
use crate::time::Seconds;

const SHARDS: usize = 64;

/// Loads in flight, by key. Cloning is cheap, and a clone is the same table.
#[derive(Debug)]
pub struct Flight<R> {
    core: Arc<Core<R>>,
}

impl<R> Clone for Flight<R> {
    fn clone(&self) -> Self {
        Flight { core: self.core.clone() }
    }
}

type Table<R> = HashMap<Box<[u8]>, Arc<Call<R>>>;

#[derive(Debug)]
struct Core<R> {
    shards: Box<[Mutex<Table<R>>]>,
    hasher: RandomState,
    /// Flights in all tables.
    active: AtomicUsize,
    flights_max: usize,
}

/// One flight. Its lock is taken after its shard's, or alone.
#[derive(Debug)]
struct Call<R> {
    progress: Mutex<Progress<R>>,
}

#[derive(Debug)]
struct Progress<R> {
    /// The token that counts: the last one given for this flight.
    leader: u64,
    thread: thread::ThreadId,
    deadline: Seconds,
    outcome: Outcome<R>,
    wakers: Vec<Option<Waker>>,
    /// Free positions in `wakers`, of waiters that were dropped.
    vacant: Vec<usize>,
}

#[derive(Debug)]
enum Outcome<R> {
    Flying,
    /// The leader, on this thread, is storing its value.
    Storing(thread::ThreadId),
    Landed(R),
    Abandoned,
}

/// The result for a caller that missed.
#[derive(Debug)]
#[must_use]
pub enum Begin<R> {
    /// Load the value and [`Token::land`] it.
    Lead(Token<R>),
    /// Another caller is loading it: wait, or serve another value.
    Wait(Waiter<R>),
    /// `flights_max` loads are in flight. Load without storing, or refuse the request.
    Full,
}

/// What happened to a loaded value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// It was stored, and passed to the waiters.
    Stored,
    /// An insert or a remove came first. The waiters, which all began before that, got the value,
    /// and it was not stored.
    Superseded,
    /// It landed after its deadline, and another load had begun: it was dropped.
    TakenOver,
}

impl<R: Clone> Flight<R> {
    /// A table for up to `flights_max` loads at once.
    pub fn new(flights_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Table::new())).collect();
        let active = AtomicUsize::new(0);
        Flight { core: Arc::new(Core { shards, hasher: RandomState::new(), active, flights_max }) }
    }

    /// Takes the lead in loading `key`, or joins its waiters. The next caller may replace a leader
    /// that has not landed `patience_s` seconds after `now`.
    pub fn begin(&self, key: &[u8], now: Seconds, patience_s: u32) -> Begin<R> {
        let deadline = Seconds(now.0.saturating_add(patience_s));
        let mut table = self.core.shard(key).lock();
        if let Some(call) = table.get(key) {
            let mut progress = call.progress.lock();
            if now < progress.deadline || matches!(progress.outcome, Outcome::Storing(_)) {
                drop(progress);
                return Begin::Wait(Waiter { call: call.clone(), place: None });
            }
            progress.leader += 1;
            progress.thread = thread::current().id();
            progress.deadline = deadline;
            return Begin::Lead(self.token(key, call, progress.leader));
        }
        // May allow a few more when several shards begin at once, at most one per shard.
        if self.core.active.load(Ordering::Relaxed) >= self.core.flights_max {
            return Begin::Full;
        }
        let call = Arc::new(Call {
            progress: Mutex::new(Progress {
                leader: 0,
                thread: thread::current().id(),
                deadline,
                outcome: Outcome::Flying,
                wakers: Vec::new(),
                vacant: Vec::new(),
            }),
        });
        self.core.active.fetch_add(1, Ordering::Relaxed);
        let token = self.token(key, &call, 0);
        table.insert(key.into(), call);
        Begin::Lead(token)
    }

    fn token(&self, key: &[u8], call: &Arc<Call<R>>, leader: u64) -> Token<R> {
        Token { core: self.core.clone(), call: call.clone(), key: key.into(), leader, ended: false }
    }

    /// Announces that `key` is about to be inserted or removed. Loads that began before will not be
    /// stored, or are stored when this returns. Their waiters still get their values.
    #[inline]
    pub fn supersede(&self, key: &[u8]) {
        // A flight that this load misses has no order with this call: invariant 3 allows it.
        if self.core.active.load(Ordering::Acquire) > 0 {
            self.forget(key);
        }
    }

    #[cold]
    fn forget(&self, key: &[u8]) {
        let (forgotten, storing) = {
            let mut table = self.core.shard(key).lock();
            match table.get(key) {
                None => return,
                Some(call) if call.is_storing() => (None, Some(call.clone())),
                Some(_) => (table.remove_entry(key), None),
            }
        };
        self.core.active.fetch_sub(usize::from(forgotten.is_some()), Ordering::Relaxed);
        storing.into_iter().for_each(wait_for_store);
    }

    /// [`Flight::supersede`] for every key.
    pub fn supersede_all(&self) {
        for shard in &self.core.shards {
            let (forgotten, storing): (Table<R>, Table<R>) = {
                let mut table = shard.lock();
                let all = std::mem::take(&mut *table).into_iter();
                let (storing, forgotten): (Table<R>, Table<R>) =
                    all.partition(|(_, call)| call.is_storing());
                table.extend(storing.iter().map(|(key, call)| (key.clone(), call.clone())));
                self.core.active.fetch_sub(forgotten.len(), Ordering::Relaxed);
                (forgotten, storing)
            };
            drop(forgotten);
            storing.into_values().for_each(wait_for_store);
        }
    }

    /// Loads in flight, except those that were superseded or taken over.
    pub fn len(&self) -> usize {
        self.core.active.load(Ordering::Relaxed)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<R> Core<R> {
    fn shard(&self, key: &[u8]) -> &Mutex<Table<R>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}

impl<R> Call<R> {
    fn is_storing(&self) -> bool {
        matches!(self.progress.lock().outcome, Outcome::Storing(_))
    }
}

/// Waits for a store, which is short and always ends: it calls no listener. The thread that stores must not wait: its
/// own write, for example by the clone of a value, comes after the store.
fn wait_for_store<R: Clone>(call: Arc<Call<R>>) {
    let here = thread::current().id();
    if !matches!(call.progress.lock().outcome, Outcome::Storing(thread) if thread == here) {
        let _ = Waiter { call, place: None }.wait_for(Duration::MAX);
    }
}

/// The duty to load a value. If it is dropped without landing, the waiters begin again. It may
/// cross threads and await points.
#[derive(Debug)]
#[must_use = "those who wait for this load wait until it lands or the token is dropped"]
pub struct Token<R> {
    core: Arc<Core<R>>,
    call: Arc<Call<R>>,
    key: Box<[u8]>,
    leader: u64,
    ended: bool,
}

impl<R> Token<R> {
    /// The key to load.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Lands the value: runs `store`, unless an insert or a remove came first, and wakes the
    /// waiters. Inserts and removes of this key wait for `store`, so it should only store.
    pub fn land(mut self, value: R, store: impl FnOnce(&R)) -> Landing {
        let is_stored = {
            let table = self.core.shard(&self.key).lock();
            let mut progress = self.call.progress.lock();
            if progress.leader != self.leader {
                self.ended = true;
                return Landing::TakenOver;
            }
            let is_stored = self.is_in(&table);
            if is_stored {
                progress.outcome = Outcome::Storing(thread::current().id());
            }
            is_stored
        };
        if is_stored {
            // If this panics, `drop` ends the flight.
            store(&value);
        }
        self.end(Outcome::Landed(value));
        if is_stored { Landing::Stored } else { Landing::Superseded }
    }

    fn is_in(&self, table: &Table<R>) -> bool {
        table.get(&*self.key).is_some_and(|call| Arc::ptr_eq(call, &self.call))
    }

    /// Ends the flight, unless another token owns it.
    fn end(&mut self, outcome: Outcome<R>) {
        self.ended = true;
        let (forgotten, wakers) = {
            let mut table = self.core.shard(&self.key).lock();
            let mut progress = self.call.progress.lock();
            // Only `begin` replaces a leader, under the lock that we hold.
            if progress.leader != self.leader {
                return;
            }
            progress.outcome = outcome;
            let wakers = std::mem::take(&mut progress.wakers);
            drop(progress);
            let is_in = self.is_in(&table);
            (if is_in { table.remove_entry(&*self.key) } else { None }, wakers)
        };
        self.core.active.fetch_sub(usize::from(forgotten.is_some()), Ordering::Relaxed);
        drop(forgotten);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl<R> Drop for Token<R> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Outcome::Abandoned);
        }
    }
}

/// Waits for another caller's load, as a future or by blocking. `None` means that there will be no
/// value: look up and begin again. May be dropped at any time.
#[derive(Debug)]
#[must_use = "a waiter waits only when it is polled or blocked on"]
pub struct Waiter<R> {
    call: Arc<Call<R>>,
    /// Its position in the flight's wakers.
    place: Option<usize>,
}

impl<R: Clone> Waiter<R> {
    /// Blocks until the flight ends, or returns `Pending` after `patience`. Waiting in several
    /// steps misses nothing.
    #[allow(clippy::disallowed_methods, reason = "a caller waits for a time")]
    pub fn wait_for(&mut self, patience: Duration) -> Poll<Option<R>> {
        let end = Instant::now().checked_add(patience);
        let waker = Waker::from(StdArc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(brought) = Pin::new(&mut *self).poll(&mut context) {
                return Poll::Ready(brought);
            }
            match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return Poll::Pending,
                Some(rest) => thread::park_timeout(rest),
            }
        }
    }

    /// True if this thread leads: blocking it might mean that the load never lands.
    pub fn is_led_here(&self) -> bool {
        self.call.progress.lock().thread == thread::current().id()
    }
}

impl<R: Clone> Future for Waiter<R> {
    type Output = Option<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned before the lock and dropped after it, because a waker runs foreign code.
        let mut waker = Some(context.waker().clone());
        let call = self.call.clone();
        let mut progress = call.progress.lock();
        match &progress.outcome {
            Outcome::Landed(value) => return Poll::Ready(Some(value.clone())),
            Outcome::Abandoned => return Poll::Ready(None),
            Outcome::Flying | Outcome::Storing(_) => {}
        }
        let place = match self.place {
            Some(place) => place,
            None => progress.vacant.pop().unwrap_or_else(|| {
                progress.wakers.push(None);
                progress.wakers.len() - 1
            }),
        };
        self.place = Some(place);
        std::mem::swap(&mut progress.wakers[place], &mut waker);
        drop(progress);
        Poll::Pending
    }
}

impl<R> Drop for Waiter<R> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let waker = {
            let mut progress = self.call.progress.lock();
            let waker = progress.wakers.get_mut(place).map(Option::take);
            // After the flight's end the list is empty, and positions are unused.
            if waker.is_some() {
                progress.vacant.push(place);
            }
            waker
        };
        drop(waker);
    }
}

/// Wakes a parked thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: StdArc<Self>) {
        self.0.unpark();
    }
}
