//! Tests of IPFIX messages.

use std::collections::BTreeSet;

use super::*;

/// Each field of the schema is a standard element, one of larder's own, or the same in all records or
/// other fields (one has no room: a record that another one continues has flowEndReason 2); numbers and names are
/// unique.
#[test]
fn every_field_is_an_element() {
    let is_standard = |name: &str| {
        let (end, field) = name.split_once('.').unwrap_or_default();
        matches!(end, "source" | "destination")
            && ["ip", "port", "bytes", "packets"].contains(&field)
            || name == "network.vlan.id"
    };
    let follows = [
        "@timestamp",
        "ecs.version",
        "event.kind",
        "event.category",
        "event.type",
        "event.dataset",
        "event.module",
        "event.duration",
        "observer.product",
        "observer.type",
        "observer.version",
        "network.transport",
        "network.type",
        "network.bytes",
        "network.packets",
        "larder.continued_since",
        "related.ip",
        "related.hosts",
    ];
    for field in FIELDS {
        let ways = [
            is_standard(field.name),
            follows.contains(&field.name),
            OWN.iter().any(|(_, name)| *name == field.name),
        ];
        assert_eq!(ways.iter().filter(|way| **way).count(), 1, "{}", field.name);
    }
    assert_eq!(Sets::default().own.len(), OWN.len(), "each is a field");
    assert_eq!(OWN.iter().map(|(number, _)| number).collect::<BTreeSet<_>>().len(), OWN.len());
    let names: BTreeSet<String> = OWN.iter().map(|(_, name)| camel_case(name)).collect();
    assert_eq!(names.len(), OWN.len());
    assert!(names.contains("larderDestinationNameConfidence"));
}

/// The bytes of a record are as many as its template states.
#[test]
fn standard_elements_have_their_lengths() {
    for (is_v6, addr) in [(false, [0; 16]), (true, [0x20; 16])] {
        let mut record = FlowRecord::blank();
        let v4 = larder_wire::Addr::v4([192, 0, 2, 1]);
        record.source.addr = if is_v6 { larder_wire::Addr::v6(addr) } else { v4 };
        record.destination.addr = record.source.addr;
        let mut out = Vec::new();
        write_standard(&record, is_v6, &mut out);
        let stated: usize = standard(is_v6).iter().map(|(_, bytes, _)| usize::from(*bytes)).sum();
        assert_eq!(out.len(), stated);
    }
}

fn messages(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut found) = (bytes, Vec::new());
    while !rest.is_empty() {
        let len = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        let (message, after) = rest.split_at(len);
        found.push(message);
        rest = after;
    }
    found
}

fn number(message: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(message[at..at + 4].try_into().expect("4 bytes"))
}

/// Messages fit a datagram, count records, state the latest end, and templates come again. However rows are
/// cut, the bytes are the same.
#[test]
fn messages_are_packed_and_numbered() {
    let sets = Sets::default();
    let mut rows = Vec::new();
    let mut whole = Writer::new(Vec::new());
    let mut cut = Writer::new(Vec::new());
    for second in 0..4_000 {
        let mut record = FlowRecord::blank();
        record.end_ns = second * 1_000_000_000 + 1;
        let start = rows.len();
        sets.record(&record, &mut rows);
        cut.push_rows(&rows[start..]).expect("memory");
    }
    whole.push_rows(&rows).expect("memory");
    let bytes = whole.finish().expect("memory");
    assert_eq!(bytes, cut.finish().expect("memory"));
    let (mut sequence, mut templates, mut described) = (0, 0, 0);
    for message in messages(&bytes) {
        assert_eq!(message[..2], [0, 10]);
        assert!(message.len() <= MESSAGE_BYTES_MAX, "{}", message.len());
        assert_eq!(number(message, 8), sequence);
        let set = u16::from_be_bytes([message[16], message[17]]);
        templates += u32::from(set == TEMPLATES);
        if set == TYPES {
            let mut types = &message[HEADER_BYTES + 4..];
            while !types.is_empty() {
                types = &types[9 + usize::from(types[8])..];
                sequence += 1;
                described += 1;
            }
        }
        if FLOWS.contains(&set) {
            let mut sets = &message[HEADER_BYTES..];
            while !sets.is_empty() {
                sets = &sets[usize::from(u16::from_be_bytes([sets[2], sets[3]]))..];
                sequence += 1;
            }
            assert_eq!(number(message, 4), sequence - described, "the end of the last, rounded up");
        }
    }
    assert_eq!(sequence - described, 4_000);
    assert_eq!(described % OWN.len() as u32, 0);
    assert!(templates >= 4, "{templates}");
    let none = Writer::new(Vec::new()).finish().expect("memory");
    assert_eq!(messages(&none).len(), 5, "three templates, and the types of elements");
    assert!(messages(&none).iter().all(|message| message.len() <= MESSAGE_BYTES_MAX));
}

/// A list that is too long is cut between names.
#[test]
fn long_lists_are_cut_between_names() {
    let mut end = crate::record::End::of(larder_wire::Addr::UNSPECIFIED);
    let name = |at: usize| format!("{}{at:02}.example", "a".repeat(50));
    end.candidates =
        (0..90).filter_map(|at| larder_wire::Name::from_text(name(at).as_bytes())).collect();
    assert_eq!(end.candidates.len(), 90);
    let mut out = Vec::new();
    write_text(Value::Names(schema::Names::OfEnd(&end)), &mut out);
    let bytes = usize::from(u16::from_be_bytes([out[1], out[2]]));
    assert_eq!((out[0], out.len()), (255, 3 + bytes));
    assert!(bytes <= LIST_BYTES_MAX && bytes > LIST_BYTES_MAX - 62, "{bytes}");
    let text = String::from_utf8(out.split_off(3)).expect("ASCII");
    assert!(text.split(' ').all(|name| name.ends_with(".example")));
}
