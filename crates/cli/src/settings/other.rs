//! The rows of the commands that need few: `demo`, `doctor`, `init`, `ctl`, `show-config`, `completions`, `man`.

use std::path::PathBuf;

use larder_settings::row::{List, Settings, Text};
use larder_settings::settings;
use larder_settings::table::{Command, Setting};

const OUTPUT: Setting = Setting::run("Output");
const RUN: Setting = Setting::run("Options");

/// `larder demo`.
pub const DEMO: Command = Command {
    path: &["demo"],
    about: "Annotate a small recording that is part of the program",
    long: "Runs annotate on a recording of real programs (a name server, web servers, clients), and \
explains the names in the log.

With --ui it repeats the recording at real speed, with the time of day. Open the printed address in a \
browser to see the page of larder annotate --ui. Ctrl-C ends it.",
    settings: Demo::ROWS,
};

settings! {
    /// All settings of `larder demo`.
    pub struct Demo {
        pub format: &'static str = OUTPUT.choice(&["text", "ecs", "zeek", "csv"]).default("text")
            .help("Choose the log format")
            .why("The formats are those of larder annotate."),
        pub ui: bool = RUN.switch()
            .help("Repeat the recording, and serve a page for a browser")
            .why("The page then shows live traffic, without a capture of your own."),
        pub listen: Text = RUN.word().default("127.0.0.1:8080")
            .value("ADDR:PORT")
            .needs(&["ui"])
            .help("Serve the page of --ui at this loopback address")
            .why("With port 0 the system chooses a port, which larder prints."),
        pub quiet: bool = OUTPUT.switch()
            .help("Print the log only, without the explanation")
            .why("The explanation is printed to standard error."),
    }
}

/// The programs that run for long.
pub const PROGRAMS: [&str; 3] = ["annotate", "dns", "http"];

/// `larder doctor`.
pub const DOCTOR: Command = Command {
    path: &["doctor"],
    about: "Check what a program needs of this machine",
    long: "Checks kernel, clock, memory, interfaces, rights, ports, directories and files. The settings are those of \
the configuration file, the environment and the flags here. Each line begins with ok, warn (the program runs, with \
less than it could have) or FAIL, and then states what to do.

Run it as the user that the program will have.

Exit status: 0 nothing failed; 1 something failed; 2 the settings cannot be read.

Examples:
  larder doctor
  larder doctor annotate -i eth0 --dir /var/lib/larder --store 50GiB
  larder doctor dns --listen 192.0.2.1",
    settings: Doctor::ROWS,
};

settings! {
    /// All settings of `larder doctor`. Those with the names of a program's settings come before them.
    pub struct Doctor {
        pub program: Option<&'static str> = RUN.choice(&PROGRAMS)
            .value("PROGRAM")
            .positional()
            .help("Check for this program only")
            .why("Without it all three are checked."),
        pub interface: List = RUN.list()
            .letter('i')
            .value("IFACE")
            .help("Check that annotate can capture from these interfaces")
            .why("Without it larder tries each interface that is up."),
        pub listen: List = RUN.list().many()
            .value("ADDRESS")
            .help("Check that these addresses are free, for dns and http")
            .why("Without it the addresses of the configuration count."),
        pub dir: Option<PathBuf> = RUN.path()
            .value("DIR")
            .help("Check that annotate can write its log and packets here")
            .why("A run fails late if its directory cannot be written."),
        pub store: Option<u64> = RUN.bytes(1 << 20, 1 << 60)
            .help("Check that DIR has room for this many bytes of packets")
            .why("It is the budget of annotate --store."),
    }
}

/// `larder init`.
pub const INIT: Command = Command {
    path: &["init"],
    about: "Write a commented configuration for a program",
    long: "Writes all settings of the program that a file may have, each with its default and what it does, as \
comments. It never overwrites a file. Then it prints how to check and start the program.

Examples:
  larder init dns
  larder init annotate -o larder.toml",
    settings: Init::ROWS,
};

settings! {
    /// All settings of `larder init`.
    pub struct Init {
        pub program: &'static str = RUN.choice(&PROGRAMS)
            .required()
            .value("PROGRAM")
            .positional()
            .help("Write the settings of this program")
            .why("Each program has a table of its own in the file."),
        pub output: PathBuf = RUN.endpoint().default("/etc/larder/larder.toml")
            .letter('o')
            .help("Write to this file (- is standard output)")
            .why("The default is the last place where the programs look, and that of the units of systemd."),
    }
}

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
    about: "Control a running server: stats, flush, purge, reload, stop",
    long: "Sends one request to the control socket of a server (its setting --ctl), as a line of JSON. \
stats prints counters, and stop ends the server.

