//! The guarantees of the source: the same batches for every kind of input, and every loss is
//! reported.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use larder_io::batch::{Batch, Source, SourceDamageKind, SourceOptions};
use larder_io::input::{Content, Input, InputError};
use larder_testkit::random::Random;
use larder_wire::capture::{Capture, CaptureDamage, Step, write};

const TS: i64 = 1_700_000_000_000_000_000;
static GO_ON: AtomicBool = AtomicBool::new(false);

/// A record or a damage, with its offset in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Record(u64, i64, u16, Vec<u8>),
    Damaged(u64, CaptureDamage),
}

/// Reads one batch from `start`; returns where it ended, and the reader as it was then.
fn read_batch(
    batch: &Batch,
    mut capture: Capture,
    start: usize,
    seen: &mut Vec<Seen>,
) -> (usize, Capture) {
    let mut offset = start;
    while offset < batch.limit {
        let at = batch.base_offset + offset as u64;
        offset = match capture.next(&batch.bytes, offset, batch.at_end) {
            Step::Record(r) => {
                seen.push(Seen::Record(at, r.ts_ns, r.link_type, r.frame.to_vec()));
                r.next_offset
            }
            Step::Damaged { kind, next_offset } => {
                seen.push(Seen::Damaged(at, kind));
                next_offset
            }
            Step::Meta { next_offset } => next_offset,
            Step::NeedMore => panic!("a batch lacks the bytes it needs"),
            Step::End => break,
        };
    }
    (offset, capture)
}

/// Reads a source to its end, each batch from where the one before it ended, as the contract says;
/// also returns how many batches began elsewhere than was guessed.
fn read_source(source: &mut Source) -> (Vec<Vec<Seen>>, usize) {
    let mut batches: Vec<Vec<Seen>> = Vec::new();
    let mut before: Option<(u64, Capture)> = None;
    let mut wrong_guesses = 0;
    while let Some(batch) = source.next_batch(&GO_ON) {
        let index = batch.index as usize;
        assert!(index == batches.len() || index + 1 == batches.len(), "batches come in order");
        batches.resize(index + 1, Vec::new());
        let (start, capture) = match before {
            Some((end, capture)) => ((end - batch.base_offset) as usize, capture),
            None => (batch.start.expect("the first start is known"), batch.capture.clone()),
        };
        if let Some(known) = batch.start {
            assert_eq!(known, start, "the source knows where the batch begins");
        }
        let records_begin = start < batch.limit.min(batch.bytes.len());
        wrong_guesses += usize::from(records_begin && batch.begin() != Some(start));
        let (end, capture) = read_batch(&batch, capture, start, &mut batches[index]);
        before = Some((batch.base_offset + end as u64, capture));
    }
    (batches, wrong_guesses)
}

fn options() -> SourceOptions {
    SourceOptions { batch_bytes: 4096, in_flight: 2 }
}

fn read_input(input: Input) -> (Vec<Vec<Seen>>, Source) {
    let mut source = Source::new(input, 0, options(), &GO_ON).unwrap();
    (read_source(&mut source).0, source)
}

fn frame(n: usize) -> Vec<u8> {
    // One frame in fifty is longer than two batches.
    let len = if n % 50 == 49 { 9000 } else { 60 + n % 700 };
    (0..len).map(|i| (i * 11 + n) as u8).collect()
}

fn pcap_of(count: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write::pcap_header(&mut out, 1, 65535);
    for n in 0..count {
        write::pcap_record(&mut out, TS + n as i64, &frame(n), 9999);
    }
    out
}

