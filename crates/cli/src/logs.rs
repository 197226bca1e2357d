//! `--log-level` and `--log-format`: the log of a program that runs.

use std::io::{IsTerminal, stderr};

use larder_serve::log::{Format, Level, Log, Printer};
use larder_settings::exit::Failure;
use larder_settings::terminal::WIPE;

/// What a line about the first Ctrl-C adds.
pub const AGAIN: &str = "Ctrl-C again after a second ends at once";

/// Words of the two settings.
pub type Words = (&'static str, &'static str);

/// The log of a command, named after its component.
pub fn log(component: &'static str, words: Words) -> Log {
    let (level, format) = chosen(words);
    Log::new(component, level, format)
}

/// Applies changed settings.
pub fn follow(log: &Log, words: Words) {
    let (level, format) = chosen(words);
    log.set(level, format);
}

fn chosen((level, format): Words) -> (Level, Format) {
    let format = if format == "json" { Format::Json } else { Format::Text };
    (Level::of_name(level).expect("the row names levels"), format)
}

/// Writes the log to standard error until the printer is dropped. Signals must be blocked and
/// capabilities dropped before: the thread keeps those of its start.
pub fn print(log: &Log) -> Result<Printer, Failure> {
    // A line of progress may be on the terminal.
    let wipe = if stderr().is_terminal() { WIPE } else { "" };
    log.print(wipe).map_err(|error| Failure::file("a thread for the log", &error, "try again"))
}
