//! `larder find` through the program: which packets each setting selects, and its errors.

mod common;

use common::{Scratch, TestCapture};
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

/// The table of flows has a header. A folder without packets is rejected. A tcpdump filter is
/// rejected with the equivalent command.
#[test]
fn what_is_shown_and_refused() {
    let scratch = store();
    let run = scratch.run("find -d kept 198.51.100.3");
    let lines: Vec<&str> = run.out.lines().collect();
    let words: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(words, ["PACKETS", "BYTES", "DURATION", "FLOW"]);
    assert!(lines.len() == 2 && lines[1].contains("198.51.100.3:9999"), "{}", run.out);
    assert!(run.err.starts_with("1 packet ("), "{}", run.err);
    std::fs::create_dir(scratch.path("empty")).expect("made");
    scratch.run("find -d empty 192.0.2.1").refused(&["empty", "no packets are stored", "--dir"]);
    scratch.run("find -d kept tcp port 443").refused(&["a filter of tcpdump", "'*:443/tcp'"]);
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
