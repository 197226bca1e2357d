//! DNS logs: Zeek's `dns.log`, as a table or as JSON lines, and the one of `larder annotate -d`.
//!
//! A row is a lookup of what was asked, at the time of the question, and states how long the response may be
//! kept: the least of its TTLs. A row without a question asks nothing and counts as nothing.
//!
//! A resolver's cache is asked for a name, a type and a class, so that is the key of a row of Zeek's log; ours
//! has names only, and names without a query (multicast DNS announces them), which are left out.
//!
//! A table names its marks and columns in lines that begin with `#`, which concatenated logs repeat. JSON may
//! have its times in seconds, in milliseconds (from 10^11 on) or as ISO 8601.

use larder_wire::times::iso_ns;
use larder_wire::zeek::Header;
use serde_json::{Map, Value};

use super::digits::{Clock, number, seconds_ns};
use super::text::Lines;
use super::{Format, text_key};
use crate::request::{Request, TTL_NONE};

/// What of a row is the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Name, type and class.
    Query,
    /// The name alone.
    Name,
}

/// The key of a query; the name in lower case.
pub fn query_key(name: &[u8], qtype: u16, qclass: u16, scratch: &mut Vec<u8>) -> u64 {
    scratch.clear();
    scratch.extend(name.iter().map(u8::to_ascii_lowercase));
    scratch.extend_from_slice(&qtype.to_be_bytes());
    scratch.extend_from_slice(&qclass.to_be_bytes());
    text_key(scratch)
}

/// The columns that are read, and keys of the JSON form, in the order of [`Row`].
const COLUMNS: [&str; 6] = ["ts", "query", "qtype", "qclass", "TTLs", "source"];

/// A DNS log of either form.
#[derive(Debug)]
pub struct Zeek {
    key: Key,
    header: Header,
    /// Where [`COLUMNS`] are; none before `#fields`.
    columns: [Option<usize>; COLUMNS.len()],
    clock: Clock,
    scratch: Vec<u8>,
}

/// What is read of a row.
struct Row<'a> {
    time_ns: i64,
    query: &'a [u8],
    qtype: u16,
    qclass: u16,
    ttl_s: u32,
}

impl Zeek {
    /// Reads a log from its first line.
    pub fn new(key: Key) -> Zeek {
        Zeek {
            key,
            header: Header::default(),
            columns: [None; COLUMNS.len()],
            clock: Clock::default(),
            scratch: Vec::new(),
        }
    }

    /// The row of a table's line; `None` where it asks nothing.
    fn row<'a>(&self, line: &'a [u8]) -> Result<Option<Row<'a>>, &'static str> {
        let Header { separator, set_separator, empty_field, unset_field, fields } = &self.header;
        if fields.is_empty() {
            return Err("a row before any #fields");
        }
        let mut found: [Option<&[u8]>; COLUMNS.len()] = [None; COLUMNS.len()];
        let mut width = 0;
        for (at, value) in line.split(|byte| byte == separator).enumerate() {
            if let Some(known) = self.columns.iter().position(|column| *column == Some(at)) {
                found[known] = Some(value).filter(|value| *value != unset_field);
            }
            width = at + 1;
        }
        if width != fields.len() {
            return Err("not as many columns as #fields says");
        }
        let [time, query, qtype, qclass, ttls, source] = found;
        let Some(query) = query.filter(|_| source != Some(b"mdns")) else { return Ok(None) };
        let ttls = ttls.filter(|ttls| *ttls != empty_field);
        let ttl_s = match ttls {
            None => TTL_NONE,
            Some(ttls) => ttls
                .split(|byte| byte == set_separator)
                .filter(|ttl| *ttl != unset_field)
                .try_fold(TTL_NONE, |least, ttl| Some(least.min(whole_seconds(seconds_ns(ttl)?))))
                .ok_or("a TTL is no number")?,
        };
        let number = |value: Option<&[u8]>| {
            value.and_then(number).and_then(|number| u16::try_from(number).ok()).unwrap_or(0)
        };
        Ok(Some(Row {
            time_ns: time.and_then(seconds_ns).ok_or("the time is no number")?,
            query: if query == empty_field { b"" } else { query },
            qtype: number(qtype),
            qclass: number(qclass),
            ttl_s,
        }))
    }

    fn push(&mut self, row: Row<'_>, batch: &mut Vec<Request>) {
        let (qtype, qclass) = match self.key {
            Key::Query => (row.qtype, row.qclass),
            Key::Name => (0, 0),
        };
        let key = query_key(row.query, qtype, qclass, &mut self.scratch);
        let time_s = self.clock.since_first(row.time_ns);
        batch.push(Request { time_s, ttl_s: row.ttl_s, ..Request::get(key) });
    }
}

