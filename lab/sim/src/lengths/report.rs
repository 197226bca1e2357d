//! Lengths and losses as rows.

use super::Row;
use super::names::{Names, Statistics, TOPS};
use larder_bench::result_table::{Cell, Column, ResultTable};

/// What the lengths of the list are like, and those of registered labels in it.
pub fn statistics(names: &Names) -> ResultTable {
    let registered = |(at, top): (usize, &&str)| {
        (format!("labels registered in .{top}"), Statistics::of(names.registered(at)))
    };
    let whole = ("whole names".to_owned(), Statistics::of(&names.counts()));
    let columns: [Column<'_, (String, Statistics)>; 8] = [
        ("what", &|(what, _)| what.as_str().into()),
        ("names", &|(_, of)| of.count.into()),
        ("mean", &|(_, of)| Cell::Number(of.mean, 1)),
        ("mode", &|(_, of)| (of.mode as u64).into()),
        ("median", &|(_, of)| (of.median as u64).into()),
        ("p90", &|(_, of)| (of.p90 as u64).into()),
        ("p99", &|(_, of)| (of.p99 as u64).into()),
        ("longest", &|(_, of)| (of.longest as u64).into()),
    ];
    ResultTable::of([whole].into_iter().chain(TOPS.iter().enumerate().map(registered)), &columns)
}

/// How many names have each length.
pub fn distribution(names: &Names) -> ResultTable {
    let counts = names.counts();
    let of = |counts: &[u64], length: &usize| counts.get(*length).copied().unwrap_or(0).into();
    let columns: [Column<'_, usize>; 4] = [
        ("length", &|length| (*length as u64).into()),
        ("names", &|length| of(&counts, length)),
        ("registered_com", &|length| of(names.registered(0), length)),
        ("registered_net", &|length| of(names.registered(1), length)),
    ];
    ResultTable::of(1..counts.len(), &columns)
}

/// What each way of dividing gave.
pub fn losses(rows: &[Row]) -> ResultTable {
    let columns: [Column<'_, &Row>; 9] = [
        ("policy", &|row| row.policy.to_string().into()),
        ("memory_bytes", &|row| row.memory_bytes.into()),
        ("split", &|row| row.split.name().into()),
        ("width", &|row| u64::from(row.width).into()),
        ("requests", &|row| row.requests.into()),
        ("hits", &|row| row.hits.into()),
        ("hit_ratio", &|row| Cell::ratio(row.hit_ratio())),
        ("loss_points", &|row| Cell::Number(row.loss_points, 2)),
        ("memory_used", &|row| Cell::Number(row.used, 3)),
    ];
    ResultTable::of(rows, &columns)
}
