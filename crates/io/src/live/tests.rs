//! Interfaces in networks of the tests' own, a pair `c0`, `c1`: frames sent by `c1` are captured at
//! `c0`. Every wait is bounded.

mod interfaces;
mod queues;

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use larder_wire::capture::Step;
use larder_wire::filter::Instruction;

use super::block::Link;
use super::ring::LONG_FROM_BYTES;
use super::*;
use crate::batch::{Batch, Polled, Source, SourceOptions};
use crate::testing::{ip, skip, with_network};
use larder_testkit::frames::udp_frame;

const WAIT: Duration = Duration::from_secs(10);

/// A pair that sends nothing by itself, and has the same index when it is created again.
const PAIR: &[&str] = &[
    "link add c0 index 77 type veth peer name c1",
    "link set c0 addrgenmode none arp off",
    "link set c1 addrgenmode none arp off",
    "link set c0 up",
    "link set c1 up",
];

fn options(interface: &str) -> LiveOptions {
    LiveOptions {
        interfaces: vec![interface.to_owned()],
        ring_bytes: 8 << 20,
        ..LiveOptions::default()
    }
}

/// A source, and its counters.
fn source(options: &LiveOptions) -> (Source, Arc<LiveCounts>) {
    let live = Live::open(options).unwrap();
    let counts = live.counts();
    (Source::live(live, SourceOptions::default()), counts)
}

/// Sends frames by an interface.
struct Generator {
    socket: OwnedFd,
    index: libc::c_int,
}

impl Generator {
    fn new(interface: &str) -> Generator {
        let socket = socket::open(Link::Ethernet).unwrap();
        let index = socket::find(&socket, interface).unwrap().unwrap().index;
        Generator { socket, index }
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: all zeros is a valid address.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = self.index;
        to.sll_protocol = (libc::ETH_P_IP as u16).to_be();
        let bytes = size_of_val(&to) as libc::socklen_t;
        // SAFETY: the kernel reads the frame and the address, which have the lengths given.
        let sent = unsafe {
            let (start, count) = (frame.as_ptr().cast(), frame.len());
            libc::sendto(self.socket.as_raw_fd(), start, count, 0, (&raw const to).cast(), bytes)
        };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }
}

/// A UDP frame between two ports, with a number and `more` further bytes.
fn frame(ports: (u16, u16), number: u32, more: usize) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(4 + more, number as u8);
    udp_frame(([192, 0, 2, 1], [192, 0, 2, 2]), ports, &payload)
}

/// A frame as it was captured.
#[derive(Debug)]
struct Seen {
    ts_ns: i64,
    interface: u32,
    link_type: u16,
    original_len: u32,
    frame: Vec<u8>,
}

impl Seen {
    /// The number that [`frame`] put in.
    fn number(&self) -> u32 {
        u32::from_be_bytes(*self.frame[42..].first_chunk().unwrap())
    }
}

/// The records of a batch, all of which must be sound.
fn records(batch: &Batch) -> Vec<Seen> {
    assert_eq!((batch.start, batch.limit, batch.partial), (Some(0), batch.bytes.len(), false));
    let (mut capture, mut offset) = (batch.capture.clone(), 0);
    let mut found = Vec::new();
    loop {
        match capture.next(&batch.bytes, offset, batch.at_end) {
            Step::Record(record) => {
                offset = record.next_offset;
                let (ts_ns, interface) = (record.ts_ns, record.interface);
                let (link_type, original_len) = (record.link_type, record.original_len);
                let frame = record.frame.to_vec();
                found.push(Seen { ts_ns, interface, link_type, original_len, frame });
            }
            Step::End => return found,
            step => panic!("{step:?}"),
        }
    }
}

/// Reads until `count` frames have arrived, and checks that no more do for a moment.
fn receive(source: &mut Source, count: usize) -> Vec<Seen> {
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    let mut all = Vec::new();
    while all.len() < count {
        assert!(start.elapsed() < WAIT, "{} of {count} came", all.len());
        if let Polled::Batch(batch) = source.poll_batch(&stop) {
            all.extend(records(&batch));
        }
    }
    assert_eq!(all.len(), count);
    all
}

