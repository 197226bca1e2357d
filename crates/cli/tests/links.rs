//! The documentation as a tree of pages. Links lead to existing files and headings, the book has
//! every page, and the diagrams match their script. Pages show the screenshots, and the tests that
//! ARCHITECTURE.md names exist. The flags and messages that pages outside of the guides name are
//! larder's.
//!
//! The tests parse pages as GitHub and mdBook do, as far as needed. They ignore links and headings
//! in fenced blocks, and links in code spans. They do not follow links to other sites.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Directories that are not part of the repository, or have no pages of larder.
const SKIPPED: [&str; 4] = [".git", "artifacts", "corpus", "target"];

/// Pages whose flags must be settings.
const FLAGS_IN: [&str; 5] = [
    "SECURITY.md",
    "docs/README.md",
    "docs/glossary.md",
    "docs/sizing.md",
    "docs/troubleshooting.md",
];

/// The page that quotes messages.
const MESSAGES_IN: &str = "docs/troubleshooting.md";

/// Flags of other programs, and those that every program has.
const OTHER_FLAGS: [&str; 2] = ["--features", "--version"];

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository is there")
}

/// Files below a folder whose names end in `end`, by their paths from the root, in order.
fn files(root: &Path, folder: &str, end: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() {
                if !SKIPPED.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if name.ends_with(end) {
                let path = path.strip_prefix(root).expect("it is below the root");
                found.insert(path.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    found
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Lines outside of fenced blocks, with their numbers from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let start = line.trim_start();
        let marks = ["```", "~~~"].into_iter().find(|marks| start.starts_with(marks));
        match (fence, marks) {
            (None, Some(marks)) => fence = Some(marks),
            (Some(open), Some(marks)) if open == marks => fence = None,
            (None, None) => lines.push((number, line)),
            _ => {}
        }
    }
    lines
}

/// The line with everything between backticks replaced by spaces, a space for each byte.
fn without_code(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut is_code = false;
    // An odd number of backticks opens a span that ends on another line: that is not code here.
    let spans = line.matches('`').count() / 2 * 2;
    let mut seen = 0;
    for c in line.chars() {
        if c == '`' && seen < spans {
            seen += 1;
            is_code = !is_code;
            out.push(' ');
        } else if is_code {
            (0..c.len_utf8()).for_each(|_| out.push(' '));
        } else {
            out.push(c);
        }
    }
    out
}

/// Targets of the links and images of a line.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let mut found = Vec::new();
    let mut rest = line.as_str();
    while let Some((_, behind)) = rest.split_once("](") {
        let end = behind.find([')', ' ']).unwrap_or(behind.len());
        found.push(behind[..end].to_owned());
        rest = &behind[end..];
    }
    found
}

/// The anchor of a heading, as GitHub and mdBook create it: letters and digits in lower case,
/// hyphens for spaces. It has no other characters but hyphens and underscores.
fn slug(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading.trim();
    // A link counts as its text.
    while let Some((before, behind)) = rest.split_once("](") {
        text += before;
        rest = behind.split_once(')').map_or("", |(_, behind)| behind);
    }
    text += rest;
    let mut out = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        match c {
            ' ' => out.push('-'),
            '-' | '_' => out.push(c),
            c if c.is_alphanumeric() => out.push(c),
            _ => {}
        }
    }
    out
}

/// The anchors of a page; the second heading with the same text gets the suffix `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let level = line.chars().take_while(|&c| c == '#').count();
        let Some(heading) = line[level..].strip_prefix(' ').filter(|_| (1..=6).contains(&level))
        else {
            continue;
        };
        let slug = slug(heading);
        let count = seen.entry(slug.clone()).or_default();
        found.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    found
}

/// The path of a page's link from the root; `None` if it is outside of the repository.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    for component in folder.components().chain(Path::new(target).components()) {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// The error in a link, if there is one.
fn fault(root: &Path, page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { Some(page.to_owned()) } else { resolve(page, path) };
    let Some(path) = path.filter(|path| root.join(path).exists()) else {
        return Some("there is no such file".to_owned());
    };
    if anchor.is_empty() || !path.ends_with(".md") {
        return None;
    }
    let has = anchors(&read(root, &path)).contains(anchor);
    (!has).then(|| format!("{path} has no heading '{anchor}'"))
}

