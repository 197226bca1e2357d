use super::*;
use crate::record::{End, Naming};

const DAY_NS: i64 = 86_400_000_000_000;

fn addr(number: u32) -> Addr {
    let [a, b, c, d] = number.to_be_bytes();
    Addr::v4([a, b, c, d])
}

/// A record of a flow of client `client` to a name.
fn record(client: u32, name: Option<&str>, bytes: u64) -> FlowRecord {
    let naming = name.map(|name| Naming {
        name: Name::from_text(name.as_bytes()).expect("a name"),
        source: NameSource::Sni,
        age_ms: 0,
        flags: NameFlags::NONE,
        confidence: 90,
        conflict_grade: None,
    });
    let destination = End {
        candidates: naming.iter().map(|naming| naming.name.clone()).collect(),
        unnamed_reason: naming.is_none().then_some(UnnamedReason::NoLookupSeen),
        naming,
        ip_bytes: bytes,
        port: 443,
        ..End::of(addr(0xcb00_7101))
    };
    let source = End::of(addr(client));
    FlowRecord { source, destination, protocol: 6, start_ns: DAY_NS, ..FlowRecord::blank() }
}

/// Rows have the sums of their flows; a name that another client uses counts that client.
#[test]
fn rows_are_sums() {
    let mut seen = Seen::default();
    seen.advance(86_400);
    for (client, bytes) in [(1, 100), (2, 50), (1, 7)] {
        seen.take(Noted::of(&record(client, Some("www.example.com"), bytes), 0, false));
    }
    seen.take(Noted::of(&record(3, None, 9), 0, true));
    let names = seen.names.merged(86_400, 10);
    let (name, row) = &names[0];
    assert_eq!((names.len(), name.as_bytes()), (1, &b"www.example.com"[..]));
    assert_eq!(row.traffic, Traffic { flows: 3, bytes: 157 });
    assert_eq!(row.clients, [addr(1), addr(2)]);
    let clients = seen.clients.merged(86_400, 2);
    assert_eq!(clients.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [addr(1), addr(2)]);
    let unresolved = seen.unresolved.merged(86_400, 10);
    assert_eq!((unresolved[0].0.port, unresolved[0].1.client), (443, addr(3)));
    assert_eq!(seen.sources[NameSource::Sni as usize], 3);
    assert_eq!(seen.reasons, [(UnnamedReason::NoLookupSeen, 1)]);
}

/// A name of another registered domain than a lookup gave is listed with both; one of the same
/// domain is not.
#[test]
fn conflicts_are_of_other_domains() {
    let mut seen = Seen::default();
    let looked_up = Name::from_text(b"cdn.example.net").expect("a name");
    for grade in [ConflictGrade::SameDomain, ConflictGrade::Chain, ConflictGrade::OtherDomain] {
        let mut record = record(1, Some("www.bank.example"), 1);
        record.destination.candidates.push(looked_up.clone());
        record.destination.naming.as_mut().expect("named").conflict_grade = Some(grade);
        seen.take(Noted::of(&record, 0, false));
    }
    let rows = seen.conflicts.merged(0, 10);
    assert_eq!(rows.len(), 1);
    let ((stated, other), row) = &rows[0];
    assert_eq!((stated.as_bytes(), other), (&b"www.bank.example"[..], &looked_up));
    assert_eq!(row.traffic.flows, 1);
}

/// A name below the least confidence is none, as in the log.
#[test]
fn low_confidence_is_no_name() {
    let mut seen = Seen::default();
    seen.take(Noted::of(&record(1, Some("a.example"), 1), 90, false));
    seen.take(Noted::of(&record(1, Some("a.example"), 1), 91, false));
    assert_eq!(seen.names.merged(0, 10)[0].1.traffic.flows, 1);
    assert_eq!(seen.reasons, [(UnnamedReason::LowConfidence, 1)]);
}

/// A name is new on the day of its first flow, and not on the next.
#[test]
fn names_are_new_for_a_day() {
    let mut seen = Seen::default();
    let flow = || Noted::of(&record(1, Some("new.example"), 1), 0, false);
    seen.advance(10 * 86_400 + 5);
    seen.take(flow());
    seen.take(flow());
    assert_eq!(seen.new_names.len(), 1);
    assert_eq!(seen.known.first_day(b"new.example"), Some(seen.today()));
    seen.advance(11 * 86_400);
    seen.take(flow());
    assert!(seen.new_names.is_empty());
    assert_eq!(seen.known.first_day(b"new.example"), Some(10));
}

/// Invariant 2: rows leave the window with their slice, by the time that is passed. A clock that was
/// set back adds to the latest slice.
#[test]
fn windows_move() {
    let mut names = Recent::new(600, 6, 10);
    let row = |bytes| ClientRow { traffic: Traffic { flows: 1, bytes }, name: None };
    names.add(addr(1), row(5), 0);
    names.add(addr(1), row(7), 3_599);
    names.add(addr(1), row(1), 100);
    assert_eq!(names.merged(3_599, 5)[0].1.traffic, Traffic { flows: 3, bytes: 13 });
    assert_eq!(names.merged(3_600, 5)[0].1.traffic, Traffic { flows: 2, bytes: 8 });
    assert!(names.merged(10_000, 5).is_empty());
}

/// Invariant 1: tables of hostile traffic keep their bounds, and the rows with the most traffic.
#[test]
fn tables_are_bounded() {
    let mut seen = Seen::default();
    for number in 0..100_000 {
        seen.advance(u64::from(number / 100));
        let name = format!("{number}.example");
        let mut record = record(number, Some(&name), u64::from(number));
        record.destination.addr = addr(number);
        record.start_ns = i64::from(number);
        seen.take(Noted::of(&record, 0, true));
        seen.take(Noted::of(&self::record(7, Some("big.example"), 1 << 30), 0, false));
    }
    // The time of two slices of the names, and of one of the others.
    assert!(seen.names.rows() <= 2 * 4_096 && seen.names.rows() > 4_096);
    assert!(seen.clients.rows() <= 2 * 4_096);
    assert!(seen.unresolved.rows() <= 1_024 && seen.unresolved.rows() > 500);
    assert!(seen.known.iter().len() <= known::KNOWN_MAX);
    assert_eq!(seen.new_names.len(), NEW_MAX);
    let (name, row) = &seen.names.merged(999, 1)[0];
    assert_eq!(name.as_bytes(), b"big.example");
    assert_eq!(row.traffic.flows, 100_000);
    let latest = &seen.unresolved.merged(999, 1)[0];
    assert_eq!(latest.0.addr, addr(99_999));
}

/// A name of many clients counts as many as are told apart.
#[test]
fn clients_of_a_name_are_bounded() {
    let mut seen = Seen::default();
    for client in 0..100 {
        seen.take(Noted::of(&record(client, Some("a.example"), 1), 0, false));
    }
    assert_eq!(seen.names.merged(0, 1)[0].1.clients.len(), CLIENTS_MAX);
}
