//! Every call of the public interface, by threads at once, for as long as `LARDER_SOAK_S` says (`.ci/long soak`: an
//! hour under ThreadSanitizer); a moment otherwise.
//!
//! A value states the number of its key, so that one of another key, of a torn copy or of an object that was reused too
//! early is noticed. At the end each cache is validated.

#![allow(clippy::disallowed_methods, reason = "the time that a soak takes is that of the machine")]

mod objects;

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use larder::flight::{Begin, Flight};
use larder::{
    Builder, Cache, Change, Clock, Error, Expiry, IndexMode, Loaded, Map, Policy, Reader,
    SaveError, Seconds, SyncMode, Ticks, Ttl, Typed, Writer,
};

const KEYS: u64 = 6_000;
const THREADS: u64 = 4;

/// Calls `work` in each thread, with its number and whether it goes on: for this part of the time.
fn soak(part: f64, work: impl Fn(u64, &dyn Fn() -> bool) + Sync) {
    let seconds = std::env::var("LARDER_SOAK_S").map_or(0.3, |text| text.parse().expect("seconds"));
    let end = Instant::now() + Duration::from_secs_f64(seconds * part);
    let goes_on = || Instant::now() < end;
    thread::scope(|scope| {
        let spawn = |number| {
            let (work, goes_on) = (&work, &goes_on);
            scope.spawn(move || work(number, goes_on))
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        // The end of a scope waits by the library's own atomics, which ThreadSanitizer does not see: to it, what the
        // threads read of this stack races with what comes there next. It sees a join.
        threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    });
}

/// xorshift64*, so that each thread has a sequence of its own.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 33) % end
    }

    fn key(&mut self) -> u64 {
        self.below(KEYS)
    }
}

fn key(number: u64) -> Vec<u8> {
    // Some are longer than the engine takes.
    let len = if number.is_multiple_of(50) { 300 } else { 8 };
    let mut key = number.to_le_bytes().to_vec();
    key.resize(len, b'k');
    key
}

fn value(number: u64, random: &mut Random) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + random.below(600) as usize, number as u8);
    value
}

#[track_caller]
fn check(number: u64, value: &[u8]) {
    let (stated, rest) = value.split_first_chunk::<8>().expect("a value states its key");
    assert_eq!(u64::from_le_bytes(*stated), number);
    assert!(rest.iter().all(|byte| *byte == number as u8), "a value is torn");
}

#[track_caller]
fn check_pair(key: &[u8], value: &[u8]) {
    check(u64::from_le_bytes(*key.first_chunk().expect("a key has its number")), value);
}

/// Refusals that other threads' work may cause.
#[track_caller]
fn may_wait<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(Error::Stalled { .. } | Error::Starved | Error::ListenerInserts) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The same for what was just saved: a reader may be held up for longer than a load waits.
#[track_caller]
fn may_wait_to_load(result: Result<Loaded, SaveError>) {
    match result {
        Ok(_) | Err(SaveError::Cache(Error::Stalled { .. } | Error::Starved)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Waits for a future without a runtime, whose waits a sanitizer may not see.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            // Its load may be taken over after 30 s without a call to the waker.
            Poll::Pending => thread::park_timeout(Duration::from_millis(50)),
        }
    }
}

type Bytes = Map<[u8], Cow<'static, [u8]>>;

fn map_with(builder: Builder, clock: Clock) -> (Bytes, Arc<AtomicU64>) {
    let heard = Arc::new(AtomicU64::new(0));
    let listener = {
        let heard = Arc::clone(&heard);
        move |evicted: larder::Evicted<'_>| {
            let (key, value) =
                Bytes::decode(evicted.key, evicted.value).expect("an entry of this map");
            check_pair(&key, &value);
            heard.fetch_add(1, Ordering::Relaxed);
        }
    };
    (Map::build(builder.on_removed(listener), clock).expect("sound settings"), heard)
}

fn expiry(random: &mut Random) -> Expiry {
    match random.below(5) {
        0 => Expiry::NEVER,
        1 => Ttl::seconds(2).into(),
        2 => Expiry::after(Duration::from_millis(random.below(3_000))),
        3 => Expiry::idle(Duration::from_secs(3)),
        _ => Expiry::idle(Duration::from_secs(2)).and(Ttl::seconds(900)),
    }
}

