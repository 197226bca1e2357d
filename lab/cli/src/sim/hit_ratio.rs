//! `larder-lab sim hit-ratio`: settings to runs of `larder_sim::hit_ratio`, one a trace, and how they end.
//!
//! Every trace is opened once before the first is replayed, so that a wrong name is found at once. A trace
//! that fails later does not take the results of the others with it: they are printed, and the exit code states
//! that something failed. The first Ctrl-C ends the run with what was replayed until then, or with the word that
//! this is nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_bench::result_table::grouped;
use larder_settings::amounts::scaled;
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::nearest;
use larder_settings::row::Text;
use larder_settings::signals::call_on_signals;
use larder_settings::terminal::Bar;
use larder_settings::terminal::{print, say};
use larder_settings::value::{Kind, Value};
use larder_sim::figure::{Axis, Figure, Series};
use larder_sim::hit_ratio::{Capacity, Contestant, Error, Plan, Results, Watch, run};
use larder_sim::replay::By;
use larder_sim::report::{self, Named};
use larder_sim::trace::{Format, Spec};

use super::{ended, fills};
use crate::settings::sim::HitRatio;

/// Every policy that has a name.
const ALL: &str = "all";

/// Runs the command.
pub fn sim_hit_ratio(settings: &HitRatio) -> Outcome {
    let plan = plan(settings)?;
    let format: Format = settings.trace_format.parse().map_err(usage)?;
    let seed = settings.seed;
    let traces: Vec<_> = settings.trace.iter().map(|path| trace(path)).collect::<Result<_, _>>()?;
    for (_, spec) in &traces {
        // A pipe can be opened once only.
        if *spec != Spec::File(PathBuf::from("-")) {
            spec.open(format, seed).map_err(usage)?;
        }
    }
    let directory = settings.output.as_ref();
    if let Some(directory) = directory {
        std::fs::create_dir_all(directory).map_err(|error| unwritable(directory, &error))?;
    }
    let quiet = settings.quiet;
    let (watch, bar) = watched(quiet)?;
    let (mut all, mut code) = (Vec::new(), exit::DONE);
    for (name, spec) in &traces {
        let open = || Ok(spec.open(format, seed)?);
        match run(&plan, &open, &watch) {
            Ok(results) => {
                code = code.max(report_notes(name, &results, plan.rules.by, quiet));
                all.push((name.clone(), results));
            }
            Err(error) => {
                code = exit::FAILED;
                say(&explain(name, &error));
            }
        }
        if watch.stop.load(Ordering::Acquire) {
            code = exit::INTERRUPTED;
            break;
        }
    }
    drop(bar);
    if let Some(directory) = directory {
        write_all(directory, &all, plan.rules.by)?;
    }
    if !all.is_empty() {
        print(&match settings.format {
            "csv" => report::csv(&all),
            "json" => report::json(&all),
            _ => report::table(&all),
        })?;
    }
    Ok(code)
}

/// A run that the first Ctrl-C ends early, and its progress on a terminal.
pub fn watched(quiet: bool) -> Result<(Arc<Watch>, Bar), Failure> {
    let watch = Arc::new(Watch::default());
    let of_signals = Arc::clone(&watch);
    call_on_signals(quiet, "stopping", move || of_signals.stop.store(true, Ordering::Release))
        .map_err(|error| Failure::file("signals", &error, "try again"))?;
    let counted = Arc::clone(&watch);
    let bar = Bar::draw(!quiet, move |elapsed| {
        // Relaxed: a picture for the eye.
        let requests = counted.requests.load(Ordering::Relaxed) as f64;
        let rate = requests / elapsed.as_secs_f64().max(0.001);
        format!("{} requests  {} requests/s", scaled(requests), scaled(rate))
    });
    Ok((watch, bar))
}

/// What the settings ask for.
fn plan(settings: &HitRatio) -> Result<Plan, Failure> {
    let contestants = contestants(&settings.policy)?;
    let by = if settings.by == "bytes" { By::Bytes } else { By::Entries };
    let capacities = settings.capacity.items_by(|text| capacity("--capacity", text, by))?;
    let mut plan = Plan::new(contestants, capacities);
    plan.rules.by = by;
    plan.rules.fill = fills(settings.fill, settings.no_fill)?;
    if let Some(text) = &settings.sample {
        let wrong = |why| Failure::usage(format!("--sample {text}: {why}"));
        plan.sampling = text.parse().map_err(wrong)?;
    }
    plan.seed = settings.seed;
    plan.cores = settings.cores;
    Ok(plan)
}

