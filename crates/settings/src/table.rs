//! The table of a program: its commands, and one row a setting.
//!
//! Flags, help, man pages, completions, the configuration template, `show-config` and the reference
//! are all made from these rows; nothing else in a program names a default or a range.

pub use crate::value::Kind;

/// Where a setting may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// On the command line only: it belongs to one run (inputs, outputs).
    Run,
    /// On the command line, in the environment, in the configuration file.
    Lasting,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Long flag, and with `_` for `-` the key in the file. For a positional argument, its name.
    pub name: &'static str,
    /// Short flag.
    pub letter: Option<char>,
    /// The name of the value in help.
    pub value_name: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// May be given several times, with several values each.
    pub many: bool,
    /// If it is `many`: with one value each, so that a word behind is another argument.
    pub one_each: bool,
    /// A bare argument instead of a flag.
    pub positional: bool,
    /// A command without it is a usage error.
    pub required: bool,
    /// Text of the default; empty for none.
    pub default: &'static str,
    /// Of a choice: the value that the bare flag stands for; empty where it needs one.
    pub bare: &'static str,
    /// The layers that may set it.
    pub reach: Reach,
    /// A reload changes it while the server runs.
    pub is_live: bool,
    /// Names of other settings of the command. Without any of them this one has no effect, and is refused.
    pub needs: &'static [&'static str],
    /// Heading in help.
    pub group: &'static str,
    /// The effect: an imperative of at most 60 characters without a full stop, for `-h`.
    pub help: &'static str,
    /// The rest of the meaning, in sentences, for `--help`; may be empty.
    pub more: &'static str,
    /// The reason for the default, or when to change it, in sentences; may be empty.
    pub why: &'static str,
}

impl Setting {
    /// Key in the configuration file.
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }

    /// The sentence of help about the settings that this one needs; empty if there are none.
    pub(crate) fn needs_in_words(&self) -> String {
        let flags: Vec<String> = self.needs.iter().map(|name| format!("--{name}")).collect();
        match flags[..] {
            [] => String::new(),
            _ => format!("Needs {}.", flags.join(" or ")),
        }
    }

    /// How a person would write it on the command line: `-r, --read FILE`.
    pub fn usage(&self) -> String {
        if self.positional {
            return format!("{}{}", self.value_name, if self.many { "…" } else { "" });
        }
        let letter = self.letter.map(|c| format!("-{c}, ")).unwrap_or_default();
        let value = match self.kind {
            Kind::Switch => String::new(),
            _ if !self.bare.is_empty() => format!("[={}]", self.value_name),
            _ if self.one_each => format!(" {}", self.value_name),
            _ => format!(" {}{}", self.value_name, if self.many { "…" } else { "" }),
        };
        format!("{letter}--{}{value}", self.name)
    }
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Words after the program's name.
    pub path: &'static [&'static str],
    /// One line.
    pub about: &'static str,
    /// More, for `--help` and the manual.
    pub long: &'static str,
    /// Its rows.
    pub settings: &'static [Setting],
}

impl Command {
    /// Name of its table in the configuration file, and of its part of environment variables.
    pub fn table(&self) -> String {
        self.path.join("_").replace('-', "_")
    }

    /// The environment variable of a lasting setting: `LARDER_ANNOTATE_CORES`.
    pub fn variable(&self, setting: &Setting) -> String {
        format!("LARDER_{}_{}", self.table(), setting.key()).to_ascii_uppercase()
    }

    /// Rows that the file and the environment may set.
    pub fn lasting(&self) -> impl Iterator<Item = &'static Setting> {
        self.settings.iter().filter(|setting| setting.reach == Reach::Lasting)
    }
}

/// A program: its commands, and the text of help before them.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The program's name in a shell.
    pub name: &'static str,
    /// Of its package.
    pub version: &'static str,
    /// The day of this version's entry in CHANGELOG.md, or of its last change: the date of manual
    /// pages. (The day of the build would make two builds of one source differ.)
    pub changed: &'static str,
    /// One line.
    pub about: &'static str,
    /// More, for `--help` and the manual.
    pub long_about: &'static str,
    /// What to try first: the end of help, also of the short one that the program prints without arguments.
    pub first_steps: &'static str,
    /// Every command, in the order of help.
    pub commands: &'static [&'static Command],
    /// Words that hold commands of two words, and a line on each.
    pub families: &'static [(&'static str, &'static str)],
    /// Words that were commands once, each with the package and program that has them now.
    pub moved: &'static [(&'static str, &'static str)],
    /// The command whose lasting settings `show-config` takes as flags too, and their heading in
    /// its help.
    pub shown: Option<(&'static Command, &'static str)>,
    /// The beginning of the reference of settings.
    pub reference: &'static str,
}

impl Program {
    /// Commands that have lasting settings: the tables of the configuration file.
    pub fn configurable(&self) -> impl Iterator<Item = &'static Command> {
        self.commands.iter().copied().filter(|command| command.lasting().next().is_some())
    }
}

/// The row that the others start from: a flag of one run with an optional value.
pub(crate) const ROW: Setting = Setting {
    name: "",
    letter: None,
    value_name: "VALUE",
    kind: Kind::Word,
    many: false,
    one_each: false,
    positional: false,
    required: false,
    default: "",
    bare: "",
    reach: Reach::Run,
    is_live: false,
    needs: &[],
    group: "Options",
    help: "",
    more: "",
    why: "",
};

/// The number of rows in several lists; for the macro.
#[doc(hidden)]
pub const fn count(lists: &[&[Setting]]) -> usize {
    let (mut count, mut list) = (0, 0);
    while list < lists.len() {
        count += lists[list].len();
        list += 1;
    }
    count
}

/// The rows of several lists in their order; for the macro.
#[doc(hidden)]
pub const fn joined<const N: usize>(lists: &[&[Setting]]) -> [Setting; N] {
    let mut rows = [ROW; N];
    let (mut list, mut row) = (0, 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            rows[row] = lists[list][at];
            row += 1;
            at += 1;
        }
        list += 1;
    }
    assert!(row == N, "the number of rows");
    rows
}
