//! Packets that begin in fragments: each fragment has the number of its own packet, no packet is
//! lost, and the log is the same on any number of cores, for any mutation of the capture and any
//! cut into batches.

mod support;

use std::io::Write;
use std::path::Path;

use larder_annotate::options::{Endpoint, Options, OutputFormat, SortBy};
use support::*;

const MIB: u64 = 1 << 20;

fn read(path: &Path) -> Options {
    Options {
        read: vec![Endpoint::Path(path.to_owned())],
        names_budget_bytes: MIB,
        ..Options::default()
    }
}

/// The log of these frames in ECS, which must be the same on 1, 2 and 4 cores, in one batch and in many.
fn records(frames: Vec<Vec<u8>>) -> Vec<String> {
    let folder = Folder::new();
    let options = Options { names_budget_bytes: MIB, ..ecs(&folder.capture(frames)) };
    let first = made(&options, 1);
    for cores in [2, 4] {
        assert_eq!(difference(&first, &made(&options, cores)), None, "{cores} cores");
    }
    // How the input is cut into batches depends on how it comes.
    for cores in [1, 4] {
        let cut = made(&Options { batch_bytes: 300, ..options.clone() }, cores);
        assert_eq!(first.log(), cut.log(), "batches of a few packets, {cores} cores");
    }
    first.log().lines().map(str::to_owned).collect()
}

/// The value of a key of an ECS line, as it stands there.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
    Some(rest.split([',', '}']).next().unwrap_or(rest).trim_matches('"'))
}

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [203, 0, 113, 7];

/// A fragment whose first one never comes has a record at the end of the input, with the time of its own packet: packets of
/// all records together are those of the capture.
#[test]
fn a_lone_fragment_has_a_record() {
    let parts = fragments(&udp((CLIENT, SERVER), (4000, 9999), &[7; 64]), 24, 9);
    let lines = records(vec![parts[1].clone(), udp((CLIENT, SERVER), (5, 6), b"x")]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let lone = lines.iter().find(|line| value(line, "source.port") == Some("0")).expect("a record");
    assert_eq!(value(lone, "source.packets"), Some("1"), "{lone}");
    // Records that end with the input come in the order of their first packets.
    assert_eq!(lone, &lines[0]);
}

/// Two packets of two datagrams, of which one packet releases the fragment before it, give records in the order of their own
/// packets; and a packet that ends a fragmented tunnel, and so begins two flows, gives two on any number of cores.
#[test]
fn held_fragments_keep_their_numbers() {
    let held = fragments(&udp((CLIENT, SERVER), (4000, 9999), &[7; 64]), 24, 9);
    let mut frames = vec![held[1].clone(), udp((CLIENT, SERVER), (5, 6), b"x")];
    frames.extend([held[0].clone(), held[2].clone()]);
    for id in 0..40u8 {
        let inner = udp(([10, 1, 0, id], SERVER), (4000, 80), &[1; 64]);
        frames.extend(fragments(
            &in_ip_tunnel(([192, 0, 2, id], [192, 0, 2, 250]), &inner),
            48,
            100,
        ));
    }
    let lines = records(frames);
    assert_eq!(lines.len(), 2 + 2 * 40, "{lines:#?}");
    assert_eq!(value(&lines[0], "source.port"), Some("4000"), "its first packet is packet 1");
    let starts: Vec<&str> = lines.iter().filter_map(|line| value(line, "event.start")).collect();
    assert!(starts.is_sorted(), "{starts:#?}");
}

/// A flow whose first packet waited for its ports has the name that was known when that packet came; a name that was learned
/// while it waited is late, and does not displace it.
#[test]
fn a_held_flow_has_the_name_of_its_time() {
    for is_known in [false, true] {
        let mut frames = Vec::new();
        if is_known {
            frames.extend([question(CLIENT, 4, 1, 1), answer(CLIENT, 4, 1, 1, &[SERVER])]);
        }
        let parts = fragments(&udp((CLIENT, SERVER), (4000, 9999), &[7; 64]), 24, 9);
        frames.push(parts[1].clone());
        frames.extend([question(CLIENT, 4, 2, 2), answer(CLIENT, 4, 2, 2, &[SERVER])]);
        frames.push(parts[0].clone());
        let lines = records(frames);
        let flow = lines.iter().find(|line| value(line, "destination.port") == Some("9999"));
        let flow = flow.expect("the flow");
        let named =
            (value(flow, "destination.domain"), value(flow, "larder.destination.name_late"));
        let wanted = match is_known {
            true => ("h1.larder.example", "false"),
            false => ("h2.larder.example", "true"),
        };
        assert_eq!(named, (Some(wanted.0), Some(wanted.1)), "{flow}");
    }
}

/// The rest of a long flow begins with a packet of its own time, and not with a fragment that had waited until then.
#[test]
fn a_held_fragment_begins_no_rest() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let frame = udp((CLIENT, SERVER), (4000, 9999), &[7; 64]);
    let parts = fragments(&frame, 24, 9);
    let mut maker = Maker::new(1);
    maker.push(frame.clone());
    maker.pause(11_000_000_000);
    maker.push(parts[1].clone());
    maker.push(parts[0].clone());
    maker.pause(9_000_000_000);
    maker.push(frame);
    let path = folder.path().join("f.pcap");
    std::fs::write(&path, maker.pcap()).expect("room for a capture");
    let options = Options { format: OutputFormat::Ecs, active_s: 10, ..read(&path) };
    let text = made(&options, 1).log();
    let packets: Vec<_> = text.lines().map(|line| value(line, "source.packets")).collect();
    assert_eq!(packets, [Some("3"), Some("1")], "{text}");
}

