//! Hit ratios as a table for people, as CSV, and as JSON.
//!
//! All three have the same rows in the same order. Numbers are written with as many digits as they are good
//! for: ratios with six (one request in a million), times with hundredths of a nanosecond. An unknown value is
//! `-` in the table, empty in CSV, `null` in JSON. CSV has one more column where a trace was sampled.

use larder_bench::result_table::{Cell, Column, ResultTable, grouped};
use serde_json::{Value, json};

use crate::hit_ratio::{Results, Row};

/// The column for people that is left out unless a trace was sampled.
const ERROR: &str = "+- (95 %)";

/// A trace's name, and its results.
pub type Named = (String, Results);

/// As CSV (RFC 4180, but with line feeds).
pub fn csv(all: &[Named]) -> String {
    let is_sampled = all.iter().any(|(_, results)| results.rate.is_some());
    let ratio = |ratio: Option<f64>| Cell::known(ratio, Cell::ratio);
    let columns: [Column<'_, (&str, &Row)>; 10] = [
        ("trace", &|(trace, _)| (*trace).into()),
        ("policy", &|(_, row)| row.policy.as_str().into()),
        ("capacity", &|(_, row)| row.capacity.into()),
        ("requests", &|(_, row)| row.requests.into()),
        ("hits", &|(_, row)| row.hits.into()),
        ("hit_ratio", &|(_, row)| ratio(row.hit_ratio)),
        ("byte_hit_ratio", &|(_, row)| ratio(row.byte_hit_ratio)),
        ("miss_reduction_vs_fifo", &|(_, row)| ratio(row.miss_reduction_vs_fifo)),
        ("ns_per_request", &|(_, row)| Cell::Number(row.ns_per_request, 2)),
        ("hit_ratio_error", &|(_, row)| ratio(row.hit_ratio_error)),
    ];
    let columns = if is_sampled { &columns[..] } else { &columns[..columns.len() - 1] };
    let rows = all.iter().flat_map(|(trace, of)| of.rows.iter().map(|row| (trace.as_str(), row)));
    ResultTable::of(rows, columns).csv()
}

/// As one JSON object.
pub fn json(all: &[Named]) -> String {
    let row = |row: &Row| {
        json!({
            "policy": row.policy,
            "capacity": row.capacity,
            "requests": row.requests,
            "hits": row.hits,
            "hit_ratio": row.hit_ratio,
            "byte_hit_ratio": row.byte_hit_ratio,
            "miss_reduction_vs_fifo": row.miss_reduction_vs_fifo,
            "ns_per_request": row.ns_per_request,
            "hit_ratio_error": row.hit_ratio_error,
            "bypassed": row.bypassed,
        })
    };
    let trace = |(trace, results): &Named| {
        json!({
            "trace": trace,
            "requests": results.requests,
            "keys": results.keys,
            "sample_rate": results.rate,
            "damaged_records": results.damage.records,
            "first_damage": results.damage.first,
            "stopped": results.is_stopped,
            "notes": results.notes,
            "rows": results.rows.iter().map(row).collect::<Vec<Value>>(),
        })
    };
    let traces: Vec<Value> = all.iter().map(trace).collect();
    format!("{:#}\n", json!({ "traces": traces }))
}

/// As aligned columns, trace by trace.
pub fn table(all: &[Named]) -> String {
    let mut text = String::new();
    for (number, (trace, results)) in all.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        let keys = grouped(results.keys);
        text.push_str(&format!("{trace}: {} requests, ", grouped(results.requests)));
        match results.rate {
            None => text.push_str(&format!("{keys} different keys\n")),
            Some(rate) => text.push_str(&format!(
                "a sample of {} % of the keys ({keys})\n",
                significant(rate * 100.0)
            )),
        }
        text.push_str(&rows(results).text());
    }
    text
}

