//! Which packets make a flow, when it began, and who began it.

use std::collections::{BTreeMap, BTreeSet};

use crate::open::{Capture, Key, captures};

/// In what a flow of theirs may differ from ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// We have another number of flows with this 5-tuple.
    Parts,
    /// All our flows with this 5-tuple together have another number of packets.
    Packets,
    /// Ours begins earlier.
    Begin,
    /// Ours has the other end as initiator.
    Initiator,
}
use Difference::{Begin, Initiator, Packets, Parts};

/// Why they differ. In each case the packets were looked at, and ours stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// A UDP flow ends after 60 s without a packet; a stream of `tshark` never does.
    Idle,
    /// Both ends had closed the connection, and 5 s had passed without a packet, when one end sent
    /// its FIN again: a new flow for us (and for Zeek), the old stream for `tshark`.
    Linger,
    /// The first packet of the capture has no time (a pcapng Simple Packet Block has no room for
    /// one): it counts as 1970, and what follows has been idle since.
    NoTime,
    /// We count each fragment to its flow; `tshark` counts the datagram once, where it is whole.
    Fragments,
    /// The same, and the flow begins with the first fragment for us, with the last for `tshark`.
    FragmentFirst,
    /// DHCP, server to client, ports 67 to 68. Neither port is ephemeral, so the sender began; the
    /// other opinion turns every flow that comes from port 67.
    DhcpServer,
    /// DHCPv6, client to servers, ports 546 to 547: the sender began. The other opinion takes the
    /// lower port for the server, and so has a multicast group begin.
    DhcpClient,
    /// The capture begins in mid-connection, or it is media over UDP, and the ports (2222, 3479,
    /// 3480, 16332, 16333) are no well-known ones: the sender of the first packet began. The other
    /// opinion takes the lower port for the server.
    FirstSender,
}

/// By capture and flow, in the order of both.
const EXPLAINED: &[(&str, &str, Difference, Why)] = &[
    ("fragment-v4.pcap", "udp0", Packets, Why::Fragments),
    ("fragment-v6.pcap", "udp0", Packets, Why::Fragments),
    ("gp-test018.pcapng", "udp0", Parts, Why::NoTime),
    ("gp-test018.pcapng", "udp1", Initiator, Why::DhcpServer),
    ("nd-alexa-app.pcapng", "udp1", Initiator, Why::DhcpServer),
    ("nd-android.pcap", "udp7", Initiator, Why::DhcpServer),
    ("nd-android.pcap", "udp8", Initiator, Why::DhcpClient),
    ("nd-dns_fragmented.pcap", "udp0", Packets, Why::Fragments),
    ("nd-dns_fragmented.pcap", "udp1", Packets, Why::Fragments),
    ("nd-dns_fragmented.pcap", "udp15", Packets, Why::Fragments),
    ("nd-dns_fragmented.pcap", "udp16", Packets, Why::Fragments),
    ("nd-dns_fragmented.pcap", "udp2", Packets, Why::Fragments),
    ("nd-dns_fragmented.pcap", "udp3", Packets, Why::Fragments),
    ("nd-dns_fragmented.pcap", "udp5", Packets, Why::Fragments),
    ("nd-teams.pcap", "tcp34", Initiator, Why::FirstSender),
    ("nd-teams.pcap", "udp36", Initiator, Why::FirstSender),
    ("nd-teams.pcap", "udp37", Initiator, Why::FirstSender),
    ("nd-teams.pcap", "udp38", Initiator, Why::FirstSender),
    ("nd-teams.pcap", "udp39", Initiator, Why::FirstSender),
    ("nd-wechat.pcap", "tcp42", Parts, Why::Linger),
    ("nd-wechat.pcap", "udp0", Parts, Why::Idle),
    ("nd-wechat.pcap", "udp1", Parts, Why::Idle),
    ("nd-wechat.pcap", "udp10", Parts, Why::Idle),
    ("nd-wechat.pcap", "udp12", Parts, Why::Idle),
    ("nd-wechat.pcap", "udp13", Parts, Why::Idle),
    ("r8-local.pcap", "udp1", Initiator, Why::DhcpServer),
    ("zk-dns-edns-ecs.pcap", "udp42", Packets, Why::FragmentFirst),
    ("zk-dns-edns-ecs.pcap", "udp42", Begin, Why::FragmentFirst),
    ("zk-dns-edns-ecs.pcap", "udp45", Packets, Why::Fragments),
    ("zk-dns-edns-ecs.pcap", "udp47", Packets, Why::FragmentFirst),
    ("zk-dns-edns-ecs.pcap", "udp47", Begin, Why::FragmentFirst),
    ("zk-dns-edns-ecs.pcap", "udp58", Packets, Why::Fragments),
];

