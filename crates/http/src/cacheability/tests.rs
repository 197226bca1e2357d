//! Each rule with the cases that it decides.

use super::*;

const NOW: Moments = Moments { request_s: 784_111_777, response_s: 784_111_779 };
const DATE: (&str, &str) = ("Date", "Sun, 06 Nov 1994 08:49:37 GMT");

fn fields<'a>(all: &[(&'a str, &'a str)]) -> Vec<Field<'a>> {
    all.iter().map(|&(name, value)| Field { name, value: value.as_bytes() }).collect()
}

fn kept(status: u16, response: &[(&str, &str)]) -> Result<Stored, Unstored> {
    kept_for(&[], status, response)
}

fn kept_for(
    request: &[(&str, &str)],
    status: u16,
    response: &[(&str, &str)],
) -> Result<Stored, Unstored> {
    let (requested, answered) = (fields(request), fields(response));
    let request = Request { method: "GET", fields: &requested };
    store(&request, &Response { status, fields: &answered }, NOW, &Rules::default())
}

/// Stated lifetimes come first, in their order, and a guess last.
#[test]
fn lifetimes() {
    let hour_later = ("Expires", "Sun, 06 Nov 1994 09:49:37 GMT");
    let all = [("Cache-Control", "max-age=60, s-maxage=90"), hour_later, DATE];
    assert_eq!(kept(200, &all).unwrap().life.lifetime_s, 90);
    assert_eq!(
        kept(200, &[("Cache-Control", "max-age=60"), hour_later]).unwrap().life.lifetime_s,
        60
    );
    assert_eq!(kept(200, &[hour_later, DATE]).unwrap().life.lifetime_s, 3_600);
    assert_eq!(kept(200, &[("Expires", "0"), DATE]).unwrap().life.lifetime_s, 0);
    let old = ("Last-Modified", "Sun, 06 Nov 1994 08:32:57 GMT");
    let guessed = kept(200, &[old, DATE]).unwrap();
    assert_eq!((guessed.life.lifetime_s, guessed.life.is_heuristic), (100, true));
    assert_eq!(kept(200, &[DATE]).unwrap().life.lifetime_s, 0);
    assert_eq!(kept(404, &[("Cache-Control", "max-age=9")]).unwrap().life.lifetime_s, 9);
    let targeted = [("CDN-Cache-Control", "max-age=7"), ("Cache-Control", "no-store"), hour_later];
    assert_eq!(kept(200, &targeted).unwrap().life.lifetime_s, 7);
}

/// The age of a response is the larger of two: the age it states plus its time on the way, or the
/// age by its date.
#[test]
fn ages() {
    let age = |more: &[(&str, &str)]| {
        let all = [&[("Cache-Control", "max-age=60")], more].concat();
        let stored = kept(200, &all).unwrap().life;
        (
            stored.age_s(NOW.response_s),
            stored.fresh_s(NOW.response_s + 10),
            stored.stale_s(NOW.response_s + 90),
        )
    };
    assert_eq!(age(&[]), (2, 48, 32));
    assert_eq!(age(&[DATE]), (2, 48, 32));
    assert_eq!(age(&[("Age", "30")]), (32, 18, 62));
    assert_eq!(age(&[("Age", "30, 1")]), (32, 18, 62));
    assert_eq!(age(&[("Age", "x")]), (2, 48, 32));
    assert_eq!(age(&[("Date", "Sun, 06 Nov 1994 08:48:37 GMT")]), (62, 0, 92));
}

/// Each reason not to store a response, and what overrules it.
#[test]
fn reasons() {
    let cc = |text| ("Cache-Control", text);
    for status in [206, 304, 412, 416] {
        assert_eq!(kept(status, &[cc("max-age=9")]), Err(Unstored::Status));
    }
    assert_eq!(kept(200, &[cc("no-store, max-age=9")]), Err(Unstored::NoStore));
    assert_eq!(kept(200, &[cc("private, max-age=9")]), Err(Unstored::Private));
    assert_eq!(kept(599, &[cc("must-understand, max-age=9")]), Err(Unstored::NotUnderstood));
    assert!(kept(200, &[cc("must-understand, no-store, max-age=9")]).is_ok());
    assert_eq!(kept(302, &[DATE]), Err(Unstored::NotSaid));
    assert!(kept(302, &[cc("max-age=9")]).is_ok() && kept(599, &[cc("max-age=9")]).is_ok());
    assert_eq!(kept(200, &[("Vary", "Accept, *")]), Err(Unstored::VaryAny));
    let requested = [("Authorization", "Basic x")];
    assert_eq!(kept_for(&requested, 200, &[cc("max-age=9")]), Err(Unstored::Authorization));
    for word in ["public", "s-maxage=9", "must-revalidate"] {
        assert!(kept_for(&requested, 200, &[cc(word)]).is_ok(), "{word}");
    }
    assert_eq!(kept_for(&[cc("no-store")], 200, &[cc("max-age=9")]), Err(Unstored::RequestNoStore));
    let cookie = ("Set-Cookie", "a=b");
    assert_eq!(kept(200, &[cookie, cc("max-age=9")]), Err(Unstored::Cookies));
    assert!(kept(200, &[cookie, cc("public, max-age=9")]).is_ok());
    for framing in [("Content-Length", "1"), ("Transfer-Encoding", "chunked")] {
        assert_eq!(kept_for(&[framing], 200, &[cc("max-age=9")]), Err(Unstored::Content));
    }
    assert!(kept_for(&[("Content-Length", "0")], 200, &[cc("max-age=9")]).is_ok());
    let head = Request { method: "HEAD", fields: &[] };
    let response = Response { status: 200, fields: &[] };
    assert_eq!(store(&head, &response, NOW, &Rules::default()), Err(Unstored::Method));
}

