//! Outcomes as rows.

use super::{Mode, Outcome, Point, RECORD_BYTES, Settings};
use larder_bench::result_table::{Cell, ResultTable};

/// Columns of [`table`]. Counts of work are a request's share: `records` are those of the engine's log, `bytes` its
/// bytes, `entries` each changed entry once a sync, `whole` each part with a change in it, `moved` requests handed
/// to another core.
pub const COLUMNS: [&str; 21] = [
    "trace",
    "mode",
    "policy",
    "capacity",
    "cores",
    "period",
    "spread",
    "reports",
    "sets",
    "fill",
    "fall_through",
    "requests",
    "gets",
    "hits",
    "hit_ratio",
    "stale_ratio",
    "records_per_request",
    "bytes_per_request",
    "entries_per_request",
    "whole_per_request",
    "moved_per_request",
];

/// A row a point.
pub fn table(
    trace: &str,
    settings: &Settings,
    points: &[Point],
    outcomes: &[Outcome],
) -> ResultTable {
    let mut table = ResultTable::new(&COLUMNS);
    for (point, outcome) in points.iter().zip(outcomes) {
        let work = |count| Cell::Number(outcome.a_request(count), 4);
        let yes = |is: bool| Cell::from(if is { "yes" } else { "no" });
        table.push([
            trace.into(),
            point.mode.name().into(),
            point.policy.to_string().into(),
            u64::from(point.capacity).into(),
            u64::from(settings.cores).into(),
            period(point.mode, settings),
            settings.spread.name().into(),
            Cell::Number(settings.report_share, 4),
            Cell::Number(settings.set_share, 4),
            yes(settings.fills),
            yes(settings.falls_through),
            outcome.requests.into(),
            outcome.gets.into(),
            outcome.hits.into(),
            Cell::ratio(outcome.hit_ratio()),
            Cell::ratio(outcome.old_ratio()),
            work(outcome.records),
            work(outcome.records * RECORD_BYTES as u64),
            work(outcome.entries),
            work(outcome.whole),
            work(outcome.moved),
        ]);
    }
    table
}

/// Requests from sync to sync, where there are syncs.
pub(crate) fn period(mode: Mode, settings: &Settings) -> Cell {
    match mode {
        Mode::Synchronous => Cell::Count(1),
        Mode::Periodic => Cell::Count(settings.period),
        Mode::Independent | Mode::IndependentFull | Mode::Sharded => Cell::Unknown,
    }
}

/// What eyes want of it: without the columns that are the same in every row.
pub fn short(points: &[Point], outcomes: &[Outcome]) -> ResultTable {
    let mut table = ResultTable::new(&[
        "mode",
        "policy",
        "capacity",
        "hit_%",
        "stale_%",
        "records/request",
        "bytes/request",
        "entries/request",
        "whole/request",
        "moved/request",
    ]);
    for (point, outcome) in points.iter().zip(outcomes) {
        let work = |count| Cell::Number(outcome.a_request(count), 2);
        table.push([
            point.mode.name().into(),
            point.policy.to_string().into(),
            u64::from(point.capacity).into(),
            Cell::percent(outcome.hit_ratio()),
            Cell::percent(outcome.old_ratio()),
            work(outcome.records),
            work(outcome.records * RECORD_BYTES as u64),
            work(outcome.entries),
            work(outcome.whole),
            work(outcome.moved),
        ]);
    }
    table
}
