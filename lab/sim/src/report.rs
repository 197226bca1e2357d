//! Rows of hit ratios as a table for eyes, as CSV, and as JSON.
//!
//! All three have the same rows in the same order. Numbers are written with as many digits as they are good
//! for: ratios with six (one request in a million), times with hundredths of a nanosecond. What is not known is
//! `-` in the table, empty in CSV, `null` in JSON. CSV has one more column where anything was sampled.

use serde_json::{Value, json};

use crate::hit_ratio::{Results, Row};
use crate::sheet::quoted;

/// Columns of CSV.
pub const CSV_COLUMNS: &str = "trace,policy,capacity,requests,hits,hit_ratio,byte_hit_ratio,miss_reduction_vs_fifo,ns_per_request";

/// The column that is added where anything was sampled: see [`Row::hit_ratio_error`].
pub const CSV_COLUMN_ERROR: &str = "hit_ratio_error";

/// A trace's name, and what came of it.
pub type Named = (String, Results);

/// As CSV (RFC 4180, but with line feeds).
pub fn csv(all: &[Named]) -> String {
    let is_sampled = is_sampled(all);
    let mut text = CSV_COLUMNS.to_owned();
    if is_sampled {
        text.push(',');
        text.push_str(CSV_COLUMN_ERROR);
    }
    text.push('\n');
    for (trace, results) in all {
        for row in &results.rows {
            let Row { policy, capacity, requests, hits, ns_per_request, .. } = row;
            let mut fields = vec![
                quoted(trace),
                quoted(policy),
                capacity.to_string(),
                requests.to_string(),
                hits.to_string(),
                six_digits(row.hit_ratio),
                six_digits(row.byte_hit_ratio),
                six_digits(row.miss_reduction_vs_fifo),
                format!("{ns_per_request:.2}"),
            ];
            if is_sampled {
                fields.push(six_digits(row.hit_ratio_error));
            }
            text.push_str(&fields.join(","));
            text.push('\n');
        }
    }
    text
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
        text.push_str(&aligned(&cells(results)));
    }
    text
}

/// Header and rows of one trace.
fn cells(results: &Results) -> Vec<Vec<String>> {
    let mut header = vec![
        "policy",
        "capacity",
        "requests",
        "hits",
        "hit %",
        "byte hit %",
        "misses vs fifo %",
        "ns/request",
    ];
    if results.rate.is_some() {
        header.insert(5, "+- (95 %)");
    }
    let percent = |ratio: Option<f64>| match ratio {
        Some(ratio) => format!("{:.2}", ratio * 100.0),
        None => "-".to_owned(),
    };
    let signed = |ratio: Option<f64>| match ratio {
        // A minus where there are fewer; never a minus nought.
        Some(ratio) if (ratio * 1e4).round() != 0.0 => format!("{:+.2}", -ratio * 100.0),
        Some(_) => "0.00".to_owned(),
        None => "-".to_owned(),
    };
    let row = |row: &Row| {
        let mut cells = vec![
            row.policy.clone(),
            grouped(row.capacity),
            grouped(row.requests),
            grouped(row.hits),
            percent(row.hit_ratio),
            percent(row.byte_hit_ratio),
            signed(row.miss_reduction_vs_fifo),
            format!("{:.1}", row.ns_per_request),
        ];
        if results.rate.is_some() {
            cells.insert(5, percent(row.hit_ratio_error));
        }
        cells
    };
    let header = header.into_iter().map(str::to_owned).collect();
    [header].into_iter().chain(results.rows.iter().map(row)).collect()
}

/// The first column to the left, the others to the right.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match column {
                0 => text.push_str(&format!("{cell:width$}")),
                _ => text.push_str(&format!("  {cell:>width$}")),
            }
        }
        text.push('\n');
    }
    text
}

fn is_sampled(all: &[Named]) -> bool {
    all.iter().any(|(_, results)| results.rate.is_some())
}

fn six_digits(number: Option<f64>) -> String {
    number.map(|number| format!("{number:.6}")).unwrap_or_default()
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

/// A number with a comma every three digits: 1234567 is `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
             a.trace,\"own, \"\"quoted\"\"\",1000,12345,6000,0.486027,0.500000,-0.000000,12.35\n"
        );
        let sampled = csv(&[("a".to_owned(), results(Some(0.1)))]);
        assert!(sampled.lines().next().unwrap().ends_with(",ns_per_request,hit_ratio_error"));
        assert!(sampled.lines().nth(1).unwrap().ends_with(",12.35,0.012300"));
    }

    /// The table is aligned, says a sample's error beside the ratio, and has no minus nought.
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
    fn json_tells_all() {
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
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