fn pcapng_of(count: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write::section(&mut out, "tests");
    write::interface(&mut out, 1, 0);
    for n in 0..count {
        if n == count / 2 {
            write::interface(&mut out, 101, 0);
        }
        write::packet(&mut out, u32::from(n > count / 2), TS + n as i64, &frame(n), 9999);
    }
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for member in [&bytes[..bytes.len() / 3], &bytes[bytes.len() / 3..]] {
        let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
        encoder.write_all(member).unwrap();
        out = encoder.finish().unwrap();
    }
    out
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    let (first, second) = bytes.split_at(bytes.len() / 3);
    let mut out = vec![0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    out.extend(compress_to_vec(first, CompressionLevel::Fastest));
    out.extend([0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0]);
    out.extend(compress_to_vec(second, CompressionLevel::Fastest));
    out
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn open(dir: &Path, name: &str, bytes: &[u8]) -> Input {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    Input::open(&path).unwrap()
}

/// A pipe that a thread fills, `piece` bytes at a time.
fn pipe(bytes: Vec<u8>, piece: usize) -> Input {
    let (reader, mut writer) = io::pipe().unwrap();
    thread::spawn(move || bytes.chunks(piece).try_for_each(|piece| writer.write_all(piece)));
    let file = File::from(OwnedFd::from(reader));
    Input { name: "pipe".to_owned(), content: Content::Stream { file, live: false } }
}

/// A mapped file, pipes in pieces of several sizes, and the three compressions give the same
/// batches, record by record; in sound files every guess is right.
#[test]
fn every_way_in_gives_the_same_batches() {
    let dir = tempfile::tempdir().unwrap();
    for bytes in [pcap_of(1000), pcapng_of(1000), pcap_of(0), pcapng_of(0)] {
        let input = open(dir.path(), "plain", &bytes);
        assert!(matches!(input.content, Content::Mapped(_)));
        let mut source = Source::new(input, 0, options(), &GO_ON).unwrap();
        let (want, wrong_guesses) = read_source(&mut source);
        assert_eq!((wrong_guesses, source.damage()), (0, vec![]));
        assert_eq!(want.len(), bytes.len().div_ceil(4096));
        assert_eq!(want.iter().flatten().count(), if bytes.len() > 4096 { 1000 } else { 0 });
        for piece in [1 << 20, 5000, 333] {
            assert!(read_input(pipe(bytes.clone(), piece)).0 == want, "pipe {piece}");
        }
        for (name, packed) in [("gz", gzip(&bytes)), ("zst", zstd(&bytes)), ("xz", xz(&bytes))] {
            let (got, source) = read_input(open(dir.path(), "packed", &packed));
            assert!(got == want, "{name}");
            assert_eq!(source.damage(), [], "{name}");
        }
    }
}

/// Damage in the middle and a cut at the end give the same result for a mapped file and a pipe,
/// also if a batch begins inside the damage.
#[test]
fn damage_is_the_same_by_every_way() {
    let dir = tempfile::tempdir().unwrap();
    for mut bytes in [pcap_of(300), pcapng_of(300)] {
        let len = bytes.len();
        bytes[len / 2..len / 2 + 9000].fill(0xee);
        bytes[len / 4..len / 4 + 700].fill(0);
        bytes.truncate(len - 30);
        let (want, _) = read_input(open(dir.path(), "plain", &bytes));
        let damages = want.iter().flatten().filter(|seen| matches!(seen, Seen::Damaged(..)));
        assert!((2..=3).contains(&damages.count()));
        for piece in [1 << 20, 777] {
            assert!(read_input(pipe(bytes.clone(), piece)).0 == want, "pipe {piece}");
        }
        assert!(read_input(open(dir.path(), "packed", &gzip(&bytes))).0 == want);
    }
}

/// So does damage longer than a search, and random damage.
#[test]
fn long_and_random_damage_too() {
    let dir = tempfile::tempdir().unwrap();
    for clean in [pcap_of(200), pcapng_of(200)] {
        let mut long = clean.clone();
        let middle = long.len() / 2;
        long.splice(middle..middle, vec![0; 5 << 19]);
        let (want, _) = read_input(open(dir.path(), "plain", &long));
        let damages = want.iter().flatten().filter(|seen| matches!(seen, Seen::Damaged(..)));
        assert_eq!(damages.count(), 1);
        assert!(read_input(pipe(long, 10_000)).0 == want);

        let mut random = Random(1);
        for round in 0..20 {
            let mut bytes = clean.clone();
            for _ in 0..5 {
                let at = 28 + random.index(bytes.len() - 28);
                bytes[at] ^= random.next() as u8;
            }
            let (want, _) = read_input(open(dir.path(), "plain", &bytes));
            assert!(read_input(pipe(bytes, 3000)).0 == want, "round {round}");
        }
    }
}

/// A compressed file that is cut or damaged gives what could be decoded, and then the error.
#[test]
fn a_broken_compressed_file_is_read_as_far_as_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    // Bytes that don't compress, so that every decoder has many blocks to deliver.
    let (mut bytes, mut random) = (Vec::new(), Random(1));
    write::pcap_header(&mut bytes, 1, 65535);
    for n in 0..1200 {
        let frame: Vec<u8> = (0..500).map(|_| random.next() as u8).collect();
        write::pcap_record(&mut bytes, TS + n, &frame, 500);
    }
    let (whole, _) = read_input(open(dir.path(), "plain", &bytes));
    let whole: Vec<Seen> = whole.into_iter().flatten().collect();
    for (name, packed) in [("gz", gzip(&bytes)), ("zst", zstd(&bytes)), ("xz", xz(&bytes))] {
        let cut = packed[..packed.len() - packed.len() / 4].to_vec();
        let mut flipped = packed.clone();
        let at = packed.len() - packed.len() / 4;
        flipped[at..at + 8].iter_mut().for_each(|byte| *byte ^= 0xff);
        for (what, broken) in [("cut", cut), ("flipped", flipped)] {
            let (got, source) = read_input(open(dir.path(), "packed", &broken));
            let got: Vec<Seen> = got.into_iter().flatten().collect();
            let same = got.iter().zip(&whole).take_while(|(got, want)| got == want).count();
            assert!(same > 600, "{name} {what}: only {same} records");
            let damage = source.damage();
            assert!(
                matches!(&damage[..], [d] if matches!(d.kind, SourceDamageKind::Stream(_))),
                "{name} {what}: {damage:?}"
            );
        }
    }
}

/// An input that is no capture is refused with advice, compressed or not; so is one that cannot be
/// decoded.
#[test]
fn refusals_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = |bytes: &[u8]| {
        let input = open(dir.path(), "file", bytes);
        Source::new(input, 0, options(), &GO_ON).unwrap_err()
    };
    assert!(refuse(b"").to_string().contains("file is empty"));
    assert!(refuse(b"").to_string().contains(dir.path().to_str().unwrap()));
    assert!(refuse(b"text, plain").to_string().contains("editcap"));
    assert!(refuse(&gzip(b"text, compressed")).to_string().contains("editcap"));
    assert!(refuse(&[0; 5000]).to_string().contains("begins with zeros"));
    for packed in [gzip(&pcap_of(50)), zstd(&pcap_of(50)), xz(&pcap_of(50))] {
        let error = refuse(&packed[..14]);
        assert!(matches!(error, InputError::Unreadable { .. }), "{error}");
    }
}

