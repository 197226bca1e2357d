//! Coalesced loads, one step after another: which caller leads, waits or loses. `flight_model.rs`
//! explores interleavings.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use larder::Seconds;
use larder::flight::{Begin, Flight, Landing, Token, Waiter};

fn lead(begun: Begin<u32>) -> Token<u32> {
    match begun {
        Begin::Lead(token) => token,
        other => panic!("should lead: {other:?}"),
    }
}

fn wait(begun: Begin<u32>) -> Waiter<u32> {
    match begun {
        Begin::Wait(waiter) => waiter,
        other => panic!("should wait: {other:?}"),
    }
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The first leads and the rest wait; other keys are independent. What lands reaches all, once.
#[test]
fn the_first_leads() {
    let flight = Flight::new(10);
    let token = lead(flight.begin(b"a", Seconds(1), 5));
    assert_eq!(token.key(), b"a");
    let mut waiters: Vec<_> = (0..3).map(|_| wait(flight.begin(b"a", Seconds(5), 5))).collect();
    let other = lead(flight.begin(b"b", Seconds(1), 5));
    assert_eq!(flight.len(), 2);
    let mut stored = 0;
    assert_eq!(token.land(7, |&value| stored = value), Landing::Stored);
    assert_eq!(stored, 7);
    for waiter in &mut waiters {
        assert_eq!(waiter.wait_for(Duration::ZERO), Poll::Ready(Some(7)));
    }
    drop(other);
    assert!(flight.is_empty());
    drop(lead(flight.begin(b"a", Seconds(5), 5)));
}

/// Many more keys than shards are in flight at once, some one byte longer than others: each waiter
/// gets the value of its own key (invariant 1 of `flight`).
#[test]
fn keys_do_not_mix() {
    let flight = Flight::new(1000);
    let keys: Vec<Vec<u8>> = (1..=1000).map(|length| vec![b'k'; length]).collect();
    let tokens: Vec<_> = keys.iter().map(|key| lead(flight.begin(key, Seconds(1), 5))).collect();
    let waiters: Vec<_> = keys.iter().map(|key| wait(flight.begin(key, Seconds(1), 5))).collect();
    for token in tokens {
        let length = token.key().len() as u32;
        assert_eq!(token.land(length, |_| ()), Landing::Stored);
    }
    for (key, mut waiter) in keys.iter().zip(waiters) {
        assert_eq!(waiter.wait_for(Duration::ZERO), Poll::Ready(Some(key.len() as u32)));
    }
}

/// After its deadline, and not a second before, a leader is replaced; its value is then dropped.
/// Invariant 2 of `flight`.
#[test]
fn a_late_leader_is_replaced() {
    let flight = Flight::new(10);
    let late = lead(flight.begin(b"a", Seconds(10), 5));
    let mut waiter = wait(flight.begin(b"a", Seconds(14), 5));
    let token = lead(flight.begin(b"a", Seconds(15), 5));
    assert_eq!(late.land(1, |_| panic!("it may not store")), Landing::TakenOver);
    assert_eq!(waiter.wait_for(Duration::ZERO), Poll::Pending);
    assert_eq!(token.land(2, |_| ()), Landing::Stored);
    assert_eq!(waiter.wait_for(Duration::ZERO), Poll::Ready(Some(2)));
    // Dropping a token that lost does not affect the leader.
    let late = lead(flight.begin(b"a", Seconds(1), 0));
    let token = lead(flight.begin(b"a", Seconds(1), 5));
    drop(late);
    let _waiter = wait(flight.begin(b"a", Seconds(1), 5));
    assert_eq!(token.land(3, |_| ()), Landing::Stored);
}

/// A superseded load is not stored but serves its waiters; later callers begin again.
#[test]
fn a_superseded_load_is_not_stored() {
    let flight = Flight::new(10);
    let old = lead(flight.begin(b"a", Seconds(1), 5));
    let mut waiter = wait(flight.begin(b"a", Seconds(1), 5));
    flight.supersede(b"b");
    flight.supersede(b"a");
    assert!(flight.is_empty());
    let new = lead(flight.begin(b"a", Seconds(1), 5));
    assert_eq!(old.land(1, |_| panic!("it may not store")), Landing::Superseded);
    assert_eq!(waiter.wait_for(Duration::ZERO), Poll::Ready(Some(1)));
    assert_eq!(flight.len(), 1);
    flight.supersede_all();
    assert_eq!(new.land(2, |_| panic!("nor may this")), Landing::Superseded);
    assert!(flight.is_empty());
}

/// A panic while storing ends the flight as a dropped token does. Invariant 5 of `flight`.
#[test]
fn a_panic_in_store_ends_the_flight() {
    let flight = Flight::new(10);
    let token = lead(flight.begin(b"a", Seconds(1), 5));
    let mut waiter = wait(flight.begin(b"a", Seconds(1), 5));
    let land = std::panic::AssertUnwindSafe(|| token.land(1, |_| panic!("no memory")));
    assert!(std::panic::catch_unwind(land).is_err());
    assert_eq!(waiter.wait_for(Duration::ZERO), Poll::Ready(None));
    assert!(flight.is_empty());
}

/// There are never more flights than allowed, and there is room again when one ends.
#[test]
fn flights_are_bounded() {
    let flight = Flight::<u32>::new(2);
    let tokens = [b"a", b"b"].map(|key| lead(flight.begin(key, Seconds(1), 5)));
    assert!(matches!(flight.begin(b"c", Seconds(1), 5), Begin::Full));
    drop(wait(flight.begin(b"a", Seconds(1), 5)));
    drop(tokens);
    drop(lead(flight.begin(b"c", Seconds(1), 5)));
}

/// As a future a waiter wakes its last waker, once, at the end; one that was dropped is not woken,
/// and its position is used again.
#[test]
fn wakers_are_woken_once() {
    let flight = Flight::new(10);
    let token = lead(flight.begin(b"a", Seconds(1), 5));
    let (first, last, gone) =
        (Arc::new(Bell::default()), Arc::new(Bell::default()), Arc::new(Bell::default()));
    let poll = |waiter: &mut Waiter<u32>, bell: &Arc<Bell>| {
        let waker = Waker::from(bell.clone());
        pin!(waiter).poll(&mut Context::from_waker(&waker))
    };
    let mut leaving = wait(flight.begin(b"a", Seconds(1), 5));
    assert_eq!(poll(&mut leaving, &gone), Poll::Pending);
    drop(leaving);
    assert_eq!(Arc::strong_count(&gone), 1, "a waiter that left keeps no waker");
    let mut waiter = wait(flight.begin(b"a", Seconds(1), 5));
    assert_eq!(poll(&mut waiter, &first), Poll::Pending);
    assert_eq!(poll(&mut waiter, &last), Poll::Pending);
    token.land(4, |_| ());
    let rung = [&first, &last, &gone].map(|bell| bell.0.load(Ordering::Relaxed));
    assert_eq!(rung, [0, 1, 0]);
    assert_eq!(poll(&mut waiter, &last), Poll::Ready(Some(4)));
}

/// What a caller's code may do: begin and supersede the same key, which takes the same locks.
fn use_again<R: Clone>(flight: &Flight<R>) {
    flight.supersede(b"a");
    drop(flight.begin(b"a", Seconds(1), 5));
}

/// Uses the flight again when it is woken, and when it is dropped.
struct Again(Flight<Value>, Arc<AtomicUsize>);

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        use_again(&self.0);
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        use_again(&self.0);
    }
}

