//! Interleavings of senders and a receiver, explored by loom over `src/mailbox.rs` itself, which is
//! compiled here a second time with loom's primitives.
//!
//! A wait in the kernel is loom's `Notify`, which may also end for no reason.
#![allow(dead_code, missing_docs)]

mod sync {
    pub use loom::sync::atomic::{AtomicBool, Ordering};

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

#[path = "../src/mailbox.rs"]
mod mailbox;

use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::{Arc, Notify};
use loom::thread::{self, JoinHandle};
use mailbox::{Mailbox, Wake};

const ALL: usize = usize::MAX;

/// Ends a wait, and counts how often.
#[derive(Debug, Default)]
struct Bell {
    notify: Notify,
    wakes: AtomicUsize,
}

impl Wake for Bell {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.notify.notify();
    }
}

type Shared<T> = Arc<Mailbox<T, Bell>>;

fn shared<T>(messages_max: usize) -> Shared<T> {
    Arc::new(Mailbox::new(Bell::default(), messages_max))
}

fn wakes<T>(mailbox: &Shared<T>) -> usize {
    mailbox.waker().wakes.load(Ordering::Relaxed)
}

fn explore(scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // LOOM_MAX_PREEMPTIONS asks for more.
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.max_branches = 10_000;
    builder.check(scenario);
}

/// A thread that sends, and returns what it got back.
fn sender<T: 'static>(mailbox: &Shared<T>, messages: Vec<T>) -> JoinHandle<Vec<T>> {
    let mailbox = mailbox.clone();
    thread::spawn(move || messages.into_iter().filter_map(|it| mailbox.send(it).err()).collect())
}

/// Each message once, and the two of one sender in their order.
fn assert_all(mut came: Vec<u32>) {
    assert!(came.iter().position(|it| *it == 1) < came.iter().position(|it| *it == 2));
    came.sort_unstable();
    assert_eq!(came, [1, 2, 3]);
}

/// A receiver that looks in each turn gets every message of two threads, and never sleeps for ever.
/// It is woken at most once for each time that it slept. Invariants 1, 2 and 3 of `mailbox`.
#[test]
fn a_look_each_turn_misses_nothing() {
    explore(|| {
        let mailbox = shared(ALL);
        let senders = [sender(&mailbox, vec![1, 2]), sender(&mailbox, vec![3])];
        let (mut came, mut taken, mut sleeps) = (Vec::new(), VecDeque::new(), 0);
        mailbox.take(ALL, &mut taken);
        came.extend(taken.drain(..));
        // The mailbox was asleep until that take.
        let before = wakes(&mailbox);
        while came.len() < 3 {
            if mailbox.may_sleep() {
                sleeps += 1;
                mailbox.waker().notify.wait();
            }
            mailbox.take(ALL, &mut taken);
            came.extend(taken.drain(..));
        }
        senders.into_iter().for_each(|it| assert!(it.join().unwrap().is_empty()));
        assert_all(came);
        assert!(wakes(&mailbox) <= before.max(1) + sleeps);
    });
}

/// The same for a receiver that checks for mail without the lock, and takes one message a turn.
/// Invariants 1 and 2 of `mailbox`.
#[test]
fn a_look_when_there_is_mail_misses_nothing() {
    explore(|| {
        let mailbox = shared(ALL);
        let senders = [sender(&mailbox, vec![1, 2]), sender(&mailbox, vec![3])];
        let (mut came, mut taken) = (Vec::new(), VecDeque::new());
        while came.len() < 3 {
            mailbox.waker().notify.wait();
            if mailbox.has_mail() {
                mailbox.take(1, &mut taken);
                came.extend(taken.drain(..));
                if !mailbox.may_sleep() {
                    mailbox.waker().notify.notify();
                }
            }
        }
        senders.into_iter().for_each(|it| assert!(it.join().unwrap().is_empty()));
        assert_all(came);
        assert!(!mailbox.has_mail() && mailbox.may_sleep());
    });
}