impl Lines for Zeek {
    fn read(&mut self, line: &[u8], batch: &mut Vec<Request>) -> Result<(), &'static str> {
        match line.first() {
            None => {}
            Some(b'#') => {
                self.header.read(line);
                self.columns = self.header.find(&COLUMNS);
            }
            Some(b'{') if self.header.fields.is_empty() => {
                let row: Map<String, Value> =
                    serde_json::from_slice(line).map_err(|_| "no JSON")?;
                if let Some(row) = json_row(&row)? {
                    self.push(row, batch);
                }
            }
            Some(_) => {
                if let Some(row) = self.row(line)? {
                    self.push(row, batch);
                }
            }
        }
        Ok(())
    }
}

/// The row of a JSON line; `None` where it asks nothing.
fn json_row(row: &Map<String, Value>) -> Result<Option<Row<'_>>, &'static str> {
    let [time, query, qtype, qclass, ttls, _] = COLUMNS.map(|column| row.get(column));
    let Some(query) = query.and_then(Value::as_str) else { return Ok(None) };
    let ttl_s = match ttls.and_then(Value::as_array) {
        None => TTL_NONE,
        Some(ttls) => ttls
            .iter()
            .try_fold(TTL_NONE, |least, ttl| Some(least.min(ttl.as_f64()? as u32)))
            .ok_or("a TTL is no number")?,
    };
    let number = |value: Option<&Value>| {
        value.and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok()).unwrap_or(0)
    };
    Ok(Some(Row {
        time_ns: time.and_then(json_time_ns).ok_or("no time")?,
        query: query.as_bytes(),
        qtype: number(qtype),
        qclass: number(qclass),
        ttl_s,
    }))
}

/// Seconds, milliseconds or ISO 8601. A cast of a float stays within bounds.
fn json_time_ns(time: &Value) -> Option<i64> {
    match (time.as_f64(), time.as_str()) {
        (Some(milliseconds), _) if milliseconds >= 1e11 => Some((milliseconds * 1e6) as i64),
        (Some(seconds), _) => Some((seconds * 1e9) as i64),
        (None, text) => iso_ns(text?.as_bytes()),
    }
}

/// Seconds of nanoseconds, in 32 bits and below [`TTL_NONE`].
fn whole_seconds(ns: i64) -> u32 {
    u32::try_from(ns / 1_000_000_000).unwrap_or(TTL_NONE - 1).min(TTL_NONE - 1)
}

