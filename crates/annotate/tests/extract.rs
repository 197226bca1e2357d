//! `larder extract`: the packets that it takes teach what the whole capture teaches.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_annotate::Progress;
use larder_annotate::extract::{Extracted, extract};
use larder_annotate::options::{Endpoint, Options};
use larder_testkit::frames::ethernet;
use larder_wire::capture;
use larder_wire::note::{self, Note, Rules};
use support::*;

const ARP: u16 = 0x0806;

/// Extracts on any number of cores and from batches of any size: the bytes are the same.
fn extracted(capture: &Path, folder: &Folder) -> (PathBuf, Extracted) {
    let made = |cores, batch_bytes| {
        let to = folder.path(&format!("names-{cores}-{batch_bytes}.pcapng"));
        let output = Endpoint::Path(to.clone());
        let options = Options { cores, batch_bytes, output, ..ecs(capture) };
        let (_, counts) = extract(&options, &Arc::new(Progress::default())).expect("a capture");
        (std::fs::read(&to).expect("the packets"), counts, to)
    };
    let (bytes, counts, path) = made(1, 1 << 20);
    for (cores, batch_bytes) in [(2, 1 << 20), (4, 20_000), (1, 3_000)] {
        let other = made(cores, batch_bytes);
        assert_eq!((&other.0, other.1), (&bytes, counts), "{cores} cores, {batch_bytes}");
    }
    (path, counts)
}

fn with_names(log: &Path, names: &Path) -> Options {
    let names_read = vec![Endpoint::Path(names.to_owned())];
    Options { names_read, ..ecs(log) }
}

/// Whatever the traffic is and wherever it is cut, between packets in order of time: the part before, reduced,
/// teaches what the whole part teaches. The logs of the rest, the names at the end and the packets with names are the
/// same bytes.
///
/// `LARDER_MUTATIONS` asks for more captures, `LARDER_SEED` for others.
#[test]
fn a_reduced_capture_teaches_the_same() {
    let (count, seed) = (setting("LARDER_MUTATIONS", 12), setting("LARDER_SEED", 1));
    let (mut all, mut taken, mut named) = (0, 0, 0);
    for case in 0..count {
        let seed = seed.wrapping_mul(1 << 32).wrapping_add(case);
        let Maker { frames, mut random, .. } = traffic(seed);
        let mut cut = random.below(frames.len() as u64) as usize;
        while !is_in_order(&frames, cut) {
            cut -= 1;
        }
        let folder = Folder::new();
        let keep = |name: &str, frames: &[Frame]| {
            let mut maker = Maker::new(0);
            maker.frames = frames.to_vec();
            folder.keep(name, maker.pcapng())
        };
        let (before, rest) =
            (keep("before.pcapng", &frames[..cut]), keep("rest.pcapng", &frames[cut..]));
        let (reduced, counts) = extracted(&before, &folder);
        let mut whole = made(&with_names(&rest, &before), 1);
        let mut part = made(&with_names(&rest, &reduced), 2);
        for made in [&mut whole, &mut part] {
            // These have numbers of packets, or depend on how the input is cut into batches.
            made.files.retain(|name, _| name == "log" || name == "names");
            // More packets, and more damage among them.
            made.summary.packets_for_names = 0;
            made.summary.input_bytes = 0;
            made.summary.damaged.clear();
            made.summary.skipped.clear();
            made.summary.input_damaged = false;
        }
        if let Some(difference) = difference(&whole, &part) {
            panic!("seed {seed}, cut after {cut} of {} packets\n{difference}", frames.len());
        }
        let records = whole.records();
        let logged = records.iter().map(|record| record["network.packets"].as_u64());
        let logged = logged.sum::<Option<u64>>().expect("counts");
        // A tunnel packet counts twice: its flow, and the flow in it.
        assert!(logged <= 2 * (frames.len() - cut) as u64, "packets for names are logged: {seed}");
        all += cut as u64;
        taken += counts.packets;
        named += whole.summary.flows_named;
    }
    assert!(named > 100 * count, "{named} names: this test tests little");
    assert!(taken * 10 < all * 9 && taken * 20 > all, "{taken} of {all} packets");
}

