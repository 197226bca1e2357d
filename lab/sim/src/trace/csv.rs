//! Traces in columns: any, by the names in the first line, and Twitter's.
//!
//! `csv` takes libCacheSim's files and their like. The separator is the first of tab, comma, semicolon, bar
//! that the first line has. Where that line has a word for the key, it names the columns:
//!
//! | column | names (case and `-` `_` do not matter) |
//! |---|---|
//! | time, seconds with any decimals | `time` `timestamp` `ts` `clock_time` |
//! | key | `key` `obj_id` `object_id` `objid` `id` `obj` `object` `lbn` `name` `query` `url` |
//! | size, bytes | `size` `obj_size` `object_size` `bytes` `length` `len` |
//! | operation | `op` `operation` `opcode` `cmd` `command` |
//! | TTL, seconds; 0 or nothing: none | `ttl` `ttl_s` `expiry` |
//!
//! Where it has not, the columns are time, key, size, operation, TTL, as many as there are; one alone is the
//! key, and of two the first is the time. A field may stand in quotes. Operations are those of memcached and
//! of HTTP, `read` and `write`; every other (a SCSI number) is a lookup, as caches of blocks are asked for
//! what is written too.
//!
//! `twitter` has time, key, bytes of the key, bytes of the value, client, operation, TTL and no first line.
//! Keys may hold commas: the other columns are counted from both ends. A TTL counts where something is stored.

use super::digits::{Clock, bytes, number, seconds_ns};
use super::key_of;
use super::reader::MARK;
use super::text::Lines;
use crate::request::{Op, Request, TTL_NONE};

/// Most columns of a line that are looked at.
const COLUMNS_MAX: usize = 64;

/// Where the columns are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Columns {
    time: Option<usize>,
    key: usize,
    size: Option<usize>,
    op: Option<usize>,
    ttl: Option<usize>,
}

/// `csv`.
#[derive(Debug)]
pub struct Csv {
    separator: u8,
    columns: Columns,
    /// The next line names columns.
    header: bool,
    clock: Clock,
}

impl Csv {
    /// For a trace that begins with `head`. Says what is missing.
    pub fn of(head: &[u8]) -> Result<Csv, String> {
        let head = head.strip_prefix(MARK).unwrap_or(head);
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let line = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let separator = separator(line);
        let (columns, header) = match named(line, separator) {
            Named::Columns(columns) => (columns, true),
            Named::NoKey => {
                return Err(
                    "the first line names columns, but no column of keys (call it key)".to_owned()
                );
            }
            Named::Nothing => (by_place(fields(line, separator).count()), false),
        };
        Ok(Csv { separator, columns, header, clock: Clock::default() })
    }
}

impl Lines for Csv {
    fn read(&mut self, line: &[u8], batch: &mut Vec<Request>) -> Result<(), &'static str> {
        if line.trim_ascii().is_empty() || std::mem::take(&mut self.header) {
            return Ok(());
        }
        let mut found = [None; COLUMNS_MAX];
        for (place, field) in found.iter_mut().zip(fields(line, self.separator)) {
            *place = Some(field);
        }
        let get = |column: Option<usize>| column.and_then(|at| found.get(at).copied().flatten());
        let filled = |column| get(column).filter(|field| !field.is_empty());
        let key = filled(Some(self.columns.key)).ok_or("no key")?;
        let time_ns = match self.columns.time {
            Some(_) => {
                Some(get(self.columns.time).and_then(seconds_ns).ok_or("the time is no number")?)
            }
            None => None,
        };
        let size = match filled(self.columns.size) {
            Some(size) => bytes(number(size).ok_or("the size is no number")?),
            None => 1,
        };
        let ttl_s = match filled(self.columns.ttl) {
            Some(ttl) => ttl_of(number(ttl).ok_or("the TTL is no number")?),
            None => TTL_NONE,
        };
        let op = filled(self.columns.op).map_or(Op::Get, op_of);
        let time_s = time_ns.map_or(0, |ns| self.clock.since_first(ns));
        batch.push(Request { key: key_of(key), time_s, ttl_s, bytes: size, op });
        Ok(())
    }
}

/// Seconds of a TTL; 0 is none, as in memcached.
fn ttl_of(seconds: u64) -> u32 {
    match u32::try_from(seconds) {
        Ok(0) | Err(_) => TTL_NONE,
        Ok(seconds) => seconds,
    }
}

/// What a word for an operation means.
fn op_of(word: &[u8]) -> Op {
    const SETS: [&[u8]; 15] = [
        b"set", b"add", b"replace", b"cas", b"append", b"prepend", b"incr", b"decr", b"write",
        b"w", b"put", b"post", b"patch", b"update", b"insert",
    ];
    const REMOVES: [&[u8]; 4] = [b"delete", b"del", b"remove", b"purge"];
    let is = |known: &[u8]| word.eq_ignore_ascii_case(known);
    if SETS.into_iter().any(is) {
        Op::Set
    } else if REMOVES.into_iter().any(is) {
        Op::Remove
    } else {
        Op::Get
    }
}

