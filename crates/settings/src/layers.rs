//! The source of a setting's value: flag, environment, file, default.
//!
//! [`resolve`] takes for each row of a command the first layer that has a value, and records which
//! layer it was. The kind of the row parses all values, so that the rest of the program neither
//! parses nor checks.
//!
//! The file is one TOML document with a table a command. An unknown table, an unknown key and a
//! wrong value are errors in any table: a misspelt limit must not be ignored silently. The file has
//! at most [`FILE_BYTES_MAX`] bytes.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use crate::args;
use crate::exit::Failure;
use crate::nearest;
use crate::row::{Settings, Values};
use crate::table::{Command, Program, Reach, Setting};
pub use crate::value::Layer;
use crate::value::{Kind, Value};

/// Longest configuration file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

const FILE_NAME: &str = "larder.toml";

/// The values of one command.
#[derive(Debug)]
pub struct Resolved {
    command: &'static Command,
    /// Parallel to the rows of the command.
    values: Vec<(Vec<Value>, Layer)>,
}

/// Reads the environment: a name to its value. A function, so that tests need not change the
/// process.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The process's environment.
pub fn process_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Refuses variables that look like settings but are not: `LARDER_ANNOTATE_NAME_BUDGET`.
pub fn check_environment(
    program: &Program,
    names: impl Iterator<Item = OsString>,
) -> Result<(), Failure> {
    for name in names.filter_map(|name| name.into_string().ok()) {
        for command in program.configurable() {
            let prefix = format!("LARDER_{}_", command.table()).to_ascii_uppercase();
            let known: Vec<String> =
                command.lasting().map(|setting| command.variable(setting)).collect();
            if name.starts_with(&prefix) && !known.contains(&name) {
                let hint = nearest::hint(&name, known.iter().map(String::as_str));
                return Err(Failure::usage(format!(
                    "environment variable {name}: no such setting (larder man --markdown lists \
                     all); unset it{hint}"
                )));
            }
        }
    }
    Ok(())
}

/// The values of `command` by flag, environment, file and default.
pub fn resolve(
    command: &'static Command,
    matches: &ArgMatches,
    file: Option<&File>,
    environment: Environment<'_>,
) -> Result<Resolved, Failure> {
    let mut values = Vec::with_capacity(command.settings.len());
    for setting in command.settings {
        values.push(resolve_one(command, setting, matches, file, environment)?);
    }
    Ok(Resolved { command, values })
}

/// The values of `command` that a program gives by name, with `_` or `-`, and otherwise the defaults.
pub(crate) fn resolve_named(
    command: &'static Command,
    named: &[(String, Vec<OsString>)],
) -> Result<Resolved, Failure> {
    let mut values = defaults(command);
    for (name, words) in named {
        let key = name.replace('_', "-");
        let Some(at) = command.settings.iter().position(|setting| setting.name == key) else {
            let known = command.settings.iter().map(|setting| setting.name);
            let hint = nearest::hint(&key, known).replace('-', "_");
            return Err(Failure::usage(format!("{name}: no such setting{hint}")));
        };
        let setting = &command.settings[at];
        if values[at].1 != Layer::Default {
            return Err(Failure::usage(format!("{name}: given twice; leave one out")));
        }
        if words.len() != 1 && !setting.many {
            let why = format!("{} values; expected {}", words.len(), setting.kind.range());
            return Err(Failure::usage(format!("{name}: {why}")));
        }
        let parse = |word: &OsString| {
            let refused = |why| Failure::usage(format!("{name} {word:?}: {why}"));
            setting.kind.parse(word).map_err(refused)
        };
        values[at] = (words.iter().map(parse).collect::<Result<_, _>>()?, Layer::Flag);
    }
    Ok(Resolved { command, values })
}

/// The default of each row.
fn defaults(command: &Command) -> Vec<(Vec<Value>, Layer)> {
    command.settings.iter().map(|setting| (default_of(setting), Layer::Default)).collect()
}

fn default_of(setting: &Setting) -> Vec<Value> {
    match setting.default {
        "" => Vec::new(),
        text => vec![setting.kind.parse(OsStr::new(text)).expect("a test parses every default")],
    }
}

