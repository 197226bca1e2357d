//! `larder-lab model`: what a cache is worth to a DNS server, for hit ratios given or replayed.
//!
//! ```text
//! --hit-ratio LIST                    -> cases
//! --trace FILE, --cache-size LIST     -> replayed by larder_sim::hit_ratio, ends of lives and all -> cases
//! --measure                           -> Q1, Q2 and mixes of real servers, next to the model's results (model/measure.rs)
//! cases, Q1, Q2, external queries     -> larder_sim::model: time on hits, answers a second, known error
//! ```

mod measure;

use std::path::Path;

use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::terminal::{print, say};
use larder_sim::hit_ratio::{Error, Plan, Row, run};
use larder_sim::model::{Case, HitRatio, Rates, Report, Traced, Wanted};
use larder_sim::replay::By;
use larder_sim::trace::Format;

use crate::settings::model::Model;
use crate::sim::hit_ratio::{capacity, contestants, explain, report_notes, trace, usage, watched};

/// Runs the command.
pub fn model(settings: &Model) -> Outcome {
    if settings.measure {
        return measure::measure(settings);
    }
    let rates = rates(settings)?;
    let external_queries: f64 = settings.external_queries.item()?;
    let wanted: Vec<Wanted> = settings.wanted.items()?;
    // A trace has many hit ratios, and the inverse of each is printed on request.
    let is_wanted = settings.wanted.given().is_some() || settings.trace.is_none();
    let wanted = if is_wanted { wanted } else { Vec::new() };
    // Before the trace is read, which may take minutes.
    let check = |cases| {
        Report::new(rates, external_queries, cases, wanted.clone())
            .map_err(|error| Failure::usage(error.to_string()))
    };
    check(Vec::new())?;
    let (cases, code) = match &*settings.trace {
        Some(path) => traced(settings, path)?,
        None => (given(settings)?, exit::DONE),
    };
    if cases.is_empty() {
        return Ok(code);
    }
    let report = check(cases)?;
    let text = match settings.format {
        "csv" if settings.wanted.given().is_some() => report.wanted_csv(),
        "csv" => report.csv(),
        "json" => report.json(),
        _ => report.table(),
    };
    print(&text)?;
    Ok(code)
}

/// Q1 and Q2, where they were given; one without the other is a slip.
fn rates(settings: &Model) -> Result<Option<Rates>, Failure> {
    let (q1, q2) = match (*settings.q1, *settings.q2) {
        (Some(q1), Some(q2)) => (q1, q2),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(usage("--q1 without --q2; give both, or neither")),
        (None, Some(_)) => return Err(usage("--q2 without --q1; give both, or neither")),
    };
    let rates = Rates::new(q1 as f64, q2 as f64);
    Ok(Some(rates.map_err(|error| Failure::usage(format!("--q1, --q2: {error}")))?))
}

/// Hit ratios from the command line.
fn given(settings: &Model) -> Result<Vec<Case>, Failure> {
    let Model { cache_size, policy, trace_format, seed, .. } = settings;
    let given = [cache_size.given(), policy.given(), trace_format.given(), seed.given()];
    if let Some(name) = given.into_iter().flatten().next() {
        return Err(usage(format!("--{name} needs --trace FILE, whose hit ratio it asks for")));
    }
    let ratios: Vec<HitRatio> = settings.hit_ratio.items()?;
    Ok(ratios.into_iter().map(|hit_ratio| Case { traced: None, hit_ratio }).collect())
}

/// Hit ratios of a trace, and the exit code: 1 where some of it could not be read. No case at all where it was stopped
/// before there was any.
fn traced(settings: &Model, path: &Path) -> Result<(Vec<Case>, u8), Failure> {
    let (name, spec) = &trace(path)?;
    if settings.hit_ratio.given().is_some() {
        return Err(Failure::usage("--hit-ratio and --trace exclude each other; give one of them"));
    }
    let format: Format = settings.trace_format.parse().map_err(usage)?;
    let seed = *settings.seed;
    let size = |text: &str| capacity("--cache-size", text, By::Entries);
    let sizes = settings.cache_size.items_by(size)?;
    let mut plan = Plan::new(contestants(&settings.policy)?, sizes);
    plan.seed = seed;
    plan.cores = settings.cores;

    let quiet = settings.quiet;
    let (watch, bar) = watched(quiet)?;
    let open = || Ok(spec.open(format, seed)?);
    let results = match run(&plan, &open, &watch) {
        Ok(results) => results,
        Err(error @ Error::Stopped) => {
            say(&explain(name, &error));
            return Ok((Vec::new(), exit::INTERRUPTED));
        }
        Err(error) => return Err(Failure::usage(explain(name, &error))),
    };
    drop(bar);
    let code = report_notes(name, &results, By::Entries, quiet);
    let cases: Vec<Case> = results.rows.iter().filter_map(|row| case(name, row)).collect();
    if cases.is_empty() {
        let why =
            "nothing in it is a lookup, and a hit ratio is of lookups; is it the right trace?";
        return Err(Failure::usage(format!("{name}: {why}")));
    }
    Ok((cases, if results.is_stopped { exit::INTERRUPTED } else { code }))
}

/// A row as a case; none where there were no lookups.
fn case(trace: &str, row: &Row) -> Option<Case> {
    let traced = Traced {
        trace: trace.to_owned(),
        policy: row.policy.clone(),
        capacity: row.capacity,
        requests: row.requests,
        hits: row.hits,
    };
    Some(Case { traced: Some(traced), hit_ratio: HitRatio::new(row.hit_ratio?).ok()? })
}
