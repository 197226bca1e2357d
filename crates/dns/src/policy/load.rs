//! Loads a policy from settings: words and paths in, the policy and a report out.
//!
//! A setting for some views begins with their names, joined by `+` and followed by `:`:
//! `kids:/etc/larder/kids.txt`, `kids+guests:rpz.example=/etc/larder/rpz.zone`. Without names it
//! applies to all. A path whose first part has a colon needs `./` before it. `default` is the view
//! of all clients in no other.
//!
//! Files of local data have one record or zone in a line, as for [`Builder::local`]; `#` where a
//! word could begin starts a comment.
//!
//! A mistake in settings or local data, which the operator writes, is an error that states its
//! place. Half of the data would not be what the operator meant. Lists, zones and hosts files come
//! from others. There wrong lines are skipped and counted in the [`Report`], which has the first of
//! them.
//!
//! Bounds: those of [`Builder`], and [`PROBLEMS_MAX`] reported lines. Cost: one pass over the files, of
//! which only the data is in memory.

use std::fmt;
use std::fs::File;

use larder_serve::log::Log;

use super::error::{Loaded, PolicyError};
use super::lines::{FILE_BYTES_MAX, LINE_TOO_LONG, Lines};
use super::{BlockAnswer, Builder, List, Policy, Reason, Views};

/// Skipped lines that a report has in full.
pub const PROBLEMS_MAX: usize = 10;

/// The settings of a policy, as the operator writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyOptions {
    /// `NETWORK=allow|refuse|drop`; empty: local networks only.
    pub access: Vec<String>,
    /// `NETWORK=VIEW`.
    pub views: Vec<String>,
    /// `[VIEWS:]FILE`: hosts files.
    pub hosts: Vec<String>,
    /// `[VIEWS:]FILE`: local records and zones.
    pub local: Vec<String>,
    /// `[VIEWS:]FILE`: domains that are blocked.
    pub blocklists: Vec<String>,
    /// The response for their names.
    pub block_answer: BlockAnswer,
    /// Whose wish they are.
    pub block_reason: Reason,
    /// `[VIEWS:]FILE`: domains that are not blocked.
    pub allowlists: Vec<String>,
    /// `[VIEWS:]ORIGIN=FILE`: response policy zones.
    pub rpz: Vec<String>,
    /// Names of special use that are sent upstream: those of forwarded zones.
    pub exempt: Vec<String>,
    /// The text of `version.bind`; `None`: it is refused.
    pub version: Option<String>,
    /// The text of `id.server`; `None`: it is refused.
    pub id: Option<String>,
}

/// The counts of a load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Names on blocklists.
    pub blocked: u64,
    /// Rules of response policy zones.
    pub rules: u64,
    /// Names of hosts files and lines of local data.
    pub local: u64,
    /// Skipped lines that could not be understood.
    pub skipped: u64,
    /// The first of these: `FILE:LINE: problem`.
    pub problems: Vec<String>,
}

impl fmt::Display for Report {
    /// One line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { blocked, rules, local, skipped, problems } = self;
        write!(f, "names blocked {blocked}, policy zone rules {rules}, ")?;
        write!(f, "local entries {local}, lines skipped {skipped}")?;
        match problems.first() {
            Some(first) => write!(f, ", the first {first}"),
            None => Ok(()),
        }
    }
}

impl Report {
    /// Logs the result of the load at the start.
    pub fn log(&self, log: &Log) {
        let Report { blocked, rules, local, skipped, problems } = self;
        log.info("policy loaded")
            .number("blocked", *blocked)
            .number("rules", *rules)
            .number("local", *local)
            .number("skipped", *skipped)
            .maybe("first_skipped", problems.first());
    }

    /// Records the skipped lines of a file.
    fn note(&mut self, file: &str, loaded: &Loaded) {
        self.skipped += loaded.skipped;
        for (line, problem) in &loaded.problems {
            if self.problems.len() < PROBLEMS_MAX {
                self.problems.push(format!("{file}:{line}: {problem}"));
            }
        }
    }
}