/// The format of a text that begins as a log does; `None` where it does not.
pub fn detect(head: &[u8]) -> Option<Result<Format, String>> {
    if head.starts_with(b"{") {
        let has_query = memchr::memmem::find(head, b"\"query\"").is_some();
        return Some(match has_query {
            true => Ok(Format::ZeekDns),
            false => Err("these are JSON lines, but not those of a dns.log".to_owned()),
        });
    }
    if !head.starts_with(b"#separator") && !head.starts_with(b"#fields") {
        return None;
    }
    let path = head
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"#path"))
        .map(<[u8]>::trim_ascii);
    Some(match path {
        Some(b"dns") | None => Ok(Format::ZeekDns),
        Some(b"larder_dns") => Ok(Format::DnsLog),
        Some(other) => {
            let other = other.escape_ascii().to_string();
            Err(format!("this is Zeek's {other} log, which has no DNS questions: name a dns.log"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n\
        #unset_field\t-\n#path\tdns\n#fields\tts\tuid\tquery\tqtype\tqclass\tTTLs\n\
        #types\ttime\tstring\tstring\tcount\tcount\tvector[interval]\n";

    fn read(key: Key, text: &str) -> Vec<Result<Request, &'static str>> {
        let (mut zeek, mut out) = (Zeek::new(key), Vec::new());
        for line in text.lines() {
            let mut batch = Vec::new();
            match zeek.read(line.as_bytes(), &mut batch) {
                Ok(()) => out.extend(batch.into_iter().map(Ok)),
                Err(why) => out.push(Err(why)),
            }
        }
        out
    }

    fn key(name: &str, qtype: u16, qclass: u16) -> u64 {
        query_key(name.as_bytes(), qtype, qclass, &mut Vec::new())
    }

    /// A table's rows give name, type and class in one key whatever the case, the least TTL, and seconds
    /// since the first; rows that ask nothing are nothing, others that cannot be read are reported.
    #[test]
    fn table() {
        let rows = "10.5\tC1\tWWW.example\t1\t1\t300.000000,20.500000\n\
            11.6\tC1\twww.EXAMPLE\t28\t1\t-\n\
            11.7\tC1\t-\t-\t-\t-\n\
            9.0\tC1\t(empty)\t2\t1\t(empty)\n\
            x\tC1\ta\t1\t1\t-\n\
            12\tC1\ta\t1\t1\tsoon\n\
            12\tC1\ta\t1\t1\n\
            12\tC1\ta\t1\t1\t0.000000\t\n\
            12.5\tC1\ta\t1\t1\t0.000000\n";
        let at = |time_s, ttl_s, key| Ok(Request { time_s, ttl_s, ..Request::get(key) });
        let expected = [
            at(0, 20, key("www.example", 1, 1)),
            at(1, TTL_NONE, key("www.example", 28, 1)),
            at(1, TTL_NONE, key("", 2, 1)),
            Err("the time is no number"),
            Err("a TTL is no number"),
            Err("not as many columns as #fields says"),
            Err("not as many columns as #fields says"),
            at(2, 0, key("a", 1, 1)),
        ];
        assert_eq!(read(Key::Query, &[HEAD, rows].concat()), expected);
        assert_eq!(read(Key::Query, rows)[0], Err("a row before any #fields"));
    }

    /// The marks are those that the header names, and a second header counts from there on.
    #[test]
    fn headers_rule() {
        let text = "#separator ,\n#set_separator,|\n#unset_field,NULL\n#fields,query,TTLs,ts\n\
            a,5.0|4.0|NULL,1\n-,NULL,2\n#separator \\x3b\n#fields;ts;query\n7;b\n";
        let at =
            |time_s, ttl_s, name| Ok(Request { time_s, ttl_s, ..Request::get(key(name, 0, 0)) });
        let expected = [at(0, 4, "a"), at(1, TTL_NONE, "-"), at(6, TTL_NONE, "b")];
        assert_eq!(read(Key::Query, text), expected);
    }

    /// JSON rows say the same as rows of a table, with times in any of Zeek's three forms.
    #[test]
    fn json() {
        let text = "{\"ts\":1521911720.8,\"query\":\"A.example\",\"qtype\":1,\"qclass\":1,\"TTLs\":[60.0,7]}\n\
            {\"ts\":1521911722865,\"query\":\"a.example\"}\n\
            {\"ts\":\"2018-03-24T17:15:24.865716Z\",\"query\":\"a.example\",\"qtype\":1}\n\
            {\"ts\":1521911725,\"uid\":\"x\"}\n{\"ts\":[],\"query\":\"a\"}\n{\"ts\":1,\"query\":\n\
            {\"ts\":1521911725,\"query\":\"a\",\"TTLs\":[\"x\"]}\n";
        let at = |time_s, ttl_s, key| Ok(Request { time_s, ttl_s, ..Request::get(key) });
        let expected = [
            at(0, 7, key("a.example", 1, 1)),
            at(2, TTL_NONE, key("a.example", 0, 0)),
            at(4, TTL_NONE, key("a.example", 1, 0)),
            Err("no time"),
            Err("no JSON"),
            Err("a TTL is no number"),
        ];
        assert_eq!(read(Key::Query, text), expected);
    }

    /// In our own log the name alone is the key, and what multicast DNS announced was not asked for.
    #[test]
    fn own_log() {
        let text = "#fields\tts\tsource\tquery\tTTLs\n1.5\tdns_pair\ta\t9.000000\n2.5\tmdns\tb.local\t9.0\n";
        let expected = Request { ttl_s: 9, ..Request::get(key("a", 0, 0)) };
        assert_eq!(read(Key::Name, text), [Ok(expected)]);
    }
}
