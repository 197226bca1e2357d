//! `larder annotate`: domain names for the IP addresses in captured traffic.
//!
//! | module | task |
//! |---|---|
//! | [`options`] | the options of a run, and its summary |
//! | [`pipeline`] | batches in flight over many cores, one result |
//! | [`decode`] | a batch of bytes becomes events by shard, and a few packets that can teach names |
//! | [`learn`] | the serial step: DNS and similar protocols, fragments, in packet order |
//! | [`names`] | all names, in the engine; the name that an address gets |
//! | [`names_file`] | the same on disk |
//! | [`flow`] | which packets belong together, which end began, when the flow ended |
//! | [`own_name`] | the name that a flow states |
//! | [`worker`] | flows, names and records of one worker's shards |
//! | [`record`] | a finished flow |
//! | [`mod@format`] | the schema, as text, ECS, Zeek, CSV, Parquet |
//! | [`sort`] | rendered records in the order of first packets |
//! | [`files`] | outputs, directories and saved names of a run |
//! | `lines` | logs in one file, or rotated by size and time |
//! | [`sink`] | the ordered end: log, packets with names, DNS answers |
//! | `store_sink` | packets and names of flows for the packet store |
//! | [`stored`] | flows that were found in a packet store, in the formats of the log |
//! | [`live`] | interfaces as input |
//! | [`seen`] | what records show: names, clients, oddities, in bounded tables |
//! | `live_stats`, `figures`, `control` | statistics, control socket and metrics of a running capture |
//! | [`page`] | the page for a browser, its history and lists |
//! | [`feeds`] | logs of other programs: Zeek, EVE, dnstap |
//! | [`exports`] | flows of routers: NetFlow, IPFIX |
//! | [`names_at`], [`knowledge`] | the names that addresses had at a moment |
//!
//! The steps of a packet: [`pipeline`] has the overview, [`mod@run`] connects the parts.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod confidence;
pub mod control;
pub mod decode;
pub mod evidence;
pub mod exports;
pub mod extract;
pub mod feeds;
mod figures;
pub mod files;
pub mod flow;
pub mod format;
pub mod knowledge;
pub mod learn;
mod lines;
pub mod live;
pub mod live_stats;
pub mod log;
pub mod names;
pub mod names_at;
pub mod names_file;
pub mod options;
pub mod own_name;
mod packet_file;
pub mod page;
pub mod pipeline;
pub mod record;
mod registered;
pub mod run;
pub mod seen;
pub mod sink;
pub mod sort;
mod stated;
pub mod store_sink;
pub mod stored;
pub mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use larder_io::reading::Reading;

pub use options::{Options, Summary};
pub use run::{run, run_live, run_observed};

/// Progress of a run. The caller may read it at any time, and stop the run.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of input read so far, after decompression.
    pub input_bytes: AtomicU64,
    /// How much of the captures is read; nothing until they are open. Set by the run.
    pub reading: OnceLock<Arc<Reading>>,
    /// Packets read so far.
    pub packets: AtomicU64,
    /// Set by the caller (Ctrl-C): finish what was read, write it, and return.
    pub stop: AtomicBool,
    /// Set by the caller (SIGHUP, SIGUSR1): logs are opened again before the next record.
    pub reopen: AtomicBool,
    /// Requests for batches: grows at least every tenth of a second, or the run hangs.
    pub turns: AtomicU64,
    /// All input is read; logs and packets are being finished, which may take long. Set by the run.
    pub is_finishing: AtomicBool,
    /// Statistics for `larder top` and metrics.
    pub live_stats: live_stats::LiveStats,
}

/// Why a run failed. Every message states the next step.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An input cannot be read. The caller should name another file, or change its permissions.
    Input {
        /// The input.
        what: String,
        /// The cause, and the next step.
        why: String,
    },
    /// An output cannot be written. The caller should make room or name another place.
    Output {
        /// The output.
        what: String,
        /// The cause, and the next step.
        why: String,
    },
    /// The reader of standard output closed it. That is no failure: the run ends without a message
    /// (exit status 141).
    ClosedPipe,
    /// A capture cannot be read.
    Read(larder_io::input::InputError),
    /// An output cannot be written.
    Write(larder_io::output::OutputError),
    /// The options contradict each other, as the text explains.
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
