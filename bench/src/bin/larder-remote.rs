//! `larder-remote`: one lookup in larder compared with one that leaves the process (memcached over loopback).
//!
//! ```text
//! larder-remote [--entries N] [--operations N] [--rounds N]
//! ```
//!
//! Prints rows of JSON as `larder-peers` does, or a line `SKIP ...` where memcached is not installed.

use std::io::ErrorKind;
use std::process::ExitCode;

use larder_bench::contest::own_entrants;
use larder_bench::data::scatter;
use larder_bench::pair::{Way, compare_ways};
use larder_bench::peer::Shape;
use larder_bench::row::Unit;
use larder_bench::runner::Work;
use larder_peers::args::Args;
use larder_peers::remote::{Remote, SERVER};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("larder-remote: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let args = Args::from_process(&["entries", "operations", "rounds"], &[])?;
    let entries = args.number("entries", 100_000u32)?.max(1);
    let operations = args.number("operations", 20_000usize)?.max(64);
    let rounds = args.number("rounds", 10usize)?.max(1);
    let mut remote = match Remote::start(entries as usize / 5000 + 64) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("SKIP {SERVER} is not installed: apt-get install {SERVER}");
            return Ok(());
        }
        remote => remote.map_err(|error| error.to_string())?,
    };
    remote.fill(entries).map_err(|error| error.to_string())?;
    let numbers: Vec<u32> = (0..operations as u64).map(|i| scatter(9, i, entries)).collect();
    let entrant = &own_entrants()[0];
    for (pipeline, work) in [(1, Work::GetIndependent), (32, Work::GetBatch)] {
        let shape = Shape { entries: entries as usize, threads: 1 };
        let mut runner = entrant.build(&shape)?;
        let mut failed = None;
        let rows = {
            let own = || runner.run(work, 1, operations).unwrap_or(f64::NAN);
            let theirs = || match remote.get(&numbers, pipeline) {
                Ok(figure) => figure,
                Err(error) => {
                    failed = Some(error.to_string());
                    f64::NAN
                }
            };
            let name = format!("{SERVER}, pipeline of {pipeline}");
            let note = "loopback, text protocol, one connection, by the clock on the wall";
            let mut ways = [Way::new("larder", "", own), Way::new(&name, note, theirs)];
            compare_ways(
                &format!("get hit, compared with another process, {pipeline} at a time"),
                Unit::Ns,
                rounds,
                &mut ways,
            )
        };
        match failed {
            Some(error) => return Err(error),
            None => rows.iter().for_each(|row| println!("{}", row.to_json())),
        }
    }
    Ok(())
}
