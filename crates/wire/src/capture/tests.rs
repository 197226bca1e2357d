//! The guarantees of the reader, checked with the writer and with hostile bytes.

use larder_testkit::captures as list;
use proptest::prelude::*;

use super::*;
use crate::Addr;

/// A step without the borrow.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Record { offset: usize, ts_ns: i64, link_type: u16, interface: u32, len: u32, frame: Vec<u8> },
    Damaged(usize, CaptureDamage),
}

/// Reads whole bytes to the end, and checks that every step moves forward within the bytes.
fn walk_from(capture: &mut Capture, bytes: &[u8], mut offset: usize) -> Vec<Seen> {
    let mut seen = Vec::new();
    loop {
        let next = match capture.next(bytes, offset, true) {
            Step::Record(r) => {
                assert_eq!(r.frame, &bytes[r.frame_offset..][..r.frame.len()]);
                seen.push(Seen::Record {
                    offset,
                    ts_ns: r.ts_ns,
                    link_type: r.link_type,
                    interface: r.interface,
                    len: r.original_len,
                    frame: r.frame.to_vec(),
                });
                r.next_offset
            }
            Step::Damaged { kind, next_offset } => {
                seen.push(Seen::Damaged(offset, kind));
                next_offset
            }
            Step::Meta { next_offset } => next_offset,
            Step::NeedMore => panic!("invariant 2: NeedMore at the end of the file"),
            Step::End => break,
        };
        let len = bytes.len();
        assert!(next > offset && next <= len, "invariant 1: {offset} -> {next} of {len}");
        offset = next;
    }
    assert_eq!(offset, bytes.len());
    seen
}

fn walk(bytes: &[u8]) -> Vec<Seen> {
    let (mut capture, offset) = Capture::open(bytes).unwrap();
    walk_from(&mut capture, bytes, offset)
}

/// Reads as a pipe does that grows by `grow` bytes whenever the reader wants more.
fn walk_growing(bytes: &[u8], grow: usize) -> Vec<Seen> {
    let (mut capture, mut offset) = Capture::open(bytes).unwrap();
    let mut have = offset.min(bytes.len());
    let mut seen = Vec::new();
    loop {
        offset = match capture.next(&bytes[..have], offset, have == bytes.len()) {
            Step::Record(r) => {
                seen.push(Seen::Record {
                    offset,
                    ts_ns: r.ts_ns,
                    link_type: r.link_type,
                    interface: r.interface,
                    len: r.original_len,
                    frame: r.frame.to_vec(),
                });
                r.next_offset
            }
            Step::Damaged { kind, next_offset } => {
                seen.push(Seen::Damaged(offset, kind));
                next_offset
            }
            Step::Meta { next_offset } => next_offset,
            Step::NeedMore => {
                assert!(have < bytes.len());
                assert!(have - offset < LOOKAHEAD_BYTES);
                have = bytes.len().min(have + grow);
                offset
            }
            Step::End => return seen,
        };
    }
}

fn damages(seen: &[Seen]) -> Vec<CaptureDamage> {
    let kind = |seen: &Seen| match seen {
        Seen::Damaged(_, kind) => Some(*kind),
        Seen::Record { .. } => None,
    };
    seen.iter().filter_map(kind).collect()
}

fn records(seen: &[Seen]) -> usize {
    seen.len() - damages(seen).len()
}

fn frame(n: usize) -> Vec<u8> {
    (0..60 + n % 90).map(|i| (i * 7 + n) as u8).collect()
}

fn pcap_of(count: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write::pcap_header(&mut out, 1, 65535);
    for n in 0..count {
        let frame = frame(n);
        write::pcap_record(&mut out, TS + n as i64 * 1000, &frame, frame.len() as u32);
    }
    out
}

fn pcapng_of(count: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write::section(&mut out, "larder tests");
    write::interface(&mut out, 1, 65535);
    for n in 0..count {
        let frame = frame(n);
        write::packet(&mut out, 0, TS + n as i64 * 1000, &frame, frame.len() as u32);
    }
    out
}

const TS: i64 = 1_700_000_000_123_456_789;

/// Puts words together in either byte order: an independent, naive writer for odd files.
struct Odd {
    big: bool,
    bytes: Vec<u8>,
}

