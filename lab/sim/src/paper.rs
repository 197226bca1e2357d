//! The experiments of the paper that larder began with, repeated and compared with its numbers (Han, Guo and Zeng,
//! "Research on Multicore Key-Value Storage System for Domain Name Storage", Applied Sciences 11(16), 2021).
//!
//! ```text
//! names         lengths: a list, or made up            figures 2, 3
//! engine        the engine, measured by the clock      figures 7 to 12, throughput of tables 1 and 2
//! simulate      policies and ways of sharing            figure 13, hits of table 1
//! files         all of it as CSV, SVG, Markdown, HTML   each compared with the paper's numbers
//! ```
//!
//! Simulated results are a function of [`Settings`] and the names; [`Measured`] has the machine's figures.
//!
//! Cost of the full size: some ten thousand million steps of a policy, three minutes on two cores.

mod chapters;
mod document;
pub mod engine;
mod locked;
mod measured;
pub mod reported;
mod simulated;

use crate::lengths::names::Names;

pub use crate::sync::Error;
pub use document::File;
pub use measured::{Measured, Mode, Timed, TimedMode};
pub use simulated::{Case, Simulated, simulate};

/// How much is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Distinct names of a stream.
    pub names: u32,
    /// Requests of a stream; the first third warms up.
    pub requests: u64,
    /// Of all chances.
    pub seed: u64,
    /// Threads; results do not depend on them.
    pub threads: usize,
}

impl Settings {
    /// Large enough that a tenth of a point means something.
    pub fn full(seed: u64) -> Settings {
        Settings { names: 200_000, requests: 3_000_000, seed, threads: 1 }
    }

    /// Large enough to see that it works.
    pub fn quick(seed: u64) -> Settings {
        Settings { names: 2_000, requests: 30_000, seed, threads: 1 }
    }
}

/// Every file of the report. `names_are` states where the names come from; without `measured`, figures 7 to 12 state
/// that they were left out.
pub fn files(
    settings: &Settings,
    names: &Names,
    names_are: &str,
    simulated: &Simulated,
    measured: Option<&Measured>,
) -> Vec<File> {
    let blocks = chapters::all(settings, names, names_are, simulated, measured);
    document::files("The paper's experiments, with larder", &blocks)
}
