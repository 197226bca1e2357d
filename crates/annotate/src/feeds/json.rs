//! JSON lines: reads a few values of an object, and adds a few keys to it.
//!
//! A line is read once, without recursion; values are not parsed, and borrowed from the line.
//! Adding keys changes only the place before the last brace.

use std::borrow::Cow;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{ANSWERS_MAX, Value};
use crate::format::ecs::write_json_string;

/// Finds the values of `keys` at the top of a JSON object, without parsing them. `None` when `json`
/// is no object, or is damaged, or has something after it. The last of several equal keys counts.
pub(crate) fn pick<'a, const N: usize>(
    json: &'a [u8],
    keys: &[&str; N],
) -> Option<[Option<&'a RawValue>; N]> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let found = reader.deserialize_map(Picker { keys }).ok()?;
    reader.end().ok()?;
    Some(found)
}

struct Picker<'k, const N: usize> {
    keys: &'k [&'k str; N],
}

impl<'a, const N: usize> Visitor<'a> for Picker<'_, N> {
    type Value = [Option<&'a RawValue>; N];

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(position) = map.next_key_seed(Key { keys: self.keys })? {
            match position {
                Some(position) => found[position] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Reads a key as its position among the known ones.
struct Key<'k> {
    keys: &'k [&'k str],
}

impl<'a> serde::de::DeserializeSeed<'a> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.keys.iter().position(|known| *known == key))
    }
}

/// The text of a JSON string; `None` for every other kind of value.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// The bytes of a JSON value as written: the digits of a number.
pub(crate) fn raw_bytes(raw: Option<&RawValue>) -> Option<&[u8]> {
    raw.map(|raw| raw.get().as_bytes())
}

/// The elements of a JSON array, [`ANSWERS_MAX`] at most; none for another kind of value.
pub(crate) fn items(raw: &RawValue) -> Vec<&RawValue> {
    let mut items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    items.truncate(ANSWERS_MAX);
    items
}

/// Adds `keys` to a line with one JSON object, before its last brace; all other bytes stay. The
/// caller has checked by [`pick`] that the line is an object. Unset values add nothing.
pub(crate) fn splice(line: &[u8], keys: &[(&str, Value<'_>)], out: &mut Vec<u8>) {
    let Some(brace) = line.iter().rposition(|&byte| byte == b'}') else {
        out.extend_from_slice(line);
        return;
    };
    out.extend_from_slice(&line[..brace]);
    let mut empty = line[..brace].trim_ascii() == b"{";
    for (key, value) in keys {
        if *value == Value::Unset {
            continue;
        }
        if !empty {
            out.push(b',');
        }
        empty = false;
        write_json_string(key.as_bytes(), out);
        out.push(b':');
        write_json_value(value, out);
    }
    out.extend_from_slice(&line[brace..]);
}

fn write_json_value(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Unset => out.extend_from_slice(b"null"),
        Value::Text(text) => write_json_string(text, out),
        Value::Count(count) => out.extend_from_slice(count.to_string().as_bytes()),
        Value::Bool(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
        Value::List(texts) => {
            out.push(b'[');
            for (position, text) in texts.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_json_string(text, out);
            }
            out.push(b']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Added keys are in the object, in an empty one without a comma, and no byte of the line
    /// changes.
    #[test]
    fn splice_keeps_the_line() {
        let keys =
            [("a", Value::Unset), ("b.c", Value::Text(b"x\"\xff")), ("d", Value::Bool(true))];
        for (line, expected) in [
            (&b"{}\n"[..], &b"{\"b.c\":\"x\\\"\\\\xff\",\"d\":true}\n"[..]),
            (b" { } ", b" { \"b.c\":\"x\\\"\\\\xff\",\"d\":true} "),
            (b"{\"k\": {}}\r\n", b"{\"k\": {},\"b.c\":\"x\\\"\\\\xff\",\"d\":true}\r\n"),
        ] {
            let mut out = Vec::new();
            splice(line, &keys, &mut out);
            assert_eq!(out, expected);
        }
    }

    proptest! {
        /// For any bytes of a name the line is still JSON, with its former content.
        #[test]
        fn spliced_line_is_json(text in proptest::collection::vec(any::<u8>(), 0..40), number: u64) {
            let mut out = Vec::new();
            let list = [text.as_slice(), b"second"];
            let keys =
                [("t", Value::Text(&text)), ("l", Value::List(&list)), ("n", Value::Count(number))];
            splice(b"{\"old\":[1,{\"x\":\"}\"}]}", &keys, &mut out);
            let read: serde_json::Value = serde_json::from_slice(&out).expect("the line is JSON");
            let bytes = larder_wire::Name::from_canonical(&text).to_string();
            prop_assert_eq!(&read["old"], &serde_json::json!([1, {"x": "}"}]));
            prop_assert_eq!(&read["t"], &serde_json::json!(bytes));
            prop_assert_eq!(&read["l"], &serde_json::json!([bytes, "second"]));
            prop_assert_eq!(&read["n"], &serde_json::json!(number));
        }
    }
}
