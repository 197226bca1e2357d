//! Hooks: a program runs for each closed segment, once if it succeeds; nothing waits for it.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use common::*;
use larder_store::{Hook, Options, Store};
use larder_testkit::wait::{until, until_so};

/// A hook that is this shell script.
fn hook(folder: &Path, script: &str) -> Hook {
    let program = folder.join("hook.sh");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Hook { pause: Duration::from_millis(1), ..Hook::new(program) }
}

/// A script that copies segment and index into `bucket`, each whole or not at all, and notes the
/// order.
fn copying(bucket: &Path) -> String {
    let bucket = bucket.display();
    format!(
        "for file in \"$1\" \"$2\"; do\n\
         cp \"$file\" {bucket}/upload && mv {bucket}/upload \"{bucket}/${{file##*/}}\" || exit 1\n\
         done\n\
         echo \"${{1##*/}}\" >> {bucket}/order"
    )
}

/// Folders for a store, its bucket and a script.
struct Place {
    folder: tempfile::TempDir,
    store: PathBuf,
    bucket: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let (store, bucket) = (folder.path().join("store"), folder.path().join("bucket"));
    fs::create_dir(&bucket).unwrap();
    Place { folder, store, bucket }
}

fn options_with(place: &Place, hook: Hook) -> Options {
    Options { hook: Some(hook), segment_bytes: 16 << 10, ..options(&place.store) }
}

/// Appends packets, about 14 for a segment.
fn append(store: &mut Store, packets: i64) {
    let mut next = 1;
    for number in 0..packets {
        let mut made = Made::default();
        made.packet(0, number, &udp([10, 0, 0, 1], 1, [10, 0, 1, 1], 53, &[7; 1000]));
        made.append(store, &mut next);
    }
}

/// The names in the bucket, and the stored ones, of segments and indexes.
fn both(place: &Place) -> (Vec<String>, Vec<String>) {
    let of = |path: &Path| {
        let is_meant = |name: &String| name.contains(".pcapng") || name.ends_with(".idx");
        files(path).into_iter().filter(is_meant).collect()
    };
    (of(&place.bucket), of(&place.store))
}

/// Each closed segment is copied once, with its index, in order, compressed if segments are, and as it
/// is in the store. Another start copies only what is new.
#[test]
fn each_segment_is_copied_once() {
    for compress in [false, true] {
        let place = place();
        let hook = hook(place.folder.path(), &copying(&place.bucket));
        let options = Options { compress, finishes_work: true, ..options_with(&place, hook) };
        for packets in [100, 0, 50] {
            let mut store = Store::open(options.clone(), &interfaces()).unwrap();
            append(&mut store, packets);
            let counts = store.counts().clone();
            store.finish().unwrap();
            let failed = counts.hooks_failed.load(Relaxed) + counts.hooks_missed.load(Relaxed);
            assert_eq!((failed, counts.hooks_run.load(Relaxed) > 0), (0, packets > 0));
        }
        let (copied, stored) = both(&place);
        assert!(copied == stored && copied.len() > 16, "{copied:?} {stored:?}");
        for name in &copied {
            let same = fs::read(place.bucket.join(name)).unwrap();
            assert!(same == fs::read(place.store.join(name)).unwrap(), "{name}");
        }
        let order = fs::read_to_string(place.bucket.join("order")).unwrap();
        let order: Vec<&str> = order.lines().collect();
        let ending = if compress { ".zst" } else { ".pcapng" };
        let segments: Vec<&String> = stored.iter().filter(|name| name.ends_with(ending)).collect();
        assert_eq!(order, segments);
    }
}