/// One call of a map.
fn map_step(map: &Bytes, clock: &Clock, random: &mut Random) {
    match random.below(40) {
        0..=11 => map_write(map, random),
        12..=21 => map_read(map, random),
        22..=28 => map_load(map, random),
        29..=31 => map_many(map, random),
        _ => map_walk(map, clock, random),
    }
}

fn map_write(map: &Bytes, random: &mut Random) {
    let number = random.key();
    let (key, ttl) = (key(number), expiry(random));
    let key = &key[..];
    let new = |random: &mut Random| Cow::Owned(value(number, random));
    let old = match random.below(10) {
        0..=2 => may_wait(map.insert(key, new(random))).and(None),
        3..=4 => may_wait(map.insert_ttl(key, new(random), ttl)).and(None),
        5 => may_wait(map.remove(key)).and(None),
        6 => may_wait(map.take(key)).flatten(),
        7 => may_wait(map.replace(key, new(random))).flatten(),
        8 => may_wait(map.touch(key, ttl)).and(None),
        _ => may_wait(map.compute(key, |there| {
            there.iter().for_each(|value| check(number, value));
            match random.below(4) {
                0 => Change::Keep,
                1 => Change::Insert(new(random), ttl),
                2 => Change::Update(new(random)),
                _ => Change::Remove,
            }
        }))
        .flatten(),
    };
    old.iter().for_each(|value| check(number, value));
}

fn map_read(map: &Bytes, random: &mut Random) {
    let number = random.key();
    let key = key(number);
    let key = &key[..];
    match random.below(5) {
        0..=1 => map.get(key).iter().for_each(|value| check(number, value)),
        2 => drop(map.contains(key)),
        3 => {
            let there = may_wait(map.get_with_expiry(key)).flatten();
            there.iter().for_each(|(value, _)| check(number, value));
        }
        _ => drop(map.with(key, |bytes| {
            check(number, bytes);
            // Within a read, too.
            may_wait(map.insert(key, Cow::Owned(bytes.to_vec())))
        })),
    }
}

fn map_load(map: &Bytes, random: &mut Random) {
    let number = random.key();
    let (key, ttl) = (key(number), expiry(random));
    let key = &key[..];
    let call = random.below(8);
    let made = value(number, random);
    let new = || Cow::Owned(made.clone());
    // One load of seven fails.
    let may_fail = || if number.is_multiple_of(7) { Err(number) } else { Ok(new()) };
    let loaded = match call {
        0 => Ok(map.get_or_insert_with(key, new)),
        1 => Ok(map.get_or_insert_ttl_with(key, || (new(), ttl))),
        2 => Ok(block_on(map.get_or_insert_async(key, async { new() }))),
        3 => map.try_get_or_insert_with(key, may_fail),
        4 => map.try_get_or_insert_ttl_with(key, || Ok((may_fail()?, ttl))),
        5 => Ok(block_on(map.get_or_insert_ttl_async(key, async { (new(), ttl) }))),
        6 => block_on(map.try_get_or_insert_ttl_async(key, async { Ok((may_fail()?, ttl)) })),
        _ => block_on(map.try_get_or_insert_async(key, async { may_fail() })),
    };
    match loaded {
        Ok(value) => check(number, &value),
        Err(error) => assert_eq!(*error, number),
    }
}

fn map_many(map: &Bytes, random: &mut Random) {
    let numbers: Vec<u64> = (0..random.below(100)).map(|_| random.key()).collect();
    let keys: Vec<Vec<u8>> = numbers.iter().map(|number| key(*number)).collect();
    match random.below(3) {
        0 => map.get_many(&keys, |at, value| {
            value.iter().for_each(|value| check(numbers[at], value));
        }),
        1 => map.with_many(&keys, |at, value| {
            value.iter().for_each(|value| check(numbers[at], value));
        }),
        _ => {
            let values = numbers.iter().map(|number| Cow::Owned(value(*number, random)));
            let entries: Vec<_> = keys.into_iter().zip(values).collect();
            may_wait(map.insert_many(entries, expiry(random)));
        }
    }
}

