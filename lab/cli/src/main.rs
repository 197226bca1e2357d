//! `larder-lab`: flags and wiring of what measures and simulates. `larder` is the program for those
//! who watch and serve.
//!
//! | module | duty |
//! |---|---|
//! | [`settings`] | the one table: every command and setting, with default and range |
//! | [`mod@bench`], [`gen_capture`] | measuring, and inputs for it |
//! | [`sim`] | what a cache is worth: settings to runs of `larder_sim` |
//! | [`mod@model`] | what a cache is worth, for hit ratios given or replayed |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod bench;
mod gen_capture;
mod model;
mod settings;
mod sim;

use std::path::PathBuf;
use std::process::ExitCode;

use larder_settings::exit::{Failure, Outcome};
use larder_settings::layers::Resolved;
use larder_settings::program::Asked;

use settings::PROGRAM;

fn main() -> ExitCode {
    PROGRAM.main(run)
}

fn run(asked: &Asked) -> Outcome {
    let settings = &asked.settings_without_file()?;
    match asked.command.path {
        ["bench", "annotate"] => bench::bench_annotate(settings),
        ["bench", "engine"] => bench::bench_engine(settings),
        ["bench", "dns"] => bench::bench_dns(settings),
        ["bench", "http"] => bench::bench_http(settings),
        ["bench", "live"] => bench::bench_live(settings),
        ["gen", "capture"] => gen_capture::gen_capture(settings),
        ["sim", "hit-ratio"] => sim::sim_hit_ratio(settings),
        ["sim", "sync"] => sim::sim_sync(settings),
        ["sim", "lengths"] => sim::sim_lengths(settings),
        ["sim", "paper"] => sim::sim_paper(settings),
        ["model"] => model::model(settings),
        _ => Err(Failure::usage("this command is in the table but not in the program")),
    }
}

/// The program that is measured where none is named: `larder`, as it was built beside this one.
fn larder() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("larder")
}

/// The program of `--larder`: a path, which must be there, or a name to be looked for like a command.
fn named_larder(settings: &Resolved) -> Result<PathBuf, Failure> {
    let Some(named) = settings.path("larder") else { return Ok(larder()) };
    if named.components().count() < 2 && !named.is_file() {
        return Ok(named);
    }
    // Servers are started in other directories.
    std::path::absolute(&named).ok().filter(|path| path.is_file()).ok_or_else(|| {
        Failure::usage(format!(
            "--larder {named:?}: no such file; name a larder program, as in target/release/larder"
        ))
    })
}
