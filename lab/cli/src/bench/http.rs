//! `larder-lab bench http`: HTTP caches beside one another and beside what a bare sender does.
//!
//! All measuring is done by `larder_bench::http`; here are the words of the command line, and what is printed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_bench::http::field::run;
use larder_bench::http::plan::{Error, Event, KINDS, Plan, Work};
use larder_bench::http::report::legend;
use larder_bench::http::server::{self, Server};
use larder_settings::exit::{DONE, Failure, INTERRUPTED, Outcome};
use larder_settings::nearest;
use larder_settings::signals::ask_on_signals;
use larder_settings::terminal::eprint_quietly;
use larder_settings::terminal::print;

use super::printer::{Format, Printer};
use crate::settings::bench::BenchHttp;

/// Longest body.
const BYTES_MAX: u64 = 1 << 30;

/// Runs the command.
pub fn bench_http(settings: &BenchHttp) -> Outcome {
    let works = works(&settings.work, settings.sizes.as_deref())?;
    let own = crate::named_larder(settings.larder.as_ref())?;
    let servers = servers(&settings.servers, &own)?;
    let plan = Plan {
        rounds: settings.rounds,
        measured: Duration::from_millis(settings.measured_ms),
        cores: settings.cores,
        connections: settings.connections,
        clients: settings.clients,
        takes: Duration::from_millis(settings.busy_ms),
        strace: settings.strace,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    ask_on_signals(false, "stopping; servers are being ended", move || {
        asked.store(true, Ordering::Relaxed);
    })
    .map_err(|error| Failure::file("signals", &error, "try again"))?;
    let programs = servers.iter().map(|one| (one.name, one.program.clone(), one.version.clone()));
    let mut printer = Printer::new(Format::of(settings.format), programs);
    let mut printed = Ok(DONE);
    let result = run(&servers, &works, &plan, &stop, |event| {
        let text = text(&mut printer, event);
        if !text.is_empty() && printed.is_ok() {
            printed = print(&text);
            if printed.is_err() {
                // Nobody reads on.
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    printed?;
    match result {
        Ok(()) if stop.load(Ordering::Relaxed) => Ok(INTERRUPTED),
        Ok(()) => print(&printer.end(legend)),
        Err(Error::NotPermitted(error)) => Err(Failure::file(
            "a network of its own",
            &error,
            "be root, or: unshare --user --map-root-user larder-lab bench http",
        )),
        Err(Error::Failed(reason)) => Err(Failure::usage(reason)),
    }
}

/// What to print now of an event; often nothing.
fn text(printer: &mut Printer, event: Event) -> String {
    match event {
        Event::Progress(line) => eprint_quietly(&line),
        Event::Machine(line) => return printer.machine(&line),
        Event::Skipped(name, reason) => printer.leave_out(name, reason),
        Event::SetUp(name, launch) => printer.set_up(name, launch.processes, launch.configuration),
        Event::Measured(measured) => {
            return printer.measured(|style| measured.table(style), || measured.json());
        }
    }
    String::new()
}

/// The works of a list of kinds and a list of lengths.
fn works(kinds: &str, sizes: Option<&str>) -> Result<Vec<Work>, Failure> {
    let all = || KINDS.iter().map(|(_, name, _)| *name);
    let sizes: Option<Vec<u64>> = match sizes.filter(|sizes| !sizes.is_empty()) {
        Some(sizes) => {
            Some(sizes.split(',').map(|word| size(word.trim())).collect::<Result<_, _>>()?)
        }
        None => None,
    };
    let mut works = Vec::new();
    for word in kinds.split(',').map(str::trim) {
        let found: Vec<_> =
            KINDS.iter().filter(|(_, name, _)| word == "all" || *name == word).collect();
        if found.is_empty() {
            let (hint, known) = (nearest::hint(word, all()), all().collect::<Vec<_>>().join(", "));
            return Err(Failure::usage(format!(
                "--work: unknown workload '{word}'; known: {known}, all{hint}"
            )));
        }
        for (kind, _, usual) in found {
            let sizes = sizes.as_deref().unwrap_or(usual);
            works.extend(sizes.iter().map(|&bytes| Work { kind: *kind, bytes }));
        }
    }
    Ok(works)
}

/// A length: a number, of octets or of units of 1,024 and its powers.
fn size(word: &str) -> Result<u64, Failure> {
    let digits = word.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &word[digits.len()..] {
        "" | "B" => Some(1),
        "K" | "KB" | "KiB" => Some(1 << 10),
        "M" | "MB" | "MiB" => Some(1 << 20),
        "G" | "GB" | "GiB" => Some(1 << 30),
        _ => None,
    };
    let bytes = digits
        .parse()
        .ok()
        .zip(unit)
        .and_then(|(number, unit): (u64, u64)| number.checked_mul(unit));
    bytes.filter(|bytes| (1..=BYTES_MAX).contains(bytes)).ok_or_else(|| {
        Failure::usage(format!(
            "--sizes: '{word}' is no length from 1 to 1GB, such as 10KB or 64MB"
        ))
    })
}

/// The servers of a list that are here; a line for each that is not.
fn servers(list: &str, own: &Path) -> Result<Vec<Server>, Failure> {
    let mut found: Vec<Server> = Vec::new();
    for name in list.split(',').map(str::trim) {
        if !server::names().any(|known| known == name) {
            let hint = nearest::hint(name, server::names());
            let known = server::names().collect::<Vec<_>>().join(", ");
            return Err(Failure::usage(format!(
                "--servers: unknown server '{name}'; known: {known}{hint}"
            )));
        }
        match Server::find(name, own) {
            Ok(server) if found.iter().all(|other| other.name != name) => found.push(server),
            Ok(_) => {}
            Err(reason) => eprint_quietly(&format!("SKIP {name}: {reason}")),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds and lengths multiply; without lengths each kind has its own; anything else is an error that says what
    /// there is.
    #[test]
    fn works_are_kinds_and_lengths() {
        let list = works("hits, busy", Some("1KB,3,1MB")).unwrap();
        let names: Vec<String> = list.iter().map(Work::name).collect();
        let expected = ["hits 1 KB", "hits 3 B", "hits 1 MB", "busy 1 KB", "busy 3 B", "busy 1 MB"];
        assert_eq!(names, expected);
        assert_eq!(works("hits", None).unwrap().len(), 4);
        assert_eq!(works("all", None).unwrap().len(), 8);
        for (kinds, sizes) in
            [("hit", None), ("", None), ("hits", Some("1XB")), ("hits", Some("0"))]
        {
            let failure = works(kinds, sizes).unwrap_err();
            assert!(failure.message.contains("KB") || failure.message.contains("through"));
        }
        for wrong in ["-1", "2GB", "", "KB", "99999999999999999999", "9999999999G", "1 KB é"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    /// A server that nobody knows is an error with the nearest name.
    #[test]
    fn servers_are_known() {
        let failure = servers("larder,ngnix", Path::new("/bin/true")).unwrap_err();
        assert!(failure.message.contains("nginx"), "{}", failure.message);
        let found = servers("larder,larder", Path::new("/bin/true")).unwrap();
        assert_eq!(found.len(), 1);
    }
}
