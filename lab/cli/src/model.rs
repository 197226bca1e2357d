//! `larder-lab model`: what a cache is worth to a DNS server, for hit ratios given or replayed.
//!
//! ```text
//! --hit-ratio LIST                    -> cases
//! --trace FILE, --cache-size LIST     -> replayed by larder_sim::hit_ratio, ends of lives and all -> cases
//! --measure                           -> Q1, Q2 and mixes of real servers, beside what the model says (model/measure.rs)
//! cases, Q1, Q2, external queries     -> larder_sim::model: time on hits, answers a second, known error
//! ```

mod measure;

use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::layers::{Layer, Resolved};
use larder_settings::terminal::{print, say};
use larder_sim::hit_ratio::{Error, Plan, Row, run};
use larder_sim::model::{Case, HitRatio, Rates, Report, Traced, Wanted};
use larder_sim::replay::By;
use larder_sim::trace::{Format, Spec};

use crate::sim::hit_ratio::{capacity, contestants, explain, tell, traces, usage, watched};
use crate::sim::{item, items, items_by};

/// Runs the command.
pub fn model(settings: &Resolved) -> Outcome {
    if settings.switch("measure") {
        return measure::measure(settings);
    }
    let rates = rates(settings)?;
    let external_queries: f64 = item(settings, "external-queries")?;
    let wanted: Vec<Wanted> = items(settings, "wanted")?;
    // A trace has many hit ratios, and the inverse of each is for who asks.
    let is_wanted = is_given(settings, "wanted") || settings.path("trace").is_none();
    let wanted = if is_wanted { wanted } else { Vec::new() };
    // Before the trace is read, which may take minutes.
    let check = |cases| {
        Report::new(rates, external_queries, cases, wanted.clone())
            .map_err(|error| Failure::usage(error.to_string()))
    };
    check(Vec::new())?;
    let (cases, code) = match traces(settings)?.first() {
        Some((name, spec)) => traced(settings, name, spec)?,
        None => (given(settings)?, exit::DONE),
    };
    if cases.is_empty() {
        return Ok(code);
    }
    let report = check(cases)?;
    let text = match settings.choice("format") {
        "csv" if is_given(settings, "wanted") => report.wanted_csv(),
        "csv" => report.csv(),
        "json" => report.json(),
        _ => report.table(),
    };
    print(&text)?;
    Ok(code)
}

/// Q1 and Q2, where they were given; one without the other is a slip.
fn rates(settings: &Resolved) -> Result<Option<Rates>, Failure> {
    let (Some(q1), Some(q2)) = (settings.number("q1"), settings.number("q2")) else {
        return match (settings.number("q1"), settings.number("q2")) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(Failure::usage("--q1 without --q2; give both, or neither")),
            _ => Err(Failure::usage("--q2 without --q1; give both, or neither")),
        };
    };
    let rates = Rates::new(q1 as f64, q2 as f64);
    Ok(Some(rates.map_err(|error| Failure::usage(format!("--q1, --q2: {error}")))?))
}

/// Hit ratios from the command line.
fn given(settings: &Resolved) -> Result<Vec<Case>, Failure> {
    for name in ["cache-size", "policy", "trace-format", "seed"] {
        if is_given(settings, name) {
            return Err(Failure::usage(format!(
                "--{name} needs --trace FILE, whose hit ratio it asks for"
            )));
        }
    }
    let ratios: Vec<HitRatio> = items(settings, "hit-ratio")?;
    Ok(ratios.into_iter().map(|hit_ratio| Case { traced: None, hit_ratio }).collect())
}

/// Hit ratios of a trace, and the exit code: 1 where some of it could not be read. No case at all where it was stopped before there was any.
fn traced(settings: &Resolved, name: &str, spec: &Spec) -> Result<(Vec<Case>, u8), Failure> {
    if is_given(settings, "hit-ratio") {
        return Err(Failure::usage("--hit-ratio and --trace exclude each other; give one of them"));
    }
    let format: Format = settings.choice("trace-format").parse().map_err(usage)?;
    let seed = settings.number_or_default("seed");
    let sizes =
        items_by(settings, "cache-size", |size| capacity("--cache-size", size, By::Entries))?;
    let mut plan = Plan::new(contestants(settings)?, sizes);
    plan.seed = seed;
    plan.cores = settings.cores("cores");

    let quiet = settings.switch("quiet");
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
    let code = tell(name, &results, By::Entries, quiet);
    let cases: Vec<Case> = results.rows.iter().filter_map(|row| case(name, row)).collect();
    if cases.is_empty() {
        let why =
            "nothing in it is a look-up, and a hit ratio is of look-ups; is it the right trace?";
        return Err(Failure::usage(format!("{name}: {why}")));
    }
    Ok((cases, if results.is_stopped { exit::INTERRUPTED } else { code }))
}

/// A row as a case; none where there were no look-ups.
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

/// True where the row did not get its value from the table.
fn is_given(settings: &Resolved, name: &str) -> bool {
    settings.rows().any(|(setting, _, layer)| setting.name == name && *layer != Layer::Default)
}
