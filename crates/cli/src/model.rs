//! `larder model`: what a cache is worth to a DNS server, for hit ratios given or replayed.
//!
//! ```text
//! --hit-ratio LIST                    -> cases
//! --trace FILE, --cache-size LIST     -> replayed by larder_sim::hit_ratio, ends of lives and all -> cases
//! cases, Q1, Q2, external queries     -> larder_sim::model: time on hits, answers a second, known error
//! ```

use std::fmt::Display;
use std::io::{self, Write};
use std::str::FromStr;

use larder_sim::hit_ratio::{self, Capacity, Contestant, Plan, Results, Watch};
use larder_sim::model::{Case, HitRatio, Rates, Report, Traced, Wanted};
use larder_sim::trace::{Format, Spec};

use crate::exit::{self, Failure, Outcome};
use crate::layers::{Layer, Resolved};
use crate::{show, value};

/// Runs the command.
pub fn model(settings: &Resolved) -> Outcome {
    let rates = rates(settings)?;
    let external_queries: f64 = one(settings, "external-queries")?;
    let wanted: Vec<Wanted> = list(settings, "wanted")?;
    // Before the trace is read, which may take minutes.
    let check = |cases| {
        Report::new(rates, external_queries, cases, wanted.clone())
            .map_err(|error| Failure::usage(error.to_string()))
    };
    check(Vec::new())?;
    let (cases, code) = match settings.word("trace") {
        Some(name) => traced(settings, name)?,
        None => (given(settings)?, exit::DONE),
    };
    let report = check(cases)?;
    let text = match settings.choice("format") {
        "csv" if is_given(settings, "wanted") => report.wanted_csv(),
        "csv" => report.csv(),
        "json" => report.json(),
        _ => report.table(),
    };
    show::print(&text)?;
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
    let ratios: Vec<HitRatio> = list(settings, "hit-ratio")?;
    Ok(ratios.into_iter().map(|hit_ratio| Case { traced: None, hit_ratio }).collect())
}

/// Hit ratios of a trace, and the exit code: 1 where some of it could not be read.
fn traced(settings: &Resolved, name: &str) -> Result<(Vec<Case>, u8), Failure> {
    if is_given(settings, "hit-ratio") {
        return Err(Failure::usage("--hit-ratio and --trace both say what r is; give one of them"));
    }
    let blame = |error: &dyn Display| Failure::usage(format!("--trace {name}: {error}"));
    let spec = Spec::parse(name).map_err(|error| blame(&error))?;
    let format: Format = one(settings, "trace-format")?;
    let seed = settings.number_or_default("seed");
    let mut plan = Plan::new(list::<Contestant>(settings, "policy")?, capacities(settings)?);
    plan.seed = seed;
    plan.cores = crate::annotate::cores(settings.number_or_default("cores"));
    let open = || Ok(spec.open(format, seed)?);
    let results = hit_ratio::run(&plan, &open, &Watch::default()).map_err(|error| blame(&error))?;
    tell(name, &results);
    let cases: Vec<Case> = results.rows.iter().filter_map(|row| case(name, row)).collect();
    if cases.is_empty() {
        return Err(blame(&"nothing in it is a look-up; a hit ratio needs some"));
    }
    let is_damaged = results.damage.records > 0;
    Ok((cases, if is_damaged { exit::DAMAGED } else { exit::DONE }))
}

/// A row as a case; none where there were no look-ups.
fn case(trace: &str, row: &hit_ratio::Row) -> Option<Case> {
    let traced = Traced {
        trace: trace.to_owned(),
        policy: row.policy.clone(),
        capacity: row.capacity,
        requests: row.requests,
        hits: row.hits,
    };
    Some(Case { traced: Some(traced), hit_ratio: HitRatio::new(row.hit_ratio?).ok()? })
}

/// Says what was replayed, for people.
fn tell(name: &str, results: &Results) {
    let mut text = format!(
        "{name}: {} requests, {} different keys\n",
        value::group(results.requests),
        value::group(results.keys)
    );
    if let Some(first) = &results.damage.first {
        text.push_str(&format!("records skipped: {}; the first: {first}\n", results.damage.records));
    }
    for note in &results.notes {
        text.push_str(&format!("{note}\n"));
    }
    // Standard error may be closed; there is nobody left to tell.
    let _ = io::stderr().write_all(text.as_bytes());
}

fn capacities(settings: &Resolved) -> Result<Vec<Capacity>, Failure> {
    Ok(list::<Size>(settings, "cache-size")?.into_iter().map(|size| size.0).collect())
}

/// A cache size as it is written: `10000`, `10k`, `5%`.
struct Size(Capacity);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || {
            format!(
                "'{text}' is no size; write entries as 10000 or 10k, or a part of the keys as 5%"
            )
        };
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.trim_end().parse().map_err(|_| wrong())?;
            let is_part = percent > 0.0 && percent <= 100.0;
            return if is_part { Ok(Size(Capacity::Share(percent / 100.0))) } else { Err(wrong()) };
        }
        let count = value::Kind::Count { min: 1, max: u64::from(larder_sim::policy::CAPACITY_MAX) };
        match count.parse(text.as_ref()) {
            Ok(value::Value::Number(entries)) => Ok(Size(Capacity::Absolute(entries))),
            Ok(_) => Err(wrong()),
            Err(why) => Err(format!("'{text}': {why}; or a part of the keys as 5%")),
        }
    }
}

/// The one value of a row of words.
fn one<T: FromStr<Err: Display>>(settings: &Resolved, name: &str) -> Result<T, Failure> {
    parse(name, settings.word(name).unwrap_or_default())
}

/// The values of a row of words, apart by commas; at least one.
fn list<T: FromStr<Err: Display>>(settings: &Resolved, name: &str) -> Result<Vec<T>, Failure> {
    let words = settings.word(name).unwrap_or_default();
    words.split(',').map(|word| parse(name, word)).collect()
}

fn parse<T: FromStr<Err: Display>>(name: &str, word: &str) -> Result<T, Failure> {
    word.trim().parse().map_err(|error| Failure::usage(format!("--{name}: {error}")))
}

/// True where the row did not get its value from the table.
fn is_given(settings: &Resolved, name: &str) -> bool {
    settings.rows().any(|(setting, _, layer)| setting.name == name && *layer != Layer::Default)
}
