//! The list of golden expectations, `tests/captures/expected.tsv`, parsed into types.
//!
//! A row describes one end of one flow in one recording. The file explains its columns; this module
//! reads and compares them. A row that cannot be read is an error with its line number: a golden
//! list with a typing error must not pass.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::captures::recorded_folder;

/// Flags of a name, spelled as in logs.
const FLAGS: [&str; 8] = [
    "stale",
    "late",
    "ambiguous",
    "conflict",
    "unsolicited",
    "one_sided",
    "unconfirmed",
    "claimed",
];

/// The expected result of a row when its rule is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WithoutRule {
    /// The same name. The row guards against excessive use of the rule, or shows a flag.
    Same,
    /// No name.
    Unnamed,
    /// This wrong name.
    Name(String),
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Line number in the file, from 1, for error messages.
    pub line: usize,
    /// The recording.
    pub capture: PathBuf,
    /// Protocol, initiator and responder.
    pub flow: String,
    /// The end that gets the name: `source`, the initiator, or `destination`.
    pub end: String,
    /// The expected name; `None` if there must be none.
    pub name: Option<String>,
    /// The source of the name, spelled as in logs.
    pub kind: Option<String>,
    /// Its flags.
    pub flags: Vec<String>,
    /// Flags that it may have, but need not have.
    pub flags_possible: Vec<String>,
    /// The value of `--names`.
    pub names: String,
    /// The naming rule that the row is about.
    pub rule: Option<u8>,
    /// The result with that rule off.
    pub without_rule: WithoutRule,
}

/// Reads the list next to the recordings.
pub fn load() -> Result<Vec<Expectation>, String> {
    let folder = recorded_folder();
    let path = folder.join("expected.tsv");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text, &folder)
}

/// Parses a list; the captures are in `folder`.
pub fn parse(text: &str, folder: &Path) -> Result<Vec<Expectation>, String> {
    let rows = text.lines().enumerate().filter(|(_, row)| !row.starts_with('#') && !row.is_empty());
    rows.map(|(index, row)| {
        parse_row(index + 1, row, folder)
            .ok_or_else(|| format!("expected.tsv, line {}: can't be read: {row}", index + 1))
    })
    .collect()
}

fn parse_row(line: usize, row: &str, folder: &Path) -> Option<Expectation> {
    let columns: Vec<&str> = row.split('\t').collect();
    let [capture, flow, end, name, kind, flags, names, rule, wrong] = columns[..] else {
        return None;
    };
    let (protocol, ends) = flow.split_once(' ')?;
    let (source, destination) = ends.split_once(" > ")?;
    let _: [SocketAddr; 2] = [source.parse().ok()?, destination.parse().ok()?];
    let is_known = ["tcp", "udp"].contains(&protocol) && ["source", "destination"].contains(&end);
    let flags: Vec<&str> = flags.split(',').filter(|flag| *flag != "-").collect();
    let name_of = |flag: &str| flag.trim_start_matches('?').to_owned();
    let (possible, set): (Vec<&str>, Vec<&str>) = flags.iter().partition(|it| it.starts_with('?'));
    if !is_known || !flags.iter().all(|flag| FLAGS.contains(&name_of(flag).as_str())) {
        return None;
    }
    let optional = |text: &str| (text != "-").then(|| text.to_owned());
    Some(Expectation {
        line,
        capture: folder.join(capture),
        flow: flow.to_owned(),
        end: end.to_owned(),
        name: optional(name),
        kind: optional(kind),
        flags: set.into_iter().map(name_of).collect(),
        flags_possible: possible.into_iter().map(name_of).collect(),
        names: names.to_owned(),
        rule: match rule {
            "-" => None,
            number => Some(number.parse().ok().filter(|number| (1..=9).contains(number))?),
        },
        without_rule: match wrong {
            "=" => WithoutRule::Same,
            "-" => WithoutRule::Unnamed,
            wrong => WithoutRule::Name(wrong.to_owned()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list in the repository is readable. Every recording has a row, and every row a
    /// recording. Each of the nine rules has a row that fails without it, or whose flags show it.
    #[test]
    fn the_list_is_whole() {
        let rows = load().expect("a readable list");
        for row in &rows {
            assert!(row.capture.is_file(), "line {}: no {}", row.line, row.capture.display());
            assert_eq!(row.name.is_some(), row.kind.is_some(), "line {}", row.line);
        }
        let folder = std::fs::read_dir(recorded_folder()).expect("the folder of captures");
        for entry in folder {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|ext| ext == "pcap" || ext == "pcapng") {
                let listed = rows.iter().any(|row| row.capture.file_name() == path.file_name());
                assert!(listed, "{} has no row", path.display());
            }
        }
        for rule in 1..=9 {
            let about = |row: &&Expectation| row.rule == Some(rule);
            let shows = |row: &Expectation| {
                row.without_rule != WithoutRule::Same || row.flags.contains(&"ambiguous".to_owned())
            };
            assert!(rows.iter().filter(about).any(shows), "rule {rule} has no golden row");
        }
    }

    /// A row is parsed into its fields; a row with an error is rejected with its line.
    #[test]
    fn rows() {
        let good = "a.pcap\tudp [2001:db8::1]:5 > [2001:db8::2]:443\tsource\tx.example\tmdns\tlate,?stale\tall\t7\ty.example";
        let rows = parse(&format!("# comment\n{good}\n"), Path::new("/f")).expect("a row");
        let [row] = rows.as_slice() else { panic!("one row") };
        assert_eq!((row.line, row.end.as_str()), (2, "source"));
        assert_eq!(row.capture, Path::new("/f/a.pcap"));
        assert_eq!(row.flow, "udp [2001:db8::1]:5 > [2001:db8::2]:443");
        assert_eq!(
            (&row.flags[..], &row.flags_possible[..]),
            (&["late".to_owned()][..], &["stale".to_owned()][..])
        );
        assert_eq!(row.rule, Some(7));
        assert_eq!(row.without_rule, WithoutRule::Name("y.example".to_owned()));
        for (from, to) in
            [("udp", "upd"), ("late", "lat"), ("\t7", "\t0"), ("source", "src"), (":5 >", ">")]
        {
            let error = parse(&good.replace(from, to), Path::new("/f")).expect_err(to);
            assert!(error.contains("line 1"), "{error}");
        }
    }
}
