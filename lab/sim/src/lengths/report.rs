//! Lengths and losses as rows.

use super::Row;
use super::names::{Names, Statistics, TOPS};
use crate::sheet::{Cell, Sheet};

/// What the lengths of the list are like, and those of registered labels in it.
pub fn statistics(names: &Names) -> Sheet {
    let mut sheet =
        Sheet::new(&["what", "names", "mean", "mode", "median", "p90", "p99", "longest"]);
    let mut push = |what: String, counts: &[u64]| {
        let of = Statistics::of(counts);
        let length = |length: usize| Cell::from(length as u64);
        sheet.push([
            what.into(),
            of.count.into(),
            Cell::Number(of.mean, 1),
            length(of.mode),
            length(of.median),
            length(of.p90),
            length(of.p99),
            length(of.longest),
        ]);
    };
    push("whole names".to_owned(), &names.counts());
    for (at, top) in TOPS.iter().enumerate() {
        push(format!("labels registered in .{top}"), names.registered(at));
    }
    sheet
}

/// How many names have each length.
pub fn distribution(names: &Names) -> Sheet {
    let mut sheet = Sheet::new(&["length", "names", "registered_com", "registered_net"]);
    let counts = names.counts();
    let of = |counts: &[u64], length: usize| counts.get(length).copied().unwrap_or(0);
    for length in 1..counts.len() {
        let registered = |top| Cell::from(of(names.registered(top), length));
        sheet.push([
            (length as u64).into(),
            of(&counts, length).into(),
            registered(0),
            registered(1),
        ]);
    }
    sheet
}

/// What each way of dividing gave.
pub fn losses(rows: &[Row]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "policy",
        "memory_bytes",
        "split",
        "width",
        "requests",
        "hits",
        "hit_ratio",
        "loss_points",
        "memory_used",
    ]);
    for row in rows {
        sheet.push([
            row.policy.to_string().into(),
            row.memory_bytes.into(),
            row.split.name().into(),
            u64::from(row.width).into(),
            row.requests.into(),
            row.hits.into(),
            Cell::ratio(row.hit_ratio()),
            Cell::Number(row.loss_points, 2),
            Cell::Number(row.used, 3),
        ]);
    }
    sheet
}
