//! What single decisions of the engine are worth: each compared with the other way of doing it.
//!
//! | row | larder | compared with |
//! |---|---|---|
//! | sync after a share of entries changed | applying the log | copying changed sub-tables, copying all |
//! | get, the time of each | a tick that the caller keeps | asking the system's clock |
//! | store a rendered value | `insert_with`: built where it stays | built in a buffer, then `insert` |
//! | slow gets while another thread writes | the writer at full rate | no writer |
//! | a neighbor's work | during larder's lookups | alone, during other caches' lookups |
//! | put while the mix of sizes changes, and the room then in use | short values, then long ones | both in turn |
//! | an object with two buffers for a new key, the oldest leaving | `Typed`: reset and used again | `Box::new`, in an `lru` |
//! | entries behind a map | places in one slab | pointers to their own allocations |

use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use foldhash::fast::FixedState;
use larder::{Cache, Error, Policy, Reader, Seconds, Ttl, Typed, Writer};
use larder_bench::clock::ThreadTime;
use larder_bench::contest::{Entrant, own_entrants};
use larder_bench::data::{Key, VALUE_BYTES_MAX, ValueBuffer, key, mix, number_of, scatter};
use larder_bench::engine::{Engine, NOW, VARIANTS};
use larder_bench::pair::{Way, cache_with_long_log, compare_ways};
use larder_bench::peer::{Handle, Peer, Shape};
use larder_bench::row::{Row, Unit};
use larder_bench::runner::Work;
use larder_mem::Region;

use crate::peers;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Entries.
    pub entries: usize,
    /// Operations a round.
    pub operations: usize,
    /// Rounds that count.
    pub rounds: usize,
}

type Ablation = fn(Size) -> Result<Vec<Row>, String>;

/// All of them, one after the other.
pub fn all(size: Size, mut emit: impl FnMut(Row)) -> Result<(), String> {
    let list: [Ablation; 8] = [
        log_or_copies,
        clocks,
        built_in_place,
        slow_gets,
        neighbors,
        changing_mix,
        reused_objects,
        pointers_or_slab,
    ];
    for ablation in list {
        ablation(size)?.into_iter().for_each(&mut emit);
    }
    Ok(())
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

const WORDS_A_BUCKET: usize = 8;

/// The index alone is copied, as values are shared here; the paper's tables hold the values too and would
/// copy more. Changes are uniform over the buckets. Finding out which sub-tables changed is not counted.
fn log_or_copies(size: Size) -> Result<Vec<Row>, String> {
    let entries = size.entries as u32;
    let cache = cache_with_long_log(size.entries).map_err(text)?;
    let buckets = size.entries.div_ceil(8);
    let index = Region::<u64>::new(buckets * WORDS_A_BUCKET).map_err(text)?;
    let mut rows = Vec::new();
    for per_mille in [1, 10, 100, 1000u64] {
        let changed = (size.entries as u64 * per_mille / 1000).max(1);
        let mut writer = cache.writer();
        let mut reader = cache.reader().map_err(text)?;
        let mut round = 0;
        let mut buffer = ValueBuffer::default();
        let log = move || {
            round += 1;
            reader.sync();
            for i in 0..changed {
                let number = scatter(round, i, entries);
                store(&mut writer, &mut reader, number, buffer.value(number));
            }
            let _ = writer.flush();
            let time = ThreadTime::start();
            reader.sync();
            time.elapsed_ns()
        };
        let mut ways = vec![Way::new("larder", "", log)];
        for tables in [64, 1024, 1] {
            let mut copy = Region::<u64>::new(buckets * WORDS_A_BUCKET).map_err(text)?;
            let (index, mut round) = (&index, 0);
            let run = move || {
                round += 1;
                let mut dirty = vec![false; tables];
                for i in 0..changed {
                    dirty[scatter(round, i, tables as u32) as usize] = true;
                }
                let time = ThreadTime::start();
                copy_tables(index, &mut copy, &dirty);
                time.elapsed_ns()
            };
            let name = match tables {
                1 => "full copy of the index".to_owned(),
                _ => format!("copy of changed sub-tables, of {tables}"),
            };
            ways.push(Way::new(&name, "a model: index only", run));
        }
        let work = format!("sync after {} % of {entries} entries changed", per_mille as f64 / 10.0);
        rows.extend(compare_ways(&work, Unit::Ns, size.rounds, &mut ways));
    }
    Ok(rows)
}

fn copy_tables(from: &[u64], to: &mut [u64], dirty: &[bool]) {
    let each = from.len().div_ceil(dirty.len());
    for ((from, to), _) in
        from.chunks(each).zip(to.chunks_mut(each)).zip(dirty).filter(|(_, dirty)| **dirty)
    {
        to.copy_from_slice(from);
    }
    black_box(to);
}

/// Inserts; where the log is full the reader syncs first.
fn store(writer: &mut Writer, reader: &mut Reader, number: u32, value: &[u8]) {
    while writer.insert(&key(number), value, Ttl::FOREVER, NOW).is_err() {
        reader.sync();
    }
}

fn filled(size: Size, threads: usize) -> Result<Engine, String> {
    let engine =
        Engine::new(&VARIANTS[0], &Shape { entries: size.entries, threads }).map_err(text)?;
    let mut core = engine.core().map_err(text)?;
    let mut buffer = ValueBuffer::default();
    // A little less than it holds: these are all to be hits.
    for number in 0..kept(size) {
        core.put(&key(number), buffer.value(number));
    }
    core.settle();
    drop(core);
    Ok(engine)
}

fn kept(size: Size) -> u32 {
    (size.entries as u32 / 10 * 9).max(1)
}

fn clocks(size: Size) -> Result<Vec<Row>, String> {
    let engine = filled(size, 1)?;
    let mut core = engine.handle();
    core.settle();
    let started = Instant::now();
    let wall = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Seconds(since.map_or(0, |since| since.as_secs() as u32))
    };
    let mono = || Seconds(started.elapsed().as_secs() as u32);
    let tick = black_box(NOW);
    let reader = &core.reader;
    let mut ways = [
        Way::new("larder", "", || gets(reader, size, || tick)),
        Way::new("SystemTime::now a get", "", || gets(reader, size, wall)),
        Way::new("Instant::now a get", "", || gets(reader, size, mono)),
    ];
    Ok(compare_ways("get, the time by a tick", Unit::Ns, size.rounds, &mut ways))
}

