//! `larder-lab model --measure`: the memo's experiment on this machine, next to the model's results.
//!
//! ```text
//! larder_bench::dns: a stub upstream, real servers, a load that checks every answer
//!   all hits -> Q1    all misses -> Q2, external queries a miss    each --hit-ratio -> Q
//! larder_sim::model: A and Q from r, Q1, Q2
//! ```
//!
//! A cannot be read from a clock. What can be measured is what an average query of the mix takes, `1/Q`; of that, hits
//! take `r/Q1` if they take what they take alone, or all but `(1-r)/Q2` if misses do. What the two cost one another
//! lies between: so A as measured is a range, `r*Q/Q1` to `1 - (1-r)*Q/Q2`, and where the model is right both ends are
//! its A.
//!
//! Rates are answers a second of the server's processor time, medians of rounds.

use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_bench::dns::contest::run;
use larder_bench::dns::plan::{Event, Measured, Plan, Work};
use larder_bench::dns::stub::StubOptions;
use larder_bench::result_table::{Cell, Column, ResultTable};
use larder_bench::sample::Median;
use larder_settings::exit::{DONE, Failure, INTERRUPTED, Outcome};
use larder_settings::terminal::eprint_quietly;
use larder_settings::terminal::print;
use larder_sim::model::{HitRatio, Rates};
use serde_json::json;

use crate::bench::dns::servers;
use crate::bench::printer::{failure, stopping};
use crate::settings::model::Model;

/// Questions in flight: enough to fill batches.
const IN_FLIGHT: usize = 256;

/// TTL of what the upstream answers, seconds: nothing is to end while it is measured.
const TTL_S: u32 = 3_600;

/// A server at a hit ratio.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    server: &'static str,
    hit_ratio: f64,
    q1: f64,
    q2: f64,
    /// External queries a miss, all missing and in the mix.
    external: [f64; 2],
    a_predicted: f64,
    a_measured: [f64; 2],
    q_predicted: f64,
    q_measured: f64,
}

impl Row {
    /// Of what was measured; `None` where one of the rates makes no sense of the others (a miss cheaper than a hit).
    fn new(
        server: &'static str,
        r: HitRatio,
        [q1, q2, q]: [f64; 3],
        external: [f64; 2],
    ) -> Option<Row> {
        let rates = Rates::new(q1, q2).ok()?;
        let share = r.get();
        Some(Row {
            server,
            hit_ratio: share,
            q1,
            q2,
            external,
            a_predicted: rates.time_on_hits(r),
            a_measured: [share * q / q1, 1.0 - (1.0 - share) * q / q2],
            q_predicted: rates.throughput(r),
            q_measured: q,
        })
    }

    /// How far the measured rate is from the predicted one, as a part of that.
    fn deviation(&self) -> f64 {
        self.q_measured / self.q_predicted - 1.0
    }
}

const LEGEND: &str = "\nA: the part of its time that a server spends on hits. Q1, Q2, Q: answers a second of its processor \
time when all\nhit, all miss, and of the mix. A as measured is a range: the less where misses pay for what hits and misses cost one\n\
another, the more where hits do. External queries are those to the upstream for each miss, all missing.\n";

