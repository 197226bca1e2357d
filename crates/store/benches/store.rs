//! Cost of storing and finding packets: `cargo bench -p larder-store`. `cargo test` runs it with
//! small segments, as a check.
//!
//! *append*: batches of 4096 packets of 1000 flows; the time of the calls, compared with a copy of
//! the same bytes into memory of the same size, and the CPU time of the disk writer (files go into
//! the page cache). *find*: 100 segments; a name, a domain, an address, a flow, compared with a
//! scan of all packets, each in a `Finder` of its own; files are in the page cache. Best and median
//! of the rounds; rows take turns. *compressed*: the same packets, half of each noise, in segments
//! that are compressed and in others that are not; medians of pairs.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use larder_store::{
    Batch, Choice, FindOptions, Finder, FlowEvent, FlowKey, Interface, NameRole, Options, Query,
    Store,
};
use larder_wire::capture::write;
use larder_wire::naming::{NameFlags, NameSource};
use larder_wire::{Name, packet};

const PACKETS: usize = 4096;
const FLOWS: usize = 1000;

struct Scale {
    batches: usize,
    rounds: usize,
    segments: usize,
    segment_bytes: u64,
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let scale = match is_bench {
        true => Scale { batches: 256, rounds: 5, segments: 100, segment_bytes: 8 << 20 },
        false => Scale { batches: 2, rounds: 1, segments: 20, segment_bytes: 64 << 10 },
    };
    for frame_bytes in [60, 1500] {
        append(&scale, frame_bytes);
    }
    find(&scale);
    compressed(&scale);
    for flows in [FLOWS, 1 << 20] {
        grow(&scale, flows);
    }
}

/// Ethernet, IPv4, UDP between hosts of flow `flow`.
fn frame(flow: usize, frame_bytes: usize) -> Vec<u8> {
    let mut out = vec![2; 12];
    out.extend_from_slice(&[8, 0, 0x45, 0]);
    out.extend_from_slice(&(frame_bytes as u16 - 14).to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, (flow >> 8) as u8, flow as u8]);
    out.extend_from_slice(&[192, 0, (flow >> 8) as u8, flow as u8, 0x80, 1, 1, 187]);
    out.extend_from_slice(&(frame_bytes as u16 - 34).to_be_bytes());
    out.resize(frame_bytes, 0x55);
    out
}

/// Blocks of a batch, and where they begin; the first packet is of flow `first`.
fn blocks(first: usize, frame_bytes: usize) -> (Vec<u8>, Vec<u32>) {
    let (mut blocks, mut offsets) = (Vec::new(), Vec::new());
    for number in 0..PACKETS {
        offsets.push(blocks.len() as u32);
        let flow = (first + number * 7) % FLOWS;
        let frame = frame(flow, frame_bytes);
        write::packet(&mut blocks, 0, number as i64, &frame, frame_bytes as u32);
    }
    (blocks, offsets)
}

fn open(folder: &Path, segment_bytes: u64, memory_bytes: u64) -> Store {
    let mut options = Options::new(folder, 64 << 30);
    options.segment_bytes = segment_bytes;
    options.memory_bytes = memory_bytes;
    open_with(options)
}

fn open_with(options: Options) -> Store {
    let interface = Interface { name: "eth0".into(), link_type: 1, snap_bytes: 0 };
    Store::open(options, &[interface]).expect("a folder for the bench")
}

fn batch<'a>(
    blocks: &'a [u8],
    offsets: &'a [u32],
    first_packet: &mut u64,
    events: &'a [FlowEvent],
) -> Batch<'a> {
    let first = *first_packet;
    *first_packet += offsets.len() as u64;
    Batch { blocks, offsets, first_packet: first, events }
}

/// CPU time of all threads of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0u64);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

