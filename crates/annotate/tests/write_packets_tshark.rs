//! `-w`: what `tshark` reads there is what was captured, and the names are those of our log.
//!
//! Needs `tshark` on the path; else it says so and does nothing.

mod support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use larder_testkit::process;
use larder_testkit::skip::{is_installed, skip};
use serde_json::Value;
use support::{Folder, Made, Maker, ecs, frames, golden, made};

/// One line of tab-separated fields a packet. `resolve` is the argument of `-N`, if any.
fn tshark(path: &Path, resolve: Option<&str>, fields: &[&str]) -> Vec<String> {
    let resolve = resolve.map_or(vec!["-n"], |what| vec!["-N", what]);
    let options = ["-o", "frame.generate_md5_hash:TRUE", "-E", "occurrence=f"];
    process::tshark(path, &[&resolve[..], &options].concat(), fields).expect("tshark")
}

fn run(path: &Path) -> Made {
    made(&ecs(path), 2)
}

/// Every packet is there, in order, with its time, its lengths, its link type and its bytes: from
/// a capture of all link types of the recordings, and from the public ones that are odd. (Not
/// gp-test018: tshark counts its custom blocks as packets, and its simple packets have no time.)
#[test]
fn packets_are_those_read() {
    if !is_installed("tshark") {
        return skip("packets_are_those_read", "no tshark");
    }
    let folder = Folder::new();
    let mut maker = Maker::new(1);
    for recording in golden() {
        maker.replay(&frames(&recording), 0);
    }
    let odd = ["bigendian", "interfaces", "sll2", "malformed"];
    let is_odd = |path: &PathBuf| odd.iter().any(|word| path.to_string_lossy().contains(word));
    let mut captures: Vec<PathBuf> =
        larder_testkit::captures::public().into_iter().filter(is_odd).collect();
    captures.push(folder.keep("all.pcapng", maker.pcapng()));
    let fields =
        ["frame.time_epoch", "frame.len", "frame.cap_len", "frame.encap_type", "frame.md5_hash"];
    for capture in captures {
        let written = folder.keep("out.pcapng", &run(&capture).files["packets.pcapng"]);
        let (before, after) = (tshark(&capture, None, &fields), tshark(&written, None, &fields));
        assert!(!before.is_empty());
        assert_eq!(before.len(), after.len(), "{capture:?}");
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            assert_eq!(before, after, "{capture:?} packet {}", at + 1);
        }
    }
}

/// `tshark -N n` shows at the first packet of each flow the names that our log has for it, from the
/// Name Resolution Blocks alone (`n` without `d`: it does not look into DNS answers).
#[test]
fn names_are_those_of_the_log() {
    if !is_installed("tshark") {
        return skip("names_are_those_of_the_log", "no tshark");
    }
    let folder = Folder::new();
    let fields = [
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
        "ip.src_host",
        "ip.dst_host",
        "ipv6.src_host",
        "ipv6.dst_host",
    ];
    let recordings = [
        "r1-as-asked",
        "r2-pair",
        "r2-head",
        "r3-newer",
        "r4-candidates",
        "r5-stale",
        "r7-late",
        "r8-local",
        "svcb-hints",
        "tunnel-none6",
    ];
    let mut compared = 0;
    for recording in recordings {
        let capture = golden().into_iter().find(|path| path.ends_with(format!("{recording}.pcap")));
        let made = run(&capture.expect("a recording"));
        let written = folder.keep("out.pcapng", &made.files["packets.pcapng"]);
        // Ends of a packet -> the hosts that tshark names at the first such packet.
        let mut first: HashMap<[String; 4], [String; 2]> = HashMap::new();
        for line in tshark(&written, Some("n"), &fields) {
            let cells: Vec<&str> = line.split('\t').collect();
            let either = |a: usize, b: usize| {
                let cell = if cells[a].is_empty() { cells[b] } else { cells[a] };
                cell.to_owned()
            };
            let ends = [either(0, 2), either(4, 6), either(1, 3), either(5, 7)];
            first.entry(ends).or_insert([either(8, 10), either(9, 11)]);
        }
        for line in String::from_utf8_lossy(&made.files["log"]).lines() {
            let record: Value = serde_json::from_str(line).expect("JSON");
            let text = |key: &str| match &record[key] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            let ends = ["source.ip", "source.port", "destination.ip", "destination.port"].map(text);
            for (end, ip) in [("source", &ends[0]), ("destination", &ends[2])] {
                let late = record[format!("larder.{end}.name_late")] == Value::Bool(true);
                let kind = text(&format!("larder.{end}.name_source"));
                let name = text(&format!("{end}.domain"));
                // A name that came later, or from the flow's own packets, is in no block before it.
                if name.is_empty()
                    || late
                    || matches!(kind.as_str(), "sni" | "quic_sni" | "http_host")
                {
                    continue;
                }
                let hosts = first.get(&ends).unwrap_or_else(|| panic!("{recording}: no {ends:?}"));
                let shown = &hosts[usize::from(end == "destination")];
                assert_eq!(*shown, name, "{recording}: {ends:?}, {end} {ip}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 30, "only {compared} names were compared");
}
