//! Full, slow and failing disks: the writer goes on, lost packets are counted, flushed ones stay.

mod common;

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::*;
use larder_io::disk::Space;
use larder_mem::object::{Lease, Notice, Post};
use larder_store::{
    Counts, Disk, Files, FindOptions, Finder, FoundPacket, Options, PinOptions, Query, Reserve,
    Store,
};
use larder_testkit::skip::skip;
use larder_testkit::wait::{PATIENCE, until_so};

struct Nobody;

impl Post for Nobody {
    fn post(&self, _: Notice) {}
}

/// A disk with limited room, or without room for a while, or one that waits.
#[derive(Default)]
struct Poor {
    files: Files,
    /// Bytes of packets that it still takes.
    room: Arc<AtomicU64>,
    is_full: bool,
    /// Closed: writes wait.
    hold: Arc<Hold>,
    /// Its free space and its size; `None`: those of the folder.
    space: Option<Arc<dyn Fn() -> Space + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Hold {
    is_shut: Mutex<bool>,
    opens: Condvar,
    is_waiting: AtomicBool,
}

impl Hold {
    fn shut(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opens.notify_all();
    }

    fn pass(&self) {
        let mut is_shut = self.is_shut.lock().unwrap();
        while *is_shut {
            self.is_waiting.store(true, Relaxed);
            is_shut = self.opens.wait(is_shut).unwrap();
        }
        self.is_waiting.store(false, Relaxed);
    }
}

impl std::fmt::Debug for Poor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poor").finish_non_exhaustive()
    }
}

impl Poor {
    fn ask(&self) -> io::Result<()> {
        match self.is_full || self.room.load(Relaxed) == 0 {
            true => Err(io::Error::from_raw_os_error(28)),
            false => Ok(()),
        }
    }
}

impl Disk for Poor {
    fn begin(&mut self, packets: &Path, journal: &Path, header: &[u8]) -> io::Result<()> {
        self.hold.pass();
        self.is_full = false;
        self.ask()?;
        self.files.begin(packets, journal, header)
    }

    fn write(&mut self, lease: Lease) {
        let bytes = lease.len() as u64;
        let has_room = self.room.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(bytes));
        self.is_full |= has_room.is_err();
        if !self.is_full {
            self.files.write(lease);
        }
    }

    fn append_journal(&mut self, frames: &[u8]) -> io::Result<()> {
        self.files.append_journal(frames)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hold.pass();
        self.files.flush()?;
        match self.is_full {
            true => Err(io::Error::from_raw_os_error(28)),
            false => Ok(()),
        }
    }

    fn end(&mut self, sync: bool) -> io::Result<()> {
        self.files.end(sync)
    }

    fn save(&mut self, path: &Path, aside: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
        self.ask()?;
        self.files.save(path, aside, bytes, sync)
    }

    fn space(&mut self, directory: &Path) -> io::Result<Space> {
        self.space.as_ref().map_or_else(|| self.files.space(directory), |space| Ok(space()))
    }
}

fn open(options: Options, disk: Poor) -> Store {
    Store::open_on(options, &interfaces(), Arc::new(Nobody), Box::new(disk)).unwrap()
}

/// Appends a batch of ten packets of 1000 bytes; their times are their numbers.
fn append(store: &mut Store, next: &mut u64) {
    let mut made = Made::default();
    for number in *next..*next + 10 {
        let frame = udp([10, 0, 0, 1], 1, [10, 0, 0, 2], 53, &[number as u8; 1000]);
        made.packet(0, number as i64, &frame);
    }
    made.append(store, next);
}

/// Each packet is stored, dropped or lost, and counted so.
fn check_books(folder: &Path, counts: &Counts, appended: u64) -> Vec<i64> {
    let kept: Vec<i64> = all_frames(folder).iter().map(|(number, _)| *number).collect();
    let (dropped, lost) = (counts.packets_dropped.load(Relaxed), counts.packets_lost.load(Relaxed));
    assert_eq!(counts.packets.load(Relaxed) + dropped, appended);
    assert_eq!(kept.len() as u64 + dropped + lost, appended);
    assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
    kept
}

