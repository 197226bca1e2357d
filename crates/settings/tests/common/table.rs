//! What holds for the table of every program: a module of the tests of each, which names it
//! `PROGRAM`, and the page that lists the pages of its commands `PAGE`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use larder_settings::table::Reach;
use larder_settings::{args, show};

use super::{PAGE, PROGRAM};

/// clap's own consistency check finds clashes in flags, letters and positions.
#[test]
fn the_definition_is_sound() {
    args::clap(&PROGRAM).debug_assert();
}

/// Every command of the table can be called, and its rows are flags of it.
#[test]
fn every_row_is_an_argument() {
    for command in PROGRAM.commands {
        let mut clap = &args::clap(&PROGRAM);
        for word in command.path {
            clap = clap.find_subcommand(word).expect("the command exists");
        }
        for setting in command.settings {
            let found = clap.get_arguments().any(|arg| arg.get_id() == setting.name);
            assert!(found, "{:?} {}", command.path, setting.name);
            assert!(setting.reach == Reach::Run || !setting.positional);
        }
    }
}

/// The pages of the reference are what the table says; `UPDATE_DOCS=1` rewrites them.
#[test]
fn the_reference_is_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let package = env!("CARGO_PKG_NAME");
    for (name, text) in show::reference(&PROGRAM, PAGE) {
        let path = folder.join(&name);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &text).expect("the reference can be written");
        }
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(page == text, "{name} is stale; run UPDATE_DOCS=1 cargo test -p {package}");
    }
    let text = show::markdown(&PROGRAM);
    for command in PROGRAM.commands {
        assert!(command.settings.iter().all(|row| text.contains(&row.usage().replace('|', "\\|"))));
    }
}

/// A default that its own row refuses would make every run fail. Invariant 1 of `cli::settings`.
#[test]
fn every_default_is_in_range() {
    for command in PROGRAM.commands {
        for setting in command.settings.iter().filter(|setting| !setting.default.is_empty()) {
            let parsed = setting.kind.parse(OsStr::new(setting.default));
            assert!(parsed.is_ok(), "{:?} {}: {parsed:?}", command.path, setting.name);
        }
    }
}

/// Names and letters are unique in a command, and every row explains itself.
/// Invariant 2 of `cli::settings`.
#[test]
fn rows_are_unique_and_complete() {
    for command in PROGRAM.commands {
        let mut names = BTreeSet::new();
        let mut letters = BTreeSet::from(['h', 'V']);
        for setting in command.settings {
            assert!(names.insert(setting.name), "{:?} {} twice", command.path, setting.name);
            if let Some(letter) = setting.letter {
                assert!(letters.insert(letter), "{:?} -{letter} twice", command.path);
            }
            assert!(!setting.help.is_empty() && !setting.help.ends_with('.'));
            for sentences in [setting.more, setting.why] {
                let is_sound = sentences.is_empty() || sentences.ends_with('.');
                assert!(is_sound, "{}: {sentences}", setting.name);
            }
            assert!(
                setting.reach == Reach::Run || !setting.default.is_empty(),
                "{}: a lasting setting has a default",
                setting.name
            );
        }
    }
}

/// A setting that has no effect without others names settings of its own command.
#[test]
fn needed_settings_exist() {
    for command in PROGRAM.commands {
        for setting in command.settings {
            for name in setting.needs {
                let is_known = command.settings.iter().any(|other| other.name == *name);
                assert!(is_known && *name != setting.name, "{} needs {name}", setting.name);
            }
        }
    }
}

