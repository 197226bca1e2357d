//! `larder-lab`: flags and wiring of the commands that measure and simulate. `larder` is the program for operators.
//!
//! | module | duty |
//! |---|---|
//! | [`settings`] | the one table: every command and setting, with default and range |
//! | [`mod@bench`], [`gen_capture`] | measuring, and inputs for it |
//! | [`sim`] | what a cache is worth: settings to runs of `larder_sim` |
//! | [`mod@names`] | how often annotate chooses the right name |
//! | [`mod@model`] | what a cache is worth, for hit ratios given or replayed |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod bench;
mod gen_capture;
mod model;
mod names;
mod settings;
mod sim;

use std::path::PathBuf;
use std::process::ExitCode;

use larder_settings::exit::{Failure, Outcome};
use larder_settings::program::Invocation;

use settings::PROGRAM;

fn main() -> ExitCode {
    PROGRAM.main(run)
}

fn run(invocation: &Invocation) -> Outcome {
    let settings = invocation.settings_without_file()?;
    match invocation.command.path {
        ["bench", "annotate"] => bench::bench_annotate(&settings.read()),
        ["bench", "engine"] => bench::bench_engine(&settings.read()),
        ["bench", "dns"] => bench::bench_dns(&settings.read()),
        ["bench", "http"] => bench::bench_http(&settings.read()),
        ["bench", "live"] => bench::bench_live(&settings.read()),
        ["gen", "capture"] => gen_capture::gen_capture(&settings.read()),
        ["sim", "hit-ratio"] => sim::sim_hit_ratio(&settings.read()),
        ["sim", "sync"] => sim::sim_sync(&settings.read()),
        ["sim", "lengths"] => sim::sim_lengths(&settings.read()),
        ["sim", "paper"] => sim::sim_paper(&settings.read()),
        ["names"] => names::names(&settings.read()),
        ["model"] => model::model(&settings.read()),
        _ => Err(Failure::usage("this command is in the table but not in the program")),
    }
}

/// The program that is measured where none is named: `larder`, as it was built next to this one.
fn larder() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("larder")
}

/// The program of `--larder`: a path, which must be there, or a name to be looked for like a command.
fn named_larder(named: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    let Some(named) = named else { return Ok(larder()) };
    if named.components().count() < 2 && !named.is_file() {
        return Ok(named.clone());
    }
    // Servers are started in other directories.
    std::path::absolute(named).ok().filter(|path| path.is_file()).ok_or_else(|| {
        Failure::usage(format!(
            "--larder {named:?}: no such file; name a larder program, as in target/release/larder"
        ))
    })
}
