//! `larder annotate`: the domain name beside every IP address in captured traffic.
//!
//! | module | duty |
//! |---|---|
//! | [`options`] | what a run is told, and what it says at its end |
//! | [`record`] | what is known of a flow when it ends |
//! | [`mod@format`] | the schema, as text, ECS, Zeek, CSV, Parquet |
//! | [`sort`] | rendered records in the order of first packets |
#![forbid(unsafe_code)]

pub mod format;
pub mod options;
pub mod record;
pub mod sort;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

pub use options::{Options, Summary};

/// How far a run is; the caller may read it at any time, and ask the run to stop.
#[derive(Debug, Default)]
pub struct Progress {
    /// Octets of input read so far.
    pub input_bytes: AtomicU64,
    /// Octets of input in all, 0 where nobody knows (a pipe).
    pub input_bytes_total: AtomicU64,
    /// Packets read so far.
    pub packets: AtomicU64,
    /// Set by the caller (Ctrl-C): finish what was read, write it, and return.
    pub stop: AtomicBool,
}

/// Why a run could not be done. Every message says what to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An input can't be read. The caller should name another file, or mend its permissions.
    Input {
        /// What was to be read.
        what: String,
        /// What the system said, and what to do next.
        why: String,
    },
    /// An output can't be written. The caller should make room or name another place.
    Output {
        /// What was to be written.
        what: String,
        /// What the system said, and what to do next.
        why: String,
    },
    /// Standard output was closed by its reader: not our failure; end quietly (exit 141).
    ClosedPipe,
    /// The options contradict each other. The caller should change them as the text says.
    Options(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Input { what, why } => write!(f, "{what}: {why}"),
            Error::Output { what, why } => write!(f, "{what}: {why}"),
            Error::ClosedPipe => f.write_str("the output was closed by its reader"),
            Error::Options(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// Runs to the end of the input (or until `progress.stop`).
pub fn run(options: &Options, progress: &Arc<Progress>) -> Result<Summary, Error> {
    let _ = (options, progress);
    Err(Error::Options("not there yet".to_owned()))
}