larder dns: dump prints each cached response, with --json in the form that load reads. load adds \
entries from standard input to the cache. flush NAME deletes all types of a name, and flush-zone \
ZONE also the names below it. snapshot saves the cache to its file. reload reads the \
configuration again and preserves the cache.

larder http: purge URL deletes the objects of a URL, purge-tag TAG those with a tag, and flush \
all objects. With --soft they stay in the cache as stale: larder revalidates them, and may serve \
them while the origin fails. reload reads the configuration again, and prints which settings \
changed and which need a restart.

larder annotate: reopen reopens its logs.

Exit status: 0 done; 1 loaded, but some lines were not entries; 2 not done.

Examples:
  larder ctl stats
  larder ctl flush www.example.com
  larder ctl purge http://www.example.com/news
  larder ctl purge-tag sports --soft
  larder ctl dump --json | larder ctl load --socket /run/other/ctl",
    settings: Ctl::ROWS,
};

settings! {
    /// All settings of `larder ctl`.
    pub struct Ctl {
        pub action: &'static str = RUN.choice(&CTL_ACTIONS).required()
            .value("ACTION")
            .positional()
            .help("Send this command to the server")
            .why("The names are those of unbound-control and rndc where these have the command."),
        pub name: Option<Text> = RUN.word()
            .value("NAME")
            .positional()
            .help("Flush this name or zone, or purge this URL or tag")
            .more("flush, flush-zone, purge and purge-tag take it; other actions take no argument."),
        pub soft: bool = RUN.switch()
            .help("Mark purged objects as stale instead of deleting them")
            .why("The next request then only revalidates the object with the origin, which often \
                sends no body."),
        pub socket: PathBuf = RUN.path().default("/run/larder/ctl")
            .value("PATH")
            .letter('s')
            .help("Connect to this control socket")
            .why("The server creates the socket for its own user, and file permissions decide \
                which users may connect."),
        pub json: bool = RUN.switch()
            .help("Print JSON")
            .why("Columns are for people; programs and load read JSON."),
    }
}

/// `larder show-config`.
pub const SHOW_CONFIG: Command = Command {
    path: &["show-config"],
    about: "Print each setting, its value and the source of the value",
    long: "Sources, in order of precedence: flag, environment variable, configuration file, default. The \
file is the first of: --config, $LARDER_CONFIG, ./larder.toml, \
$XDG_CONFIG_HOME/larder/larder.toml (or ~/.config/larder/larder.toml), /etc/larder/larder.toml.

The command also accepts the flags of annotate that a file may set, to show their effect. Its \
output can be used as a configuration file.",
    settings: ShowConfig::ROWS,
};

settings! {
    /// All settings of `larder show-config`.
    pub struct ShowConfig {
        pub template: bool = RUN.switch()
            .help("Print a commented file with all defaults instead")
            .why("The template is the list of defaults."),
    }
}

/// `larder completions`.
pub const COMPLETIONS: Command = Command {
    path: &["completions"],
    about: "Print completions for a shell",
    long: "Example: larder completions bash > /etc/bash_completion.d/larder",
    settings: Completions::ROWS,
};

settings! {
    /// All settings of `larder completions`.
    pub struct Completions {
        pub shell: &'static str = RUN.choice(&["bash", "elvish", "fish", "powershell", "zsh"])
            .required()
            .value("SHELL")
            .positional()
            .help("Print completions for this shell")
            .why("Completions come from the same table as the flags."),
    }
}

/// `larder man`.
pub const MAN: Command = Command {
    path: &["man"],
    about: "Print the manual page, or write one page per command",
    long: "Without -o, prints larder(1) as roff: larder man | man -l -",
    settings: Man::ROWS,
};

settings! {
    /// All settings of `larder man`.
    pub struct Man {
        pub output: Option<PathBuf> = RUN.path()
            .value("DIR")
            .letter('o')
            .help("Write larder.1, larder-annotate.1, … to this directory")
            .why("Packages use /usr/share/man/man1."),
        pub markdown: bool = RUN.switch()
            .help("Print the table of all settings as Markdown instead")
            .why("The reference of the documentation is made from this table."),
    }
}