/// Of many inputs, all that are no captures are named at once; one alone as if it were the only input.
#[test]
fn refusals_name_all_files() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = |bad: usize| {
        let inputs = (0..300).map(|n| {
            let bytes = if n < bad { b"text, plain".to_vec() } else { pcap_of(2) };
            open(dir.path(), &format!("in{n}"), &bytes)
        });
        Source::open(inputs.collect(), options(), &GO_ON).unwrap_err().to_string()
    };
    assert!(refuse(1).starts_with(dir.path().to_str().unwrap()), "{}", refuse(1));
    let error = refuse(3);
    assert!(error.starts_with("3 inputs can't be read; leave them out:\n"), "{error}");
    assert!((0..3).all(|n| error.contains(&format!("/in{n}: "))) && error.lines().count() == 4);
    let error = refuse(250);
    assert!(error.ends_with("\n  and 150 more"), "{error}");
    assert_eq!(error.lines().count(), 102);
}

/// A pipe that stays open does not hold back a complete record: it comes in a partial batch, and
/// the pieces together are the batches of the whole.
#[test]
fn a_slow_pipe_delivers() {
    let bytes = pcap_of(40);
    let cut = 2000;
    let (reader, mut writer) = io::pipe().unwrap();
    let file = File::from(OwnedFd::from(reader));
    let live = Input { name: "pipe".to_owned(), content: Content::Stream { file, live: true } };
    writer.write_all(&bytes[..cut]).unwrap();
    let mut source = Source::new(live, 7, options(), &GO_ON).unwrap();
    // The writer is silent, and yet:
    let piece = source.next_batch(&GO_ON).unwrap();
    assert!(piece.partial && piece.index == 0 && piece.file == 7 && !piece.at_end);
    let mut seen = Vec::new();
    let start = piece.start.unwrap();
    let (end, _) = read_batch(&piece, piece.capture.clone(), start, &mut seen);
    assert_eq!(end, piece.limit);
    let end = piece.base_offset + end as u64;
    assert!(seen.len() > 1);
    drop(piece);
    let mut seen_later = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&bytes[cut..]).unwrap();
            thread::sleep(Duration::from_millis(50));
            drop(writer);
        });
        let mut at = end;
        while let Some(batch) = source.next_batch(&GO_ON) {
            let start = batch.start.unwrap();
            assert_eq!(batch.base_offset + start as u64, at);
            let (end, _) = read_batch(&batch, batch.capture.clone(), start, &mut seen_later);
            at = batch.base_offset + end as u64;
        }
    });
    seen.extend(seen_later);
    let dir = tempfile::tempdir().unwrap();
    let (want, _) = read_input(open(dir.path(), "plain", &bytes));
    assert_eq!(seen, want.into_iter().flatten().collect::<Vec<_>>());
}

