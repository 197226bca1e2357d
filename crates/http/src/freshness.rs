//! Decides whether a stored response may be served (RFC 9111, section 4), and how a response of the
//! origin changes it.

use crate::cacheability::{Life, Validators};
use crate::directives::RequestDirectives;
use crate::field::{has, members, only};
use crate::preconditions::is_same_weakly;
use crate::{Field, Response, Rules};

/// The result for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The stored response, with this age, seconds.
    Serve {
        /// See [`Life::age_s`].
        age_s: u64,
    },
    /// The same; it is stale, and larder validates it with the origin (RFC 5861, section 3).
    ServeAndValidate {
        /// See [`Life::age_s`].
        age_s: u64,
    },
    /// larder validates it with the origin first.
    Validate,
    /// 504: the client wants only a stored response, and this one may not be used (section
    /// 5.2.1.7).
    Unsatisfiable,
}

/// True where no stale response may be served, whatever clients request (section 4.2.4).
fn forbids_stale(life: &Life) -> bool {
    let said = &life.directives;
    said.must_revalidate || said.proxy_revalidate || said.s_maxage_s.is_some() || said.no_cache
}

/// Decides about a request and a stored response that is for it
/// ([`crate::cacheability::Stored::is_for`]), at a time in seconds since 1970.
pub fn decide(life: &Life, requested: &RequestDirectives, now_s: u64) -> Decision {
    let refusal =
        if requested.only_if_cached { Decision::Unsatisfiable } else { Decision::Validate };
    let (age_s, fresh_s) = (life.age_s(now_s), life.fresh_s(now_s));
    let is_too_old = requested.max_age_s.is_some_and(|max_age_s| age_s > max_age_s);
    let wants_fresher = requested.min_fresh_s.is_some_and(|min_fresh_s| fresh_s < min_fresh_s);
    if life.directives.no_cache || requested.no_cache || is_too_old || wants_fresher {
        return refusal;
    }
    if fresh_s > 0 {
        return Decision::Serve { age_s };
    }
    if forbids_stale(life) {
        return refusal;
    }
    let stale_s = life.stale_s(now_s);
    if requested.max_stale_s.is_some_and(|max_stale_s| stale_s <= max_stale_s) {
        return Decision::Serve { age_s };
    }
    let while_validating_s = life.directives.stale_while_revalidate_s;
    if while_validating_s.is_some_and(|while_validating_s| stale_s < while_validating_s) {
        return Decision::ServeAndValidate { age_s };
    }
    refusal
}

/// True where a stored response may be served because the origin cannot be reached, or failed with
/// 500, 502, 503 or 504 (RFC 5861, section 4).
pub fn may_serve_on_error(
    life: &Life,
    requested: &RequestDirectives,
    now_s: u64,
    rules: &Rules,
) -> bool {
    if life.fresh_s(now_s) > 0 && !life.directives.no_cache {
        return true;
    }
    // A stored error is no better than the origin's.
    if life.status >= 500 {
        return false;
    }
    let said_s = life.directives.stale_if_error_s.or(requested.stale_if_error_s);
    !forbids_stale(life) && life.stale_s(now_s) < said_s.unwrap_or(rules.stale_if_error_s)
}

/// Fields that make the origin confirm a response by a 304 (section 4.3.1): names and values.
pub fn conditions<'a>(
    validators: Validators<'a>,
) -> impl Iterator<Item = (&'static str, &'a [u8])> {
    let etag = validators.etag.map(|etag| ("If-None-Match", etag));
    let modified = validators.last_modified.map(|date| ("If-Modified-Since", date));
    etag.into_iter().chain(modified)
}

/// True where a 304 is about the stored response, and not about another one of the origin (section
/// 4.3.4).
pub fn is_about(validators: Validators<'_>, not_modified: &Response<'_>) -> bool {
    match (only(not_modified.fields, "etag"), validators.etag) {
        (Some(theirs), Some(ours)) => is_same_weakly(theirs, ours),
        (Some(_), None) => false,
        (None, _) => match (only(not_modified.fields, "last-modified"), validators.last_modified) {
            (Some(theirs), Some(ours)) => theirs == ours,
            // The request had the stored validators, and the 304 has none to contradict them.
            _ => true,
        },
    }
}

/// Fields about one connection only (RFC 9110, section 7.6.1), in addition to those that
/// `Connection` names.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields about a body, which a 304 does not have: an update ignores them (RFC 9111, section 3.2).
const OF_BODIES: [&str; 3] = ["content-length", "content-encoding", "content-range"];

