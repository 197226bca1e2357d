//! The output has the same bytes for any number of cores and any kind of input, also when budgets
//! are reached and the input is damaged: log, packets, `dns.log`, names and counts.

mod support;

use std::io::Write;
use std::path::Path;

use larder_annotate::names::{AddressObservation, NameProtocol, Names, Standing};
use larder_annotate::options::{Endpoint, Options, OutputFormat, Rules, SortBy};
use larder_wire::Addr;
use larder_wire::capture::Capture;
use support::*;

/// Bytes of a batch of the source.
const BATCH_BYTES: usize = 1 << 20;
const MIB: u64 = 1 << 20;

fn read(path: &Path) -> Options {
    Options {
        read: vec![Endpoint::Path(path.to_owned())],
        // Enough for all names of these captures; 256 MiB would only be mapped and unmapped.
        names_budget_bytes: 32 * MIB,
        ..Options::default()
    }
}

/// Each budget that can be reached, set so that it is, and one case without.
fn pressures(options: &Options) -> Vec<(&'static str, Options)> {
    vec![
        ("at ease", options.clone()),
        ("1 MiB of names", Options { names_budget_bytes: MIB, ..options.clone() }),
        ("1000 flows", Options { flows_max: 1000, ..options.clone() }),
        (
            "64 flows, 1 MiB of names, sorted",
            Options {
                flows_max: 64,
                names_budget_bytes: MIB,
                sort_by: SortBy::Start,
                ..options.clone()
            },
        ),
    ]
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("memory");
    out.finish().expect("memory")
}

/// Every recording, in every format, with large and with small budgets. Invariant 2 of `format`,
/// and invariant 4 of `pipeline`.
#[test]
fn recordings() {
    for path in golden() {
        let options = read(&path);
        for (at, &format) in FORMATS.iter().enumerate() {
            let pressures = pressures(&options);
            let (pressure, options) = &pressures[at % pressures.len()];
            let options = Options { format, ..options.clone() };
            same_on_all_cores(&format!("{path:?} {format:?} {pressure}"), &options);
        }
    }
}

/// Every recording and every public capture, with each small budget.
#[test]
fn shortages() {
    for path in larder_testkit::captures::all() {
        for (pressure, options) in pressures(&read(&path)) {
            let options = Options { format: OutputFormat::Ecs, ..options };
            same_on_all_cores(&format!("{path:?} {pressure}"), &options);
        }
    }
}

/// A capture of many batches, with records across their boundaries, in every format and with every
/// small budget; it does reach these budgets. Invariants 2 and 4 of `pipeline`.
#[test]
fn many_batches() {
    let folder = Folder::new();
    let path = folder.keep("many.pcap", mixture(1, 8 * BATCH_BYTES).pcap());
    let pressures = pressures(&read(&path));
    // Each format with small budgets, and each small budget, but not their product: a format
    // renders records, and does not depend on the reason for their content.
    let ways = FORMATS.iter().map(|&format| (format, pressures.last().expect("ways")));
    for (format, (pressure, options)) in
        ways.chain(pressures.iter().map(|pressure| (OutputFormat::Text, pressure)))
    {
        let options = Options { format, ..options.clone() };
        let made = same_on_all_cores(&format!("{format:?} {pressure}"), &options);
        let summary = &made.summary;
        assert!(summary.flows_named > 1000, "{summary:?}");
        assert_eq!(summary.flows_evicted > 0, options.flows_max <= 1000, "{summary:?}");
        assert_eq!(summary.names_evicted > 0, options.names_budget_bytes == MIB, "{summary:?}");
    }
}

/// A mapped pcap file (the start of its batches is guessed), a compressed one (its batches are
/// walked), and the same packets as pcapng give the same output, on any number of cores.
#[test]
fn any_source() {
    let folder = Folder::new();
    let maker = mixture(2, 2 * BATCH_BYTES);
    let pcap = maker.pcap();
    let mapped = folder.keep("a.pcap", &pcap);
    let streamed = folder.keep("a.pcap.gz", gzipped(&pcap));
    for (pressure, options) in pressures(&read(&mapped)) {
        let first = same_on_all_cores(pressure, &options);
        let options = Options { read: vec![Endpoint::Path(streamed.clone())], ..options };
        let second = same_on_all_cores(pressure, &options);
        if let Some(difference) = difference(&first, &second) {
            panic!("{pressure}: a stream differs from a mapped file\n{difference}");
        }
    }
    // It has all link types, and its batches are cut at other places, so it is compared only with
    // itself.
    let pcapng = maker.pcapng();
    let mapped = folder.keep("a.pcapng", &pcapng);
    let streamed = folder.keep("a.pcapng.gz", gzipped(&pcapng));
    let first = same_on_all_cores("pcapng", &read(&mapped));
    let second = same_on_all_cores("pcapng.gz", &read(&streamed));
    assert_eq!(difference(&first, &second), None);
}

