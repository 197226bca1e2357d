//! A stored response: bytes in the engine, read in place.
//!
//! ```text
//! response   88 bytes of numbers | URL | tags | status line | fields | Content-Length | body, if it is short
//! choice     kind, generation | names of the fields that select a variant, one a line
//! unshared   kind: responses are not shared, or too long to be stored; each client fetches alone
//! ```
//!
//! The headers are in their final form: a hit copies them and appends `Age` and `Cache-Status`.
//! `Kept::read` checks lengths once; invalid bytes are a miss.
//!
//! Bounds: 64 KiB of URL and headers each; a record is one value of the engine, so 32 KiB with its
//! body. Cost: reading is some ten loads.

use std::ops::Range;

use crate::Field;
use crate::cacheability::{Life, Stored, Validators};
use crate::directives::ResponseDirectives;

/// Bytes of numbers.
const NUMBERS: usize = 88;
/// No number.
const NONE: u32 = u32::MAX;

const RESPONSE: u8 = 1;
const CHOICE: u8 = 2;
const UNSHARED: u8 = 3;
const TOO_LONG: u8 = 4;

/// The place of a body that is not in its record: a number from [`crate::bodies::Bodies`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BodyId(pub u64);

/// A record that was read.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one look-up")]
pub enum Record<'a> {
    /// A response.
    Response(Kept<'a>),
    /// More than the URL selects the response.
    Choice(Choice<'a>),
    /// Responses are not shared.
    Unshared,
    /// Responses are not stored: they are longer than memory allows.
    TooLong,
}

/// The fields that select a variant.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// Distinguishes it from the choice before.
    pub generation: u64,
    names: &'a str,
}

impl<'a> Choice<'a> {
    /// Names of fields, in lower case.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.names.lines()
    }
}

/// A stored response.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a> {
    /// The record itself.
    pub bytes: &'a [u8],
    /// How it may be used.
    pub life: Life,
    /// Its validators.
    pub validators: Validators<'a>,
    /// See [`crate::key::push_url`].
    pub url: &'a [u8],
    /// Bytes of the body; `None`: not known yet.
    pub body_bytes: Option<u64>,
    /// The place of the body; `None`: it is in the record.
    pub body_id: Option<BodyId>,
    /// Its number among all responses, writes and purges.
    pub serial: u64,
    /// Words of its tags, eight bytes each.
    tags: &'a [u8],
    /// The headers without the empty line.
    head: &'a [u8],
    status_bytes: usize,
    fields_bytes: usize,
    /// The body, where it is in the record.
    pub body: &'a [u8],
}

impl<'a> Kept<'a> {
    /// Status line, fields and `Content-Length`, where that is known; without the empty line.
    pub fn head(&self) -> &'a [u8] {
        self.head
    }

    /// The status line.
    pub fn status_line(&self) -> &'a [u8] {
        &self.head[..self.status_bytes]
    }

    /// The fields alone, without `Content-Length`.
    pub fn field_lines(&self) -> &'a [u8] {
        &self.head[self.status_bytes..][..self.fields_bytes]
    }

    /// The fields.
    pub fn fields(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        fields_of(self.field_lines())
    }

    /// Words of its tags.
    pub fn tags(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.tags.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")))
    }

    /// True where it has any.
    pub fn has_tags(&self) -> bool {
        !self.tags.is_empty()
    }
}

/// The ranges of names and values of fields in lines that larder wrote: `Name: value`, CRLF.
fn spans(lines: &[u8]) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + use<'_> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let line = &lines[start..];
        let end = start + memchr::memmem::find(line, b"\r\n")?;
        let colon = start + memchr::memchr(b':', line)?;
        let found = (start..colon, (colon + 2).min(end)..end);
        start = end + 2;
        (colon < end).then_some(found)
    })
}

/// The fields of such lines.
pub fn fields_of(lines: &[u8]) -> impl Iterator<Item = Field<'_>> {
    spans(lines).filter_map(|(name, value)| {
        Some(Field { name: std::str::from_utf8(&lines[name]).ok()?, value: &lines[value] })
    })
}