/// Every relative link of every page leads to a file, and its anchor to a heading in it.
#[test]
fn links_lead_somewhere() {
    let root = root();
    let mut wrong = Vec::new();
    let pages = files(&root, "", ".md");
    assert!(pages.contains("README.md") && pages.len() > 50, "{pages:?}");
    for page in &pages {
        for (number, line) in prose(&read(&root, page)) {
            for target in targets(line) {
                if let Some(fault) = fault(&root, page, &target) {
                    wrong.push(format!("{page}:{number}: {target}: {fault}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The book has every page below docs/ once; only decisions may be missing.
#[test]
fn the_book_has_every_page() {
    let root = root();
    let summary = "docs/SUMMARY.md";
    let mut listed = BTreeSet::new();
    for (number, line) in prose(&read(&root, summary)) {
        for target in targets(line) {
            let path = resolve(summary, &target).expect("a page below docs/");
            assert!(listed.insert(path), "{summary}:{number}: {target} is there twice");
        }
    }
    let missing = files(&root, "docs", ".md").into_iter().filter(|page| {
        page != summary && !page.starts_with("docs/decisions/") && !listed.contains(page)
    });
    let missing: Vec<String> = missing.collect();
    assert!(missing.is_empty(), "{summary} lacks {}", missing.join(", "));
}

/// The committed diagrams are the output of their script.
#[test]
fn diagrams_are_those_of_the_script() {
    let root = root();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("diagrams");
    // Deletes the output of an earlier run.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder can be made");
    let script = root.join("docs/diagrams/make");
    let run = Command::new("python3").arg(script).arg("--output").arg(&folder).output();
    let run = match run {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The test runner does not capture this stream.
            let _ = io::stderr().write_all(b"SKIP diagrams: python3 is not installed\n");
            return;
        }
        run => run.expect("python3 runs"),
    };
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let made = files(&folder, "", ".svg");
    let committed = files(&root.join("docs/diagrams"), "", ".svg");
    assert_eq!(made, committed, "docs/diagrams/make makes other files than there are");
    for name in &made {
        let (new, old) = (read(&folder, name), read(&root.join("docs/diagrams"), name));
        assert!(new == old, "docs/diagrams/{name} is stale: run docs/diagrams/make");
    }
}

/// The screenshots are XML, each line of their terminals is within the image, and pages show them.
/// (`docs/screenshots/make` creates them; their times and rates differ from run to run.)
#[test]
fn screenshots_are_shown() {
    let root = root();
    let pages: Vec<String> = files(&root, "", ".md").iter().map(|page| read(&root, page)).collect();
    for name in ["text-log", "top"] {
        let text = read(&root, &format!("docs/screenshots/{name}.svg"));
        let picture = roxmltree::Document::parse(&text).unwrap_or_else(|it| panic!("{name}: {it}"));
        let number = |node: roxmltree::Node<'_, '_>, attribute: &str| -> f64 {
            let text = node.attribute(attribute).and_then(|text| text.parse().ok());
            text.unwrap_or_else(|| panic!("{name}: no {attribute} in {node:?}"))
        };
        let width = number(picture.root_element(), "width");
        let lines = picture.descendants().filter(|node| node.has_tag_name("text"));
        let ends: Vec<f64> =
            lines.map(|node| number(node, "x") + number(node, "textLength")).collect();
        assert!(
            ends.len() > 10 && ends.iter().all(|end| *end <= width),
            "{name}: {ends:?} of {width}"
        );
        let shows = |page: &String| page.contains(&format!("screenshots/{name}.svg)"));
        assert!(pages.iter().filter(|page| shows(page)).count() > 1, "{name} is not shown");
    }
}

/// Long flags in the code spans of a line.
fn flags(line: &str) -> Vec<String> {
    let spans = line.split('`').skip(1).step_by(2);
    let words = spans.flat_map(|span| span.split([' ', '=', ',', ')', '"']));
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
}

/// Messages that a line quotes: code spans that begin and end with a quotation mark.
fn messages(line: &str) -> Vec<&str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter_map(|span| span.strip_prefix('"')?.strip_suffix('"')).collect()
}

/// All flags that the pages of settings name.
fn settings(root: &Path) -> BTreeSet<String> {
    let text: String =
        files(root, "docs/reference", ".md").iter().map(|page| read(root, page)).collect();
    let is_flag = |c: char| c == '-' || c.is_ascii_alphanumeric();
    let words = text.split(|c: char| !is_flag(c)).filter(|word| word.starts_with("--"));
    words.map(str::to_owned).collect()
}

/// Each flag that these pages name is a setting.
#[test]
fn flags_are_settings() {
    let root = root();
    let settings = settings(&root);
    assert!(settings.contains("--names-budget"), "{settings:?}");
    let mut wrong = Vec::new();
    for page in FLAGS_IN {
        for (number, line) in prose(&read(&root, page)) {
            let unknown = flags(line)
                .into_iter()
                .filter(|flag| !settings.contains(flag) && !OTHER_FLAGS.contains(&flag.as_str()));
            wrong.extend(unknown.map(|flag| format!("{page}:{number}: {flag}")));
        }
    }
    assert!(wrong.is_empty(), "no setting:\n{}", wrong.join("\n"));
}

/// Each test that ARCHITECTURE.md names, as `name()`, exists.
#[test]
fn tests_of_claims_are_there() {
    let root = root();
    let page = read(&root, "ARCHITECTURE.md");
    let named: BTreeSet<&str> =
        page.split('`').skip(1).step_by(2).filter_map(|span| span.strip_suffix("()")).collect();
    let sources: Vec<String> = ["crates", "lab"]
        .iter()
        .flat_map(|folder| files(&root, folder, ".rs"))
        .map(|path| read(&root, &path))
        .collect();
    let is_there = |name: &&str| sources.iter().any(|text| text.contains(&format!("fn {name}(")));
    let missing: Vec<&str> = named.iter().copied().filter(|name| !is_there(name)).collect();
    assert!(named.len() > 40, "{named:?}");
    assert!(missing.is_empty(), "no test is called so: {missing:?}");
}

/// The sources of all crates. A string that continues on the next source line is joined.
fn sources(root: &Path) -> String {
    let mut all = String::new();
    for path in files(root, "crates", ".rs").iter().filter(|path| path.contains("/src/")) {
        let text = read(root, path);
        let mut pieces = text.split("\\\n");
        all += pieces.next().unwrap_or_default();
        pieces.for_each(|piece| all += piece.trim_start());
        all.push('\n');
    }
    all
}

/// Each message that the troubleshooting page quotes is in larder's sources.
#[test]
fn messages_are_larders() {
    let root = root();
    let sources = sources(&root);
    let mut quoted = 0;
    let mut wrong = Vec::new();
    for (number, line) in prose(&read(&root, MESSAGES_IN)) {
        // The first lines of the table explain the quotation marks.
        for message in messages(line).into_iter().filter(|message| *message != "double quotes") {
            quoted += 1;
            if !sources.contains(message) {
                wrong.push(format!("{MESSAGES_IN}:{number}: \"{message}\""));
            }
        }
    }
    assert!(quoted > 20, "{quoted} messages");
    assert!(wrong.is_empty(), "larder does not write:\n{}", wrong.join("\n"));
}

/// Links, headings and code are parsed as intended.
#[test]
fn pages_are_read() {
    let text = "# A `b` & c\n## A_d-e: f.\n```text\n# no\n[x](y)\n```\n# A `b` & c\n#no\n";
    let expected = ["a-b--c", "a-b--c-1", "a_d-e-f"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
    assert_eq!(prose(text).iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 7, 8]);
    let line = "[`a`](b.md#c) `[d](e)` ![f](g \"h\") ](i";
    assert_eq!(targets(line), ["b.md#c", "g", "i"]);
    assert_eq!(slug("[é](x) Ünd 1.5"), "é-ünd-15");
    assert_eq!(resolve("docs/guide/a.md", "../../x/./y.rs").as_deref(), Some("x/y.rs"));
    assert_eq!(resolve("a.md", "../b.md"), None);
    assert_eq!(flags("`--a-b=1` --c `x --d, -- --e`"), ["--a-b", "--d", "--e"]);
    assert_eq!(messages("`\"a b\"` `c` `\"d`"), ["a b"]);
}