/// True for a field that is not forwarded beyond one connection.
pub fn is_hop_by_hop(name: &str, fields: &[Field<'_>]) -> bool {
    HOP_BY_HOP.iter().any(|it| it.eq_ignore_ascii_case(name))
        || members(fields, "connection").any(|it| it.eq_ignore_ascii_case(name.as_bytes()))
}

/// The fields of a stored response after a 304 about it: each field of the 304 replaces it, the
/// others stay (section 3.2).
pub fn updated<'a>(kept: &[Field<'a>], not_modified: &[Field<'a>]) -> Vec<Field<'a>> {
    let is_taken = |field: &&Field<'_>| {
        let is_of_body = OF_BODIES.iter().any(|it| it.eq_ignore_ascii_case(field.name));
        !is_of_body && !is_hop_by_hop(field.name, not_modified)
    };
    let taken: Vec<Field<'a>> = not_modified.iter().filter(is_taken).copied().collect();
    // The age was that of the old response.
    let stays =
        |field: &&Field<'a>| !has(&taken, field.name) && !field.name.eq_ignore_ascii_case("age");
    kept.iter().filter(stays).copied().chain(taken.iter().copied()).collect()
}

/// True where the response to a request invalidates the stored responses of its URI (section 4.4).
/// The same applies to the URIs in its `Location` and `Content-Location`, if they have the same
/// origin.
pub fn invalidates(method: &str, status: u16) -> bool {
    is_unsafe(method) && (200..400).contains(&status)
}

