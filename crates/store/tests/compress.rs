//! Compressed segments: what was stored is read, served and found; damage is reported.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use common::world::{Random, find};
use common::*;
use larder_store::serve::{Listen, Server};
use larder_store::{FindOptions, Finder, FoundPacket, Options, Query, Store};
use larder_testkit::http::Connection;
use larder_testkit::skip::has;
use larder_testkit::wait::until_so;

/// Appends packets of two hosts, of text that repeats and of noise; their times are their numbers.
fn append(store: &mut Store, packets: i64) {
    let (mut random, mut next) = (Random(1), 1);
    for first in (0..packets).step_by(10) {
        let mut made = Made::default();
        for number in first..first + 10 {
            let mut payload = b"GET /index.html HTTP/1.1 Host: www.example.com ".repeat(12);
            payload.extend((0..400).map(|_| random.below(256) as u8));
            let host = [10, 0, 0, (number % 2) as u8];
            made.packet(0, number, &udp(host, 1, [10, 0, 1, 1], 53, &payload));
        }
        made.append(store, &mut next);
    }
}

/// A closed store with these options.
fn stored(options: Options, packets: i64) {
    let mut store = Store::open(options, &interfaces()).unwrap();
    append(&mut store, packets);
    store.finish().unwrap();
}

fn sized(folder: &Path, segment_bytes: u64) -> Options {
    Options { segment_bytes, ..options_of(folder, true) }
}

fn bytes_of(folder: &Path, ending: &str) -> u64 {
    let names = files(folder).into_iter().filter(|name| name.ends_with(ending));
    names.map(|name| fs::metadata(folder.join(name)).unwrap().len()).sum()
}

/// The times of the packets of one host, and the summary.
fn search(folder: &Path, is_scan: bool) -> (Vec<i64>, larder_store::Summary) {
    let (found, summary) = find(folder, &["10.0.0.0".into()], FindOptions::default(), is_scan);
    (found.iter().map(|(number, _)| *number).collect(), summary)
}

/// All segments are compressed at the end, also those that a run without compression left; their
/// packets are those of the same run without. The counts and the budget have the bytes of the files.
#[test]
fn segments_are_compressed() {
    let (plain, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    stored(Options { compress: false, ..sized(plain.path(), 64 << 10) }, 300);
    stored(Options { compress: false, ..sized(folder.path(), 64 << 10) }, 300);
    let store = Store::open(sized(folder.path(), 64 << 10), &interfaces()).unwrap();
    let counts = store.counts().clone();
    store.finish().unwrap();
    let segments = files(plain.path()).iter().filter(|name| name.ends_with(".pcapng")).count();
    assert!(segments > 4);
    let names = files(folder.path());
    assert!(names.iter().all(|name| !name.ends_with(".pcapng") && !name.contains(".part")));
    assert_eq!(names.iter().filter(|name| name.ends_with(".pcapng.zst")).count(), segments);
    for name in files(plain.path()).iter().filter(|name| name.ends_with(".pcapng")) {
        let compressed = content(&folder.path().join(format!("{name}.zst")));
        assert!(compressed == fs::read(plain.path().join(name)).unwrap(), "{name}");
    }
    let (before, after) = (bytes_of(plain.path(), ".pcapng"), bytes_of(folder.path(), ".zst"));
    assert!(after < before / 10 * 6, "{after} of {before}");
    assert_eq!(counts.segments_compressed.load(Relaxed), segments as u64);
    assert_eq!(counts.bytes_before_compression.load(Relaxed), before);
    assert_eq!(counts.bytes_after_compression.load(Relaxed), after);
    assert_eq!(counts.compressions_failed.load(Relaxed), 0);
    let kept = after + bytes_of(folder.path(), ".idx");
    assert_eq!(counts.bytes_kept.load(Relaxed), kept);
    // The next start counts the same.
    let store = Store::open(sized(folder.path(), 64 << 10), &interfaces()).unwrap();
    assert_eq!(store.counts().bytes_kept.load(Relaxed), kept);
    assert_eq!(store.counts().segments_compressed.load(Relaxed), 0);
}

/// zstd reads the same bytes as we do, and finds the same sizes, and the table among them.
#[test]
fn others_read_the_same() {
    let folder = tempfile::tempdir().unwrap();
    stored(sized(folder.path(), 512 << 10), 1000);
    if !has("others_read_the_same", "zstd") {
        return;
    }
    let mut read = 0;
    for name in files(folder.path()).iter().filter(|name| name.ends_with(".zst")) {
        let path = folder.path().join(name);
        let zstd = |options: &[&str]| {
            let output = Command::new("zstd").args(options).arg(&path).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{errors}");
            output.stdout
        };
        let plain = content(&path);
        assert!(zstd(&["-q", "-d", "-c"]) == plain, "{name}");
        read += frames(&plain).len();
        let list = String::from_utf8(zstd(&["-l", "-v"])).unwrap();
        let count = 1 + (plain.len() - (4 << 10)).div_ceil(128 << 10);
        for line in [
            format!("# Zstandard Frames: {count}"),
            "# Skippable Frames: 1".to_owned(),
            format!("({} B)", plain.len()),
        ] {
            assert!(list.contains(&line), "{line}: {list}");
        }
    }
    assert_eq!(read, 1000);
}

/// A budget has more packets if segments are compressed, and is kept.
#[test]
fn a_budget_has_more_packets() {
    let mut stored_packets = Vec::new();
    for compress in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options { compress, ..sized(folder.path(), 16 << 10) };
        options.budget_bytes = 200 << 10;
        let mut store = Store::open(options, &interfaces()).unwrap();
        let counts = store.counts().clone();
        let mut next = 1;
        for number in 0..600 {
            let mut made = Made::default();
            let payload = b"GET /index.html HTTP/1.1 Host: www.example.com ".repeat(20);
            made.packet(0, number, &udp([10, 0, 0, 1], 1, [10, 0, 1, 1], 53, &payload));
            made.append(&mut store, &mut next);
            // The compressor keeps up.
            until_so("segments are compressed", || {
                let lagging = |segment: &larder_store::Segment| {
                    segment.on_disk().is_some_and(|(_, is_compressed)| !is_compressed)
                };
                wait_until_written(&store);
                !compress || store.catalog().list().iter().filter(|it| lagging(it)).count() < 2
            });
        }
        store.finish().unwrap();
        let bytes: u64 = files(folder.path())
            .iter()
            .filter(|name| *name != "lock")
            .map(|name| fs::metadata(folder.path().join(name)).unwrap().len())
            .sum();
        assert!(bytes <= 200 << 10 && counts.bytes_kept.load(Relaxed) == bytes);
        stored_packets.push(all_frames(folder.path()).len());
    }
    assert!(stored_packets[0] * 2 < stored_packets[1], "{stored_packets:?}");
}