/// Calls that take long, and so come seldom.
fn map_walk(map: &Bytes, clock: &Clock, random: &mut Random) {
    match random.below(400) {
        0..=3 => map.iter().take(300).for_each(|(key, value)| check_pair(&key, &value)),
        4 => drop(may_wait(map.retain(|key, value| {
            check_pair(key, value);
            random.below(20) > 0
        }))),
        5 if random.below(10) == 0 => drop(may_wait(map.clear())),
        6 => {
            let mut saved = Vec::new();
            map.cache().save_to(&mut saved, map.now()).expect("memory takes it");
            may_wait_to_load(map.load_from(&mut &saved[..]));
        }
        7 => {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("saved");
            map.save(&path).expect("room");
            may_wait_to_load(map.load(&path));
            let builder = Map::<[u8], Cow<'static, [u8]>>::builder().budget(1 << 20);
            let (other, _) =
                Bytes::build_from(builder, clock.clone(), &path).expect("what was just saved");
            other.iter().for_each(|(key, value)| check_pair(&key, &value));
        }
        8..=20 => drop((may_wait(map.stats()), may_wait(map.len()), may_wait(map.is_empty()))),
        21..=25 => drop(clock.set(Seconds(clock.now().0 + 1))),
        26..=30 => drop(clock.advance(Duration::from_millis(random.below(900)))),
        _ => {}
    }
}

/// Both kinds of index; and a map with the system's time and the default settings.
#[test]
fn maps() {
    let clock = Clock::manual(Seconds(1));
    let builder = || Bytes::builder().budget(1 << 20).readers_max(3);
    let shared = map_with(builder(), clock.clone());
    let replicated = map_with(builder().index_mode(IndexMode::Replicated).shards(2), clock.clone());
    let of_system = Bytes::new(2 << 20).expect("room");
    soak(1.0, |number, goes_on| {
        let mut random = Random(number + 1);
        while goes_on() {
            for _ in 0..10 {
                map_step(&shared.0, &clock, &mut random);
                map_step(&replicated.0, &clock, &mut random);
                map_step(&of_system, &Clock::system(), &mut random);
            }
        }
    });
    for (map, heard) in [&shared, &replicated] {
        map.cache().validate().expect("sound");
        assert!(heard.load(Ordering::Relaxed) > 0);
    }
    of_system.cache().validate().expect("sound");
}

/// What the threads of [`caches`] share.
struct Engine {
    cache: Cache,
    flight: Flight<u64>,
    now: AtomicU64,
}

impl Engine {
    fn now(&self) -> Seconds {
        Seconds(self.now.load(Ordering::Relaxed) as u32)
    }
}

fn write_step(engine: &Engine, writer: &mut Writer, random: &mut Random) {
    let (number, now) = (random.below(30_000) | 1, engine.now());
    let (key, ttl) = (key(number), Ttl::seconds(1 + random.below(5) as u32));
    let new = value(number, random);
    let hash = engine.cache.hash(&key);
    may_wait(match random.below(8) {
        0 => writer.insert(&key, &new, ttl, now),
        1 => writer.insert_hashed(hash, &key, &new, ttl, now),
        2 => writer.insert_if_absent(&key, &new, ttl, now),
        3 => writer.insert_if_newer(&key, &new, random.below(1 << 20), ttl, now),
        4 => writer.insert_with(&key, new.len(), ttl, now, |build| {
            assert!(build.is_empty() && build.push(&new[..8]));
            let rest = build.spare(new.len() - 8).expect("there is room");
            rest.copy_from_slice(&new[8..]);
            assert_eq!(build.len(), new.len());
        }),
        5 => writer.touch(&key, ttl, now),
        6 => writer.remove(&key),
        _ => Ok(()),
    });
    if writer.pending() > random.below(20) as usize {
        may_wait(writer.flush());
    }
}