fn gets(reader: &Reader, size: Size, now: impl Fn() -> Seconds) -> f64 {
    let time = ThreadTime::start();
    let sum = (0..size.operations as u64).fold(0u64, |sum, i| {
        let entry = reader.get(&key(scatter(21, i, kept(size))), now());
        sum.wrapping_add(entry.map_or(0, |entry| number_of(&entry)))
    });
    black_box(sum);
    time.elapsed_ns() / size.operations as f64
}

/// The value is rendered from parts, as a DNS answer is: here, ten words.
const PARTS: usize = 10;

fn built_in_place(size: Size) -> Result<Vec<Row>, String> {
    const BYTES: usize = PARTS * 8;
    let build = || Engine::new(&VARIANTS[0], &Shape { entries: size.entries, threads: 1 });
    let engines = [build().map_err(text)?, build().map_err(text)?];
    let [mut in_place, mut by_buffer] = engines.each_ref().map(|engine| engine.handle());
    let part = |number: u32, at: usize| mix(u64::from(number) + at as u64).to_le_bytes();
    let run =
        |core: &mut larder_bench::engine::Core, buffer: Option<&mut Vec<u8>>, first: &mut u32| {
            let mut buffer = buffer;
            let time = ThreadTime::start();
            for number in *first..*first + size.operations as u32 {
                let key = key(number);
                loop {
                    let stored = match &mut buffer {
                        None => core.writer.insert_with(&key, BYTES, Ttl::FOREVER, NOW, |value| {
                            for at in 0..PARTS {
                                value.push(&part(number, at));
                            }
                        }),
                        Some(buffer) => {
                            buffer.clear();
                            (0..PARTS).for_each(|at| buffer.extend_from_slice(&part(number, at)));
                            core.writer.insert(&key, buffer, Ttl::FOREVER, NOW)
                        }
                    };
                    if stored.is_ok() {
                        break;
                    }
                    core.reader.sync();
                }
                if number % 1024 == 0 {
                    core.reader.sync();
                }
            }
            core.settle();
            *first += size.operations as u32;
            time.elapsed_ns() / size.operations as f64
        };
    let (mut first_a, mut first_b, mut buffer) = (0, 0, Vec::with_capacity(BYTES));
    let mut ways = [
        Way::new("larder", "", || run(&mut in_place, None, &mut first_a)),
        Way::new("insert from a buffer", "reused", || {
            run(&mut by_buffer, Some(&mut buffer), &mut first_b)
        }),
    ];
    let work = format!("store a value rendered from {PARTS} parts, insert_with");
    Ok(compare_ways(&work, Unit::Ns, size.rounds, &mut ways))
}