/// Packets have their numbers and times in the whole capture, and the first one is there. Of a packet whose payload is
/// not read, the headers are there and one byte; of one that is, all.
#[test]
fn packets_have_their_numbers() {
    let folder = Folder::new();
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let request = b"GET / HTTP/1.1\r\nHost: h1.larder.example\r\n\r\n";
    let all = folder.capture(vec![
        // It is of no flow, and there because it is the first packet.
        ethernet(ARP, &[0; 46]),
        tcp((client, server), (6_000, 80), 0x02, 100, &[]),
        tcp((client, server), (6_000, 80), 0x18, 101, request),
        tcp((server, client), (80, 6_000), 0x18, 501, &[b'x'; 700]),
        tcp((server, client), (80, 6_000), 0x18, 1_201, &[b'x'; 700]),
        tcp((server, client), (80, 6_000), 0x11, 1_901, &[b'x'; 700]),
        question(client, 5_000, 1, 1),
    ]);
    let whole = frames(&all);
    let (path, counts) = extracted(&all, &folder);
    let mut taken = frames(&path);
    taken.retain(|frame| frame.link_type != note::LINK_TYPE);
    let wanted =
        [(1, 60), (2, 54), (3, 54 + request.len()), (4, 55), (6, 55), (7, whole[6].bytes.len())];
    assert_eq!(counts.packets, wanted.len() as u64);
    for (frame, (number, length)) in taken.iter().zip(wanted) {
        let of_whole: &Frame = &whole[number - 1];
        assert_eq!(frame.at_ns, of_whole.at_ns, "{number}");
        assert_eq!(frame.bytes, of_whole.bytes[..length], "{number}");
    }
    let bytes = std::fs::read(&path).expect("the packets");
    let records = capture::records(&bytes).expect("a capture");
    let records = records.map(|(_, record)| record.expect("sound"));
    let packets = records.filter(|record| record.link_type != note::LINK_TYPE);
    for (record, (number, _)) in packets.zip(wanted) {
        assert_eq!(record.original_len as usize, whole[number - 1].bytes.len());
        // The option after the padded frame: code 5, 8 bytes.
        let behind = record.frame_offset + record.frame.len().next_multiple_of(4);
        let option = &bytes[behind..behind + 12];
        assert_eq!(option[..4], [5, 0, 8, 0], "{number}");
        assert_eq!(option[4..], (number as u64).to_le_bytes(), "{number}");
    }
}

/// Ports that are opened again, minutes later and without an end between: a reader without cuts sees another flow, by
/// the sequence number of its SYN, and reads what it states.
#[test]
fn ports_are_opened_again() {
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let (there, back, ports) = ((client, server), (server, client), (6_000, 80));
    let request = b"GET / HTTP/1.1\r\nHost: h1.larder.example\r\n\r\n";
    let cases = [(0, false, false), (100, false, false), (100, true, false), (100, true, true)];
    for (pause_s, is_cut, late) in cases {
        let mut maker = Maker::new(5);
        let ask = |maker: &mut Maker, seq: u32| {
            maker.push(tcp(there, ports, 0x02, seq, &[]));
            maker.push(tcp(back, (80, 6_000), 0x12, 500, &[]));
            maker.push(tcp(there, ports, 0x18, seq + 1, request));
            maker.push(tcp(back, (80, 6_000), 0x18, 501, b"HTTP/1.1 200 OK\r\n\r\n"));
        };
        ask(&mut maker, 100);
        maker.pause(pause_s * SECOND_NS);
        if is_cut {
            // Two packets move the clock.
            maker.push(question([10, 0, 0, 2], 5_000, 1, 1));
            maker.push(question([10, 0, 0, 2], 5_000, 2, 2));
        }
        if late {
            maker.push(tcp(there, ports, 0x10, 101 + request.len() as u32, &[]));
        }
        ask(&mut maker, 70_000);
        let folder = Folder::new();
        let (path, _) = extracted(&folder.keep("all.pcapng", maker.pcapng()), &folder);
        let requests = frames(&path).into_iter().filter(|frame| frame.bytes.ends_with(request));
        assert_eq!(requests.count(), 2, "{pause_s} s, {is_cut}, {late}");
    }
}