/// A value that uses the flight again when it is dropped, if it has one.
#[derive(Clone)]
struct Value(Option<Flight<Value>>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.iter().for_each(use_again);
    }
}

/// `store`, wakers and drops of values and wakers use the flight that runs them, with the same key:
/// a lock held meanwhile would deadlock (invariant 4 of `flight`).
#[test]
fn callers_code_runs_under_no_lock() {
    let flight = Flight::new(10);
    let woken = Arc::new(AtomicUsize::new(0));
    for is_superseded in [false, true] {
        let Begin::Lead(token) = flight.begin(b"a", Seconds(1), 5) else { panic!("it leads") };
        let begun = [(); 2].map(|()| flight.begin(b"a", Seconds(1), 5));
        let [mut waiter, mut leaving] = begun.map(|begun| match begun {
            Begin::Wait(waiter) => waiter,
            _ => panic!("one leads already"),
        });
        for waiter in [&mut waiter, &mut leaving] {
            let waker = Waker::from(Arc::new(Again(flight.clone(), woken.clone())));
            assert!(pin!(waiter).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        if is_superseded {
            drop(leaving);
            flight.supersede(b"a");
        }
        token.land(Value(Some(flight.clone())), |_| use_again(&flight));
        let landed = pin!(&mut waiter).poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(landed, Poll::Ready(Some(_))));
    }
    assert_eq!(woken.load(Ordering::Relaxed), 3);
}

/// A waiter knows whether its own thread leads.
#[test]
fn a_waiter_knows_its_leader() {
    let flight = Flight::new(10);
    let _token = lead(flight.begin(b"a", Seconds(1), 5));
    let waiter = wait(flight.begin(b"a", Seconds(1), 5));
    assert!(waiter.is_led_here());
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!waiter.is_led_here()));
    });
}