/// Each get is timed by itself, with the clock's own time in it; syncs, one in 1024 gets, are not.
fn slow_gets(size: Size) -> Result<Vec<Row>, String> {
    let engine = filled(size, 2)?;
    let mut rows = Vec::new();
    for (name, share) in [("p50", 0.5), ("p99.9", 0.999)] {
        let quantile = |writes: bool| {
            let stop = AtomicBool::new(!writes);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| write_until(&engine, size, &stop));
                let times = timed_gets(&engine, size);
                stop.store(true, Ordering::Relaxed);
                black_box(writer.join().is_ok());
                let at = ((times.len() - 1) as f64 * share) as usize;
                f64::from(times[at])
            })
        };
        let mut ways = [
            Way::new("larder", "", || quantile(true)),
            Way::new("no writer", "", || quantile(false)),
        ];
        let work = format!("get, {name}, while another thread puts at full rate");
        rows.extend(compare_ways(&work, Unit::Ns, size.rounds, &mut ways));
    }
    Ok(rows)
}

fn write_until(engine: &Engine, size: Size, stop: &AtomicBool) {
    let mut core = engine.handle();
    let mut buffer = ValueBuffer::default();
    let mut i = 0;
    while !stop.load(Ordering::Relaxed) {
        let number = scatter(31, i, kept(size));
        core.put(&key(number), buffer.value(number));
        i += 1;
    }
    core.settle();
}

fn timed_gets(engine: &Engine, size: Size) -> Vec<u32> {
    let mut core = engine.handle();
    let operations = (size.operations / 4).max(64);
    let mut times = Vec::with_capacity(operations);
    for i in 0..operations as u64 {
        if i % 1024 == 0 {
            core.reader.sync();
        }
        let key = key(scatter(33, i, kept(size)));
        let start = Instant::now();
        black_box(core.get(&key));
        times.push(start.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32);
    }
    times.sort_unstable();
    times
}

/// The neighbor reads a mebibyte of its own at random: what fits in its core's caches is slowed by the cache that
/// takes the shared cache or the memory's bandwidth.
fn neighbors(size: Size) -> Result<Vec<Row>, String> {
    let entrants: Vec<Entrant> = (own_entrants().into_iter().take(1))
        .chain(
            peers::entrants()
                .into_iter()
                .filter(|e| ["quick_cache", "dashmap", "moka"].contains(&e.name)),
        )
        .collect();
    let mut ways = Vec::new();
    for entrant in &entrants {
        let mut runner = entrant.build(&Shape { entries: size.entries, threads: 1 })?;
        // Once before, so that what it kept has been asked for.
        runner.run(Work::GetIndependent, 1, size.operations)?;
        ways.push(Way::new(entrant.name, "", move || {
            during(|| drop(runner.run(Work::GetIndependent, 1, size.operations)))
        }));
    }
    ways.push(Way::new("alone", "", || during(|| std::thread::sleep(Duration::from_millis(50)))));
    Ok(compare_ways(
        "a neighbor's read of its own memory, during lookups",
        Unit::Ns,
        size.rounds,
        &mut ways,
    ))
}

/// What a read takes the neighbor while `act` runs.
fn during(act: impl FnOnce()) -> f64 {
    const WORDS: u32 = 1 << 17;
    const READS: u64 = 4096;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let neighbor = scope.spawn(|| {
            let memory: Vec<u64> = (0..u64::from(WORDS)).map(mix).collect();
            let (mut sum, mut reads) = (0u64, 0u64);
            let time = ThreadTime::start();
            while reads == 0 || !stop.load(Ordering::Relaxed) {
                for i in 0..READS {
                    sum = sum.wrapping_add(memory[scatter(sum & 1, i ^ reads, WORDS) as usize]);
                }
                reads += READS;
            }
            black_box(sum);
            time.elapsed_ns() / reads as f64
        });
        act();
        stop.store(true, Ordering::Relaxed);
        neighbor.join().unwrap_or(f64::NAN)
    })
}