/// The rows of one trace, for people.
fn rows(results: &Results) -> ResultTable {
    let percent = |ratio: Option<f64>| Cell::known(ratio, Cell::percent);
    let count = |count: u64| Cell::Figure(grouped(count));
    let signed = |ratio: f64| match (ratio * 1e4).round() {
        0.0 => Cell::percent(0.0),
        // A minus where there are fewer.
        _ => Cell::Figure(format!("{:+.2}", -ratio * 100.0)),
    };
    let columns: [Column<'_, &Row>; 9] = [
        ("policy", &|row| row.policy.as_str().into()),
        ("capacity", &|row| count(row.capacity)),
        ("requests", &|row| count(row.requests)),
        ("hits", &|row| count(row.hits)),
        ("hit %", &|row| percent(row.hit_ratio)),
        (ERROR, &|row| percent(row.hit_ratio_error)),
        ("byte hit %", &|row| percent(row.byte_hit_ratio)),
        ("misses vs fifo %", &|row| Cell::known(row.miss_reduction_vs_fifo, signed)),
        ("ns/request", &|row| Cell::Number(row.ns_per_request, 1)),
    ];
    let is_shown = |column: &Column<'_, _>| column.0 != ERROR || results.rate.is_some();
    let columns: Vec<_> = columns.into_iter().filter(is_shown).collect();
    ResultTable::of(&results.rows, &columns)
}

/// Three digits that count, without zeros at the end.
fn significant(number: f64) -> String {
    let digits = (2 - number.abs().max(1e-12).log10().floor() as i32).max(0) as usize;
    let text = format!("{number:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Damage;

    fn results(rate: Option<f64>) -> Results {
        let row = Row {
            policy: "s3-fifo".to_owned(),
            capacity: 1000,
            requests: 12_345,
            hits: 6_000,
            hit_ratio: Some(6_000.0 / 12_345.0),
            byte_hit_ratio: None,
            miss_reduction_vs_fifo: Some(0.125),
            ns_per_request: 12.345,
            hit_ratio_error: rate.map(|_| 0.0123),
            bypassed: 0,
        };
        let worse = Row {
            policy: "own, \"quoted\"".to_owned(),
            byte_hit_ratio: Some(0.5),
            miss_reduction_vs_fifo: Some(-1e-9),
            ..row.clone()
        };
        Results {
            rows: vec![row, worse],
            requests: 12_345,
            keys: 100,
            rate,
            damage: Damage { records: 1, first: Some("line 3: no number".to_owned()) },
            notes: vec![],
            is_stopped: false,
        }
    }

    /// CSV has exactly the promised columns, empty fields for what is not known, and quotes where needed.
    #[test]
    fn csv_is_as_promised() {
        assert_eq!(
            csv(&[("a.trace".to_owned(), results(None))]),
            "trace,policy,capacity,requests,hits,hit_ratio,byte_hit_ratio,miss_reduction_vs_fifo,\
             ns_per_request\n\
             a.trace,s3-fifo,1000,12345,6000,0.486027,,0.125000,12.35\n\
             a.trace,\"own, \"\"quoted\"\"\",1000,12345,6000,0.486027,0.500000,0.000000,12.35\n"
        );
        let sampled = csv(&[("a".to_owned(), results(Some(0.1)))]);
        assert!(sampled.lines().next().unwrap().ends_with(",ns_per_request,hit_ratio_error"));
        assert!(sampled.lines().nth(1).unwrap().ends_with(",12.35,0.012300"));
    }

    /// The table is aligned, states a sample's error next to the ratio, and has no minus zero.
    #[test]
    fn the_table_is_aligned() {
        let text = table(&[("a".to_owned(), results(Some(0.001)))]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "a: 12,345 requests, a sample of 0.1 % of the keys (100)");
        assert!(lines[1].contains("hit %  +- (95 %)"), "{}", lines[1]);
        assert!(lines[2].starts_with("s3-fifo        ") && lines[2].contains(" 48.60       1.23 "));
        assert!(lines[2].contains(" -12.50") && lines[3].contains(" 0.00 "), "{text}");
        assert!(lines[1..].iter().all(|line| line.len() == lines[1].len()));
    }

    /// JSON has what CSV has, and what happened to the trace.
    #[test]
    fn json_is_complete() {
        let text = json(&[("a".to_owned(), results(None))]);
        let value: Value = serde_json::from_str(&text).unwrap();
        let trace = &value["traces"][0];
        assert_eq!(trace["first_damage"], "line 3: no number");
        assert_eq!(trace["rows"][0]["hits"], 6000);
        assert_eq!(trace["rows"][0]["byte_hit_ratio"], Value::Null);
    }

    /// Digits that count are kept, zeros that do not are not written.
    #[test]
    fn numbers_are_short() {
        assert_eq!(significant(0.1), "0.1");
        assert_eq!(significant(12.345), "12.3");
        assert_eq!(significant(100.0), "100");
        assert_eq!(significant(0.00012345), "0.000123");
    }
}
