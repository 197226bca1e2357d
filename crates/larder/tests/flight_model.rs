//! Interleavings of coalesced loads, explored by loom over `src/flight.rs` itself, which is
//! compiled here a second time with loom's primitives.
//!
//! The value store is one word behind loom's lock, written under the rules that `flight` states: a
//! writer supersedes first and then writes, a leader writes only in `land`.
#![allow(dead_code, missing_docs)]

mod sync {
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::{AtomicUsize, Ordering};

    pub mod thread {
        pub use loom::thread::{Thread, ThreadId, current, park};

        /// Loom has no time: a wait with a limit has none.
        pub fn park_timeout(_: std::time::Duration) {
            park();
        }
    }

    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}

mod time {
    pub use larder::Seconds;
}

#[path = "../src/flight.rs"]
mod flight;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;

use flight::{Begin, Flight, Landing, Waiter};
use larder::Seconds;
use loom::thread;
use sync::{Arc, Mutex};

const NOW: Seconds = Seconds(10);

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // LOOM_MAX_PREEMPTIONS asks for more.
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 10_000;
    builder.check(scenario);
}

fn wait(mut waiter: Waiter<u32>) -> Option<u32> {
    match waiter.wait_for(Duration::MAX) {
        Poll::Ready(brought) => brought,
        Poll::Pending => panic!("waiting without end came to an end"),
    }
}

/// What a user does: look up, begin, load or wait, again until there is a value.
fn get_or_load(flight: &Flight<u32>, store: &Mutex<u32>, loads: &Mutex<u32>) -> u32 {
    loop {
        let there = *store.lock();
        if there != 0 {
            return there;
        }
        match flight.begin(b"k", NOW, 5) {
            Begin::Full => panic!("there is room for more"),
            Begin::Wait(waiter) => {
                if let Some(value) = wait(waiter) {
                    return value;
                }
            }
            Begin::Lead(token) => {
                let there = *store.lock();
                if there != 0 {
                    return there;
                }
                *loads.lock() += 1;
                token.land(1, |&value| *store.lock() = value);
                return 1;
            }
        }
    }
}

/// Two callers miss one key: one loads, both get its value, and neither waits forever.
#[test]
fn one_of_two_loads() {
    explore(|| {
        let shared = Arc::new((Flight::new(8), Mutex::new(0), Mutex::new(0)));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || get_or_load(&shared.0, &shared.1, &shared.2))
        };
        assert_eq!(get_or_load(&shared.0, &shared.1, &shared.2), 1);
        assert_eq!(other.join().unwrap(), 1);
        assert_eq!(*shared.2.lock(), 1, "one load");
        assert!(shared.0.is_empty());
    });
}

/// A load that began before a write was called never overwrites it, in any interleaving.
fn load_against_write(supersedes: bool) {
    explore(move || {
        let flight = Flight::new(8);
        let store = Arc::new(Mutex::new(0));
        let Begin::Lead(token) = flight.begin(b"k", NOW, 5) else { panic!("nobody else began") };
        let leader = {
            let store = store.clone();
            thread::spawn(move || token.land(1, |&value| *store.lock() = value))
        };
        if supersedes {
            flight.supersede(b"k");
        }
        *store.lock() = 2;
        let landing = leader.join().unwrap();
        assert_eq!(*store.lock(), 2, "the newer value stays ({landing:?})");
        assert!(landing != Landing::TakenOver && flight.is_empty());
    });
}

/// See [`load_against_write`]. Invariant 3 of `flight`.
#[test]
fn a_load_loses_to_a_later_write() {
    load_against_write(true);
}

/// The scenario above detects its fault: a writer that does not supersede is overwritten.
#[test]
fn a_write_that_does_not_supersede_is_lost() {
    let outcome = catch_unwind(AssertUnwindSafe(|| load_against_write(false)));
    assert!(outcome.is_err(), "the model checker must find the overwritten value");
}

/// A leader that gives up wakes the waiter, which then leads: neither waits forever. Invariant 5 of
/// `flight`.
#[test]
fn a_dropped_token_hands_the_lead_on() {
    explore(|| {
        let flight = Flight::new(8);
        let Begin::Lead(token) = flight.begin(b"k", NOW, 5) else { panic!("nobody else began") };
        let waiter = {
            let flight = flight.clone();
            thread::spawn(move || match flight.begin(b"k", NOW, 5) {
                Begin::Wait(waiter) => {
                    assert_eq!(wait(waiter), None);
                    matches!(flight.begin(b"k", NOW, 5), Begin::Lead(_))
                }
                Begin::Lead(_) => true,
                Begin::Full => false,
            })
        };
        drop(token);
        assert!(waiter.join().unwrap());
        assert!(flight.is_empty());
    });
}

/// A leader past its deadline and the one that took over: only the second stores, whichever lands
/// first, and the second serves waiters from the beginning. Invariant 2 of `flight`.
#[test]
fn who_took_over_serves_all() {
    explore(|| {
        let flight = Flight::new(8);
        let store = Arc::new(Mutex::new(0));
        let Begin::Lead(late) = flight.begin(b"k", NOW, 5) else { panic!("nobody else began") };
        let Begin::Wait(waiter) = flight.begin(b"k", NOW, 5) else { panic!("one leads already") };
        let Begin::Lead(token) = flight.begin(b"k", Seconds(15), 5) else { panic!("it is late") };
        let late = {
            let store = store.clone();
            thread::spawn(move || late.land(1, |&value| *store.lock() = value))
        };
        let landing = token.land(2, |&value| *store.lock() = value);
        assert_eq!(wait(waiter), Some(2));
        assert_eq!((late.join().unwrap(), landing), (Landing::TakenOver, Landing::Stored));
        assert_eq!(*store.lock(), 2);
    });
}

/// A write that comes while a load is being stored waits for the store. One from the storing thread
/// itself, for example by a listener, does not wait for itself. Invariants 2 and 3 of `flight`.
#[test]
fn a_write_waits_for_a_store() {
    explore(|| {
        let flight = Flight::new(8);
        let store = Arc::new(Mutex::new(0));
        let Begin::Lead(token) = flight.begin(b"k", NOW, 5) else { panic!("nobody else began") };
        let leader = {
            let (flight, store) = (flight.clone(), store.clone());
            thread::spawn(move || {
                token.land(1, |&value| {
                    *store.lock() = value;
                    flight.supersede(b"k");
                    *store.lock() = value;
                })
            })
        };
        flight.supersede(b"k");
        *store.lock() = 2;
        assert!(leader.join().unwrap() != Landing::TakenOver);
        assert_eq!(*store.lock(), 2);
        assert!(flight.is_empty());
    });
}

/// A waiter that is dropped while the flight lands has no effect, and the other is woken. Invariant
/// 5 of `flight`.
#[test]
fn a_waiter_may_leave() {
    explore(|| {
        let flight = Flight::new(8);
        let Begin::Lead(token) = flight.begin(b"k", NOW, 5) else { panic!("nobody else began") };
        let Begin::Wait(mut leaving) = flight.begin(b"k", NOW, 5) else { panic!("one leads") };
        let Begin::Wait(staying) = flight.begin(b"k", NOW, 5) else { panic!("one leads") };
        let leaver = thread::spawn(move || {
            assert!(leaving.wait_for(Duration::ZERO) != Poll::Ready(None));
            drop(leaving);
        });
        let waiter = thread::spawn(move || wait(staying));
        assert_eq!(token.land(3, |_| ()), Landing::Stored);
        leaver.join().unwrap();
        assert_eq!(waiter.join().unwrap(), Some(3));
    });
}
