//! Names on disk: `--names-save`, `--names-load`, and `names.log` have one format.
//!
//! Tab-separated, an entry a line, oldest first, so that loading learns in the same order:
//!
//! ```text
//! #larder-names 1
//! #fields  kind  client  address  teacher  solicited  time_ns  ttl_s  name  head
//! pair     192.0.2.7  203.0.113.9  dns  T  1700000000000000000  300  www.example.com  -
//! alias    -          -            dns  T  1700000000000000000  0    edge.cdn.example  www.example.com
//! #end 2
//! ```
//!
//! A tenth field, if present, is the network in which the addresses are valid: `vlan:10`,
//! `vlan:10,vlan:20,vni:5`, `gre:7`. `kind` is `address`, `pair`, `host` or `alias` (whose `name`
//! is the target and `head` the owner; its time is exact to a minute). `teacher` is the protocol of the message.
//! `solicited` is the support of the name: `T` a query was seen (of a host: its own statement), `D` the same and a
//! client queried this very name, `L` a lease, `O` no query of this client is ever seen, `F` there
//! was no query, `C` another host claims it. Bytes outside printable ASCII are `\xHH`, a backslash
//! is `\x5c`. The last line has the number of entries: a file without it was cut and is refused.

use std::io::{BufRead, Write};

use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use crate::names::{
    Alias, Candidate, Candidates, FACTS_A_COMMIT, NameProtocol, Names, Recall, Standing,
};

const MAGIC: &str = "#larder-names 1";
const NOT_NAMES: &str =
    "not a names file of larder (no #larder-names 1); make one with --names-save";
const FIELDS: &str =
    "#fields\tkind\tclient\taddress\tteacher\tsolicited\ttime_ns\tttl_s\tname\thead";
const SAVE_AGAIN: &str = "save it again with --names-save";
/// Longest line that is read; two names of 510 bytes, all escaped, and the rest.
const LINE_BYTES_MAX: u64 = 8 << 10;

/// Writes bytes in the form that [`unescaped`] reads.
pub fn escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for part in bytes.split_inclusive(|&byte| byte == b'\\') {
        match part.strip_suffix(b"\\") {
            Some(before) => {
                Name::write_escaped(before, out);
                out.extend_from_slice(b"\\x5c");
            }
            None => Name::write_escaped(part, out),
        }
    }
}

/// Reads the form of [`escaped`]; `None` when an escape is incomplete.
pub fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'\\' {
            out.push(byte);
            rest = tail;
            continue;
        }
        let (digits, after) = tail.strip_prefix(b"x")?.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    Some(out)
}

impl NameProtocol {
    /// The spelling in files.
    pub fn as_str(self) -> &'static str {
        match self {
            NameProtocol::Dns => "dns",
            other => other.source().as_str(),
        }
    }

    fn parse(text: &str) -> Option<NameProtocol> {
        NameProtocol::ALL.into_iter().find(|protocol| protocol.as_str() == text)
    }
}

/// The key of an entry.
enum EntryKey<'a> {
    Address(Scope, Addr),
    Pair(Scope, Addr, Addr),
    Host(Scope, Addr),
    Alias(&'a [u8]),
}

fn addr_of(bytes: &[u8]) -> Option<Addr> {
    match bytes.len() {
        4 => bytes.first_chunk().copied().map(Addr::v4),
        16 => bytes.first_chunk().copied().map(Addr::v6),
        _ => None,
    }
}

fn entry_key(key: &[u8]) -> Option<EntryKey<'_>> {
    let (kind, rest) = key.split_first()?;
    Some(match kind {
        b'a' => EntryKey::Address(Scope::NONE, addr_of(rest)?),
        b'h' => EntryKey::Host(Scope::NONE, addr_of(rest)?),
        b'p' => EntryKey::Pair(Scope::NONE, addr_of(rest.get(..4)?)?, addr_of(rest.get(4..)?)?),
        b'P' => EntryKey::Pair(Scope::NONE, addr_of(rest.get(..16)?)?, addr_of(rest.get(16..)?)?),
        b'A' | b'H' | b'q' | b'Q' => {
            let (bits, rest) = rest.split_first_chunk()?;
            let scope = Scope::from_bits(u64::from_be_bytes(*bits))?;
            match kind {
                b'A' => EntryKey::Address(scope, addr_of(rest)?),
                b'H' => EntryKey::Host(scope, addr_of(rest)?),
                b'q' => EntryKey::Pair(scope, addr_of(rest.get(..4)?)?, addr_of(rest.get(4..)?)?),
                _ => EntryKey::Pair(scope, addr_of(rest.get(..16)?)?, addr_of(rest.get(16..)?)?),
            }
        }
        b'c' => EntryKey::Alias(rest),
        _ => return None,
    })
}