impl Odd {
    fn new(big: bool) -> Odd {
        Odd { big, bytes: Vec::new() }
    }
    fn u16(mut self, value: u16) -> Odd {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }
    fn u32(mut self, value: u32) -> Odd {
        self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
        self
    }
    fn raw(mut self, bytes: &[u8]) -> Odd {
        self.bytes.extend(bytes);
        self
    }
    fn block(mut self, kind: u32, body: impl FnOnce(Odd) -> Odd) -> Odd {
        let mut inner = body(Odd::new(self.big)).bytes;
        inner.resize(inner.len().next_multiple_of(4), 0);
        let len = inner.len() as u32 + 12;
        self = self.u32(kind).u32(len).raw(&inner).u32(len);
        self
    }
    fn section(self) -> Odd {
        self.block(0x0a0d_0d0a, |b| b.u32(0x1a2b_3c4d).u16(1).u16(0).u32(!0).u32(!0))
    }
    fn interface(self, link_type: u16, resolution: u8, offset_s: i64) -> Odd {
        let (high, low) = ((offset_s >> 32) as u32, offset_s as u32);
        self.block(1, |b| {
            let (first, second) = if b.big { (high, low) } else { (low, high) };
            b.u16(link_type)
                .u16(0)
                .u32(96)
                .u16(9)
                .u16(1)
                .raw(&[resolution, 0, 0, 0])
                .u16(14)
                .u16(8)
                .u32(first)
                .u32(second)
                .u16(0)
                .u16(0)
        })
    }
    fn enhanced(self, interface: u32, units: u64, frame: &[u8]) -> Odd {
        self.block(6, |b| {
            b.u32(interface)
                .u32((units >> 32) as u32)
                .u32(units as u32)
                .u32(frame.len() as u32)
                .u32(1500)
                .raw(frame)
        })
    }
}

/// All four pcap headers, and the modified one, give the time that the fields state.
#[test]
fn every_pcap_header_is_read() {
    for big in [false, true] {
        for (magic, fraction, extra) in
            [(0xa1b2_c3d4, 123_456, 0), (0xa1b2_3c4d, 123_456_000, 0), (0xa1b2_cd34, 123_456, 8)]
        {
            // A frame check sequence of 4 bytes is announced above the link type.
            let file = Odd::new(big).u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65535);
            let file = file.u32(0x2400_0071).u32(1_700_000_000).u32(fraction).u32(4).u32(99);
            let file = file.raw(&vec![0; extra]).raw(b"abcd");
            let want = Seen::Record {
                offset: 24,
                ts_ns: 1_700_000_000_123_456_000,
                link_type: 113,
                interface: 0,
                len: 99,
                frame: b"abcd".to_vec(),
            };
            assert_eq!(walk(&file.bytes), [want], "big {big} magic {magic:x}");
        }
    }
}

/// Bytes that are no capture give an error with advice.
#[test]
fn what_is_no_capture_is_refused() {
    assert_eq!(Capture::open(&[]).unwrap_err(), OpenError::Empty);
    assert_eq!(Capture::open(&[1, 2]).unwrap_err(), OpenError::TooShort(2));
    assert_eq!(Capture::open(&pcap_of(0)[..23]).unwrap_err(), OpenError::TooShort(23));
    assert_eq!(Capture::open(&pcapng_of(0)[..15]).unwrap_err(), OpenError::TooShort(15));
    let zip = Capture::open(b"PK\x03\x04xxxx").unwrap_err();
    assert_eq!(zip, OpenError::UnknownMagic(*b"PK\x03\x04"));
    assert!(zip.to_string().contains("unzip"));
    assert!(Capture::open(b"#!/bin/sh").unwrap_err().to_string().contains("editcap"));
    let old = Odd::new(false).u32(0xa1b2_c3d4).u16(1).u16(0).raw(&[0; 16]);
    assert_eq!(Capture::open(&old.bytes).unwrap_err(), OpenError::UnknownVersion(1, 0));
}

