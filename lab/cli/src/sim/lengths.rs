//! `larder-lab sim lengths`: settings to simulations of memory split by the length of names.

use larder_settings::exit::{Failure, Outcome};
use larder_settings::layers::Resolved;
use larder_settings::terminal::eprint_quietly;
use larder_sim::lengths::names::Names;
use larder_sim::lengths::{Settings, report, run};

use super::hit_ratio::usage;
use super::{Share, ended, items, print_rows, threads};

/// Runs the command.
pub fn sim_lengths(settings: &Resolved) -> Outcome {
    let path = settings.path("names").unwrap_or_default();
    let memory: Vec<Share> = items(settings, "memory")?;
    let wanted = Settings {
        policies: items(settings, "policy")?,
        widths: items::<u8>(settings, "width")?.into_iter().map(|width| width.max(1)).collect(),
        memory_shares: memory.into_iter().map(|share| share.0).collect(),
        alpha: alpha(settings.word("alpha").unwrap_or_default())?,
        is_shuffled: settings.switch("shuffle"),
        requests: settings.number_or_default("requests"),
        seed: settings.number_or_default("seed"),
    };
    let (names, damage) = Names::read(&path).map_err(usage)?;
    eprint_quietly(report::statistics(&names).table().trim_end());
    let rows = run(&names, &wanted, threads(settings))
        .map_err(|error| Failure::usage(format!("{error}; try less --memory")))?;
    let sheet = report::losses(&rows);
    print_rows(settings, &sheet, &sheet)?;
    Ok(ended(&damage, &path.display().to_string()))
}

fn alpha(text: &str) -> Result<f64, Failure> {
    let alpha = text.parse().ok().filter(|alpha| (0.0..=10.0).contains(alpha));
    alpha
        .ok_or_else(|| Failure::usage(format!("--alpha: {text:?}; expected a number from 0 to 10")))
}
