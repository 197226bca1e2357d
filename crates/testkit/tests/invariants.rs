//! Each numbered invariant that a module's header states is named by what holds it: a test, an
//! assertion, or a comment at the code that keeps it.
//!
//! In the module itself and below it `invariant 3` is enough. Elsewhere it is `` invariant 3 of
//! `coalescing` ``, in another package `` invariant 3 of `http::coalescing` ``. A `lib.rs` has the name
//! of its package's folder. Labels such as **I3** count anywhere in the package.
//!
//! `tidy/unasserted.tsv` lists invariants that nothing names yet: module, number. Lines may only
//! leave it. `UPDATE_TIDY=1 cargo test -p larder-testkit --test invariants` drops those that are
//! not needed any more; it adds none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Texts of Rust by their paths from the root.
type Files = BTreeMap<String, String>;

/// Modules and labels.
type Labels = BTreeSet<(String, String)>;

/// Labels of the invariants in a module's header: numbers in their order, or letter and number.
fn stated(text: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    let mut is_list = false;
    for line in text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim) {
        let heading = line.trim_start_matches(['#', ' ']);
        if heading.starts_with("Invariants") {
            is_list = true;
        } else if line.starts_with('#') {
            is_list = false;
        } else if is_list {
            let next = (labels.len() + 1).to_string();
            if line.strip_prefix(&next).is_some_and(|rest| rest.starts_with(". ")) {
                labels.insert(next);
            } else if let Some((label, _)) =
                line.strip_prefix("* **").and_then(|it| it.split_once("** "))
            {
                labels.insert(label.to_owned());
            }
        }
    }
    labels
}

/// The text without headers of modules, and its comments as running text.
fn body(text: &str) -> String {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//!"));
    let plain = |line: &str| line.trim_start_matches(['/', ' ']).trim_end().to_owned() + " ";
    lines.map(plain).collect()
}

/// Invariants that a text names, each with the module that it names, if any.
fn named(body: &str) -> Vec<(String, Option<&str>)> {
    let mut found = Vec::new();
    for (at, word) in body.match_indices("nvariant") {
        let mut rest = &body[at + word.len()..];
        rest = rest.strip_prefix('s').unwrap_or(rest);
        let mut numbers = Vec::new();
        loop {
            let next = rest.trim_start_matches([' ', ',']);
            let next = next.strip_prefix("and ").unwrap_or(next);
            let digits = next.len() - next.trim_start_matches(|it: char| it.is_ascii_digit()).len();
            if digits == 0 {
                break;
            }
            numbers.push(next[..digits].to_owned());
            rest = &next[digits..];
        }
        let of = rest.strip_prefix(" of `").and_then(|rest| rest.split('`').next());
        found.extend(numbers.into_iter().map(|number| (number, of)));
    }
    found
}

/// A module's path: `crates/http/src/driver/fetch.rs` is http, driver, fetch.
fn module(path: &str) -> Vec<&str> {
    let parts = path.trim_end_matches(".rs").split('/').skip(1).filter(|part| *part != "src");
    let mut parts: Vec<&str> = parts.collect();
    if matches!(parts.last(), Some(&("lib" | "main" | "mod"))) {
        parts.pop();
    }
    parts
}

/// True where `name` (`coalescing`, `http::coalescing`) is this module's. Parts in between may be absent.
fn is_name_of(name: &str, module: &[&str]) -> bool {
    let mut parts = module.iter();
    let is_within = name.split("::").all(|part| parts.any(|it| *it == part));
    is_within && module.last() == name.split("::").last().as_ref()
}

/// Invariants that nothing names, and names of invariants that there are not.
fn check(files: &Files) -> (Labels, BTreeSet<String>) {
    let of_sources = files.iter().filter(|(path, _)| path.contains("/src/"));
    let lists: BTreeMap<&String, _> = of_sources
        .map(|(path, text)| (path, stated(text)))
        .filter(|(_, labels)| !labels.is_empty())
        .collect();
    let all = lists.iter().flat_map(|(path, labels)| labels.iter().map(|it| (*path, it)));
    let mut unnamed: Labels = all.map(|(path, it)| (path.clone(), it.clone())).collect();
    let mut strays = BTreeSet::new();
    for (path, text) in files {
        let (body, here) = (body(text), module(path));
        unnamed.retain(|(list, label)| {
            let is_word = |word| word == label;
            label.starts_with(char::is_numeric)
                || module(list)[0] != here[0]
                || !body.split(|it: char| !it.is_alphanumeric()).any(is_word)
        });
        for (number, of) in named(&body) {
            let mut holders = lists.iter().filter(|(list, _)| match of {
                Some(name) => {
                    let is_near = module(list)[0] == here[0] || name.contains("::");
                    is_near && is_name_of(name, &module(list))
                }
                None => nearest(&lists, path) == Some(list.as_str()),
            });
            match holders.find(|(_, labels)| labels.contains(&number)) {
                Some((list, _)) => drop(unnamed.remove(&((*list).clone(), number))),
                None => drop(strays.insert(format!("{path}: invariant {number} of {of:?}"))),
            }
        }
    }
    (unnamed, strays)
}