/// A disk that stays full takes the start of a segment and loses the rest. The operator gets one
/// message, and another when there is room again and all packets are stored. Lost packets are
/// counted.
#[test]
fn a_full_disk_costs_the_rest_of_a_segment() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.segment_bytes = 64 << 10;
    let room = Arc::new(AtomicU64::new(150_000));
    let log = options.log.clone();
    let mut store = open(options, Poor { room: room.clone(), ..Poor::default() });
    let counts = store.counts().clone();
    let mut next = 1;
    until_so("the disk is full", || {
        append(&mut store, &mut next);
        std::thread::sleep(Duration::from_millis(1));
        counts.disk_errors.load(Relaxed) > 2
    });
    let lines = log.take();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("warn store: disk full, the oldest packets are deleted "),
        "{lines:?}"
    );
    assert!(lines[1].starts_with("error store: disk failed, packets are dropped "), "{lines:?}");
    assert!(lines[1].contains("No space left"), "{lines:?}");
    room.store(u64::MAX, Relaxed);
    until_so("it writes again", || {
        append(&mut store, &mut next);
        std::thread::sleep(Duration::from_millis(2));
        log.take().iter().any(|line| line.starts_with("info store: disk recovered "))
    });
    let again = next;
    for _ in 0..100 {
        append(&mut store, &mut next);
    }
    store.finish().unwrap();
    let kept: Vec<i64> = all_frames(folder.path()).iter().map(|(number, _)| *number).collect();
    let last: Vec<i64> = (again as i64..next as i64).collect();
    assert!(kept.ends_with(&last), "after the pause all is kept");
    assert!(files(folder.path()).iter().all(|name| !name.contains(".part")));
}

/// A disk that does not write never blocks the writer: packets without memory are dropped and
/// counted, and the others are written when the disk goes on. Invariant 4 of `store`, and invariant
/// 1 of `writer`.
#[test]
fn a_slow_disk_never_holds_up_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.segment_bytes = 1 << 20;
    let hold = Arc::new(Hold::default());
    hold.shut(true);
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let mut store = open(options, Poor { room, hold: hold.clone(), ..Poor::default() });
    let counts = store.counts().clone();
    let mut next = 1;
    // Twice the memory, while nothing is written.
    for _ in 0..1600 {
        append(&mut store, &mut next);
    }
    until_so("the disk waits", || hold.is_waiting.load(Relaxed));
    assert!(counts.packets_dropped.load(Relaxed) > 4000);
    assert!(counts.packets.load(Relaxed) > 6000);
    hold.shut(false);
    store.finish().unwrap();
    assert_eq!(counts.packets_lost.load(Relaxed), 0);
    check_books(folder.path(), &counts, next - 1);
}

/// A writer that waits for room loses no packets with a slow disk, and does not wait forever for
/// one that does not write.
#[test]
fn who_waits_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path());
    options.segment_bytes = 1 << 20;
    let hold = Arc::new(Hold::default());
    hold.shut(true);
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let mut store = open(options, Poor { room, hold: hold.clone(), ..Poor::default() });
    let counts = store.counts().clone();
    let (mut next, mut refused) = (1, 0);
    for _ in 0..1600 {
        // The disk waits until one refusal.
        let patience = if refused == 0 { Duration::from_millis(20) } else { PATIENCE };
        if !store.wait_for_room(16 << 10, patience) {
            // Nothing is written: the disk may go on.
            refused += 1;
            hold.shut(false);
            assert!(store.wait_for_room(16 << 10, PATIENCE));
        }
        append(&mut store, &mut next);
    }
    assert_eq!(refused, 1, "there was no room once, and then always in the end");
    store.finish().unwrap();
    assert_eq!(counts.packets_dropped.load(Relaxed) + counts.packets_lost.load(Relaxed), 0);
    check_books(folder.path(), &counts, next - 1);
}

