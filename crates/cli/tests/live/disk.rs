//! Stored packets when the disk is full, and when larder is killed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use larder_wire::capture::{Capture, Step};

use larder_testkit::process::{Program, Run};
use larder_testkit::skip::{has, skip};
use larder_testkit::wait::until;

use crate::world::{Names, World, named};

/// A small disk, visible only in the mount namespace of `holder`.
struct SmallDisk {
    holder: Program,
    /// The path of the mount point for the holder.
    folder: PathBuf,
}

impl SmallDisk {
    fn new(test: &str, world: &World, size: &str) -> Option<SmallDisk> {
        let folder = world.scratch.path("disk");
        fs::create_dir(&folder).expect("made");
        let mount = format!(
            "mount -t tmpfs -o size={size} larder-test {} && echo mounted >&2 && exec sleep 100000",
            folder.display()
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", &mount]);
        let mut holder = Program::start(command.stdin(Stdio::null()));
        let said = holder.next_line();
        if said.as_deref() != Some("mounted") {
            skip(test, format!("no mount of its own: {}", said.unwrap_or_default()));
            return None;
        }
        Some(SmallDisk { holder, folder })
    }

    /// The path of the mount point for the test.
    fn seen(&self) -> PathBuf {
        let folder = self.folder.strip_prefix("/").expect("absolute");
        Path::new(&format!("/proc/{}/root", self.holder.id())).join(folder)
    }

    /// Changes a command to run in the holder's mount namespace.
    fn there(&self, command: &Command) -> Command {
        let mut inner = Command::new("nsenter");
        inner.args(["-t", &self.holder.id().to_string(), "-m"]).stdin(Stdio::null());
        inner.arg(format!("--wd={}", command.get_current_dir().expect("set").display()));
        inner.arg(command.get_program()).args(command.get_args());
        inner
    }
}

/// Bytes of all files in a folder.
fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder");
    entries.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len())).sum()
}

/// Segments in a folder, with the open one.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("there").path());
    let is_segment = |path: &PathBuf| {
        let name = path.display().to_string();
        name.ends_with(".pcapng") || name.ends_with(".pcapng.part")
    };
    let mut files: Vec<PathBuf> = entries.filter(is_segment).collect();
    files.sort();
    files
}

/// The numbers of a [`Stream`] in captures. The last capture may end within a packet, or be
/// deleted.
fn numbers(files: &[PathBuf]) -> Vec<u32> {
    let mut numbers = Vec::new();
    for file in files {
        let payload = fs::read(file).unwrap_or_default();
        let Ok((mut capture, mut offset)) = Capture::open(&payload) else { continue };
        loop {
            offset = match capture.next(&payload, offset, false) {
                Step::Record(record) => {
                    numbers.extend(number(record.frame));
                    record.next_offset
                }
                Step::Meta { next_offset } => next_offset,
                Step::Damaged { .. } => panic!("{} is damaged at {offset}", file.display()),
                Step::NeedMore | Step::End => break,
            };
        }
    }
    numbers
}

/// The number of a stream's packet: UDP to port 7000 in Ethernet.
fn number(frame: &[u8]) -> Option<u32> {
    let is_ours = *frame.get(23)? == 17 && *frame.get(36..38)? == 7000u16.to_be_bytes();
    is_ours.then(|| frame.get(42..46)?.try_into().ok().map(u32::from_be_bytes)).flatten()
}

/// tshark reads closed segments without an error; larder may delete one for the budget meanwhile.
fn all_are_sound(folder: &Path) {
    for file in files(folder) {
        let run = Run::of(Command::new("tshark").args(["-n", "-r"]).arg(&file));
        let is_closed = file.extension().is_some_and(|end| end == "pcapng");
        assert!(run.code == Some(0) || !is_closed || !file.exists(), "{run:?}");
    }
}

/// Other programs fill the disk. larder counts that, reports it once, and names flows as before;
/// the files are valid. When the disk has room again, larder stores packets again, and they are
/// found by name. From then on the budget holds, and no write is refused.
#[test]
fn full_disk() {
    const TEST: &str = "full_disk";
    if !["tshark", "unshare", "nsenter"].iter().all(|program| has(TEST, program)) {
        return;
    }
    let Some(world) = World::new(TEST) else { return };
    let Some(disk) = SmallDisk::new(TEST, &world, "6m") else { return };
    let names = world.names();
    let seen = disk.seen();
    let ballast = seen.join("ballast");
    // Other files leave so little space that no segment fits, whatever larder deletes.
    fs::write(&ballast, vec![0; (6 << 20) - (128 << 10)]).expect("there is room");
    let line = format!(
        "annotate -i b0 --ctl ctl --format ecs -o log --udp-idle 1s \
         -w {}/kept --store 3MiB --segment 256KiB --store-memory 8MiB",
        disk.folder.display()
    );
    let mut capture = Program::start(&mut disk.there(&world.larder(&line)));
    world.wait_for_answers();

    let payload = [1; 1400];
    until("a refusal", || {
        for _ in 0..64 {
            names.send(1, 7000, &payload);
        }
        (world.count("store_disk_errors") > 0).then_some(())
    });
    capture.wait_for("error store: disk failed, packets are dropped ");
    // A later refusal is not reported.
    until("another refusal", || {
        for _ in 0..64 {
            names.send(1, 7000, &payload);
        }
        (world.count("store_disk_errors") > 1).then_some(())
    });
    names.query(5);
    names.send(5, 7001, b"while the disk is full");
    until("a flow meanwhile", || (named(&world.log(), 7001).len() == 1).then_some(()));
    assert!(world.count("store_packets_lost") > 0);
    all_are_sound(&seen.join("kept"));

    fs::remove_file(&ballast).expect("there");
    let closed = world.count("store_segments_closed");
    until("segments to be written again", || {
        for _ in 0..64 {
            names.send(1, 7000, &payload);
        }
        (world.count("store_segments_closed") > closed + 2).then_some(())
    });
    capture.wait_for("info store: disk recovered ");
    let refusals = world.count("store_disk_errors");
    names.query(6);
    names.send(6, 7002, b"kept again");
    let deleted = world.count("store_segments_deleted");
    names.send(6, 7002, b"kept again, twice");
    until("the named flow on disk", || {
        let find = format!("find --dir {} n6.example", seen.join("kept").display());
        let run = world.scratch.run(&find);
        (run.code == Some(0) && run.out.contains("7002")).then_some(())
    });
    // The folder exceeds the budget by at most about a segment.
    let bytes = bytes_in(&seen.join("kept"));
    assert!(bytes <= (3 << 20) + (512 << 10), "{bytes} octets");
    until("the oldest to go", || {
        for _ in 0..64 {
            names.send(1, 7000, &payload);
        }
        (world.count("store_segments_deleted") > deleted + 3).then_some(())
    });
    let bytes = bytes_in(&seen.join("kept"));
    assert!(bytes <= (3 << 20) + (512 << 10), "{bytes} octets");
    assert_eq!(world.count("store_disk_errors"), refusals, "refused again");

    let (code, said) = capture.stop();
    assert_eq!(code, Some(0), "{said}");
    let count = |text: &str| said.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("error store: disk failed, packets are dropped "), 1, "{said}");
    assert_eq!(count("info store: disk recovered "), 1, "{said}");
    assert_eq!(named(&world.log(), 7001)[&5].as_deref(), Some("n5.example"));
    all_are_sound(&seen.join("kept"));
}

