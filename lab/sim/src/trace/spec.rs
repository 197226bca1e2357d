//! The name of a trace: a file, or a stream that is made up.
//!
//! | name | stream |
//! |---|---|
//! | `zipf:ALPHA[:ITEMS[:REQUESTS[:SETS]]]` | Zipf's law; SETS of a hundred requests store instead of look up |
//! | `uniform:ITEMS[:REQUESTS]` | all items alike: Zipf's law with an alpha of 0 |
//! | `loop:ITEMS[:REQUESTS]` | the same items over and over |
//! | `dns:SEED[:REQUESTS[:ALPHA]]` | the queries of a resolver, see [`super::dns_like`] |
//!
//! Everything else is a path; `./zipf:0.9` is a file of that name, `-` is standard input.

use std::fmt;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::binary::{Be32, Be64, Le32, OracleGeneral, Records};
use super::csv::{Csv, Twitter};
use super::cycle::Cycle;
use super::dns_like::DnsLike;
use super::pcap::PcapDns;
use super::reader::{TraceReader, display_name};
use super::text::{AdaptSize, Arc, Keys, Lirs, Text};
use super::zeek::{Key, Zeek};
use super::zipf::{ITEMS_MAX, Zipf};
use super::{Error, Format, Source};

/// Items of a stream that does not say.
pub const ITEMS: u32 = 200_000;

/// Requests of a stream that does not say.
pub const REQUESTS: u64 = 3_000_000;

/// Alpha of a `dns` stream that does not say: what Jung, Sit, Balakrishnan and Morris found of names ("DNS
/// performance and the effectiveness of caching", IEEE/ACM ToN 2002).
pub const DNS_ALPHA: f64 = 0.91;

/// The largest alpha: with it, hardly anything but one item is asked for.
pub const ALPHA_MAX: f64 = 100.0;

/// How streams are named, for messages.
pub(super) const GENERATORS: &str = "zipf:ALPHA[:ITEMS[:REQUESTS[:SETS]]], \
    uniform:ITEMS[:REQUESTS], loop:ITEMS[:REQUESTS] or dns:SEED[:REQUESTS[:ALPHA]]";

/// A trace, named. Opening it twice gives the same requests twice, unless it is a pipe or standard input.
#[derive(Debug, Clone, PartialEq)]
pub enum Spec {
    /// A file; `-` is standard input.
    File(PathBuf),
    /// Zipf's law.
    Zipf {
        /// How unlike the items are; 0 makes all alike.
        alpha: f64,
        /// Items there are.
        items: u32,
        /// Requests made.
        requests: u64,
        /// Of a hundred requests, those that store.
        sets_percent: u8,
    },
    /// The same items over and over.
    Loop {
        /// Items there are.
        items: u32,
        /// Requests made.
        requests: u64,
    },
    /// The queries of a resolver.
    Dns {
        /// Decides all; the seed of the run does not matter.
        seed: u64,
        /// Requests made.
        requests: u64,
        /// How unlike the names are.
        alpha: f64,
    },
}

impl Spec {
    /// Reads a name; every text that does not begin with a stream's name and a colon is a path.
    pub fn parse(text: &str) -> Result<Spec, Error> {
        let refuse = |why: String| Error::Name { given: text.to_owned(), why };
        if text.is_empty() {
            return Err(refuse(format!("no trace is named; name a file, or {GENERATORS}")));
        }
        let Some((kind, rest)) = text.split_once(':') else {
            return Ok(Spec::File(PathBuf::from(text)));
        };
        let parts = Parts { parts: rest.split(':').collect() };
        let spec = match kind {
            "zipf" => parts.zipf(),
            "uniform" => parts.uniform(),
            "loop" => parts.cycle(),
            "dns" => parts.dns(),
            _ => return Ok(Spec::File(PathBuf::from(text))),
        };
        spec.map_err(|why| {
            refuse(format!("{why}; streams are {GENERATORS}, files of such a name ./{text}"))
        })
    }

    /// Opens the trace at its first request. `format` is for files, `seed` for streams that don't have their
    /// own. Files are decompressed by what they hold: gzip, zstd, xz.
    pub fn open(&self, format: Format, seed: u64) -> Result<Box<dyn Source>, Error> {
        Ok(match *self {
            Spec::File(ref path) => return open_file(path, format),
            Spec::Zipf { alpha, items, requests, sets_percent } => {
                Box::new(Zipf::new(alpha, items, requests, sets_percent, seed))
            }
            Spec::Loop { items, requests } => Box::new(Cycle::new(items, requests, seed)),
            Spec::Dns { seed, requests, alpha } => Box::new(DnsLike::new(seed, requests, alpha)),
        })
    }
}