/// Appends a network in the form of [`parse_scope`].
fn write_scope(scope: Scope, out: &mut Vec<u8>) {
    let vlans = [scope.vlan(), scope.inner_vlan()].into_iter().flatten();
    let words = vlans.map(|id| format!("vlan:{id}"));
    let words = words.chain(scope.vni().map(|vni| format!("vni:{vni}")));
    let words: Vec<String> = words.chain(scope.gre_key().map(|key| format!("gre:{key}"))).collect();
    out.extend_from_slice(words.join(",").as_bytes());
}

fn parse_scope(text: &str) -> Option<Scope> {
    text.split(',').try_fold(Scope::NONE, |scope, word| {
        let (kind, number) = word.split_once(':')?;
        let number: u32 = number.parse().ok()?;
        Some(match kind {
            "vlan" if (1..4096).contains(&number) => scope.tagged(number as u16),
            "vni" if number < 1 << 24 => scope.with_vni(number),
            "gre" => scope.with_gre_key(number),
            _ => return None,
        })
    })
}

/// Writes all entries, and returns their number.
pub fn save(names: &Names, out: &mut dyn Write) -> std::io::Result<u64> {
    let mut count = 0_u64;
    let mut line = Vec::new();
    writeln!(out, "{MAGIC}\n{FIELDS}")?;
    let mut result = Ok(());
    names.for_each(|key, value| {
        if result.is_err() {
            return;
        }
        let (kind, scope, client, addr) = match entry_key(key) {
            Some(EntryKey::Address(scope, addr)) => ("address", scope, None, addr),
            Some(EntryKey::Host(scope, addr)) => ("host", scope, None, addr),
            Some(EntryKey::Pair(scope, client, addr)) => ("pair", scope, Some(client), addr),
            Some(EntryKey::Alias(target)) => {
                line.clear();
                let Some(alias) = Alias::read(value) else { return };
                let standing = standing_letter(alias.standing, false);
                let time_ns = alias.time_ns;
                let _ = write!(line, "alias\t-\t-\tdns\t{standing}\t{time_ns}\t0\t");
                escaped(target, &mut line);
                line.push(b'\t');
                escaped(alias.owner, &mut line);
                line.push(b'\n');
                result = out.write_all(&line);
                count += 1;
                return;
            }
            None => return,
        };
        // Oldest first within an entry, so that learning in file order ends as it was.
        let candidates: Vec<Candidate<'_>> = Candidates::new(value).collect();
        for candidate in candidates.iter().rev() {
            line.clear();
            let client = client.map_or("-".to_owned(), |client| client.to_string());
            let _ = write!(
                line,
                "{kind}\t{client}\t{addr}\t{}\t{}\t{}\t{}\t",
                candidate.learned_from.as_str(),
                standing_letter(candidate.standing, candidate.askers > 0),
                candidate.time_ns,
                candidate.ttl_s,
            );
            escaped(candidate.asked, &mut line);
            line.push(b'\t');
            if candidate.head.is_empty() {
                line.push(b'-');
            } else {
                escaped(candidate.head, &mut line);
            }
            if !scope.is_none() {
                line.push(b'\t');
                write_scope(scope, &mut line);
            }
            line.push(b'\n');
            if let Err(error) = out.write_all(&line) {
                result = Err(error);
                return;
            }
            count += 1;
        }
    });
    result?;
    writeln!(out, "#end {count}")?;
    out.flush()?;
    Ok(count)
}

fn standing_letter(standing: Standing, direct: bool) -> char {
    match standing {
        Standing::Confirmed if direct => 'D',
        Standing::Confirmed => 'T',
        Standing::Leased => 'L',
        Standing::OneSided => 'O',
        Standing::Unsolicited => 'F',
        Standing::Claimed => 'C',
    }
}

fn parse_standing(text: &str) -> Option<(Standing, bool)> {
    let mut all =
        Standing::ALL.into_iter().flat_map(|standing| [(standing, false), (standing, true)]);
    all.find(|&(standing, direct)| text.chars().eq([standing_letter(standing, direct)]))
}

