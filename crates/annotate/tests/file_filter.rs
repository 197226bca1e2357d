//! A filter for packets of files takes what tcpdump takes, for any link type, form of the file and
//! number of cores.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use larder_annotate::options::{Endpoint, Options};
use larder_annotate::{Progress, run};
use larder_wire::capture::write::{pcap_header, pcap_record};
use support::*;

const FILTERS: [&str; 12] = [
    "port 53",
    "udp and not port 53",
    "tcp port 443 or 80",
    "host 10.0.0.1",
    "net 10.0.0.0/8",
    "ip6",
    "arp or icmp or icmp6",
    "tcp[tcpflags] & tcp-syn != 0",
    "greater 100",
    "src portrange 1024-65535",
    "ip proto 47 or udp port 4789",
    "not ip",
];

fn options(path: &Path, filter: &str) -> Options {
    Options {
        read: vec![Endpoint::Path(path.to_owned())],
        filter: filter.to_owned(),
        names_budget_bytes: 1 << 20,
        ..Options::default()
    }
}

/// What tcpdump takes of a capture, as a capture; nothing where tcpdump is not installed. It
/// refuses a filter that no packet can match.
fn tcpdump(path: &Path, filter: &str) -> Option<Vec<u8>> {
    let mut command = Command::new("tcpdump");
    command.arg("-r").arg(path).args(["--time-stamp-precision=nano", "-w", "-", "--", filter]);
    let output = command.output().ok()?;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() || told.contains("rejects all packets"),
        "{path:?} {filter}: {told}"
    );
    Some(output.stdout)
}

/// With a filter, a file's log, names, packets and counts are those of the capture that tcpdump makes with it.
#[test]
fn a_filter_takes_what_tcpdump_takes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let taken = folder.path().join("taken.pcap");
    let (mut compared, mut partial) = (0, 0);
    for path in golden() {
        let all = made(&options(&path, ""), 1).summary;
        assert_eq!(all.filtered_of, None);
        for filter in FILTERS {
            let Some(theirs) = tcpdump(&path, filter) else {
                eprintln!("SKIP a_filter_takes_what_tcpdump_takes: no tcpdump");
                return;
            };
            let mut ours = made(&options(&path, filter), 1);
            assert_eq!(ours.summary.filtered_of.take(), Some(all.packets), "{path:?} {filter}");
            if theirs.is_empty() {
                assert_eq!(ours.summary.packets, 0, "{path:?} {filter}");
                continue;
            }
            std::fs::write(&taken, theirs).expect("room for a capture");
            let theirs = made(&options(&taken, ""), 1);
            assert_eq!(ours.summary.packets, theirs.summary.packets, "{path:?} {filter}");
            assert_eq!(ours.files["log"], theirs.files["log"], "{path:?} {filter}");
            assert_eq!(ours.files["names"], theirs.files["names"], "{path:?} {filter}");
            compared += 1;
            partial += u32::from((1..all.packets).contains(&ours.summary.packets));
        }
    }
    assert!(compared > 300 && partial > 100, "{compared}, {partial}");
}

/// The same on all numbers of cores, of one file and of several, of pcapng and compressed.
#[test]
fn a_filter_does_not_depend_on_cores() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let maker = mixture(5, 1 << 20);
    let (plain, blocks) = (folder.path().join("a.pcap"), folder.path().join("b.pcapng"));
    std::fs::write(&plain, maker.pcap()).expect("room");
    std::fs::write(&blocks, maker.pcapng()).expect("room");
    let filter = "udp port 53 or tcp port 443";
    let of_plain = same_on_all_cores("pcap", &options(&plain, filter));
    let of_blocks = same_on_all_cores("pcapng", &options(&blocks, filter));
    assert_eq!(of_plain.files["log"], of_blocks.files["log"]);
    let packets = of_plain.summary.packets;
    assert!(packets > 100 && of_plain.summary.filtered_of.is_some_and(|all| all > packets));
    let read = [&plain, &blocks].map(|path| Endpoint::Path(path.clone())).to_vec();
    let both = same_on_all_cores("both", &Options { read, ..options(&plain, filter) });
    assert_eq!(both.summary.packets, 2 * packets);
    // `-c` counts the packets that the filter takes, as tcpdump does; the number of packets before
    // the filter is not known then.
    let few = made(&Options { packets_max: Some(7), ..options(&plain, filter) }, 2).summary;
    assert_eq!((few.packets, few.filtered_of), (7, None));
}

/// A filter is compiled for the link type of each file; a link type that filters do not know is
/// refused by its number, and so is a primitive that the link type does not have.
#[test]
fn link_types_that_filters_do_not_know_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let capture = |link_type: u16| {
        let path = folder.path().join(format!("{link_type}.pcap"));
        let mut bytes = Vec::new();
        pcap_header(&mut bytes, link_type, 65_535);
        pcap_record(&mut bytes, 0, &[0; 60], 60);
        std::fs::write(&path, bytes).expect("room");
        path
    };
    let refusal = |link_type: u16, filter: &str| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = Endpoint::Path(folder.path().join("log"));
        let options = Options { output, ..options(&capture(link_type), filter) };
        run(&options, &Arc::new(Progress::default())).map_err(|error| error.to_string())
    };
    let text = refusal(9, "port 53").expect_err("PPP");
    assert!(text.contains("9.pcap") && text.contains("link type 9"), "{text}");
    let text = refusal(101, "vlan").expect_err("no tags");
    assert!(text.contains("101.pcap") && text.contains("raw IP"), "{text}");
    let text = refusal(1, "port nowhere").expect_err("no port");
    assert!(text.contains("nowhere"), "{text}");
    assert_eq!(refusal(1, "vlan").expect("Ethernet").filtered_of, Some(1));
}
