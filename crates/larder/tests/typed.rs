//! Objects in a cache: each is built once, reset before it is reused, dropped exactly once,
//! whatever the hooks do, and read only as its key's insert made it.

#[path = "common/cases.rs"]
mod cases;
mod common;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use larder::{Builder, Cache, Error, Policy, Seconds, Ttl, Typed};
use proptest::prelude::*;

const NOW: Seconds = Seconds(1);

fn builder(readers: usize) -> Builder {
    Cache::builder().budget(128 << 10).readers_max(readers).entry_bytes_mean(32)
}

/// How many objects were made, reset and dropped.
#[derive(Default)]
struct Counts {
    made: AtomicUsize,
    reset: AtomicUsize,
    dropped: AtomicUsize,
}

impl Counts {
    fn get(&self) -> (usize, usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (of(&self.made), of(&self.reset), of(&self.dropped))
    }
}

/// An object that counts, and that detects use without a reset.
struct Counted {
    counts: Arc<Counts>,
    text: String,
    is_dropped: bool,
}

impl Counted {
    fn fill(&mut self, text: &str) {
        assert!(self.text.is_empty(), "an object is reset before it is filled again");
        self.text.push_str(text);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(!self.is_dropped, "an object is dropped once");
        self.is_dropped = true;
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn counted(readers: usize) -> (Typed<Counted>, Arc<Counts>) {
    counted_under(Policy::default(), readers)
}

fn counted_under(policy: Policy, readers: usize) -> (Typed<Counted>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let (making, resetting) = (counts.clone(), counts.clone());
    let make = move || {
        making.made.fetch_add(1, Ordering::Relaxed);
        Counted { counts: making.clone(), text: String::new(), is_dropped: false }
    };
    let reset = move |object: &mut Counted| {
        resetting.reset.fetch_add(1, Ordering::Relaxed);
        object.text.clear();
    };
    (Typed::build(builder(readers).policy(policy), make, reset).unwrap(), counts)
}

/// Under churn of ten times as many keys as fit, at most one object per cell is made, and all
/// others are reused; at the end each was dropped exactly once. Under every policy.
#[test]
fn objects_are_used_again_and_dropped_once() {
    for policy in common::POLICIES {
        churn_under(policy);
    }
}

fn churn_under(policy: Policy) {
    let (typed, counts) = counted_under(policy, 1);
    let mut reader = typed.reader().unwrap();
    let inserts = 10 * typed.objects_max();
    for number in 0..inserts {
        let key = number.to_le_bytes();
        typed.insert(&key, Ttl::FOREVER, NOW, |object| object.fill(&number.to_string())).unwrap();
        reader.sync();
        assert_eq!(reader.get(&key, NOW).unwrap().text, number.to_string());
    }
    let (made, reset, dropped) = counts.get();
    assert!(made <= typed.objects_max() && made + reset >= inserts, "{made} made, {reset} reset");
    assert_eq!(dropped, 0);
    typed.cache().validate().unwrap();
    drop(reader);
    drop(typed);
    assert_eq!(counts.get().2, made, "dropped once each");
}

proptest! {
    #![proptest_config(cases::cases(40))]

    /// Against a `HashMap`, with keys that all fit: after every step a reader reads what the last
    /// insert of each key made, or nothing once it was removed or has expired, also by id.
    /// Invariant 1 of `typed`.
    #[test]
    fn agrees_with_an_obvious_map(
        steps in prop::collection::vec((0u8..6, 0u8..30, prop::option::of(1u32..4)), 0..200),
    ) {
        let (typed, counts) = counted(2);
        let (mut reader, _slow) = (typed.reader().unwrap(), typed.reader().unwrap());
        let mut model = HashMap::new();
        let mut now = NOW;
        for (step, (kind, key, ttl)) in steps.into_iter().enumerate() {
            match kind {
                0 => {
                    typed.remove(&[key], now).unwrap();
                    model.remove(&key);
                }
                1 => now.0 += 1,
                2 => {
                    typed.reset_all(now).unwrap();
                }
                _ => {
                    let text = step.to_string();
                    let life = ttl.map_or(Ttl::FOREVER, Ttl::seconds);
                    let id = typed.insert(&[key], life, now, |object| object.fill(&text)).unwrap();
                    model.insert(key, (text, ttl.map_or(u32::MAX, |ttl| now.0 + ttl), id));
                }
            }
            if step % 3 == 0 {
                reader.sync();
            } else {
                reader.refresh();
            }
            model.retain(|_, (_, end, _)| *end > now.0);
            for key in 0..30 {
                let object = reader.get(&[key], now).map(|object| object.text.as_str());
                let there = model.get(&key);
                prop_assert_eq!(object, there.map(|(text, ..)| text.as_str()));
                if let Some((text, _, id)) = there {
                    prop_assert_eq!(&reader.by_id(*id).unwrap().text, text);
                }
            }
        }
        drop((reader, _slow, typed));
        let (made, _, dropped) = counts.get();
        prop_assert_eq!(made, dropped);
    }
}

/// A panic in any hook reaches the insert that ran it, and costs no cell: afterwards all inserts
/// succeed again, as many objects as before can live, and every object made is dropped exactly
/// once. The second half of invariant 2 of `typed`.
#[test]
fn panics_leak_and_poison_nothing() {
    let counts = Arc::new(Counts::default());
    let fails = Arc::new([const { AtomicBool::new(false) }; 2]);
    let (making, make_fails) = (counts.clone(), fails.clone());
    let reset_fails = fails.clone();
    let typed = Typed::build(
        builder(1),
        move || {
            assert!(!make_fails[0].swap(false, Ordering::Relaxed), "make fails");
            making.made.fetch_add(1, Ordering::Relaxed);
            Counted { counts: making.clone(), text: String::new(), is_dropped: false }
        },
        move |object: &mut Counted| {
            assert!(!reset_fails[1].swap(false, Ordering::Relaxed), "reset fails");
            object.text.clear();
        },
    )
    .unwrap();
    let mut reader = typed.reader().unwrap();
    let mut insert = |number: usize, is_failing: bool| {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            typed.insert(&number.to_le_bytes(), Ttl::FOREVER, NOW, |object| {
                object.fill("x");
                assert!(!is_failing, "fill fails");
            })
        }));
        reader.sync();
        match outcome {
            Err(_) => false,
            Ok(inserted) => {
                inserted.unwrap();
                reader.get(&number.to_le_bytes(), NOW).unwrap();
                true
            }
        }
    };
    let (mut panics, total) = (0, 6 * typed.objects_max());
    for number in 0..total {
        match number % 97 {
            0 => fails[0].store(true, Ordering::Relaxed),
            50 => fails[1].store(true, Ordering::Relaxed),
            _ => {}
        }
        panics += usize::from(!insert(number, number % 89 == 7));
    }
    fails.iter().for_each(|fails| fails.store(false, Ordering::Relaxed));
    assert!(panics > total / 97, "{panics} panics");
    assert!((0..total).all(|number| insert(number, false)), "nothing is poisoned");
    typed.cache().validate().unwrap();
    let (made, _, dropped) = counts.get();
    assert!(made - dropped <= typed.objects_max());
    drop(reader);
    drop(typed);
    let (made, _, dropped) = counts.get();
    assert_eq!(made, dropped, "dropped once each");
}

