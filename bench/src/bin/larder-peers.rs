//! `larder-peers`: larder compared with other caches, one line of JSON a comparison.
//!
//! ```text
//! larder-peers [--entries N] [--operations N] [--rounds N] [--threads 1,2] [--only NAMES] [--works TEXT] [--tiny]
//! ```
//!
//! `--only` runs larder and the named contestants, with `;` between their names (`"larder, Map;moka"`), `--works` the
//! works whose names contain the text. `--tiny` takes seconds: it proves that every contestant does every work and
//! gives right answers, and its figures mean nothing.

use std::io::Write;
use std::process::ExitCode;

use larder_bench::contest::{Entrant, Plan, compare, own_entrants};
use larder_bench::data::PAYLOAD_BYTES_MEAN;
use larder_bench::row::{Rival, Row, Unit};
use larder_bench::runner::Work;
use larder_bench::sample::Median;
use larder_peers::alone::{self, Answer, HITS_IDS, HITS_RESIDENT_BYTES};
use larder_peers::args::{Args, threads_of_machine};
use larder_peers::peers;

const VALUES: [&str; 9] =
    ["entries", "operations", "rounds", "threads", "only", "works", "alone", "ids", "requests"];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("larder-peers: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let args = Args::from_process(&VALUES, &["tiny"])?;
    let tiny = args.switch("tiny");
    let size = |real: usize, small: usize| if tiny { small } else { real };
    let entries = args.number("entries", size(1_000_000, 3_000))?.max(64);
    let ids = args.number("ids", size(HITS_IDS, 20_000))?;
    let requests = args.number("requests", size(10_000_000, 20_000))?;
    let only = args.text("only");

    if let Some(task) = args.text("alone") {
        let mut all = own_entrants().into_iter().chain(peers::entrants());
        let entrant = all
            .find(|entrant| Some(entrant.name) == only)
            .ok_or("--alone wants --only with the name of a contestant")?;
        println!("{}", alone::answer(task, &entrant, entries, ids, requests)?);
        return Ok(());
    }

    let mut entrants = own_entrants();
    entrants.extend(peers::entrants());
    let larder = entrants[0].name;
    if let Some(only) = only {
        let names: Vec<&str> = only.split(';').map(str::trim).collect();
        let is_known = |name: &&str| entrants.iter().any(|entrant| entrant.name == *name);
        if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
            return Err(format!("no contestant is called '{unknown}'"));
        }
        entrants.retain(|entrant| entrant.name == larder || names.contains(&entrant.name));
    }
    let plan = Plan {
        entries,
        operations: args.number("operations", size(1_000_000, 2_000))?.max(64),
        rounds: args.number("rounds", size(10, 2))?.max(1),
        threads: args.numbers("threads", &threads_of_machine())?,
    };
    let part = args.text("works").unwrap_or("");
    let works: Vec<Work> =
        Work::ALL.into_iter().filter(|work| work.name().contains(part)).collect();
    compare(&entrants, &works, &plan, |row| print(&row))?;
    if "bytes an entry above its payload".contains(part) {
        memory(&entrants, entries)?;
    }
    if "hit ratio".contains(part) {
        let bytes = size(HITS_RESIDENT_BYTES as usize, 1 << 20) as u64;
        hits(&entrants, bytes, ids, requests)?;
    }
    Ok(())
}

/// A closed pipe ends the output, not the program: the rest is not worth a word.
fn print(row: &Row) {
    let _ = writeln!(std::io::stdout(), "{}", row.to_json());
}

fn once(value: f64) -> Median {
    Median { value, low: value, high: value, runs: 1 }
}

/// Bytes an entry above its payload: by what the process grew, and by each cache's own count.
fn memory(entrants: &[Entrant], entries: usize) -> Result<(), String> {
    let mut own = None;
    for entrant in entrants {
        let answer = alone::memory(entrant.name, entries)?;
        let larder: &Answer = own.get_or_insert(answer);
        let mut pairs =
            vec![("bytes an entry above its payload, resident", larder.figure, answer.figure)];
        if let Some(figure) = answer.own {
            let larder = larder.own.unwrap_or(f64::NAN);
            pairs.push(("bytes an entry above its payload, own count", larder, figure));
        }
        for (work, larder, figure) in pairs {
            print_once(work, Unit::Bytes, larder, entrant, figure, entrant.note.to_owned());
        }
    }
    Ok(())
}

/// Hits within the same memory.
fn hits(entrants: &[Entrant], bytes: u64, ids: usize, requests: usize) -> Result<(), String> {
    let work = format!("hit ratio, Zipf 0.99, {} MiB resident, {ids} ids", bytes >> 20);
    let mut own = None;
    for entrant in entrants.iter().filter(|entrant| entrant.bounded) {
        let (answer, entries) = alone::hits(entrant.name, bytes, ids, requests)?;
        let larder = *own.get_or_insert(answer.figure);
        let mib = answer.resident_bytes as f64 / f64::from(1 << 20);
        let note = format!("{mib:.1} MiB resident for {entries} entries");
        print_once(&work, Unit::Share, larder, entrant, answer.figure, note);
    }
    Ok(())
}

fn print_once(work: &str, unit: Unit, larder: f64, entrant: &Entrant, figure: f64, note: String) {
    let ratio = match unit {
        // Payload included: nothing above it would make a ratio of nothing.
        Unit::Bytes => (larder + PAYLOAD_BYTES_MEAN) / (figure + PAYLOAD_BYTES_MEAN),
        _ => larder / figure,
    };
    print(&Row {
        work: work.to_owned(),
        threads: 1,
        unit,
        larder: once(larder),
        peer: Some(Rival {
            name: entrant.name.to_owned(),
            figure: once(figure),
            ratio: once(ratio),
            note,
        }),
        limit: None,
    });
}