/// Builds the policy with this generation. `key` is for hashes, and should come from the system's
/// random source.
///
/// Errors name the setting, or file and line.
pub fn load(
    options: &PolicyOptions,
    generation: u32,
    key: &[u8; 16],
) -> Result<(Policy, Report), PolicyError> {
    let mut builder = Builder::new(generation, key);
    let mut report = Report::default();
    for word in &options.views {
        let (network, view) = split(word, "write NETWORK=VIEW")?;
        if view.contains(['+', ':', '/']) {
            return Err(PolicyError::setting(word, "a view's name has no '+', ':' or '/'"));
        }
        builder.assign(&format!("{network} {view}"))?;
    }
    for word in &options.access {
        let (network, action) = split(word, "write NETWORK=allow, refuse or drop")?;
        builder.access(&format!("{network} {action}"))?;
    }
    for word in &options.exempt {
        builder.exempt(word)?;
    }
    for word in &options.hosts {
        let (views, path) = scope(&builder, word)?;
        let loaded = builder.hosts(views, path, open(path)?)?;
        report.local += loaded.taken;
        report.note(path, &loaded);
    }
    for word in &options.local {
        let (views, path) = scope(&builder, word)?;
        report.local += local(&mut builder, views, path)?;
    }
    for word in &options.allowlists {
        let (views, path) = scope(&builder, word)?;
        let loaded = builder.allowlist(views, path, open(path)?)?;
        report.note(path, &loaded);
    }
    for word in &options.blocklists {
        let (views, path) = scope(&builder, word)?;
        let list = List { views, answer: options.block_answer, reason: options.block_reason };
        let loaded = builder.blocklist(list, path, open(path)?)?;
        report.blocked += loaded.taken;
        report.note(path, &loaded);
    }
    for word in &options.rpz {
        let (views, zone) = scope(&builder, word)?;
        let (origin, path) = split(zone, "write ORIGIN=FILE")?;
        let loaded = builder.rpz(views, origin, path, open(path)?)?;
        report.rules += loaded.taken;
        report.note(path, &loaded);
    }
    if let Some(text) = &options.version {
        builder.version(text)?;
    }
    if let Some(text) = &options.id {
        builder.id(text)?;
    }
    Ok((builder.build()?, report))
}

/// Splits a setting at `=`.
fn split<'a>(word: &'a str, otherwise: &str) -> Result<(&'a str, &'a str), PolicyError> {
    match word.split_once('=') {
        Some((first, second)) if !first.is_empty() && !second.is_empty() => Ok((first, second)),
        _ => Err(PolicyError::setting(word, otherwise)),
    }
}

/// The views of a setting, and the rest of it.
fn scope<'a>(builder: &Builder, word: &'a str) -> Result<(Views, &'a str), PolicyError> {
    let Some((names, rest)) = word.split_once(':').filter(|(names, _)| !names.contains(['/', '=']))
    else {
        return Ok((Views::ALL, word));
    };
    let mut numbers = Vec::new();
    for name in names.split('+') {
        numbers.push(builder.find_view(name).ok_or_else(|| {
            let problem = format!(
                "no network is in a view {name:?}; name it as one, or write ./ before a path"
            );
            PolicyError::setting(word, problem)
        })?);
    }
    Ok((Views::of(&numbers), rest))
}

fn open(path: &str) -> Result<File, PolicyError> {
    File::open(path).map_err(|source| PolicyError::Read { file: path.into(), source })
}

/// Reads a file of local data, and returns the number of its records and zones.
fn local(builder: &mut Builder, views: Views, path: &str) -> Result<u64, PolicyError> {
    let mut lines = Lines::new(path, open(path)?, FILE_BYTES_MAX);
    let mut taken = 0;
    while let Some(line) = lines.next()? {
        let number = line.number;
        let wrong = |problem: String| PolicyError::Line { file: path.into(), number, problem };
        let text = line.text.ok_or_else(|| wrong(LINE_TOO_LONG.into()))?;
        let text = without_comment(text).trim_ascii();
        let text =
            std::str::from_utf8(text).map_err(|_| wrong("this is no text in UTF-8".into()))?;
        if text.is_empty() {
            continue;
        }
        builder.local(views, text).map_err(|error| match error {
            PolicyError::Setting { problem, .. } => wrong(problem),
            other => other,
        })?;
        taken += 1;
    }
    Ok(taken)
}

