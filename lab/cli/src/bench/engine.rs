//! `larder-lab bench engine`: the cache compared with the bare limit of memory, and with other caches where their
//! program was built.
//!
//! larder's own rows and the limit are measured in this process, by `larder_bench`. Other people's caches
//! are no dependency of this program: they live in the workspace `bench/`, whose program `larder-peers`
//! runs as a child. It measures larder again, in the same rounds as the others: only such figures may be
//! compared.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_bench::contest::{Plan, compare, footprint, own_entrants};
use larder_bench::pair::apply_log;
use larder_bench::result_table::{Cell, Column, ResultTable};
use larder_bench::row::{Row, Unit};
use larder_bench::runner::Work;
use larder_bench::sample::Median;
use larder_settings::exit::{Failure, Outcome};
use larder_settings::terminal::eprint_quietly;
use larder_settings::terminal::print;

use crate::settings::bench::BenchEngine;

/// The program of `bench/`.
const PEERS: &str = "larder-peers";
/// How to come by it.
const BUILD: &str = "cargo build --release --manifest-path bench/Cargo.toml";

/// Runs the command.
pub fn bench_engine(settings: &BenchEngine) -> Outcome {
    let many = settings.threads;
    let plan = Plan {
        entries: settings.entries,
        operations: settings.operations,
        rounds: settings.rounds,
        threads: if many > 1 { vec![1, many] } else { vec![1] },
    };
    let peers = find_peers(settings.peers.clone())?;
    let is_json = settings.format == "json";
    let mut rows = Vec::new();
    let mut emit = |row: Row| -> Result<(), Failure> {
        eprint_quietly(&format!("{}, {} on {}", row.work, name_of(&row), row.threads));
        if is_json {
            return print(&(row.to_json() + "\n")).map(drop);
        }
        rows.push(row);
        Ok(())
    };
    for row in own_rows(&plan)? {
        emit(row)?;
    }
    match peers {
        Some(program) => run_peers(&program, &plan, &mut emit)?,
        None => eprint_quietly(&format!("no rows of other caches: {BUILD}, then --peers PATH")),
    }
    if is_json { Ok(larder_settings::exit::DONE) } else { print(&table(&rows)) }
}

/// Who a row is about.
fn name_of(row: &Row) -> &str {
    row.peer.as_ref().map_or("larder", |peer| &peer.name)
}

/// The program that was named, or the one next to this program.
fn find_peers(named: Option<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    if let Some(path) = named {
        if path.is_file() {
            return Ok(Some(path));
        }
        let path = path.display();
        return Err(Failure::usage(format!("{path}: there is no such program; {BUILD} makes it")));
    }
    let next = std::env::current_exe().ok().map(|program| program.with_file_name(PEERS));
    Ok(next.filter(|path| path.is_file()))
}

/// larder and the limit, in this process.
fn own_rows(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let entrants = own_entrants();
    let mut rows = Vec::new();
    let failed = |error: String| {
        Failure::usage(format!(
            "{error}; try fewer --entries, or report it: the engine gave a wrong value"
        ))
    };
    // First, while nothing else has grown the process.
    let bytes = footprint(&entrants[0], plan.entries).map_err(failed)?.resident;
    rows.push(Row {
        work: "bytes an entry above its payload, resident".to_owned(),
        threads: 1,
        unit: Unit::Bytes,
        larder: Median { value: bytes, low: bytes, high: bytes, runs: 1 },
        peer: None,
        limit: None,
    });
    compare(&entrants, &Work::ALL, plan, |row| rows.push(row)).map_err(failed)?;
    rows.push(apply_log(plan.entries, plan.rounds).map_err(|error| failed(error.to_string()))?);
    Ok(rows)
}