/// The messages of two threads wake a sleeper once. A receiver that has taken messages is not
/// woken, and does not fall asleep while it has one. Invariant 3 of `mailbox`.
#[test]
fn one_wake_for_many() {
    explore(|| {
        let mailbox = shared(ALL);
        let join = |senders: [JoinHandle<Vec<u32>>; 2]| {
            senders.into_iter().for_each(|it| assert!(it.join().unwrap().is_empty()));
        };
        join([sender(&mailbox, vec![1]), sender(&mailbox, vec![2])]);
        assert_eq!(wakes(&mailbox), 1);
        assert!(!mailbox.may_sleep());
        let mut taken = VecDeque::new();
        mailbox.take(1, &mut taken);
        assert_eq!((taken.len(), mailbox.has_mail(), wakes(&mailbox)), (1, true, 1));
        mailbox.take(ALL, &mut taken);
        assert_eq!((taken.len(), mailbox.has_mail()), (2, false));
        assert!(mailbox.may_sleep());
        // The receiver runs again, and has not looked.
        mailbox.take(ALL, &mut taken);
        join([sender(&mailbox, vec![3]), sender(&mailbox, vec![4])]);
        assert_eq!((wakes(&mailbox), mailbox.may_sleep()), (1, false));
    });
}

/// Says that it was dropped.
#[derive(Debug)]
struct Token(std::sync::Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// While two threads send, a receiver takes and closes: each message is taken, given back or
/// dropped, once, and none stays. Invariants 1 and 5 of `mailbox`.
#[test]
fn close_loses_and_keeps_nothing() {
    explore(|| {
        let mailbox = shared(ALL);
        let drops = std::sync::Arc::new(AtomicUsize::new(0));
        let token = || Token(drops.clone());
        let dropped = || drops.load(Ordering::Relaxed);
        let senders = [sender(&mailbox, vec![token()]), sender(&mailbox, vec![token()])];
        let mut taken = VecDeque::new();
        mailbox.take(1, &mut taken);
        assert_eq!(dropped(), 0);
        mailbox.close();
        let by_close = dropped();
        let given_back: Vec<_> = senders.into_iter().flat_map(|it| it.join().unwrap()).collect();
        assert_eq!(taken.len() + given_back.len() + by_close, 2);
        assert_eq!(dropped(), by_close);
        drop((taken, given_back));
        assert_eq!(dropped(), 2);
        assert!(mailbox.send(token()).is_err(), "it is closed");
        assert!(!mailbox.has_mail() && mailbox.may_sleep());
    });
}

/// Two threads send to a mailbox with room for one message: one of them gets its message back. Once
/// the other is taken, there is room again. Invariant 4 of `mailbox`.
#[test]
fn excess_is_given_back() {
    explore(|| {
        let mailbox = shared(1);
        let senders = [sender(&mailbox, vec![1]), sender(&mailbox, vec![2])];
        let given_back: Vec<_> = senders.into_iter().flat_map(|it| it.join().unwrap()).collect();
        let mut taken = VecDeque::new();
        mailbox.take(ALL, &mut taken);
        assert_eq!((given_back.len(), taken.len()), (1, 1));
        assert_eq!(given_back[0] + taken[0], 3);
        assert_eq!((mailbox.send(3), mailbox.send(4)), (Ok(()), Err(4)));
    });
}

/// A message that sends another when it is dropped.
#[derive(Debug)]
struct Echo(Option<Weak<Looping>>);

/// A waker that looks into the mailbox.
#[derive(Debug)]
struct Looking(Weak<Looping>);

type Looping = Mailbox<Echo, Looking>;

impl Drop for Echo {
    fn drop(&mut self) {
        if let Some(mailbox) = self.0.take().and_then(|it| it.upgrade()) {
            assert!(mailbox.send(Echo(None)).is_err(), "it is closed");
        }
    }
}

impl Wake for Looking {
    fn wake(&self) {
        let mailbox = self.0.upgrade().unwrap();
        assert!(mailbox.has_mail() && !mailbox.may_sleep());
    }
}

/// A message that is dropped and a waker may use the mailbox: no thread waits for its own lock.
/// Invariant 6 of `mailbox`.
#[test]
fn no_callback_runs_under_the_lock() {
    explore(|| {
        let mailbox: std::sync::Arc<Looping> =
            std::sync::Arc::new_cyclic(|it| Mailbox::new(Looking(it.clone()), ALL));
        let echo = || Echo(Some(std::sync::Arc::downgrade(&mailbox)));
        mailbox.send(echo()).unwrap();
        mailbox.close();
        assert!(mailbox.send(echo()).is_err());
    });
}