fn resolve_one(
    command: &'static Command,
    setting: &Setting,
    matches: &ArgMatches,
    file: Option<&File>,
    environment: Environment<'_>,
) -> Result<(Vec<Value>, Layer), Failure> {
    let flags = args::written(matches, setting);
    if !flags.is_empty() {
        return Ok((flags, Layer::Flag));
    }
    if setting.reach == Reach::Lasting {
        let variable = command.variable(setting);
        if let Some(text) = environment(&variable) {
            let value = setting.kind.parse(&text).map_err(|why| {
                Failure::usage(format!(
                    "environment variable {variable}={text:?}: {why}; change or unset it"
                ))
            })?;
            return Ok((vec![value], Layer::Environment(variable)));
        }
        if let Some(file) = file
            && let Some(value) = file.value(command, setting)
        {
            return Ok((vec![value], Layer::File(file.path.clone())));
        }
    }
    Ok((default_of(setting), Layer::Default))
}

impl Resolved {
    /// Every row with its values and the layer that won.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Setting, &[Value], &Layer)> {
        let rows = self.command.settings.iter().zip(&self.values);
        rows.map(|(setting, (values, layer))| (setting, values.as_slice(), layer))
    }

    /// The command.
    pub fn command(&self) -> &'static Command {
        self.command
    }

    /// Rows in which another resolution of the same command differs.
    pub fn differing(&self, other: &Resolved) -> impl Iterator<Item = &'static Setting> {
        let pairs = self.command.settings.iter().zip(self.values.iter().zip(&other.values));
        pairs.filter(|(_, (one, other))| one.0 != other.0).map(|(setting, _)| setting)
    }

    /// The values as fields; the rows of `S` are those of the command.
    pub fn read<S: Settings>(&self) -> S {
        let names = |rows: &'static [Setting]| rows.iter().map(|row| row.name);
        assert!(names(S::ROWS).eq(names(self.command.settings)), "settings of another command");
        S::fill(&mut Values::new(self.command.settings, &self.values))
    }
}

/// A configuration file, checked whole.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// Table, key, value.
    entries: Vec<(String, String, Value)>,
}

impl File {
    /// The file that applies: `flag`, then `$LARDER_CONFIG` (both must exist), then the first that
    /// exists of `./larder.toml`, the XDG place, `/etc/larder/larder.toml`.
    pub fn find(
        program: &Program,
        flag: Option<&Path>,
        environment: Environment<'_>,
    ) -> Result<Option<File>, Failure> {
        if let Some(path) = flag {
            return File::read(program, path).map(Some);
        }
        if let Some(path) = environment("LARDER_CONFIG").filter(|path| !path.is_empty()) {
            return File::read(program, Path::new(&path)).map(Some);
        }
        let mut places = vec![PathBuf::from(FILE_NAME)];
        let not_empty = |name: &str| environment(name).filter(|value| !value.is_empty());
        if let Some(base) = not_empty("XDG_CONFIG_HOME") {
            places.push(Path::new(&base).join("larder").join(FILE_NAME));
        } else if let Some(home) = not_empty("HOME") {
            places.push(Path::new(&home).join(".config/larder").join(FILE_NAME));
        }
        places.push(Path::new("/etc/larder").join(FILE_NAME));
        match places.iter().find(|path| path.is_file()) {
            Some(path) => File::read(program, path).map(Some),
            None => Ok(None),
        }
    }

    fn read(program: &Program, path: &Path) -> Result<File, Failure> {
        let failed = |error: &std::io::Error| {
            let what = format!("configuration file {path:?}");
            Failure::file(what, error, "name another with --config, or unset $LARDER_CONFIG")
        };
        let mut text = String::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text))
            .map_err(|error| failed(&error))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(Failure::usage(format!(
                "configuration file {path:?}: longer than 1 MiB; name the right file with --config"
            )));
        }
        File::parse(program, path, &text)
    }

    /// Reads the text of a file and checks every table, key and value in it.
    pub fn parse(program: &Program, path: &Path, text: &str) -> Result<File, Failure> {
        let fail = |why: String| Failure::usage(format!("configuration file {path:?}: {why}"));
        let document: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let what = error.message().replace('\n', ", ");
            fail(format!("line {line}: {what}; larder show-config --template prints a valid file"))
        })?;
        let mut entries = Vec::new();
        for (table, content) in &document {
            let Some(command) = program.configurable().find(|command| command.table() == *table)
            else {
                let known: Vec<String> = program.configurable().map(Command::table).collect();
                let hint = nearest::hint(table, known.iter().map(String::as_str));
                return Err(fail(format!(
                    "unknown table [{table}]; known: {}{hint}",
                    known.join(", ")
                )));
            };
            let Some(content) = content.as_table() else {
                return Err(fail(format!("'{table}' must be a table; write [{table}]")));
            };
            for (key, value) in content {
                let Some(setting) = command.lasting().find(|setting| setting.key() == *key) else {
                    return Err(fail(format!("[{table}] {}", unknown_key(command, key))));
                };
                let value = parse_toml(setting, value)
                    .map_err(|why| fail(format!("[{table}] {key}: {why}")))?;
                entries.push((table.clone(), key.clone(), value));
            }
        }
        Ok(File { path: path.to_owned(), entries })
    }

    fn value(&self, command: &Command, setting: &Setting) -> Option<Value> {
        let (table, key) = (command.table(), setting.key());
        let found = self.entries.iter().find(|entry| entry.0 == table && entry.1 == key);
        found.map(|entry| entry.2.clone())
    }
}

