//! What holds for the table of every program: a module of the tests of each, which names it
//! `PROGRAM`, and its page of settings
//! `PAGE`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use larder_settings::table::Reach;
use larder_settings::value::Form;
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

/// The guide's page of settings is what the table says; `UPDATE_DOCS=1` rewrites it.
#[test]
fn the_guide_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let text = show::guide(&PROGRAM);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).expect("the guide can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page exists");
    let package = env!("CARGO_PKG_NAME");
    assert!(page == text, "{PAGE} is stale; run UPDATE_DOCS=1 cargo test -p {package}");
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
    for text in [PROGRAM.about, PROGRAM.long_about, PROGRAM.guide] {
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

/// Accessors of `Resolved`, and the form that each reads.
const ACCESSORS: [(&str, Form); 12] = [
    ("number", Form::Number),
    ("number_or_default", Form::Number),
    ("cores", Form::Number),
    ("switch", Form::Switch),
    ("choice", Form::Choice),
    ("path", Form::Path),
    ("paths", Form::Path),
    ("word", Form::Word),
    ("words", Form::Word),
    ("list", Form::Word),
    ("time_ns", Form::Time),
    ("space", Form::Space),
];

/// Functions and closures that read a setting whose name they are given.
type Helpers = Vec<(String, Form)>;

/// The sources of the program but the tables, without tests.
fn program(folder: &Path, out: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        let is = |name: &str| path.file_name().is_some_and(|found| found == name);
        if path.is_dir() && !is("settings") {
            program(&path, out);
        } else if is("settings.rs") || path.is_dir() {
            continue;
        } else {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            out.push(text.split("#[cfg(test)]").next().unwrap_or_default().to_owned());
        }
    }
}

/// What stands behind `name(` in `text`; `is_method`: behind `.name(`.
fn calls(text: &str, name: &str, is_method: bool) -> Vec<String> {
    let call = format!("{name}(");
    let places = text.match_indices(&call).filter(|(at, _)| {
        let before = text[..*at].chars().next_back().unwrap_or(' ');
        !before.is_alphanumeric() && before != '_' && (before == '.') == is_method
    });
    places.map(|(at, _)| text[at + call.len()..].chars().take(80).collect()).collect()
}

/// How a function or closure reads the setting `name`: by an accessor, or by a helper that is
/// known.
fn form_of(body: &str, helpers: &Helpers) -> Option<Form> {
    let by_accessor = ACCESSORS.iter().find(|(accessor, _)| {
        calls(body, accessor, true).iter().any(|call| call.starts_with("name)"))
    });
    let by_helper = || {
        helpers.iter().find(|(helper, _)| {
            let given = |call: &String| {
                let name = call.trim_start().strip_prefix("settings,").unwrap_or(call).trim_start();
                name.strip_prefix("name").is_some_and(|rest| rest.starts_with([')', ',']))
            };
            calls(body, helper, false).iter().any(given)
        })
    };
    by_accessor.copied().or_else(|| by_helper().map(|(_, form)| ("", *form))).map(|(_, form)| form)
}

/// Functions `fn helper(settings: &Resolved, name: &str ..)`.
fn functions(text: &str, helpers: &mut Helpers) {
    for (at, _) in text.match_indices("\nfn ").chain(text.match_indices(") fn ")) {
        let body = text[at..].split("\n}").next().unwrap_or_default();
        let Some((_, rest)) = body.split_once("fn ") else { continue };
        let name = rest.split(['(', '<']).next().unwrap_or_default();
        let head = rest.split('{').next().unwrap_or_default();
        if head.contains("name: &")
            && head.contains("Resolved")
            && let Some(form) = form_of(rest, helpers)
            && !helpers.iter().any(|(known, _)| known == name)
        {
            helpers.push((name.to_owned(), form));
        }
    }
}

/// The same and closures `let helper = |name| ..`, which hide what is called so elsewhere.
fn closures(text: &str, helpers: &Helpers) -> Helpers {
    let mut all = helpers.clone();
    for (at, _) in text.match_indices(" = |name") {
        let name = text[..at].rsplit([' ', '\n']).next().unwrap_or_default().to_owned();
        let body = text[at..].split(';').next().unwrap_or_default();
        let form = form_of(body, &all).filter(|_| !body.contains("entry."));
        all.retain(|(known, _)| *known != name);
        all.extend(form.map(|form| (name, form)));
    }
    all
}

/// All reads of settings by names in quotes.
fn reads(text: &str, helpers: &Helpers) -> Vec<(String, Form)> {
    let quoted = |call: &str| {
        let call = call.trim_start();
        let call = call.strip_prefix("settings,").unwrap_or(call).trim_start();
        Some(call.strip_prefix('"')?.split('"').next()?.to_owned())
    };
    let mut found = Vec::new();
    for (accessor, form) in ACCESSORS {
        let names = calls(text, accessor, true).into_iter().filter_map(|call| quoted(&call));
        found.extend(names.map(|name| (name, form)));
    }
    for (helper, form) in closures(text, helpers) {
        let names = calls(text, &helper, false).into_iter().filter_map(|call| quoted(&call));
        found.extend(names.map(|name| (name, form)));
    }
    found
}

/// Every setting that the sources read by its name is read by an accessor of its kind: one of
/// another kind gives no value, and the setting does nothing. (`Resolved` refuses it when it runs.)
#[test]
fn rows_are_read_as_what_they_are() {
    let mut texts = Vec::new();
    program(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
    let mut helpers = Helpers::new();
    // Helpers call helpers.
    for _ in 0..4 {
        texts.iter().for_each(|text| functions(text, &mut helpers));
    }
    let found: Vec<_> = texts.iter().flat_map(|text| reads(text, &helpers)).collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for command in PROGRAM.commands {
        for setting in command.settings {
            let of_name = |(name, _): &&(String, Form)| name == setting.name;
            let forms: Vec<Form> = found.iter().filter(of_name).map(|(_, form)| *form).collect();
            let rows = PROGRAM.commands.iter().flat_map(|command| command.settings);
            let kinds: Vec<Form> =
                rows.filter(|row| row.name == setting.name).map(|row| row.kind.form()).collect();
            seen += usize::from(!forms.is_empty());
            // Where commands have rows of one name and two kinds, it is not known which one a read
            // means.
            let is_one_kind = kinds.iter().all(|kind| kind == &kinds[0]);
            let is_wrong = |form: &Form| {
                if is_one_kind { form != &kinds[0] } else { !kinds.contains(form) }
            };
            if forms.iter().any(is_wrong) {
                let path = command.path.join(" ");
                wrong.push(format!(
                    "{path} --{}: {:?}, read as {forms:?}",
                    setting.name, setting.kind
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Some are read in ways that are not recognised here.
    let rows = PROGRAM.commands.iter().map(|command| command.settings.len()).sum::<usize>();
    assert!(seen * 2 > rows, "reads are recognised: {seen} of {rows}");
}
