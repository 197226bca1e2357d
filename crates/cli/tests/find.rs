//! `larder find` through the program: which packets each setting selects, and its errors.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use common::{Run, Scratch, TestCapture};
use larder_wire::{Addr, community_id};

const FIRST_S: u64 = 1_700_000_001;

/// A folder `kept` with ten packets to ten addresses, one a second.
fn store() -> Scratch {
    let scratch = Scratch::new();
    let mut capture = TestCapture::new();
    (0..10).for_each(|host| capture.flow_to([198, 51, 100, host]));
    scratch.write("a.pcap", &capture.bytes);
    let run = scratch.run("annotate -r a.pcap -w kept --store 1MiB -o log --quiet");
    assert_eq!(run.code, Some(0), "{}", run.err);
    scratch
}

/// The number of packets that a search reports.
fn found(scratch: &Scratch, line: &str) -> u64 {
    let run = scratch.run(&format!("find -d kept {line}"));
    assert!(matches!(run.code, Some(0 | 1)), "{}", run.err);
    let summary = run.err.lines().last().expect("a summary");
    assert_eq!(run.code == Some(0), !summary.starts_with("0 packets"), "{summary}");
    summary.split(' ').next().expect("a number").parse().expect("a number")
}

/// --from and --to select packets by time, to the second, in each format that the help names.
/// --community-id alone finds its flow; with an address, the search finds the packets of either.
/// --limit stops the search.
#[test]
fn settings_choose() {
    let scratch = store();
    let all = "192.0.2.1";
    assert_eq!(found(&scratch, all), 10);
    assert_eq!(found(&scratch, &format!("{all} --to {}", FIRST_S + 4)), 4);
    assert_eq!(found(&scratch, &format!("{all} --from {}", FIRST_S + 4)), 6);
    assert_eq!(
        found(&scratch, &format!("{all} --from 2023-11-14T22:13:23Z --to {}", FIRST_S + 5)),
        3
    );
    assert_eq!(found(&scratch, &format!("{all} --to 1")), 0);
    assert_eq!(found(&scratch, &format!("{all} --from -15m")), 0, "the packets are older");
    assert_eq!(found(&scratch, &format!("{all} --to -15m")), 10);
    assert_eq!(found(&scratch, &format!("{all} --limit 3")), 3);
    let id = community_id::v1(
        Addr::v4([192, 0, 2, 1]),
        Addr::v4([198, 51, 100, 7]),
        40_000,
        9_999,
        17,
        0,
    );
    assert_eq!(found(&scratch, &format!("--community-id {id}")), 1);
    assert_eq!(found(&scratch, &format!("--community-id {id} 198.51.100.2")), 2);
    for wrong in ["garbage", "-garbage", "2023-14-14T00:00:00Z", "-5"] {
        let run = scratch.run(&format!("find -d kept 192.0.2.1 --from {wrong}"));
        match wrong {
            "-5" => assert_eq!(run.code, Some(1), "five seconds ago: {}", run.err),
            _ => run.refused(&["--from", "expected a time"]),
        }
    }
    scratch.run("find -d kept").refused(&["nothing to look for"]);
}

/// The table of flows has a header. A folder without packets is rejected.
#[test]
fn what_is_shown_and_refused() {
    let scratch = store();
    let run = scratch.run("find -d kept 198.51.100.3");
    let lines: Vec<&str> = run.out.lines().collect();
    let words: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(words, ["PACKETS", "BYTES", "DURATION", "FLOW,", "NAMES"]);
    assert!(lines.len() == 2 && lines[1].contains("198.51.100.3:9999"), "{}", run.out);
    assert!(run.err.starts_with("1 packet ("), "{}", run.err);
    std::fs::create_dir(scratch.path("empty")).expect("made");
    scratch.run("find -d empty 192.0.2.1").refused(&["empty", "no packets are stored", "--dir"]);
    scratch.run("find -d kept").refused(&["nothing to look for"]);
}

/// If a segment is damaged, the search finds the other packets. It reports the segment with the
/// number of missing packets, also with --quiet, and exits with 1.
#[test]
fn damage_is_said() {
    let scratch = store();
    let path = scratch.path("kept/00000000.pcapng");
    let mut bytes = std::fs::read(&path).expect("a segment");
    let end = bytes.len() - 200;
    bytes[end - 100..end].fill(0);
    std::fs::write(&path, &bytes).expect("written");
    let run = scratch.run("find -d kept 192.0.2.1 -w out.pcapng --quiet");
    assert_eq!(run.code, Some(1), "{}", run.err);
    let lost = ["1 packet", "2 packets"].iter().any(|text| run.err.contains(text));
    assert!(run.err.contains("segment 0 is damaged") && lost, "{}", run.err);
}