/// The parts of a record of a response.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// How the response may be used.
    pub stored: &'a Stored,
    /// See [`Kept::url`].
    pub url: &'a [u8],
    /// See [`Kept::serial`].
    pub serial: u64,
    /// Words of its tags.
    pub tags: &'a [u64],
    /// Its status line.
    pub status_line: &'a [u8],
    /// Its fields, each a line, without `Content-Length`.
    pub field_lines: &'a [u8],
    /// Bytes of the body, if they are known.
    pub body_bytes: Option<u64>,
    /// The place of the body; `None`: it follows.
    pub body_id: Option<BodyId>,
}

const PUBLIC: u16 = 1;
const PRIVATE: u16 = 1 << 1;
const NO_STORE: u16 = 1 << 2;
const NO_CACHE: u16 = 1 << 3;
const MUST_REVALIDATE: u16 = 1 << 4;
const PROXY_REVALIDATE: u16 = 1 << 5;
const MUST_UNDERSTAND: u16 = 1 << 6;
const HEURISTIC: u16 = 1 << 7;
const BODY_ELSEWHERE: u16 = 1 << 8;
const LENGTH_UNKNOWN: u16 = 1 << 9;
const BY_RULE: u16 = 1 << 10;

/// Appends the record of a response, up to the body. False, and nothing appended, where a part is
/// too long for a record.
pub fn push_response(out: &mut Vec<u8>, parts: &Parts<'_>) -> bool {
    let Parts { stored, url, tags, status_line, field_lines, .. } = *parts;
    let mut length_line = Vec::new();
    if let Some(bytes) = parts.body_bytes.filter(|_| has_length(stored.life.status)) {
        length_line.extend_from_slice(format!("Content-Length: {bytes}\r\n").as_bytes());
    }
    let head_bytes = status_line.len() + field_lines.len() + length_line.len();
    let longest = url.len().max(head_bytes).max(tags.len() * 8);
    if longest > usize::from(u16::MAX) {
        return false;
    }
    let life = &stored.life;
    let said = &life.directives;
    let start = out.len();
    let word16 =
        |out: &mut Vec<u8>, word: usize| out.extend_from_slice(&(word as u16).to_le_bytes());
    let word32 = |out: &mut Vec<u8>, word: u32| out.extend_from_slice(&word.to_le_bytes());
    let number = |number: Option<u64>| number.map_or(NONE, |it| it.min(u64::from(NONE - 1)) as u32);
    out.extend_from_slice(&[RESPONSE, 0]);
    word16(out, usize::from(life.status));
    word16(out, usize::from(bits(parts)));
    word16(out, tags.len());
    word32(out, number(Some(life.lifetime_s)));
    word32(out, number(Some(life.initial_age_s)));
    out.extend_from_slice(&life.response_s.to_le_bytes());
    for said_s in
        [said.stale_while_revalidate_s, said.stale_if_error_s, said.max_age_s, said.s_maxage_s]
    {
        word32(out, number(said_s));
    }
    word16(out, url.len());
    word16(out, status_line.len());
    word16(out, field_lines.len());
    word16(out, head_bytes);
    for name in [&b"etag"[..], b"last-modified", b"date"] {
        let is_known = match name {
            b"etag" => stored.etag.is_some(),
            b"last-modified" => stored.last_modified.is_some(),
            _ => true,
        };
        let found = spans(field_lines)
            .find(|(it, _)| is_known && field_lines[it.clone()].eq_ignore_ascii_case(name));
        let value = found.map_or(0..0, |(_, value)| value);
        word16(out, value.start);
        word16(out, value.len());
    }
    word32(out, 0);
    out.extend_from_slice(&parts.body_bytes.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&parts.body_id.map_or(0, |id| id.0).to_le_bytes());
    out.extend_from_slice(&parts.serial.to_le_bytes());
    debug_assert_eq!(out.len() - start, NUMBERS);
    out.extend_from_slice(url);
    tags.iter().for_each(|tag| out.extend_from_slice(&tag.to_le_bytes()));
    out.extend_from_slice(status_line);
    out.extend_from_slice(field_lines);
    out.extend_from_slice(&length_line);
    true
}