/// Units, offsets, interfaces, sections of both byte orders and all packet blocks: times worked
/// out by hand.
#[test]
fn pcapng_times_and_sections() {
    let old_packet = |b: Odd| b.u16(1).u16(7).u32(0).u32(3 << 20).u32(4).u32(60).raw(b"old!");
    let file = Odd::new(true)
        .section()
        .interface(1, 6, 0)
        .interface(101, 0x80 | 20, -1)
        .enhanced(0, 1_700_000_000_000_001, b"micro")
        .enhanced(1, 5 << 20, b"two")
        .block(2, old_packet)
        .block(3, |b| b.u32(6).raw(b"simple"))
        .block(5, |b| b.u32(0).u32(0).u32(0))
        .bytes;
    let file = Odd { big: false, bytes: file }
        .section()
        .interface(113, 12, 10)
        .interface(1, 0, 0)
        .interface(1, 127, 0)
        .interface(1, 0xff, 0)
        .enhanced(0, 2_000_000_000_999, b"pico")
        .enhanced(1, 3, b"seconds")
        .enhanced(2, u64::MAX - 1, b"never")
        .enhanced(3, u64::MAX, b"never")
        .enhanced(1, u64::MAX, b"far")
        .bytes;
    let times: Vec<_> = walk(&file)
        .into_iter()
        .map(|seen| match seen {
            Seen::Record { ts_ns, link_type, interface, frame, .. } => {
                (ts_ns, link_type, interface, String::from_utf8(frame).unwrap())
            }
            Seen::Damaged(at, kind) => panic!("{kind:?} at {at}"),
        })
        .collect();
    let want = [
        (1_700_000_000_000_001_000, 1, 0, "micro"),
        (4_000_000_000, 101, 1, "two"),
        (2_000_000_000, 101, 1, "old!"),
        (2_000_000_000, 1, 0, "simple"),
        (12_000_000_000, 113, 0, "pico"),
        (3_000_000_000, 1, 1, "seconds"),
        (0, 1, 2, "never"),
        (0, 1, 3, "never"),
        (i64::MAX, 1, 1, "far"),
    ];
    assert_eq!(times, want.map(|(ts, link, no, text)| (ts, link, no, text.to_owned())));
}

/// A file cut anywhere is read up to the cut: the whole records, then one `Cut`.
#[test]
fn a_cut_file_is_read_up_to_the_cut() {
    for (file, first) in [(pcap_of(12), 24), (pcapng_of(12), 0)] {
        let whole = walk(&file);
        for cut in first + 32..file.len() {
            let seen = walk(&file[..cut]);
            let clean = seen.iter().filter(|seen| matches!(seen, Seen::Record { .. })).count();
            assert_eq!(seen[..clean], whole[..clean]);
            assert!(matches!(damages(&seen)[..], [] | [CaptureDamage::Cut]), "{cut}: {seen:?}");
        }
    }
}