/// A writer is killed while it compresses a segment, or between the steps after: the next start keeps
/// one file of each segment, whole. Invariant 1 of `compress`.
#[test]
fn a_kill_leaves_one_whole_file() {
    let (plain, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    stored(Options { compress: false, ..sized(plain.path(), 64 << 10) }, 200);
    stored(sized(folder.path(), 64 << 10), 200);
    let all: Vec<i64> = (0..200).step_by(2).collect();
    let name = |number: u64, ending| format!("{number:08}.pcapng{ending}");
    let copy = |number: u64, ending| {
        let name = name(number, ending);
        fs::copy(plain.path().join(&name), folder.path().join(&name)).unwrap();
    };
    // Between two steps: both are there, and the second is read.
    copy(0, "");
    let (found, summary) = search(folder.path(), false);
    assert_eq!((&found, summary.damaged.len()), (&all, 0));
    // In the middle of writing: a torn part, and no other file of it.
    copy(1, "");
    let compressed = folder.path().join(name(1, ".zst"));
    let mut torn = fs::read(&compressed).unwrap();
    torn.truncate(torn.len() / 2);
    fs::write(folder.path().join(name(1, ".zst.part")), &torn).unwrap();
    fs::remove_file(&compressed).unwrap();
    assert_eq!(search(folder.path(), false).0, all);
    let unchanged = Options { compress: false, ..sized(folder.path(), 64 << 10) };
    drop(Store::open(unchanged, &interfaces()).unwrap());
    let mut of_number: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in files(folder.path()).iter().filter(|name| name.contains(".pcapng")) {
        of_number.entry(name[..8].to_owned()).or_default().push(name[8..].to_owned());
    }
    assert!(of_number.values().all(|endings| endings.len() == 1), "{of_number:?}");
    assert_eq!(of_number["00000000"], [".pcapng"]);
    assert_eq!(of_number["00000001"], [".pcapng"]);
    assert_eq!(search(folder.path(), false).0, all);
    drop(Store::open(sized(folder.path(), 64 << 10), &interfaces()).unwrap().finish());
    assert!(files(folder.path()).iter().all(|name| !name.ends_with(".pcapng")));
    assert_eq!(search(folder.path(), true).0, all);
}

/// One frame in the middle of a segment is damaged: the packets in all others are found, by index,
/// without one and by a scan, and each way reports the segment.
#[test]
fn a_damaged_frame_costs_what_it_touches() {
    let folder = tempfile::tempdir().unwrap();
    stored(sized(folder.path(), 1 << 20), 800);
    let path = folder.path().join("00000000.pcapng.zst");
    let mut file = fs::read(&path).unwrap();
    let middle = file.len() / 2;
    file[middle..middle + 8].fill(0x5a);
    fs::write(&path, &file).unwrap();
    let (found, summary) = search(folder.path(), false);
    assert!(found.len() > 300 && found.len() < 400, "{}", found.len());
    assert!(found.contains(&0) && found.contains(&798));
    let [damage] = summary.damaged[..] else { panic!("{:?}", summary.damaged) };
    assert_eq!((damage.segment, damage.packets), (0, Some(400 - found.len() as u64)));
    let (scanned, summary) = search(folder.path(), true);
    assert_eq!((scanned, summary.damaged.len()), (found.clone(), 1));
    assert!(summary.damaged[0].bytes > 100 << 10, "{:?}", summary.damaged);
    fs::remove_file(folder.path().join("00000000.idx")).unwrap();
    let (again, summary) = search(folder.path(), false);
    assert_eq!((again, summary.damaged.len()), (found, 1));

    // Cut in its middle: the frames before are found by their headers, the rest is reported.
    fs::write(&path, &file[..middle]).unwrap();
    let (found, summary) = search(folder.path(), false);
    assert!(found.len() > 150 && found.len() < 250, "{}", found.len());
    assert_eq!(summary.damaged.len(), 1);
}

/// Each byte of a small compressed segment is changed: a search finds what it found before, or
/// reports damage, or a segment that is no more ours.
#[test]
fn each_byte_is_flipped() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(sized(folder.path(), 16 << 10), &interfaces()).unwrap();
    let (mut made, mut random) = (Made::default(), Random(1));
    for number in 0..10 {
        let payload: Vec<u8> = (0..30).map(|_| random.below(256) as u8).collect();
        let host = [10, 0, 0, (number % 2) as u8];
        made.packet(0, number, &udp(host, 1, [10, 0, 1, 1], 53, &payload));
    }
    made.append(&mut store, &mut 1);
    store.finish().unwrap();
    let path = folder.path().join("00000000.pcapng.zst");
    let right = fs::read(&path).unwrap();
    let (all, _) = search(folder.path(), false);
    assert_eq!(all.len(), 5);
    for at in 0..right.len() {
        let mut wrong = right.clone();
        wrong[at] ^= 1 << (at % 8);
        fs::write(&path, &wrong).unwrap();
        for is_scan in [false, true] {
            let (found, summary) = search(folder.path(), is_scan);
            assert!(found == all || !summary.damaged.is_empty(), "byte {at}: {found:?}");
            assert!(found.iter().all(|number| all.contains(number)));
        }
    }
}

