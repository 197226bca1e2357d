//! The one table: every command, and one row a setting.
//!
//! Flags, help, man pages, completions, the configuration template, `show-config` and
//! `docs/guide/settings.md` are all made from these rows; nothing else in the program names a
//! default or a range. A new setting is a new row here and one line where it is used.
//!
//! Invariants (each has a test)
//! 1. Every default parses by its row's [`Kind`].
//! 2. Names are unique in a command, and so are letters.
//! 3. The defaults of `annotate` are `larder_annotate::Options::default()`.

mod annotate;
mod dns;
mod http;
mod live;
mod logs;
mod other;

use larder_settings::table::Program;

pub use annotate::ANNOTATE;
#[cfg(test)]
pub use annotate::SOURCE_WORDS;
pub use dns::DNS;
pub use http::HTTP;
pub use live::{FIND, TOP};
#[cfg(test)]
pub use other::CTL_ACTIONS;
pub use other::{COMPLETIONS, CTL, DEMO, MAN, SHOW_CONFIG};

/// The program.
pub static PROGRAM: Program = Program {
    name: "larder",
    version: env!("CARGO_PKG_VERSION"),
    changed: "2026-11-21",
    about: "A multicore cache for programs on the network, and the programs that need one",
    long_about: "larder keeps names in a multicore cache and puts them where they are \
missing: larder annotate reads captured packets, learns which name each address was looked up under, \
and writes a log in which every flow carries names.

Results go to standard output, everything else to standard error. Settings also come from the \
environment (LARDER_ANNOTATE_CORES=2) and from a file (see larder show-config).

First steps:
  larder demo
  larder annotate -r FILE",
    commands: &[
        &ANNOTATE,
        &FIND,
        &TOP,
        &DNS,
        &HTTP,
        &DEMO,
        &CTL,
        &SHOW_CONFIG,
        &COMPLETIONS,
        &MAN,
    ],
    families: &[],
    moved: &[
        ("bench", "larder-lab"),
        ("gen", "larder-lab"),
        ("model", "larder-lab"),
        ("sim", "larder-lab"),
    ],
    shown: Some((&ANNOTATE, "Flags of annotate")),
    guide: "# Settings\n\n\
        Generated from the table in `crates/cli/src/settings.rs`; a test keeps it so\n\
        (`UPDATE_DOCS=1 cargo test -p larder-cli` rewrites it).\n\n\
        A setting with a variable can also stand in `larder.toml`, in the table of its command, with\n\
        `_` for `-`. The first that speaks wins: flag, environment, file, default.\n\
        `larder show-config` says which one did. What is marked *live* is changed by a reload, while \
        the server runs.\n",
};

/// The page that is made of the table.
#[cfg(test)]
const PAGE: &str = "docs/guide/settings.md";

#[cfg(test)]
#[path = "../../settings/tests/common/table.rs"]
mod tests;
