//! Finding the next DNS message after a hole, in a real capture with many messages on one
//! connection.

use std::collections::BTreeMap;

use larder_testkit::captures as list;
use larder_wire::Addr;
use larder_wire::capture;
use larder_wire::packet;
use larder_wire::stream::{Budget, Stream, dns_resync};

/// Both directions of all connections with port 53, reassembled.
fn dns_streams(file: &[u8]) -> Vec<Vec<u8>> {
    let mut budget = Budget::new(16 << 20);
    let mut streams: BTreeMap<(Addr, u16, Addr, u16), Stream> = BTreeMap::new();
    let records = capture::records(file).expect("a capture");
    for record in records.filter_map(|(_, record)| record.ok()) {
        let Ok(packet) = packet::decode(record.link_type, record.frame) else { continue };
        if packet.protocol != 6 || (packet.src_port != 53 && packet.dst_port != 53) {
            continue;
        }
        let from = packet.payload_offset as usize;
        let payload = &record.frame[from..from + packet.payload_len as usize];
        let key = (packet.src, packet.src_port, packet.dst, packet.dst_port);
        let stream = streams.entry(key).or_default();
        stream.push(packet.tcp_seq, packet.tcp_flags, payload, &mut budget);
    }
    streams.into_values().map(|stream| stream.contiguous().to_vec()).collect()
}

/// Start offsets of messages, by their lengths from the start on.
fn message_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let [high, low, rest @ ..] = &bytes[at..] {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if length > rest.len() {
            break;
        }
        starts.push(at);
        at += 2 + length;
    }
    starts
}

/// From any offset in a stream, the position found is the start of the next message.
#[test]
fn next_message_in_a_real_stream() {
    let public = ["dc-dnso1tcp.pcap", "zk-dns-edns-ecs.pcap", "nd-dns_fragmented.pcap"];
    let public = public.map(|name| list::public_folder().join("pcap").join(name));
    // The other recordings of DNS over TCP have a hole, or an incomplete message.
    let recorded = ["dns-tcp-many.pcap", "dns-tcp-split.pcap", "dns-truncated.pcap"];
    let recorded = recorded.map(|name| list::recorded_folder().join(name));
    let mut messages = 0;
    for path in recorded.iter().chain(public.iter().filter(|path| path.exists())) {
        let file = std::fs::read(path).expect("a readable capture");
        for bytes in dns_streams(&file) {
            let starts = message_starts(&bytes);
            messages += starts.len();
            for from in 0..bytes.len() {
                let Some(&next) = starts.iter().find(|&&start| start >= from) else { break };
                let found = dns_resync(&bytes[from..]).map(|at| from + at);
                assert_eq!(found, Some(next), "{}, entered at {from}", path.display());
            }
        }
    }
    assert!(messages >= 10, "the captures have DNS over TCP");
}