fn read_step(engine: &Engine, reader: &mut Reader, random: &mut Random) {
    let (number, now) = (random.below(30_000) | 1, engine.now());
    let key = key(number);
    let hash = reader.hash(&key);
    let see = |entry: Option<larder::Entry<'_>>| {
        if let Some(entry) = entry {
            check(number, entry.value());
            assert_eq!(entry.key(), key);
            let _ =
                (entry.version(), entry.expires(), entry.is_stale(now), entry.seconds_left(now));
        }
    };
    match random.below(9) {
        0 => see(reader.get(&key, now)),
        1 => {
            reader.prefetch(hash);
            reader.prefetch_entry(hash);
            see(reader.get_hashed(hash, &key, now));
        }
        2 => see(reader.get_stale(&key, now)),
        3 => see(reader.get_stale_hashed(hash, &key, now)),
        4 => {
            let mut room = Vec::new();
            if reader.get_into(&key, now, &mut room) {
                check(number, &room);
            }
        }
        5 => {
            let keys = [&key; 3];
            reader.get_many(&keys, now, |_, entry| see(entry));
            reader.get_many_hashed(&[hash; 3], &keys, now, |_, entry| see(entry));
            reader.get_many_stale_hashed(&[hash; 3], &keys, now, |_, entry| see(entry));
        }
        6 => {
            let Some(lease) = reader.get(&key, now).and_then(|entry| reader.lease(&entry)) else {
                return;
            };
            reader.sync();
            let _ = (lease.expires(), lease.is_copy());
            assert_eq!(lease.key(), key);
            check(number, lease.value());
        }
        7 => {
            let now = Ticks::us(random.next());
            let _ = (reader.sync(), reader.sync_if_due(now), reader.is_behind());
        }
        _ => {
            let position = engine.cache.position().expect("no lock is poisoned");
            reader.refresh_to(position);
            reader.refresh();
            let _ = (reader.sync_to(position), reader.position().records());
            let _ = (reader.hits(), reader.misses(), reader.number());
        }
    }
}

fn engine_step(engine: &Engine, random: &mut Random) {
    match random.below(3_000) {
        0 => drop(engine.now.fetch_add(1, Ordering::Relaxed)),
        1 => {
            let mut entries = engine.cache.iter(engine.now());
            entries.by_ref().take(200).for_each(|entry| check_pair(entry.key(), entry.value()));
            entries.was_whole().expect("no lock is poisoned");
        }
        2 => {
            let mut saved = Vec::new();
            engine.cache.save_to(&mut saved, engine.now()).expect("memory takes it");
            may_wait_to_load(engine.cache.load_from(&mut &saved[..], engine.now()));
        }
        3..=20 => {
            let stats = engine.cache.stats().expect("no lock is poisoned");
            assert!(stats.charge_bytes <= stats.charge_bytes_max);
            let _ = (
                engine.cache.shards(),
                engine.cache.readers_max(),
                engine.cache.value_bytes_max(8),
            );
        }
        21..=220 => flight_step(engine, random),
        _ => {}
    }
}

fn flight_step(engine: &Engine, random: &mut Random) {
    let number = random.below(20);
    match engine.flight.begin(&key(number), engine.now(), 5) {
        Begin::Lead(token) => {
            assert_eq!(token.key(), key(number));
            token.land(number, |value| assert_eq!(*value, number));
        }
        Begin::Wait(mut waiter) => {
            let _ = waiter.is_led_here();
            if let Poll::Ready(Some(value)) = waiter.wait_for(Duration::from_millis(1)) {
                assert_eq!(value, number);
            }
        }
        Begin::Full => {}
    }
    match random.below(50) {
        0 => engine.flight.supersede_all(),
        1 => engine.flight.supersede(&key(number)),
        _ => drop((engine.flight.len(), engine.flight.is_empty())),
    }
}