fn open_file(path: &Path, format: Format) -> Result<Box<dyn Source>, Error> {
    source(TraceReader::open(path)?, format, &display_name(path))
}

/// Reads a trace that is no file: what `reader` gives, decompressed if its first bytes say so. `name` is for
/// messages, and may state the format where the bytes do not.
pub fn read(
    reader: impl Read + Send + 'static,
    format: Format,
    name: &str,
) -> Result<Box<dyn Source>, Error> {
    source(TraceReader::decoded(reader, name)?, format, name)
}

/// The reader of a trace. [`Format::Auto`] looks at its first bytes.
fn source(reader: TraceReader, format: Format, name: &str) -> Result<Box<dyn Source>, Error> {
    let name = name.to_owned();
    let format = match (format, reader.failed_at_once()) {
        (Format::Auto, Some(why)) => {
            return Err(Error::Unreadable { name, why: why.to_owned() });
        }
        (Format::Auto, None) => match Format::detect(reader.peek(), &name) {
            Ok(format) => format,
            Err(why) => return Err(Error::Undecided { name, why }),
        },
        (format, _) => format,
    };
    let refuse = |why: String| Error::Content { name, format, why };
    Ok(match format {
        Format::Auto | Format::Keys => Box::new(Text::new(reader, Keys)),
        Format::Lirs => Box::new(Text::new(reader, Lirs)),
        Format::Arc => Box::new(Text::new(reader, Arc)),
        Format::AdaptSize => Box::new(Text::new(reader, AdaptSize::default())),
        Format::Be32 => Box::new(Records::new(reader, Be32)),
        Format::Le32 => Box::new(Records::new(reader, Le32)),
        Format::Be64 => Box::new(Records::new(reader, Be64)),
        Format::OracleGeneral => Box::new(Records::new(reader, OracleGeneral::default())),
        Format::Csv => {
            let csv = Csv::of(reader.peek()).map_err(refuse)?;
            Box::new(Text::new(reader, csv))
        }
        Format::Twitter => Box::new(Text::new(reader, Twitter::default())),
        Format::ZeekDns => Box::new(Text::new(reader, Zeek::new(Key::Query))),
        Format::DnsLog => Box::new(Text::new(reader, Zeek::new(Key::Name))),
        Format::PcapDns => Box::new(PcapDns::open(reader).map_err(|why| refuse(why.to_string()))?),
    })
}

/// What stands between the colons.
struct Parts<'a> {
    parts: Vec<&'a str>,
}

impl Parts<'_> {
    fn zipf(&self) -> Result<Spec, String> {
        self.at_most(4)?;
        Ok(Spec::Zipf {
            alpha: self.part(0, "alpha", None, 0.0..=ALPHA_MAX)?,
            items: self.items(1, Some(ITEMS))?,
            requests: self.requests(2)?,
            sets_percent: self.part(3, "share of sets", Some(0), 0..=100)?,
        })
    }

    fn uniform(&self) -> Result<Spec, String> {
        self.at_most(2)?;
        let (items, requests) = (self.items(0, None)?, self.requests(1)?);
        Ok(Spec::Zipf { alpha: 0.0, items, requests, sets_percent: 0 })
    }

    fn cycle(&self) -> Result<Spec, String> {
        self.at_most(2)?;
        Ok(Spec::Loop { items: self.items(0, None)?, requests: self.requests(1)? })
    }

    fn dns(&self) -> Result<Spec, String> {
        self.at_most(3)?;
        Ok(Spec::Dns {
            seed: self.part(0, "seed", None, 0..=u64::MAX)?,
            requests: self.requests(1)?,
            alpha: self.part(2, "alpha", Some(DNS_ALPHA), 0.0..=ALPHA_MAX)?,
        })
    }

    fn items(&self, at: usize, default: Option<u32>) -> Result<u32, String> {
        self.part(at, "number of items", default, 1..=ITEMS_MAX)
    }

    fn requests(&self, at: usize) -> Result<u64, String> {
        self.part(at, "number of requests", Some(REQUESTS), 1..=u64::MAX)
    }

    /// The part at `at`, within `range`; the default where there is none, if there is a default.
    fn part<T>(
        &self,
        at: usize,
        what: &str,
        default: Option<T>,
        range: RangeInclusive<T>,
    ) -> Result<T, String>
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let value = match (self.parts.get(at), default) {
            (Some(text), _) => text.parse().ok().filter(|value| range.contains(value)),
            (None, default) => default,
        };
        value.ok_or_else(|| format!("the {what} must be {} to {}", range.start(), range.end()))
    }

    fn at_most(&self, count: usize) -> Result<(), String> {
        let given = self.parts.len();
        if given > count { Err(format!("{given} parts, where there are {count}")) } else { Ok(()) }
    }
}

