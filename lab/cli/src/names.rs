//! `larder-lab names`: how often the name that `larder annotate` chooses is right, and whether its
//! confidence is true.
//!
//! ```text
//! flow that states a name -> larder_annotate chooses one without the statement -> Trial
//! Trial                   -> Figures: right or not, by source, by flag, by confidence
//! Figures                 -> table, JSON, SVG
//! ```
//!
//! The choice, its confidence and the trial are those of `larder_annotate::evidence`: this command
//! only counts them. Memory: a few counters; with `--format jsonl` a line is printed at once.

mod figures;
mod training;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use larder_annotate::evidence::{Observer, Trial};
use larder_annotate::options::{Endpoint, Options, Summary};
use larder_annotate::record::NameFlags;
use larder_annotate::{Progress, run_observed};
use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::terminal::{print, say};
use serde_json::json;

use crate::settings::names::Names;
use figures::Figures;

/// Runs the command.
pub fn names(settings: &Names) -> Outcome {
    if let Some(table) = &settings.train {
        return train(settings, table);
    }
    let options = options(settings)?;
    let counted = Arc::new(Mutex::new(Counted::default()));
    let summary = run_observed(&options, &Arc::new(Progress::default()), {
        Some(observer(&counted, settings.format == "jsonl"))
    });
    let summary = summary.map_err(|error| Failure::usage(error.to_string()))?;
    let counted = std::mem::take(&mut *counted.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(error) = counted.failed {
        return Err(Failure::file("standard output", &error, "write to a file with room"));
    }
    let figures = counted.figures;
    // Lines were printed as they came.
    if settings.format != "jsonl" {
        print(&match settings.format {
            "json" => format!("{:#}\n", figures.json()),
            _ => figures.text(),
        })?;
    }
    if let Some(path) = &settings.figure {
        std::fs::write(path, figures.svg()).map_err(|error| {
            Failure::file(
                path.display(),
                &error,
                "name a file in a directory that you can write to",
            )
        })?;
    }
    Ok(exit_code(&summary))
}

/// Makes the table of the choice among several names, and writes its source text to `table`.
fn train(settings: &Names, table: &Path) -> Outcome {
    let (Some(log), Some(_)) = (&settings.zeek_log, &settings.zeek_dns) else {
        return Err(Failure::usage(
            "--train needs logs of Zeek; give both --zeek-dns FILE and --zeek-log FILE",
        ));
    };
    if settings.figure.is_some() || settings.format != "table" {
        return Err(Failure::usage(
            "--train prints its own table; leave out --figure and --format",
        ));
    }
    let read = std::fs::read(log)
        .map_err(|error| Failure::file(log.display(), &error, "name a log that you can read"))?;
    let mut copies = vec![flows_of(options(settings)?)?];
    for (copy, kept) in (1..).zip(training::KEPT) {
        // A file without a name, which is gone whatever ends this process.
        let file = temporary_file(&training::thin(&read, kept, copy)).map_err(|error| {
            Failure::file(std::env::temp_dir().display(), &error, "give it space, or set TMPDIR")
        })?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let zeek_log = Some(Endpoint::Path(path.into()));
        copies.push(flows_of(Options { zeek_log, ..options(settings)? })?);
    }
    let Some((text, judged)) = training::report(&copies) else {
        return Err(Failure::usage(
            "no flow of the logs has several names to choose among; give logs of more traffic",
        ));
    };
    std::fs::write(table, text).map_err(|error| {
        Failure::file(table.display(), &error, "name a file in a directory that you can write to")
    })?;
    print(&judged)?;
    Ok(exit::DONE)
}

/// The trials of a run.
fn flows_of(options: Options) -> Result<Vec<training::Flow>, Failure> {
    let flows = training::Flows::default();
    run_observed(&options, &Arc::new(Progress::default()), Some(training::collector(&flows)))
        .map_err(|error| Failure::usage(error.to_string()))?;
    Ok(std::mem::take(&mut *flows.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn temporary_file(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Damage of the input is reported, and the figures count all the same.
fn exit_code(summary: &Summary) -> u8 {
    for (kind, damage) in &summary.damaged {
        say(&format!("{kind}: {} (the first in {})", damage.count, damage.first_file));
    }
    if summary.input_damaged { exit::DAMAGED } else { exit::DONE }
}

/// The options of an annotation whose log nobody reads.
fn options(settings: &Names) -> Result<Options, Failure> {
    let mut options =
        Options { output: Endpoint::Path(PathBuf::from("/dev/null")), ..Options::default() };
    match (&settings.zeek_log, &settings.zeek_dns) {
        (Some(_), _) if !settings.capture.is_empty() => {
            return Err(Failure::usage(
                "--zeek-log and captures exclude each other; give one of them",
            ));
        }
        (Some(log), Some(dns)) => {
            options.zeek_log = Some(Endpoint::Path(log.clone()));
            options.zeek_dns = vec![Endpoint::Path(dns.clone())];
        }
        (None, None) if !settings.capture.is_empty() => {
            options.read = settings.capture.iter().cloned().map(Endpoint::Path).collect();
        }
        (None, None) => {
            return Err(Failure::usage(
                "no input; name a capture, or logs of Zeek with --zeek-dns FILE --zeek-log FILE",
            ));
        }
        _ => return Err(Failure::usage("--zeek-dns and --zeek-log belong together; give both")),
    }
    Ok(options)
}

#[derive(Default)]
struct Counted {
    figures: Figures,
    failed: Option<std::io::Error>,
}

/// Counts each trial, and prints it if `lines` are wanted.
fn observer(counted: &Arc<Mutex<Counted>>, lines: bool) -> Observer {
    let counted = Arc::clone(counted);
    Box::new(move |trial| {
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.figures.count(trial);
        if lines && counted.failed.is_none() {
            let printed = writeln!(std::io::stdout().lock(), "{}", line_of(trial));
            counted.failed = printed.err();
        }
    })
}

/// The flow of a trial as a JSON object.
fn line_of(trial: &Trial) -> serde_json::Value {
    let naming = &trial.naming;
    let flags = NameFlags::ALL.into_iter().filter(|(flag, _)| naming.flags.has(*flag));
    let weighed = trial.features.iter().map(|(name, features)| (name.to_string(), json!(features)));
    json!({
        "start": trial.start_ns as f64 / 1e9,
        "client": trial.client.0.to_string(),
        "client_port": trial.client.1,
        "server": trial.server.0.to_string(),
        "server_port": trial.server.1,
        "stated": trial.stated.to_string(),
        "chosen": naming.name.to_string(),
        "source": naming.source.as_str(),
        "confidence": naming.confidence,
        "flags": flags.map(|(_, word)| word).collect::<Vec<_>>(),
        "candidates": trial.candidates.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "features": weighed.collect::<serde_json::Map<_, _>>(),
    })
}