/// A query may have fields, operators and times, in one word or several; a wrong one is printed with
/// a mark below the column.
#[test]
fn queries_are_joined_conditions() {
    let scratch = store();
    assert_eq!(found(&scratch, "udp"), 10);
    assert_eq!(found(&scratch, "tcp"), 0);
    assert_eq!(found(&scratch, "udp port 9999 and net 198.51.100.0/30"), 4);
    assert_eq!(found(&scratch, "not host 198.51.100.3"), 9);
    assert_eq!(found(&scratch, "198.51.100.1 198.51.100.2"), 2);
    assert_eq!(found(&scratch, &format!("after {} and before {}", FIRST_S + 2, FIRST_S + 4)), 2);
    assert_eq!(found(&scratch, "ip.addr==198.51.100.4 && udp.port==9999"), 1);
    let run =
        Run::of(scratch.larder().args(["find", "-d", "kept", "udp and (port 1 or port http)"]));
    run.refused(&["query, column 25: expected a port from 0 to 65535", "found `http)`"]);
    let lines: Vec<&str> = run.err.lines().collect();
    assert_eq!(lines[1..], ["  udp and (port 1 or port http)", &format!("  {}^", " ".repeat(24))]);
}

/// Flows are printed as JSON, as CSV and as counts; -w and --format exclude each other.
#[test]
fn flows_have_forms() {
    let scratch = store();
    let run = scratch.run("find -d kept udp --format jsonl");
    let rows: Vec<serde_json::Value> =
        run.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|row| row["packets"] == 1 && row["first"] == row["last"]));
    let run = scratch.run("find -d kept udp --format csv");
    assert_eq!(run.out.lines().count(), 11);
    assert!(run.out.starts_with("flow,packets,bytes,first,last,names,network\r\n"), "{}", run.out);
    let run = scratch.run("find -d kept udp --format counts");
    let counts: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((&counts["packets"], &counts["flows"]), (&10.into(), &10.into()));
    let run = scratch.run("find -d kept 203.0.113.9 --format counts");
    assert_eq!((run.code, &run.out[..12]), (Some(1), "{\"packets\":0"));
    scratch.run("find -d kept udp --format csv -w x.pcapng").refused(&["remove one of them"]);
    let run = scratch.run("find -d kept udp --format zeek --alerts eve.json -w alerts");
    run.refused(&["not as --format zeek"]);
}

/// The flows of all packets of a store are those of the log: ends, times, counts by direction, names
/// and what is known of them.
#[test]
fn flows_are_those_of_the_log() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let mut compared = 0;
    for capture in std::fs::read_dir(captures).expect("captures") {
        let capture = capture.expect("an entry").path();
        let name = capture.file_name().expect("a name").to_string_lossy();
        // In the store, later fragments have no ports: they are another flow.
        if !name.ends_with(".pcap") || name.starts_with("fragment") {
            continue;
        }
        let scratch = Scratch::new();
        let annotate = ["annotate", "--store", "1MiB", "-w", "kept", "-o", "log", "--quiet"];
        let read =
            |command: &mut Command| Run::of(command.args(["--format", "zeek", "-r"]).arg(&capture));
        let run = read(scratch.larder().args(annotate));
        assert_eq!(run.code, Some(0), "{}: {}", capture.display(), run.err);
        let log = std::fs::read_to_string(scratch.path("log")).expect("a log");
        let search = ["find", "-d", "kept", "tcp or not tcp", "--format"];
        let found = Run::of(scratch.larder().args(search).arg("zeek"));
        assert!(matches!(found.code, Some(0)), "{}", found.err);
        let (expected, found) = (flows_of(&log), flows_of(&found.out));
        compared += expected.len();
        for (ends, flow) in &expected {
            assert_eq!(found.get(ends), Some(flow), "{} {ends}", capture.display());
        }
        let lines = Run::of(scratch.larder().args(search).arg("ecs")).out;
        let fields: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(fields.len() >= found.len(), "{lines}");
        assert!(fields.iter().all(|line| line["source.ip"].is_string()), "{lines}");
        let ipfix = scratch.larder().args(search).arg("ipfix").output().expect("larder runs");
        assert!(ipfix.status.success() && ipfix.stdout.starts_with(&[0, 10]), "{ipfix:?}");
    }
    assert!(compared > 100, "{compared}");
}

/// Flows of a log of Zeek, by their ends: the fields that also packets of a store tell. Ends that are
/// used again are left out.
fn flows_of(log: &str) -> BTreeMap<String, Vec<String>> {
    let header = log.lines().find_map(|line| line.strip_prefix("#fields\t")).expect("fields");
    let fields: Vec<&str> = header.split('\t').collect();
    let mut flows: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut again = BTreeSet::new();
    for line in log.lines().filter(|line| !line.starts_with('#')) {
        let values: Vec<&str> = line.split('\t').collect();
        let value = |field: &str| {
            let at = fields.iter().position(|of| *of == field);
            let value = values[at.unwrap_or_else(|| panic!("{field} {header}"))];
            // The chosen one of several names.
            value.split(',').next().expect("a value").to_owned()
        };
        let ends =
            ["id.orig_h", "id.orig_p", "id.resp_h", "id.resp_p", "proto"].map(value).join(" ");
        let told = [
            "ts",
            "duration",
            "orig_pkts",
            "orig_ip_bytes",
            "resp_pkts",
            "resp_ip_bytes",
            "id.orig_h_name.src",
            "id.orig_h_name.vals",
            "id.resp_h_name.src",
            "id.resp_h_name.vals",
            "vlan",
            "orig_name_confidence",
            "resp_name_confidence",
            "resp_name_stale",
            "resp_name_late",
            "resp_name_conflict",
        ];
        if flows.insert(ends.clone(), told.map(value).to_vec()).is_some() {
            again.insert(ends);
        }
    }
    flows.retain(|ends, _| !again.contains(ends));
    flows
}

