//! Single flight: of many that miss one key at once, one loads it, the others wait for what it brings.
//!
//! ```text
//! absent -> flying -> landed       land(): waiters have the value; stored, unless superseded meanwhile
//!              |----> abandoned    the token was dropped (an error, a panic, a cancelled task): waiters are
//!              |                   told, and one of them begins anew
//!              '----> taken over   its deadline is past and somebody else began: the old token brings nothing
//! ```
//!
//! Invariants
//! 1. A flight is found by its whole key: a waiter never gets another key's value.
//! 2. Of one key at most one token may store: the flight in the table, by its last leader. While it stores
//!    (`Outcome::Storing`) it stays in the table, nobody takes over, and `supersede` waits.
//! 3. A load that began before an insert or a remove *was called* never overwrites what that did: the caller
//!    says [`Flight::supersede`] first, which takes the flight out of the table or waits until it has stored,
//!    and writes then. (A load that begins after that call may overwrite it: it sees at its source what the
//!    caller did before calling.)
//! 4. No caller's code runs under a lock, and no value is dropped, but for the value's `clone` for each who
//!    waits: let it be an `Arc`.
//! 5. Who waits is woken at the end of the flight, however it ends, unless its leader sleeps forever; a
//!    blocked thread gives up after a time of its choosing, a task is dropped by its own timer.
//!
//! Time is an argument, as everywhere. There is no runtime in here: a [`Waiter`] is a plain future, and a
//! thread waits by parking.
//!
//! Bounds: `flights_max` flights; each takes its key and some 200 bytes, and 24 for each that waits at once.
//! Cost: a lock of one of 64 shards to begin and to land; `supersede` is one load while nothing is in flight.

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

/// Loads in flight, by key. Cheap to clone; a clone is the same table.
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
    /// Which of the tokens given for this flight counts: the last.
    leader: u64,
    thread: thread::ThreadId,
    deadline: Seconds,
    outcome: Outcome<R>,
    wakers: Vec<Option<Waker>>,
    /// Places in `wakers` that waiters who went away have left.
    vacant: Vec<usize>,
}

#[derive(Debug)]
enum Outcome<R> {
    Flying,
    /// The leader, on this thread, is storing what it brought.
    Storing(thread::ThreadId),
    Landed(R),
    Abandoned,
}

/// What a caller who missed is to do.
#[derive(Debug)]
#[must_use]
pub enum Begin<R> {
    /// Load the value and [`Token::land`] it.
    Lead(Token<R>),
    /// Somebody is loading it: wait, or serve what you have.
    Wait(Waiter<R>),
    /// `flights_max` loads are under way. Load for yourself and do not store, or turn the request away.
    Full,
}

/// What became of a value that was brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// It was stored, and given to those who waited.
    Stored,
    /// An insert or a remove came first: it was given to those who waited, who all began before that, and
    /// not stored.
    Superseded,
    /// It came after its deadline and somebody else had begun: nobody was given it.
    TakenOver,
}

impl<R: Clone> Flight<R> {
    /// A table for up to `flights_max` loads at once.
    pub fn new(flights_max: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Table::new())).collect();
        let active = AtomicUsize::new(0);
        Flight { core: Arc::new(Core { shards, hasher: RandomState::new(), active, flights_max }) }
    }

    /// Takes the lead in loading `key`, or joins those who wait. A leader who has not landed `patience_s`
    /// seconds from `now` may be replaced by the next who begins.
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
        // May let a few more in than allowed, when several shards ask at once; never one a shard too many.
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

    /// Says that `key` is about to be inserted or removed: loads that began before will not be stored, or have
    /// been when this returns. Those who wait for one still get what it brings.
    #[inline]
    pub fn supersede(&self, key: &[u8]) {
        // A flight that this load misses began in no order with this call: invariant 3 allows it.
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

    /// [`Flight::supersede`] of every key.
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

    /// Loads in flight, those apart that were superseded or taken over.
    pub fn len(&self) -> usize {
        self.core.active.load(Ordering::Relaxed)
    }

    /// True while none is.
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

/// Storing is short, and ends, however it does. Not for the thread that stores: a write of its own, as a
/// cache's listener may make one, comes after what it stored.
fn wait_for_store<R: Clone>(call: Arc<Call<R>>) {
    let here = thread::current().id();
    if !matches!(call.progress.lock().outcome, Outcome::Storing(thread) if thread == here) {
        let _ = Waiter { call, place: None }.wait_for(Duration::MAX);
    }
}

/// The duty to bring a value. Dropped without having landed, it tells those who wait to begin anew. May cross
/// threads and await points.
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

    /// Brings the value: runs `store`, unless an insert or a remove came first, and wakes those who wait.
    /// Inserts and removes of this key wait for `store`: it stores, and no more.
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
            // Should this panic, `drop` ends the flight.
            store(&value);
        }
        self.end(Outcome::Landed(value));
        if is_stored { Landing::Stored } else { Landing::Superseded }
    }

    fn is_in(&self, table: &Table<R>) -> bool {
        table.get(&*self.key).is_some_and(|call| Arc::ptr_eq(call, &self.call))
    }

    /// Ends the flight, if it is still this token's to end.
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

/// Waits for what another brings: as a future, or by blocking. `None` says that nothing will come: look
/// again, and begin anew. May be dropped at any time.
#[derive(Debug)]
#[must_use = "a waiter waits when it is polled or told to"]
pub struct Waiter<R> {
    call: Arc<Call<R>>,
    /// Where in the flight's wakers ours is.
    place: Option<usize>,
}

impl<R: Clone> Waiter<R> {
    /// Blocks until the flight ends or `patience` is over, which is `Pending`. Nothing is ever missed by
    /// waiting in steps.
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

    /// True when this very thread took the lead: blocking it may mean that nobody ever lands.
    pub fn is_led_here(&self) -> bool {
        self.call.progress.lock().thread == thread::current().id()
    }
}

impl<R: Clone> Future for Waiter<R> {
    type Output = Option<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned before the lock and dropped after it: a waker's code is not ours.
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
            // After the flight's end the list is empty, and nobody looks for a place any more.
            if waker.is_some() {
                progress.vacant.push(place);
            }
            waker
        };
        drop(waker);
    }
}

/// Wakes a thread that is parked.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: StdArc<Self>) {
        self.0.unpark();
    }
}