/// Runs `check` on a small file system: in this test again, in a name space of its own.
fn on_a_small_disk(test: &str, size: &str, check: fn(&Path)) {
    const CHILD: &str = "LARDER_TEST_SMALL_DISK";
    if let Some(folder) = std::env::var_os(CHILD) {
        return check(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=$1 tmpfs \"$2\" || exit 77; shift 2; exec \"$@\"";
    let output = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", mount, "sh", size])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, folder.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output)
            if !matches!(output.status.code(), Some(1 | 32 | 77)) || output.stdout.len() > 20 =>
        {
            panic!("{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
        }
        _ => skip(test, "no name space to mount a small file system in"),
    }
}

/// A small full file system. The newest packets that fit are stored, and none of them is lost; the
/// oldest are deleted for them before the budget is used up.
#[test]
fn a_full_file_system() {
    on_a_small_disk("a_full_file_system", "1m", |folder| {
        let mut options = options(folder);
        options.segment_bytes = 256 << 10;
        let log = options.log.clone();
        let mut store = Store::open(options, &interfaces()).unwrap();
        let counts = store.counts().clone();
        let lines = log.take();
        assert!(lines.iter().any(|line| line.contains("budget exceeds the disk")), "{lines:?}");
        let mut next = 1;
        for _ in 0..500 {
            append(&mut store, &mut next);
            assert!(store.wait_for_room(64 << 10, Duration::from_secs(20)));
        }
        store.finish().unwrap();
        let load = |count: &AtomicU64| count.load(Relaxed);
        assert_eq!(
            (load(&counts.packets), load(&counts.packets_lost)),
            (5000, 0),
            "{:?}",
            log.take()
        );
        let kept = common::world::find(folder, &["10.0.0.1".into()], Default::default(), false).0;
        let numbers: Vec<i64> = kept.iter().map(|(number, _)| *number).collect();
        let newest: Vec<i64> = (5001 - numbers.len() as i64..=5000).collect();
        assert_eq!(numbers, newest);
        assert!(numbers.len() > 400, "{}", numbers.len());
        assert!(load(&counts.segments_deleted) > 10);
    });
}

/// On a small full file system, segments are deleted for pinned packets, and no pinned ones for new
/// ones.
#[test]
fn a_full_file_system_keeps_pins() {
    on_a_small_disk("a_full_file_system_keeps_pins", "2m", |folder| {
        let mut options = options(folder);
        options.segment_bytes = 128 << 10;
        let query = Query::read("port 3", 0).unwrap();
        options.pins = Some(PinOptions { query, budget_bytes: 1 << 30, packets_of_flow: u32::MAX });
        let mut store = Store::open(options, &interfaces()).unwrap();
        let counts = store.counts().clone();
        let mut next = 1;
        for number in 0..8000 {
            let mut made = Made::default();
            let port = if number % 10 == 0 { 3 } else { 4 };
            made.packet(0, number, &udp([10, 0, 0, 1], port, [10, 0, 1, 1], 53, &[0; 1000]));
            made.append(&mut store, &mut next);
            assert!(store.wait_for_room(64 << 10, Duration::from_secs(20)));
        }
        store.finish().unwrap();
        let load = |count: &AtomicU64| count.load(Relaxed);
        assert_eq!((load(&counts.packets_lost), load(&counts.packets_not_pinned)), (0, 0));
        assert!(load(&counts.segments_deleted) > 20);
        let mut finder = Finder::open(folder).unwrap();
        let query = Query::read("port 3", 0).unwrap();
        let mut found = Vec::new();
        let mut visit = |packet: FoundPacket<'_>| {
            found.push(packet.ts_ns);
            ControlFlow::Continue(())
        };
        finder.find(&query, FindOptions::default(), &mut visit).unwrap();
        assert!(found.iter().copied().eq((0..8000).step_by(10)), "{}", found.len());
    });
}

/// A part of the disk stays free: the oldest segments are deleted for it. Without a segment to
/// delete, packets are lost and counted, with the reason in a message; when others free space, all
/// packets are stored again.
#[test]
fn a_reserve_stays_free() {
    const TOTAL: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let others = Arc::new(AtomicU64::new(0));
    let of_others = Arc::clone(&others);
    let space = move || {
        let entries = std::fs::read_dir(&path).unwrap();
        let sizes = entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
        let used = sizes.sum::<u64>() + of_others.load(Relaxed);
        Space { free_bytes: TOTAL.saturating_sub(used), total_bytes: TOTAL }
    };
    let mut sized = options(folder.path());
    (sized.segment_bytes, sized.reserve) = (32 << 10, Reserve::Percent(50));
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let poor = Poor { room, space: Some(Arc::new(space.clone())), ..Poor::default() };
    let log = sized.log.clone();
    let mut store = open(sized, poor);
    let counts = store.counts().clone();
    let mut next = 1;
    let fill = |store: &mut Store, next: &mut u64, batches: usize| {
        for _ in 0..batches {
            append(store, next);
            until_so("it is written", || {
                let done = counts.bytes_written.load(Relaxed) + counts.bytes_lost.load(Relaxed);
                done + (64 << 10) > counts.bytes.load(Relaxed)
            });
        }
    };
    fill(&mut store, &mut next, 100);
    assert!(space().free_bytes >= TOTAL / 2, "{}", space().free_bytes);
    assert!(space().free_bytes < TOTAL / 2 + (256 << 10), "no more is deleted than it takes");
    assert_eq!(counts.packets_lost.load(Relaxed), 0);
    assert!(counts.segments_deleted.load(Relaxed) > 10);

    others.store(TOTAL, Relaxed);
    until_so("nothing is left to delete", || {
        append(&mut store, &mut next);
        std::thread::sleep(Duration::from_millis(1));
        counts.packets_lost.load(Relaxed) > 0
    });
    // The message follows the counts.
    until_so("the reason is logged", || {
        log.take().iter().any(|line| line.contains("disk failed, packets are dropped"))
    });
    others.store(0, Relaxed);
    until_so("it writes again", || {
        append(&mut store, &mut next);
        std::thread::sleep(Duration::from_millis(2));
        log.take().iter().any(|line| line.starts_with("info store: disk recovered "))
    });
    let again = next;
    fill(&mut store, &mut next, 5);
    store.finish().unwrap();
    let kept: Vec<i64> = all_frames(folder.path()).iter().map(|(number, _)| *number).collect();
    assert!(kept.ends_with(&(again as i64..next as i64).collect::<Vec<_>>()));
}

/// A segment that the disk refuses in its middle returns its memory, also while a client that does
/// not read holds it: the writer goes on as if there was no such client.
#[test]
fn a_refused_segment_leaves_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut sized = options(folder.path());
    (sized.segment_bytes, sized.memory_bytes) = (1 << 20, 8 << 20);
    let room = Arc::new(AtomicU64::new(300_000));
    let mut store = open(sized, Poor { room: room.clone(), ..Poor::default() });
    let counts = store.counts().clone();
    let mut next = 1;
    append(&mut store, &mut next);
    let object = match &store.catalog().last().expect("a segment").content {
        larder_store::Content::Memory(object) => Arc::clone(object),
        _ => panic!("it grows in memory"),
    };
    until_so("the disk is full", || {
        append(&mut store, &mut next);
        std::thread::sleep(Duration::from_millis(1));
        counts.disk_errors.load(Relaxed) > 0
    });
    assert!(object.is_revoked(), "readers are sent to the file");
}
