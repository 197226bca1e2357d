//! A small table, for tests of the texts that are made from tables.

use crate::row::{Settings, Sourced, Text};
use crate::table::{Command, Program, Setting};

const RUN: Setting = Setting::run("Input");
const LASTING: Setting = Setting::lasting("Options");

crate::settings! {
    /// A row of most kinds.
    pub struct Annotate {
        pub read: Vec<std::path::PathBuf> = RUN.endpoint().many().letter('r'),
        pub output: Option<std::path::PathBuf> = RUN.endpoint().needs(&["cores"]),
        pub cores: usize = LASTING.cores().default("all"),
        pub seed: Sourced<u64> = LASTING.seed().default("0x1").with_source(),
        pub linger: u32 = LASTING.seconds(0, 86_400).default("5s")
            .needs(&["quiet", "names"]),
        pub udp_idle: u32 = LASTING.seconds(0, 86_400).default("60s").live().needs(&["quiet"]),
        pub names: Text = LASTING.set(&["dns", "sni"], "name source").default("all"),
        pub names_budget: u64 = LASTING.bytes(1 << 20, 1 << 40).default("256MiB"),
        pub quiet: bool = LASTING.switch(),
        pub strict: bool = LASTING.switch().needs(&["read"]),
    }
}

/// A command with a row of most kinds.
pub const ANNOTATE: Command = Command {
    path: &["annotate"],
    about: "Add names to addresses",
    long: "",
    settings: Annotate::ROWS,
};

/// A program of one command.
pub static PROGRAM: Program = Program {
    name: "larder",
    version: "1.2.3",
    changed: "2026-01-31",
    about: "A program",
    long_about: "A program of one command",
    first_steps: "First steps: sample annotate",
    commands: &[&ANNOTATE],
    families: &[],
    moved: &[("bench", "other")],
    shown: None,
    reference: "# Settings\n",
};