/// Damage in the middle costs the records it touches, is counted once and by its kind, and the
/// rest of the file is read. Invariant 4.
#[test]
fn the_reader_finds_its_way_after_damage() {
    let clean = walk(&pcap_of(100));
    let offset_of = |n: usize| match &clean[n] {
        Seen::Record { offset, .. } => *offset,
        Seen::Damaged(..) => unreachable!(),
    };
    // A length beyond belief.
    let mut file = pcap_of(100);
    file[offset_of(40) + 8..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let seen = walk(&file);
    assert_eq!(damages(&seen), [CaptureDamage::RecordLength]);
    assert_eq!(seen[41..], clean[41..]);
    // Zeros over three records, and some bytes removed after them.
    let mut file = pcap_of(100);
    let (start, end) = (offset_of(40), offset_of(43));
    file[start..end].fill(0);
    file.drain(start + 20..start + 33);
    let seen = walk(&file);
    assert_eq!(damages(&seen), [CaptureDamage::ZeroRecord]);
    assert_eq!(records(&seen), 97);
    // More than one search long: still counted once.
    let mut file = pcap_of(100);
    let junk = vec![0u8; 2 * SCAN_BYTES + 12345];
    file.splice(start..start, junk);
    let seen = walk(&file);
    assert_eq!(damages(&seen), [CaptureDamage::ZeroRecord]);
    assert_eq!(records(&seen), 100);

    let ng = walk(&pcapng_of(100));
    let Seen::Record { offset, .. } = ng[40] else { unreachable!() };
    for (at, value, kind) in [
        (4, u32::MAX, CaptureDamage::BlockLength),
        (4, 13, CaptureDamage::BlockLength),
        (4, 0, CaptureDamage::BlockLength),
        (4, 64, CaptureDamage::BlockTrailer),
        (8, 5, CaptureDamage::UnknownInterface),
        (20, 1 << 20, CaptureDamage::RecordLength),
    ] {
        let mut file = pcapng_of(100);
        file[offset + at..][..4].copy_from_slice(&u32::to_le_bytes(value));
        let seen = walk(&file);
        assert_eq!(damages(&seen), [kind], "{value} at {at}");
        assert_eq!(seen[41..], ng[41..]);
    }
}

/// A malformed description costs its own block; a section without interfaces knows none.
#[test]
fn malformed_blocks_cost_themselves() {
    let file = Odd::new(false)
        .section()
        .block(1, |b| b.u32(1))
        .enhanced(0, 0, b"x")
        .block(6, |b| b.u32(1))
        .block(3, |b| b)
        .block(2, |b| b.u32(0))
        .block(0x0a0d_0d0a, |b| b.u32(0x1a2b_3c4d).u16(9).u16(0).u32(0).u32(0))
        .interface(1, 9, 0)
        .enhanced(0, 7, b"fine");
    use CaptureDamage::*;
    let seen = walk(&file.bytes);
    assert_eq!(
        damages(&seen),
        [
            BlockMalformed,
            UnknownInterface,
            BlockMalformed,
            UnknownInterface,
            BlockMalformed,
            BlockMalformed
        ]
    );
    assert_eq!(records(&seen), 1);
}

/// Interfaces without end stay bounded.
#[test]
fn interfaces_are_bounded() {
    let mut file = pcapng_of(0);
    for _ in 0..(1 << 16) {
        write::interface(&mut file, 1, 0);
    }
    assert_eq!(damages(&walk(&file)), [CaptureDamage::TooManyInterfaces]);
}

/// From any byte of a file, the guess is the next record's start: workers may begin anywhere.
#[test]
fn find_record_is_right_on_sound_files() {
    let file = pcap_of(60);
    let starts: Vec<usize> = walk(&file)
        .iter()
        .map(|seen| match seen {
            Seen::Record { offset, .. } => *offset,
            Seen::Damaged(..) => unreachable!(),
        })
        .collect();
    let (capture, _) = Capture::open(&file).unwrap();
    assert!(capture.can_split());
    for from in 24..file.len() {
        let want = starts.iter().copied().find(|start| *start >= from);
        assert_eq!(capture.find_record(&file, from), want, "from {from}");
    }
    assert_eq!(capture.find_record(&file, file.len() + 5), None);
    let (ng, _) = Capture::open(&pcapng_of(3)).unwrap();
    assert!(!ng.can_split() && ng.find_record(&pcapng_of(3), 0).is_none());
}

/// A hopper goes from record to record like the reader, and accepts a header where the reader does.
#[test]
fn hopper_goes_as_the_reader() {
    let file = pcap_of(60);
    let (mut capture, mut offset) = Capture::open(&file).unwrap();
    let hopper = capture.hopper().unwrap();
    let slow = &file[offset..][hopper.slow_bytes()];
    while let Step::Record(record) = capture.next(&file, offset, true) {
        assert!(hopper.is_sound(&file, offset));
        assert_eq!(hopper.hop(&file, offset), Some(record.next_offset));
        assert_eq!(&file[offset..][hopper.slow_bytes()], slow);
        offset = record.next_offset;
    }
    assert_eq!(offset, file.len());
    assert!(hopper.hop(&file, offset).is_none() && !hopper.is_sound(&file, offset));
    assert!(Capture::open(&pcapng_of(3)).unwrap().0.hopper().is_none());
}

/// A name resolution block has the content that the format defines, byte by byte; and readers skip
/// it.
#[test]
fn names_are_written() {
    let mut out = pcapng_of(1);
    let start = out.len();
    let mut names = write::Names::begin(&mut out);
    names.record(Addr::v4([192, 0, 2, 1]), ["a.example", "bb"]);
    names.record(Addr::v4([192, 0, 2, 2]), [&b""[..], b"nul\0inside", &[b'x'; 70_000]]);
    let mut v6 = [0; 16];
    v6[15] = 1;
    names.record(Addr::v6(v6), [b"localhost"]);
    names.end();
    let v6_record = |b: Odd| b.u16(2).u16(26).raw(&v6).raw(b"localhost\0\0\0");
    let want = Odd::new(false).block(4, |b| {
        v6_record(b.u16(1).u16(17).raw(&[192, 0, 2, 1]).raw(b"a.example\0bb\0\0\0\0")).u32(0)
    });
    assert_eq!(out[start..], want.bytes);
    let (capture, _) = Capture::open(&out).unwrap();
    let read = |offset| capture.names_at(&out, offset).collect::<Vec<_>>();
    let (v4, v6) = (Addr::v4([192, 0, 2, 1]), Addr::v6(v6));
    assert_eq!(read(start), [(v4, &b"a.example"[..]), (v4, b"bb"), (v6, b"localhost")]);
    // No names where there is no name block; a malformed or cut record ends the names.
    assert_eq!([read(0), read(start - 1), read(out.len())], [vec![], vec![], vec![]]);
    for at in start..out.len() {
        let mut broken = out.clone();
        broken[at] ^= 0x81;
        assert!(capture.names_at(&broken, start).count() <= 12);
        assert_eq!(capture.names_at(&out[..at], start).count(), 0);
    }
    assert_eq!(records(&walk(&out)), 1);
    assert_eq!(damages(&walk(&out)), []);
}

/// Recordings and public captures are read without damage. They have as many packets as `capinfos`
/// counts: `packets.tsv` has its counts of the recordings, `summary.tsv` those of public captures.
#[test]
fn captures_are_read_whole() {
    let counts = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let recorded = counts(list::recorded_folder().join("packets.tsv"));
    let public = counts(list::public_folder().join("truth/summary.tsv"));
    let packets = |name: &str| {
        let mut rows = recorded.lines().chain(public.lines()).map(|line| line.split('\t'));
        rows.find_map(|mut row| row.next().filter(|of| *of == name).and_then(|_| row.next()))
    };
    for path in list::recorded() {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(packets(name).is_some(), "{name}: no row in packets.tsv");
    }
    for path in list::all() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(packets) = packets(name) else { continue };
        let seen = walk(&std::fs::read(&path).unwrap());
        assert_eq!(damages(&seen), [], "{name}");
        // This one also holds records that are not packets, which its counter counted.
        if name != "gp-test018.pcapng" {
            assert_eq!(records(&seen).to_string(), packets, "{name}");
        }
    }
}