/// A hook that fails is tried again, with its status and last line in the log; after three times it is
/// next at the next start.
#[test]
fn failures_are_tried_again() {
    let place = place();
    let note = place.bucket.join("tries").display().to_string();
    let script = format!("echo x >> {note}; echo 'bucket is closed' >&2; exit 3");
    let failing = hook(place.folder.path(), &script);
    let options = Options { finishes_work: true, ..options_with(&place, failing) };
    let log = options.log.clone();
    let mut store = Store::open(options.clone(), &interfaces()).unwrap();
    append(&mut store, 10);
    let counts = store.counts().clone();
    store.finish().unwrap();
    assert_eq!((counts.hooks_run.load(Relaxed), counts.hooks_failed.load(Relaxed)), (0, 3));
    assert_eq!(fs::read_to_string(&note).unwrap().lines().count(), 3);
    let lines: Vec<String> = log.take();
    let lines: Vec<&String> = lines.iter().filter(|line| line.contains("hook failed")).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for part in
        ["warn store: hook failed ", "00000000.pcapng", "exit status: 3", "bucket is closed"]
    {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
    let working = hook(place.folder.path(), &copying(&place.bucket));
    let store = Store::open(Options { hook: Some(working), ..options.clone() }, &interfaces());
    let store = store.unwrap();
    let counts = store.counts().clone();
    store.finish().unwrap();
    assert_eq!(counts.hooks_run.load(Relaxed), 1);
    assert_eq!(both(&place).0, ["00000000.idx", "00000000.pcapng"]);
    // A program that does not exist is a failure like any other.
    let missing = Hook { pause: Duration::ZERO, ..Hook::new("/nowhere/hook") };
    let mut store = Store::open(Options { hook: Some(missing), ..options }, &interfaces()).unwrap();
    append(&mut store, 10);
    let counts = store.counts().clone();
    store.finish().unwrap();
    assert_eq!(counts.hooks_failed.load(Relaxed), 3);
    assert!(log.take().iter().any(|line| line.contains("not started: No such file")));
}

/// A hook that hangs is killed with all that it started, and delays no packet. The budget deletes
/// segments meanwhile, and counts those whose hook has not succeeded.
#[test]
fn a_hanging_hook_is_killed() {
    let place = place();
    let note = place.bucket.join("pids").display().to_string();
    let script =
        format!("trap '' TERM; sleep 600 & echo $! >> {note}; echo hangs >&2; wait; sleep 600");
    let mut hanging = hook(place.folder.path(), &script);
    hanging.limit = Duration::from_millis(100);
    let mut options = options_with(&place, hanging);
    options.budget_bytes = 80 << 10;
    let log = options.log.clone();
    let mut store = Store::open(options, &interfaces()).unwrap();
    let counts = store.counts().clone();
    append(&mut store, 300);
    wait_until_written(&store);
    assert_eq!(counts.packets_dropped.load(Relaxed), 0);
    until_so("segments are missed", || counts.hooks_missed.load(Relaxed) > 3);
    until_so("it is killed", || counts.hooks_failed.load(Relaxed) > 0);
    let lines = log.take();
    let is_meant = |line: &&String| line.contains("hook failed") && line.contains("killed after");
    let line = lines.iter().find(is_meant).unwrap_or_else(|| panic!("{lines:?}"));
    assert!(line.contains("stderr=hangs") || line.contains("\"hangs\""), "{line}");
    assert!(lines.iter().any(|line| line.contains("segment deleted before its hook succeeded")));
    drop(store);
    for pid in fs::read_to_string(&note).unwrap().lines() {
        let path = format!("/proc/{pid}/stat");
        until_so("it ends", || {
            fs::read_to_string(&path).map_or(true, |stat| stat.contains(") Z "))
        });
    }
}

/// The end of the store waits for a running hook, not for those that wait; these run at the next
/// start.
#[test]
fn the_end_waits_for_one() {
    let place = place();
    let started = place.bucket.join("started");
    let script = format!("touch {}; sleep 0.3\n{}", started.display(), copying(&place.bucket));
    let slow = hook(place.folder.path(), &script);
    let mut store = Store::open(options_with(&place, slow), &interfaces()).unwrap();
    append(&mut store, 60);
    until("the first hook runs", || started.exists().then_some(()));
    let counts = store.counts().clone();
    let before = Instant::now();
    store.finish().unwrap();
    assert!(before.elapsed() < Duration::from_secs(5));
    let run = counts.hooks_run.load(Relaxed);
    let (copied, stored) = both(&place);
    assert_eq!(copied.len() as u64, 2 * run);
    assert!(run > 0 && copied.len() < stored.len(), "{copied:?} {stored:?}");
    let fast = hook(place.folder.path(), &copying(&place.bucket));
    let options = Options { finishes_work: true, ..options_with(&place, fast) };
    Store::open(options, &interfaces()).unwrap().finish().unwrap();
    let (copied, stored) = both(&place);
    assert_eq!(copied, stored);
}