fn append(scale: &Scale, frame_bytes: usize) {
    let (blocks, offsets) = blocks(0, frame_bytes);
    let memory_bytes = 256u64 << 20;
    let batches = scale.batches.min((memory_bytes as usize / 2) / blocks.len());
    let packets = batches * PACKETS;
    let (mut copies, mut appends) = (Vec::new(), Vec::new());
    let (mut wholes, mut cpus) = (Vec::new(), Vec::new());
    let mut memory = vec![1u8; batches * blocks.len()];
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = Options::new(folder.path(), 1 << 30);
    options.memory_bytes = memory_bytes;
    let mut store = open_with(options);
    let counts = store.counts().clone();
    let mut next = 1;
    // The first rounds touch all of the memory, which is not measured.
    let warm = if scale.rounds == 1 { 0 } else { 4 };
    for round in 0..warm + scale.rounds {
        let start = Instant::now();
        for room in memory.chunks_exact_mut(blocks.len()) {
            room.copy_from_slice(black_box(&blocks));
        }
        let copied = start.elapsed();
        let (start, cpu_start) = (Instant::now(), cpu());
        for _ in 0..batches {
            store.append(&batch(&blocks, &offsets, &mut next, &[])).expect("a sound batch");
        }
        let appended = start.elapsed();
        while counts.bytes_written.load(Relaxed) < counts.bytes.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if round >= warm {
            copies.push(copied);
            appends.push(appended);
            wholes.push(start.elapsed());
            cpus.push((cpu() - cpu_start).saturating_sub(appended));
        }
    }
    store.finish().expect("the end");
    assert_eq!(counts.packets.load(Relaxed), ((warm + scale.rounds) * packets) as u64);
    assert_eq!(counts.packets_dropped.load(Relaxed), 0);
    let show = |what: &str, mut times: Vec<Duration>| {
        times.sort();
        let ns = |time: Duration| time.as_nanos() as f64 / packets as f64;
        let (best, middle) = (ns(times[0]), ns(times[times.len() / 2]));
        println!(
            "append {frame_bytes:>5} B  {what:<22} best {best:>7.1} middle {middle:>7.1} ns a packet ({:.2} Mpps)",
            1e3 / best
        );
    };
    show("memcpy", copies);
    show("append", appends);
    show("writer's thread, CPU", cpus);
    show("until all is in files", wholes);
}

fn key(flow: usize) -> FlowKey {
    FlowKey::of(&packet::decode(1, &frame(flow, 60)).expect("a packet")).0
}

/// The name of a flow: below one of ten domains.
fn name(flow: usize) -> Name {
    let text = format!("host{flow}.domain{}.example", flow % 10);
    Name::from_text(text.as_bytes()).expect("a name")
}

fn find(scale: &Scale) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = open(folder.path(), scale.segment_bytes, 256 << 20);
    let mut next = 1;
    let (blocks, offsets) = blocks(0, 500);
    let mut is_first = true;
    loop {
        let last = store.catalog().last();
        if last.is_some_and(|last| last.number as usize + 1 >= scale.segments && last.packets > 0) {
            break;
        }
        let events: Vec<FlowEvent> = (0..FLOWS).filter(|_| is_first).map(event).collect();
        is_first = false;
        store.append(&batch(&blocks, &offsets, &mut next, &events)).expect("a sound batch");
        // Nothing may be dropped.
        let counts = store.counts();
        while counts.bytes.load(Relaxed) > counts.bytes_written.load(Relaxed) + (64 << 20) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let counts = store.counts().clone();
    store.finish().expect("the end");
    assert_eq!(counts.packets_dropped.load(Relaxed), 0);
    println!(
        "find in {} segments of {} KiB: {} packets, {:.1} MB with indexes",
        counts.segments_closed.load(Relaxed),
        scale.segment_bytes >> 10,
        counts.packets.load(Relaxed),
        counts.bytes_kept.load(Relaxed) as f64 / 1e6
    );
    let words = [
        ("nothing", "nobody.example".to_owned()),
        ("a name", name(123).to_string()),
        ("a domain", "*.domain7.example".to_owned()),
        ("an address", "10.0.0.123".to_owned()),
        ("a flow", "10.0.0.123:32769-192.0.0.123:443/udp".to_owned()),
        ("sure names", "name ~ * and confidence >= 90".to_owned()),
    ];
    for (what, word) in words {
        let query = Query::read(&word, 0).expect("a query");
        let found = search(folder.path(), &query, false, scale.rounds);
        let scanned = search(folder.path(), &query, true, 1);
        assert_eq!((found.packets, found.sum), (scanned.packets, scanned.sum), "both see the same");
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "find {what:<11} {:>8} packets  {:>9.2} ms, the first {:>6.2} ms   scan {:>9.1} ms   1 / {:.0}",
            found.packets,
            ms(found.all),
            ms(found.first),
            ms(scanned.all),
            ms(scanned.all) / ms(found.all)
        );
    }
}