/// Bytes of a short value and of a long one, of a changing mix.
const MIX: [usize; 2] = [24, 600];

/// A cache that is given as many short values as long ones, until it has changed them all.
struct Mixed {
    cache: Cache,
    writer: Writer,
    entries: u32,
    next: u32,
    /// Short ones first, then long ones, and not both in turn.
    changes: bool,
}

impl Mixed {
    fn new(entries: usize, changes: bool) -> Result<Mixed, String> {
        // Room for a fifth of the long ones, or so: a phase of either kind evicts the other.
        let budget = (entries * 128) as u64 + (4 << 20);
        let cache = Cache::builder().budget(budget).readers_max(1).shards(1).policy(Policy::Fifo);
        let cache = cache.entry_bytes_mean(64).build().map_err(text)?;
        let writer = cache.writer();
        Ok(Mixed { cache, writer, entries: entries as u32, next: 0, changes })
    }

    /// Nanoseconds a put.
    fn run(&mut self) -> Result<f64, Error> {
        let value = [7; MIX[1]];
        let puts = 2 * self.entries;
        let time = ThreadTime::start();
        for i in 0..puts {
            let is_long = if self.changes { i >= self.entries } else { i % 2 == 1 };
            let value = &value[..MIX[usize::from(is_long)]];
            self.writer.insert(&key(self.next), value, Ttl::FOREVER, NOW)?;
            self.next = (self.next + 1) % (1 << 31);
        }
        self.writer.flush()?;
        Ok(time.elapsed_ns() / f64::from(puts))
    }

    /// The share of the room for entries that they take.
    fn share(&self) -> Result<f64, Error> {
        let stats = self.cache.stats()?;
        Ok(stats.charge_bytes as f64 / stats.charge_bytes_max as f64)
    }
}

fn changing_mix(size: Size) -> Result<Vec<Row>, String> {
    let changing = RefCell::new(Mixed::new(size.entries, true)?);
    let steady = RefCell::new(Mixed::new(size.entries, false)?);
    // A failure gives no figure, and the row states that.
    let put = |mixed: &RefCell<Mixed>| mixed.borrow_mut().run().unwrap_or(f64::NAN);
    let share = |mixed: &RefCell<Mixed>| mixed.borrow().share().unwrap_or(f64::NAN);
    let (before, steady_note) = ("pages move between classes", "short and long values in turn");
    let mut puts = [
        Way::new("larder", before, || put(&changing)),
        Way::new("a steady mix", steady_note, || put(&steady)),
    ];
    let mut rows = compare_ways(
        "put, short values and then long ones",
        Unit::Ns,
        size.rounds.min(6),
        &mut puts,
    );
    drop(puts);
    let mut shares = [
        Way::new("larder", before, || share(&changing)),
        Way::new("a steady mix", steady_note, || share(&steady)),
    ];
    rows.extend(compare_ways(
        "room in use after the mix of sizes changed",
        Unit::Share,
        1,
        &mut shares,
    ));
    Ok(rows)
}

/// What a connection stores: expensive to build, cheap to empty.
struct Connection {
    number: u32,
    received: Vec<u8>,
    to_send: Vec<u8>,
}

impl Connection {
    const BUFFER_BYTES: usize = 2048;

    fn new() -> Self {
        let buffer = || Vec::with_capacity(Connection::BUFFER_BYTES);
        Connection { number: 0, received: buffer(), to_send: buffer() }
    }

    fn open(&mut self, number: u32) {
        self.number = number;
        self.received.extend_from_slice(&[1; 64]);
        self.to_send.extend_from_slice(&[2; 64]);
    }

    fn clear(&mut self) {
        self.received.clear();
        self.to_send.clear();
    }
}

