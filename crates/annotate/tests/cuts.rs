//! `--cut-every`: the records of an hour count the packets of that hour, and hours can be annotated apart.

mod support;

use std::collections::HashMap;

use larder_annotate::options::{Options, OutputFormat};
use serde_json::Value;
use support::*;

const MINUTE_NS: i64 = 60 * SECOND_NS;

/// The times of the first and the last cut of the frames.
fn cuts_of(maker: &Maker) -> (i64, i64) {
    let times = || maker.frames.iter().map(|frame| frame.at_ns);
    let grid = |time: Option<i64>| time.expect("frames").div_euclid(MINUTE_NS) * MINUTE_NS;
    (grid(times().min()) + MINUTE_NS, grid(times().max()))
}

/// Whatever the traffic is: the records of the parts between cuts, one after the other, are those of one run, byte
/// for byte and in the same order.
///
/// `LARDER_MUTATIONS` asks for more captures, `LARDER_SEED` for others.
#[test]
fn parts_are_the_whole() {
    let (count, seed) = (setting("LARDER_MUTATIONS", 24), setting("LARDER_SEED", 1));
    for case in 0..count {
        let seed = seed.wrapping_mul(1 << 32).wrapping_add(case);
        let mut maker = long_traffic(seed);
        let (first, last) = cuts_of(&maker);
        assert!(last - first > 5 * MINUTE_NS, "few cuts");
        let folder = Folder::new();
        let capture = folder.keep("all.pcapng", maker.pcapng());
        let all = Options {
            format: OutputFormat::Csv,
            cut_every_s: 60,
            batch_bytes: [1 << 20, 5_000][case as usize % 2],
            ..ecs(&capture)
        };
        let whole = made(&all, 2).lines();
        let (mut from, mut parts) = (None, Vec::new());
        while from < Some(last) {
            let minutes = 1 + maker.random.below(4) as i64;
            let to = from.unwrap_or(first - MINUTE_NS) + minutes * MINUTE_NS;
            let to = Some(to).filter(|to| *to < last);
            let part = Options { from_ns: from, to_ns: to, ..all.clone() };
            parts.extend(made(&part, 1).lines());
            from = to.or(Some(last));
        }
        if let Some(at) =
            (0..whole.len().max(parts.len())).find(|&at| whole.get(at) != parts.get(at))
        {
            let [of_whole, of_parts] =
                [&whole, &parts].map(|lines| &lines[at.min(lines.len())..lines.len().min(at + 3)]);
            panic!("seed {seed}, line {at}\n{}\n\n{}", of_whole.join("\n"), of_parts.join("\n"));
        }
        assert_eq!(whole.len(), parts.len(), "seed {seed}");
    }
}

/// A record has the packets of its interval only, each packet is in one record, and records of one flow have one start
/// and one direction. Some of the flows begin without a SYN, and a SYN of the other end turns them.
#[test]
fn records_are_cut_at_minutes() {
    let folder = Folder::new();
    let capture = folder.keep("all.pcapng", long_traffic(7).pcapng());
    let packets = |records: &[Value]| {
        let of = |record: &Value| record["network.packets"].as_u64().expect("a count");
        records.iter().map(of).sum::<u64>()
    };
    let uncut = same_on_all_cores("uncut", &ecs(&capture)).records();
    let cut = same_on_all_cores("cut", &Options { cut_every_s: 60, ..ecs(&capture) }).records();
    assert_eq!(packets(&cut), packets(&uncut));
    assert!(uncut.iter().all(|record| record.get("larder.continued_since").is_none()));
    let mut flows: HashMap<(String, String), Vec<&Value>> = HashMap::new();
    for record in &cut {
        let text = |key: &str| record[key].as_str().map(str::to_owned);
        let [start, end] = ["event.start", "event.end"].map(|key| text(key).expect("a time"));
        // The first packet of a second may be in the interval before: two must have reached it.
        if start[..16] != end[..16] {
            assert_eq!(&end[17..19], "00", "{start} to {end}");
        }
        let began = text("larder.continued_since").unwrap_or(start);
        let id = format!(
            "{} {} {}",
            record["network.community_id"], record["network.vlan.id"], record["larder.tunnel.id"]
        );
        flows.entry((id, began)).or_default().push(record);
    }
    let (mut longest, mut turned) = (0, 0);
    for records in flows.values() {
        let is_first = |record: &&Value| record.get("larder.continued_since").is_none();
        if records.iter().filter(|record| is_first(record)).count() > 1 {
            // Replayed packets have one time: these are two flows.
            continue;
        }
        longest = longest.max(records.len());
        for (at, record) in records.iter().enumerate() {
            turned +=
                usize::from(record["source.ip"] != records[at.saturating_sub(1)]["source.ip"]);
            assert_eq!(is_first(record), at == 0, "{record}");
        }
    }
    assert!(longest > 3, "{longest} records of a flow: this test tests little");
    assert!(turned <= 2, "{turned} of {} flows turned", flows.len());
}