/// Stops, and reads to the end.
fn drain(source: &mut Source) -> Vec<Seen> {
    let (stop, start) = (AtomicBool::new(true), Instant::now());
    let mut all = Vec::new();
    loop {
        assert!(start.elapsed() < WAIT, "there is an end");
        match source.poll_batch(&stop) {
            Polled::Batch(batch) => all.extend(records(&batch)),
            Polled::Later => {}
            Polled::End => return all,
        }
    }
}

/// Every frame arrives once, in order, with its bytes, its length and a current stamp, in
/// consecutive batches. Silence is `Later`; a stop gives the frames before it; counters are exact.
/// Invariants 1 and 2.
#[test]
fn every_frame_comes_once() {
    with_network("live::every_frame_comes_once", PAIR, || {
        let (mut source, counts) = source(&options("c0"));
        let never = AtomicBool::new(false);
        assert!(matches!(source.poll_batch(&never), Polled::Later));
        let generator = Generator::new("c1");
        let sent: Vec<Vec<u8>> =
            (0..3000).map(|n| frame((1, n as u16), n, n as usize % 1400)).collect();
        let begun = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
        sent.iter().for_each(|frame| generator.send(frame));
        let seen = receive(&mut source, sent.len());
        let mut last_ns = begun;
        for (seen, sent) in seen.iter().zip(&sent) {
            assert_eq!(&seen.frame, sent);
            assert_eq!((seen.original_len as usize, seen.link_type), (sent.len(), 1));
            assert!(seen.ts_ns >= last_ns, "{} after {last_ns}", seen.ts_ns);
            last_ns = seen.ts_ns;
        }
        // A stop does not lose frames in a block that the kernel still fills.
        generator.send(&sent[7]);
        let rest = drain(&mut source);
        assert_eq!(rest.iter().map(Seen::number).collect::<Vec<_>>(), [7]);
        let counts = &counts.interfaces()[0];
        assert_eq!((counts.received.load(Relaxed), counts.dropped.load(Relaxed)), (3001, 0));
        assert_eq!((counts.delivered.load(Relaxed), counts.malformed.load(Relaxed)), (3001, 0));
        assert!(counts.is_up.load(Relaxed));
    });
}

/// Tags of VLANs arrive as they were sent, one or two, also those that the kernel removes on the
/// way.
#[test]
fn tags_are_as_sent() {
    with_network("live::tags_are_as_sent", PAIR, || {
        let (mut source, _) = source(&options("c0"));
        let generator = Generator::new("c1");
        let plain = frame((1, 2), 9, 40);
        let tagged = |tags: &[u8]| {
            let mut frame = plain.clone();
            frame.splice(12..12, tags.iter().copied());
            frame
        };
        let sent = [
            tagged(&[0x81, 0, 0x60, 5]),
            tagged(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8]),
            plain.clone(),
        ];
        sent.iter().for_each(|frame| generator.send(frame));
        let seen = receive(&mut source, 3);
        for (seen, sent) in seen.iter().zip(&sent) {
            assert_eq!((&seen.frame, seen.original_len as usize), (sent, sent.len()));
        }
    });
}

/// With rings too small for the traffic, lost frames are counted exactly, and the others are whole
/// and in order; a consumer that holds all batches does not make the source wait, and may take the
/// rest afterwards.
#[test]
fn floods_are_counted() {
    with_network("live::floods_are_counted", PAIR, || {
        let options = LiveOptions { ring_bytes: 1, ..options("c0") };
        let live = Live::open(&options).unwrap();
        let counts = live.counts();
        let mut source = Source::live(live, SourceOptions { batch_bytes: 1, in_flight: 1 });
        let generator = Generator::new("c1");
        generator.send(&frame((1, 2), 0, 1000));
        let never = AtomicBool::new(false);
        let start = Instant::now();
        let held = loop {
            assert!(start.elapsed() < WAIT);
            if let Polled::Batch(batch) = source.poll_batch(&never) {
                break batch;
            }
        };
        for n in 1..=2000 {
            generator.send(&frame((1, 2), n, 1000));
        }
        assert!(matches!(source.poll_batch(&never), Polled::Later));
        let mut seen = records(&held);
        drop(held);
        seen.extend(drain(&mut source));
        let numbers: Vec<u32> = seen.iter().map(Seen::number).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        let counts = &counts.interfaces()[0];
        let (received, dropped) = (counts.received.load(Relaxed), counts.dropped.load(Relaxed));
        assert!((1..2000).contains(&numbers.len()), "{}", numbers.len());
        assert_eq!((received, received + dropped), (numbers.len() as u64, 2001));
        assert!(counts.freezes.load(Relaxed) > 0);
    });
}