/// A follower begins with the packets of a compressed last segment.
#[test]
fn the_last_segment_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    stored(sized(folder.path(), 1 << 20), 800);
    let query = Query::parse(&["10.0.0.0"]).unwrap();
    let mut found = Vec::new();
    let mut visit = |packet: FoundPacket<'_>| {
        found.push(packet.ts_ns);
        std::ops::ControlFlow::Continue(())
    };
    let mut idle = || std::ops::ControlFlow::Break(());
    let mut finder = Finder::open(folder.path()).unwrap();
    let summary = finder.follow(&query, FindOptions::default(), &mut idle, &mut visit).unwrap();
    assert!(found.iter().copied().eq((0..800).step_by(2)), "{}", found.len());
    assert_eq!(summary.damaged.len(), 0);
}

/// The response to a request, and its body.
fn ask(server: &Server, request: &str) -> (String, Vec<u8>) {
    let mut connection = Connection::open(server.address().unwrap());
    connection.send(format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"));
    connection.send("\r\n");
    let answer = connection.rest();
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    (String::from_utf8(answer[..head].to_vec()).unwrap(), answer[head..].to_vec())
}

/// Clients get a compressed segment as pcapng, whole or in part, and the list has its bytes on the
/// disk. A damaged one ends early, and the client sees that.
#[test]
fn clients_get_pcapng() {
    let folder = tempfile::tempdir().unwrap();
    stored(sized(folder.path(), 1 << 20), 800);
    let path = folder.path().join("00000000.pcapng.zst");
    let whole = content(&path);
    let store = Store::open(sized(folder.path(), 1 << 20), &interfaces()).unwrap();
    let listen = Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let options = larder_store::serve::Options::new(listen);
    let server = Server::start(&options, store.catalog().clone()).unwrap();
    let (head, body) = ask(&server, "GET /segments/00000000.pcapng");
    assert!(head.contains(&format!("Content-Length: {}\r\n", whole.len())), "{head}");
    assert!(body == whole, "{}", body.len());
    let mut connection = Connection::open(server.address().unwrap());
    connection.send(
        "GET /segments/00000000.pcapng HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Range: bytes=300000-599999\r\n\r\n",
    );
    let part = connection.rest();
    assert!(part.starts_with(b"HTTP/1.1 206 ") && part.ends_with(&whole[300_000..600_000]));
    let (_, list) = ask(&server, "GET /segments");
    let list = String::from_utf8(list).unwrap();
    let bytes = fs::metadata(&path).unwrap().len();
    let stated = format!("\"is_compressed\":true,\"disk_bytes\":{bytes}}}");
    assert!(list.contains(&stated) && list.contains(&format!("\"bytes\":{},", whole.len())));

    let mut file = fs::read(&path).unwrap();
    let middle = file.len() / 2;
    file[middle] ^= 1;
    fs::write(&path, &file).unwrap();
    let (_, body) = ask(&server, "GET /segments/00000000.pcapng");
    assert!(body.len() < whole.len() && whole.starts_with(&body), "{}", body.len());
}
