//! Lengths and losses as rows.

use super::Row;
use super::names::{Names, Statistics, TOPS};
use larder_bench::result_table::{Cell, ResultTable};

/// What the lengths of the list are like, and those of registered labels in it.
pub fn statistics(names: &Names) -> ResultTable {
    let mut table =
        ResultTable::new(&["what", "names", "mean", "mode", "median", "p90", "p99", "longest"]);
    let mut push = |what: String, counts: &[u64]| {
        let of = Statistics::of(counts);
        let length = |length: usize| Cell::from(length as u64);
        table.push([
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
    table
}

/// How many names have each length.
pub fn distribution(names: &Names) -> ResultTable {
    let mut table = ResultTable::new(&["length", "names", "registered_com", "registered_net"]);
    let counts = names.counts();
    let of = |counts: &[u64], length: usize| counts.get(length).copied().unwrap_or(0);
    for length in 1..counts.len() {
        let registered = |top| Cell::from(of(names.registered(top), length));
        table.push([
            (length as u64).into(),
            of(&counts, length).into(),
            registered(0),
            registered(1),
        ]);
    }
    table
}

/// What each way of dividing gave.
pub fn losses(rows: &[Row]) -> ResultTable {
    let mut table = ResultTable::new(&[
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
        table.push([
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
    table
}
