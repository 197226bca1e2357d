//! `larder-lab sim lengths`: settings to simulations of memory split by the length of names.

use larder_settings::exit::{Failure, Outcome};
use larder_settings::terminal::eprint_quietly;
use larder_sim::lengths::names::Names;
use larder_sim::lengths::{Settings, report, run};

use super::hit_ratio::usage;
use super::{Share, ended, print_rows};
use crate::settings::sim::Lengths;

/// Runs the command.
pub fn sim_lengths(settings: &Lengths) -> Outcome {
    let path = &settings.names;
    let memory: Vec<Share> = settings.memory.items()?;
    let wanted = Settings {
        policies: settings.policy.items()?,
        widths: settings.width.items::<u8>()?.into_iter().map(|width| width.max(1)).collect(),
        memory_shares: memory.into_iter().map(|share| share.0).collect(),
        alpha: alpha(&settings.alpha)?,
        is_shuffled: settings.shuffle,
        requests: settings.requests,
        seed: settings.seed,
    };
    let (names, damage) = Names::read(path).map_err(usage)?;
    eprint_quietly(report::statistics(&names).text().trim_end());
    let rows = run(&names, &wanted, settings.threads)
        .map_err(|error| Failure::usage(format!("{error}; try less --memory")))?;
    let table = report::losses(&rows);
    print_rows(settings.format, &table, &table)?;
    Ok(ended(&damage, &path.display().to_string()))
}

fn alpha(text: &str) -> Result<f64, Failure> {
    let alpha = text.parse().ok().filter(|alpha| (0.0..=10.0).contains(alpha));
    alpha
        .ok_or_else(|| Failure::usage(format!("--alpha: {text:?}; expected a number from 0 to 10")))
}
