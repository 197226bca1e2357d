//! `larder-lab bench http`: HTTP caches next to one another and compared with a bare sender.
//!
//! All measuring is done by `larder_bench::http`; here are the words of the command line, and what is printed.

use std::path::Path;
use std::time::Duration;

use larder_bench::http::contest::run;
use larder_bench::http::plan::{KINDS, Plan, Work};
use larder_bench::http::report::legend;
use larder_bench::http::server::{self, Server};
use larder_settings::exit::{Failure, Outcome};
use larder_settings::nearest;

use super::printer::{self, compare};
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
    compare("bench http", settings.format, &servers, legend, |stop, report| {
        run(&servers, &works, &plan, stop, report)
    })
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

/// A length: a number, of bytes or of units of 1,024 and its powers.
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

/// The servers of a list that are installed; a line for each that is not.
fn servers(list: &str, own: &Path) -> Result<Vec<Server>, Failure> {
    printer::servers(list, || server::names().collect(), |name| Server::find(name, own))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds and lengths multiply; without lengths each kind has its own; anything else is an error that lists what
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

    /// An unknown server is an error with the nearest name.
    #[test]
    fn servers_are_known() {
        let failure = servers("larder,ngnix", Path::new("/bin/true")).unwrap_err();
        assert!(failure.message.contains("nginx"), "{}", failure.message);
        let found = servers("larder,larder", Path::new("/bin/true")).unwrap();
        assert_eq!(found.len(), 1);
    }
}