/// The policies asked for, each once.
pub fn contestants(policies: &Text) -> Result<Vec<Contestant>, Failure> {
    let named = |name: &str| match name {
        ALL => Ok(Contestant::all()),
        _ => Ok(vec![name.parse().map_err(|_| unknown_policy(name))?]),
    };
    let mut contestants: Vec<Contestant> = Vec::new();
    for contestant in policies.items_by(named)?.into_iter().flatten() {
        if !contestants.iter().any(|before| before.name() == contestant.name()) {
            contestants.push(contestant);
        }
    }
    Ok(contestants)
}

fn unknown_policy(name: &str) -> Failure {
    let all = Contestant::all();
    let names: Vec<&str> = all.iter().map(Contestant::name).chain([ALL]).collect();
    let hint = nearest::hint(name, names.iter().copied());
    Failure::usage(format!("--policy {name}: no such policy; known: {}{hint}", names.join(", ")))
}

/// A capacity as it is written after `flag`.
pub fn capacity(flag: &str, text: &str, by: By) -> Result<Capacity, Failure> {
    let wrong = |why: &str| Failure::usage(format!("{flag} {text}: {why}"));
    if let Some(percent) = text.strip_suffix('%') {
        return match percent.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => {
                Ok(Capacity::Share(percent / 100.0))
            }
            _ => Err(wrong("expected a share above 0% and at most 100%")),
        };
    }
    let (entries, bytes) =
        (Kind::Count { min: 1, max: u64::MAX }, Kind::Bytes { min: 1, max: u64::MAX });
    let kind = if by == By::Entries { entries } else { bytes };
    match kind.parse(text.as_ref()) {
        Ok(Value::Number(number)) => Ok(Capacity::Absolute(number)),
        _ if by == By::Entries && bytes.parse(text.as_ref()).is_ok() => {
            Err(wrong("that is a size; pass --by bytes, or a number of entries, or a share as 10%"))
        }
        _ if by == By::Entries => Err(wrong("expected a number of entries, or a share as 10%")),
        _ => Err(wrong("expected a size as 1GiB, or a share as 10%")),
    }
}

/// A trace by its name or path, with the text that names it in messages.
pub fn trace(path: &Path) -> Result<(String, Spec), Failure> {
    let spec = match path.to_str() {
        Some(text) => Spec::parse(text).map_err(usage)?,
        None => Spec::File(path.to_owned()),
    };
    Ok((path.display().to_string(), spec))
}

/// A value that makes no sense, whose error states why.
pub fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::usage(error.to_string())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::file(path.display(), error, "name another directory with -o")
}

/// What happened to a trace, and what to do.
pub fn explain(name: &str, error: &Error) -> String {
    match error {
        // It names the trace itself.
        Error::Open(error) => error.to_string(),
        Error::TooManyKeys => format!("{name}: {error}: pass --sample auto"),
        Error::Bound(_) => format!("{name}: {error}; or leave it out of --policy"),
        Error::Stopped => format!("{name}: {error}; nothing of it is printed"),
        _ => format!("{name}: {error}"),
    }
}

/// Says what a reader of the results should know; the exit code that follows from it.
pub fn report_notes(name: &str, results: &Results, by: By, quiet: bool) -> u8 {
    let code = ended(&results.damage, name);
    if !quiet {
        results.notes.iter().for_each(|note| say(&format!("{name}: {note}")));
        if by == By::Bytes && results.rows.iter().any(|row| row.bypassed > 0) {
            say(&format!(
                "{name}: objects larger than a cache passed it by (json has their number)"
            ));
        }
    }
    if results.is_stopped {
        say(&format!("{name}: stopped after {} requests", results.requests));
    }
    code
}

/// Writes `hit-ratio.csv`, `results.json` and a figure a trace.
fn write_all(directory: &Path, all: &[Named], by: By) -> Result<(), Failure> {
    let write = |name: &str, content: &str| {
        let path = directory.join(name);
        std::fs::write(&path, content).map_err(|error| unwritable(&path, &error))
    };
    write("hit-ratio.csv", &report::csv(all))?;
    write("results.json", &report::json(all))?;
    let mut names: Vec<String> = Vec::with_capacity(all.len());
    for (trace, results) in all {
        let name = file_name(trace, &names);
        write(&name, &figure(trace, results, by).svg())?;
        names.push(name);
    }
    Ok(())
}