fn reused_objects(size: Size) -> Result<Vec<Row>, String> {
    let objects = (size.entries / 50).max(64);
    let builder = Cache::builder().budget((objects * 128) as u64 + (1 << 20)).readers_max(1);
    let builder = builder.shards(1).policy(Policy::Fifo).entry_bytes_mean(64);
    let typed = Typed::build(builder, Connection::new, Connection::clear).map_err(text)?;
    let held = typed.cache().stats().map_err(text)?.entries_max as usize;
    let mut reader = typed.reader().map_err(text)?;
    let mut boxed = lru::LruCache::new(NonZeroUsize::new(held).ok_or("a cache of no objects")?);
    let puts = size.operations.max(4 * held) as u32 / 4;
    let (mut next, mut next_boxed) = (0u32, 0u32);
    let by_typed = || {
        let time = ThreadTime::start();
        for i in 0..puts {
            let number = next;
            next = next.wrapping_add(1);
            let opened = typed.insert(&key(number), Ttl::FOREVER, NOW, |it| it.open(number));
            if opened.is_err() {
                return f64::NAN;
            }
            if i % 64 == 0 {
                reader.sync();
            }
        }
        time.elapsed_ns() / f64::from(puts)
    };
    let by_box = || {
        let time = ThreadTime::start();
        for _ in 0..puts {
            let mut connection = Box::new(Connection::new());
            connection.open(next_boxed);
            boxed.put(key(next_boxed), connection);
            next_boxed = next_boxed.wrapping_add(1);
        }
        time.elapsed_ns() / f64::from(puts)
    };
    let mut ways = [
        Way::new("larder", "Typed: in place, reset and used again", by_typed),
        Way::new("Box::new", "an lru of boxes, by one thread without a lock", by_box),
    ];
    Ok(compare_ways("an object with two buffers for a new key", Unit::Ns, size.rounds, &mut ways))
}

/// One entry of the slab: a key and a value of at most [`VALUE_BYTES_MAX`].
#[derive(Clone, Copy)]
struct Slot {
    len: u8,
    bytes: [u8; VALUE_BYTES_MAX],
}

fn pointers_or_slab(size: Size) -> Result<Vec<Row>, String> {
    let entries = size.entries as u32;
    let mut buffer = ValueBuffer::default();
    let mut slab = Vec::with_capacity(size.entries);
    let mut places: HashMap<Key, u32, FixedState> = HashMap::default();
    let mut pointers: HashMap<Key, Box<[u8]>, FixedState> = HashMap::default();
    for number in 0..entries {
        let value = buffer.value(number);
        let mut slot = Slot { len: value.len() as u8, bytes: [0; VALUE_BYTES_MAX] };
        slot.bytes[..value.len()].copy_from_slice(value);
        places.insert(key(number), slab.len() as u32);
        slab.push(slot);
        pointers.insert(key(number), value.into());
    }
    let run = |get: &dyn Fn(&Key) -> Option<u64>| {
        let time = ThreadTime::start();
        let sum = (0..size.operations as u64)
            .fold(0u64, |sum, i| sum.wrapping_add(get(&key(scatter(41, i, entries))).unwrap_or(0)));
        black_box(sum);
        time.elapsed_ns() / size.operations as f64
    };
    let by_place = |key: &Key| {
        let slot = slab.get(*places.get(key)? as usize)?;
        Some(number_of(&slot.bytes[..usize::from(slot.len)]))
    };
    let by_pointer = |key: &Key| pointers.get(key).map(|value| number_of(value));
    let mut ways = [
        Way::new("larder", "std map to places in a slab", || run(&by_place)),
        Way::new("map of pointers", "std map of Box<[u8]>", || run(&by_pointer)),
    ];
    Ok(compare_ways("get behind a map: indexed slab", Unit::Ns, size.rounds, &mut ways))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every ablation runs tiny and gives figures for all its ways.
    #[test]
    fn ablations_run() {
        let mut rows = Vec::new();
        all(Size { entries: 4000, operations: 2000, rounds: 1 }, |row| rows.push(row)).unwrap();
        assert_eq!(rows.len(), 4 * 3 + 2 + 1 + 2 + 4 + 2 + 1 + 1);
        for row in rows {
            let peer = row.peer.as_ref().map_or(f64::NAN, |peer| peer.figure.value);
            assert!(row.larder.value.is_finite() && peer.is_finite(), "{}", row.to_json());
        }
    }
}
