//! `larder find --alerts`: the packets of each alert, compared with tshark's filter on its flow.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Run, Scratch, TestCapture};
use larder_testkit::captures;
use larder_testkit::process::tshark;
use larder_testkit::skip::has;
use serde_json::{Value, json};

const FIRST_S: i64 = 1_700_000_001;

/// A time as Suricata writes it, in another zone.
fn eve_time(ns: i64) -> String {
    let civil = larder_wire::civil::Civil::from_ns(ns + 7_200_000_000_000);
    format!("{}+0200", String::from_utf8_lossy(&civil.rfc3339()[..26]))
}

fn alert(ns: i64, ends: [(&str, u64); 2], protocol: &str, id: u64, title: &str) -> Value {
    let [(source, from), (destination, to)] = ends;
    json!({
        "timestamp": eve_time(ns), "flow_id": 1, "event_type": "alert", "src_ip": source,
        "src_port": from, "dest_ip": destination, "dest_port": to, "proto": protocol,
        "alert": {"action": "allowed", "gid": 1, "signature_id": id, "signature": title},
    })
}

/// The rows of a run with `--format jsonl`.
fn rows(run: &Run) -> Vec<Value> {
    run.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A store with ten packets to ten addresses, one a second.
fn store() -> Scratch {
    let scratch = Scratch::new();
    let mut capture = TestCapture::new();
    (0..10).for_each(|host| capture.flow_to([198, 51, 100, host]));
    scratch.write("a.pcap", &capture.bytes);
    let run = scratch.run("annotate -r a.pcap -w kept --store 1MiB -o log --quiet");
    assert_eq!(run.code, Some(0), "{}", run.err);
    scratch
}

fn find(scratch: &Scratch, line: &str) -> Run {
    scratch.run(&format!("find -d kept --format jsonl {line}"))
}

/// Alerts of Suricata get a file each, named by time, rule and title; events of other kinds are
/// passed over, and what leads to no packets is counted. Titles of any bytes make plain names.
#[test]
fn each_alert_gets_a_file() {
    let scratch = store();
    let ns = (FIRST_S + 3) * 1_000_000_000 + 123_456_000;
    let to = |host: u8| format!("198.51.100.{host}");
    let own = ("192.0.2.1", 40_000);
    let lines = [
        alert(ns, [own, (&to(3), 9_999)], "UDP", 2_013_028, "ET POLICY ../../etc/<b>\u{1b}[31m"),
        alert(ns, [(&to(3), 9_999), own], "UDP", 2_013_028, "ET POLICY ../../etc/<b>\u{1b}[31m"),
        alert(ns, [own, (&to(4), 9_998)], "UDP", 7, "another port"),
        json!({"timestamp": eve_time(ns), "event_type": "dns", "src_ip": "192.0.2.1"}),
        json!({"timestamp": eve_time(ns), "event_type": "alert", "alert": {"signature": "decoder"}}),
        json!([1]),
    ];
    let log: Vec<String> =
        lines.iter().map(Value::to_string).chain(["{\"cut".to_owned()]).collect();
    scratch.write("eve.json", log.join("\n").as_bytes());
    let run = find(&scratch, "--alerts eve.json -w out");
    assert_eq!(run.code, Some(1), "lines could not be read: {}", run.err);
    let found = rows(&run);
    let names: Vec<&str> = found.iter().filter_map(|row| row["file"].as_str()).collect();
    let name = "out/2023-11-14T22-13-24.123456Z_2013028_ET-POLICY-..-..-etc-b-31m";
    assert_eq!(names, [&format!("{name}.pcapng"), &format!("{name}-2.pcapng")]);
    assert_eq!(found[2]["packets"], 0);
    assert_eq!(std::fs::read_dir(scratch.path("out")).expect("made").count(), 2);
    for text in
        ["3 alerts: 2 with packets, 2 packets", "1 line without an address", "2 lines that cannot"]
    {
        assert!(run.err.contains(text), "{text}: {}", run.err);
    }
    // The same again gives the same files; a query restricts them; a short time has no packet.
    assert_eq!(rows(&find(&scratch, "--alerts eve.json -w out")), found);
    assert_eq!(std::fs::read_dir(scratch.path("out")).expect("made").count(), 2);
    let run = find(&scratch, "--alerts eve.json -w out2 tcp");
    assert!(rows(&run).iter().all(|row| row["packets"] == 0), "{}", run.out);
    let run = find(&scratch, "--alerts eve.json -w out2 --around 0s");
    assert!(rows(&run).iter().all(|row| row["packets"] == 0), "{}", run.out);
}

/// Notices of Zeek, as a table and as JSON: of a flow, of two hosts, of one.
#[test]
fn notices_of_zeek_are_read() {
    let scratch = store();
    let table = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n\
        #path\tnotice\n#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tnote\tmsg\tsrc\tdst\n\
        #types\ttime\tstring\taddr\tport\taddr\tport\tenum\tenum\tstring\taddr\taddr\n\
        1700000003.5\tC1\t192.0.2.1\t40000\t198.51.100.2\t9999\tudp\tSSL::Invalid\tbad cert\t-\t-\n\
        1700000003.5\t-\t-\t-\t-\t-\t-\tScan::Port_Scan\t-\t192.0.2.1\t198.51.100.5\n\
        1700000003.5\t-\t-\t-\t-\t-\t-\tScan::Address_Scan\t-\t192.0.2.1\t-\n\
        1700000003.5\t-\t-\t-\t-\t-\t-\tWeird::Activity\t-\t-\t-\n";
    scratch.write("notice.log", table.as_bytes());
    let run = find(&scratch, "--alerts notice.log -w out");
    assert_eq!(run.code, Some(0), "{}", run.err);
    let packets = |run: &Run| -> Vec<u64> {
        rows(run).iter().map(|row| row["packets"].as_u64().expect("a number")).collect()
    };
    assert_eq!(packets(&run), [1, 1, 10], "{}", run.out);
    assert!(run.err.contains("1 line without an address"), "{}", run.err);
    let json = json!({"ts": 1700000003.5, "note": "SSL::Invalid", "id.orig_h": "192.0.2.1", "id.orig_p": 40000,
        "id.resp_h": "198.51.100.2", "id.resp_p": 9999, "proto": "udp"});
    scratch.write("notice.json", json.to_string().as_bytes());
    let run = find(&scratch, "--alerts notice.json -w out");
    assert_eq!((run.code, packets(&run)), (Some(0), vec![1]), "{} {}", run.out, run.err);
    for (line, texts) in [
        ("--alerts eve.json", &["add -w DIR"][..]),
        ("--alerts missing -w out", &["missing"]),
        ("--alerts notice.log -w out --follow", &["remove --follow"]),
        ("--alerts notice.log -w notice.log", &["wants a directory"]),
    ] {
        find(&scratch, line).refused(texts);
    }
    let run = scratch.run("find -d kept --alerts notice.log -w out --format csv");
    run.refused(&["use table or jsonl"]);
    scratch.write("empty", b"");
    let run = find(&scratch, "--alerts empty -w out");
    assert!(run.code == Some(1) && run.err.contains("the log is empty"), "{}", run.err);
}

/// A packet as tshark prints it: its time and its length.
type Frame = (String, String);

/// Flows by protocol and ends, the lesser end first, each with its frames.
type Flows = BTreeMap<(&'static str, [(String, String); 2]), Vec<Frame>>;

/// The flows of a capture as tshark dissects it.
fn flows(path: &Path) -> Flows {
    let fields = [
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
        "ip.src",
        "ip.dst",
        "frame.time_epoch",
        "frame.len",
    ];
    let options = ["-n", "-Y", "ip && (tcp || udp) && !icmp"];
    let mut flows = Flows::new();
    for line in tshark(path, &options, &fields).expect("tshark") {
        let row: Vec<String> = line.split('\t').map(str::to_owned).collect();
        let (protocol, at) = if row[0].is_empty() { ("udp", 2) } else { ("tcp", 0) };
        let mut ends = [(row[4].clone(), row[at].clone()), (row[5].clone(), row[at + 1].clone())];
        ends.sort();
        let frame = (row[6].clone(), row[7].clone());
        flows.entry((protocol, ends)).or_default().push(frame);
    }
    flows
}

/// The frames of a capture, in the words of tshark.
fn frames(bytes: &[u8]) -> Vec<Frame> {
    let records = larder_wire::capture::records(bytes).expect("a capture");
    records
        .map(|(_, record)| {
            let record = record.expect("a sound record");
            let (seconds, ns) = (record.ts_ns / 1_000_000_000, record.ts_ns % 1_000_000_000);
            (format!("{seconds}.{ns:09}"), record.original_len.to_string())
        })
        .collect()
}

/// For each flow of recordings, an alert at the time of its last packet gives the packets that
/// tshark shows of the flow: their times and lengths. tshark opens the files.
#[test]
fn packets_are_those_of_tshark() {
    if !has("packets_are_those_of_tshark", "tshark") {
        return;
    }
    let (mut checked, mut count) = (0, 0);
    let is_plain = |path: &Path| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        // tshark shows each layer of a tunnel, and no part of a datagram but the last.
        !name.starts_with("tunnel-") && !name.starts_with("fragment-")
    };
    let recorded = captures::recorded().into_iter().filter(|path| is_plain(path));
    // Each call of tshark takes half a second.
    for path in recorded.step_by(2) {
        let scratch = Scratch::new();
        scratch.write("a.pcap", std::fs::read(&path).expect("a recording"));
        let run = scratch.run("annotate -r a.pcap -w kept --store 64MiB -o log --quiet");
        assert_eq!(run.code, Some(0), "{}", run.err);
        let flows = flows(&path);
        let alerts: Vec<String> = flows
            .iter()
            .map(|((protocol, ends), frames)| {
                let end = |at: usize| (&ends[at].0[..], ends[at].1.parse().expect("a port"));
                let (seconds, ns) = frames[frames.len() - 1].0.split_once('.').expect("decimals");
                let number = |text: &str| text.parse::<i64>().expect("digits");
                let ts_ns = number(seconds) * 1_000_000_000 + number(ns);
                alert(ts_ns, [end(1), end(0)], &protocol.to_uppercase(), 1, "x").to_string()
            })
            .collect();
        scratch.write("eve.json", alerts.join("\n").as_bytes());
        let run = find(&scratch, "--alerts eve.json -w out --around 1d");
        let found = rows(&run);
        assert_eq!(found.len(), flows.len(), "{}: {}", path.display(), run.err);
        for (at, ((flow, expected), row)) in flows.iter().zip(&found).enumerate() {
            let file = scratch.path(row["file"].as_str().expect("packets were found"));
            let got = frames(&std::fs::read(&file).expect("written"));
            assert_eq!(&got, expected, "{}: {flow:?}", path.display());
            if at == 0 {
                let lines = tshark(&file, &["-n"], &["frame.time_epoch", "frame.len"]);
                let lines = lines.expect("tshark");
                let printed = got.iter().map(|(time, len)| format!("{time}\t{len}"));
                assert!(printed.eq(lines), "{}: {flow:?}", path.display());
            }
            (checked, count) = (checked + 1, count + got.len());
        }
    }
    assert!(checked > 40 && count > 400, "{checked} flows, {count} packets");
}
