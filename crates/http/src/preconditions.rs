//! Evaluates conditions and ranges of requests on a stored response (RFC 9110, sections 13 and 14).

use crate::cacheability::{Validators, is_entity_tag};
use crate::field::{date, has, members, only};
use crate::{Field, Request};

/// The most ranges of one request that larder serves. A request for more gets the whole body: RFC
/// 9110, section 14.2, allows it, and many small ranges are an attack (section 17.15).
pub const RANGES_MAX: usize = 16;

/// True where both entity tags are the same, whether weak or not (section 8.8.3.2).
pub(crate) fn is_same_weakly(one: &[u8], other: &[u8]) -> bool {
    is_entity_tag(one) && is_entity_tag(other) && opaque(one) == opaque(other)
}

/// An entity tag without its mark of weakness.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// True where both are the same and neither is weak.
fn is_same_strongly(one: &[u8], other: &[u8]) -> bool {
    is_entity_tag(one) && !one.starts_with(b"W/") && one == other
}

/// True where a client has the stored response, and gets a 304 (sections 13.1.2, 13.1.3 and
/// 13.2.2).
pub fn is_not_modified(status: u16, validators: Validators<'_>, request: &Request<'_>) -> bool {
    if !matches!(request.method, "GET" | "HEAD") || !(200..300).contains(&status) {
        return false;
    }
    if has(request.fields, "if-none-match") {
        let etag = validators.etag;
        return members(request.fields, "if-none-match")
            .any(|tag| tag == b"*" || etag.is_some_and(|etag| is_same_weakly(tag, etag)));
    }
    let since_s = only(request.fields, "if-modified-since").and_then(date);
    // Without a last modification its own date is compared (RFC 9111, section 4.3.2).
    let modified_s = validators.last_modified.or(validators.date).and_then(date);
    matches!((since_s, modified_s), (Some(since_s), Some(at_s)) if at_s <= since_s)
}

/// The bytes of a body of known length that a request gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// All, with 200.
    Whole,
    /// These, first and last byte each, with 206.
    Parts(Vec<(u64, u64)>),
    /// 416: the body has none of the ranges.
    Unsatisfiable,
}

/// The bytes that a request gets of a stored body of this length.
pub fn ranges(
    status: u16,
    validators: Validators<'_>,
    request: &Request<'_>,
    body_bytes: u64,
) -> Ranges {
    let Some(range) = only(request.fields, "range") else { return Ranges::Whole };
    if request.method != "GET" || status != 200 || !is_in_force(validators, request.fields) {
        return Ranges::Whole;
    }
    parts(range, body_bytes).unwrap_or(Ranges::Whole)
}

/// True where there is no `If-Range`, or it is met (section 13.1.5).
fn is_in_force(validators: Validators<'_>, fields: &[Field<'_>]) -> bool {
    if !has(fields, "if-range") {
        return true;
    }
    let Some(condition) = only(fields, "if-range") else { return false };
    let is_same_tag = |etag| is_same_strongly(condition, etag);
    validators.etag.is_some_and(is_same_tag) || validators.last_modified == Some(condition)
}

/// The ranges in a `Range` field; `None` where the field is to be ignored.
fn parts(range: &[u8], body_bytes: u64) -> Option<Ranges> {
    let (unit, set) = range.split_at(range.iter().position(|&byte| byte == b'=')?);
    // No space is allowed around the unit: another program might read another range.
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut all: Vec<(u64, u64)> = Vec::new();
    let mut count = 0;
    for spec in set[1..].split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        if spec.is_empty() {
            continue;
        }
        count += 1;
        if count > RANGES_MAX {
            return None;
        }
        let (first, last) = spec.split_at(spec.iter().position(|&byte| byte == b'-')?);
        let last = &last[1..];
        let part = match (first.is_empty(), last.is_empty()) {
            (true, true) => return None,
            // The last bytes of the body; this is their number.
            (true, false) => {
                let bytes = number(last)?.min(body_bytes);
                (bytes > 0).then(|| (body_bytes - bytes, body_bytes - 1))
            }
            (false, is_open) => {
                let first = number(first)?;
                let last = if is_open { u64::MAX } else { number(last)? };
                if last < first {
                    return None;
                }
                (first < body_bytes).then(|| (first, last.min(body_bytes - 1)))
            }
        };
        all.extend(part);
    }
    if count == 0 {
        return None;
    }
    // Ranges that overlap would make the response longer than the whole.
    let mut sorted = all.clone();
    sorted.sort_unstable();
    let do_overlap =
        sorted.windows(2).any(|pair| matches!(pair, [(_, end), (begin, _)] if begin <= end));
    match all.as_slice() {
        [] => Some(Ranges::Unsatisfiable),
        _ if do_overlap => None,
        _ => Some(Ranges::Parts(all)),
    }
}