/// A file name made of a trace's, unlike all `taken`.
fn file_name(trace: &str, taken: &[String]) -> String {
    let last = trace.rsplit('/').next().unwrap_or(trace);
    let word: String = last
        .chars()
        .map(|char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '-' })
        .take(100)
        .collect();
    let mut name = format!("hit-ratio-{word}.svg");
    let mut number = 1;
    while taken.contains(&name) {
        number += 1;
        name = format!("hit-ratio-{word}-{number}.svg");
    }
    name
}

/// Hit ratios by capacity, a line a policy.
fn figure(trace: &str, results: &Results, by: By) -> Figure {
    let mut series: Vec<Series> = Vec::new();
    for row in &results.rows {
        let point = (row.capacity as f64, row.hit_ratio.unwrap_or(f64::NAN));
        match series.iter_mut().find(|line| line.name == row.policy) {
            Some(line) => line.points.push(point),
            None => series.push(Series::new(row.policy.as_str(), vec![point])),
        }
    }
    for line in &mut series {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    let mut caption = format!("{} requests", grouped(results.requests));
    let _ = match (
        results.rate,
        results.rows.iter().filter_map(|row| row.hit_ratio_error).reduce(f64::max),
    ) {
        (Some(rate), Some(error)) => write!(
            caption,
            "; estimated from {:.3} % of the keys, to within {:.2} points (95 %)",
            rate * 100.0,
            error * 100.0
        ),
        _ => write!(caption, ", {} different keys", grouped(results.keys)),
    };
    let unit = if by == By::Bytes { "bytes" } else { "entries" };
    Figure {
        title: format!("Hit ratio by capacity: {}", trace.rsplit('/').next().unwrap_or(trace)),
        caption,
        source: "larder-lab sim hit-ratio".to_owned(),
        x: Axis::log(format!("capacity, {unit}")).si(),
        y: Axis::linear("hit ratio").percent(),
        series,
        ..Figure::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PROGRAM;

    /// Capacities are shares, entries or bytes; the error for anything else states the spelling.
    #[test]
    fn capacities_are_read() {
        let read =
            |text: &str, by| capacity("--capacity", text, by).map_err(|failure| failure.message);
        assert_eq!(read("10%", By::Bytes).unwrap(), Capacity::Share(0.1));
        assert_eq!(read("1k", By::Entries).unwrap(), Capacity::Absolute(1000));
        assert_eq!(read("1k", By::Bytes).unwrap(), Capacity::Absolute(1024));
        assert!(read("1GiB", By::Entries).unwrap_err().contains("--by bytes"));
        for text in ["0", "0%", "101%", "nan%", "", "-1", "ten"] {
            assert!(read(text, By::Entries).is_err() && read(text, By::Bytes).is_err(), "{text}");
        }
    }

    /// Lists keep their order and name each policy once; a slip gets the nearest name.
    #[test]
    fn policies_are_listed_once() {
        let contestants = |text: &str| {
            let line = ["larder", "sim", "hit-ratio", "--trace", "x", "--policy", text];
            let settings = PROGRAM.parse(line).unwrap().settings_with("").unwrap();
            contestants(&settings.read::<HitRatio>().policy)
        };
        let read = |text: &str| -> Vec<String> {
            contestants(text).unwrap().iter().map(|one| one.name().to_owned()).collect()
        };
        assert_eq!(read("lru, fifo,lru"), ["lru", "fifo"]);
        let all = read("arc,all");
        assert_eq!((all[0].as_str(), all.last().unwrap().as_str()), ("arc", "belady"));
        assert_eq!(all.iter().filter(|name| *name == "arc").count(), 1);
        let failure = contestants("s3fifo").unwrap_err();
        assert!(failure.message.contains("did you mean 's3-fifo'"), "{}", failure.message);
        assert!(contestants(",").is_err());
    }

    /// File names are made of harmless letters and never meet.
    #[test]
    fn figures_have_names_of_their_own() {
        assert_eq!(file_name("/a/b c.gz", &[]), "hit-ratio-b-c.gz.svg");
        let taken = ["hit-ratio-zipf-0.9.svg".to_owned()];
        assert_eq!(file_name("zipf:0.9", &taken), "hit-ratio-zipf-0.9-2.svg");
        assert_eq!(file_name("..", &[]), "hit-ratio-...svg");
    }
}
