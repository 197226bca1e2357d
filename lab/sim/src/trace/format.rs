//! Names of formats, and which one a file is in.
//!
//! [`Format::detect`] believes what a file holds before how it is called: only keys without a frame (`be32`,
//! `le32`, `be64`) have no marks, and are recognized by name.

use std::fmt;
use std::str::FromStr;

use larder_wire::capture::Capture;

use super::binary::{ORACLE_BYTES, oracle_fields};
use super::digits::{number, seconds_ns};
use super::reader::MARK;
use super::{Error, csv, text, zeek};

/// How a trace file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// Found out from the file, else from its name.
    #[default]
    Auto,
    /// A decimal number a line.
    Lirs,
    /// First block and count a line.
    Arc,
    /// Keys of 4 bytes, big endian.
    Be32,
    /// Keys of 4 bytes, little endian.
    Le32,
    /// Keys of 8 bytes, big endian.
    Be64,
    /// Time, key and size a line, apart by blanks.
    AdaptSize,
    /// Zeek's `dns.log`, as a table or as JSON; the key is name, type and class as asked.
    ZeekDns,
    /// Columns by the names in the first line, or time, key, size, operation, TTL.
    Csv,
    /// libCacheSim's records of 24 bytes.
    OracleGeneral,
    /// Twitter's cache clusters (Yang, Yue and Rashmi, OSDI 2020).
    Twitter,
    /// A key a line, any text.
    Keys,
    /// Questions and answers of DNS in a capture, pcap or pcapng.
    PcapDns,
    /// The `dns.log` of `larder annotate -d`; the key is the name as asked.
    DnsLog,
}

impl Format {
    /// Every format, in the order of the help.
    pub const ALL: [Format; 14] = [
        Format::Auto,
        Format::Lirs,
        Format::Arc,
        Format::Be32,
        Format::Le32,
        Format::Be64,
        Format::AdaptSize,
        Format::ZeekDns,
        Format::Csv,
        Format::OracleGeneral,
        Format::Twitter,
        Format::Keys,
        Format::PcapDns,
        Format::DnsLog,
    ];

    /// The spelling in options and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Format::Auto => "auto",
            Format::Lirs => "lirs",
            Format::Arc => "arc",
            Format::Be32 => "be32",
            Format::Le32 => "le32",
            Format::Be64 => "be64",
            Format::AdaptSize => "adaptsize",
            Format::ZeekDns => "zeek-dns",
            Format::Csv => "csv",
            Format::OracleGeneral => "oracle-general",
            Format::Twitter => "twitter",
            Format::Keys => "keys",
            Format::PcapDns => "pcap-dns",
            Format::DnsLog => "dns-log",
        }
    }

    /// The format of a trace that begins with `head` (all of it, where it is shorter than a few lines) and is
    /// called `name`; or what was seen instead. Never [`Format::Auto`].
    pub fn detect(head: &[u8], name: &str) -> Result<Format, String> {
        if head.is_empty() {
            return Err("the file is empty".to_owned());
        }
        let head = &head[..head.len().min(HEAD_BYTES)];
        if Capture::open(head).is_ok() {
            return Ok(Format::PcapDns);
        }
        match head.iter().any(|byte| is_binary(*byte)) {
            true => detect_binary(head, name),
            false => detect_text(head),
        }
    }
}

/// Bytes that are looked at.
const HEAD_BYTES: usize = 64 << 10;

/// Lines that are looked at.
const HEAD_LINES: usize = 50;

/// Bytes that no text has.
fn is_binary(byte: u8) -> bool {
    byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b)
}

/// Parts of names that state the keys' width: our own names, and those of published collections.
const BINARY_NAMES: [(&str, Format); 11] = [
    ("be32", Format::Be32),
    ("le32", Format::Le32),
    ("be64", Format::Be64),
    ("oraclegeneral", Format::OracleGeneral),
    ("oracle-general", Format::OracleGeneral),
    ("scarab", Format::Be64),
    ("vaultservice", Format::Be64),
    ("web07", Format::Be32),
    ("web12", Format::Be32),
    ("orm-busy", Format::Be32),
    ("orm-night", Format::Be32),
];

fn detect_binary(head: &[u8], name: &str) -> Result<Format, String> {
    if is_oracle_general(head) {
        return Ok(Format::OracleGeneral);
    }
    // The name of a directory says nothing about the files in it.
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let known = BINARY_NAMES.iter().find(|(part, _)| name.contains(part));
    known.map(|(_, format)| *format).ok_or_else(|| {
        "these are bytes without a frame, and the name does not state their width either".to_owned()
    })
}

/// Whether records of `oracleGeneral` make sense: clocks that never step back, sizes below 2 GiB, and a next
/// request that is in the future or never comes. Random bytes pass with a chance below 2^-24 a record.
fn is_oracle_general(head: &[u8]) -> bool {
    let (records, _) = head.as_chunks::<ORACLE_BYTES>();
    let mut latest_s = 0;
    let sound = records.iter().enumerate().all(|(at, record)| {
        let (time_s, _, size, next) = oracle_fields(record);
        let forward = std::mem::replace(&mut latest_s, time_s) <= time_s;
        let future = next == -1 || next == i64::MAX || (next > at as i64 && next < 1 << 40);
        forward && future && size < 1 << 31
    });
    sound && !records.is_empty()
}

