//! An entry of the cache as a line of JSON, for people, for scripts, and for another cache.
//!
//! ```text
//! {"name":"www.example.","type":"A","class":"IN","dnssec_ok":false,"checking_disabled":false,"view":0,
//!  "generation":1,"ttl_s":299,"expires":1700000299,"rcode":"NOERROR","answers":2,"octets":70,
//!  "key":"…","value":"…"}
//! ```
//!
//! (On one line.) `key` and `value` are the bytes in the cache, in base64. A load reads only those
//! and `expires`; the other fields are for people. Each line is complete by itself, so scripts may
//! delete and reorder lines. Entries without an expiry have no `ttl_s` and no `expires`. Entries
//! whose key is a digest have no flags, view and generation.
//!
//! Bounds: [`LINE_BYTES_MAX`]. Cost: some microseconds an entry.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder::{OwnedEntry, Seconds, Ttl};
use larder_wire::dns::{Message, Section};
use serde_json::Value;

use crate::key::{Parts, STORED_HEAD_BYTES, question_of, rcode_of};
use crate::presentation::{push_class, push_name, push_rcode, push_type};

/// The longest line with its end. It has the longest key and value in base64 (44,032 bytes), the
/// longest name as text with doubled backslashes (some 1,300), and the other fields.
pub const LINE_BYTES_MAX: usize = 48 << 10;

/// The longest key of the engine.
const KEY_BYTES_MAX: usize = larder_wire::dns::query::KEY_BYTES_MAX;

/// Bytes of the digest of a long key, and its first byte.
const DIGEST_BYTES: usize = 33;
const DIGEST_MARK: u8 = 0xff;

/// Writes an entry as a line with its end, and replaces the content of `out`. Returns false for an
/// entry that is not a response, which operators need not see; then `out` is empty.
pub fn write(out: &mut String, entry: &OwnedEntry, now: Seconds) -> bool {
    out.clear();
    let (key, value) = (entry.key(), entry.value());
    let (Some((name, qtype, qclass)), Some(rcode)) = (question_of(value), rcode_of(value)) else {
        return false;
    };
    out.push_str("{\"name\":\"");
    let mut text = String::new();
    push_name(&mut text, name);
    // The only character of an escaped name that JSON must escape.
    out.push_str(&text.replace('\\', "\\\\"));
    out.push_str("\",\"type\":\"");
    push_type(out, qtype);
    out.push_str("\",\"class\":\"");
    push_class(out, qclass);
    out.push('"');
    // Writing to a string does not fail.
    if let Some(parts) = Parts::of(key) {
        let Parts { dnssec_ok, checking_disabled, view, generation, .. } = parts;
        let _ = write!(
            out,
            ",\"dnssec_ok\":{dnssec_ok},\"checking_disabled\":{checking_disabled},\"view\":{view},\
             \"generation\":{generation}"
        );
    }
    if let Some(Seconds(expires)) = entry.expires() {
        let ttl_s = expires.saturating_sub(now.0);
        let _ = write!(out, ",\"ttl_s\":{ttl_s},\"expires\":{expires}");
    }
    out.push_str(",\"rcode\":\"");
    push_rcode(out, rcode);
    let answers = Message::parse(&value[STORED_HEAD_BYTES..])
        .map_or(0, |message| message.record_count(Section::Answer));
    let _ = write!(out, "\",\"answers\":{answers},\"octets\":{},\"key\":\"", value.len());
    STANDARD.encode_string(key, out);
    out.push_str("\",\"value\":\"");
    STANDARD.encode_string(value, out);
    out.push_str("\"}\n");
    true
}

/// An entry from a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The remaining TTL; `None` if it has expired.
    pub ttl: Option<Ttl>,
}

