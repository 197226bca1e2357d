//! `larder-lab sim sync`: settings to simulations of caches that several cores share.

use larder_settings::exit::{Failure, Outcome};
use larder_settings::row::Text;
use larder_sim::hit_ratio::Capacity;
use larder_sim::policy::Kind;
use larder_sim::replay::By;
use larder_sim::sync::{Mode, Point, Settings, report, run, survey};
use larder_sim::trace::{Format, Spec};

use super::hit_ratio::{capacity, usage};
use super::{Share, ended, fills, print_rows, say};
use crate::settings::sim::Sync;

/// Runs the command.
pub fn sim_sync(settings: &Sync) -> Outcome {
    let name = &*settings.trace;
    let spec = Spec::parse(name).map_err(usage)?;
    let format: Format = settings.trace_format.parse().map_err(usage)?;
    let policies: Vec<Kind> = settings.policy.items()?;
    let modes: Vec<Mode> = match &*settings.mode {
        "all" => Mode::ALL.to_vec(),
        _ => settings.mode.items()?,
    };
    let capacities = settings.capacity.items_by(capacity_or_fraction)?;
    let common = common(settings)?;

    let needs_names = capacities.iter().any(|capacity| matches!(capacity, Capacity::Share(_)));
    if needs_names && name == "-" {
        return Err(Failure::usage(
            "standard input can be read only once, and a share of the names needs to know them first; give \
             --capacity in entries, or a file",
        ));
    }
    let names = match needs_names {
        true => survey(&mut *spec.open(format, common.seed).map_err(usage)?).map_err(usage)?,
        false => 0,
    };
    let mut points = Vec::new();
    for capacity in capacities {
        let entries = match capacity {
            Capacity::Absolute(entries) => entries,
            Capacity::Share(share) => ((names as f64 * share).round() as u64).max(1),
        };
        // What is more than there can be is refused by the policy, with its bound.
        let capacity = u32::try_from(entries).unwrap_or(u32::MAX);
        for &mode in &modes {
            points.extend(policies.iter().map(|&policy| Point { mode, policy, capacity }));
        }
    }
    let mut source = spec.open(format, common.seed).map_err(usage)?;
    let outcomes = run(&mut *source, &common, &points, settings.threads).map_err(usage)?;
    if outcomes.iter().all(|outcome| outcome.requests == 0) {
        say("nothing counts: the trace has no requests, or --warm-up takes them all");
    }
    let rows = report::table(name, &common, &points, &outcomes);
    print_rows(settings.format, &rows, &report::short(&points, &outcomes))?;
    Ok(ended(&source.damage(), name))
}

/// What all simulations have in common.
fn common(settings: &Sync) -> Result<Settings, Failure> {
    let share = |text: &Text| text.item().map(|Share(share)| share);
    Ok(Settings {
        cores: settings.cores,
        period: settings.period,
        spread: settings.spread.parse().map_err(usage)?,
        report_share: share(&settings.reports)?,
        fills: fills(settings.fill, settings.no_fill)?,
        set_share: share(&settings.sets)?,
        falls_through: settings.fall_through,
        warm_up: settings.warm_up,
        seed: settings.seed,
    })
}

/// Entries, or a share of the names: those that `sim hit-ratio` takes, and fractions.
fn capacity_or_fraction(word: &str) -> Result<Capacity, Failure> {
    match word.parse() {
        Ok(Share(share)) if word.contains('/') && share > 0.0 => Ok(Capacity::Share(share)),
        _ => capacity("--capacity", word, By::Entries),
    }
}
