//! Cache directives: `Cache-Control` of requests and responses (RFC 9111, section 5.2), the
//! additions of RFC 5861, and the targeted field of RFC 9213.
//!
//! The first of two equal directives counts, and an invalid number means 0 (section 4.2.1). So a
//! response that larder cannot understand is not served for too long.

use crate::field::{members, seconds, split, unquoted, values};
use crate::{Field, Rules};

/// The directives of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct ResponseDirectives {
    pub is_public: bool,
    /// With or without names of fields: the whole response is for one client.
    pub is_private: bool,
    pub no_store: bool,
    /// With or without names of fields: the whole response has to be validated.
    pub no_cache: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    pub max_age_s: Option<u64>,
    pub s_maxage_s: Option<u64>,
    pub stale_while_revalidate_s: Option<u64>,
    pub stale_if_error_s: Option<u64>,
}

/// The directives of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct RequestDirectives {
    pub no_cache: bool,
    pub no_store: bool,
    pub only_if_cached: bool,
    pub max_age_s: Option<u64>,
    pub min_fresh_s: Option<u64>,
    /// `u64::MAX`: stale for any time.
    pub max_stale_s: Option<u64>,
    pub stale_if_error_s: Option<u64>,
}

/// Name and argument of a directive.
fn parts(member: &[u8]) -> (&[u8], Option<&[u8]>) {
    match member.iter().position(|&byte| byte == b'=') {
        Some(at) => (member[..at].trim_ascii(), Some(member[at + 1..].trim_ascii())),
        None => (member, None),
    }
}

/// Sets a number unless it was set before.
fn set(number: &mut Option<u64>, argument: Option<&[u8]>) {
    number.get_or_insert(argument.and_then(seconds).unwrap_or(0));
}

impl ResponseDirectives {
    /// The directives of a response, and whether they are targeted. Where `CDN-Cache-Control` is
    /// there and valid, they come from it alone (RFC 9213, section 2.2).
    pub fn read(fields: &[Field<'_>]) -> (ResponseDirectives, bool) {
        match ResponseDirectives::targeted(fields) {
            Some(targeted) => (targeted, true),
            None => (ResponseDirectives::of(members(fields, "cache-control").map(parts)), false),
        }
    }

    fn of<'a>(all: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> ResponseDirectives {
        let mut said = ResponseDirectives::default();
        for (name, argument) in all {
            match name.to_ascii_lowercase().as_slice() {
                b"public" => said.is_public = true,
                b"private" => said.is_private = true,
                b"no-store" => said.no_store = true,
                b"no-cache" => said.no_cache = true,
                b"must-revalidate" => said.must_revalidate = true,
                b"proxy-revalidate" => said.proxy_revalidate = true,
                b"must-understand" => said.must_understand = true,
                b"max-age" => set(&mut said.max_age_s, argument),
                b"s-maxage" => set(&mut said.s_maxage_s, argument),
                b"stale-while-revalidate" => set(&mut said.stale_while_revalidate_s, argument),
                b"stale-if-error" => set(&mut said.stale_if_error_s, argument),
                _ => {}
            }
        }
        said
    }