/// Two directories and a machine that does not respond: the packets of both by time, and an exit
/// status and a line for the machine.
#[test]
fn several_stores_are_searched() {
    let scratch = store();
    let mut capture = TestCapture::new();
    (0..5).for_each(|host| capture.flow_to([203, 0, 113, host]));
    scratch.write("b.pcap", &capture.bytes);
    scratch.run("annotate -r b.pcap -w second --store 1MiB -o log2 --quiet");
    let run = scratch.run("find -d kept -d second udp -w both.pcapng");
    assert!(run.code == Some(0) && run.err.starts_with("15 packets"), "{}", run.err);
    assert!(run.err.contains("in 2 stores"), "{}", run.err);
    let bytes = std::fs::read(scratch.path("both.pcapng")).expect("written");
    let records = larder_wire::capture::records(&bytes).expect("a capture");
    let times: Vec<i64> = records.map(|(_, record)| record.expect("sound").ts_ns).collect();
    assert!(times.is_sorted() && times.len() == 15);
    let run = scratch.run("find -d kept -d second udp --format jsonl");
    assert_eq!(run.out.lines().count(), 15);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    for output in ["-w out.pcapng", "--format counts"] {
        let line = format!("find -d kept --on {address} --deadline 1s udp {output}");
        let run = scratch.run(&line);
        assert_eq!(run.code, Some(1), "{}", run.err);
        let lines: Vec<&str> = run.err.lines().collect();
        assert!(lines[0].starts_with("10 packets"), "{lines:?}");
        assert!(lines[1].starts_with(&format!("{address}: no res")), "{lines:?}");
        assert!(lines[1].ends_with("packets of it are missing"), "{lines:?}");
    }
    for (line, text) in [
        ("--on sensor1 udp", "--on sensor1: expected HOST:PORT"),
        ("--on 127.0.0.1:1 --scan udp", "--scan reads directories only"),
        ("--on 127.0.0.1:1 -d kept --follow udp -w -", "--follow: expected one --dir"),
        ("--token kept udp", "--token has no effect without --on"),
        ("-d kept --around 5m udp", "add --alerts FILE"),
        ("-d kept --deadline 30s udp", "add --on HOST:PORT"),
        ("-d kept -d missing udp", "missing"),
    ] {
        scratch.run(&format!("find {line}")).refused(&[text]);
    }
}

/// A search that follows ends quietly when its reader has gone, also if no packet is found.
#[test]
fn following_ends_with_its_reader() {
    let scratch = store();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let line = "find -d kept --follow -w - 203.0.113.9".split_whitespace();
    let mut command = scratch.larder();
    let mut child = command.args(line).stdout(writer).spawn().expect("it runs");
    // The child alone has the other end.
    drop(command);
    let mut head = [0; 8];
    let mut reader = reader;
    std::io::Read::read_exact(&mut reader, &mut head).expect("the header of a capture");
    drop(reader);
    let mut status = None;
    larder_testkit::wait::until_so("the search ends", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(141));
}

/// Pinned packets outlive their segment: they are found, by name, with the others. The query of a pin
/// has no times, and a wrong one is marked.
#[test]
fn pins_are_found() {
    let scratch = Scratch::new();
    let mut capture = TestCapture::new();
    (0..40_000u32)
        .for_each(|host| capture.flow_to([198, 51, (host / 250 % 100) as u8, (host % 250) as u8]));
    scratch.write("a.pcap", &capture.bytes);
    let store = "annotate -r a.pcap -o log --quiet --store 1MiB --segment 64KiB --store-pin";
    let run = scratch.run(&format!("{store} 198.51.3.7 -w kept"));
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert_eq!(found(&scratch, "198.51.3.7"), 2);
    let count = |directory: &str| {
        let run = scratch.run(&format!("find -d {directory} udp --format counts"));
        let counts: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
        counts["packets"].as_u64().expect("a number")
    };
    let (pinned, all) = (count("kept/pinned"), count("kept"));
    assert!((1..=2).contains(&pinned) && (1_000..39_000).contains(&all), "{pinned} {all}");
    let run = Run::of(scratch.larder().args(store.split(' ')).args(["port x", "-w", "other"]));
    run.refused(&["--store-pin, column 6", "  port x", "       ^"]);
    let run = Run::of(scratch.larder().args(store.split(' ')).args(["after -1h", "-w", "other"]));
    run.refused(&["--store-pin: a time in the query"]);
}