/// The name again, as short as it can be; [`Spec::parse`] reads it back.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::File(path) => {
                let path = path.display().to_string();
                let kind = path.split_once(':').map(|(kind, _)| kind);
                if kind.is_some_and(|kind| matches!(kind, "zipf" | "uniform" | "loop" | "dns")) {
                    f.write_str("./")?;
                }
                f.write_str(&path)
            }
            Spec::Zipf { alpha, items, requests, sets_percent: 0 } => {
                write!(f, "zipf:{alpha}:{items}:{requests}")
            }
            Spec::Zipf { alpha, items, requests, sets_percent } => {
                write!(f, "zipf:{alpha}:{items}:{requests}:{sets_percent}")
            }
            Spec::Loop { items, requests } => write!(f, "loop:{items}:{requests}"),
            Spec::Dns { seed, requests, alpha } => write!(f, "dns:{seed}:{requests}:{alpha}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are read as documented, defaults filled in, and come out so that they read back.
    #[test]
    fn names() {
        let zipf = |alpha, items, requests, sets_percent| Spec::Zipf {
            alpha,
            items,
            requests,
            sets_percent,
        };
        let dns = |seed, requests, alpha| Spec::Dns { seed, requests, alpha };
        for (name, expected) in [
            ("zipf:0.9", zipf(0.9, 200_000, 3_000_000, 0)),
            ("zipf:1:10", zipf(1.0, 10, 3_000_000, 0)),
            ("zipf:0:10:20:30", zipf(0.0, 10, 20, 30)),
            ("uniform:5:7", zipf(0.0, 5, 7, 0)),
            ("loop:9", Spec::Loop { items: 9, requests: 3_000_000 }),
            ("dns:7", dns(7, 3_000_000, DNS_ALPHA)),
            ("dns:7:8:1.5", dns(7, 8, 1.5)),
            ("zipf", Spec::File("zipf".into())),
            ("./zipf:0.9", Spec::File("./zipf:0.9".into())),
            ("C:trace", Spec::File("C:trace".into())),
            ("-", Spec::File("-".into())),
        ] {
            let spec = Spec::parse(name).unwrap();
            assert_eq!(spec, expected, "{name}");
            assert_eq!(Spec::parse(&spec.to_string()).unwrap(), spec, "{name}");
        }
    }

    /// What can't be meant is refused, with what could.
    #[test]
    fn refusals() {
        for name in [
            "",
            "zipf:",
            "zipf:x",
            "zipf:-1",
            "zipf:nan",
            "zipf:inf",
            "zipf:101",
            "zipf:1:0",
            "zipf:1:100000001",
            "zipf:1:1:0",
            "zipf:1:1:1:101",
            "zipf:1:1:1:1:1",
            "uniform:",
            "uniform:1:1:1",
            "loop:0",
            "dns:",
            "dns:-1",
            "dns:1:1:1:1",
        ] {
            let refusal = Spec::parse(name).unwrap_err().to_string();
            assert!(refusal.contains("zipf:ALPHA"), "{refusal}");
        }
        let refusal = Spec::parse("zipf:1:0").unwrap_err().to_string();
        assert!(refusal.contains("the number of items must be 1 to 100000000"), "{refusal}");
    }

    /// A file that is not there, a folder, an empty file and one of unknown shape are errors that advise.
    #[test]
    fn files_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str, format| {
            let path = folder.path().join(name);
            Spec::File(path).open(format, 0).map(|_| ()).map_err(|error| error.to_string())
        };
        assert!(open("\x1b[2J", Format::Auto).unwrap_err().contains("/\\u{1b}[2J: "));
        assert!(open("none", Format::Auto).unwrap_err().contains("check the path"));
        assert!(open("", Format::Auto).unwrap_err().contains("name one of the traces in it"));
        for (content, why) in [
            (&b""[..], "the file is empty; pass --trace-format with one of lirs, arc, be32"),
            (b"\0\0\x05\x06", "bytes without a frame"),
            (b"\x1f\x8b\x08\0", "get it again from its source"),
        ] {
            std::fs::write(folder.path().join("x"), content).unwrap();
            assert!(open("x", Format::Auto).unwrap_err().contains(why), "{why}");
        }
        std::fs::write(folder.path().join("x"), "time,size\n1,2\n").unwrap();
        assert!(open("x", Format::Csv).unwrap_err().contains("no column of keys"));
        assert!(open("x", Format::PcapDns).unwrap_err().contains("--trace-format"));
    }
}
