//! Empty strings in IPFIX records, as the parser can read them.
//!
//! A field of variable length may have no bytes (RFC 7011, section 7), and exporters write so what a flow does
//! not have: a host name, a user. The parser refuses such a record and, with it, the rest of its set. So each
//! empty field gets one byte of zero, which the parser leaves out of strings.
//!
//! Bounds: [`TEMPLATES_MAX`] templates, those with fields of variable length.
//! Cost: nothing for a set whose template has none; else a step for each field, and a copy of the message if
//! one is empty.

use std::borrow::Cow;
use std::collections::HashMap;

use super::check::{DATA_SET_MIN, IPFIX_HEADER_BYTES, SET_HEADER_BYTES, VARIABLE, u16_at};
use super::collect::TEMPLATES_MAX;

/// The templates of an exporter that have fields of variable length.
#[derive(Debug, Default)]
pub struct Templates {
    /// Lengths of the fields, by template.
    lengths: HashMap<u16, Vec<u16>>,
}

impl Templates {
    /// The message with a byte in each empty field; as it is where there is none, or where the message would
    /// become too long. The message has passed [`check`](super::check::check).
    pub fn filled<'a>(&mut self, message: &'a [u8]) -> Cow<'a, [u8]> {
        let mut filled: Option<Vec<u8>> = None;
        let mut at = IPFIX_HEADER_BYTES;
        while let (Some(number), Some(len)) = (u16_at(message, at), u16_at(message, at + 2)) {
            let Some(set) = message.get(at..at + usize::from(len)) else { break };
            let body = set.get(SET_HEADER_BYTES..).unwrap_or_default();
            let set_filled = match (number, self.lengths.get(&number)) {
                (2 | 3, _) => {
                    self.learn(number == 3, body);
                    None
                }
                (_, Some(lengths)) => filled_set(lengths, body),
                _ => None,
            };
            match (set_filled, &mut filled) {
                (None, None) => {}
                (None, Some(filled)) => filled.extend_from_slice(set),
                (Some(body), _) => {
                    let out = filled.get_or_insert_with(|| message[..at].to_vec());
                    out.extend_from_slice(&number.to_be_bytes());
                    out.extend_from_slice(&((body.len() + SET_HEADER_BYTES) as u16).to_be_bytes());
                    out.extend_from_slice(&body);
                }
            }
            at += usize::from(len).max(SET_HEADER_BYTES);
        }
        match filled {
            Some(mut filled) if filled.len() <= usize::from(u16::MAX) => {
                let len = filled.len() as u16;
                filled[2..4].copy_from_slice(&len.to_be_bytes());
                Cow::Owned(filled)
            }
            _ => Cow::Borrowed(message),
        }
    }

    /// Remembers the templates of a set.
    fn learn(&mut self, has_scope: bool, mut set: &[u8]) {
        while let (Some(template), Some(count)) = (u16_at(set, 0), u16_at(set, 2)) {
            if template < DATA_SET_MIN {
                return;
            }
            let mut fields = set.get(if has_scope { 6 } else { 4 }..).unwrap_or_default();
            let mut lengths = Vec::new();
            for _ in 0..count {
                let (Some(kind), Some(len)) = (u16_at(fields, 0), u16_at(fields, 2)) else {
                    return;
                };
                lengths.push(len);
                fields = fields.get(if kind & 0x8000 == 0 { 4 } else { 8 }..).unwrap_or_default();
            }
            if !lengths.contains(&VARIABLE) {
                self.lengths.remove(&template);
            } else {
                if self.lengths.len() >= TEMPLATES_MAX
                    && !self.lengths.contains_key(&template)
                    && let Some(other) = self.lengths.keys().next().copied()
                {
                    self.lengths.remove(&other);
                }
                self.lengths.insert(template, lengths);
            }
            set = fields;
        }
    }
}

/// The records of a set with their empty fields filled; `None` if no field is empty.
fn filled_set(lengths: &[u16], set: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut rest, mut has_empty) = (set, false);
    'records: while !rest.is_empty() {
        let (mut record, start) = (rest, out.len());
        for &len in lengths {
            let (head, len) = match (len, record.first()) {
                (VARIABLE, Some(255)) => (3, u16_at(record, 1).unwrap_or(0)),
                (VARIABLE, Some(&short)) => (1, short.into()),
                (len, _) => (0, len),
            };
            let Some((field, after)) = record.split_at_checked(head + usize::from(len)) else {
                // Padding, or a record that is cut.
                out.truncate(start);
                break 'records;
            };
            if head > 0 && len == 0 {
                has_empty = true;
                out.extend_from_slice(&[1, 0]);
            } else {
                out.extend_from_slice(field);
            }
            record = after;
        }
        rest = record;
    }
    has_empty.then(|| {
        out.extend_from_slice(rest);
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sets: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![0; IPFIX_HEADER_BYTES];
        for (number, body) in sets {
            message.extend_from_slice(&number.to_be_bytes());
            message.extend_from_slice(&(body.len() as u16 + 4).to_be_bytes());
            message.extend_from_slice(body);
        }
        let len = message.len() as u16;
        message[..4].copy_from_slice(&[0, 10, (len >> 8) as u8, len as u8]);
        message
    }

    /// A byte of 1, a string, a string of an enterprise.
    const TEMPLATE: &[u8] =
        &[1, 0, 0, 3, 0, 4, 0, 1, 0, 82, 255, 255, 128, 1, 255, 255, 0, 0, 126, 217];

    /// Empty fields in the short and the long form get one byte; other records, other sets and padding stay.
    #[test]
    fn empty_fields_get_a_byte() {
        let mut templates = Templates::default();
        let first = message(&[(2, TEMPLATE), (256, &[7, 1, b'a', 2, b'b', b'c', 0])]);
        assert!(matches!(templates.filled(&first), Cow::Borrowed(_)), "none is empty");
        let second = message(&[
            (999, &[1, 2, 3]),
            (256, &[7, 0, 1, b'x', 8, 255, 0, 0, 255, 0, 1, b'y', 0, 0]),
            (998, &[4]),
        ]);
        let expected = message(&[
            (999, &[1, 2, 3]),
            (256, &[7, 1, 0, 1, b'x', 8, 1, 0, 255, 0, 1, b'y', 0, 0]),
            (998, &[4]),
        ]);
        // What is left after two records begins a third one that is cut.
        assert_eq!(templates.filled(&second), expected);
        let fixed = message(&[(2, &[1, 0, 0, 1, 0, 4, 0, 1]), (256, &[7, 0, 0])]);
        assert!(
            matches!(templates.filled(&fixed), Cow::Borrowed(_)),
            "the template is another one"
        );
    }

    /// A message that would be too long stays as it is, and templates are bounded.
    #[test]
    fn what_would_be_too_long_stays() {
        let mut templates = Templates::default();
        templates.filled(&message(&[(2, TEMPLATE)]));
        let records = [7, 0, 0].repeat(21_000);
        let long = message(&[(256, &records)]);
        assert!(matches!(templates.filled(&long), Cow::Borrowed(_)));
        for number in 300..300 + 2 * TEMPLATES_MAX as u16 {
            let template = [&number.to_be_bytes(), &TEMPLATE[2..]].concat();
            templates.filled(&message(&[(2, &template)]));
        }
        assert_eq!(templates.lengths.len(), TEMPLATES_MAX);
    }
}