/// A response to a request with content is not stored, however its length is written. Statuses
/// begin at 200 and end at 599. The operator may ignore `no-store` and cookies of requests.
#[test]
fn reasons_of_requests_and_rules() {
    let fresh = [("Cache-Control", "max-age=9")];
    for header in
        [("Content-Length", "1"), ("Content-Length", "10"), ("Transfer-Encoding", "chunked")]
    {
        assert_eq!(kept_for(&[header], 200, &fresh), Err(Unstored::Content), "{header:?}");
    }
    assert!(kept_for(&[("Content-Length", "0")], 200, &fresh).is_ok());
    assert!(kept_for(&[("Content-Length", "0, 0")], 200, &fresh).is_ok());
    for (status, expected) in [(199, false), (200, true), (599, true), (600, false)] {
        assert_eq!(kept(status, &fresh).is_ok(), expected, "{status}");
    }
    let lenient =
        Rules { heeds_clients: false, is_cautious_with_cookies: false, ..Rules::default() };
    let (requested, answered) =
        (fields(&[("Cache-Control", "no-store")]), fields(&[fresh[0], ("Set-Cookie", "a=b")]));
    let request = Request { method: "GET", fields: &requested };
    assert!(store(&request, &Response { status: 200, fields: &answered }, NOW, &lenient).is_ok());
}

/// larder guesses no lifetime of a page that may be for one client. Without a date it is stored to
/// be validated, with one only where a tag distinguishes pages, unless the response or the operator
/// states otherwise.
#[test]
fn guesses_with_cookies() {
    let old = ("Last-Modified", "Sun, 06 Nov 1994 08:32:57 GMT");
    let (tag, public) = (("ETag", "\"a\""), ("Cache-Control", "public"));
    let lifetime_s = |response: &[(&str, &str)], rules: &Rules| {
        let (requested, answered) = (fields(&[("Cookie", "a=b")]), fields(response));
        let request = Request { method: "GET", fields: &requested };
        let response = Response { status: 200, fields: &answered };
        store(&request, &response, NOW, rules).map(|stored| stored.life.lifetime_s)
    };
    let (rules, refused) = (Rules::default(), Err(Unstored::RequestCookies));
    assert_eq!(lifetime_s(&[old, DATE], &rules), refused);
    assert_eq!(lifetime_s(&[old, DATE, tag], &rules), Ok(0));
    assert_eq!(lifetime_s(&[old, DATE, ("ETag", "a")], &rules), refused, "that is no tag");
    assert_eq!(lifetime_s(&[DATE], &rules), Ok(0));
    assert_eq!(lifetime_s(&[old, DATE, public], &rules), Ok(100));
    let guesses = Rules { guesses_with_cookies: true, ..Rules::default() };
    assert_eq!(lifetime_s(&[old, DATE], &guesses), Ok(100));
    let short = Rules { heuristic_max_s: 99, ..guesses };
    assert_eq!(lifetime_s(&[old, DATE], &short), Ok(99));
}

