//! A day of traffic under all rules of deletion at once: budget, age, space that stays free, pins.

mod common;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, SystemTime};

use common::world::*;
use common::*;
use larder_io::disk::Space;
use larder_mem::object::{Lease, Notice, Post};
use larder_store::{Disk, Files, FindOptions, Options, PinOptions, Query, Reserve, Store};
use larder_testkit::wait::until_so_or;

const HOUR: Duration = Duration::from_secs(3600);
const AGE: Duration = Duration::from_secs(3 * 3600);
const TOTAL_BYTES: u64 = 2 << 20;
const FREE_BYTES: u64 = 768 << 10;
const BUDGET_BYTES: u64 = 288 << 10;
const PINS_BYTES: u64 = 96 << 10;
const SEGMENT_BYTES: u64 = 4 << 10;
/// Space that the store keeps free for a write, an index, and a copy of pinned packets.
const ROOM_BYTES: u64 = 3 * (64 << 10) + 4 * SEGMENT_BYTES;

struct Silence;

impl Post for Silence {
    fn post(&self, _: Notice) {}
}

/// A small disk with a clock of its own; other programs use a part of it.
struct Simulated {
    files: Files,
    folder: PathBuf,
    world: Arc<Outside>,
}

/// The clock, and the bytes of other programs.
#[derive(Default)]
struct Outside {
    now_ns: AtomicI64,
    others_bytes: AtomicU64,
}

impl Outside {
    fn free_bytes(&self, folder: &Path) -> u64 {
        let used = bytes_in(folder) + bytes_in(&folder.join("pinned"));
        TOTAL_BYTES.saturating_sub(used + self.others_bytes.load(Relaxed))
    }
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let sizes = entries.filter_map(|entry| entry.ok()?.metadata().ok().filter(|it| it.is_file()));
    sizes.map(|about| about.len()).sum()
}

impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulated").finish_non_exhaustive()
    }
}

impl Disk for Simulated {
    fn begin(&mut self, packets: &Path, journal: &Path, header: &[u8]) -> io::Result<()> {
        self.files.begin(packets, journal, header)
    }

    fn write(&mut self, lease: Lease) {
        self.files.write(lease);
    }

    fn append_journal(&mut self, frames: &[u8]) -> io::Result<()> {
        self.files.append_journal(frames)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.files.flush()
    }

    fn end(&mut self, sync: bool) -> io::Result<()> {
        self.files.end(sync)
    }

    fn save(&mut self, path: &Path, aside: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
        self.files.save(path, aside, bytes, sync)
    }

    fn now(&self) -> SystemTime {
        let now_ns = self.world.now_ns.load(Relaxed);
        SystemTime::UNIX_EPOCH + Duration::from_nanos(now_ns as u64)
    }

    fn space(&mut self, _: &Path) -> io::Result<Space> {
        let free_bytes = self.world.free_bytes(&self.folder);
        Ok(Space { free_bytes, total_bytes: TOTAL_BYTES })
    }
}

fn open(world: &mut World, outside: &Arc<Outside>) {
    let (folder, outside) = (world.directory.clone(), Arc::clone(outside));
    world.open_as(|options| {
        let disk = Simulated { files: Files::default(), folder, world: outside };
        Store::open_on(options, &interfaces(), Arc::new(Silence), Box::new(disk)).unwrap()
    });
}

/// The rule that binds, at least one, when a segment was deleted.
#[derive(Debug, Default)]
struct Bound {
    budget: u32,
    age: u32,
    space: u32,
}