/// Several rings share an interface by flows, both directions of one by the same ring. They give
/// one sequence in order of time without a loss, and the counters of each ring agree with that.
#[test]
fn rings_share_by_flow() {
    with_network("live::rings_share_by_flow", PAIR, || {
        let options = LiveOptions { rings: 2, ..options("c0") };
        let generator = Generator::new("c1");
        let sent: Vec<Vec<u8>> = (0..2000u32)
            .map(|n| {
                let (a, b) = ((n % 50) as u16 + 1000, 53);
                let mut frame = frame(if n % 2 == 0 { (a, b) } else { (b, a) }, n, 10);
                if n % 2 == 1 {
                    // The other direction.
                    frame[29] = 2;
                    frame[33] = 1;
                }
                frame
            })
            .collect();
        // The rings show which flow each of them got.
        let mut live = Live::open(&options).unwrap();
        sent.iter().for_each(|frame| generator.send(frame));
        std::thread::sleep(Duration::from_millis(100));
        let mut ring_of = HashMap::new();
        let mut came = [0; 2];
        let usual = live.lines.iter_mut().filter(|line| line.frames == Frames::Usual);
        for (number, line) in usual.enumerate() {
            line.ring.discover(0);
            let mut out = Vec::new();
            while line.ring.head_ns().is_some() {
                let shape = live.interfaces[0].shape;
                came[number] += line.ring.copy(&shape, u64::MAX, usize::MAX, &mut out).frames;
            }
            let mut bytes = Vec::new();
            write::section(&mut bytes, "t");
            write::interface(&mut bytes, 1, 0);
            bytes.extend_from_slice(&out);
            let (mut capture, mut offset) = larder_wire::capture::Capture::open(&bytes).unwrap();
            loop {
                match capture.next(&bytes, offset, true) {
                    Step::Record(record) => {
                        let port = |at: usize| {
                            u16::from_be_bytes([record.frame[at], record.frame[at + 1]])
                        };
                        let flow = port(34).max(port(36));
                        assert_eq!(*ring_of.entry(flow).or_insert(number), number, "{flow}");
                        offset = record.next_offset;
                    }
                    Step::Meta { next_offset } => offset = next_offset,
                    Step::End => break,
                    step => panic!("{step:?}"),
                }
            }
        }
        assert_eq!(came[0] + came[1], 2000);
        assert!(came[0] > 0 && came[1] > 0, "{came:?}");
        drop(live);

        let (mut source, counts) = source(&options);
        sent.iter().for_each(|frame| generator.send(frame));
        let seen = receive(&mut source, sent.len());
        assert!(seen.windows(2).all(|pair| pair[0].ts_ns <= pair[1].ts_ns));
        let mut numbers: Vec<u32> = seen.iter().map(Seen::number).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..2000));
        assert!(drain(&mut source).is_empty());
        assert_eq!(counts.interfaces()[0].received.load(Relaxed), 2000);
    });
}

/// Frames that arrive while others are read, by rings whose blocks are full or old at different
/// times, are in order of time and complete.
#[test]
fn rings_keep_in_step() {
    with_network("live::rings_keep_in_step", PAIR, || {
        for rings in [2, 3] {
            let (mut source, _) = source(&LiveOptions { rings, ..options("c0") });
            let sending = std::thread::spawn(|| {
                let generator = Generator::new("c1");
                for n in 0..6000u32 {
                    // One flow is busy, others have a frame now and then; and there are pauses of
                    // all lengths.
                    let flow = if n % 7 == 0 { n as u16 } else { 1 };
                    generator.send(&frame((flow, 53), n, n as usize % 1000));
                    if n % 100 == 0 {
                        std::thread::sleep(Duration::from_micros(u64::from(n)));
                    }
                }
            });
            let seen = receive(&mut source, 6000);
            sending.join().unwrap();
            assert!(seen.iter().map(Seen::number).eq(0..6000));
            assert!(seen.windows(2).all(|pair| pair[0].ts_ns <= pair[1].ts_ns));
        }
    });
}