/// `fill` inserts, removes and sweeps in the very cache that runs it: a lock held meanwhile would
/// deadlock (invariant 2 of `typed`).
#[test]
fn fill_runs_under_no_lock() {
    let (typed, _) = counted(1);
    let mut reader = typed.reader().unwrap();
    typed
        .insert(b"outer", Ttl::FOREVER, NOW, |object| {
            typed.insert(b"inner", Ttl::FOREVER, NOW, |object| object.fill("inner")).unwrap();
            typed.remove(b"outer", NOW).unwrap();
            typed.reset_all(NOW).unwrap();
            object.fill("outer");
        })
        .unwrap();
    reader.sync();
    for key in ["inner", "outer"] {
        assert_eq!(reader.get(key.as_bytes(), NOW).unwrap().text, key);
    }
}

/// A reader that holds an object and never syncs reads it unchanged forever. Inserts succeed until
/// no cell is clean, then fail and name the reader, without having run the hook; when it syncs, the
/// next insert succeeds.
#[test]
fn a_reader_that_never_syncs() {
    let (typed, _) = counted(1);
    typed.insert(b"held", Ttl::FOREVER, NOW, |object| object.fill("first")).unwrap();
    let mut reader = typed.reader().unwrap();
    let held = reader.get(b"held", NOW).unwrap();
    let refused = (0..100 * typed.objects_max()).find_map(|number| {
        let mut is_filled = false;
        let key = number.to_le_bytes();
        let inserted = typed.insert(&key, Ttl::FOREVER, NOW, |object| {
            is_filled = true;
            object.fill("next");
        });
        inserted.err().map(|error| (error, is_filled))
    });
    assert!(matches!(refused, Some((Error::Stalled { reader: 0, .. }, _))), "{refused:?}");
    assert_eq!(held.text, "first");
    reader.sync();
    typed.insert(b"new", Ttl::FOREVER, NOW, |object| object.fill("new")).unwrap();
}

