//! The rows of the commands that need few: `demo`, `ctl`, `show-config`, `completions`, `man`.

use larder_settings::table::{Command, Kind, ROW, SWITCH, Setting};

/// `larder demo`.
pub const DEMO: Command = Command {
    path: &["demo"],
    about: "Annotate a small real capture that is part of the program",
    long: "Runs annotate on a recording of real programs (a name server, web servers, clients) and \
explains what the names say.",
    settings: &[
        Setting {
            name: "format",
            value_name: "FORMAT",
            kind: Kind::Choice(&["text", "ecs", "zeek", "csv"]),
            default: "text",
            group: "Output",
            help: "Format of the log",
            why: "As in annotate.",
            ..ROW
        },
        Setting {
            name: "quiet",
            group: "Output",
            help: "The log only, without the explanation",
            why: "The explanation goes to standard error in any case.",
            ..SWITCH
        },
    ],
};

/// What `larder ctl` may ask for.
pub const CTL_ACTIONS: [&str; 12] = [
    "stats",
    "reopen",
    "dump",
    "load",
    "flush",
    "flush-zone",
    "purge",
    "purge-tag",
    "snapshot",
    "reload",
    "stop",
    "version",
];

/// `larder ctl`.
pub const CTL: Command = Command {
    path: &["ctl"],
    about: "Ask a running larder dns or larder http: statistics, flush, purge, reload, stop",
    long: "Speaks to the server over the Unix socket that it was given with --ctl, a line of JSON a request. \
stats prints counters; stop ends the server.

Of larder dns: dump prints every answer that is kept (--json: as load takes them); load puts entries from \
standard input into the cache; flush NAME takes out all types of a name, flush-zone ZONE all below it too; \
snapshot saves the cache to its file; reload reads the configuration again and keeps the cache.

Of larder http: purge URL takes out what a URL gives, purge-tag TAG what its origin gave that tag, flush everything; with \
--soft it stays, stale: the origin is asked about it, and it may still be given while the origin fails; reload reads the configuration \
again, and says what changed and what needs a restart. Exit status: 0 done; 1 loaded, but some lines were no entries; 2 not done.

Of larder annotate: reopen opens its logs anew.

Examples:
  larder ctl stats
  larder ctl flush www.example.com
  larder ctl purge http://www.example.com/news
  larder ctl purge-tag sports --soft
  larder ctl dump --json | larder ctl load --socket /run/other/ctl",
    settings: &[
        Setting {
            name: "action",
            positional: true,
            required: true,
            value_name: "ACTION",
            kind: Kind::Choice(&CTL_ACTIONS),
            help: "What to ask for",
            why: "As in unbound-control and rndc.",
            ..ROW
        },
        Setting {
            name: "name",
            positional: true,
            value_name: "NAME",
            help: "The name or zone to flush, the URL or tag to purge",
            why: "The other actions take none.",
            ..ROW
        },
        Setting {
            name: "soft",
            help: "Leave what is purged as stale",
            why: "The next who wants it costs the origin a question, and often no body.",
            ..SWITCH
        },
        Setting {
            name: "socket",
            letter: Some('s'),
            value_name: "PATH",
            kind: Kind::Path,
            default: "/run/larder/ctl",
            help: "The server's socket",
            why: "The file system says who may ask: the server makes it for its own user alone.",
            ..ROW
        },
        Setting {
            name: "json",
            help: "Print JSON",
            why: "Columns are for eyes; programs, and load, read JSON.",
            ..SWITCH
        },
    ],
};

/// `larder show-config`.
pub const SHOW_CONFIG: Command = Command {
    path: &["show-config"],
    about: "Print each setting, its value, and which layer gave it",
    long: "Layers, the first that speaks wins: flag, environment variable, configuration file, \
default. The file is the first of: --config, $LARDER_CONFIG, ./larder.toml, \
$XDG_CONFIG_HOME/larder/larder.toml (or ~/.config/larder/larder.toml), /etc/larder/larder.toml. \
The flags of annotate that a file may set are accepted here too, to show their effect. What it prints \
can be used as a file.",
    settings: &[Setting {
        name: "template",
        help: "Print a commented file with every setting at its default instead",
        why: "The template is the list of defaults.",
        ..SWITCH
    }],
};

/// `larder completions`.
pub const COMPLETIONS: Command = Command {
    path: &["completions"],
    about: "Print completions for a shell",
    long: "For example: larder completions bash > /etc/bash_completion.d/larder",
    settings: &[Setting {
        name: "shell",
        positional: true,
        required: true,
        value_name: "SHELL",
        kind: Kind::Choice(&["bash", "elvish", "fish", "powershell", "zsh"]),
        help: "The shell",
        why: "Made from the same table as the flags.",
        ..ROW
    }],
};

/// `larder man`.
pub const MAN: Command = Command {
    path: &["man"],
    about: "Print the manual page, or write one page a command",
    long: "Without -o, prints larder(1) as roff: larder man | man -l -",
    settings: &[
        Setting {
            name: "output",
            letter: Some('o'),
            value_name: "DIR",
            kind: Kind::Path,
            help: "Write larder.1, larder-annotate.1, … into this directory",
            why: "For packages: /usr/share/man/man1.",
            ..ROW
        },
        Setting {
            name: "markdown",
            help: "Print the table of all settings as Markdown instead",
            why: "It is the guide's page of settings.",
            ..SWITCH
        },
    ],
};
