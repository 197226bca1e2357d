//! The one table: every command, and one row a setting.
//!
//! Flags, help, man pages, completions, the configuration template, `show-config` and
//! `docs/reference` are all made from these rows; nothing else in the program names a
//! default or a range. A new setting is a new row here, which is the field that the program reads.
//!
//! Invariants (each has a test)
//! 1. Every default parses by its row's [`Kind`](larder_settings::value::Kind).
//! 2. Names are unique in a command, and so are letters.
//! 3. The defaults of `annotate` are `larder_annotate::Options::default()`.

mod annotate;
pub mod dns;
mod extract;
mod http;
mod live;
mod logs;
mod other;
mod servers;

use larder_settings::table::Program;

#[cfg(test)]
pub use annotate::SOURCE_WORDS;
pub use annotate::{ANNOTATE, Annotate, Input, Operation, Output};
pub use extract::Extract;
pub use http::{HTTP, Http};
pub use live::{Capture, Find, Store, Top};
#[cfg(test)]
pub use other::CTL_ACTIONS;
#[cfg(test)]
pub use other::PROGRAMS;
pub use other::{Completions, Ctl, Demo, Doctor, Init, Man, ShowConfig};

/// The program.
pub static PROGRAM: Program = Program {
    name: "larder",
    version: env!("CARGO_PKG_VERSION"),
    changed: "2026-11-27",
    about: "Names for IP traffic, a DNS server and an HTTP cache, on one multicore cache",
    long_about: "larder annotate reads captured packets, learns the names under which clients looked up \
each address, and writes a log in which each flow has names. larder dns is a caching DNS server, and \
larder http an HTTP cache.

Results are written to standard output, everything else to standard error. Settings come from flags, \
environment variables (LARDER_ANNOTATE_CORES=2) and a configuration file (see larder show-config).",
    first_steps: "First steps:
  larder demo                     names in a small recording, explained
  larder annotate -r FILE         names in your own capture
  larder doctor                   what a live run needs of this machine",
    commands: &[
        &annotate::ANNOTATE,
        &extract::EXTRACT,
        &live::FIND,
        &live::TOP,
        &dns::DNS,
        &http::HTTP,
        &other::DEMO,
        &other::DOCTOR,
        &other::INIT,
        &other::CTL,
        &other::SHOW_CONFIG,
        &other::COMPLETIONS,
        &other::MAN,
    ],
    families: &[],
    moved: &[
        ("bench", "larder-lab"),
        ("gen", "larder-lab"),
        ("model", "larder-lab"),
        ("sim", "larder-lab"),
    ],
    shown: Some((&annotate::ANNOTATE, "Flags of annotate")),
    reference: "# Settings\n\n\
        These pages are generated from the table in `crates/cli/src/settings.rs`; a test keeps them so\n\
        (`UPDATE_DOCS=1 cargo test -p larder-cli` rewrites them).\n\n\
        A setting with a variable can also stand in `larder.toml`, in the table of its command, with\n\
        `_` for `-`. In order of precedence: flag, environment variable, file, default.\n\
        `larder show-config` prints the source of each value. A reload applies changes of *Live*\n\
        settings; other changes need a restart.\n",
};

/// The page of `docs/reference` that lists those of the commands.
#[cfg(test)]
const PAGE: &str = "settings.md";

#[cfg(test)]
#[path = "../../settings/tests/common/table.rs"]
mod tests;
