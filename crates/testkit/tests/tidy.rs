//! Checks of the whole tree: short files, functions and lines, modules without circles, and the
//! arrows between crates in ARCHITECTURE.md.
//!
//! Code that was longer when a limit was set is listed in `tidy/longer.tsv` with its kind, place
//! and greatest length. A length may only shrink, and a line that is not needed any more must be
//! removed. `UPDATE_TIDY=1 cargo test -p larder-testkit --test tidy` lowers lengths and removes
//! lines; it adds none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::skip;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
/// Columns of a line of Rust. What rustfmt formats ends at 100; this is for what it does not touch.
const LINE_COLUMNS_MAX: usize = 120;

/// The folders with Rust code.
const FOLDERS: [&str; 6] = ["bench", "bindings", "crates", "fuzz", "lab", "tests"];

/// A length that is over its limit: what (`file`, `function`, `lines`, `circle`) and where.
type Longer = BTreeMap<(String, String), usize>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files of Rust below a folder, by their paths from the root.
fn sources(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "corpus" {
            sources(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let path = path.strip_prefix(root).unwrap();
            found.push(path.to_str().unwrap().to_owned());
        }
    }
}

/// Functions of a file that rustfmt has formatted, with their lines: one begins at its `fn` and
/// ends at the first closing brace that is indented as much.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let Some(name) = function_name(code) else { continue };
        let is_end = |line: &&str| {
            let rest = line.get(indent..).unwrap_or_default();
            line.len() - line.trim_start().len() == indent && rest.starts_with('}')
        };
        // A function without a body, or with all of it in one line, has no such brace of its own.
        let head_end = lines[at..].iter().position(|line| line.ends_with(['{', '}', ';']));
        let has_body = head_end.is_some_and(|end| lines[at + end].ends_with('{'));
        let length = lines[at + 1..].iter().position(is_end).filter(|_| has_body);
        found.push((name.to_owned(), length.map_or(1, |length| length + 2)));
    }
    found
}

/// The name of the function that begins in a line.
fn function_name(mut code: &str) -> Option<&str> {
    if let Some(rest) = code.strip_prefix("pub(") {
        code = rest.split_once(") ")?.1;
    }
    loop {
        if let Some(rest) = code.strip_prefix("fn ") {
            return rest.split(['(', '<']).next();
        }
        let words = ["pub ", "const ", "async ", "unsafe ", "extern \"C\" "];
        code = words.iter().find_map(|word| code.strip_prefix(word))?;
    }
}

/// The items of one file that exceed a limit.
fn longer(path: &str, text: &str, found: &mut Longer) {
    let mut add = |what: &str, place: String, length: usize| {
        let longest = found.entry((what.to_owned(), place)).or_default();
        *longest = length.max(*longest);
    };
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        add("file", path.to_owned(), lines);
    }
    for (name, lines) in functions(text) {
        if lines > FUNCTION_LINES_MAX {
            add("function", format!("{path} {name}"), lines);
        }
    }
    let wide = text.lines().filter(|line| line.chars().count() > LINE_COLUMNS_MAX).count();
    if wide > 0 {
        add("lines", path.to_owned(), wide);
    }
}

/// The modules of the same crate that a file names as `crate::name`, in `use` or in place. Comments
/// and unit tests are no part of what a module needs.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.split("\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    let word = |text: &str| {
        let is_part = |letter: char| letter == '_' || letter.is_ascii_alphanumeric();
        text.trim_start().chars().take_while(|letter| is_part(*letter)).collect::<String>()
    };
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(word(rest));
            continue;
        };
        // The names that begin after the brace or a comma of this group, and not inside another
        // group.
        let (mut depth, mut begins) = (0, vec![0]);
        for (at, letter) in group.char_indices() {
            match letter {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => begins.push(at + 1),
                _ => {}
            }
        }
        found.extend(begins.into_iter().map(|at| word(&group[at..])));
    }
    found
}