/// Captures of fragments, tunnels and damage leave the same bytes on 1, 2 and 4 cores, with batches of a few packets, of many,
/// and of all; and however they are cut, the log is the same.
///
/// `LARDER_MUTATIONS` asks for more captures, `LARDER_SEED` for others.
#[test]
fn mutated_captures() {
    let (count, seed) = (setting("LARDER_MUTATIONS", 24), setting("LARDER_SEED", 1));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut counted = 0;
    for case in 0..count {
        let seed = seed.wrapping_mul(1 << 32).wrapping_add(case);
        let mut pcap = mutated(seed).pcap();
        let mut random = Random(seed);
        if case % 5 == 4 {
            for _ in 0..4 {
                let at = 24 + random.below(pcap.len() as u64 - 24) as usize;
                pcap[at] ^= 1 << random.below(8);
            }
        }
        let path = folder.path().join("m.pcap");
        std::fs::write(&path, &pcap).expect("room for a capture");
        let (mut packets, mut log) = (None, None);
        for batch_bytes in [300, 5_000, 1 << 20] {
            let options = Options {
                batch_bytes,
                format: OutputFormat::Csv,
                // With one flow a shard nearly every packet ends a flow.
                flows_max: [64, 1_000_000][case as usize % 2],
                sort_by: [SortBy::End, SortBy::Start][usize::from(case % 7 == 0)],
                ..read(&path)
            };
            let first = made(&options, 1);
            for cores in [2, 4] {
                if let Some(difference) = difference(&first, &made(&options, cores)) {
                    panic!("seed {seed}, batches of {batch_bytes}, {cores} cores\n{difference}");
                }
            }
            let log = log.get_or_insert_with(|| first.log());
            let other = first.log();
            let lines = log.lines().zip(other.lines()).find(|(one, other)| one != other);
            assert_eq!(lines, None, "seed {seed}, batches of {batch_bytes}");
            let sum = first.log().lines().skip(1).map(packets_of).sum::<u64>();
            assert_eq!(*packets.get_or_insert(sum), sum, "seed {seed}, batches of {batch_bytes}");
            counted += sum;
        }
    }
    let told = format!("{count} captures, {counted} packets counted in records\n");
    std::io::stderr().write_all(told.as_bytes()).expect("standard error");
    assert!(counted > 100 * count, "this test tests little");
}

/// Packets of a line of CSV, both ways.
fn packets_of(line: &str) -> u64 {
    // None of the fields before it can hold a comma: times, words, numbers, addresses.
    let at = larder_annotate::format::fields::FIELDS
        .iter()
        .position(|field| field.name == "network.packets")
        .expect("a field");
    line.split(',').nth(at).and_then(|text| text.parse().ok()).expect("a number")
}
