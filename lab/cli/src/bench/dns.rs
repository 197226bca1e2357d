//! `larder-lab bench dns`: servers of DNS next to one another and compared with the limits of UDP.
//!
//! All measuring is done by `larder_bench::dns`; here are the words of the command line, and what is printed.
//! Tables come as soon as a work is done, configurations at the end. SKIP lines and progress go to standard
//! error.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use larder_bench::dns::contest::run;
use larder_bench::dns::plan::{Plan, Work};
use larder_bench::dns::report::legend;
use larder_bench::dns::server::{self, Server};
use larder_bench::dns::signed::Signer;
use larder_bench::dns::stub::StubOptions;
use larder_settings::exit::{Failure, Outcome};
use larder_settings::nearest;

use super::printer::{self, compare};
use crate::settings::bench::BenchDns;

/// Runs the command.
pub fn bench_dns(settings: &BenchDns) -> Outcome {
    let works = works(&settings.work, settings.hot, settings.names)?;
    let own = crate::named_larder(settings.larder.as_ref())?;
    let servers = servers(&settings.servers, &own)?;
    let plan = Plan {
        rounds: settings.rounds,
        measured: Duration::from_millis(settings.measured_ms),
        cores: settings.cores,
        in_flight: settings.in_flight,
        edns: settings.edns,
        upstream: StubOptions {
            ttl_s: settings.ttl,
            delay: Duration::from_micros(settings.delay_us),
            loss: f64::from(settings.loss) / 100.0,
            lame: f64::from(settings.lame) / 100.0,
            signer: signer(settings)?,
        },
        hierarchy: settings.hierarchy,
        latency: !settings.no_waiting,
    };
    compare("bench dns", settings.format, &servers, legend, |stop, report| {
        run(&servers, &works, &plan, stop, report)
    })
}

/// What signs the zones of the hierarchy, where that is asked for.
fn signer(settings: &BenchDns) -> Result<Option<Arc<Signer>>, Failure> {
    if !settings.dnssec {
        return Ok(None);
    }
    if !settings.hierarchy {
        return Err(Failure::usage(
            "--dnssec is about zones, which are there with --hierarchy only",
        ));
    }
    let signer = Signer::new().map_err(|reason| Failure::usage(format!("--dnssec: {reason}")))?;
    Ok(Some(Arc::new(signer)))
}

/// The works of a list.
fn works(list: &str, hot: u32, names: u32) -> Result<Vec<Work>, Failure> {
    let work = |word: &str| {
        let (hot, hit_percent) = match word {
            "hits" => (hot, Some(100)),
            "million" => (names, Some(100)),
            "misses" => (hot, Some(0)),
            percent => (hot, percent.parse().ok().filter(|percent| *percent <= 100)),
        };
        let hit_percent = hit_percent.ok_or_else(|| {
            let hint = nearest::hint(word, ["hits", "million", "misses"]);
            Failure::usage(format!(
                "--work: '{word}' is none; hits, million, misses, or a percentage from 0 to 100{hint}"
            ))
        })?;
        Ok(Work { name: word.to_owned(), hot, hit_percent })
    };
    list.split(',').map(|word| work(word.trim())).collect()
}

/// The servers of a list that are installed; a line for each that is not.
pub fn servers(list: &str, own: &Path) -> Result<Vec<Server>, Failure> {
    printer::servers(list, || server::names().collect(), |name| Server::find(name, own))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words become works, with the names that belong to them; anything else is an error that lists what there is.
    #[test]
    fn works_are_words_or_percentages() {
        let list = works("hits, million,misses,90", 10, 20).unwrap();
        let shapes: Vec<(u32, u32)> =
            list.iter().map(|work| (work.hot, work.hit_percent)).collect();
        assert_eq!(shapes, [(10, 100), (20, 100), (10, 0), (10, 90)]);
        for wrong in ["101", "-1", "hit", ""] {
            let failure = works(wrong, 10, 20).unwrap_err();
            assert!(failure.message.contains("misses"), "{wrong}: {}", failure.message);
        }
    }

    /// An unknown server is an error with the nearest name.
    #[test]
    fn servers_are_known() {
        let failure = servers("larder,unbond", Path::new("/bin/true")).unwrap_err();
        assert!(failure.message.contains("unbound"), "{}", failure.message);
        let found = servers("larder,larder", Path::new("/bin/true")).unwrap();
        assert_eq!(found.len(), 1);
    }
}