/// The module that a plain number in a file is of: the file's own, or the nearest above it with a
/// list. Not a `lib.rs` above: what it states is named in full.
fn nearest<'a, T>(lists: &BTreeMap<&'a String, T>, path: &str) -> Option<&'a str> {
    let mut place = path.to_owned();
    while place.contains("/src/") {
        let ways = [place.clone(), place.replace(".rs", "/mod.rs")];
        if let Some(list) = lists.keys().find(|list| ways.contains(list)) {
            return Some(list);
        }
        place = place.rsplit_once('/')?.0.to_owned() + ".rs";
    }
    None
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(root: &Path, folder: &Path, files: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            read(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn each_invariant_is_named() {
    let (root, mut files) = (root(), Files::new());
    ["crates", "lab"].iter().for_each(|folder| read(&root, &root.join(folder), &mut files));
    // Its own text is about made-up names.
    files.remove("crates/testkit/tests/invariants.rs");
    let (unnamed, strays) = check(&files);
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tidy/unasserted.tsv");
    let text = fs::read_to_string(&list).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let listed: Labels = rows
        .map(|row| row.split_once('\t').expect("two columns"))
        .map(|(module, label)| (module.to_owned(), label.to_owned()))
        .collect();
    let is_update = std::env::var_os("UPDATE_TIDY").is_some();
    if is_update {
        let head =
            text.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n"));
        let rows = listed.intersection(&unnamed).map(|(path, label)| format!("{path}\t{label}\n"));
        fs::write(&list, head.chain(rows).collect::<String>()).unwrap();
    }
    let fresh: Vec<_> = unnamed.difference(&listed).collect();
    let stale: Vec<_> = listed.difference(&unnamed).filter(|_| !is_update).collect();
    assert!(
        fresh.is_empty() && stale.is_empty() && strays.is_empty(),
        "name what holds it, or take its number away: {fresh:#?}\nnamed by now, unlist them by \
         UPDATE_TIDY=1: {stale:#?}\nno such invariant: {strays:#?}"
    );
}

/// On made-up modules: what is named where, by number, by module, by label; what nothing names is
/// found, and so is a name of what there is not.
#[test]
fn unnamed_invariants_are_found() {
    let list = "\
//! A module.
//!
//! Invariants
//! 1. One, as
//!    invariant 2 has it.
//! 2. Two.
//! 3. Three.
";
    let labels = "\
//! # Invariants
//! * **S1** One.
//! * **S2** Two.
//! # Bounds
//! 1. No.
";
    let text = |list: &str, body: &str| format!("{list}\n{body}\n");
    let files = Files::from(
        [
            ("crates/a/src/lib.rs", text(labels, "// S1: it is so.\n")),
            ("crates/a/src/b.rs", text(list, "/// Invariants 1 and\n    /// 2.\n")),
            ("crates/a/src/c.rs", text(list, "")),
            ("crates/a/src/c/tests.rs", text("", "assert!(true, \"invariant 3: holds\");")),
            ("crates/a/tests/c.rs", text("", "/// Invariant 1 of `c`, invariant 9 of `c`.")),
            ("lab/d/src/c.rs", text(list, "// (invariant 1), (invariant 2)")),
            ("lab/d/src/e/f.rs", text("", "// invariant 2 of `a::c`; invariant 3 of `c`")),
        ]
        .map(|(path, text)| (path.to_owned(), text)),
    );
    let (unnamed, strays) = check(&files);
    let unnamed: Vec<_> = unnamed.iter().map(|(path, it)| (path.as_str(), it.as_str())).collect();
    assert_eq!(unnamed, [("crates/a/src/b.rs", "3"), ("crates/a/src/lib.rs", "S2")]);
    let stray = "crates/a/tests/c.rs: invariant 9 of Some(\"c\")".to_owned();
    assert_eq!(strays, BTreeSet::from([stray]));
}