/// The modules that one needs, and those that these need.
fn reaches<'m>(modules: &BTreeMap<&'m str, BTreeSet<String>>, from: &'m str) -> BTreeSet<&'m str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(needed) = next.pop().and_then(|module| modules.get(module)) {
        let known = needed.iter().filter_map(|name| modules.get_key_value(name.as_str()));
        next.extend(known.map(|(name, _)| *name).filter(|name| seen.insert(*name)));
    }
    seen
}

/// Modules of a crate (the files and folders of its `src`) that need one another: each with the
/// size of its circle.
fn circles(root: &Path, paths: &[String], found: &mut Longer) {
    let mut crates: BTreeMap<&str, BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
    for path in paths {
        let Some((package, inner)) = path.split_once("/src/") else { continue };
        let module = inner.split('/').next().unwrap_or(inner).trim_end_matches(".rs");
        let is_test = inner.split(['/', '.']).any(|part| part == "tests");
        if !is_test && !["lib", "main", "bin"].contains(&module) {
            let text = fs::read_to_string(root.join(path)).unwrap();
            crates.entry(package).or_default().entry(module).or_default().extend(named(&text));
        }
    }
    for (package, modules) in crates {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            modules.keys().map(|module| (*module, reaches(&modules, module))).collect();
        for (module, reaches) in &reached {
            let circle = reaches.iter().filter(|other| reached[*other].contains(module)).count();
            if circle > 1 {
                found.insert(("circle".to_owned(), format!("{package} {module}")), circle);
            }
        }
    }
}

/// The list as it is in the repository.
fn listed(text: &str) -> Longer {
    let mut listed = Longer::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let [what, place, length] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three columns: {line}");
        };
        let before =
            listed.insert((what.to_owned(), place.to_owned()), length.parse().expect(line));
        assert_eq!(before, None, "listed twice: {line}");
    }
    listed
}