/// Several captures that overlap in time, read as one.
#[test]
fn several_captures() {
    let folder = Folder::new();
    let read_from =
        |name: &str, seed| Endpoint::Path(folder.keep(name, mixture(seed, BATCH_BYTES).pcap()));
    let options = Options {
        read: vec![read_from("a.pcap", 3), read_from("b.pcap", 4)],
        names_budget_bytes: MIB,
        ..Options::default()
    };
    same_on_all_cores("two captures", &options);
}

/// Random bytes are flipped, and lengths of records changed: the same damage is reported once, at
/// the same places, and `-w` writes the same packets, mapped or streamed.
#[test]
fn damaged() {
    let folder = Folder::new();
    for seed in 0..2 {
        let mut random = Random(seed);
        let mut pcap = mixture(5 + seed, 2 * BATCH_BYTES + BATCH_BYTES / 2).pcap();
        let mut starts = record_starts(&pcap);
        for _ in 0..200 {
            let at = 24 + random.below(pcap.len() as u64 - 24) as usize;
            pcap[at] ^= 1 << random.below(8);
        }
        // A plausible length that is wrong, one over the limit, and a range of zeros across the
        // boundary of a batch.
        for _ in 0..20 {
            let at = starts[random.below(starts.len() as u64) as usize];
            pcap[at + 8 + random.below(4) as usize] ^= 1 << random.below(8);
        }
        let edge = 2 * BATCH_BYTES;
        starts.retain(|&start| start < edge - 5000);
        let hole = *starts.last().expect("records before the edge");
        pcap[hole..edge + 5000].fill(if seed == 0 { 0 } else { 0xff });
        same_in_a_stream(&folder, &format!("damaged, seed {seed}"), &pcap);
    }
}

/// No record is found for more than a batch: the search continues from batch to batch.
#[test]
fn damaged_for_long() {
    let folder = Folder::new();
    let mut pcap = mixture(9, 5 * BATCH_BYTES).pcap();
    let hole = record_starts(&pcap)
        .into_iter()
        .find(|&start| start > BATCH_BYTES + BATCH_BYTES / 2)
        .expect("a record there");
    // At the end of each search are bytes that a reader would take for a record if it forgot that
    // it is searching: a length, and no meaning in the rest.
    let hole = &mut pcap[hole..hole + 2 * BATCH_BYTES + 12345];
    hole.fill(0xff);
    for header in hole[17..].chunks_exact_mut(16) {
        header[8..].copy_from_slice(&[100, 0, 0, 0, 50, 0, 0, 0]);
    }
    let made = same_in_a_stream(&folder, "a long hole", &pcap);
    let written = made.files["packets.pcapng"].len();
    assert!(made.summary.packets > 0 && written > 2 * BATCH_BYTES, "{written} bytes written");
}

/// Packets that contain captures: the guess of a batch's first record is wrong, and the output is
/// the same.
#[test]
fn captures_as_payload() {
    let folder = Folder::new();
    let mut inner = mixture(10, 50_000);
    inner.frames.retain(|frame| frame.bytes.len() < 1500);
    let inner = inner.pcap();
    let mut maker = Maker::new(11);
    while maker.bytes < 4 * BATCH_BYTES {
        maker.visit(4, 200);
        let ports = (2000 + maker.random.below(5) as u16, 9999);
        let ends = ([10, 0, 0, maker.random.below(9) as u8], [192, 0, 2, 99]);
        let start = maker.random.below(100) as usize;
        let payload = &inner[start..inner.len().min(start + 60_000)];
        maker.push(udp(ends, ports, payload));
    }
    let pcap = maker.pcap();
    let starts = record_starts(&pcap);
    let (capture, _) = Capture::open(&pcap).expect("a capture");
    let wrong = (1..pcap.len() / BATCH_BYTES)
        .filter(|batch| {
            let guess = capture.find_record(&pcap, batch * BATCH_BYTES);
            starts.binary_search(&guess.unwrap_or(0)).is_err()
        })
        .count();
    assert!(wrong > 0, "no guess was wrong: this test tests nothing");
    same_in_a_stream(&folder, "captures as payload", &pcap);
}

fn record_starts(pcap: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 24;
    while let Some(len) = pcap.get(at + 8..).and_then(|rest| rest.first_chunk::<4>()) {
        starts.push(at);
        at += 16 + u32::from_le_bytes(*len) as usize;
    }
    starts
}

fn same_in_a_stream(folder: &Folder, what: &str, pcap: &[u8]) -> Made {
    let mapped = folder.keep("d.pcap", pcap);
    let streamed = folder.keep("d.pcap.gz", gzipped(pcap));
    let first = same_on_all_cores(what, &read(&mapped));
    let second = same_on_all_cores(what, &read(&streamed));
    if let Some(difference) = difference(&first, &second) {
        panic!("{what}: a stream differs from a mapped file\n{difference}");
    }
    first
}