/// A rule for a status applies to responses that state nothing about caching, and takes precedence
/// over a guess. It does not make private responses public.
#[test]
fn rules_for_statuses() {
    let mut rules = Rules::default();
    for (word, fresh_s) in [("404", 10), ("5xx", 1), ("302", 3), ("200", 0)] {
        rules.statuses.add(word.parse().unwrap(), fresh_s);
    }
    let kept = |request: &[(&str, &str)], status: u16, response: &[(&str, &str)]| {
        let (requested, answered) = (fields(request), fields(response));
        let request = Request { method: "GET", fields: &requested };
        let response = Response { status, fields: &answered };
        let stored = store(&request, &response, NOW, &rules)?;
        Ok((stored.life.lifetime_s, stored.life.is_by_rule))
    };
    for (status, fresh_s) in [(404, 10), (503, 1), (302, 3), (200, 0)] {
        assert_eq!(kept(&[], status, &[DATE]), Ok((fresh_s, true)), "{status}");
    }
    assert_eq!(kept(&[], 403, &[DATE]), Err(Unstored::NotSaid));
    assert_eq!(kept(&[], 410, &[DATE]), Ok((0, false)), "a guess");
    let old = ("Last-Modified", "Sun, 06 Nov 1994 08:32:57 GMT");
    assert_eq!(kept(&[], 404, &[old, DATE]), Ok((10, true)), "not a guess");
    // larder obeys a response that states something.
    let cc = |text| ("Cache-Control", text);
    assert_eq!(kept(&[], 404, &[cc("max-age=60")]), Ok((60, false)));
    assert_eq!(kept(&[], 404, &[("Expires", "0")]), Ok((0, false)));
    assert_eq!(kept(&[], 404, &[cc("no-cache")]), Ok((0, false)));
    assert_eq!(kept(&[], 404, &[("Pragma", "no-cache")]), Ok((0, false)));
    assert_eq!(kept(&[], 503, &[cc("must-revalidate")]), Err(Unstored::NotSaid));
    assert_eq!(kept(&[], 404, &[cc("private")]), Err(Unstored::Private));
    assert_eq!(kept(&[], 404, &[cc("no-store")]), Err(Unstored::NoStore));
    assert_eq!(kept(&[], 404, &[("Set-Cookie", "a=b")]), Err(Unstored::Cookies));
    assert_eq!(kept(&[], 404, &[("Vary", "*")]), Err(Unstored::VaryAny));
    let requested = [("Authorization", "Basic x")];
    assert_eq!(kept(&requested, 404, &[]), Err(Unstored::Authorization));
    assert_eq!(kept(&[cc("no-store")], 404, &[]), Err(Unstored::RequestNoStore));
}

/// The named fields distinguish variants, however clients spread and space them. A missing field is
/// not an empty one.
#[test]
fn variants() {
    let requested = [("Accept", "a,b"), ("ACCEPT", " c"), ("X", "")];
    let stored =
        kept_for(&requested, 200, &[("Vary", "accept, X, accept"), ("vary", "Y")]).unwrap();
    let is_for = |requested: &[(&str, &str)]| {
        stored.is_for(&Request { method: "GET", fields: &fields(requested) })
    };
    assert!(is_for(&[("accept", "a , b,c"), ("x", ""), ("Z", "any")]));
    assert!(!is_for(&[("accept", "a, b"), ("x", "")]));
    assert!(!is_for(&[("accept", "a, b, c")]), "X is not there");
    assert!(!is_for(&[("accept", "a, b, c"), ("x", ""), ("y", "")]), "Y is");
    assert!(!is_for(&[("accept", "A, b, c"), ("x", "")]), "a parameter may mean something else");
    let value = |name, value| selecting_value(&fields(&[(name, value)]), name);
    assert_eq!(value("accept-language", "eN ,De;Q=1"), value("accept-language", "en,de;q=1"));
    assert_eq!(value("accept-encoding", "GZIP"), Some(b"gzip".to_vec()));
}

/// Only valid entity tags and dates are validators.
#[test]
fn validators() {
    for (text, is_one) in [
        ("\"a\"", true),
        ("W/\"\"", true),
        ("a", false),
        ("\"a", false),
        ("w/\"a\"", false),
        ("\"a\"b\"", false),
        ("\"a b\"", false),
        ("\"a\x7f\"", false),
        ("\"a!\"", true),
    ] {
        assert_eq!(kept(200, &[("ETag", text)]).unwrap().etag.is_some(), is_one, "{text}");
    }
    assert_eq!(kept(200, &[("Last-Modified", "yesterday")]).unwrap().last_modified, None);
    assert!(!kept(200, &[]).unwrap().is_of_use(&Rules::default()));
    assert!(kept(200, &[("ETag", "\"a\"")]).unwrap().is_of_use(&Rules::default()));
    assert!(kept(200, &[("Last-Modified", DATE.1)]).unwrap().is_of_use(&Rules::default()));
}

/// A response is useless if it is stale when it comes, may not be served stale, and cannot be
/// validated. One second of any makes it useful.
#[test]
fn uses() {
    let is_of_use = |control: &str, rules: &Rules| {
        kept(200, &[("Cache-Control", control)]).unwrap().is_of_use(rules)
    };
    let rules = Rules { stale_if_error_s: 0, ..Rules::default() };
    // It was two seconds on the way.
    assert!(!is_of_use("max-age=2", &rules) && is_of_use("max-age=3", &rules));
    assert!(!is_of_use("max-age=3, no-cache", &rules));
    assert!(is_of_use("max-age=0, stale-if-error=1", &rules));
    assert!(is_of_use("max-age=0, stale-while-revalidate=1", &rules));
    let lenient = Rules { stale_if_error_s: 1, ..rules };
    assert!(
        is_of_use("max-age=0", &lenient) && !is_of_use("max-age=0, stale-if-error=0", &lenient)
    );
    let window_s = |control: &str| {
        kept(200, &[("Cache-Control", control)]).unwrap().life.stale_window_s(&lenient)
    };
    assert_eq!(window_s("max-age=0, stale-if-error=5, stale-while-revalidate=7"), 7);
    assert_eq!(window_s("max-age=0, stale-if-error=9, stale-while-revalidate=7"), 9);
}