/// Runs the experiment and prints it.
pub fn measure(settings: &Model) -> Outcome {
    let Model { q1, q2, trace, external_queries, wanted, .. } = settings;
    let given = [q1.given(), q2.given(), trace.given(), external_queries.given(), wanted.given()];
    if let Some(name) = given.into_iter().flatten().next() {
        let text = format!("--measure measures the value of --{name}; give one of them");
        return Err(Failure::usage(text));
    }
    let ratios: Vec<HitRatio> = settings.hit_ratio.items()?;
    let works = works(&ratios, settings.measure_hot)?;
    let servers = servers(&settings.measure_servers, &crate::larder())?;
    let plan = Plan {
        rounds: settings.measure_rounds,
        measured: Duration::from_millis(settings.measure_ms),
        cores: 1,
        in_flight: IN_FLIGHT,
        edns: false,
        upstream: StubOptions { ttl_s: TTL_S, ..StubOptions::default() },
        hierarchy: false,
        latency: false,
    };
    let is_quiet = settings.quiet;
    let mut all: Vec<Measured> = Vec::new();
    let stop = stopping()?;
    let result = run(&servers, &works, &plan, &stop, |event| match event {
        Event::Measured(measured) => all.push(measured),
        Event::Progress(line) | Event::Machine(line) if !is_quiet => eprint_quietly(&line),
        Event::Skipped(name, reason) => eprint_quietly(&format!("SKIP {name}: {reason}")),
        _ => {}
    });
    result.map_err(|error| failure("model --measure", error))?;
    if stop.load(Ordering::Relaxed) {
        return Ok(INTERRUPTED);
    }
    let rows = rows(&all, &ratios);
    if rows.is_empty() {
        return Err(Failure::usage(
            "no server could be measured at all three; see the lines above",
        ));
    }
    print(&match settings.format {
        "csv" => csv(&rows),
        "json" => json(&rows),
        _ => table(&rows),
    })?;
    Ok(DONE)
}

/// All hits, all misses, and each ratio between.
fn works(ratios: &[HitRatio], hot: u32) -> Result<Vec<Work>, Failure> {
    let mut works = Vec::new();
    for percent in [100.0, 0.0].into_iter().chain(ratios.iter().map(|ratio| 100.0 * ratio.get())) {
        let is_end = works.len() < 2;
        let whole = f64::round(percent);
        if (whole - percent).abs() > 1e-6 || !is_end && !(1.0..=99.0).contains(&whole) {
            return Err(Failure::usage(format!(
                "--hit-ratio: {percent:.2} % cannot be measured; whole percentages from 1 to 99 can"
            )));
        }
        works.push(Work { name: format!("{whole} %"), hot, hit_percent: whole as u32 });
    }
    Ok(works)
}

/// A row for each server that took part in all of it, and ratio.
fn rows(all: &[Measured], ratios: &[HitRatio]) -> Vec<Row> {
    let [hits, misses, mixes @ ..] = all else { return Vec::new() };
    let mut rows = Vec::new();
    for (mix, ratio) in mixes.iter().zip(ratios) {
        for entry in mix.entries.iter().filter(|entry| !entry.is_limit) {
            let of = |measured: &Measured| {
                let found = measured.entries.iter().find(|other| other.name == entry.name)?;
                let median = |figures: &[f64]| Median::of(figures).value;
                Some((median(&found.figures.per_cpu_s), median(&found.figures.upstream)))
            };
            let (Some((q1, _)), Some((q2, alone)), Some((q, mixed))) =
                (of(hits), of(misses), of(mix))
            else {
                continue;
            };
            match Row::new(entry.name, *ratio, [q1, q2, q], [alone, mixed]) {
                Some(row) => rows.push(row),
                None => eprint_quietly(&format!(
                    "{}: {q1:.0} hits and {q2:.0} misses a second cannot be: measure longer",
                    entry.name
                )),
            }
        }
    }
    rows
}

fn table(rows: &[Row]) -> String {
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let columns: [Column<'_, &Row>; 10] = [
        ("server", &|row| row.server.into()),
        ("r", &|row| Cell::Figure(percent(row.hit_ratio))),
        ("Q1", &|row| Cell::Number(row.q1, 0)),
        ("Q2", &|row| Cell::Number(row.q2, 0)),
        ("external/miss", &|row| Cell::Number(row.external[0], 2)),
        ("A predicted", &|row| Cell::Figure(percent(row.a_predicted))),
        ("A measured", &|row| Cell::Figure(row.a_measured.map(percent).join(" to "))),
        ("Q predicted", &|row| Cell::Number(row.q_predicted, 0)),
        ("Q measured", &|row| Cell::Number(row.q_measured, 0)),
        ("deviation", &|row| Cell::Figure(format!("{:+.1} %", 100.0 * row.deviation()))),
    ];
    ResultTable::of(rows, &columns).text() + LEGEND
}

