//! `larder-ablate`: what single decisions of the engine are worth, one line of JSON a comparison.
//!
//! ```text
//! larder-ablate [--entries N] [--operations N] [--rounds N]
//! ```

use std::io::Write;
use std::process::ExitCode;

use larder_peers::ablations::{Size, all};
use larder_peers::args::Args;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("larder-ablate: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let args = Args::from_process(&["entries", "operations", "rounds"], &[])?;
    let size = Size {
        entries: args.number("entries", 1_000_000usize)?.max(1000),
        operations: args.number("operations", 1_000_000usize)?.max(1000),
        rounds: args.number("rounds", 10usize)?.max(1),
    };
    // A closed pipe ends the output, not the program.
    all(size, |row| drop(writeln!(std::io::stdout(), "{}", row.to_json())))
}
