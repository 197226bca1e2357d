//! `larder sim sync`: settings to simulations of caches that several cores share.

use larder_sim::policy::Kind;
use larder_sim::sync::{self, Mode, Point, Settings, report};
use larder_sim::trace::{Format, Spec};

use super::{Capacity, ended, list, print_sheet, share, threads};
use crate::bench::eprint_quietly;
use crate::exit::{self, Failure, Outcome};
use crate::layers::Resolved;

/// Runs the command.
pub fn sim_sync(settings: &Resolved) -> Outcome {
    let name = settings.word("trace").unwrap_or_default();
    let spec = Spec::parse(name)?;
    let format: Format = parsed(settings.choice("trace-format"))?;
    let capacities: Vec<Capacity> = list(settings, "capacity")?;
    let policies: Vec<Kind> = list(settings, "policy")?;
    let modes: Vec<Mode> = match settings.word("mode") {
        Some("all") => Mode::ALL.to_vec(),
        _ => list(settings, "mode")?,
    };
    if settings.switch("fill") && settings.switch("no-fill") {
        return Err(Failure::usage("--fill and --no-fill exclude each other; leave one out"));
    }
    let common = Settings {
        cores: settings.number_or_default("cores") as u32,
        period: settings.number_or_default("period"),
        spread: parsed(settings.choice("spread"))?,
        report_share: share(settings, "reports")?,
        fills: !settings.switch("no-fill"),
        set_share: share(settings, "sets")?,
        falls_through: settings.switch("fall-through"),
        warm_up: settings.number_or_default("warm-up"),
        seed: settings.number_or_default("seed"),
    };

    let mut names = 0;
    if capacities.iter().any(|capacity| matches!(capacity, Capacity::Share(_))) {
        if name == "-" {
            return Err(Failure::usage(
                "a pipe can be read only once, and a capacity that is a share needs to know the \
                 names first; give --capacity in entries",
            ));
        }
        names = sync::survey(&mut *spec.open(format, common.seed)?).map_err(failed)?.1;
    }
    let mut points = Vec::new();
    for capacity in capacities {
        let capacity = match capacity {
            Capacity::Entries(entries) => entries,
            Capacity::Share(share) => ((names as f64 * share).round() as u32).max(1),
        };
        for &mode in &modes {
            points.extend(policies.iter().map(|&policy| Point { mode, policy, capacity }));
        }
    }
    let mut source = spec.open(format, common.seed)?;
    let outcomes = sync::run(&mut *source, &common, &points, threads(settings)).map_err(failed)?;
    if outcomes.iter().all(|outcome| outcome.requests == 0) {
        eprint_quietly(
            "nothing was counted: the trace has no more requests than --warm-up leaves out",
        );
    }
    let sheet = report::sheet(name, &common, &points, &outcomes);
    print_sheet(settings, &sheet, &report::short(&points, &outcomes))?;
    match ended(&source.damage(), name) {
        exit::DAMAGED if settings.switch("strict") => Ok(exit::FAILED),
        code => Ok(code),
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(word: &str) -> Result<T, Failure> {
    word.parse().map_err(|error: T::Err| Failure::usage(error.to_string()))
}

fn failed(error: sync::Error) -> Failure {
    Failure::usage(format!("{error}; try another --capacity, or another trace"))
}