/// Two readers check every object they see against its key while two writers replace and remove them: no
/// reader ever sees an object in parts, or another key's. Invariant 1 of `typed`.
#[test]
fn readers_and_writers_together() {
    let (typed, counts) = counted(2);
    let is_done = AtomicBool::new(false);
    let seen: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2usize)
            .map(|writer| {
                let typed = &typed;
                scope.spawn(move || {
                    for step in 0..4_000usize {
                        let key = (step * 7 + writer) % 60;
                        let fill = |object: &mut Counted| object.fill(&format!("{key}:{key}"));
                        let outcome = match step % 11 {
                            0 => typed.remove(&[key as u8], NOW),
                            _ => typed.insert(&[key as u8], Ttl::FOREVER, NOW, fill).map(|_| ()),
                        };
                        match outcome {
                            Ok(()) => {}
                            // A reader that was preempted.
                            Err(Error::Stalled { .. } | Error::Starved) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let mut reader = typed.reader().unwrap();
                let is_done = &is_done;
                scope.spawn(move || {
                    let mut seen = 0;
                    // At least one round sees all that was written, however late it begins.
                    let mut last = false;
                    while !last {
                        last = is_done.load(Ordering::Acquire);
                        reader.sync();
                        for key in 0..60u8 {
                            if let Some(object) = reader.get(&[key], NOW) {
                                assert_eq!(object.text, format!("{key}:{key}"));
                                seen += 1;
                            }
                        }
                    }
                    seen
                })
            })
            .collect();
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        // First of all, so that a writer's panic ends the test instead of leaving the readers
        // running.
        is_done.store(true, Ordering::Release);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert!(seen > 0);
    typed.cache().validate().unwrap();
    drop(typed);
    let (made, _, dropped) = counts.get();
    assert_eq!(made, dropped);
}

/// A listener may insert into, remove from and read the very cache of objects that calls it. It
/// runs after the evicting write is done, outside its lock, so no object is lost if it panics.
#[test]
fn a_listener_may_use_the_objects() {
    static CACHE: OnceLock<Typed<Counted>> = OnceLock::new();
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let counts = Arc::new(Counts::default());
    let making = counts.clone();
    let make = move || {
        making.made.fetch_add(1, Ordering::Relaxed);
        Counted { counts: making.clone(), text: String::new(), is_dropped: false }
    };
    let listener = |evicted: larder::Evicted<'_>| {
        let cache = CACHE.get().unwrap();
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        cache.remove(evicted.key, NOW).unwrap();
        match cache.insert(b"last", Ttl::FOREVER, NOW, |object| object.fill("again")) {
            Ok(_) | Err(Error::ListenerInserts) => {}
            Err(error) => panic!("{error}"),
        }
        let reading = std::thread::spawn(|| CACHE.get().unwrap().remove(b"nothing", NOW));
        reading.join().unwrap().unwrap();
        if call % 10 == 9 {
            std::panic::resume_unwind(Box::new(()));
        }
    };
    let cache = CACHE.get_or_init(|| {
        let builder = builder(1).on_evicted(listener);
        Typed::build(builder, make, |object: &mut Counted| object.text.clear()).unwrap()
    });
    let mut panics = 0;
    let total = 2 * cache.objects_max();
    for number in 0..total as u64 {
        let insert = || cache.insert(&number.to_be_bytes(), Ttl::FOREVER, NOW, |o| o.fill("it"));
        match catch_unwind(AssertUnwindSafe(insert)) {
            Ok(inserted) => drop(inserted.unwrap()),
            Err(_) => panics += 1,
        }
    }
    assert!(panics > 0 && CALLS.load(Ordering::Relaxed) > total / 4);
    // Every object whose key is gone is found, and every cell can be used again.
    cache.reset_all(NOW).unwrap();
    cache.cache().validate().unwrap();
    let entries = cache.cache().stats().unwrap().entries as usize;
    let (made, _, dropped) = counts.get();
    assert!(made <= cache.objects_max() && dropped == 0);
    let keys: Vec<_> = cache.cache().iter(NOW).map(|entry| entry.key().to_vec()).collect();
    assert_eq!(keys.len(), entries);
    let reader = cache.reader().unwrap();
    assert!(keys.iter().all(|key| reader.get(key, NOW).is_some()), "each key has its object");
    drop(reader);
    for key in keys {
        cache.remove(&key, NOW).unwrap();
    }
    cache.reset_all(NOW).unwrap();
    let mut refilled = 0;
    while refilled < entries {
        let insert = || {
            let key = (refilled as u64 + (1 << 32)).to_be_bytes();
            cache.insert(&key, Ttl::FOREVER, NOW, |object| object.fill("new"))
        };
        if let Ok(inserted) = catch_unwind(AssertUnwindSafe(insert)) {
            inserted.unwrap();
        }
        refilled += 1;
    }
    assert!(counts.made.load(Ordering::Relaxed) <= cache.objects_max(), "no cell was lost");
}

/// An object that the stack can't hold is refused, and the error states what to do instead.
#[test]
fn large_objects_are_refused() {
    let refused = Typed::build(builder(1), || [0u8; 1 << 20], |_| ());
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("65536 bytes") && error.contains("Box"), "{error}");
    let boxed = Typed::build(builder(1), || vec![0u8; 1 << 20], |_| ()).unwrap();
    boxed.insert(b"a", Ttl::FOREVER, NOW, |bytes| bytes[99] = 1).unwrap();
}
