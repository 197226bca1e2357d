//! `larder-lab sim paper`: the engine measured, the rest simulated, one report written.

use std::fs;

use larder_settings::exit::{self, Failure, Outcome};
use larder_settings::terminal::eprint_quietly;
use larder_sim::lengths::names::Names;
use larder_sim::paper::engine::{self, Size};
use larder_sim::paper::{self, Measured, Settings};

use super::ended;
use super::hit_ratio::usage;
use crate::settings::sim::Paper;

/// Names made up where no list is given.
const NAMES_MADE_UP: u32 = 100_000;

/// Runs the command.
pub fn sim_paper(settings: &Paper) -> Outcome {
    let Paper { output: folder, names: list, quick, no_engine, seed, threads } = settings;
    let (is_quick, seed) = (*quick, *seed);
    let failed = |error: std::io::Error| {
        let next = "name a directory that can be written to";
        Failure::file(folder.display(), &error, next)
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let size = if is_quick { Settings::quick(seed) } else { Settings::full(seed) };
    let size = Settings { threads: *threads, ..size };
    let (names, names_are, code) = match list {
        Some(path) => {
            let (names, damage) = Names::read(path).map_err(usage)?;
            let name = path.display().to_string();
            let code = ended(&damage, &name);
            let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            let names_are = format!("{file}, {} names", names.lengths().len());
            (names, names_are, code)
        }
        None => {
            let count = if is_quick { size.names } else { NAMES_MADE_UP };
            let names_are = format!("{count} made up, as long as popular names are (no --names)");
            (Names::made_up(count, seed), names_are, exit::DONE)
        }
    };
    let measured = match no_engine {
        true => None,
        false => Some(measure(is_quick).map_err(|error| {
            Failure::usage(format!("{error}; free some memory, or pass --no-engine"))
        })?),
    };
    let simulated = paper::simulate(&size, &names, eprint_quietly).map_err(usage)?;
    let files = paper::files(&size, &names, &names_are, &simulated, measured.as_ref());
    for (name, text) in &files {
        fs::write(folder.join(name), text).map_err(failed)?;
    }
    let page = folder.join("report.html");
    eprint_quietly(&format!("{} files written; begin with {}", files.len(), page.display()));
    Ok(code)
}

/// The engine by the clock.
fn measure(is_quick: bool) -> Result<Measured, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let size = match is_quick {
        true => Size { entries: 5_000, operations: 5_000, rounds: 1, cores },
        false => Size { entries: 1_000_000, operations: 1_000_000, rounds: 7, cores },
    };
    engine::measured(&size, machine(cores), eprint_quietly)
}

/// The processor's name where the system states it, the cores, and how busy it was before.
fn machine(cores: usize) -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("processor unknown", |(_, model)| model.trim());
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!("{model}, {cores} cores, load average {load} before")
}