/// `-c` ends at the same packet on any number of cores, inside a batch or at its boundary, and the
/// output is that of a capture of those packets alone.
#[test]
fn first_packets() {
    let folder = Folder::new();
    let mut maker = mixture(12, 3 * BATCH_BYTES);
    maker.frames.retain(|frame| frame.link_type == ETHERNET);
    let path = folder.keep("c.pcap", maker.pcap());
    let all = maker.frames.len() as u64;
    for count in [1, 777, (all / 2) | 1, all - 1, all, all + 1] {
        let options = Options { packets_max: Some(count), ..read(&path) };
        let first = same_on_all_cores(&format!("-c {count}"), &options);
        assert_eq!(first.summary.packets, count.min(all));
        let mut cut = Maker::new(0);
        cut.frames = maker.frames[..count.min(all) as usize].to_vec();
        let cut = folder.keep("cut.pcap", cut.pcap());
        if let Some(difference) = difference(&first, &made(&read(&cut), 2)) {
            panic!("-c {count} differs from a capture of so many packets\n{difference}");
        }
    }
}

/// Each batch has so many answers that it fills the log of names several times: the run ends, and
/// the output is the same. That such a batch stalls is checked on the names themselves.
#[test]
fn stalls() {
    let (mut names, mut readers) = Names::new(MIB, 1, 7, 4, Rules::all()).expect("a budget");
    for number in 0..10_000u32 {
        names.learn(&AddressObservation {
            packet: 1,
            time_ns: 0,
            scope: Default::default(),
            client: Addr::v4([10, 0, 0, 1]),
            asked: b"www.example",
            addr: Addr::v4(number.to_be_bytes()),
            ttl_s: 1,
            learned_from: NameProtocol::Dns,
            standing: Standing::Confirmed,
            targets: &[],
        });
    }
    let mut stalls = 0;
    while names.commit().expect("a sound engine").is_none() {
        stalls += 1;
        assert!(stalls < 10_000, "a commit that never ends");
        readers.iter_mut().for_each(|reader| {
            reader.sync();
        });
    }
    assert!(stalls > 3, "{stalls} stalls in a batch: this test tests little");

    let folder = Folder::new();
    let mut maker = Maker::new(13);
    while maker.bytes < 3 * BATCH_BYTES {
        // Answers of 28 addresses or fewer, and some flows that must get their name.
        for _ in 0..50 {
            maker.visit(28, 0);
        }
        maker.visit(1, 100);
    }
    let path = folder.keep("s.pcap", maker.pcap());
    let options = Options { names_budget_bytes: MIB, ..read(&path) };
    let made = same_on_all_cores("stalls", &options);
    assert!(made.summary.names_evicted > 50_000 && made.summary.flows_named > 50);
}

/// One packet with a time far in the future ends no flow and keeps none open: the other records are those of a log
/// without the packet. Nor does it matter how many packets a batch has.
#[test]
fn one_wrong_time_moves_no_clock() {
    let folder = Folder::new();
    let mut maker = Maker::new(11);
    for second in 0..400 {
        let (client, port) = ([10, 0, 0, (second % 7) as u8], 2_000 + second as u16 % 50);
        maker.push(udp((client, [198, 51, 100, 1]), (port, 9_999), b"request"));
        if second % 30 == 0 {
            maker.push(udp(([10, 0, 0, 100], [198, 51, 100, 1]), (1, 9_999), b"it goes on"));
        }
        maker.pause(1_000_000_000);
    }
    let log = |maker: &Maker, batch_bytes| {
        let path = folder.keep("wrong.pcap", maker.pcap());
        same_on_all_cores("wrong time", &Options { batch_bytes, ..ecs(&path) }).log()
    };
    let right = log(&maker, 2_000);
    assert!(right.lines().count() > 300, "flows end");
    for batch_bytes in [60, 1 << 20] {
        assert!(log(&maker, batch_bytes) == right, "batches of {batch_bytes}");
    }
    let wrong = udp(([10, 9, 9, 9], [198, 51, 100, 1]), (1, 2), b"from the future");
    let at_ns = maker.frames[100].at_ns + (1 << 60);
    maker.frames.insert(100, Frame { at_ns, link_type: ETHERNET, bytes: wrong });
    let with_wrong = log(&maker, 2_000);
    let mut others: Vec<&str> =
        with_wrong.lines().filter(|line| !line.contains("10.9.9.9")).collect();
    let mut all: Vec<&str> = right.lines().collect();
    // Two flows wait in a list behind that packet for a minute, as those of the last minute do for the end.
    assert!(all[..200].iter().all(|line| others[..330].contains(line)));
    others.sort_unstable();
    all.sort_unstable();
    assert_eq!(others, all);
}
