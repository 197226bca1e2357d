//! Flags: the clap definition, made from the table.
//!
//! clap reads the command line and checks it row by row with [`crate::value::Kind::parse`], so that
//! a wrong value is refused with its range. Defaults are *not* given to clap: without the flag, the
//! environment and the file must still apply (see `layers`).

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, Command as Clap};

use crate::amounts::grouped;
use crate::table::{Command, Program, Reach, Setting};
use crate::value::{Kind, Value};

/// Name of the flag that every command knows.
pub const CONFIG: &str = "config";

/// The whole program.
pub fn clap(program: &'static Program) -> Clap {
    let mut clap = Clap::new(program.name)
        .version(program.version)
        .about(program.about)
        .long_about(program.long_about)
        .after_help(program.first_steps)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true);
    if program.configurable().next().is_some() {
        clap = clap.arg(
            Arg::new(CONFIG)
                .long(CONFIG)
                .value_name("FILE")
                .global(true)
                .value_parser(clap::value_parser!(std::path::PathBuf))
                .help("Read settings from this configuration file")
                .long_help(
                    "Read settings from this configuration file. Default: the first file of the list in \
                     larder show-config --help.",
                ),
        );
    }
    for command in program.commands.iter().filter(|command| command.path.len() == 1) {
        clap = clap.subcommand(subcommand(program, command));
    }
    for (name, about) in program.families {
        let mut family = Clap::new(*name)
            .about(*about)
            .subcommand_required(true)
            .arg_required_else_help(true)
            .disable_help_subcommand(true);
        for command in program.commands.iter().filter(|command| command.path.len() == 2) {
            if command.path[0] == *name {
                family = family.subcommand(subcommand(program, command));
            }
        }
        clap = clap.subcommand(family);
    }
    clap
}

fn subcommand(program: &Program, command: &'static Command) -> Clap {
    let name = command.path[command.path.len() - 1];
    let mut clap = Clap::new(name)
        .about(command.about)
        .long_about(format!("{}.\n\n{}", command.about, command.long));
    for setting in command.settings {
        clap = clap.arg(argument(setting));
    }
    if let Some((shown, heading)) = program.shown.filter(|_| command.path == ["show-config"]) {
        for setting in shown.lasting() {
            clap = clap.arg(argument(setting).help_heading(heading));
        }
    }
    clap
}

fn argument(setting: &'static Setting) -> Arg {
    let kind = setting.kind;
    let parser = OsStringValueParser::new()
        .try_map(move |text: OsString| kind.parse(&text).map_err(WrongValue));
    let arg = Arg::new(setting.name)
        .required(setting.required)
        .help(setting.help)
        .long_help(long_help(setting));
    let arg = if setting.positional {
        arg.value_name(setting.value_name)
    } else {
        let arg = arg.long(setting.name).help_heading(setting.group);
        match setting.letter {
            Some(letter) => arg.short(letter),
            None => arg,
        }
    };
    match kind {
        Kind::Switch => {
            let arg = arg.value_parser(parser).default_missing_value("true");
            match setting.reach {
                Reach::Run => arg.num_args(0),
                // A file may have set it, so it can also be taken back: `--quiet=false`.
                Reach::Lasting => arg.value_name("BOOL").num_args(0..=1).require_equals(true),
            }
        }
        _ if setting.many => arg
            .value_parser(parser)
            .value_name(setting.value_name)
            .num_args(if setting.one_each {
                (1..=1).into()
            } else {
                clap::builder::ValueRange::from(1..)
            })
            .action(ArgAction::Append),
        Kind::Choice(words) => {
            let arg = arg.value_name(setting.value_name).hide_possible_values(true).value_parser(
                // Named values reach the completions; `parse` decides.
                clap::builder::PossibleValuesParser::new(words)
                    .try_map(move |text| kind.parse(text.as_ref()).map_err(WrongValue)),
            );
            match setting.bare {
                "" => arg,
                bare => arg.num_args(0..=1).require_equals(true).default_missing_value(bare),
            }
        }
        // `--from -15m` is a time, and no flag.
        Kind::Time(_) => {
            arg.value_parser(parser).value_name(setting.value_name).allow_hyphen_values(true)
        }
        _ => arg.value_parser(parser).value_name(setting.value_name),
    }
    .value_hint(match kind {
        Kind::Path if setting.value_name == "DIR" => clap::ValueHint::DirPath,
        Kind::Path | Kind::Endpoint => clap::ValueHint::FilePath,
        _ => clap::ValueHint::Unknown,
    })
}

/// Long help: the meaning, default and range, and the reason.
fn long_help(setting: &Setting) -> String {
    let mut sentences =
        vec![format!("{}.", setting.help), setting.more.to_owned(), setting.needs_in_words()];
    let is_off = matches!((setting.kind, setting.default), (Kind::Switch, "false"));
    if !setting.default.is_empty() && !is_off {
        let shown = setting.kind.shown(setting.default);
        let shown = match (setting.kind, shown.parse()) {
            (Kind::Count { .. }, Ok(number)) => grouped(number),
            _ => shown,
        };
        sentences.push(format!("Default: {shown}."));
    }
    sentences.extend(setting.kind.accepted());
    sentences.push(setting.why.to_owned());
    sentences.retain(|sentence| !sentence.is_empty());
    sentences.join(" ")
}

/// Wraps a clause of [`Kind::parse`], so that clap prints it after the value it refuses.
#[derive(Debug)]
struct WrongValue(String);

impl std::fmt::Display for WrongValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongValue {}

/// The values of a row that were written as flags; empty when it was not written.
pub fn written(matches: &clap::ArgMatches, setting: &Setting) -> Vec<Value> {
    match matches.try_get_many::<Value>(setting.name) {
        Ok(Some(values)) => values.cloned().collect(),
        _ => Vec::new(),
    }
}

/// The command on the command line, and its matches.
pub fn chosen(
    program: &Program,
    matches: &clap::ArgMatches,
) -> Option<(&'static Command, clap::ArgMatches)> {
    let (first, inner) = matches.subcommand()?;
    let (path, inner) = match inner.subcommand() {
        Some((second, innermost)) => (vec![first, second], innermost),
        None => (vec![first], inner),
    };
    let mut commands = program.commands.iter().copied();
    Some((commands.find(|command| command.path == path.as_slice())?, inner.clone()))
}