/// A number of bytes; one that is too long counts as beyond every end.
fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    is_number.then(|| digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn fields<'a>(all: &[(&'a str, &'a str)]) -> Vec<Field<'a>> {
        all.iter().map(|&(name, value)| Field { name, value: value.as_bytes() }).collect()
    }

    fn kept(etag: &str) -> Validators<'_> {
        Validators {
            etag: Some(etag.as_bytes()),
            last_modified: Some(MODIFIED.as_bytes()),
            date: None,
        }
    }

    fn has_it(method: &str, requested: &[(&str, &str)]) -> bool {
        is_not_modified(200, kept("W/\"a\""), &Request { method, fields: &fields(requested) })
    }

    /// A tag that the client has, weak or not, gives a 304; the date counts only where there are no
    /// tags.
    #[test]
    fn conditions() {
        for (tags, is_had) in [
            ("\"a\"", true),
            ("\"b\", W/\"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(has_it("GET", &[("If-None-Match", tags)]), is_had, "{tags}");
        }
        assert!(has_it("HEAD", &[("If-Modified-Since", MODIFIED)]));
        assert!(!has_it("GET", &[("If-Modified-Since", "Sun, 06 Nov 1994 08:49:36 GMT")]));
        assert!(!has_it("GET", &[("If-Modified-Since", "never")]) && !has_it("GET", &[]));
        assert!(!has_it("GET", &[("If-None-Match", "\"b\""), ("If-Modified-Since", MODIFIED)]));
        assert!(!has_it("POST", &[("If-None-Match", "*")]));
    }

    fn of(requested: &[(&str, &str)]) -> Ranges {
        ranges(200, kept("\"a\""), &Request { method: "GET", fields: &fields(requested) }, 100)
    }

    /// Ranges from the front, from the end, and several. A range beyond the end gives none, and an
    /// invalid one is ignored.
    #[test]
    fn which_bytes() {
        let parts = |all: &[(u64, u64)]| Ranges::Parts(all.to_vec());
        for (range, expected) in [
            ("bytes=0-9", parts(&[(0, 9)])),
            ("Bytes=90-", parts(&[(90, 99)])),
            ("bytes=-10", parts(&[(90, 99)])),
            ("bytes=-1000", parts(&[(0, 99)])),
            ("bytes=50-99999999999999999999999", parts(&[(50, 99)])),
            ("bytes=0-0, 5-6,,99-", parts(&[(0, 0), (5, 6), (99, 99)])),
            ("bytes=5-6,0-0", parts(&[(5, 6), (0, 0)])),
            ("bytes=200-, 7-7", parts(&[(7, 7)])),
            ("bytes=100-", Ranges::Unsatisfiable),
            ("bytes=-0", Ranges::Unsatisfiable),
            ("bytes=0-9,5-6", Ranges::Whole),
            ("bytes=9-0", Ranges::Whole),
            ("bytes=", Ranges::Whole),
            ("bytes=-", Ranges::Whole),
            ("bytes=a-b", Ranges::Whole),
            ("bytes = 0-1", Ranges::Whole),
            ("bytes =0-1", Ranges::Whole),
            (" bytes=0-1", Ranges::Whole),
            ("lines=0-9", Ranges::Whole),
            ("0-9", Ranges::Whole),
        ] {
            assert_eq!(of(&[("Range", range)]), expected, "{range}");
        }
        let many: Vec<String> = (0..20).map(|at| format!("{0}-{0}", at * 2)).collect();
        assert_eq!(of(&[("Range", &format!("bytes={}", many.join(",")))]), Ranges::Whole);
        assert_eq!(of(&[]), Ranges::Whole);
        let none = Request { method: "GET", fields: &fields(&[("Range", "bytes=0-")]) };
        assert_eq!(ranges(200, kept("\"a\""), &none, 0), Ranges::Unsatisfiable);
    }

    /// If-Range requires a strong tag, or the same date.
    #[test]
    fn only_of_the_same() {
        for (condition, is_met) in [
            ("\"a\"", true),
            (MODIFIED, true),
            ("\"b\"", false),
            ("W/\"a\"", false),
            ("Sun, 06 Nov 1994 08:49:38 GMT", false),
        ] {
            let requested = [("Range", "bytes=0-9"), ("If-Range", condition)];
            assert_eq!(of(&requested) != Ranges::Whole, is_met, "{condition}");
        }
        let weak = Request {
            method: "GET",
            fields: &fields(&[("Range", "bytes=0-9"), ("If-Range", "W/\"a\"")]),
        };
        assert_eq!(ranges(200, kept("W/\"a\""), &weak, 100), Ranges::Whole);
    }
}