fn detect_text(head: &[u8]) -> Result<Format, String> {
    let head = head.strip_prefix(MARK).unwrap_or(head);
    if let Some(found) = zeek::detect(head) {
        return found;
    }
    // The last line may be cut.
    let end = memchr::memrchr(b'\n', head).map_or(head.len(), |at| at + 1);
    let lines: Vec<&[u8]> = head[..end]
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty() && *line != b"*")
        .take(HEAD_LINES)
        .collect();
    if lines.is_empty() {
        return Err("no line of it says anything".to_owned());
    }
    let all = |is: fn(&[u8]) -> bool| lines.iter().all(|line| is(line));
    let numbers = |line: &[u8]| text::words(line).all(|word| number(word).is_some());
    let count = |line: &[u8]| text::words(line).count();
    let counts = count(lines[0]);
    let even = lines.iter().all(|line| count(line) == counts);
    let numeric = lines.iter().all(|line| numbers(line));
    match counts {
        _ if all(csv::is_twitter) => Ok(Format::Twitter),
        _ if csv::is_csv(&lines) => Ok(Format::Csv),
        1 if numeric && even => Ok(Format::Lirs),
        3 if even && all(is_adaptsize) => Ok(Format::AdaptSize),
        4 if numeric && even => Ok(Format::Arc),
        1 if even => Ok(Format::Keys),
        _ => Err("these are lines of no known shape".to_owned()),
    }
}

fn is_adaptsize(line: &[u8]) -> bool {
    let mut words = text::words(line);
    words.next().and_then(seconds_ns).is_some() && words.nth(1).and_then(number).is_some()
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Writes the names of all formats but `auto`.
pub(super) fn write_names(f: &mut impl fmt::Write) -> fmt::Result {
    for (at, format) in Format::ALL[1..].iter().enumerate() {
        write!(f, "{}{format}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Format, Error> {
        let known = Format::ALL.into_iter().find(|format| format.as_str() == text);
        known.ok_or_else(|| {
            let mut why = "no such format of traces; there are auto, ".to_owned();
            let _ = write_names(&mut why);
            Error::Name { given: text.to_owned(), why }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every format is found by its own name, and the refusal lists them.
    #[test]
    fn names_go_both_ways() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        let refusal = "arcs".parse::<Format>().unwrap_err().to_string();
        assert!(refusal.contains("arc, be32") && refusal.ends_with("dns-log"), "{refusal}");
    }

    /// The content decides, also when the name states another format.
    #[test]
    fn content_decides() {
        let head = |text: &str| Format::detect(text.as_bytes(), "web07.trace").ok();
        assert_eq!(head("17\n18\n*\n\n19\n"), Some(Format::Lirs));
        assert_eq!(head("1 1 0 0\n2 64 0 1\n2 6"), Some(Format::Arc));
        assert_eq!(head("1 0 68\n2.5 a 7454\n"), Some(Format::AdaptSize));
        assert_eq!(head("www.example.org\n17\n"), Some(Format::Keys));
        assert_eq!(
            head("0,nz:u:x,12,240,3,get,0\n0,nz:u:y,12,240,3,set,60\n"),
            Some(Format::Twitter)
        );
        assert_eq!(head("time,key,size\n1,a,2\n"), Some(Format::Csv));
        assert_eq!(head("1,17,512\n"), Some(Format::Csv));
        assert_eq!(head("key\na\nb\n"), Some(Format::Csv));
        assert_eq!(
            head("{\"ts\":1.0,\"query\":\"a.example\",\"qtype\":1}\n"),
            Some(Format::ZeekDns)
        );
        let zeek = "#separator \\x09\n#path\tdns\n#fields\tts\tquery\n";
        assert_eq!(head(zeek), Some(Format::ZeekDns));
        assert_eq!(head(&zeek.replace("dns", "larder_dns")), Some(Format::DnsLog));
        assert_eq!(head(&zeek.replace("dns", "ssl")), None);
        assert_eq!(head("two words\n"), None);
        assert_eq!(head("\n\n"), None);
        assert_eq!(head(""), None);
    }

    /// Bytes without a frame are recognized by name, records of an oracle by their content, and the rest is
    /// refused.
    #[test]
    fn names_decide_where_content_cannot() {
        let keys: Vec<u8> =
            (0..64u64).flat_map(|key| super::super::random::mix(key).to_be_bytes()).collect();
        let detect = |name: &str| Format::detect(&keys, name).ok();
        assert_eq!(detect("scarab-recs.trace.xz"), Some(Format::Be64));
        assert_eq!(detect("x.BE32.gz"), Some(Format::Be32));
        assert_eq!(detect("x.trace"), None);
        assert_eq!(detect("web07/x.trace"), None);
        let mut oracle = Vec::new();
        for at in 0..100u32 {
            oracle.extend_from_slice(&(at / 7).to_le_bytes());
            oracle.extend_from_slice(&u64::from(at % 9).to_le_bytes());
            oracle.extend_from_slice(&512u32.to_le_bytes());
            oracle.extend_from_slice(&if at < 91 { i64::from(at) + 9 } else { -1 }.to_le_bytes());
        }
        assert_eq!(Format::detect(&oracle, "web07.trace").ok(), Some(Format::OracleGeneral));
        let capture = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0";
        assert_eq!(Format::detect(capture, "web07.trace").ok(), Some(Format::PcapDns));
    }
}
