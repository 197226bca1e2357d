//! Logs of other programs: not a byte is lost, and output with our keys can be read.

use std::io::BufReader;

use larder_annotate::feeds::zeek::{Column, FIELDS_MAX};
use larder_annotate::feeds::{ANSWERS_MAX, DnsRow, Value, eve as eve_log, zeek as zeek_log};
use larder_io::frame_streams::{FRAME_BYTES_MAX, Frames};
use larder_wire::dnstap::Message;
use serde::de::IgnoredAny;

use super::assert_inside;

/// What a run may append, with bytes that every format has to mask.
const HOSTILE: &[u8] = b"a\x1b[31m\t\"\\\n,\xffb.example";

/// A buffer so short that lines end in the middle of it.
const BUFFER_BYTES: usize = 32;

/// The input is a Zeek log, of either form. Invariant 1 of `annotate::zeek`.
pub fn zeek(input: &[u8]) {
    let mut log = zeek_log::Log::new(BufReader::with_capacity(BUFFER_BYTES, input));
    let columns = [
        Column { name: "larder.name", kind: "string", value: Value::Text(HOSTILE) },
        Column { name: "larder.names", kind: "vector[string]", value: Value::List(&[HOSTILE]) },
        Column { name: "larder.stale", kind: "bool", value: Value::Bool(true) },
        Column { name: "larder.age", kind: "count", value: Value::Count(7) },
        Column { name: "larder.none", kind: "string", value: Value::Unset },
    ];
    let (mut copy, mut plain, mut annotated) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(item) = log.advance().expect("memory is readable") {
        copy.extend_from_slice(log.line());
        assert!(log.header().fields.len() <= FIELDS_MAX);
        let _ = log.flow_ends(item);
        check_row(log.dns_row(item));
        plain.clear();
        log.write_with(item, &[], &mut plain);
        annotated.clear();
        log.write_with(item, &columns, &mut annotated);
        if item == zeek_log::Item::Json {
            assert_json(&annotated);
        } else {
            assert_eq!(plain, log.line(), "a line that changed");
            let lines = |text: &[u8]| text.iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(lines(&annotated), lines(log.line()), "one line became two");
            let body = log.line().trim_ascii_end();
            assert!(annotated.starts_with(body) || item == zeek_log::Item::Fields);
        }
    }
    assert_eq!(copy, input);
}

/// The input is an EVE log.
pub fn eve(input: &[u8]) {
    let mut log = eve_log::Log::new(BufReader::with_capacity(BUFFER_BYTES, input));
    let keys = [
        ("larder.name", Value::Text(HOSTILE)),
        ("larder.names", Value::List(&[HOSTILE, HOSTILE])),
        ("larder.stale", Value::Bool(false)),
        ("larder.age", Value::Count(u64::MAX)),
        ("larder.none", Value::Unset),
    ];
    let (mut copy, mut annotated) = (Vec::new(), Vec::new());
    while let Some(item) = log.advance().expect("memory is readable") {
        copy.extend_from_slice(log.line());
        check_row(log.event().dns.clone());
        annotated.clear();
        log.write_with(item, &keys, &mut annotated);
        match item {
            eve_log::Item::Event => assert_json(&annotated),
            _ => assert_eq!(annotated, log.line()),
        }
    }
    assert_eq!(copy, input);
}

fn assert_json(line: &[u8]) {
    let lines = line.iter().filter(|&&byte| byte == b'\n').count();
    assert!(lines <= 1, "one line became several");
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
        panic!("{error}: {}", line.escape_ascii());
    }
}

fn check_row(row: Option<DnsRow>) {
    let Some(row) = row else { return };
    assert!(row.answers.len() <= ANSWERS_MAX);
    assert!(!row.query.as_bytes().iter().any(u8::is_ascii_uppercase));
}

/// The input is a dnstap file; and a frame of one.
pub fn dnstap(input: &[u8]) {
    check_frame(input);
    let Ok(mut frames) = Frames::open(input) else { return };
    let mut bytes = 0;
    while let Ok(Some(frame)) = frames.next_frame() {
        assert!(frame.len() <= FRAME_BYTES_MAX);
        bytes += frame.len();
        check_frame(frame);
    }
    assert!(bytes <= input.len());
}

fn check_frame(frame: &[u8]) {
    let Some(message) = Message::parse(frame) else { return };
    for bytes in [message.query, message.response].into_iter().flatten() {
        assert_inside(bytes, frame);
    }
}