    /// Reads a dictionary of structured fields (RFC 8941, section 3.2). An invalid one is ignored.
    /// The last of two equal keys counts.
    fn targeted(fields: &[Field<'_>]) -> Option<ResponseDirectives> {
        let mut all: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
        for value in values(fields, "cdn-cache-control") {
            for member in split(value, b',') {
                // Parameters are ignored.
                let member = split(member, b';').next().unwrap_or_default();
                let (key, item) = parts(member);
                let is_key = key.first().is_some_and(|it| it.is_ascii_lowercase() || *it == b'*')
                    && key.iter().all(|it| {
                        it.is_ascii_lowercase() || it.is_ascii_digit() || b"_-.*".contains(it)
                    });
                if !is_key || item.is_some_and(|item| !is_item(item)) {
                    return None;
                }
                all.retain(|(other, _)| *other != key);
                // A key without a value is true; `?0` is false, and counts as missing.
                if item != Some(b"?0") {
                    all.push((key, item.filter(|item| item != b"?1")));
                }
            }
        }
        let is_number = |(key, item): &(&[u8], Option<&[u8]>)| {
            let takes_number = key.ends_with(b"age") || key.starts_with(b"stale-");
            !takes_number || item.is_some_and(|item| item.iter().all(u8::is_ascii_digit))
        };
        (!all.is_empty()).then(|| {
            // A number of another type is ignored (RFC 9213, section 2.1).
            all.retain(is_number);
            ResponseDirectives::of(all.into_iter())
        })
    }
}

/// True if the first byte is that of an item of structured fields: number, string, token, bytes,
/// boolean.
fn is_item(item: &[u8]) -> bool {
    match item {
        [b'"', .., b'"'] | [b':', .., b':'] => item.len() > 1,
        [b'?', b'0' | b'1'] => true,
        [b'-' | b'0'..=b'9', rest @ ..] => {
            rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
        }
        [b'a'..=b'z' | b'A'..=b'Z' | b'*', rest @ ..] => {
            rest.iter().all(|byte| byte.is_ascii_graphic() && !b"\"(),;<=>?@[\\]{}".contains(byte))
        }
        [b'(', .., b')'] => true,
        _ => false,
    }
}

impl RequestDirectives {
    /// The directives of a request that the operator allows to count.
    pub fn heeded(fields: &[Field<'_>], rules: &Rules) -> RequestDirectives {
        if rules.heeds_clients { RequestDirectives::read(fields) } else { Default::default() }
    }

    /// The directives of a request; `Pragma: no-cache` where there is no `Cache-Control` (RFC 9111,
    /// section 5.4).
    pub fn read(fields: &[Field<'_>]) -> RequestDirectives {
        let mut said = RequestDirectives::default();
        let mut has_any = false;
        for (name, argument) in members(fields, "cache-control").map(parts) {
            has_any = true;
            match name.to_ascii_lowercase().as_slice() {
                b"no-cache" => said.no_cache = true,
                b"no-store" => said.no_store = true,
                b"only-if-cached" => said.only_if_cached = true,
                b"max-age" => set(&mut said.max_age_s, argument),
                b"min-fresh" => set(&mut said.min_fresh_s, argument),
                b"max-stale" if argument.is_none() => {
                    said.max_stale_s.get_or_insert(u64::MAX);
                }
                b"max-stale" => set(&mut said.max_stale_s, argument),
                b"stale-if-error" => set(&mut said.stale_if_error_s, argument),
                _ => {}
            }
        }
        let mut pragmas = members(fields, "pragma").map(unquoted);
        said.no_cache |= !has_any && pragmas.any(|it| it.eq_ignore_ascii_case(b"no-cache"));
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields<'a>(name: &'static str, values: &[&'a str]) -> Vec<Field<'a>> {
        values.iter().map(|value| Field { name, value: value.as_bytes() }).collect()
    }

    fn said(values: &[&str]) -> ResponseDirectives {
        ResponseDirectives::read(&fields("Cache-Control", values)).0
    }

    /// Names in any case, arguments with or without quotes, the first of two, and nothing for an
    /// invalid number.
    #[test]
    fn of_responses() {
        let some = said(&["Public, MAX-age=60", "max-age=10, s-maxage=\"5\", foo=\"no-store\""]);
        assert!(some.is_public && !some.no_store);
        assert_eq!((some.max_age_s, some.s_maxage_s), (Some(60), Some(5)));
        for none in ["max-age=x", "max-age", "max-age=-1", "max-age=1.5"] {
            assert_eq!(said(&[none]).max_age_s, Some(0), "{none}");
        }
        let whole = said(&["private=\"set-cookie\", no-cache=x, must-revalidate"]);
        assert!(whole.is_private && whole.no_cache && whole.must_revalidate);
    }

    /// The targeted field replaces the other where it is valid.
    #[test]
    fn targeted() {
        let read = |targeted: &[&str]| {
            let mut all = fields("CDN-Cache-Control", targeted);
            all.extend(fields("Cache-Control", &["no-store, max-age=1"]));
            ResponseDirectives::read(&all)
        };
        let (some, is_targeted) = read(&["max-age=60;x=1", "public"]);
        assert!(is_targeted && some.is_public && !some.no_store);
        assert_eq!(some.max_age_s, Some(60));
        assert_eq!(read(&["max-age=5, max-age=7"]).0.max_age_s, Some(7), "the last");
        assert!(!read(&["no-store=?0, max-age=7"]).0.no_store);
        assert_eq!(read(&["max-age=\"60\""]), (ResponseDirectives::default(), true), "a string");
        for broken in ["Max-Age=60", "max-age=60,,", "max age=60", "max-age=", "&=1", ""] {
            assert_eq!(read(&[broken]), (said(&["no-store, max-age=1"]), false), "{broken:?}");
        }
    }

    /// Pragma counts where no other directive is there, and max-stale without an argument means any
    /// time.
    #[test]
    fn of_requests() {
        let read = |values: &[&str]| RequestDirectives::read(&fields("cache-control", values));
        assert_eq!(read(&["max-stale"]).max_stale_s, Some(u64::MAX));
        assert_eq!(read(&["max-stale=9, min-fresh=3"]).max_stale_s, Some(9));
        let pragma = |more: &[&str]| {
            let mut all = fields("Pragma", &["x, No-Cache"]);
            all.extend(fields("Cache-Control", more));
            RequestDirectives::read(&all).no_cache
        };
        assert!(pragma(&[]) && !pragma(&["max-age=1"]));
    }
}