#[test]
fn nothing_grows_beyond_its_limit() {
    let root = root();
    let mut paths = Vec::new();
    FOLDERS.iter().for_each(|folder| sources(&root, &root.join(folder), &mut paths));
    assert!(paths.len() > 500, "only {} files of Rust were found", paths.len());
    let mut found = Longer::new();
    for path in &paths {
        longer(path, &fs::read_to_string(root.join(path)).unwrap(), &mut found);
    }
    circles(&root, &paths, &mut found);
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tidy/longer.tsv");
    let text = fs::read_to_string(&list).unwrap();
    let allowed = listed(&text);
    let mut wrong = Vec::new();
    for ((what, place), length) in &found {
        match allowed.get(&(what.clone(), place.clone())) {
            Some(most) if length <= most => {}
            Some(most) => wrong.push(format!("{what} {place}: {length}, was {most}")),
            None => wrong.push(format!("{what} {place}: {length} is over the limit")),
        }
    }
    if std::env::var_os("UPDATE_TIDY").is_some() {
        let head =
            text.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n"));
        let rows = allowed.iter().filter_map(|(key, most)| {
            let length = found.get(key)?.min(most);
            Some(format!("{}\t{}\t{length}\n", key.0, key.1))
        });
        fs::write(&list, head.chain(rows).collect::<String>()).unwrap();
    } else {
        for ((what, place), most) in &allowed {
            match found.get(&(what.clone(), place.clone())) {
                None => {
                    wrong.push(format!("{what} {place}: is within its limit, or gone: unlist it"))
                }
                Some(length) if length < most => {
                    wrong.push(format!("{what} {place}: has {length}, and {most} in the list"));
                }
                Some(_) => {}
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "limits: {FILE_LINES_MAX} lines a file, {FUNCTION_LINES_MAX} a function, \
         {LINE_COLUMNS_MAX} columns (`lines` counts longer ones), no modules of a crate that need one \
         another (`circle` counts them); split what grew, and lower what shrank by UPDATE_TIDY=1:\n{}",
        wrong.join("\n")
    );
}

/// The dependencies among the workspace's packages are those of the code map, and no others.
#[test]
fn arrows_between_crates() {
    let root = root();
    let command = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
    let output = Command::new(env!("CARGO")).args(command).current_dir(&root).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let short = |value: &serde_json::Value| {
        let name = value["name"].as_str().unwrap();
        name.strip_prefix("larder-").unwrap_or(name).to_owned()
    };
    let names: BTreeSet<String> = packages.iter().map(short).collect();
    let mut arrows = BTreeSet::new();
    for package in packages {
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_ours = dependency["path"].is_string() && names.contains(&short(dependency));
            if is_ours && dependency["kind"].is_null() {
                let mark = if dependency["optional"] == true { "?" } else { "" };
                arrows.insert(format!("{} -> {}{mark}", short(package), short(dependency)));
            }
        }
    }
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let mut drawn = BTreeSet::new();
    let rows = map.lines().filter_map(|line| line.split_once(" -> "));
    // Rows of the map begin with the name of a package.
    for (from, to) in rows.filter(|(from, _)| names.contains(from.trim_end())) {
        for to in to.split(' ').filter(|to| !to.is_empty()) {
            drawn.insert(format!("{} -> {to}", from.trim_end()));
        }
    }
    let only_there: Vec<_> = arrows.difference(&drawn).collect();
    let only_drawn: Vec<_> = drawn.difference(&arrows).collect();
    assert!(
        only_there.is_empty() && only_drawn.is_empty(),
        "dependencies that ARCHITECTURE.md does not draw: {only_there:?}; drawn but not there: {only_drawn:?}"
    );
}

/// Crates forbid `unsafe`, but for the two that are there for it.
#[test]
fn unsafe_is_in_mem_and_io() {
    let root = root();
    let mut crates = Vec::new();
    for folder in ["crates", "lab"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            crates.push(entry.unwrap().path());
        }
    }
    for path in crates.iter().filter(|path| path.join("Cargo.toml").is_file()) {
        let text = ["src/lib.rs", "src/main.rs"]
            .iter()
            .find_map(|it| fs::read_to_string(path.join(it)).ok());
        let forbids = text.is_some_and(|text| text.contains("#![forbid(unsafe_code)]"));
        assert_eq!(forbids, !(path.ends_with("mem") || path.ends_with("io")), "{path:?}");
    }
}

/// A change of a line that a deliberate mistake replaces changes the list of mistakes too.
#[test]
fn mistakes_have_their_places() {
    if !skip::has("mistakes_have_their_places", "python3") {
        return;
    }
    let checked = Command::new("python3")
        .args([".ci/mutants/run", "--check", "engine", "serve", "trust-annotate", "trust-servers"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// The rule by which functions are measured, on what rustfmt makes.
#[test]
fn functions_are_measured() {
    let text = "\
pub(crate) const fn one() -> u8 {
    1
}

impl A {
    async unsafe fn two<T>(
        self,
        other: T,
    ) -> T
    where
        T: B,
    {
        if true {
            other
        }
    }

    fn three(&self) {}
}

trait C {
    fn four(&self);
    extern \"C\" fn five(&self) -> u8 { 5 }
}
";
    let measured = functions(text);
    let expected = [("one", 3), ("two", 11), ("three", 1), ("four", 1), ("five", 1)];
    assert_eq!(measured, expected.map(|(name, lines)| (name.to_owned(), lines)));
}

/// Needed modules are found in all forms of paths, and not in comments or tests.
#[test]
fn paths_are_read() {
    let text = "\
use crate::one;
use crate::{two::{A, inner::B}, three};
// crate::none
fn f() -> crate::four::C {}
#[cfg(test)]
mod tests {
    use crate::five;
}
";
    let expected = ["four", "one", "three", "two"].map(str::to_owned);
    assert_eq!(named(text), BTreeSet::from(expected));
}