struct Searched {
    packets: u64,
    /// Of all bytes.
    sum: u64,
    all: Duration,
    /// Until the first packet, or the end where there is none.
    first: Duration,
}

/// The shortest times of some rounds.
fn search(folder: &Path, query: &Query, is_scan: bool, rounds: usize) -> Searched {
    let mut best = Searched { packets: 0, sum: 0, all: Duration::MAX, first: Duration::MAX };
    for _ in 0..rounds {
        let (mut sum, mut first, start) = (0, None, Instant::now());
        let mut visit = |packet: larder_store::FoundPacket<'_>| {
            first.get_or_insert_with(|| start.elapsed());
            sum += packet.frame.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            ControlFlow::Continue(())
        };
        let mut finder = Finder::open(folder).expect("the folder");
        let options = FindOptions::default();
        let summary = match is_scan {
            false => finder.find(query, options, &mut visit),
            true => finder.scan(query, options, &mut visit),
        };
        let all = start.elapsed();
        best.packets = summary.expect("a search").packets;
        (best.sum, best.all) = (sum, best.all.min(all));
        best.first = best.first.min(first.unwrap_or(all));
    }
    best
}

/// Fills a folder with segments of packets whose payload is half noise. Flow 0 has few packets, and the
/// others have as many as each other.
fn fill(scale: &Scale, folder: &Path, compress: bool) {
    let mut options = Options::new(folder, 64 << 30);
    (options.segment_bytes, options.compress) = (scale.segment_bytes, compress);
    options.finishes_work = true;
    let mut store = open_with(options);
    let counts = store.counts().clone();
    let (mut next, mut noise) = (1, 88_172_645_463_325_252u64);
    while counts.bytes.load(Relaxed) < scale.segment_bytes * scale.segments as u64 {
        let (mut blocks, mut offsets) = (Vec::new(), Vec::new());
        for number in 0..PACKETS.min(scale.segment_bytes as usize / 2000) {
            offsets.push(blocks.len() as u32);
            // One packet in some segments is of flow 0.
            let flow = if (next as usize + number) % 100_000 == 1 { 0 } else { 1 + number % 9 };
            let mut frame = frame(flow, 600);
            for word in frame[42..].as_chunks_mut::<8>().0.iter_mut().skip(30) {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                *word = noise.to_le_bytes();
            }
            write::packet(&mut blocks, 0, number as i64, &frame, 600);
        }
        let events: Vec<FlowEvent> = (0..10).filter(|_| next == 1).map(event).collect();
        store.append(&batch(&blocks, &offsets, &mut next, &events)).expect("a sound batch");
        while counts.bytes.load(Relaxed) > counts.bytes_written.load(Relaxed) + (64 << 20) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    store.finish().expect("the end");
    assert_eq!(counts.packets_dropped.load(Relaxed), 0);
    println!("compressed: {compress}, {:.1} MB", counts.bytes_kept.load(Relaxed) as f64 / 1e6);
}

/// A flow that has its name from the first packet on.
fn event(flow: usize) -> FlowEvent {
    FlowEvent {
        key: key(flow),
        first_packet: 1,
        start_ns: 0,
        end_packet: None,
        last_ns: 0,
        source_is_low: true,
        names: vec![(NameRole::Destination, name(flow))],
        // Those of one in three flows are sure.
        choices: [Some(choice(90 - (flow % 3 * 10) as u8)), None],
    }
}

fn choice(confidence: u8) -> Choice {
    Choice { source: NameSource::ALL[0], flags: NameFlags::NONE, confidence }
}

fn compressed(scale: &Scale) {
    let folders = [false, true].map(|compress| {
        let folder = tempfile::tempdir().expect("a folder");
        fill(scale, folder.path(), compress);
        folder
    });
    for (what, word) in [
        ("no packets", "nothing.example".to_owned()),
        ("few packets", name(0).to_string()),
        ("a ninth of all", name(1).to_string()),
        ("all packets", "*.example".to_owned()),
    ] {
        let query = Query::read(&word, 0).expect("a query");
        let (mut times, mut found) = ([Vec::new(), Vec::new()], [(0, 0); 2]);
        for _ in 0..scale.rounds {
            for (at, folder) in folders.iter().enumerate() {
                let (mut sum, start) = (0u64, Instant::now());
                let mut visit = |packet: larder_store::FoundPacket<'_>| {
                    sum += packet.frame.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                    ControlFlow::Continue(())
                };
                let mut finder = Finder::open(folder.path()).expect("the folder");
                let summary = finder.find(&query, FindOptions::default(), &mut visit);
                found[at] = (summary.expect("a search").packets, sum);
                times[at].push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        assert_eq!(found[0], found[1], "both find the same");
        let [plain, compressed] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        println!(
            "compressed: {what:<15} {:>8} packets  {plain:>9.2} ms, compressed {compressed:>9.2} ms: {:.2} times",
            found[0].0,
            compressed / plain
        );
    }
}

/// The growing segment has no index yet: a search reads it whole. Also the time for its index when
/// it is closed, with many packets a flow and with one.
fn grow(scale: &Scale, flows: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let segment_bytes = scale.segment_bytes * 8;
    let mut store = open(folder.path(), segment_bytes, 512 << 20);
    let mut next = 1;
    let mut flow = 0;
    loop {
        let (mut blocks, mut offsets) = (Vec::new(), Vec::new());
        for number in 0..PACKETS.min(segment_bytes as usize / 200) {
            offsets.push(blocks.len() as u32);
            let mut frame = frame(0, 60);
            frame[26..30].copy_from_slice(&(flow % flows as u32).to_be_bytes());
            write::packet(&mut blocks, 0, number as i64, &frame, 60);
            flow += 1;
        }
        let bytes = store.catalog().last().map_or(0, |last| last.bytes);
        if bytes + blocks.len() as u64 > segment_bytes - 4096 {
            break;
        }
        store.append(&batch(&blocks, &offsets, &mut next, &[])).expect("a sound batch");
    }
    let counts = store.counts().clone();
    while counts.bytes_written.load(Relaxed) < counts.bytes.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let packets = counts.packets.load(Relaxed);
    let look = || {
        let mut best = Duration::MAX;
        for _ in 0..scale.rounds {
            let start = Instant::now();
            let mut finder = Finder::open(folder.path()).expect("the folder");
            let query = Query::parse(&["0.0.0.7"]).expect("a word");
            let mut visit = |_: larder_store::FoundPacket<'_>| ControlFlow::Continue(());
            let found = finder.find(&query, FindOptions::default(), &mut visit);
            best = best.min(start.elapsed());
            assert!(found.expect("a search").packets > 0);
        }
        best.as_secs_f64() * 1e3
    };
    let growing = look();
    let (start, cpu_start) = (Instant::now(), cpu());
    store.finish().expect("the end");
    let (closed, closed_cpu) = (start.elapsed(), cpu() - cpu_start);
    let bytes = counts.bytes_kept.load(Relaxed) - counts.bytes.load(Relaxed);
    println!(
        "one segment, {packets} packets of {} flows: found in {growing:.1} ms while it grows, {:.2} ms when closed; closing took {:.1} ms (CPU {} ms); {:.1} sum of index a packet",
        flows.min(packets as usize),
        look(),
        closed.as_secs_f64() * 1e3,
        closed_cpu.as_millis(),
        bytes as f64 / packets as f64
    );
}