fn separator(line: &[u8]) -> u8 {
    b"\t,;|".iter().copied().find(|byte| line.contains(byte)).unwrap_or(b',')
}

/// The fields of a line. One in quotes ends with them; a doubled quote inside stays doubled.
fn fields(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let (field, end) = match line.strip_prefix(b"\"") {
            Some(quoted) => {
                let length = quoted_len(quoted);
                let after = quoted.get(length + 1..).unwrap_or_default();
                let gap = memchr::memchr(separator, after).unwrap_or(after.len());
                (&quoted[..length], line.len() - after.len() + gap)
            }
            None => {
                let end = memchr::memchr(separator, line).unwrap_or(line.len());
                (line[..end].trim_ascii(), end)
            }
        };
        rest = line.get(end + 1..);
        Some(field)
    })
}

/// Bytes up to the quote that closes, or to the end.
fn quoted_len(quoted: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'"', &quoted[at..]) {
        at += found;
        if quoted.get(at + 1) != Some(&b'"') {
            return at;
        }
        at += 2;
    }
    quoted.len()
}

/// The meaning of a first line.
enum Named {
    Columns(Columns),
    /// It names columns, and none of them is the key.
    NoKey,
    Nothing,
}

fn named(line: &[u8], separator: u8) -> Named {
    const TIMES: [&str; 4] = ["time", "timestamp", "ts", "clock_time"];
    const KEYS: [&str; 11] = [
        "key",
        "obj_id",
        "object_id",
        "objid",
        "id",
        "obj",
        "object",
        "lbn",
        "name",
        "query",
        "url",
    ];
    const SIZES: [&str; 6] = ["size", "obj_size", "object_size", "bytes", "length", "len"];
    const OPS: [&str; 5] = ["op", "operation", "opcode", "cmd", "command"];
    const TTLS: [&str; 3] = ["ttl", "ttl_s", "expiry"];
    let place = |names: &[&str]| {
        fields(line, separator).take(COLUMNS_MAX).position(|field| {
            let word = field.strip_prefix(b"#").unwrap_or(field).trim_ascii();
            names.iter().any(|name| is_called(word, name))
        })
    };
    let (time, size, op, ttl) = (place(&TIMES), place(&SIZES), place(&OPS), place(&TTLS));
    match place(&KEYS) {
        Some(key) => Named::Columns(Columns { time, key, size, op, ttl }),
        None if time.or(size).or(op).or(ttl).is_some() => Named::NoKey,
        None => Named::Nothing,
    }
}

/// True for the same letters, whatever their case and with `-` for `_`.
fn is_called(word: &[u8], name: &str) -> bool {
    let folded = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    word.len() == name.len() && word.iter().map(folded).eq(name.bytes())
}

fn by_place(count: usize) -> Columns {
    let at = |column| (column < count).then_some(column);
    match count {
        0 | 1 => Columns::default(),
        _ => Columns { time: Some(0), key: 1, size: at(2), op: at(3), ttl: at(4) },
    }
}

/// True when the first lines of a text look like columns.
pub fn is_csv(lines: &[&[u8]]) -> bool {
    let Some(first) = lines.first() else { return false };
    let separator = separator(first);
    if let Named::Columns(_) = named(first, separator) {
        return true;
    }
    let count = fields(first, separator).count();
    let even = || lines.iter().all(|line| fields(line, separator).count() == count);
    let timed =
        || lines.iter().all(|line| fields(line, separator).next().and_then(seconds_ns).is_some());
    count > 1 && even() && timed()
}

/// `twitter`.
#[derive(Debug, Default)]
pub struct Twitter(Clock);

/// A line of `twitter`.
struct TwitterRow<'a> {
    time_s: u64,
    key: &'a [u8],
    /// Bytes of key and value.
    bytes: u64,
    op: &'a [u8],
    ttl_s: u64,
}

impl TwitterRow<'_> {
    fn of(line: &[u8]) -> Option<TwitterRow<'_>> {
        let (time, rest) = line.split_at(memchr::memchr(b',', line)?);
        let mut last = rest.get(1..)?.rsplitn(6, |byte| *byte == b',');
        let ttl_s = number(last.next()?)?;
        let op = last.next()?;
        let _client = last.next()?;
        let value_bytes = number(last.next()?)?;
        let key_bytes = number(last.next()?)?;
        let key = last.next()?;
        let bytes = key_bytes.saturating_add(value_bytes);
        Some(TwitterRow { time_s: number(time)?, key, bytes, op, ttl_s })
    }
}