/// The test kills larder several times while packets arrive. After the next start, packets that
/// were in a file by then are in a segment, each once and in order. Segment numbers continue,
/// closed segments are unchanged, and no log has a torn line.
#[test]
fn kill_and_restart() {
    const TEST: &str = "kill_and_restart";
    const KEEP: &str = "--udp-idle 1s -w kept --store 64MiB --segment 256KiB --store-memory 8MiB";
    let Some(world) = World::new(TEST) else { return };
    let names = world.names();
    names.query(0);
    let stream = Stream::start(names);
    let kept = world.scratch.path("kept");
    let mut closed: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let mut found: Vec<u32> = Vec::new();
    for round in 0..3 {
        let mut capture = world.capture(KEEP);
        if round > 0 {
            let line = capture.wait_for("info store: segment recovered ");
            assert!(line.contains(" packets="), "{line}");
        }
        let begun = stream.sent();
        let flushed = until("closed segments, one that grows, and a log", || {
            let all = files(&kept);
            let is_growing = |path: &&PathBuf| path.extension().is_some_and(|end| end == "part");
            // The segment may be closed at this moment.
            let last = *numbers(&[all.iter().find(is_growing)?.clone()]).last()?;
            let is_late = all.len() > closed.len() + 3 && last > begun + 1000;
            (is_late && !world.log_text().is_empty()).then_some(last)
        });
        capture.child.kill().expect("it lives");
        capture.child.wait().expect("it ends");

        assert!(world.log_text().ends_with('\n'), "a torn line");
        for (path, payload) in &closed {
            assert!(fs::read(path).expect("still there") == *payload, "{}", path.display());
        }
        let all = files(&kept);
        let now = numbers(&all);
        assert!(now.starts_with(&found), "what was there is there");
        assert!(now.contains(&flushed), "{flushed} was flushed");
        found = now;
        closed = all
            .into_iter()
            .filter(|path| path.extension().is_some_and(|end| end == "pcapng"))
            .map(|path| (path.clone(), fs::read(&path).expect("there")))
            .collect();
    }
    let capture = world.capture(KEEP);
    let begun = stream.sent();
    until("some more", || (stream.sent() > begun + 100).then_some(()));
    drop(stream);
    let (code, said) = capture.stop();
    assert_eq!(code, Some(0), "{said}");
    let all = files(&kept);
    assert!(all.iter().all(|path| path.extension().is_some_and(|end| end == "pcapng")), "{all:?}");
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<usize>().ok();
    let used: Vec<usize> = all.iter().filter_map(number).collect();
    assert!(used.len() == all.len() && used.is_sorted_by(|one, next| one < next), "{all:?}");
    // A kill may come when the next segment exists without a packet: its number is not used again.
    assert!(used.last().is_some_and(|last| last + 1 - used.len() <= 3), "{all:?}");
    let now = numbers(&all);
    assert!(now.starts_with(&found) && now.len() > found.len());
    assert!(now.windows(2).all(|pair| pair[0] < pair[1]), "each once, in order");
    // Each gap is a time when larder did not run.
    let gaps = now.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
    assert_eq!(gaps, 3);
}

/// Numbered packets to port 7000, several per millisecond, from a thread.
struct Stream {
    next: Arc<AtomicU32>,
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Stream {
    fn start(names: Names) -> Stream {
        let (next, ends) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (to_say, to_read) = (next.clone(), ends.clone());
        let thread = thread::spawn(move || {
            for number in 0u32.. {
                if to_read.load(Ordering::Acquire) {
                    return;
                }
                let mut payload = [7; 300];
                payload[..4].copy_from_slice(&number.to_be_bytes());
                // The flow changes now and then, so that flows end and the log grows.
                names.send((number / 50 % 200) as u8, 7000, &payload);
                to_say.store(number + 1, Ordering::Release);
                if number % 4 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Stream { next, ends, thread: Some(thread) }
    }

    fn sent(&self) -> u32 {
        self.next.load(Ordering::Acquire)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}