/// A silent pipe and too many batches in flight both give way to the wish to stop.
#[test]
fn waiting_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(true);
    let (reader, _writer) = io::pipe().unwrap();
    let file = File::from(OwnedFd::from(reader));
    let silent = Input { name: "pipe".to_owned(), content: Content::Stream { file, live: true } };
    assert!(matches!(Source::new(silent, 0, options(), &stop), Err(InputError::Stopped)));
    let input = open(dir.path(), "plain", &pcap_of(100));
    let mut source = Source::new(input, 0, options(), &GO_ON).unwrap();
    let held = [source.next_batch(&GO_ON).unwrap(), source.next_batch(&GO_ON).unwrap()];
    assert!(source.next_batch(&stop).is_none());
    drop(held);
    assert!(source.next_batch(&stop).is_none());
    assert!(source.next_batch(&GO_ON).is_some());
    // Records that a pipe has delivered whole are not lost.
    let (reader, mut writer) = io::pipe().unwrap();
    let file = File::from(OwnedFd::from(reader));
    let live = Input { name: "pipe".to_owned(), content: Content::Stream { file, live: true } };
    writer.write_all(&pcap_of(40)[..2000]).unwrap();
    let mut source = Source::new(live, 0, options(), &GO_ON).unwrap();
    let batch = source.next_batch(&stop).unwrap();
    let mut seen = Vec::new();
    read_batch(&batch, batch.capture.clone(), 0, &mut seen);
    assert!(batch.partial && seen.len() > 1);
    assert!(source.next_batch(&stop).is_none());
}

/// Batches go to workers.
const _: fn() = || {
    fn sent_and_shared<T: Send + Sync>() {}
    sent_and_shared::<Batch>();
    fn sent<T: Send>() {}
    sent::<Source>();
};

/// A file that shrinks while it is mapped ends in damage, and the source states the offset.
#[test]
fn a_mapped_file_may_shrink() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shrinks");
    std::fs::write(&path, pcap_of(1000)).unwrap();
    let input = Input::open(&path).unwrap();
    let mut source = Source::new(input, 0, options(), &GO_ON).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(40_960).unwrap();
    let (batches, _) = read_source(&mut source);
    assert!(batches.iter().flatten().any(|seen| matches!(seen, Seen::Record(..))));
    assert!(batches.iter().flatten().any(|seen| matches!(seen, Seen::Damaged(..))));
    let damage = source.damage();
    assert_eq!((damage[0].offset, &damage[0].kind), (40_960, &SourceDamageKind::Torn));
}

/// Several inputs come out in order of time; equal times in order of the inputs; a clock that
/// steps back inside a file changes no order within it; link types survive; damage keeps its file.
#[test]
fn merged_inputs_are_in_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let capture = |link_type, packets: &[(i64, &[u8])]| {
        let mut out = Vec::new();
        write::pcap_header(&mut out, link_type, 65535);
        for (ts, frame) in packets {
            write::pcap_record(&mut out, TS + ts, frame, 60);
        }
        out
    };
    let a = capture(1, &[(1, b"a1"), (5, b"a5"), (3, b"a3"), (9, b"a9")]);
    let mut b = capture(101, &[(1, b"b1"), (4, b"b4"), (5, b"b5"), (12, b"b12")]);
    b.truncate(b.len() - 1);
    let inputs = vec![
        open(dir.path(), "a.gz", &gzip(&a)),
        open(dir.path(), "b", &b),
        open(dir.path(), "c", &capture(1, &[])),
    ];
    let mut source = Source::open(inputs, options(), &GO_ON).unwrap();
    let (batches, _) = read_source(&mut source);
    let got: Vec<(i64, u16, String)> = batches
        .into_iter()
        .flatten()
        .map(|seen| match seen {
            Seen::Record(_, ts, link, frame) => (ts - TS, link, String::from_utf8(frame).unwrap()),
            Seen::Damaged(at, kind) => panic!("{kind:?} at {at}"),
        })
        .collect();
    let want = [
        (1, 1, "a1"),
        (1, 101, "b1"),
        (4, 101, "b4"),
        (5, 1, "a5"),
        (3, 1, "a3"),
        (5, 101, "b5"),
        (9, 1, "a9"),
    ];
    assert_eq!(got, want.map(|(ts, link, text)| (ts, link, text.to_owned())));
    let damage = source.damage();
    assert_eq!(damage.len(), 1);
    assert!(damage[0].file.ends_with("/b") && damage[0].offset == 24 + 3 * 18);
    assert_eq!(damage[0].kind, SourceDamageKind::Capture(CaptureDamage::Cut));
}

