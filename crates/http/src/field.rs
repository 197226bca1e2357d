//! Header fields: by name, members of lists, numbers of seconds, dates (RFC 9110, section 5).

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Field, SECONDS_MAX};

/// The values of the fields with a name, in order.
pub fn values<'a>(fields: &'a [Field<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|it| it.value)
}

/// The value of the only field with a name; `None` where there is none, or several with different
/// values.
pub fn only<'a>(fields: &'a [Field<'a>], name: &'a str) -> Option<&'a [u8]> {
    let mut all = values(fields, name);
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

/// True where there is a field with a name.
pub fn has(fields: &[Field<'_>], name: &str) -> bool {
    fields.iter().any(|field| field.name.eq_ignore_ascii_case(name))
}

/// The members of a list in one field or several, without white space and without empty ones (RFC
/// 9110, section 5.6.1). A comma in quotes separates nothing.
pub fn members<'a>(fields: &'a [Field<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    values(fields, name).flat_map(|value| split(value, b',')).filter(|member| !member.is_empty())
}

/// The trimmed parts of a value between separators; a separator in quotes does not count.
pub fn split(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let value = rest?;
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = value.iter().position(|&byte| {
            if is_escaped {
                is_escaped = false;
            } else if is_quoted && byte == b'\\' {
                is_escaped = true;
            } else if byte == b'"' {
                is_quoted = !is_quoted;
            }
            !is_quoted && byte == separator
        });
        let (part, after) = match end {
            Some(end) => (&value[..end], Some(&value[end + 1..])),
            None => (value, None),
        };
        rest = after;
        Some(part.trim_ascii())
    })
}

/// A number of seconds (delta-seconds, RFC 9111, section 1.2.2), with or without quotes, at most
/// [`SECONDS_MAX`]; `None` for an invalid number.
pub fn seconds(value: &[u8]) -> Option<u64> {
    let digits = unquoted(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| (sum * 10 + u64::from(digit - b'0')).min(SECONDS_MAX);
    Some(digits.iter().fold(0, add))
}

/// A value without its quotes, if it has any. Escapes in it stay.
pub fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// A date in any of its three forms (RFC 9110, section 5.6.7), seconds since 1970; 0 before that.
/// Letters may be in any case. The weekday may be wrong: the date is clear without it.
pub fn date(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let date = httpdate::parse_http_date(text).ok().or_else(|| lenient_date(text))?;
    Some(date.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

fn lenient_date(text: &str) -> Option<SystemTime> {
    let (day, rest) = text.split_at(text.find(|it: char| !it.is_ascii_alphabetic())?);
    let is_day = |name: &str| [name, &name[..3]].iter().any(|it| it.eq_ignore_ascii_case(day));
    DAYS.iter().find(|name| is_day(name))?;
    let mut bytes = rest.to_ascii_lowercase().into_bytes();
    let mut is_in_word = false;
    for byte in &mut bytes {
        let is_letter = byte.is_ascii_alphabetic();
        if is_letter && !is_in_word {
            byte.make_ascii_uppercase();
        }
        is_in_word = is_letter;
    }
    let rest = String::from_utf8(bytes).ok()?.replace("Gmt", "GMT");
    // The name that fits, in full or cut as it was.
    let fits = |name: &&str| {
        let name = if day.len() > 3 { name } else { &name[..3] };
        httpdate::parse_http_date(&format!("{name}{rest}")).ok()
    };
    DAYS.iter().find_map(fits)
}

/// The date in the only field with a name.
pub fn date_of(fields: &[Field<'_>], name: &str) -> Option<u64> {
    date(only(fields, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commas in quotes separate nothing, escaped quotes end no quotation, and empty members do not
    /// count.
    #[test]
    fn lists() {
        let fields = [
            Field { name: "a", value: b"x, y=\"1,2\" ,,z=\"q\\\",r\"" },
            Field { name: "B", value: b"no" },
            Field { name: "A", value: b" last " },
        ];
        let all: Vec<&[u8]> = members(&fields, "a").collect();
        assert_eq!(all, [&b"x"[..], b"y=\"1,2\"", b"z=\"q\\\",r\"", b"last"]);
        assert_eq!((has(&fields, "b"), has(&fields, "c")), (true, false));
        assert_eq!((only(&fields, "b"), only(&fields, "a")), (Some(&b"no"[..]), None));
    }

    /// Seconds are digits only, with a limit so that sums do not wrap.
    #[test]
    fn times() {
        assert_eq!(
            (seconds(b"60"), seconds(b"\"60\""), seconds(b"0060")),
            (Some(60), Some(60), Some(60))
        );
        assert_eq!(seconds(b"99999999999999999999999"), Some(SECONDS_MAX));
        for none in [&b""[..], b"-1", b"1.5", b"6 0", b"abc", b"\"\"", b"1s"] {
            assert_eq!(seconds(none), None, "{none:?}");
        }
        let dates: [&[u8]; 3] = [
            b"Sun, 06 Nov 1994 08:49:37 GMT",
            b"Sunday, 06-Nov-94 08:49:37 GMT",
            b"Sun Nov  6 08:49:37 1994",
        ];
        assert!(dates.iter().all(|text| date(text) == Some(784_111_777)));
        assert_eq!((date(b"0"), date(b"Sun, 06 Nov 1994"), date(b"\xff")), (None, None, None));
        let lenient: [&[u8]; 4] = [
            b"SUN, 06 nOV 1994 08:49:37 gmt",
            b"Mon, 06 Nov 1994 08:49:37 GMT",
            b"Tue Nov  6 08:49:37 1994",
            b"Friday, 06-Nov-94 08:49:37 GMT",
        ];
        for text in lenient {
            assert_eq!(date(text), Some(784_111_777), "{}", String::from_utf8_lossy(text));
        }
        for none in
            ["Sun, 06 Nov 1994 08:49:37 UTC", "Sol, 06 Nov 1994 08:49:37 GMT", "Sun", "06 Nov"]
        {
            assert_eq!(date(none.as_bytes()), None, "{none}");
        }
    }
}
