//! A small table, for tests of what is made from tables.

use crate::table::{Command, INPUT, Program, ROW, Reach, SWITCH, Setting};
use crate::value::Kind;

const LASTING: Setting = Setting { reach: Reach::Lasting, ..ROW };
const SECONDS: Kind = Kind::Seconds { min: 0, max: 86_400 };
const SOURCES: Kind = Kind::Set { words: &["dns", "sni"], item: "name source" };

/// A command with a row of most kinds.
pub const ANNOTATE: Command = Command {
    path: &["annotate"],
    about: "Put names beside addresses",
    long: "",
    settings: &[
        Setting { name: "read", letter: Some('r'), many: true, ..INPUT },
        Setting { name: "output", ..INPUT },
        Setting { name: "cores", kind: Kind::Cores, default: "all", ..LASTING },
        Setting { name: "seed", kind: Kind::Seed, default: "0x1", ..LASTING },
        Setting { name: "linger", kind: SECONDS, default: "5s", ..LASTING },
        Setting { name: "udp-idle", kind: SECONDS, default: "60s", ..LASTING },
        Setting { name: "names", kind: SOURCES, default: "all", ..LASTING },
        Setting {
            name: "names-budget",
            kind: Kind::Bytes { min: 1 << 20, max: 1 << 40 },
            default: "256MiB",
            ..LASTING
        },
        Setting { name: "quiet", reach: Reach::Lasting, ..SWITCH },
        Setting { name: "strict", reach: Reach::Lasting, ..SWITCH },
    ],
};

/// A program of one command.
pub static PROGRAM: Program = Program {
    name: "larder",
    version: "1.2.3",
    changed: "2026-01-31",
    about: "A program",
    long_about: "A program of one command",
    commands: &[&ANNOTATE],
    families: &[],
    moved: &[("bench", "other")],
    shown: None,
    guide: "# Settings\n",
};