/// Each frame has the interface that received it, and all are in order of time. Invariant 2.
#[test]
fn interfaces_are_distinguished() {
    with_network("live::interfaces_are_distinguished", PAIR, || {
        let both = ["c0".to_owned(), "c1".to_owned()];
        let options = LiveOptions { interfaces: both.to_vec(), ..options("") };
        let (mut source, _) = source(&options);
        assert_eq!(source.name(), "c0,c1");
        let generator = Generator::new("c1");
        for n in 0..100 {
            generator.send(&frame((1, 2), n, 0));
        }
        // Each is sent by one and received by the other.
        let seen = receive(&mut source, 200);
        assert!(seen.windows(2).all(|pair| pair[0].ts_ns <= pair[1].ts_ns));
        for interface in 0..2 {
            let numbers = seen.iter().filter(|seen| seen.interface == interface).map(Seen::number);
            assert!(numbers.eq(0..100));
        }
    });
}

/// A filter applies from the first frame on, and frames are cut as configured, with their original
/// length.
#[test]
fn filters_and_snap_lengths() {
    with_network("live::filters_and_snap_lengths", PAIR, || {
        let instruction = |code, jt, jf, k| Instruction { code, jt, jf, k };
        // ldh [36]; jeq #53; ret #262144; ret #0
        let filter = vec![
            instruction(0x28, 0, 0, 36),
            instruction(0x15, 0, 1, 53),
            instruction(0x06, 0, 0, 262_144),
            instruction(0x06, 0, 0, 0),
        ];
        for rings in [1, 2] {
            let options =
                LiveOptions { filter: filter.clone(), rings, snap_bytes: 50, ..options("c0") };
            let (mut source, counts) = source(&options);
            let generator = Generator::new("c1");
            for n in 0..100 {
                generator.send(&frame((n, 50 + n % 5), u32::from(n), 100));
            }
            let mut seen = receive(&mut source, 20);
            seen.extend(drain(&mut source));
            let mut numbers: Vec<u32> = seen.iter().map(Seen::number).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq((3..100).step_by(5)));
            assert!(seen.iter().all(|s| (s.frame.len(), s.original_len) == (50, 146)));
            assert_eq!(counts.interfaces()[0].received.load(Relaxed), 20);
        }
        let bad = vec![instruction(0xffff, 0, 0, 0)];
        let refused = Live::open(&LiveOptions { filter: bad, ..options("c0") }).unwrap_err();
        assert!(refused.to_string().contains("does not take the filter"), "{refused}");
    });
}

/// Packets to ourselves pass the loopback twice and count once, by its name and by `any`, which
/// puts a header before IP.
#[test]
fn the_loopback_counts_once() {
    with_network("live::the_loopback_counts_once", &[], || {
        for (interface, link_type, ip_at) in [("lo", 1, 14), (ANY, 276, 20)] {
            let (mut source, counts) = source(&options(interface));
            assert_eq!(link_type, super::link_type(interface).unwrap());
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let at = socket.local_addr().unwrap();
            for n in 0..50u8 {
                socket.send_to(&[n; 9], at).unwrap();
            }
            let seen = receive(&mut source, 50);
            for (n, seen) in seen.iter().enumerate() {
                assert_eq!(seen.link_type, link_type);
                assert_eq!(seen.frame[ip_at..][28..], [n as u8; 9]);
            }
            assert!(drain(&mut source).is_empty());
            assert_eq!(counts.interfaces()[0].delivered.load(Relaxed), 50);
        }
    });
}

/// A stop ends the reading although frames come without a pause. The first half of invariant 3.
#[test]
fn a_stop_ends_what_goes_on() {
    with_network("live::a_stop_ends_what_goes_on", PAIR, || {
        for rings in [1, 2] {
            let (mut source, _) = source(&LiveOptions { rings, ..options("c0") });
            let has_ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let generator = Generator::new("c1");
                    for n in 0.. {
                        if has_ended.load(Relaxed) {
                            break;
                        }
                        generator.send(&frame((n as u16, 2), n, 0));
                    }
                });
                let never = AtomicBool::new(false);
                let start = Instant::now();
                while !matches!(source.poll_batch(&never), Polled::Batch(_)) {
                    assert!(start.elapsed() < WAIT);
                }
                drain(&mut source);
                has_ended.store(true, Relaxed);
            });
        }
    });
}