fn csv(rows: &[Row]) -> String {
    let columns: [Column<'_, &Row>; 12] = [
        ("server", &|row| row.server.into()),
        ("hit_ratio", &|row| Cell::ratio(row.hit_ratio)),
        ("q1", &|row| Cell::Number(row.q1, 0)),
        ("q2", &|row| Cell::Number(row.q2, 0)),
        ("external_queries_per_miss", &|row| Cell::Number(row.external[0], 4)),
        ("external_queries_per_miss_of_mix", &|row| Cell::Number(row.external[1], 4)),
        ("a_predicted", &|row| Cell::ratio(row.a_predicted)),
        ("a_measured_least", &|row| Cell::ratio(row.a_measured[0])),
        ("a_measured_most", &|row| Cell::ratio(row.a_measured[1])),
        ("answers_per_s_predicted", &|row| Cell::Number(row.q_predicted, 0)),
        ("answers_per_s_measured", &|row| Cell::Number(row.q_measured, 0)),
        ("deviation", &|row| Cell::ratio(row.deviation())),
    ];
    ResultTable::of(rows, &columns).csv()
}

fn json(rows: &[Row]) -> String {
    let rows: Vec<serde_json::Value> = (rows.iter())
        .map(|row| {
            json!({
                "server": row.server,
                "hit_ratio": row.hit_ratio,
                "q1": row.q1,
                "q2": row.q2,
                "external_queries_per_miss": row.external[0],
                "external_queries_per_miss_of_mix": row.external[1],
                "a_predicted": row.a_predicted,
                "a_measured": row.a_measured,
                "answers_per_s_predicted": row.q_predicted,
                "answers_per_s_measured": row.q_measured,
                "deviation": row.deviation(),
            })
        })
        .collect();
    format!("{}\n", json!({ "measured": rows }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the mix takes what the model predicts, both ends of the measured A are the model's; where it takes
    /// longer, they lie around it, and the deviation states by how much it was slower.
    #[test]
    fn a_range_closes_where_the_model_is_right() {
        let r = HitRatio::new(0.9).unwrap();
        let right = Rates::new(170_591.0, 60_138.0).unwrap().throughput(r);
        let row = Row::new("x", r, [170_591.0, 60_138.0, right], [1.0, 1.0]).unwrap();
        assert!((row.a_predicted - 0.76).abs() < 0.005);
        assert!(row.a_measured.iter().all(|a| (a - row.a_predicted).abs() < 1e-9));
        assert!(row.deviation().abs() < 1e-9);
        let row = Row::new("x", r, [170_591.0, 60_138.0, 0.8 * right], [1.0, 1.0]).unwrap();
        assert!(row.a_measured[0] < row.a_predicted && row.a_predicted < row.a_measured[1]);
        assert!((row.deviation() + 0.2).abs() < 1e-9);
        assert!(table(std::slice::from_ref(&row)).contains("-20.0 %"));
        assert_eq!(csv(&[row]).lines().nth(1).map(|line| line.split(',').count()), Some(12));
        assert_eq!(Row::new("x", r, [1.0, 2.0, 1.0], [1.0, 1.0]), None);
    }

    /// Both ends are measured whatever is asked for; what is no whole percentage between is refused.
    #[test]
    fn ends_are_always_measured() {
        let ratio = |share| HitRatio::new(share).unwrap();
        let percents: Vec<u32> = works(&[ratio(0.9), ratio(0.85)], 10)
            .unwrap()
            .iter()
            .map(|it| it.hit_percent)
            .collect();
        assert_eq!(percents, [100, 0, 90, 85]);
        for wrong in [0.0, 1.0, 0.905] {
            assert!(works(&[ratio(wrong)], 10).is_err(), "{wrong}");
        }
    }
}
