//! The list of golden expectations, `tests/captures/expected.tsv`, parsed into types.
//!
//! A row speaks of one end of one flow in one recording. The file explains its columns itself; this
//! module reads it and compares. A row that cannot be read is an error with its line number: a
//! golden list with a typing mistake must not pass.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The end of a flow that a row speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The initiator.
    Source,
    /// The responder.
    Destination,
}

/// What must hold of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// It must be set.
    Set,
    /// It must not be set.
    Unset,
    /// It may be either.
    Either,
}

impl Want {
    /// True when `flag` is as wanted.
    pub fn allows(self, flag: bool) -> bool {
        match self {
            Want::Set => flag,
            Want::Unset => !flag,
            Want::Either => true,
        }
    }
}

/// The flags of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Past its TTL.
    pub stale: Want,
    /// Learned after the flow's first packet.
    pub late: Want,
    /// The address had rival names.
    pub ambiguous: Want,
    /// DNS says another name than the flow.
    pub conflict: Want,
    /// Nobody was seen asking for it.
    pub unsolicited: Want,
    /// This client's queries are never seen.
    pub one_sided: Want,
    /// The flow states it, and no lookup supports it.
    pub unconfirmed: Want,
    /// The host claims it, and nothing confirms it.
    pub claimed: Want,
}

/// What a row says with its rule switched off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WithoutRule {
    /// The same name (the row guards against an excess of the rule, or shows a flag).
    Same,
    /// No name.
    Unnamed,
    /// This wrong name.
    Name(String),
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Line in the file, from 1: for messages.
    pub line: usize,
    /// The recording.
    pub capture: PathBuf,
    /// IP protocol number.
    pub protocol: u8,
    /// The flow's initiator.
    pub source: SocketAddr,
    /// The flow's responder.
    pub destination: SocketAddr,
    /// The end that is named.
    pub end: End,
    /// The right name; `None` where there must be none.
    pub name: Option<String>,
    /// Where it comes from, in the spelling of logs.
    pub kind: Option<String>,
    /// Its flags.
    pub flags: Flags,
    /// The list for `--names`.
    pub names: String,
    /// The naming rule that the row is about.
    pub rule: Option<u8>,
    /// What comes out with that rule off.
    pub without_rule: WithoutRule,
}

/// The folder of the recordings, in the repository.
pub fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures")
}

/// Reads the list that lies beside the recordings.
pub fn load() -> Result<Vec<Expectation>, String> {
    let folder = captures();
    let path = folder.join("expected.tsv");
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text, &folder)
}

/// Reads a list; captures are looked for in `folder`.
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
    let optional = |text: &str| (text != "-").then(|| text.to_owned());
    Some(Expectation {
        line,
        capture: folder.join(capture),
        protocol: match protocol {
            "tcp" => 6,
            "udp" => 17,
            _ => return None,
        },
        source: source.parse().ok()?,
        destination: destination.parse().ok()?,
        end: match end {
            "source" => End::Source,
            "destination" => End::Destination,
            _ => return None,
        },
        name: optional(name),
        kind: optional(kind),
        flags: parse_flags(flags)?,
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

fn parse_flags(text: &str) -> Option<Flags> {
    let mut flags = Flags {
        stale: Want::Unset,
        late: Want::Unset,
        ambiguous: Want::Unset,
        conflict: Want::Unset,
        unsolicited: Want::Unset,
        one_sided: Want::Unset,
        unconfirmed: Want::Unset,
        claimed: Want::Unset,
    };
    for word in text.split(',').filter(|word| *word != "-") {
        let (want, word) = match word.strip_prefix('?') {
            Some(word) => (Want::Either, word),
            None => (Want::Set, word),
        };
        *match word {
            "stale" => &mut flags.stale,
            "late" => &mut flags.late,
            "ambiguous" => &mut flags.ambiguous,
            "conflict" => &mut flags.conflict,
            "unsolicited" => &mut flags.unsolicited,
            "one_sided" => &mut flags.one_sided,
            "unconfirmed" => &mut flags.unconfirmed,
            "claimed" => &mut flags.claimed,
            _ => return None,
        } = want;
    }
    Some(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list in the repository is readable, every recording has a row and every row a recording,
    /// and all nine rules have a row that goes wrong without them, or whose flags show them.
    #[test]
    fn the_list_is_whole() {
        let rows = load().expect("a readable list");
        for row in &rows {
            assert!(row.capture.is_file(), "line {}: no {}", row.line, row.capture.display());
            assert_eq!(row.name.is_some(), row.kind.is_some(), "line {}", row.line);
        }
        let folder = std::fs::read_dir(captures()).expect("the folder of captures");
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
                row.without_rule != WithoutRule::Same || row.flags.ambiguous == Want::Set
            };
            assert!(rows.iter().filter(about).any(shows), "rule {rule} has no golden row");
        }
    }

    /// A row is read into its parts; mistakes are refused with their line.
    #[test]
    fn rows() {
        let good = "a.pcap\tudp [2001:db8::1]:5 > [2001:db8::2]:443\tsource\tx.example\tmdns\tlate,?stale\tall\t7\ty.example";
        let rows = parse(&format!("# comment\n{good}\n"), Path::new("/f")).expect("a row");
        let [row] = rows.as_slice() else { panic!("one row") };
        assert_eq!((row.line, row.protocol, row.end), (2, 17, End::Source));
        assert_eq!(row.capture, Path::new("/f/a.pcap"));
        assert_eq!(row.source, "[2001:db8::1]:5".parse().expect("an address"));
        assert_eq!((row.flags.late, row.flags.stale), (Want::Set, Want::Either));
        assert_eq!((row.flags.ambiguous, row.rule), (Want::Unset, Some(7)));
        assert_eq!(row.without_rule, WithoutRule::Name("y.example".to_owned()));
        for (from, to) in
            [("udp", "upd"), ("late", "lat"), ("\t7", "\t0"), ("source", "src"), (":5 >", ">")]
        {
            let error = parse(&good.replace(from, to), Path::new("/f")).expect_err(to);
            assert!(error.contains("line 1"), "{error}");
        }
    }
}