/// Parses a line. The error says what is wrong with it.
pub fn read(line: &[u8], now: Seconds) -> Result<Read, &'static str> {
    let object: Value = serde_json::from_slice(line).map_err(|_| "it is no JSON")?;
    let bytes = |name| {
        let text = object.get(name).and_then(Value::as_str).ok_or("it has no key or no value")?;
        STANDARD.decode(text).map_err(|_| "its key or value is not base64")
    };
    let (key, value) = (bytes("key")?, bytes("value")?);
    let (name, qtype, qclass) = question_of(&value).ok_or("its value is no stored answer")?;
    let is_key_of_value = match Parts::of(&key) {
        Some(parts) => {
            parts.name.eq_ignore_ascii_case(name) && (parts.qtype, parts.qclass) == (qtype, qclass)
        }
        None => key.len() == DIGEST_BYTES && key.first() == Some(&DIGEST_MARK),
    };
    if !is_key_of_value || key.len() > KEY_BYTES_MAX {
        return Err("its key and its value are not of one question");
    }
    let ttl = match object.get("expires") {
        None => Some(Ttl::FOREVER),
        Some(expires) => {
            let expires = expires.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
            let left = expires.ok_or("its end is no time")?.checked_sub(now.0);
            left.filter(|left| *left > 0).map(Ttl::seconds)
        }
    };
    Ok(Read { key, value, ttl })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::key::extra;
    use larder::Cache;

    /// Key and value of a stored response without records, for `name` (in wire form) and type A.
    pub(crate) fn answer(name: &[u8], view: u16) -> (Vec<u8>, Vec<u8>) {
        let key = [&name.to_ascii_lowercase()[..], &[0, 1, 0, 1], &extra(true, false, view, 7)];
        let head = [0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        (key.concat(), [&head[..], name, &[0, 1, 0, 1]].concat())
    }

    fn cache() -> Cache {
        Cache::builder().budget(1 << 20).readers_max(1).build().unwrap()
    }

    /// A dumped entry has readable fields, and can be loaded into another cache.
    #[test]
    fn lines_come_back() {
        let cache = cache();
        let (key, value) = answer(b"\x03W.\"\x07example\0", 2);
        let mut writer = cache.writer();
        writer.insert(&key, &value, Ttl::seconds(60), Seconds(100)).unwrap();
        writer.flush().unwrap();
        let entry = cache.iter(Seconds(110)).next().unwrap();
        let mut line = String::new();
        assert!(write(&mut line, &entry, Seconds(110)));
        let start = "{\"name\":\"W\\\\.\\\\034.example.\",\"type\":\"A\",\"class\":\"IN\",\"dnssec_ok\":true,\
                     \"checking_disabled\":false,\"view\":2,\"generation\":7,\"ttl_s\":50,\"expires\":160,\
                     \"rcode\":\"NXDOMAIN\",\"answers\":0,\"octets\":37,\"key\":\"";
        assert!(line.starts_with(start), "{line}");
        assert!(line.ends_with("\"}\n") && line.len() < LINE_BYTES_MAX);
        let read_at = |now| read(line.as_bytes(), Seconds(now)).unwrap();
        assert_eq!(read_at(150), Read { key, value, ttl: Some(Ttl::seconds(10)) });
        assert_eq!(read_at(160).ttl, None);
    }

    /// The longest entry fits a line.
    #[test]
    fn the_longest_line() {
        let cache = Cache::builder().budget(64 << 20).readers_max(1).build().unwrap();
        let mut name = Vec::new();
        for length in [63, 63, 63, 48] {
            name.push(length);
            name.extend(std::iter::repeat_n(0xff, usize::from(length)));
        }
        name.push(0);
        let (key, mut value) = answer(&name, 0);
        value.resize(cache.value_bytes_max(key.len()), 0xff);
        let mut writer = cache.writer();
        writer.insert(&key, &value, Ttl::FOREVER, Seconds(1)).unwrap();
        writer.flush().unwrap();
        let mut line = String::new();
        assert!(write(&mut line, &cache.iter(Seconds(1)).next().unwrap(), Seconds(1)));
        assert!((44_000..LINE_BYTES_MAX).contains(&line.len()), "{}", line.len());
        assert_eq!(read(line.as_bytes(), Seconds(1)).unwrap().ttl, Some(Ttl::FOREVER));
    }

    /// Damaged lines, and lines whose key does not match their value, are refused with a reason.
    #[test]
    fn wrong_lines_are_refused() {
        let encoded = |key: &[u8], value: &[u8]| {
            let (key, value) = (STANDARD.encode(key), STANDARD.encode(value));
            format!("{{\"key\":\"{key}\",\"value\":\"{value}\",\"expires\":20}}")
        };
        let (key, value) = answer(b"\x01a\0", 0);
        let digest = [vec![0xff], vec![1; 32]].concat();
        assert!(read(encoded(&key, &value).as_bytes(), Seconds(1)).is_ok());
        assert!(read(encoded(&digest, &value).as_bytes(), Seconds(1)).is_ok());
        let other = answer(b"\x01b\0", 0).0;
        for (line, what) in [
            ("{".to_owned(), "it is no JSON"),
            ("{}".to_owned(), "it has no key or no value"),
            ("{\"key\":\"*\"}".to_owned(), "its key or value is not base64"),
            (encoded(&key, &value[..9]), "its value is no stored answer"),
            (encoded(&other, &value), "its key and its value are not of one question"),
            (encoded(&digest[..32], &value), "its key and its value are not of one question"),
            (encoded(&key, &value).replace("20", "\"x\""), "its end is no time"),
        ] {
            assert_eq!(read(line.as_bytes(), Seconds(1)), Err(what), "{line}");
        }
    }
}