/// Many packets of many inputs: nothing lost, nothing twice, and the same batches again.
#[test]
fn a_long_merge_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let merged = || {
        let inputs = (0..5)
            .map(|n| {
                let bytes = if n % 2 == 0 { pcap_of(400 + n) } else { pcapng_of(400 + n) };
                let bytes = if n == 3 { xz(&bytes) } else { bytes };
                open(dir.path(), &format!("in{n}"), &bytes)
            })
            .collect();
        read_source(&mut Source::open(inputs, options(), &GO_ON).unwrap()).0
    };
    let first = merged();
    let times: Vec<i64> = first
        .iter()
        .flatten()
        .map(|seen| match seen {
            Seen::Record(_, ts, ..) => *ts,
            Seen::Damaged(at, kind) => panic!("{kind:?} at {at}"),
        })
        .collect();
    assert_eq!(times.len(), 5 * 400 + 1 + 2 + 3 + 4);
    assert!(times.is_sorted());
    assert!(first == merged());
}

/// Of several compressed files, some are decompressed ahead of their turn, each in a thread. Records and damage are
/// those of the files without compression: also of one that is cut short, of more files than threads, one after the
/// other and at one time.
#[test]
fn compressed_files_are_merged_as_plain_ones() {
    let dir = tempfile::tempdir().unwrap();
    let packed = [gzip, zstd, xz];
    for is_one_after_the_other in [true, false] {
        let file = |number: usize| {
            let (mut out, count) = (Vec::new(), 3_000 + number);
            let step = if is_one_after_the_other { count as i64 } else { 0 };
            write::pcap_header(&mut out, 1, 65535);
            for n in 0..count {
                let time_ns = TS + step * number as i64 + n as i64;
                write::pcap_record(&mut out, time_ns, &frame(n), 9999);
            }
            out
        };
        let whole: Vec<Vec<u8>> = (0..9).map(file).collect();
        let merged = |inputs: Vec<Input>| {
            let mut source = Source::open(inputs, options(), &GO_ON).unwrap();
            (read_source(&mut source).0, source.damage())
        };
        let number = |n: usize| format!("{n}");
        let plain = (0..9).map(|n| open(dir.path(), &number(n), &whole[n])).collect();
        let (plain, none) = merged(plain);
        assert_eq!(none, []);
        let inputs = (0..9).map(|n| open(dir.path(), &number(n), &packed[n % 3](&whole[n])));
        let (records, damage) = merged(inputs.collect());
        assert_eq!(damage, []);
        assert!(records == plain, "one after the other: {is_one_after_the_other}");
        // Two runs with files that are cut short are the same, and have the records before.
        let cut = || {
            let inputs = (0..9).map(|n| {
                let bytes = packed[n % 3](&whole[n]);
                let length = if n % 6 == 0 { bytes.len() / 2 } else { bytes.len() };
                open(dir.path(), &number(n), &bytes[..length])
            });
            merged(inputs.collect())
        };
        let (records, damage) = cut();
        assert!(records.iter().flatten().count() < plain.iter().flatten().count());
        let files: Vec<&str> = damage.iter().map(|found| found.file.as_str()).collect();
        assert!(["0", "6"].iter().all(|n| files.iter().any(|file| file.ends_with(n))), "{files:?}");
        let again = cut();
        assert!(records == again.0 && damage == again.1);
    }
}
