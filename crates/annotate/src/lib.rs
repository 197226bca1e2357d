//! `larder annotate`: the domain name beside every IP address in captured traffic.
//!
//! | module | duty |
//! |---|---|
//! | [`options`] | what a run is told, and what it says at its end |
//! | [`pipeline`] | batches in flight over many cores, one result |
//! | [`decode`] | a batch of bytes becomes events by shard, and a few rare packets |
//! | [`learn`] | the serial middle: DNS and its kin, fragments, in packet order |
//! | [`names`] | what is known of names, in the engine; which name an address gets |
//! | [`names_file`] | the same on disk |
//! | [`flow`] | what belongs together, who began it, when it ended |
//! | [`own_name`] | the name that a flow states itself |
//! | [`worker`] | flows, names and records of one worker's shards |
//! | [`record`] | what is known of a flow when it ends |
//! | [`mod@format`] | the schema, as text, ECS, Zeek, CSV, Parquet |
//! | [`sort`] | rendered records in the order of first packets |
//! | [`files`] | outputs, folders and saved names, as a run opens them |
//! | `lines` | logs in one file, or cut by size and time |
//! | [`sink`] | the ordered end: log, packets with names, answers |
//! | [`feeds`] | logs of others: Zeek, EVE, dnstap |
//!
//! The life of a packet: [`pipeline`] has the picture, [`mod@run`] puts it together.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod control;
pub mod decode;
pub mod feeds;
pub mod files;
pub mod flow;
pub mod format;
pub mod learn;
mod lines;
pub mod live;
pub mod live_stats;
pub mod names;
pub mod names_file;
pub mod options;
pub mod own_name;
pub mod pipeline;
pub mod record;
mod registered;
pub mod run;
pub mod sink;
pub mod sort;
mod stated;
pub mod store_sink;
pub mod worker;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};

pub use options::{Options, Summary};
pub use run::{run, run_live};

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
    /// Set by the caller (SIGHUP, SIGUSR1): logs are opened anew before the next record.
    pub reopen: AtomicBool,
    /// How often batches were asked for: grows at least every tenth of a second, or the run hangs.
    pub turns: AtomicU64,
    /// All is read: logs and packets are being finished, which may take long. Set by the run.
    pub is_finishing: AtomicBool,
    /// More than a bar shows.
    pub live_stats: live_stats::LiveStats,
    /// Lines for the operator that nobody has taken yet, the oldest first.
    news: Mutex<VecDeque<String>>,
}

/// Lines that wait to be taken; later ones are lost.
const NEWS_MAX: usize = 64;

impl Progress {
    /// Says something to the operator.
    pub fn say(&self, line: String) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if news.len() < NEWS_MAX {
            news.push_back(line);
        }
    }

    /// The next line for the operator.
    pub fn take_news(&self) -> Option<String> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
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
    /// A capture can't be read, as the text says.
    Read(larder_io::input::InputError),
    /// An output can't be written, as the text says.
    Write(larder_io::output::OutputError),
    /// The options contradict each other. The caller should change them as the text says.
    Options(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Input { what, why } => write!(f, "{what}: {why}"),
            Error::Output { what, why } => write!(f, "{what}: {why}"),
            Error::ClosedPipe => f.write_str("the output was closed by its reader"),
            Error::Read(error) => error.fmt(f),
            Error::Write(error) => error.fmt(f),
            Error::Options(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<larder_io::input::InputError> for Error {
    fn from(error: larder_io::input::InputError) -> Error {
        Error::Read(error)
    }
}

impl From<larder_io::output::OutputError> for Error {
    fn from(error: larder_io::output::OutputError) -> Error {
        match error {
            larder_io::output::OutputError::ClosedPipe => Error::ClosedPipe,
            error => Error::Write(error),
        }
    }
}
