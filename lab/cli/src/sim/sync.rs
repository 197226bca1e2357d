//! `larder-lab sim sync`: settings to simulations of caches that several cores share.

use larder_settings::exit::{Failure, Outcome};
use larder_settings::layers::Resolved;
use larder_sim::hit_ratio::Capacity;
use larder_sim::policy::Kind;
use larder_sim::replay::By;
use larder_sim::sync::{Mode, Point, Settings, report, run, survey};
use larder_sim::trace::{Format, Spec};

use super::hit_ratio::{capacity, usage};
use super::{Share, ended, fills, item, items, items_by, print_rows, say, threads};

/// Runs the command.
pub fn sim_sync(settings: &Resolved) -> Outcome {
    let name = settings.word("trace").unwrap_or_default();
    let spec = Spec::parse(name).map_err(usage)?;
    let format: Format = settings.choice("trace-format").parse().map_err(usage)?;
    let policies: Vec<Kind> = items(settings, "policy")?;
    let modes: Vec<Mode> = match settings.word("mode") {
        Some("all") => Mode::ALL.to_vec(),
        _ => items(settings, "mode")?,
    };
    let capacities = items_by(settings, "capacity", capacity_or_fraction)?;
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
    let outcomes = run(&mut *source, &common, &points, threads(settings)).map_err(usage)?;
    if outcomes.iter().all(|outcome| outcome.requests == 0) {
        say("nothing counts: the trace has no requests, or --warm-up takes them all");
    }
    let rows = report::sheet(name, &common, &points, &outcomes);
    print_rows(settings, &rows, &report::short(&points, &outcomes))?;
    Ok(ended(&source.damage(), name))
}

/// What all simulations have in common.
fn common(settings: &Resolved) -> Result<Settings, Failure> {
    let share = |row| item(settings, row).map(|Share(share)| share);
    Ok(Settings {
        cores: settings.number_or_default("cores") as u32,
        period: settings.number_or_default("period"),
        spread: settings.choice("spread").parse().map_err(usage)?,
        report_share: share("reports")?,
        fills: fills(settings)?,
        set_share: share("sets")?,
        falls_through: settings.switch("fall-through"),
        warm_up: settings.number_or_default("warm-up"),
        seed: settings.number_or_default("seed"),
    })
}

/// Entries, or a share of the names: those that `sim hit-ratio` takes, and fractions.
fn capacity_or_fraction(word: &str) -> Result<Capacity, Failure> {
    match word.parse() {
        Ok(Share(share)) if word.contains('/') && share > 0.0 => Ok(Capacity::Share(share)),
        _ => capacity("--capacity", word, By::Entries),
    }
}