/// Checks all rules at rest; counts which of them bind.
fn check(world: &World, outside: &Outside, pin: &Question, before: &mut u64, bound: &mut Bound) {
    let store = world.store.as_ref().unwrap();
    let counts = store.counts();
    let any = Query::read("tcp or not tcp", 0).unwrap();
    let (now_ns, age_ns) = (outside.now_ns.load(Relaxed), AGE.as_nanos() as i64);
    let last_ns = world.packets.last().unwrap().ts_ns;
    let last = FindOptions { from_ns: Some(last_ns), ..FindOptions::default() };
    let list = || store.catalog().list();
    let is_rest = || {
        let old = |segment: &larder_store::Segment| {
            segment.is_closed && segment.last_ns.is_some_and(|last_ns| last_ns < now_ns - age_ns)
        };
        !list().iter().any(old) && !find_query(&world.directory, &any, last, false).0.is_empty()
    };
    until_so_or(|| format!("{:?}", list().first()), is_rest);

    let kept_bytes = counts.bytes_kept.load(Relaxed);
    let free_bytes = outside.free_bytes(&world.directory);
    let pinned_bytes = bytes_in(&world.directory.join("pinned"));
    assert!(kept_bytes <= BUDGET_BYTES, "{kept_bytes}");
    assert!(pinned_bytes <= PINS_BYTES + 3 * SEGMENT_BYTES, "{pinned_bytes}");
    assert!(free_bytes >= FREE_BYTES, "{free_bytes}");
    assert_eq!(counts.packets_not_pinned.load(Relaxed) + counts.packets_lost.load(Relaxed), 0);

    let oldest_ns = list().iter().find_map(|segment| segment.first_ns).unwrap_or(i64::MAX);
    let deleted = counts.segments_deleted.load(Relaxed);
    if deleted != *before {
        *before = deleted;
        let few = 4 * SEGMENT_BYTES;
        let budget = kept_bytes + few > BUDGET_BYTES;
        let space = free_bytes < FREE_BYTES + ROOM_BYTES + few;
        // An hour: between two checks there is less.
        let age = oldest_ns < now_ns - age_ns + HOUR.as_nanos() as i64;
        assert!(budget || space || age, "{kept_bytes} {free_bytes} {oldest_ns}");
        bound.budget += u32::from(budget);
        bound.space += u32::from(space);
        bound.age += u32::from(age && !budget && !space);
    }

    // All of the newest, and of older ones the newest that are pinned.
    let found = find_query(&world.directory, &any, FindOptions::default(), false).0;
    let is_pinned: HashSet<i64> =
        world.answer(pin, FindOptions::default()).into_iter().map(|(ts_ns, _)| ts_ns).collect();
    let first_ns = found.first().map_or(i64::MAX, |(ts_ns, _)| *ts_ns);
    let has_lost_pins = is_pinned.iter().any(|ts_ns| *ts_ns < first_ns);
    assert!(!has_lost_pins || pinned_bytes + 4 * SEGMENT_BYTES > PINS_BYTES, "{pinned_bytes}");
    let expected = world.packets.iter().filter(|packet| {
        packet.ts_ns >= oldest_ns || is_pinned.contains(&packet.ts_ns) && packet.ts_ns >= first_ns
    });
    let expected: Vec<i64> = expected.map(|packet| packet.ts_ns).collect();
    let found: Vec<i64> = found.into_iter().map(|(ts_ns, _)| ts_ns).collect();
    assert!(found == expected, "{} {}", found.len(), expected.len());
}

/// A day in which at night little is sent, so that packets become too old; in the morning much, so
/// that the budget is used up; at noon other programs fill the disk. Whenever the store is at rest,
/// each rule holds, a segment was deleted only where a rule binds, and of older packets exactly those
/// that are pinned are found.
#[test]
fn a_day_under_all_rules() {
    let folder = tempfile::tempdir().unwrap();
    let query = Query::read("name ~ *.com or port 5", 0).unwrap();
    let pin = Question::Any(vec![
        Question::Word("name ~ ".to_owned(), "*.com".to_owned()),
        Question::Port(5, 5),
    ]);
    let limited = Options {
        budget_bytes: BUDGET_BYTES,
        age: Some(AGE),
        reserve: Reserve::Bytes(FREE_BYTES),
        pins: Some(PinOptions { query, budget_bytes: PINS_BYTES, packets_of_flow: u32::MAX }),
        ..options(folder.path())
    };
    let mut world = World::new(500, folder.path(), limited);
    world.is_prompt = true;
    let outside = Arc::new(Outside::default());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    world.ts_ns = (now - 25 * HOUR).as_nanos() as i64;
    let (mut bound, mut before) = (Bound::default(), 0);
    // The budget does not fit.
    let full = TOTAL_BYTES - FREE_BYTES - PINS_BYTES - BUDGET_BYTES + 4 * SEGMENT_BYTES;
    for hour in 0..24 {
        if hour % 8 == 0 {
            if let Some(store) = world.store.take() {
                store.finish().unwrap();
            }
            open(&mut world, &outside);
            before = 0;
        }
        let (packet_s, others) = match hour {
            0..7 => (20, 0),
            7..12 => (3, 0),
            12..16 => (3, full + (hour - 12) * SEGMENT_BYTES),
            _ => (10, 64 << 10),
        };
        world.step_ns = packet_s * 1_000_000_000;
        outside.others_bytes.store(others, Relaxed);
        let until_ns = world.ts_ns + HOUR.as_nanos() as i64;
        while world.ts_ns < until_ns {
            world.go_on(1);
            outside.now_ns.store(world.ts_ns, Relaxed);
            if !world.packets.is_empty() {
                check(&world, &outside, &pin, &mut before, &mut bound);
            }
        }
    }
    world.store.take().unwrap().finish().unwrap();
    assert!(bound.budget > 10 && bound.age > 10 && bound.space > 10, "{bound:?}");
}