/// Packets of 5-tuples, and flows with each.
#[derive(Default)]
struct Tally {
    flows: u64,
    packets: u64,
}

fn tally(flows: impl Iterator<Item = (Key, u64)>) -> BTreeMap<Key, Tally> {
    let mut tallies: BTreeMap<Key, Tally> = BTreeMap::new();
    for (key, packets) in flows {
        let tally = tallies.entry(key).or_default();
        tally.flows += 1;
        tally.packets += packets;
    }
    tallies
}

fn differences(capture: &Capture) -> BTreeSet<(String, Difference)> {
    let ours = tally(capture.by_all.iter().filter_map(|flow| Some((flow.key()?, flow.packets))));
    let theirs = tally(capture.theirs.iter().map(|flow| (flow.key(), flow.packets)));
    let mut found = BTreeSet::new();
    let mut compared = BTreeSet::new();
    for flow in &capture.theirs {
        let key = flow.key();
        let mut differs = |what, does: bool| {
            if does {
                found.insert((flow.id.clone(), what));
            }
        };
        // What is a matter of the 5-tuple is laid to the first of its flows.
        if compared.insert(key.clone()) {
            let none = Tally::default();
            let (ours, theirs) = (ours.get(&key).unwrap_or(&none), &theirs[&key]);
            differs(Parts, ours.flows != theirs.flows);
            differs(Packets, ours.packets != theirs.packets);
        }
        let record = Capture::record_of(&capture.by_all, flow);
        differs(Begin, record.is_none_or(|record| record.start_us < flow.start_us - 1));
        differs(Initiator, record.is_some_and(|record| record.source != flow.client));
    }
    let stray = ours.keys().filter(|key| !compared.contains(*key) && has_ports(key));
    found.extend(stray.map(|key| (format!("{key:?}"), Parts)));
    found
}

fn has_ports(key: &Key) -> bool {
    matches!(key.0.as_str(), "tcp" | "udp")
}

/// TCP and UDP flows have the 5-tuple, first packet, initiator and number of packets that they
/// have for `tshark`, but for what is explained; and what is explained does differ.
#[test]
fn flows_are_those_of_tshark() {
    let captures = captures();
    let mut wrong = Vec::new();
    for capture in captures {
        let file = capture.file.as_str();
        let explained: BTreeSet<(String, Difference)> = EXPLAINED
            .iter()
            .filter(|row| row.0 == file)
            .map(|row| (row.1.to_owned(), row.2))
            .collect();
        let found = differences(capture);
        wrong.extend(found.difference(&explained).map(|it| format!("{file} {it:?}: unexplained")));
        wrong.extend(explained.difference(&found).map(|it| format!("{file} {it:?}: no more")));
    }
    assert!(wrong.is_empty(), "look at the packets:\n{}", wrong.join("\n"));
    for (why, count) in EXPLAINED.iter().fold(BTreeMap::new(), |mut counts, row| {
        *counts.entry((row.3, row.2)).or_insert(0) += 1;
        counts
    }) {
        println!("{count} {why:?}");
    }
}

/// Every packet is read, and every IP packet is counted to one flow, ICMP as well.
#[test]
fn every_packet_has_one_flow() {
    for capture in captures() {
        let file = &capture.file;
        let summary = &capture.runs[0].summary;
        // Four of this capture's blocks hold no packet, but `tshark` numbers them like packets.
        let others = if file == "gp-test018.pcapng" { 4 } else { 0 };
        assert_eq!(summary.packets + others, capture.packets, "{file}: packets");
        let in_flows: u64 = capture.by_all.iter().map(|flow| flow.packets).sum();
        let skipped: u64 = summary.skipped.values().sum();
        assert_eq!(in_flows + skipped, summary.packets, "{file}: packets in flows");
        let is_icmp = |transport: &str| matches!(transport, "icmp" | "ipv6-icmp");
        let icmp = capture.by_all.iter().filter(|flow| is_icmp(&flow.transport));
        assert_eq!(icmp.map(|flow| flow.packets).sum::<u64>(), capture.icmp, "{file}: ICMP");
    }
}