/// A flow that goes on keeps the name that it stated.
#[test]
fn a_flow_that_goes_on_keeps_its_name() {
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let request = b"GET / HTTP/1.1\r\nHost: h1.larder.example\r\n\r\n";
    let mut maker = Maker::new(1);
    maker.push(tcp((client, server), (6_000, 8080), 0x02, 100, &[]));
    maker.push(tcp((server, client), (8080, 6_000), 0x12, 500, &[]));
    maker.push(tcp((client, server), (6_000, 8080), 0x18, 101, request));
    maker.push(tcp((server, client), (8080, 6_000), 0x18, 501, b"HTTP/1.1 200 OK\r\n"));
    for _ in 0..2 {
        maker.pause(59 * SECOND_NS);
        // Of the responder: by its ports it would begin the flow.
        maker.push(tcp((server, client), (8080, 6_000), 0x18, 518, b"more"));
        maker.push(tcp((server, client), (8080, 6_000), 0x18, 522, b"more"));
    }
    let folder = Folder::new();
    let capture = folder.keep("all.pcap", maker.pcap());
    let records = made(&Options { cut_every_s: 60, ..ecs(&capture) }, 1).records();
    assert_eq!(records.len(), 3, "{records:?}");
    for record in &records {
        assert_eq!(record["source.ip"], "10.0.0.1");
        assert_eq!(record["destination.domain"], "h1.larder.example");
        assert_eq!(record["larder.destination.name_source"], "http_host");
    }
    assert_eq!(records[1]["larder.continued_since"], records[0]["event.start"]);
    assert_eq!(records[2]["destination.packets"], 2);
    assert_eq!(records[2]["destination.bytes"], 2 * 44);
}

/// The record that a packet ends comes after those of the cut before that packet, also if its flow began before theirs:
/// else the records of two parts would be mixed.
#[test]
fn what_a_packet_ends_comes_after_the_cut() {
    let mut maker = Maker::new(1);
    let minute_ns = 28_333_334 * MINUTE_NS;
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    for (port, seconds) in [(1, -9), (2, 1), (3, -8), (4, 2), (2, 61)] {
        maker.push(udp((client, server), (5_000 + port, 9_000), b"x"));
        let last = maker.frames.len() - 1;
        maker.frames[last].at_ns = minute_ns + seconds * SECOND_NS;
    }
    let folder = Folder::new();
    let capture = folder.keep("all.pcap", maker.pcap());
    let all = Options { cut_every_s: 60, ..ecs(&capture) };
    let ports = |options: &Options| {
        let records = made(options, 1).records();
        records.iter().map(|record| record["source.port"].as_u64()).collect::<Vec<_>>()
    };
    let before = ports(&Options { to_ns: Some(minute_ns), ..all.clone() });
    assert_eq!(before, [Some(5_001), Some(5_003)]);
    let behind = ports(&Options { from_ns: Some(minute_ns), ..all.clone() });
    assert_eq!(behind, [Some(5_002), Some(5_004), Some(5_002)]);
    assert_eq!(ports(&all), [before, behind].concat());
}

/// A record that ends at a cut has the confidence of what flows stated before it: not of the packet that reaches the
/// cut, which a part of the capture up to the cut does not have.
#[test]
fn what_reaches_a_cut_states_nothing_before_it() {
    let [talker, listener, last] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]];
    let [shop, shared, late] = [[198, 51, 100, 1], [198, 51, 100, 2], [198, 51, 100, 3]];
    let (began_ns, folder) = (1_700_000_040 * SECOND_NS, Folder::new());
    let request = b"GET / HTTP/1.1\r\nHost: h9.larder.example\r\n\r\n";
    let run = |is_judged_before: bool| {
        let mut maker = Maker::new(1);
        let mut push = |second: f64, frame: Vec<u8>| {
            maker.push(frame);
            let frame = maker.frames.last_mut().expect("a frame");
            frame.at_ns = began_ns + (second * 1e9) as i64;
        };
        for (client, server, second) in [(talker, shop, 1.0), (listener, shared, 4.0)] {
            for host in 1..4 {
                let id = host as u16;
                push(second + 0.1 * f64::from(host), question(client, 5_000 + id, id, host));
                push(
                    second + 0.1 * f64::from(host) + 0.05,
                    answer(client, 5_000 + id, id, host, &[server]),
                );
            }
        }
        // None of the names that were looked up: a trial that fails, and that the next statement judges 5 s later.
        let mut ask = |second: f64, client: [u8; 4], server: [u8; 4], reply: f64| {
            let (there, back) = ((client, server), (server, client));
            push(second, tcp(there, (6_000, 80), 0x02, 100, &[]));
            push(second + 0.01, tcp(back, (80, 6_000), 0x12, 500, &[]));
            push(second + 0.02, tcp(there, (6_000, 80), 0x18, 101, request));
            (reply, tcp(back, (80, 6_000), 0x18, 501, b"HTTP/1.1 200 OK\r\n\r\n"))
        };
        let mut frames = vec![ask(2.0, talker, shop, 3.0)];
        if is_judged_before {
            frames.push(ask(20.0, talker, late, 21.0));
        }
        // Two packets move the clock. The second one is the reply to the first.
        let ends = [(last, late), (late, last)];
        frames.push((60.1, tcp(ends[0], (6_000, 80), 0x18, 101, request)));
        frames.push((60.2, tcp(ends[1], (80, 6_000), 0x18, 501, b"HTTP/1.1 200 OK\r\n\r\n")));
        frames.push((5.0, udp((listener, shared), (7_000, 9_999), b"which name?")));
        frames.into_iter().for_each(|(second, frame)| push(second, frame));
        maker.frames.sort_by_key(|frame| frame.at_ns);
        let capture = folder.keep("all.pcapng", maker.pcapng());
        let all = Options { cut_every_s: 60, ..ecs(&capture) };
        let cut_ns = Some(began_ns + 60 * SECOND_NS);
        let [whole, before] = [None, cut_ns].map(|to_ns| {
            let records = made(&Options { to_ns, ..all.clone() }, 1).records();
            let record = records.iter().find(|record| record["destination.port"] == 9_999);
            record.expect("the record")["larder.destination.name_confidence"].clone()
        });
        assert_eq!(whole, before, "judged before the cut: {is_judged_before}");
        whole
    };
    assert_ne!(run(true), run(false), "the trial makes no difference: this tests nothing");
}
