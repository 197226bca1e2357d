//! `larder`: flags, configuration, signals, wiring. Almost no logic.
//!
//! | module | duty |
//! |---|---|
//! | [`settings`] | the one table: every command and setting, with default and range |
//! | [`value`] | text forms of values, parsed once |
//! | [`args`] | the table as flags |
//! | [`layers`] | flag, environment, file, default: which one wins |
//! | [`show`] | the table as `show-config`, template and guide |
//! | [`reloading`] | the table read again while a program runs |
//! | [`manual`] | the table as man pages and completions |
//! | [`annotate`] | settings to a run of `larder_annotate`, and how it ends |
//! | [`dns`] | settings to a server of `larder_dns` |
//! | [`http`] | settings to a server of `larder_http` |
//! | [`demo`] | annotate on the capture inside the program, explained |
//! | [`mod@bench`], [`gen_capture`] | measuring, and inputs for it |
//! | [`mod@ctl`] | what operators ask of a running `larder dns` |
//! | [`sim`] | what a cache is worth: settings to runs of `larder_sim` |
//! | [`mod@model`] | what a cache is worth, for hit ratios given or replayed |
//! | [`progress`], [`summary`], [`signals`] | what a person sees of a run, and how she stops it |
//! | [`exit`] | exit codes, and failures that say what to do next |
//! | [`nearest`] | the nearest name to a wrong one |
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod annotate;
mod args;
mod bench;
mod ctl;
mod demo;
mod dns;
mod encrypted;
mod exit;
mod find;
mod gen_capture;
mod http;
mod layers;
mod live;
mod manual;
mod model;
mod nearest;
mod progress;
mod reloading;
mod settings;
mod show;
mod signals;
mod sim;
mod summary;
mod top;
mod value;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use exit::{Failure, Outcome};
use layers::File;

fn main() -> ExitCode {
    let code = match start() {
        Ok(code) => code,
        Err(failure) => {
            if !failure.message.is_empty() {
                // Standard error may be closed; there is nobody left to tell.
                let _ = writeln!(std::io::stderr(), "larder: {}", failure.message);
            }
            failure.code
        }
    };
    signals::finish();
    ExitCode::from(code)
}

fn start() -> Outcome {
    let matches = match args::program().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return say_usage(&error),
    };
    let Some((command, inner)) = args::chosen(&matches) else {
        return Err(Failure::usage("no command; larder --help lists them"));
    };
    let environment = &layers::process_environment;
    let config = inner.get_one::<PathBuf>(args::CONFIG).map(PathBuf::as_path);
    let resolve = |file: Option<&File>| layers::resolve(command, inner, file, environment);
    let file = || {
        layers::check_environment(std::env::vars_os().map(|(name, _)| name))?;
        File::find(config, environment)
    };
    let again = || -> reloading::Again {
        let (inner, config) = (inner.clone(), config.map(Path::to_owned));
        Box::new(move || {
            let file = File::find(config.as_deref(), &layers::process_environment)?;
            layers::resolve(command, &inner, file.as_ref(), &layers::process_environment)
        })
    };
    match command.path {
        ["annotate"] => annotate::annotate(resolve(file()?.as_ref())?, again()),
        ["dns"] => dns::dns(resolve(file()?.as_ref())?, again()),
        ["http"] => http::http(resolve(file()?.as_ref())?, again()),
        ["demo"] => demo::demo(&resolve(None)?),
        ["bench", "annotate"] => bench::bench_annotate(&resolve(None)?),
        ["bench", "engine"] => bench::bench_engine(&resolve(None)?),
        ["bench", "dns"] => bench::bench_dns(&resolve(None)?),
        ["bench", "http"] => bench::bench_http(&resolve(None)?),
        ["bench", "live"] => bench::bench_live(&resolve(None)?),
        ["gen", "capture"] => gen_capture::gen_capture(&resolve(None)?),
        ["sim", "hit-ratio"] => sim::sim_hit_ratio(&resolve(None)?),
        ["sim", "sync"] => sim::sim_sync(&resolve(None)?),
        ["sim", "lengths"] => sim::sim_lengths(&resolve(None)?),
        ["sim", "paper"] => sim::sim_paper(&resolve(None)?),
        ["find"] => find::find(&resolve(None)?),
        ["top"] => top::top(&resolve(None)?),
        ["ctl"] => ctl::ctl(&resolve(None)?),
        ["model"] => model::model(&resolve(None)?),
        ["show-config"] if resolve(None)?.switch("template") => show::print_template(),
        ["show-config"] => show::print_values(inner, file()?.as_ref(), environment),
        ["completions"] => manual::print_completions(resolve(None)?.choice("shell")),
        ["man"] if resolve(None)?.switch("markdown") => show::print(&show::guide()),
        ["man"] => manual::write_manual(resolve(None)?.path("output").as_deref()),
        _ => Err(Failure::usage("this command is in the table but not in the program")),
    }
}

/// Prints help and version to standard output (0), usage errors to standard error (2).
fn say_usage(error: &clap::Error) -> Outcome {
    match error.print() {
        Err(closed) if !error.use_stderr() => return Err(Failure::stdout(&closed)),
        _ => {}
    }
    Ok(if error.use_stderr() { exit::FAILED } else { exit::DONE })
}