/// Words that help does not use, and what it uses instead where that is one word.
const PLAIN_WORDS: [(&str, &str); 39] = [
    ("octet", "byte"),
    ("octets", "bytes"),
    ("question", "query"),
    ("questions", "queries"),
    ("asks", "queries, requests"),
    ("kept", "cached, stored"),
    ("departs", "is evicted"),
    ("goes", "is deleted"),
    ("leaves", "is evicted"),
    ("makes way", "is aborted"),
    ("lives", "lifetime"),
    ("life of", "lifetime"),
    ("passed on", "proxied"),
    ("flight", "in-flight fetch"),
    ("boards", "joins"),
    ("told", "reported"),
    ("says", "states, prints"),
    ("hears", "receives"),
    ("heard", "received"),
    ("knows", "has"),
    ("believe", "trust, accept"),
    ("believed", "trusted, accepted"),
    ("for want of", "without"),
    ("is lost for", "dropped"),
    ("broken off", "aborted"),
    ("anew", "again"),
    ("beside", "next to, compared with"),
    ("in the place of", "instead of"),
    ("likewise", "also"),
    ("vouch", "certify"),
    ("vouches", "certifies"),
    ("dear", "expensive"),
    ("nobody", "no client"),
    ("whoever", "the client that"),
    ("who", "the client that"),
    ("so many", "N"),
    ("colour", "color"),
    ("behaviour", "behavior"),
    ("licence", "license"),
];

/// Words of a sentence at most, and characters of a line of `-h`.
const WORDS_MAX: usize = 25;
const SHORT_HELP_MAX: usize = 60;

/// What is wrong with a text of help: a word that has a plain one, a long sentence. Examples are
/// commands and are not looked at.
fn faults(place: &str, text: &str, faults: &mut Vec<String>) {
    let prose = text.split("Examples:\n").next().unwrap_or_default();
    let letters =
        |c: char| if c.is_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { ' ' };
    let plain: String = prose.chars().map(letters).collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    let line = format!(" {} ", words.join(" "));
    for (word, instead) in
        PLAIN_WORDS.iter().filter(|(word, _)| line.contains(&format!(" {word} ")))
    {
        faults.push(format!("{place}: '{word}', write: {instead}"));
    }
    // A list of exit codes has a clause for each.
    for sentence in prose.split(". ").flat_map(|part| part.split(['\n', ';'])) {
        if sentence.split_whitespace().count() > WORDS_MAX {
            faults.push(format!("{place}: a long sentence: {sentence}"));
        }
    }
}

/// Short help fits its line, and help is in plain words and short sentences.
#[test]
fn help_is_short_and_plain() {
    let mut found = Vec::new();
    for text in [PROGRAM.about, PROGRAM.long_about, PROGRAM.reference] {
        faults(PROGRAM.name, text, &mut found);
    }
    PROGRAM.families.iter().for_each(|(name, about)| faults(name, about, &mut found));
    for command in PROGRAM.commands {
        let path = command.path.join(" ");
        faults(&path, command.about, &mut found);
        faults(&path, command.long, &mut found);
        for setting in command.settings {
            let place = format!("{path} --{}", setting.name);
            let range = setting.kind.range();
            for text in [setting.help, setting.more, setting.why, setting.group, &range] {
                faults(&place, text, &mut found);
            }
            let length = setting.help.chars().count();
            if length > SHORT_HELP_MAX {
                found.push(format!("{place}: {length} characters of short help: {}", setting.help));
            }
            if !setting.help.starts_with(|c: char| c.is_ascii_uppercase()) {
                found.push(format!("{place}: short help begins with a verb: {}", setting.help));
            }
            if setting.help.contains([';', ':']) {
                found.push(format!("{place}: a list in short help: {}", setting.help));
            }
            if setting.more.is_empty() && setting.why.is_empty() {
                found.push(format!("{place}: nothing for long help"));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Words of the program's sources but the tables.
fn words(folder: &Path, out: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        if path.file_stem().is_some_and(|name| name == "settings") {
            continue;
        } else if path.is_dir() {
            words(&path, out);
        } else {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            let is_separator = |c: char| !c.is_alphanumeric() && c != '_';
            out.extend(text.split(is_separator).map(str::to_owned));
        }
    }
}

/// Each setting is read: sources outside of the tables name its field.
#[test]
fn every_setting_is_read() {
    let mut read = BTreeSet::new();
    words(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut read);
    for command in PROGRAM.commands {
        for setting in command.settings {
            assert!(read.contains(&setting.key()), "{:?} --{}", command.path, setting.name);
        }
    }
}