/// Other caches, in a child. Lines that are no rows are passed on to standard error.
fn run_peers(
    program: &Path,
    plan: &Plan,
    emit: &mut impl FnMut(Row) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let threads: Vec<String> = plan.threads.iter().map(usize::to_string).collect();
    let fail = |error: &std::io::Error| {
        Failure::file(program.display(), error, "build it again, or remove --peers")
    };
    let mut child = Command::new(program)
        .args(["--entries", &plan.entries.to_string()])
        .args(["--operations", &plan.operations.to_string()])
        .args(["--rounds", &plan.rounds.to_string()])
        .args(["--threads", &threads.join(",")])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| fail(&error))?;
    let mut result = Ok(());
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|error| fail(&error))?;
            match Row::from_json(&line) {
                Some(row) => result = emit(row),
                None => eprint_quietly(&line),
            }
            if result.is_err() {
                // The reader has closed its end; the child stops, too.
                let _ = child.kill();
                break;
            }
        }
    }
    let status = child.wait().map_err(|error| fail(&error))?;
    result?;
    if !status.success() {
        let program = program.display();
        return Err(Failure::usage(format!(
            "{program} failed ({status}); its message is above. Build it again: {BUILD}"
        )));
    }
    Ok(())
}

/// One line a comparison: larder's figure, the other's, and their ratio with its interval.
fn table(rows: &[Row]) -> String {
    let number = |value: Option<f64>| Cell::Figure(value.map_or("-".to_owned(), figure));
    let columns: [Column<'_, &Row>; 9] = [
        ("work", &|row| row.work.as_str().into()),
        ("threads", &|row| (row.threads as u64).into()),
        ("compared with", &|row| row.peer.as_ref().map_or("-", |peer| &peer.name).into()),
        ("unit", &|row| row.unit.suffix().into()),
        ("larder", &|row| number(Some(row.larder.value))),
        ("other", &|row| number(row.peer.as_ref().map(|peer| peer.figure.value))),
        ("limit", &|row| number(row.limit.as_ref().map(|(value, _)| *value))),
        ("ratio", &|row| Cell::known(row.peer.as_ref(), |peer| Cell::Number(peer.ratio.value, 2))),
        ("95 %", &|row| match &row.peer {
            Some(peer) => format!("{:.2} to {:.2}", peer.ratio.low, peer.ratio.high).into(),
            None => format!("{} to {}", figure(row.larder.low), figure(row.larder.high)).into(),
        }),
    ];
    let mut text = ResultTable::of(rows, &columns).text();
    if let Some((_, what)) = rows.iter().find_map(|row| row.limit.as_ref()) {
        let _ = writeln!(text, "limit: {what}");
    }
    text.push_str(
        "ratio: larder's figure over the other's, round by round; below 1 larder is faster where the unit \
         is ns or bytes, above 1 where it is mops or share\n",
    );
    text
}

/// Three digits that mean something.
fn figure(value: f64) -> String {
    match value {
        value if !value.is_finite() => "-".to_owned(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_bench::row::Rival;

    /// A row is one line: larder, the other, the limit and the ratio; what is missing is a dash.
    #[test]
    fn rows_are_lines() {
        let figure = |value| Median { value, low: value, high: value, runs: 1 };
        let mut row = Row {
            work: "get".to_owned(),
            threads: 1,
            unit: Unit::Ns,
            larder: figure(61.25),
            peer: None,
            limit: Some((40.0, "memory".to_owned())),
        };
        let alone = table(std::slice::from_ref(&row));
        assert!(alone.contains("61.2") && alone.contains("40.0"), "{alone}");
        assert!(alone.contains("limit: memory"));
        row.peer = Some(Rival {
            name: "other".to_owned(),
            figure: figure(245.0),
            ratio: figure(0.25),
            note: String::new(),
        });
        let line = table(&[row]);
        let line = line.lines().nth(1).expect("a line");
        assert!(line.contains("other") && line.contains("245") && line.contains("0.25"), "{line}");
    }

    /// A program that was named and is not there is an error with advice.
    #[test]
    fn missing_peers_are_refused() {
        let failure = find_peers(Some(PathBuf::from("/nonexistent/larder-peers"))).unwrap_err();
        assert!(failure.message.contains("cargo build"), "{}", failure.message);
    }
}
