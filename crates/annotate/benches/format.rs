//! Records rendered a second, on one core, for each format.
//!
//! `cargo bench -p larder-annotate --bench format -- [records=N] [names=N] [only=FORMAT]`
//! measures; without
//! `--bench` (as `cargo test` runs it) it renders a few records and only shows that it works.
//! The work is done in rounds; the best is what the code can do, the distance to the median says how
//! much else the machine was doing. `names` is the number of different names: each record has another one of them.
//! The checksum tells whether two runs did the same work.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use larder_annotate::format::Format;
use larder_annotate::options::OutputFormat;
use larder_annotate::record::{
    App, ConnState, End, EndReason, FlowRecord, NameFlags, NameSource, Naming, UnnamedReason,
};
use larder_wire::{Addr, Name};

/// Rendered bytes are dropped when there are this many, as if written.
const BUFFER_BYTES: usize = 1 << 20;

/// Rounds that the work is done in: short ones, so that some are not interrupted.
const ROUNDS: usize = 1_000;

/// The same for Parquet files, whose cost begins with the file.
#[cfg(feature = "parquet")]
const FILE_ROUNDS: usize = 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let real = arguments.iter().any(|argument| argument == "--bench");
    let number = |name: &str, default| {
        let value = arguments.iter().find_map(|argument| argument.strip_prefix(name));
        value.map_or(default, |value| value.parse().expect("a number"))
    };
    let records_count = number("records=", if real { 2_000_000 } else { 2_000 });
    let only = arguments.iter().find_map(|argument| argument.strip_prefix("only="));
    let names_count = number("names=", 1_000).max(1);
    let records: Vec<_> = (0..names_count).map(record).collect();

    println!("format   records/s  ns/record  (median)  bytes/record  checksum");
    let formats = [
        ("text", OutputFormat::Text),
        ("ecs", OutputFormat::Ecs),
        ("zeek", OutputFormat::Zeek),
        ("csv", OutputFormat::Csv),
        ("parquet", OutputFormat::Parquet),
    ];
    for (title, output) in formats {
        if only.is_some_and(|only| only != title) {
            continue;
        }
        if let Ok(format) = Format::new(output, false) {
            measure(title, &format, &records, records_count);
        }
    }
    #[cfg(feature = "parquet")]
    if only.is_none_or(|only| only == "file") {
        measure_parquet_file(&records, records_count);
    }
}

fn measure(title: &str, format: &Format, records: &[FlowRecord], count: usize) {
    let writer = format.writer();
    let mut out = Vec::with_capacity(2 * BUFFER_BYTES);
    let (mut bytes, mut checksum) = (0, 0u64);
    let mut records = records.iter().cycle();
    let round = || {
        for record in records.by_ref().take(count / ROUNDS) {
            writer.record(black_box(record), &mut out);
            if out.len() >= BUFFER_BYTES {
                (bytes, checksum) = (bytes + out.len(), checksum ^ sum(&out));
                out.clear();
            }
        }
    };
    let rounds = time(ROUNDS, round);
    (bytes, checksum) = (bytes + out.len(), checksum ^ sum(&out));
    report(title, count / ROUNDS, rounds, bytes / ROUNDS, checksum);
}

/// Seconds of each round, sorted.
fn time(rounds: usize, mut round: impl FnMut()) -> Vec<f64> {
    let once = |_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64()
    };
    let mut rounds: Vec<_> = (0..rounds).map(once).collect();
    rounds.sort_by(f64::total_cmp);
    rounds
}

/// What the one writer of a Parquet file does: rows to columns, encoding, compression.
#[cfg(feature = "parquet")]
fn measure_parquet_file(records: &[FlowRecord], count: usize) {
    use larder_annotate::format::RecordWriter;
    use larder_annotate::format::parquet::Writer;
    use larder_annotate::format::rows::Rows;

    let mut rows = Vec::new();
    records.iter().for_each(|record| Rows.record(record, &mut rows));
    let portions = (count / FILE_ROUNDS).div_ceil(records.len());
    let mut file = Vec::new();
    let rounds = time(FILE_ROUNDS, || {
        let mut writer = Writer::new(Vec::new()).expect("memory takes everything");
        for _ in 0..portions {
            writer.push_rows(black_box(&rows)).expect("memory takes everything");
        }
        file = writer.finish().expect("memory takes everything");
    });
    report("file", portions * records.len(), rounds, file.len(), sum(&file));
}

/// Prints a line; `count` and `bytes` are of one round.
fn report(title: &str, count: usize, rounds: Vec<f64>, bytes: usize, checksum: u64) {
    let [best, median] =
        [rounds[0], rounds[rounds.len() / 2]].map(|seconds| seconds / count as f64);
    let (rate, best, median) = (1.0 / best, best * 1e9, median * 1e9);
    println!(
        "{title:8} {rate:9.0} {best:10.0} {median:9.0} {:13}  {checksum:x}",
        bytes / count.max(1)
    );
}

/// A checksum that costs little next to rendering: a word of every 64 is read.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8).step_by(64);
    words.fold(0, |sum, word| {
        let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        sum.rotate_left(5) ^ word
    })
}

/// A flow as most are: TLS to a named address that has two candidates.
fn record(number: usize) -> FlowRecord {
    let name = |text: &str| Name::from_canonical(text.as_bytes());
    let addr = |text: String| Addr::from(text.parse::<IpAddr>().expect("a literal address"));
    let chosen = name(&format!("www{number}.example.com"));
    let start_ns = 1_704_164_645_123_456_789 + number as i64 * 1_234_567;
    FlowRecord {
        first_packet: number as u64,
        end_packet: number as u64 + 40,
        start_ns,
        end_ns: start_ns + 12_345_678_901,
        protocol: 6,
        source: End {
            port: 49_152 + (number % 10_000) as u16,
            packets: 11,
            ip_bytes: 1_234,
            payload_bytes: Some(790),
            unnamed_reason: Some(UnnamedReason::Local),
            ..End::of(addr(format!("10.0.{}.5", number % 256)))
        },
        destination: End {
            port: 443,
            packets: 29,
            ip_bytes: 34_567,
            payload_bytes: Some(33_001),
            naming: Some(Naming {
                name: chosen.clone(),
                source: NameSource::DnsPair,
                age_ms: 250,
                flags: NameFlags::AMBIGUOUS,
                confidence: 85,
                conflict_grade: None,
            }),
            candidates: vec![chosen.clone(), name("cdn.example.net")],
            ..End::of(addr(format!("93.184.{}.34", number % 251)))
        },
        app: Some(App::Tls),
        tls_server_name: Some(chosen),
        tls_ech: Some(true),
        conn_state: ConnState::SF,
        history: "ShADadFf".to_owned(),
        end_reason: EndReason::Closed,
        ..FlowRecord::blank()
    }
}