/// The words of a record that are true or false.
fn bits(parts: &Parts<'_>) -> u16 {
    let life = &parts.stored.life;
    let said = &life.directives;
    let bits = [
        (said.is_public, PUBLIC),
        (said.is_private, PRIVATE),
        (said.no_store, NO_STORE),
        (said.no_cache, NO_CACHE),
        (said.must_revalidate, MUST_REVALIDATE),
        (said.proxy_revalidate, PROXY_REVALIDATE),
        (said.must_understand, MUST_UNDERSTAND),
        (life.is_heuristic, HEURISTIC),
        (parts.body_id.is_some(), BODY_ELSEWHERE),
        (parts.body_bytes.is_none(), LENGTH_UNKNOWN),
        (life.is_by_rule, BY_RULE),
    ];
    bits.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, bit)| all | bit)
}

/// True where a response with this status states the length of its body (RFC 9110, section 8.6).
pub fn has_length(status: u16) -> bool {
    status >= 200 && status != 204 && status != 304
}

/// Appends the record of a choice.
pub fn push_choice<'a>(out: &mut Vec<u8>, generation: u64, names: impl Iterator<Item = &'a str>) {
    out.push(CHOICE);
    out.extend_from_slice(&generation.to_le_bytes());
    for name in names {
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
}

/// Appends the record that responses are not shared.
pub fn push_unshared(out: &mut Vec<u8>) {
    out.push(UNSHARED);
}

/// Appends the record that responses are too long to be stored.
pub fn push_too_long(out: &mut Vec<u8>) {
    out.push(TOO_LONG);
}

/// The place of the body of a record that is deleted; `None`: its body is not elsewhere.
pub fn body_of(bytes: &[u8]) -> Option<BodyId> {
    match Record::read(bytes)? {
        Record::Response(kept) => kept.body_id,
        Record::Choice(_) | Record::Unshared | Record::TooLong => None,
    }
}

impl<'a> Record<'a> {
    /// Reads a record; `None` for invalid bytes.
    pub fn read(bytes: &'a [u8]) -> Option<Record<'a>> {
        match *bytes.first()? {
            RESPONSE => Kept::read(bytes).map(Record::Response),
            CHOICE => {
                let (generation, names) = bytes[1..].split_first_chunk()?;
                let generation = u64::from_le_bytes(*generation);
                let names = std::str::from_utf8(names).ok()?;
                Some(Record::Choice(Choice { generation, names }))
            }
            UNSHARED => Some(Record::Unshared),
            TOO_LONG => Some(Record::TooLong),
            _ => None,
        }
    }
}

impl<'a> Kept<'a> {
    fn read(bytes: &'a [u8]) -> Option<Kept<'a>> {
        let (numbers, rest) = bytes.split_first_chunk::<NUMBERS>()?;
        let word16 = |at: usize| u16::from_le_bytes([numbers[at], numbers[at + 1]]);
        let word32 =
            |at: usize| u32::from_le_bytes(numbers[at..at + 4].try_into().expect("four of them"));
        let word64 =
            |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("eight of them"));
        let span = |at: usize| usize::from(word16(at));
        let said = |at: usize| Some(word32(at)).filter(|&it| it != NONE).map(u64::from);
        let bits = word16(4);
        let has = |bit: u16| bits & bit != 0;
        let (url, rest) = rest.split_at_checked(span(40))?;
        let (tags, rest) = rest.split_at_checked(span(6) * 8)?;
        let (head, body) = rest.split_at_checked(span(46))?;
        let (status_bytes, fields_bytes) = (span(42), span(44));
        let fields = head.get(status_bytes..)?.get(..fields_bytes)?;
        let validator = |at: usize| {
            let value = fields.get(span(at)..)?.get(..span(at + 2))?;
            (!value.is_empty()).then_some(value)
        };
        let directives = ResponseDirectives {
            is_public: has(PUBLIC),
            is_private: has(PRIVATE),
            no_store: has(NO_STORE),
            no_cache: has(NO_CACHE),
            must_revalidate: has(MUST_REVALIDATE),
            proxy_revalidate: has(PROXY_REVALIDATE),
            must_understand: has(MUST_UNDERSTAND),
            stale_while_revalidate_s: said(24),
            stale_if_error_s: said(28),
            max_age_s: said(32),
            s_maxage_s: said(36),
        };
        let life = Life {
            status: word16(2),
            directives,
            lifetime_s: u64::from(word32(8)),
            is_heuristic: has(HEURISTIC),
            is_by_rule: has(BY_RULE),
            initial_age_s: u64::from(word32(12)),
            response_s: word64(16),
        };
        Some(Kept {
            bytes,
            life,
            validators: Validators {
                etag: validator(48),
                last_modified: validator(52),
                date: validator(56),
            },
            url,
            body_bytes: (!has(LENGTH_UNKNOWN)).then(|| word64(64)),
            body_id: has(BODY_ELSEWHERE).then(|| BodyId(word64(72))),
            serial: word64(80),
            tags,
            head,
            status_bytes,
            fields_bytes,
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cacheability::{Moments, store};
    use crate::{Request, Response, Rules};

    const LINES: &[u8] = b"Cache-Control: max-age=60, stale-if-error=5\r\nETag: \"a\"\r\nX:\r\n";

    fn stored() -> Stored {
        let fields: Vec<Field<'_>> = fields_of(LINES).collect();
        let request = Request { method: "GET", fields: &[] };
        let moments = Moments { request_s: 1_000, response_s: 1_001 };
        let response = Response { status: 200, fields: &fields };
        store(&request, &response, moments, &Rules::default()).unwrap()
    }

    fn bytes(body_bytes: Option<u64>, body_id: Option<BodyId>) -> Vec<u8> {
        let mut out = Vec::new();
        let (stored, status_line) = (stored(), b"HTTP/1.1 200 OK\r\n");
        let parts = Parts {
            stored: &stored,
            url: b"a.example/",
            serial: 7,
            tags: &[1, u64::MAX],
            status_line,
            field_lines: LINES,
            body_bytes,
            body_id,
        };
        assert!(push_response(&mut out, &parts));
        out
    }

    /// A record is read as it was written, with the body after it or elsewhere, of known or unknown
    /// length.
    #[test]
    fn there_and_back() {
        let mut bytes_inline = bytes(Some(3), None);
        bytes_inline.extend_from_slice(b"abc");
        let Some(Record::Response(kept)) = Record::read(&bytes_inline) else {
            panic!("a response")
        };
        let directives = stored().life.directives;
        assert_eq!(kept.life, Life { directives, ..stored().life });
        assert_eq!(kept.validators, stored().validators());
        assert_eq!((kept.url, kept.serial, kept.body), (&b"a.example/"[..], 7, &b"abc"[..]));
        assert_eq!((kept.body_bytes, kept.body_id), (Some(3), None));
        assert_eq!(kept.tags().collect::<Vec<_>>(), [1, u64::MAX]);
        assert_eq!(kept.field_lines(), LINES);
        assert!(kept.head().ends_with(b"X:\r\nContent-Length: 3\r\n"));
        let names: Vec<&str> = kept.fields().map(|field| field.name).collect();
        assert_eq!(names, ["Cache-Control", "ETag", "X"]);
        let elsewhere = bytes(None, Some(BodyId(9)));
        assert_eq!(body_of(&elsewhere), Some(BodyId(9)));
        let Some(Record::Response(kept)) = Record::read(&elsewhere) else { panic!("a response") };
        assert_eq!(kept.body_bytes, None);
        assert_eq!(kept.head(), [kept.status_line(), kept.field_lines()].concat());
    }

    /// Choices and unshared records are read as they were written.
    #[test]
    fn others() {
        let mut out = Vec::new();
        push_choice(&mut out, 5, ["accept", "x"].into_iter());
        let Some(Record::Choice(choice)) = Record::read(&out) else { panic!("a choice") };
        assert_eq!(
            (choice.generation, choice.names().collect::<Vec<_>>()),
            (5, vec!["accept", "x"])
        );
        out.clear();
        push_unshared(&mut out);
        assert!(matches!(Record::read(&out), Some(Record::Unshared)));
        out.clear();
        push_too_long(&mut out);
        assert!(matches!(Record::read(&out), Some(Record::TooLong)));
    }

    proptest! {
        /// Damaged or cut bytes give another record or none, and never more bytes than there are.
        #[test]
        fn damage(at in 0usize..200, byte: u8, cut in 0usize..200) {
            let mut bytes = bytes(Some(0), Some(BodyId(1)));
            if let Some(there) = bytes.get_mut(at) {
                *there = byte;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(Record::Response(kept)) = Record::read(&bytes) {
                prop_assert!(kept.head().len() + kept.url.len() + kept.body.len() <= bytes.len());
                prop_assert!(kept.fields().count() <= bytes.len());
                prop_assert!(kept.field_lines().len() <= kept.head().len());
            }
        }
    }
}