fn unknown_key(command: &Command, key: &str) -> String {
    let known: Vec<String> = command.lasting().map(Setting::key).collect();
    if let Some(setting) = command.settings.iter().find(|setting| setting.key() == key) {
        return format!(
            "'{key}' applies to one run and cannot be in a file; use --{}",
            setting.name
        );
    }
    match nearest::nearest(key, known.iter().map(String::as_str)) {
        Some(name) => format!("unknown key '{key}'; did you mean '{name}'?"),
        None => format!("unknown key '{key}'; known: {}", known.join(", ")),
    }
}

/// TOML's booleans, integers, strings and lists of strings, by the text form of the row.
fn parse_toml(setting: &Setting, value: &toml::Value) -> Result<Value, String> {
    let text = match value {
        toml::Value::Boolean(on) => on.to_string(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(list) if matches!(setting.kind, Kind::Set { .. } | Kind::List) => {
            let words: Option<Vec<&str>> = list.iter().map(toml::Value::as_str).collect();
            words.ok_or("expected a list of strings")?.join(",")
        }
        _ => return Err(format!("expected {}", setting.kind.range())),
    };
    setting.kind.parse(OsStr::new(&text)).map_err(|why| format!("{text:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{ANNOTATE, Annotate, PROGRAM};

    fn matches(flags: &[&str]) -> ArgMatches {
        let line = ["larder", "annotate"].iter().chain(flags);
        PROGRAM.parse(line).expect("sound flags").matches
    }

    fn none(_: &str) -> Option<OsString> {
        None
    }

    /// A program's values are parsed as flags are, and it hears of each mistake under the name that it used.
    #[test]
    fn values_by_name() {
        let resolve = |name: &str, words: &[&str]| {
            let words = words.iter().map(OsString::from).collect();
            resolve_named(&ANNOTATE, &[(name.to_owned(), words)])
        };
        let refused = |name, words: &[&str]| resolve(name, words).expect_err("a mistake").message;
        let sound = resolve("cores", &["3"]).expect("sound");
        assert_eq!(sound.read::<Annotate>().cores, 3);
        assert!(
            refused("core", &["3"]).starts_with("core: no such setting; did you mean 'cores'?")
        );
        assert!(refused("cores", &["x"]).starts_with("cores \"x\": expected "));
        assert!(refused("cores", &["1", "2"]).starts_with("cores: 2 values; expected "));
        assert!(refused("cores", &[]).starts_with("cores: 0 values; expected "));
    }

    /// Each layer takes precedence over the one below it, and the row has the layer that won.
    #[test]
    fn flag_beats_environment_beats_file_beats_default() {
        let file = File::parse(
            &PROGRAM,
            Path::new("f"),
            "[annotate]\ncores = 2\nseed = 7\nlinger = '9s'\n",
        )
        .expect("a sound file");
        let environment = |name: &str| match name {
            "LARDER_ANNOTATE_CORES" => Some(OsString::from("3")),
            "LARDER_ANNOTATE_SEED" => Some(OsString::from("0x8")),
            _ => None,
        };
        let flags = matches(&["--cores", "4"]);
        let all = resolve(&ANNOTATE, &flags, Some(&file), &environment).expect("sound");
        let layer = |name: &str| {
            let row = all.rows().find(|row| row.0.name == name).expect("a row");
            row.2.to_string()
        };
        let settings: Annotate = all.read();
        assert_eq!((settings.cores, layer("cores")), (4, "flag".to_owned()));
        let environment = "environment LARDER_ANNOTATE_SEED".to_owned();
        assert_eq!((*settings.seed, layer("seed")), (8, environment));
        assert_eq!(settings.seed.given(), Some("seed"));
        assert_eq!((settings.linger, layer("linger")), (9, "file \"f\"".to_owned()));
        assert_eq!((settings.udp_idle, layer("udp-idle")), (60, "default".to_owned()));
        assert!(settings.read.is_empty() && settings.output.is_none());
    }

    /// A switch that the file sets can be taken back by a flag.
    #[test]
    fn a_switch_can_be_taken_back() {
        let file =
            File::parse(&PROGRAM, Path::new("f"), "[annotate]\nquiet = true\n").expect("sound");
        for (flags, quiet) in [(vec![], true), (vec!["--quiet=false"], false)] {
            let all = resolve(&ANNOTATE, &matches(&flags), Some(&file), &none).expect("sound");
            assert_eq!(all.read::<Annotate>().quiet, quiet, "{flags:?}");
        }
    }

    /// Unknown tables and keys, keys of one run, wrong types and values out of range are refused.
    /// Each error states what to do.
    #[test]
    fn wrong_files_are_refused_with_advice() {
        for (text, advice) in [
            ("[anotate]\n", "did you mean 'annotate'?"),
            ("annotate = 3\n", "write [annotate]"),
            ("[annotate]\nname_budget = 1\n", "did you mean 'names_budget'?"),
            ("[annotate]\nzzzz = 1\n", "known: "),
            ("[annotate]\nread = 'a'\n", "use --read"),
            ("[annotate]\ncores = 0\n", "from 1 to 1024"),
            ("[annotate]\ncores = 1.5\n", "expected 'all'"),
            ("[annotate]\nnames = ['dns', 3]\n", "list of strings"),
            ("[annotate]\nnames = ['dnss']\n", "did you mean 'dns'?"),
            ("[annotate\n", "--template"),
        ] {
            let error = File::parse(&PROGRAM, Path::new("f"), text).expect_err(text).message;
            assert!(error.contains(advice), "{text}: {error}");
            assert!(error.contains("\"f\""), "{error}");
        }
    }

    /// A file that is longer than its limit is refused after that many bytes.
    #[test]
    fn long_files_are_refused() {
        let path = std::env::temp_dir().join(format!("larder-settings-{}", std::process::id()));
        let text = "#".repeat(FILE_BYTES_MAX as usize);
        for (more, is_refused) in [("", false), ("#", true)] {
            std::fs::write(&path, format!("{text}{more}")).expect("a temporary file");
            let read = File::find(&PROGRAM, Some(&path), &none);
            assert_eq!(read.is_err(), is_refused, "{} bytes more", more.len());
            let says_why = |failure: Failure| failure.message.contains("longer than 1 MiB");
            assert!(read.err().is_none_or(says_why));
        }
        std::fs::remove_file(&path).expect("it was there");
    }

    /// A misspelled variable is refused like a misspelled key. Variables outside a command's name
    /// space are ignored.
    #[test]
    fn misspelt_variables_are_refused() {
        let check = |name: &str| check_environment(&PROGRAM, [OsString::from(name)].into_iter());
        assert!(check("LARDER_ANNOTATE_CORES").is_ok());
        assert!(
            check("LARDER_CONFIG").is_ok() && check("LARDER_X").is_ok() && check("PATH").is_ok()
        );
        let error = check("LARDER_ANNOTATE_NAME_BUDGET").expect_err("no such setting").message;
        assert!(error.contains("did you mean 'LARDER_ANNOTATE_NAMES_BUDGET'?"), "{error}");
        assert!(check("LARDER_ANNOTATE_OUTPUT").is_err(), "an output belongs to one run");
    }

    /// Lists of sources may be TOML lists; sizes may be bare numbers.
    #[test]
    fn toml_types_are_taken() {
        let text = "[annotate]\nnames = ['dns', 'sni']\nnames_budget = 1048576\nstrict = true\n";
        let file = File::parse(&PROGRAM, Path::new("f"), text).expect("sound");
        let all = resolve(&ANNOTATE, &matches(&[]), Some(&file), &none).expect("sound");
        let settings: Annotate = all.read();
        assert_eq!(&*settings.names, "dns,sni");
        assert_eq!(settings.names_budget, 1 << 20);
        assert!(settings.strict);
    }
}
