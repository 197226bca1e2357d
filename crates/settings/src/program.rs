//! A program from its command line to its end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args;
use crate::exit::{self, Failure, Outcome};
use crate::layers::{self, Environment, File, Resolved, process_environment};
use crate::needs;
use crate::signals;
use crate::table::{Command, Program};
use crate::terminal::{say, speak_as};

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program.
    pub program: &'static Program,
    /// Its command.
    pub command: &'static Command,
    /// The flags of the command.
    pub matches: ArgMatches,
}

impl Program {
    /// Parses the process's command line, calls `run`, and prints why it failed.
    pub fn main(&'static self, run: impl FnOnce(&Invocation) -> Outcome) -> ExitCode {
        speak_as(self.name);
        let outcome = match self.parse(std::env::args_os()) {
            Ok(invocation) => run(&invocation),
            Err(error) => match self.moved_to(&error) {
                Some(failure) => Err(failure),
                None => say_usage(&error),
            },
        };
        let code = outcome.unwrap_or_else(|failure| {
            if !failure.message.is_empty() {
                say(&failure.message);
            }
            failure.code
        });
        signals::finish();
        ExitCode::from(code)
    }

    /// Reads a command line, the program's name first.
    pub fn parse(
        &'static self,
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Invocation, clap::Error> {
        let matches = args::clap(self).try_get_matches_from(line)?;
        let (command, matches) =
            args::chosen(self, &matches).expect("clap refuses a line without a command");
        Ok(Invocation { program: self, command, matches })
    }
}

impl Program {
    /// The other program that has the command of a wrong line.
    fn moved_to(&self, error: &clap::Error) -> Option<Failure> {
        if error.kind() != ErrorKind::InvalidSubcommand {
            return None;
        }
        let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
            return None;
        };
        let (_, other) = self.moved.iter().find(|(moved, _)| moved == word)?;
        Some(Failure::usage(format!(
            "{word} is a command of {other} now: {other} {word} ... \
             (in larder's sources: cargo run --release -p {other} -- {word} ...)"
        )))
    }
}

impl Invocation {
    /// The settings of the command by all layers.
    pub fn settings(&self) -> Result<Resolved, Failure> {
        self.resolve(self.file()?.as_ref())
    }

    /// The settings of a command that no file has settings of.
    pub fn settings_without_file(&self) -> Result<Resolved, Failure> {
        self.resolve(None)
    }

    /// The settings of another command by all layers; flags of this command count where they have the names of
    /// the other's.
    pub fn settings_of(&self, command: &'static Command) -> Result<Resolved, Failure> {
        self.resolve_of(command, self.file()?.as_ref(), &process_environment)
    }

    /// The configuration file that applies, once the environment is found to have no unknown
    /// settings.
    pub(crate) fn file(&self) -> Result<Option<File>, Failure> {
        let names = std::env::vars_os().map(|(name, _)| name);
        layers::check_environment(self.program, names)?;
        let config = self.matches.get_one::<PathBuf>(args::CONFIG).map(PathBuf::as_path);
        File::find(self.program, config, &process_environment)
    }

    fn resolve(&self, file: Option<&File>) -> Result<Resolved, Failure> {
        self.resolve_of(self.command, file, &process_environment)
    }

    /// The settings of a command. One that has no effect is refused.
    fn resolve_of(
        &self,
        command: &'static Command,
        file: Option<&File>,
        environment: Environment<'_>,
    ) -> Result<Resolved, Failure> {
        let resolved = layers::resolve(command, &self.matches, file, environment)?;
        needs::check(&resolved)?;
        Ok(resolved)
    }

    /// The settings with a file of this text and without an environment, for tests.
    pub fn settings_with(&self, file: &str) -> Result<Resolved, Failure> {
        let file = File::parse(self.program, Path::new("f"), file)?;
        self.resolve_of(self.command, Some(&file), &|_| None)
    }
}

/// The settings of a command that a program gives by name, with `_` or `-`, and otherwise the defaults. Neither the
/// environment nor a file counts.
///
/// # Errors
/// An unknown name, one given twice, a value out of its range, several values where one is expected, a setting without
/// effect.
pub fn settings_named(
    command: &'static Command,
    named: &[(String, Vec<OsString>)],
) -> Result<Resolved, Failure> {
    let resolved = layers::resolve_named(command, named)?;
    needs::check(&resolved)?;
    Ok(resolved)
}

/// Prints help and version to standard output (0), usage errors to standard error (2): one line, or
/// the help of a command whose required arguments are missing.
fn say_usage(error: &clap::Error) -> Outcome {
    if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Err(Failure::usage(one_line(&error.render().to_string())));
    }
    match error.print() {
        Err(closed) if !error.use_stderr() => return Err(Failure::stdout(&closed)),
        _ => {}
    }
    Ok(if error.use_stderr() { exit::FAILED } else { exit::DONE })
}

/// clap's text of an error in one line, without the usage that follows it.
fn one_line(text: &str) -> String {
    let is_fact = |part: &&str| !part.starts_with("Usage:") && !part.starts_with("For more");
    let lines = text.split("\n\n").filter(is_fact).flat_map(str::lines).map(str::trim);
    let mut line = String::new();
    for part in lines.filter(|part| !part.is_empty()) {
        let part = part.strip_prefix("error: ").or(part.strip_prefix("tip: ")).unwrap_or(part);
        match line.chars().last() {
            None => {}
            Some(':') => line.push(' '),
            Some(_) => line.push_str("; "),
        }
        line.extend(part.chars().map(|c| if c.is_control() { '?' } else { c }));
    }
    line + "; try --help"
}
