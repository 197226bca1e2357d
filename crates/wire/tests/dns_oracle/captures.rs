//! hickory and larder read every DNS message of the recordings and of the public captures.
//!
//! The code here that finds the messages is small and strict on purpose: it must not share an error
//! with larder's own. It supports pcap and pcapng, the link types of the captures, VLAN tags, IPv4
//! without fragments, IPv6 without extension headers, UDP, and TCP without reassembly.

use std::collections::BTreeMap;

use hickory_proto::op::Message as Theirs;
use larder_wire::dns::{DnsError, tcp};

use crate::{model, view};
use larder_testkit::captures as list;
use larder_testkit::frames::{Frame, read_capture};

fn be16(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

/// The IP packet in a frame.
fn ip_packet(link_type: u16, frame: &[u8]) -> Option<&[u8]> {
    let (mut ether_type, mut at) = match link_type {
        0 => return frame.get(4..),
        1 => (be16(frame, 12)?, 14),
        12 | 101 | 228 | 229 => return Some(frame),
        113 => (be16(frame, 14)?, 16),
        276 => (be16(frame, 0)?, 20),
        _ => return None,
    };
    while matches!(ether_type, 0x8100 | 0x88a8) {
        ether_type = be16(frame, at + 2)?;
        at += 4;
    }
    matches!(ether_type, 0x0800 | 0x86dd).then(|| frame.get(at..))?
}

/// The DNS messages in an IP packet that was captured completely.
fn dns_messages(packet: &[u8]) -> Option<Vec<&[u8]>> {
    let (header, total, protocol) = match packet.first()? >> 4 {
        4 if be16(packet, 6)? & 0x3fff == 0 => {
            (usize::from(packet[0] & 15) * 4, be16(packet, 2)?, packet.get(9)?)
        }
        6 => (40, be16(packet, 4)? + 40, packet.get(6)?),
        _ => return None,
    };
    let transport = packet.get(header..total)?;
    let ports = [be16(transport, 0)?, be16(transport, 2)?];
    match protocol {
        17 if [53, 5353, 5355].iter().any(|port| ports.contains(port)) => {
            Some(vec![transport.get(8..be16(transport, 4)?)?])
        }
        6 if ports.contains(&53) => {
            let mut rest = transport.get(usize::from(transport.get(12)? >> 4) * 4..)?;
            let mut found = Vec::new();
            while let Ok(Some(range)) = tcp::next_message(rest) {
                found.push(&rest[range.clone()]);
                rest = &rest[range.end..];
            }
            Some(found)
        }
        _ => None,
    }
}

/// Compares both readings of a message: describes the difference; `None` if they agree.
fn difference(payload: &[u8]) -> Option<String> {
    let ours = view::ours(payload);
    match (Theirs::from_vec(payload), ours) {
        (Ok(theirs), Ok(ours)) => {
            let theirs = view::theirs(&theirs);
            if theirs != ours {
                return Some(format!("content: {ours:?} against {theirs:?}"));
            }
            let differs =
                model::within_bounds(&ours) && model::ours(payload) != model::expected(&ours);
            differs.then(|| "taught".to_owned())
        }
        (Err(_), Err(_)) => None,
        (Ok(_), Err(error)) => Some(format!("only we refuse: {error}")),
        (Err(error), Ok(_)) => {
            let error = format!("{error:?}");
            let kind: String = error.chars().take_while(|c| c.is_alphanumeric()).collect();
            Some(format!("only hickory refuses: {kind}"))
        }
    }
}

/// Both readers agree on every DNS, mDNS and LLMNR message of the captures, over UDP, and over TCP
/// if a segment begins with a message. No prefix of a message causes more than an error.
#[test]
fn captures_read_alike() {
    let (mut messages, mut refused) = (0u32, BTreeMap::<DnsError, u32>::new());
    let mut differences = BTreeMap::<String, u32>::new();
    for path in list::all() {
        let place = path.file_name().expect("a file").to_string_lossy().into_owned();
        for Frame { link_type, bytes } in read_capture(&path) {
            for message in ip_packet(link_type, &bytes).and_then(dns_messages).unwrap_or_default() {
                messages += 1;
                if let Err(error) = view::ours(message) {
                    *refused.entry(error).or_default() += 1;
                }
                if let Some(difference) = difference(message) {
                    *differences.entry(format!("{place}: {difference}")).or_default() += 1;
                }
                for cut in (0..message.len()).step_by(7) {
                    let _ = view::ours(&message[..cut]);
                    let _ = model::ours(&message[..cut]);
                }
            }
        }
    }
    println!("{messages} messages; refused by us: {refused:?}");
    assert!(messages > 0, "the recordings have DNS");
    assert!(differences.is_empty(), "{differences:#?}");
}