/// A line up to its comment: a `#` outside of quotes where a word could begin.
fn without_comment(line: &[u8]) -> &[u8] {
    let (mut is_quoted, mut is_escaped, mut is_between) = (false, false, true);
    for (at, &byte) in line.iter().enumerate() {
        if byte == b'#' && is_between && !is_quoted {
            return &line[..at];
        }
        is_quoted ^= byte == b'"' && !is_escaped;
        is_between = byte.is_ascii_whitespace();
        is_escaped = byte == b'\\' && !is_escaped;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tempfile::TempDir;

    /// A folder of files, and the path of one.
    struct Files(TempDir);

    impl Files {
        fn new() -> Files {
            Files(TempDir::new().unwrap())
        }

        fn with(&self, name: &str, text: &str) -> String {
            let path = self.0.path().join(name);
            File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
            path.to_str().unwrap().to_owned()
        }
    }

    fn loaded(options: &PolicyOptions) -> Result<(Policy, Report), String> {
        load(options, 7, &[1; 16]).map_err(|error| error.to_string())
    }

    fn says(policy: &Policy, view: u16, name: &[u8]) -> bool {
        policy.answers(view, &[name, &[0, 1, 0, 1]].concat())
    }

    /// Every kind of setting takes effect, for the views named before it and no others, and is
    /// counted.
    #[test]
    fn all_settings() {
        let files = Files::new();
        let kids = files.with("kids", "games.example\n# comment\nwww.games.example\n<html>\n");
        let hosts = files.with("hosts", "192.0.2.1 box\n");
        let local = files.with(
            "local",
            "# ours\n\nzone lan static\nnas.lan 60 A 192.0.2.2 # the box\nt.lan TXT \"a # b\"\n",
        );
        let allow = files.with("allow", "good.bad.example\n");
        let bad = files.with("bad", "bad.example\n");
        let zone = files.with("zone", "evil.example CNAME .\n");
        let options = PolicyOptions {
            access: vec!["192.0.2.0/24=allow".into(), "192.0.2.9=drop".into()],
            views: vec!["192.0.2.128/25=kids".into(), "192.0.2.64/26=guests".into()],
            hosts: vec![hosts],
            local: vec![local],
            blocklists: vec![format!("kids+guests:{kids}"), bad],
            allowlists: vec![allow],
            rpz: vec![format!("default:rpz.example={zone}")],
            exempt: vec!["corp.test".into()],
            version: Some("one".into()),
            ..PolicyOptions::default()
        };
        let (policy, report) = loaded(&options).unwrap();
        assert_eq!(policy.generation(), 7);
        for (name, expected) in [
            (&b"\x05games\x07example\0"[..], [false, true, true]),
            (b"\x03bad\x07example\0", [true; 3]),
            (b"\x04good\x03bad\x07example\0", [false; 3]),
            (b"\x04evil\x07example\0", [true, false, false]),
            (b"\x03box\0", [true; 3]),
            (b"\x03nas\x03lan\0", [true; 3]),
            (b"\x04else\x03lan\0", [true; 3]),
            (b"\x01a\x04corp\x04test\0", [false; 3]),
            (b"\x01a\x04test\0", [true; 3]),
        ] {
            let said = [0, 1, 2].map(|view| says(&policy, view, name));
            assert_eq!(said, expected, "{}", name.escape_ascii());
        }
        assert_eq!((report.blocked, report.rules, report.local), (2, 1, 4));
        assert_eq!((report.skipped, report.problems.len()), (1, 1));
        let shown = report.to_string();
        assert!(shown.starts_with("names blocked 2, policy zone rules 1, local entries 4, lines"));
        assert!(shown.contains("kids:4: "), "{shown}");
    }

    /// An error has its setting, or its file and line.
    #[test]
    fn mistakes() {
        let files = Files::new();
        let local = files.with("local", "a A 192.0.2.1\nb A here\n");
        let list = files.with("list", "a\n");
        let with = |change: fn(&mut PolicyOptions, String), word: &str| {
            let mut options =
                PolicyOptions { views: vec!["::1=kids".into()], ..PolicyOptions::default() };
            change(&mut options, word.to_owned());
            loaded(&options).unwrap_err()
        };
        let error = with(|options, word| options.local.push(word), &local);
        assert!(error.starts_with(&format!("{local}:2: ")), "{error}");
        let error = with(|options, word| options.blocklists.push(word), "/no/such/file");
        assert!(error.starts_with("/no/such/file: cannot be read"), "{error}");
        let error = with(|options, word| options.blocklists.push(word), &format!("kidz:{list}"));
        assert!(error.contains("kidz"), "{error}");
        for word in ["10.0.0.0/8", "10.0.0.0/8=", "10.0.0.0/8=yes", "=allow", "10.0.0.0/33=drop"] {
            with(|options, word| options.access.push(word), word);
        }
        for word in ["10.0.0.0/8", "10.0.0.0/8=a+b", "10.0.0.0/8=a/b", "10.0.0.0/8=a b"] {
            with(|options, word| options.views.push(word), word);
        }
        with(|options, word| options.rpz.push(word), &list);
        with(|options, word| options.exempt.push(word), "a..b");
    }

    /// A comment begins only outside of quotes and words.
    #[test]
    fn comments() {
        for (line, expected) in [
            ("# all", ""),
            ("a #b", "a "),
            ("a#b", "a#b"),
            (r"a \# 1 00", r"a \# 1 00"),
            (r#"a TXT "b # c" # d"#, r#"a TXT "b # c" "#),
            (r#"a TXT "b \" # c" # d"#, r#"a TXT "b \" # c" "#),
        ] {
            assert_eq!(without_comment(line.as_bytes()), expected.as_bytes(), "{line}");
        }
    }

    /// The mark of views is 0 without views, the same for the same views, and different for others.
    #[test]
    fn mark_of_views() {
        let mark = |views: &[&str]| {
            let views = views.iter().map(|word| (*word).to_owned()).collect();
            loaded(&PolicyOptions { views, ..PolicyOptions::default() }).unwrap().0.views_mark()
        };
        assert_eq!(mark(&[]), 0);
        assert_eq!(mark(&["::1=a", "::2=b"]), mark(&["::3=a", "::2=b", "::2=a"]));
        assert_ne!(mark(&["::1=a", "::2=b"]), mark(&["::1=b", "::2=a"]));
        assert_ne!(mark(&["::1=ab"]), mark(&["::1=a", "::2=b"]));
    }
}
