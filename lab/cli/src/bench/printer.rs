//! Comparisons of servers: which take part, how a run goes, and what is printed. Tables are printed as soon as they are
//! complete, set-ups of servers at the end; progress and servers that are left out go to standard error.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_bench::result_table::Style;
use larder_bench::servers::{Error, Event, Measured, Server};
use larder_settings::exit::{DONE, Failure, INTERRUPTED, Outcome};
use larder_settings::nearest;
use larder_settings::signals::call_on_signals;
use larder_settings::terminal::{eprint_quietly, print};
use serde_json::json;

/// How figures are printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Format {
    /// For people.
    Tables(Style),
    /// For programs.
    Json,
}

impl Format {
    /// By a word of the setting `format`.
    pub fn of(word: &str) -> Format {
        match word {
            "json" => Format::Json,
            "markdown" => Format::Tables(Style::Markdown),
            _ => Format::Tables(Style::Text),
        }
    }
}

/// How a server was started last.
#[derive(Debug, Default)]
struct SetUp {
    program: PathBuf,
    version: String,
    /// Arguments of each of its processes; none where it was not started.
    processes: Vec<Vec<String>>,
    configuration: String,
}

/// The servers of a list that are installed, each found by `find`; a line for each that is not.
pub fn servers<L>(
    list: &str,
    known: impl Fn() -> Vec<&'static str>,
    find: impl Fn(&str) -> Result<Server<L>, String>,
) -> Result<Vec<Server<L>>, Failure> {
    let mut found: Vec<Server<L>> = Vec::new();
    for name in list.split(',').map(str::trim) {
        let known = known();
        if !known.contains(&name) {
            let hint = nearest::hint(name, known.iter().copied());
            let known = known.join(", ");
            return Err(Failure::usage(format!(
                "--servers: unknown server '{name}'; known: {known}{hint}"
            )));
        }
        match find(name) {
            Ok(server) if found.iter().all(|other| other.name != name) => found.push(server),
            Ok(_) => {}
            Err(reason) => eprint_quietly(&format!("SKIP {name}: {reason}")),
        }
    }
    Ok(found)
}

/// Runs a comparison and prints its events; `run` gets the flag that stops it. `command` is its name.
pub fn compare<L, M: Measured>(
    command: &str,
    format: &str,
    servers: &[Server<L>],
    legend: fn(Style) -> String,
    run: impl FnOnce(&Arc<AtomicBool>, &mut (dyn FnMut(Event<M>) + Send)) -> Result<(), Error>,
) -> Outcome {
    let stop = stopping()?;
    let programs = servers.iter().map(|one| (one.name, one.program.clone(), one.version.clone()));
    let mut printer = Printer::new(Format::of(format), programs);
    let mut printed = Ok(DONE);
    let result = run(&stop, &mut |event| {
        let text = printer.text(event);
        if !text.is_empty() && printed.is_ok() {
            printed = print(&text);
            if printed.is_err() {
                // The reader has closed its end.
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    printed?;
    match result.map_err(|error| failure(command, error)) {
        Ok(()) if stop.load(Ordering::Relaxed) => Ok(INTERRUPTED),
        Ok(()) => print(&printer.end(legend)),
        Err(failure) => Err(failure),
    }
}

/// A flag that the first signal sets.
pub fn stopping() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let stop_requested = Arc::clone(&stop);
    call_on_signals(false, "stopping; servers are being ended", move || {
        stop_requested.store(true, Ordering::Relaxed);
    })
    .map_err(|error| Failure::file("signals", &error, "try again"))?;
    Ok(stop)
}

/// Why a comparison has no figures, and what to do next; `command` is its name.
pub fn failure(command: &str, error: Error) -> Failure {
    match error {
        Error::NotPermitted(error) => Failure::file(
            "a network of its own",
            &error,
            &format!("be root, or: unshare --user --map-root-user larder-lab {command}"),
        ),
        Error::Failed(reason) => Failure::usage(reason),
    }
}

/// Makes texts of events, and keeps what comes at the end.
#[derive(Debug)]
struct Printer {
    format: Format,
    set_ups: BTreeMap<&'static str, SetUp>,
    left_out: BTreeMap<&'static str, String>,
}

impl Printer {
    /// For servers with their programs and versions.
    fn new(
        format: Format,
        servers: impl IntoIterator<Item = (&'static str, PathBuf, String)>,
    ) -> Printer {
        let set_up =
            |(name, program, version)| (name, SetUp { program, version, ..SetUp::default() });
        let set_ups = servers.into_iter().map(set_up).collect();
        Printer { format, set_ups, left_out: BTreeMap::new() }
    }

    /// The text to print now of an event; often empty.
    fn text<M: Measured>(&mut self, event: Event<M>) -> String {
        match (event, self.format) {
            (Event::Progress(line), _) | (Event::Machine(line), Format::Json) => {
                eprint_quietly(&line);
            }
            (Event::Machine(line), Format::Tables(_)) => return format!("{line}\n\n"),
            (Event::Skipped(name, reason), _) => {
                if self.left_out.get(name) != Some(&reason) {
                    eprint_quietly(&format!("SKIP {name}: {reason}"));
                }
                self.left_out.insert(name, reason);
            }
            (Event::SetUp(name, processes, configuration), _) => {
                let set_up = self.set_ups.entry(name).or_default();
                (set_up.processes, set_up.configuration) = (processes, configuration);
            }
            (Event::Measured(measured), Format::Json) => return measured.json(),
            (Event::Measured(measured), Format::Tables(style)) => {
                return measured.table(style) + "\n";
            }
        }
        String::new()
    }

    /// The meaning of the columns, and how each server was set up.
    fn end(&self, legend: fn(Style) -> String) -> String {
        let started = self.set_ups.iter().filter(|(_, set_up)| !set_up.processes.is_empty());
        let Format::Tables(style) = self.format else {
            return started.map(|(name, set_up)| set_up.json(name)).collect();
        };
        let mut text = legend(style);
        for (name, set_up) in started {
            let SetUp { program, version, processes, configuration } = set_up;
            let lines = processes
                .iter()
                .map(|arguments| format!("$ {} {}\n", program.display(), arguments.join(" ")));
            let (lines, configuration) = (lines.collect::<String>(), configuration.trim_end());
            let _ = match style {
                Style::Text => write!(text, "\n{name}: {version}\n{lines}{configuration}\n"),
                Style::Markdown => {
                    write!(
                        text,
                        "\n### {name}: {version}\n\n```text\n{lines}{configuration}\n```\n"
                    )
                }
            };
        }
        text
    }
}

impl SetUp {
    /// A line with the configuration.
    fn json(&self, name: &str) -> String {
        let processes: Vec<String> =
            self.processes.iter().map(|arguments| arguments.join(" ")).collect();
        let line = json!({
            "server": name,
            "version": self.version,
            "program": self.program.display().to_string(),
            "arguments": processes.join("; "),
            "configuration": self.configuration,
        });
        format!("{line}\n")
    }
}
