//! What comparisons of servers print: tables as soon as they are there, set-ups of servers at the end; progress and
//! servers that are left out go to standard error.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use larder_bench::row::quote;
use larder_bench::table::Style;
use larder_settings::terminal::eprint_quietly;

/// How figures are printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Format {
    /// For people.
    Tables(Style),
    /// For programs.
    Json,
}

impl Format {
    /// By a word of the setting `format`.
    pub fn of(word: &str) -> Format {
        match word {
            "json" => Format::Json,
            "markdown" => Format::Tables(Style::Markdown),
            _ => Format::Tables(Style::Text),
        }
    }
}

/// How a server was started last.
#[derive(Debug, Default)]
struct SetUp {
    program: PathBuf,
    version: String,
    /// Arguments of each of its processes; none where it was not started.
    processes: Vec<Vec<String>>,
    configuration: String,
}

/// Makes texts of events, and keeps what comes at the end.
#[derive(Debug)]
pub struct Printer {
    format: Format,
    set_ups: BTreeMap<&'static str, SetUp>,
    left_out: BTreeMap<&'static str, String>,
}

impl Printer {
    /// For servers with their programs and versions.
    pub fn new(
        format: Format,
        servers: impl IntoIterator<Item = (&'static str, PathBuf, String)>,
    ) -> Printer {
        let set_up =
            |(name, program, version)| (name, SetUp { program, version, ..SetUp::default() });
        let set_ups = servers.into_iter().map(set_up).collect();
        Printer { format, set_ups, left_out: BTreeMap::new() }
    }

    /// What limits the figures.
    pub fn machine(&self, line: &str) -> String {
        if let Format::Tables(_) = self.format {
            return format!("{line}\n\n");
        }
        eprint_quietly(line);
        String::new()
    }

    /// Says once why a server takes no part.
    pub fn leave_out(&mut self, name: &'static str, reason: String) {
        if self.left_out.get(name) != Some(&reason) {
            eprint_quietly(&format!("SKIP {name}: {reason}"));
        }
        self.left_out.insert(name, reason);
    }

    /// Keeps how a server was started.
    pub fn set_up(&mut self, name: &'static str, processes: Vec<Vec<String>>, text: String) {
        let set_up = self.set_ups.entry(name).or_default();
        (set_up.processes, set_up.configuration) = (processes, text);
    }

    /// What was measured.
    pub fn measured(&self, table: impl Fn(Style) -> String, json: impl Fn() -> String) -> String {
        match self.format {
            Format::Json => json(),
            Format::Tables(style) => table(style) + "\n",
        }
    }

    /// What the columns say, and how each server was set up.
    pub fn end(&self, legend: impl Fn(Style) -> String) -> String {
        let started = self.set_ups.iter().filter(|(_, set_up)| !set_up.processes.is_empty());
        let Format::Tables(style) = self.format else {
            return started.map(|(name, set_up)| set_up.json(name)).collect();
        };
        let mut text = legend(style);
        for (name, set_up) in started {
            let SetUp { program, version, processes, configuration } = set_up;
            let lines = processes
                .iter()
                .map(|arguments| format!("$ {} {}\n", program.display(), arguments.join(" ")));
            let (lines, configuration) = (lines.collect::<String>(), configuration.trim_end());
            let _ = match style {
                Style::Text => write!(text, "\n{name}: {version}\n{lines}{configuration}\n"),
                Style::Markdown => {
                    write!(
                        text,
                        "\n### {name}: {version}\n\n```text\n{lines}{configuration}\n```\n"
                    )
                }
            };
        }
        text
    }
}

impl SetUp {
    /// A line with the configuration.
    fn json(&self, name: &str) -> String {
        let arguments: Vec<String> =
            self.processes.iter().map(|arguments| arguments.join(" ")).collect();
        format!(
            "{{\"server\":{},\"version\":{},\"program\":{},\"arguments\":{},\"configuration\":{}}}\n",
            quote(name),
            quote(&self.version),
            quote(&self.program.display().to_string()),
            quote(&arguments.join("; ")),
            quote(&self.configuration)
        )
    }
}