impl Lines for Twitter {
    fn read(&mut self, line: &[u8], batch: &mut Vec<Request>) -> Result<(), &'static str> {
        if line.is_empty() {
            return Ok(());
        }
        let row = TwitterRow::of(line).ok_or("not the seven columns of Twitter's traces")?;
        if !is_twitter_op(row.op) {
            return Err("an operation that memcached does not have");
        }
        let op = op_of(row.op);
        let ttl_s = if op == Op::Set { ttl_of(row.ttl_s) } else { TTL_NONE };
        let time_s = self.0.since_first_s(row.time_s);
        batch.push(Request { key: key_of(row.key), time_s, ttl_s, bytes: bytes(row.bytes), op });
        Ok(())
    }
}

fn is_twitter_op(word: &[u8]) -> bool {
    const WORDS: [&[u8]; 11] = [
        b"get", b"gets", b"set", b"add", b"replace", b"cas", b"append", b"prepend", b"delete",
        b"incr", b"decr",
    ];
    WORDS.contains(&word)
}

/// True for a line of `twitter`.
pub fn is_twitter(line: &[u8]) -> bool {
    TwitterRow::of(line).is_some_and(|row| is_twitter_op(row.op))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::text_key;

    fn read(lines: &mut impl Lines, text: &str) -> Vec<Result<Request, &'static str>> {
        let mut out = Vec::new();
        for line in text.lines() {
            let mut batch = Vec::new();
            match lines.read(line.as_bytes(), &mut batch) {
                Ok(()) => out.extend(batch.into_iter().map(Ok)),
                Err(why) => out.push(Err(why)),
            }
        }
        out
    }

    fn csv(text: &str) -> Vec<Result<Request, &'static str>> {
        read(&mut Csv::of(text.as_bytes()).unwrap(), text)
    }

    /// Columns are found by name in any order, by any separator, in quotes or not; what is missing in a line
    /// is its default, and a value that cannot be read is reported.
    #[test]
    fn columns_by_name() {
        let key = text_key(b"a,b");
        let get = Request { time_s: 2, bytes: 7, ..Request::get(key) };
        assert_eq!(
            csv("Version,Obj-Id,TIME,op,obj_size,ttl\n\n1,x,10,GET,0,\n1,\"a,b\",12.5,read,7,0\n\
                1,\"a,b\" ,13,put,,60\n1,,13\n1,y,z\n1,9,11,delete,x\n1,9,12,2a,3,99999999999\n"),
            [
                Ok(Request::get(text_key(b"x"))),
                Ok(get),
                Ok(Request { time_s: 3, bytes: 1, ttl_s: 60, op: Op::Set, ..get }),
                Err("no key"),
                Err("the time is no number"),
                Err("the size is no number"),
                Ok(Request { key: 9, time_s: 3, bytes: 3, ..get }),
            ]
        );
        assert_eq!(csv("\n key\n7\n\"\"\n"), [Ok(Request::get(7)), Err("no key")]);
        assert!(Csv::of(b"time;size\n1;2").is_err());
    }

    /// Without a first line, the position of a column states its meaning.
    #[test]
    fn columns_by_place() {
        assert_eq!(csv("5\n6"), [Ok(Request::get(5)), Ok(Request::get(6))]);
        assert_eq!(csv("5\t6"), [Ok(Request::get(6))]);
        let last = Request { time_s: 1, ttl_s: 30, bytes: 9, op: Op::Set, ..Request::get(6) };
        assert_eq!(
            csv("4|6\n5|6|9|set|30\n"),
            [Ok(Request::get(6)), Ok(Request { bytes: 1, ttl_s: TTL_NONE, op: Op::Get, ..last })]
        );
        assert_eq!(csv("4|6|9|set|30\n5|6|9|set|30\n")[1], Ok(last));
    }

    /// Twitter's operations are distinguished, its keys may hold commas, and a TTL counts on a write only.
    #[test]
    fn twitter() {
        let text = "0,a:b,3,100,7,get,0\n1,k,k,1,2,7,set,3600\n2,5,4,6,7,incr,0\n3,5,1,0,7,delete,9\n\
            x,5,1,0,7,get,0\n3,5,1,0,7,peek,0\n3,5\n4,5,1,0,7,gets,88";
        let kk = Request {
            time_s: 1,
            ttl_s: 3600,
            bytes: 3,
            op: Op::Set,
            ..Request::get(text_key(b"k,k"))
        };
        let five = Request { time_s: 2, bytes: 10, op: Op::Set, ..Request::get(5) };
        assert_eq!(
            read(&mut Twitter::default(), text),
            [
                Ok(Request { bytes: 103, ..Request::get(text_key(b"a:b")) }),
                Ok(kk),
                Ok(five),
                Ok(Request { time_s: 3, bytes: 1, op: Op::Remove, ..five }),
                Err("not the seven columns of Twitter's traces"),
                Err("an operation that memcached does not have"),
                Err("not the seven columns of Twitter's traces"),
                Ok(Request { time_s: 4, bytes: 1, op: Op::Get, ..five }),
            ]
        );
    }
}