/// Counters of a capture that has ended do not keep its rings alive. They have all frames that the
/// kernel counted, and nothing more is received.
#[test]
fn counts_outlive_the_capture() {
    with_network("live::counts_outlive_the_capture", PAIR, || {
        let (source, counts) = source(&options("c0"));
        let generator = Generator::new("c1");
        generator.send(&frame((1, 2), 3, 0));
        drop(source);
        generator.send(&frame((1, 2), 4, 0));
        counts.refresh();
        let counts = &counts.interfaces()[0];
        assert_eq!((counts.received.load(Relaxed), counts.delivered.load(Relaxed)), (1, 0));
        let start = Instant::now();
        // A process that another test starts has our descriptors until it executes its program.
        loop {
            let open = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
            if open.lines().count() == 2 {
                break;
            }
            assert!(start.elapsed() < WAIT, "the head and the generator: {open}");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Rings have whole blocks, at least two, and no more bytes than requested if that is enough.
#[test]
fn rings_have_whole_blocks() {
    for (requested, blocks, long_blocks) in
        [(0, 2, 2), (300 << 10, 9, 2), (1 << 20, 32, 8), (64 << 20, 2_048, 512)]
    {
        for (frames, blocks) in [(Frames::Usual, blocks), (Frames::Long, long_blocks)] {
            let (bytes, count) = ring::geometry(requested, frames);
            assert_eq!(count, blocks);
            assert!(bytes.is_power_of_two());
            assert!(count == 2 || (bytes * count) as u64 <= requested);
            let (bytes, count) = ring::geometry(u64::MAX, frames);
            assert_eq!(bytes * count, 1 << 31);
        }
    }
}

/// While the capture does not read, slow traffic does not use up the ring. Frames so far apart that
/// each has its own block all exist afterwards, 24 in a ring of 1 MiB. With blocks of 256 KiB four
/// of them did.
#[test]
fn a_stall_costs_no_slow_traffic() {
    with_network("live::a_stall_costs_no_slow_traffic", PAIR, || {
        let options = LiveOptions { ring_bytes: 1 << 20, ..options("c0") };
        let (mut source, counts) = source(&options);
        let generator = Generator::new("c1");
        for n in 0..24 {
            generator.send(&frame((1, 2), n, 0));
            // Longer than a block's time; if it takes longer still, nothing is different.
            std::thread::sleep(Duration::from_millis(2 * u64::from(options.batch_ms)));
        }
        assert!(receive(&mut source, 24).iter().map(Seen::number).eq(0..24));
        assert_eq!(counts.interfaces()[0].dropped.load(Relaxed), 0);
    });
}

/// Frames longer than a block, as cards merge them, arrive whole, once, and in order with the
/// others. So do cut ones, and those where the snap length fits into a block.
#[test]
fn long_frames_come_whole() {
    const LONG_PAIR: &[&str] = &[
        PAIR[0],
        PAIR[1],
        PAIR[2],
        "link set c0 mtu 65535",
        "link set c1 mtu 65535",
        PAIR[3],
        PAIR[4],
    ];
    with_network("live::long_frames_come_whole", LONG_PAIR, || {
        const FRAME_BYTES: usize = 46;
        let edge = LONG_FROM_BYTES - FRAME_BYTES;
        let lengths = [0, 65_000, 0, edge, edge + 1, 1_400, 65_000, 40_000, 0];
        let sent: Vec<Vec<u8>> =
            (0..90).map(|n| frame((1, 2), n, lengths[n as usize % lengths.len()])).collect();
        for (rings, snap_bytes) in [(1, 256 << 10), (2, 256 << 10), (1, 50_000), (1, 2_000)] {
            let (mut source, counts) = source(&LiveOptions { rings, snap_bytes, ..options("c0") });
            let generator = Generator::new("c1");
            sent.iter().for_each(|frame| generator.send(frame));
            let seen = receive(&mut source, sent.len());
            for (seen, sent) in seen.iter().zip(&sent) {
                assert_eq!(seen.frame, sent[..sent.len().min(snap_bytes as usize)]);
                assert_eq!(seen.original_len as usize, sent.len());
            }
            assert!(drain(&mut source).is_empty());
            let counts = &counts.interfaces()[0];
            assert_eq!((counts.received.load(Relaxed), counts.dropped.load(Relaxed)), (90, 0));
        }
    });
}
