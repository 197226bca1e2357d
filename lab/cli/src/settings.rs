//! The one table of `larder-lab`: every command, and one row a setting. All of them belong to one
//! run.

pub mod bench;
pub mod bench_live;
pub mod model;
pub mod names;
pub mod sim;

use larder_settings::table::Program;

/// The program.
pub static PROGRAM: Program = Program {
    name: "larder-lab",
    version: env!("CARGO_PKG_VERSION"),
    changed: "2026-11-24",
    about: "Measure larder, simulate caches, generate inputs for both",
    long_about: "larder-lab measures larder, other programs and the limits of the machine. It \
simulates hit ratios on traces, and estimates what they mean to a server.

Results are written to standard output, everything else to standard error.",
    first_steps: "First steps:
  larder-lab sim hit-ratio --trace zipf:0.9
  larder-lab model
  larder-lab bench engine",
    commands: &[
        &bench::BENCH_ANNOTATE,
        &bench::BENCH_ENGINE,
        &bench::BENCH_DNS,
        &bench::BENCH_HTTP,
        &bench_live::BENCH_LIVE,
        &bench::GEN_CAPTURE,
        &sim::SIM_HIT_RATIO,
        &sim::SIM_SYNC,
        &sim::SIM_LENGTHS,
        &sim::SIM_PAPER,
        &model::MODEL,
        &names::NAMES,
    ],
    families: &[
        ("bench", "Measure larder on this machine"),
        ("gen", "Generate inputs for measurements"),
        ("sim", "Simulate caches on traces"),
    ],
    shown: None,
    moved: &[],
    reference: "# Settings of larder-lab\n\n\
        These pages are generated from the table in `lab/cli/src/settings.rs`; a test keeps them so\n\
        (`UPDATE_DOCS=1 cargo test -p larder-lab` rewrites them).\n\n\
        `larder-lab` measures and simulates. `cargo build --release -p larder-lab` builds it.\n\
        All its settings apply to one run: they are flags only.\n",
};

/// The page of `docs/reference` that lists those of the commands.
#[cfg(test)]
const PAGE: &str = "settings-lab.md";

#[cfg(test)]
#[path = "../../../crates/settings/tests/common/table.rs"]
mod tests;