/// Readers and writers of their own, under both policies and both indexes.
#[test]
fn caches() {
    for (policy, mode) in
        [(Policy::Partitioned, IndexMode::Replicated), (Policy::Fifo, IndexMode::Shared)]
    {
        let heard = Arc::new(AtomicU64::new(0));
        let evicted = Arc::clone(&heard);
        let builder =
            Cache::builder().budget(4 << 20).readers_max(THREADS as usize + 1).shards(2).seed(7);
        let builder =
            builder.policy(policy).index_mode(mode).stale(Seconds(2)).lease_bytes_max(64 << 10);
        let builder = builder
            .entry_bytes_mean(300)
            .feedback(true)
            .lag_operations(1 << 12)
            .sync(SyncMode::Periodic(Ticks::us(50)));
        let builder = builder.readers_counted(1).on_evicted(move |entry| {
            check_pair(entry.key, entry.value);
            evicted.fetch_add(1, Ordering::Relaxed);
        });
        let cache = builder.build().expect("sound settings");
        let engine = Engine { cache, flight: Flight::new(8), now: AtomicU64::new(1) };
        soak(0.5, |number, goes_on| {
            let mut random = Random(number + 1);
            let mut reader = engine.cache.reader().expect("one a thread");
            let mut writer = engine.cache.writer();
            while goes_on() {
                for _ in 0..100 {
                    read_step(&engine, &mut reader, &mut random);
                    write_step(&engine, &mut writer, &mut random);
                    engine_step(&engine, &mut random);
                    reader.sync();
                }
                // A parked reader holds nothing up.
                reader = reader.park().unpark().expect("no lock is poisoned");
            }
            drop(reader);
            may_wait(writer.flush());
        });
        engine.cache.validate().expect("sound");
        let reader = engine.cache.reader().expect("the others are gone");
        reader.validate().expect("sound");
        assert!(heard.load(Ordering::Relaxed) > 0);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("saved");
        engine.cache.save(&path, engine.now()).expect("room");
        let (other, _) = Cache::builder()
            .budget(4 << 20)
            .random_seed()
            .load(&path, engine.now())
            .expect("just saved");
        other.validate().expect("sound");
    }
}

/// Objects are read only as they were filled for their key.
#[test]
fn objects() {
    let builder =
        Cache::builder().budget(256 << 10).readers_max(THREADS as usize).entry_bytes_mean(32);
    let typed = Typed::build(builder, Vec::new, |object: &mut Vec<u8>| object.clear())
        .expect("sound settings");
    soak(1.0, |number, goes_on| {
        let mut random = Random(number + 1);
        let mut reader = typed.reader().expect("one a thread");
        let mut now = Seconds(1);
        while goes_on() {
            for _ in 0..10 {
                let number = random.below(8_000) | 1;
                let (key, new) = (number.to_le_bytes(), value(number, &mut random));
                match random.below(40) {
                    0..=9 => {
                        let fill = |object: &mut Vec<u8>| object.extend_from_slice(&new);
                        if let Some(id) = may_wait(typed.insert(&key, Ttl::seconds(3), now, fill)) {
                            // Another thread may have replaced it, but not by another key's.
                            reader
                                .by_id(id)
                                .iter()
                                .for_each(|object| assert!(object.len() >= 8 || object.is_empty()));
                        }
                    }
                    10..=33 => {
                        reader.get(&key, now).iter().for_each(|object| check(number, object))
                    }
                    34 => drop(may_wait(typed.remove(&key, now))),
                    35 => reader.refresh(),
                    36 => assert!(
                        typed.objects_max() > 0 && reader.reader().number() < THREADS as usize
                    ),
                    37 if random.below(500) == 0 => drop(may_wait(typed.reset_all(now))),
                    _ => now = Seconds(now.0 + u32::from(random.below(100) == 0)),
                }
                reader.sync();
            }
        }
    });
    typed.cache().validate().expect("sound");
}

/// A call that the public interface has and no test here uses is named.
#[test]
fn every_call_is_used() {
    let interface = include_str!("../../public-api.txt");
    let here = concat!(include_str!("main.rs"), include_str!("objects.rs"));
    // Made by others: a policy is chosen by its name, values of serde have tests of their own.
    let elsewhere = ["Encoded:", "policy::"];
    let mut unused = Vec::new();
    for line in interface.lines().filter_map(|line| line.strip_prefix("larder::")) {
        let Some((kind, call)) = line.split_once(": pub ") else { continue };
        let Some(call) = call.strip_prefix("async ").unwrap_or(call).strip_prefix("fn ") else {
            continue;
        };
        let name = call.split(['(', '<']).next().unwrap_or_default();
        let is_used = [".", "::"].iter().any(|before| here.contains(&format!("{before}{name}(")));
        if !is_used && !elsewhere.iter().any(|other| format!("{kind}:").starts_with(other)) {
            unused.push(format!("{kind}::{name}"));
        }
    }
    assert_eq!(unused, [""; 0]);
}