/// The fields of one line.
struct Line {
    kind: String,
    client: Option<Addr>,
    addr: Option<Addr>,
    learned_from: NameProtocol,
    standing: (Standing, bool),
    time_ns: i64,
    ttl_s: u32,
    name: Vec<u8>,
    head: Vec<u8>,
    scope: Scope,
}

impl Line {
    fn candidate(&self) -> Candidate<'_> {
        let (standing, direct) = self.standing;
        Candidate {
            asked: &self.name,
            head: &self.head,
            time_ns: self.time_ns,
            ttl_s: self.ttl_s,
            learned_from: self.learned_from,
            standing,
            direct,
            askers: direct.into(),
            asker: 0,
        }
    }
}

fn parse(line: &str) -> Option<Line> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    let addr = |text: &str| match text {
        "-" => Some(None),
        text => text.parse::<std::net::IpAddr>().ok().map(|ip| Some(Addr::from(ip))),
    };
    let parsed = Line {
        kind: next()?.to_owned(),
        client: addr(next()?)?,
        addr: addr(next()?)?,
        learned_from: NameProtocol::parse(next()?)?,
        standing: parse_standing(next()?)?,
        time_ns: next()?.parse().ok()?,
        ttl_s: next()?.parse().ok()?,
        name: unescaped(next()?.as_bytes())?,
        head: match next()? {
            "-" => Vec::new(),
            text => unescaped(text.as_bytes())?,
        },
        scope: match next() {
            None => Scope::NONE,
            Some(text) => parse_scope(text)?,
        },
    };
    let fits = |name: &[u8]| name.len() <= larder_wire::name::NAME_BYTES_MAX;
    (fields.next().is_none() && fits(&parsed.name) && fits(&parsed.head)).then_some(parsed)
}

/// Learns all entries of `input`, before packet 1. The error names the line; the entries before it
/// have been learned. `ignores_vlan`: networks are not distinguished.
pub fn load(
    names: &mut Names,
    input: &mut dyn BufRead,
    ignores_vlan: bool,
    recall: Recall,
    make_way: &mut dyn FnMut(),
) -> Result<u64, String> {
    let (mut count, mut has_networks) = (0, false);
    let mut line = String::new();
    for number in 1_u64.. {
        line.clear();
        let read = std::io::Read::take(&mut *input, LINE_BYTES_MAX).read_line(&mut line).map_err(
            |error| match (error.kind(), number) {
                (std::io::ErrorKind::InvalidData, 1) => NOT_NAMES.to_owned(),
                _ => format!("line {number}: {error}; {SAVE_AGAIN}"),
            },
        )?;
        if read == 0 {
            return Err(format!(
                "the file ends before its last line (#end), after {count} names; it was cut: \
                 save it again"
            ));
        }
        let text = line.trim_end_matches('\n');
        if number == 1 {
            if text != MAGIC {
                return Err(NOT_NAMES.to_owned());
            }
            continue;
        }
        if let Some(total) = text.strip_prefix("#end ") {
            if total.parse() == Ok(count) {
                // The file may come from a run without networks, or from one that does not
                // distinguish them.
                if !has_networks {
                    names.count_in_all_networks();
                }
                names.commit_all(make_way).map_err(|error| error.to_string())?;
                return Ok(count);
            }
            return Err(format!("line {number}: {count} names were read, {total} were saved"));
        }
        if text.starts_with('#') {
            continue;
        }
        let bad = |why: &str| format!("line {number} {why}; {SAVE_AGAIN}");
        let fact = parse(text).ok_or_else(|| bad("can't be read"))?;
        has_networks |= !fact.scope.is_none();
        let scope = if ignores_vlan { Scope::NONE } else { fact.scope };
        names
            .recall(recall, &fact.kind, scope, (fact.client, fact.addr), &fact.candidate())
            .ok_or_else(|| bad("has an unknown kind, or no address"))?;
        count += 1;
        if count.is_multiple_of(FACTS_A_COMMIT) {
            names.commit_all(make_way).map_err(|error| error.to_string())?;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any bytes are read back as they were written, and none of them is a tab, a line end or a
    /// control byte in the file.
    #[test]
    fn escaping_round_trip() {
        let all: Vec<u8> = (0..=255).chain([b'\\', b'x', b'4', b'1']).collect();
        let mut text = Vec::new();
        escaped(&all, &mut text);
        assert!(text.iter().all(|byte| (0x21..0x7f).contains(byte)));
        assert_eq!(unescaped(&text), Some(all));
        assert_eq!(unescaped(br"\x5"), None);
        assert_eq!(unescaped(br"\y41"), None);
    }
}
