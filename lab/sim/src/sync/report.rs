//! Outcomes as rows.

use super::{Mode, Outcome, Point, RECORD_BYTES, Settings};
use larder_bench::result_table::{Cell, Column, ResultTable};

/// A row a point. Counts of work are a request's share: `records` are those of the engine's log, `bytes` its bytes,
/// `entries` each changed entry once a sync, `whole` each part with a change in it, `moved` requests handed to another
/// core.
pub fn table(
    trace: &str,
    settings: &Settings,
    points: &[Point],
    outcomes: &[Outcome],
) -> ResultTable {
    let work = |outcome: &Outcome, count| Cell::Number(outcome.a_request(count), 4);
    let columns: [Column<'_, (&Point, &Outcome)>; 21] = [
        ("trace", &|_| trace.into()),
        ("mode", &|(point, _)| point.mode.name().into()),
        ("policy", &|(point, _)| point.policy.to_string().into()),
        ("capacity", &|(point, _)| u64::from(point.capacity).into()),
        ("cores", &|_| u64::from(settings.cores).into()),
        ("period", &|(point, _)| period(point.mode, settings)),
        ("spread", &|_| settings.spread.name().into()),
        ("reports", &|_| Cell::Number(settings.report_share, 4)),
        ("sets", &|_| Cell::Number(settings.set_share, 4)),
        ("fill", &|_| settings.fills.into()),
        ("fall_through", &|_| settings.falls_through.into()),
        ("requests", &|(_, of)| of.requests.into()),
        ("gets", &|(_, of)| of.gets.into()),
        ("hits", &|(_, of)| of.hits.into()),
        ("hit_ratio", &|(_, of)| Cell::ratio(of.hit_ratio())),
        ("stale_ratio", &|(_, of)| Cell::ratio(of.old_ratio())),
        ("records_per_request", &|(_, of)| work(of, of.records)),
        ("bytes_per_request", &|(_, of)| work(of, of.records * RECORD_BYTES as u64)),
        ("entries_per_request", &|(_, of)| work(of, of.entries)),
        ("whole_per_request", &|(_, of)| work(of, of.whole)),
        ("moved_per_request", &|(_, of)| work(of, of.moved)),
    ];
    ResultTable::of(points.iter().zip(outcomes), &columns)
}

/// Requests from sync to sync, where there are syncs.
pub(crate) fn period(mode: Mode, settings: &Settings) -> Cell {
    match mode {
        Mode::Synchronous => Cell::Count(1),
        Mode::Periodic => Cell::Count(settings.period),
        Mode::Independent | Mode::IndependentFull | Mode::Sharded => Cell::Unknown,
    }
}

/// The columns for people, those apart that are the same in every row.
pub fn short(points: &[Point], outcomes: &[Outcome]) -> ResultTable {
    let work = |outcome: &Outcome, count| Cell::Number(outcome.a_request(count), 2);
    let columns: [Column<'_, (&Point, &Outcome)>; 10] = [
        ("mode", &|(point, _)| point.mode.name().into()),
        ("policy", &|(point, _)| point.policy.to_string().into()),
        ("capacity", &|(point, _)| u64::from(point.capacity).into()),
        ("hit_%", &|(_, of)| Cell::percent(of.hit_ratio())),
        ("stale_%", &|(_, of)| Cell::percent(of.old_ratio())),
        ("records/request", &|(_, of)| work(of, of.records)),
        ("bytes/request", &|(_, of)| work(of, of.records * RECORD_BYTES as u64)),
        ("entries/request", &|(_, of)| work(of, of.entries)),
        ("whole/request", &|(_, of)| work(of, of.whole)),
        ("moved/request", &|(_, of)| work(of, of.moved)),
    ];
    ResultTable::of(points.iter().zip(outcomes), &columns)
}
