//! `--from`, `--to` and `--capture-began`: a part of a capture is named like the whole.

mod support;

use larder_annotate::options::Options;
use serde_json::Value;
use support::*;

/// A capture of many flows, its frames, and some times between them.
fn mixed(folder: &Folder) -> (std::path::PathBuf, Maker, [i64; 3]) {
    let maker = mixture(3, 1 << 20);
    let at = |parts: usize| maker.frames[maker.frames.len() * parts / 4].at_ns;
    let cuts = [at(1), at(2), at(3)];
    (folder.keep("whole.pcapng", maker.pcapng()), maker, cuts)
}

fn packets_of(records: &[Value]) -> u64 {
    let of = |record: &Value, key: &str| record[key].as_u64().unwrap_or(0);
    records.iter().map(|r| of(r, "source.packets") + of(r, "destination.packets")).sum()
}

/// The records of flows that begin at `from` or later.
fn begun_since(records: &[Value], from: &str) -> Vec<Value> {
    let start = |record: &Value| record["event.start"].as_str().expect("a time").to_owned();
    records.iter().filter(|record| start(record).as_str() >= from).cloned().collect()
}

/// The log's form of a time.
fn text_of(time_ns: i64) -> String {
    String::from_utf8(larder_wire::civil::Civil::from_ns(time_ns).rfc3339().to_vec())
        .expect("ASCII")
}

/// The flows that begin in a range have the records that a log of the whole has, byte for byte: names, confidence,
/// reasons and identifiers.
#[test]
fn a_part_is_named_like_the_whole() {
    let folder = Folder::new();
    let (capture, _, cuts) = mixed(&folder);
    // The same stream, of which no packet is early.
    let whole = Options { from_ns: Some(i64::MIN), ..ecs(&capture) };
    let whole = same_on_all_cores("whole", &whole);
    let whole_records = whole.records();
    let mut compared = 0;
    for cut in cuts {
        let part = same_on_all_cores("part", &Options { from_ns: Some(cut), ..ecs(&capture) });
        let from = text_of(cut);
        let expected = begun_since(&whole_records, &from);
        // A flow that goes on is recorded from there, as one that begins in the midst.
        let mut records = part.records();
        records.retain(|record| {
            let is_later = |other: &Value| other["event.id"] == record["event.id"];
            let key = "network.community_id";
            let goes_on = |other: &Value| other[key] == record[key] && !is_later(other);
            expected.iter().any(is_later) || !whole_records.iter().any(goes_on)
        });
        assert_eq!(records.len(), expected.len());
        for (record, expected) in records.iter().zip(&expected) {
            assert_eq!(record, expected, "from {from}");
        }
        compared += expected.len();
        assert_eq!(part.files["names"], whole.files["names"], "from {from}");
        assert_eq!(part.summary.packets + part.summary.packets_for_names, whole.summary.packets);
    }
    assert!(compared > 1_000, "{compared}");
}

/// With `--to` the log is that of a capture which ends there.
#[test]
fn to_is_the_end_of_the_capture() {
    let folder = Folder::new();
    let (capture, mut maker, cuts) = mixed(&folder);
    for cut in cuts.into_iter().rev() {
        maker.frames.retain(|frame| frame.at_ns < cut);
        let shorter = folder.keep("shorter.pcapng", maker.pcapng());
        let ended = Options { to_ns: Some(i64::MAX), ..ecs(&shorter) };
        let ended = same_on_all_cores("ended", &ended);
        let part = same_on_all_cores("part", &Options { to_ns: Some(cut), ..ecs(&capture) });
        assert_eq!(part.files, ended.files, "to {}", text_of(cut));
        assert_eq!(part.summary.packets, maker.frames.len() as u64);
    }
}

/// Ranges that meet have each packet once.
#[test]
fn ranges_share_no_packet() {
    let folder = Folder::new();
    let (capture, _, [one, two, _]) = mixed(&folder);
    let count = |from_ns, to_ns| {
        let made = made(&Options { from_ns, to_ns, ..ecs(&capture) }, 2);
        let written = folder.keep("written.pcapng", &made.files["packets.pcapng"]);
        let answers = String::from_utf8_lossy(&made.files["dns.log"]);
        let answers = answers.lines().filter(|line| !line.starts_with('#')).count();
        (packets_of(&made.records()), frames(&written).len(), answers, made.summary.answers)
    };
    let whole = count(None, None);
    let parts =
        [(None, Some(one)), (Some(one), Some(two)), (Some(two), None)].map(|(f, t)| count(f, t));
    assert!(parts.iter().all(|part| part.0 > 100 && part.1 > 100), "{parts:?}");
    assert_eq!(parts.iter().map(|part| part.0).sum::<u64>(), whole.0);
    assert_eq!(parts.iter().map(|part| part.1).sum::<usize>(), whole.1);
    assert!(parts.iter().all(|part| part.3 > 100), "{parts:?}");
    assert_eq!(parts.iter().map(|part| part.2).sum::<usize>(), whole.2);
    assert_eq!(parts.iter().map(|part| part.3).sum::<u64>(), whole.3);
}

/// A filter's count is of the packets in the range, and early packets that it excludes teach no names.
#[test]
fn filters_count_the_range() {
    let folder = Folder::new();
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let capture = folder.capture(vec![
        question(client, 5000, 1, 1),
        answer(client, 5000, 1, 1, &[server]),
        udp((client, server), (6000, 9999), b"request"),
        udp((client, server), (6000, 9998), b"other"),
    ]);
    let from_ns = Some(frames(&capture)[2].at_ns);
    let name = |filter: &str| {
        let filter = filter.to_owned();
        let made = same_on_all_cores("part", &Options { from_ns, filter, ..ecs(&capture) });
        let records = made.records();
        assert_eq!(records.len(), 1, "{records:?}");
        assert_eq!(made.summary.filtered_of, Some(2));
        records[0]["destination.domain"].as_str().map(str::to_owned)
    };
    assert_eq!(name("port 9999 or port 53").as_deref(), Some("h1.larder.example"));
    assert_eq!(name("port 9999"), None);
}

/// A flow's reason counts from the moment at which the capture began.
#[test]
fn reasons_count_from_the_beginning() {
    let folder = Folder::new();
    let (client, server) = ([10, 0, 0, 1], [198, 51, 100, 7]);
    let frame = udp((client, server), (6000, 9999), b"request");
    let capture = folder.capture(vec![frame]);
    let first_ns = frames(&capture)[0].at_ns;
    let reason = |capture_began_ns: Option<i64>| {
        let made = made(&Options { capture_began_ns, ..ecs(&capture) }, 1);
        made.records()[0]["larder.destination.unnamed_reason"].as_str().map(str::to_owned)
    };
    assert_eq!(reason(None).as_deref(), Some("before_capture"));
    assert_eq!(reason(Some(first_ns - 9_000_000_000)).as_deref(), Some("before_capture"));
    assert_eq!(reason(Some(first_ns - 10_000_000_000)).as_deref(), Some("no_lookup_seen"));
}
