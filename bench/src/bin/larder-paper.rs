//! `larder-paper`: the figures and the table of the paper, as CSV and SVG.
//!
//! ```text
//! larder-paper [--entries N] [--operations N] [--rounds N] [--output DIR]
//! ```

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use larder_peers::args::Args;
use larder_peers::paper::{CORES, Point, Size, insert_latency, sync_modes, throughput};
use larder_peers::svg::Chart;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("larder-paper: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let args = Args::from_process(&["entries", "operations", "rounds", "output"], &[])?;
    let size = Size {
        entries: args.number("entries", 1_000_000usize)?.max(1000),
        operations: args.number("operations", 1_000_000usize)?.max(1000),
        rounds: args.number("rounds", 10usize)?.max(1),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let folder = PathBuf::from(args.text("output").unwrap_or("docs/results/paper"));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;

    let points = insert_latency(&size)?;
    write(&folder, "insert-latency.csv", &csv("load_percent", "ns", &points))?;
    for cores in CORES.into_iter().filter(|&cores| cores <= size.cores) {
        let chart = Chart {
            title: format!("Time of an insert, {cores} core{}", if cores > 1 { "s" } else { "" }),
            x_label: "load factor, %".to_owned(),
            y_label: "ns".to_owned(),
            series: series(&points, |p| {
                (p.cores == cores).then_some((p.load as f64, p.figure.value))
            }),
        };
        write(&folder, &format!("insert-latency-{cores}.svg"), &chart.render())?;
    }

    let points = throughput(&size)?;
    write(&folder, "throughput.csv", &csv("put_percent", "mops", &points))?;
    for (load, name) in [(100, "100 % put"), (70, "70 % put, 30 % get")] {
        let of_load = |p: &Point, value: f64| (p.load == load).then_some((p.cores as f64, value));
        for (file, what, series) in [
            ("throughput", "", series(&points, |p| of_load(p, p.figure.value))),
            (
                "per-core",
                " a core",
                series(&points, |p| of_load(p, p.figure.value / p.cores as f64)),
            ),
        ] {
            let chart = Chart {
                title: format!("Throughput{what}, {name}"),
                x_label: "cores".to_owned(),
                y_label: "million operations a second".to_owned(),
                series,
            };
            write(&folder, &format!("{file}-{load}.svg"), &chart.render())?;
        }
    }

    let mut text = "mode,cores,mops,mops_low,mops_high,hit_ratio,runs\n".to_owned();
    for figure in sync_modes(&size)? {
        let (mode, mops) = (figure.mode.name().replace(',', ""), figure.mops);
        let (cores, hits, runs) = (size.cores, figure.hits, mops.runs);
        let _ = writeln!(
            text,
            "{mode},{cores},{:.3},{:.3},{:.3},{hits:.4},{runs}",
            mops.value, mops.low, mops.high
        );
    }
    write(&folder, "sync-modes.csv", &text)
}

/// One line of points a contestant.
fn series(
    points: &[Point],
    at: impl Fn(&Point) -> Option<(f64, f64)>,
) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut list: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for point in points {
        let Some(at) = at(point) else { continue };
        match list.iter_mut().find(|(name, _)| *name == point.name) {
            Some((_, line)) => line.push(at),
            None => list.push((point.name.clone(), vec![at])),
        }
    }
    list
}

/// A line a point; numbers of cores that the machine lacks have lines too, which say so.
fn csv(load: &str, unit: &str, points: &[Point]) -> String {
    let mut text = format!("contestant,cores,{load},{unit},{unit}_low,{unit}_high,runs\n");
    for point in points {
        let Point { name, cores, load, figure } = point;
        let (name, runs) = (name.replace(',', ""), figure.runs);
        let _ = writeln!(
            text,
            "{name},{cores},{load},{:.3},{:.3},{:.3},{runs}",
            figure.value, figure.low, figure.high
        );
    }
    for cores in CORES.into_iter().filter(|cores| points.iter().all(|p| p.cores != *cores)) {
        let _ = writeln!(text, "all,{cores},,not measured,not measured,not measured,0");
    }
    text
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}