/// Notes say what a reader would know from the packets that are left out.
#[test]
fn notes_replace_packets() {
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let whole = udp((client, server), (6_000, 9_000), &[7; 64]);
    let mut maker = Maker::new(3);
    fragments(&whole, 40, 9).into_iter().for_each(|part| maker.push(part));
    maker.push(udp((client, server), (7_000, 9_000), b"x"));
    maker.pause(2 * SECOND_NS);
    for _ in 0..3 {
        maker.push(whole.clone());
    }
    maker.pause(100 * SECOND_NS);
    maker.push(question(client, 5_000, 1, 1));
    maker.push(question(client, 5_000, 2, 2));
    let at = |frame: usize| maker.frames[frame].at_ns;
    let folder = Folder::new();
    let all = folder.keep("all.pcap", maker.pcap());
    let (path, _) = extracted(&all, &folder);
    let taken = frames(&path);
    let notes = taken.iter().filter(|frame| frame.link_type == note::LINK_TYPE);
    let notes: Vec<Note> = notes.map(|frame| Note::read(&frame.bytes).expect("a note")).collect();
    let second = |time_ns: i64| time_ns.div_euclid(SECOND_NS) * SECOND_NS;
    let ports = |note: &Note| match note {
        Note::Flow(key, _) | Note::Open(key, _) => Some((key.low_port, key.high_port)),
        _ => None,
    };
    let count = maker.frames.len();
    let [begin, open, first, .., end] = notes[..] else { panic!("{notes:?}") };
    let rules = Rules { tcp_idle_s: 300, udp_idle_s: 60, linger_s: 5, ignores_vlan: false };
    assert_eq!((begin, end), (Note::Begin(rules, at(0)), Note::End(at(count - 1))));
    assert_eq!(first, Note::Minute(second(at(0))), "the clock's first second");
    assert!(matches!(open, Note::Open(_, time_ns) if time_ns == at(0)), "{open:?}");
    assert_eq!(ports(&open), Some((6_000, 9_000)));
    let gone: Vec<(Option<(u16, u16)>, i64)> = notes
        .iter()
        .filter_map(|note| match note {
            Note::Flow(_, time_ns) => Some((ports(note), *time_ns)),
            _ => None,
        })
        .collect();
    let dns = (Some((5_000, 53)), at(count - 1));
    assert_eq!(gone.len(), 3, "{notes:?}");
    for flow in [(Some((6_000, 9_000)), at(count - 3)), (Some((7_000, 9_000)), at(count - 6)), dns]
    {
        assert!(gone.contains(&flow), "{flow:?}: {gone:?}");
    }
    let minutes = notes.iter().filter(|note| matches!(note, Note::Minute(_))).count();
    assert!(minutes > 1, "{notes:?}");
    assert!(taken.len() < count + notes.len(), "all packets are there");
}

/// What flows in a fragmented tunnel of a capture for names is in no log.
#[test]
fn fragmented_tunnels_for_names_are_in_no_log() {
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let inner = udp((client, server), (6_000, 9_000), &[7; 200]);
    let outer = in_vxlan(([10, 9, 0, 1], [10, 9, 1, 1]), 5, &inner);
    let folder = Folder::new();
    let names = folder.keep("names.pcap", {
        let mut maker = Maker::new(1);
        fragments(&outer, 96, 3).into_iter().for_each(|part| maker.push(part));
        maker.pcap()
    });
    let rest = folder.keep("rest.pcap", {
        let mut maker = Maker::new(1);
        maker.pause(SECOND_NS);
        maker.push(udp((client, server), (7_000, 9_000), b"x"));
        maker.pcap()
    });
    let records = made(&with_names(&rest, &names), 1).records();
    assert_eq!(records.len(), 1, "{records:?}");
}