/// True where a request may change something (RFC 9110, section 9.2.1).
pub fn is_unsafe(method: &str) -> bool {
    !matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;
    use crate::cacheability::{Moments, Stored, store};

    const NOW_S: u64 = 1_000_000;

    fn fields<'a>(all: &[(&'a str, &'a str)]) -> Vec<Field<'a>> {
        all.iter().map(|&(name, value)| Field { name, value: value.as_bytes() }).collect()
    }

    fn kept(control: &str) -> Stored {
        let head = fields(&[("Cache-Control", control), ("ETag", "\"a\"")]);
        let moments = Moments { request_s: NOW_S, response_s: NOW_S };
        let request = Request { method: "GET", fields: &[] };
        store(&request, &Response { status: 200, fields: &head }, moments, &Rules::default())
            .unwrap()
    }

    fn at(stored: &Stored, control: &str, after_s: u64) -> Decision {
        let requested = fields(&[("Cache-Control", control)]);
        let requested = RequestDirectives::heeded(&requested, &Rules::default());
        decide(&stored.life, &requested, NOW_S + after_s)
    }

    /// Fresh until its lifetime is over, to the second; then it is validated.
    #[test]
    fn fresh_and_stale() {
        let stored = kept("max-age=60");
        assert_eq!(at(&stored, "", 0), Decision::Serve { age_s: 0 });
        assert_eq!(at(&stored, "", 59), Decision::Serve { age_s: 59 });
        assert_eq!(at(&stored, "", 60), Decision::Validate);
        assert_eq!(at(&stored, "only-if-cached", 60), Decision::Unsatisfiable);
        assert_eq!(at(&stored, "only-if-cached", 59), Decision::Serve { age_s: 59 });
    }

    /// Directives of clients count within the limits of the response, and not at all where the
    /// operator ignores them.
    #[test]
    fn wishes() {
        let stored = kept("max-age=60");
        assert_eq!(at(&stored, "no-cache", 1), Decision::Validate);
        assert_eq!(at(&stored, "max-age=10", 10), Decision::Serve { age_s: 10 });
        assert_eq!(at(&stored, "max-age=10", 11), Decision::Validate);
        assert_eq!(at(&stored, "min-fresh=50", 10), Decision::Serve { age_s: 10 });
        assert_eq!(at(&stored, "min-fresh=50", 11), Decision::Validate);
        assert_eq!(at(&stored, "max-stale=10", 70), Decision::Serve { age_s: 70 });
        assert_eq!(at(&stored, "max-stale=10", 71), Decision::Validate);
        assert_eq!(at(&stored, "max-stale", 7_000), Decision::Serve { age_s: 7_000 });
        for strict in ["must-revalidate", "proxy-revalidate", "s-maxage=60", "no-cache"] {
            let stored = kept(&format!("max-age=60, {strict}"));
            assert_eq!(at(&stored, "max-stale", 61), Decision::Validate, "{strict}");
        }
        assert_eq!(at(&kept("max-age=60, no-cache"), "", 1), Decision::Validate);
        let rules = Rules { heeds_clients: false, ..Rules::default() };
        let requested = fields(&[("Cache-Control", "no-cache")]);
        let requested = RequestDirectives::heeded(&requested, &rules);
        assert_eq!(decide(&stored.life, &requested, NOW_S), Decision::Serve { age_s: 0 });
    }

    /// Stale responses are served during revalidation, or while the origin fails, for as long as
    /// the response states.
    #[test]
    fn stale_by_permission() {
        let stored = kept("max-age=60, stale-while-revalidate=30, stale-if-error=100");
        assert_eq!(at(&stored, "", 89), Decision::ServeAndValidate { age_s: 89 });
        assert_eq!(at(&stored, "", 90), Decision::Validate);
        let requested = RequestDirectives::default();
        let may = |stored: &Stored, after_s, rules: &Rules| {
            may_serve_on_error(&stored.life, &requested, NOW_S + after_s, rules)
        };
        let rules = Rules::default();
        assert!(may(&stored, 159, &rules) && !may(&stored, 160, &rules));
        assert!(may(&kept("max-age=60"), 59, &rules) && !may(&kept("max-age=60"), 60, &rules));
        let lenient = Rules { stale_if_error_s: 1_000, ..rules };
        assert!(may(&kept("max-age=60"), 1_059, &lenient));
        assert!(!may(&kept("max-age=60, must-revalidate"), 61, &lenient));
        let mut failed = kept("max-age=60");
        failed.life.status = 503;
        assert!(may(&failed, 59, &lenient) && !may(&failed, 60, &lenient), "it is an error too");
        failed.life.status = 500;
        assert!(!may(&failed, 60, &lenient));
        failed.life.status = 404;
        assert!(may(&failed, 60, &lenient), "not of the origin");
        assert!(!may(&kept("max-age=60, no-cache"), 1, &lenient), "fresh, and yet to be asked for");
    }

    /// A 304 updates the stored response, except for fields of bodies and connections.
    #[test]
    fn not_modified() {
        let stored = kept("max-age=60");
        assert_eq!(
            conditions(stored.validators()).collect::<Vec<_>>(),
            [("If-None-Match", &b"\"a\""[..])]
        );
        let about = |etag: &str| {
            let head = fields(&[("ETag", etag)]);
            is_about(stored.validators(), &Response { status: 304, fields: &head })
        };
        assert!(about("\"a\"") && about("W/\"a\"") && !about("\"b\""));
        assert!(is_about(stored.validators(), &Response { status: 304, fields: &[] }));
        let old =
            fields(&[("A", "1"), ("b", "2"), ("Content-Length", "3"), ("Age", "4"), ("B", "5")]);
        let new = fields(&[
            ("B", "6"),
            ("Content-Length", "0"),
            ("Connection", "X"),
            ("X", "7"),
            ("C", "8"),
        ]);
        let all = updated(&old, &new);
        let expected = fields(&[("A", "1"), ("Content-Length", "3"), ("B", "6"), ("C", "8")]);
        assert_eq!(all, expected);
    }

    /// A 304 is about the stored response where both have an equal validator, the ETag before the
    /// date, and where the 304 has none. It is not where only the 304 has an ETag.
    #[test]
    fn about_what_is_kept() {
        let (early, late) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Mon, 07 Nov 1994 08:49:37 GMT");
        let both =
            Validators { etag: Some(b"\"a\""), last_modified: Some(early.as_bytes()), date: None };
        let (dated, tagged) =
            (Validators { etag: None, ..both }, Validators { last_modified: None, ..both });
        let cases = [
            (both, vec![("ETag", "\"a\""), ("Last-Modified", late)], true),
            (both, vec![("ETag", "\"b\""), ("Last-Modified", early)], false),
            (dated, vec![("ETag", "\"a\""), ("Last-Modified", early)], false),
            (both, vec![("Last-Modified", early)], true),
            (both, vec![("Last-Modified", late)], false),
            (dated, vec![("Last-Modified", early)], true),
            (dated, vec![("Last-Modified", late)], false),
            (tagged, vec![("Last-Modified", late)], true),
            (dated, vec![], true),
        ];
        for (validators, head, expected) in cases {
            let head = fields(&head);
            let not_modified = Response { status: 304, fields: &head };
            assert_eq!(is_about(validators, &not_modified), expected, "{validators:?} {head:?}");
        }
        let requested: Vec<_> = conditions(both).collect();
        let early = early.as_bytes();
        assert_eq!(requested, [("If-None-Match", &b"\"a\""[..]), ("If-Modified-Since", early)]);
    }

    /// Unsafe methods, unknown ones too, invalidate stored responses where they succeed.
    #[test]
    fn invalidation() {
        assert!(
            invalidates("POST", 200) && invalidates("DELETE", 303) && invalidates("M-SEARCH", 204)
        );
        assert!(
            !invalidates("GET", 200) && !invalidates("OPTIONS", 200) && !invalidates("PUT", 500)
        );
    }
}