fn frames() -> impl Strategy<Value = Vec<(i64, Vec<u8>, u32)>> {
    let record = (
        0i64..4_000_000_000_000_000_000,
        proptest::collection::vec(any::<u8>(), 1..200),
        1u32..100_000,
    );
    proptest::collection::vec(record, 0..40)
}

/// Bytes that look like a capture to begin with.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let headers = prop_oneof![Just(pcap_of(3)), Just(pcapng_of(3)), Just(pcap_of(0))];
    let bytes = prop_oneof![any::<u8>(), 0u8..8];
    (headers, proptest::collection::vec(bytes, 0..2000)).prop_map(|(mut bytes, tail)| {
        bytes.extend(tail);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Written, then read: the same times, lengths and bytes, in both formats.
    #[test]
    fn written_then_read(frames in frames()) {
        let (mut ng, mut pcap) = (Vec::new(), Vec::new());
        write::section(&mut ng, "x");
        write::interface(&mut ng, 1, 0);
        write::interface(&mut ng, 113, 0);
        write::pcap_header(&mut pcap, 113, 1 << 18);
        for (ts_ns, frame, original_len) in &frames {
            write::packet(&mut ng, 1, *ts_ns, frame, *original_len);
            write::pcap_record(&mut pcap, *ts_ns, frame, *original_len);
        }
        for (file, number) in [(ng, 1), (pcap, 0)] {
            let got: Vec<_> = walk(&file).into_iter().map(|seen| match seen {
                Seen::Record { ts_ns, link_type, interface, frame, len, .. } => {
                    assert_eq!((link_type, interface), (113, number));
                    (ts_ns, frame, len)
                }
                Seen::Damaged(at, kind) => panic!("{kind:?} at {at}"),
            }).collect();
            prop_assert_eq!(&got, &frames);
        }
    }

    /// Random bytes after a header: always forward, always to the end, the same however the bytes
    /// arrive. Invariants 1, 2 and 3.
    #[test]
    fn hostile_bytes_end(bytes in hostile(), grow in 1usize..700) {
        prop_assert_eq!(walk(&bytes), walk_growing(&bytes, grow));
    }

    /// So do flipped bits; and a reader that starts in the middle never panics.
    #[test]
    fn flipped_bits_end(
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), 0u8..8), 1..20),
        ng in any::<bool>(),
        grow in 1usize..5000,
    ) {
        let mut bytes = if ng { pcapng_of(60) } else { pcap_of(60) };
        let (capture, _) = Capture::open(&bytes).unwrap();
        for (at, bit) in flips {
            let at = 24 + at.index(bytes.len() - 24);
            bytes[at] ^= 1 << bit;
        }
        if Capture::open(&bytes).is_ok() {
            prop_assert_eq!(walk(&bytes), walk_growing(&bytes, grow));
        }
        for from in (0..bytes.len()).step_by(97) {
            walk_from(&mut capture.clone(), &bytes, from);
        }
    }
}
