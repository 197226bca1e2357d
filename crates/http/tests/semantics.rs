//! Cacheability and freshness compared with http-cache-semantics, for generated messages. If the
//! two differ on purpose, the messages are not generated, and the comment of [`cases`] says so.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use larder_http::cacheability::{Life, Moments, Stored, Unstored, store};
use larder_http::directives::RequestDirectives;
use larder_http::freshness::{Decision, decide};
use larder_http::{Field, Request, Response, Rules};
use proptest::prelude::*;
use proptest::sample::select;

/// The time of each response, seconds since 1970.
const CAME_S: u64 = 1_700_000_000;

type Fields = Vec<(&'static str, String)>;

/// A request, a response, another request, and its delay after the response, in seconds.
#[derive(Debug, Clone)]
struct Case {
    requested: Fields,
    status: u16,
    answered: Fields,
    requested_again: Fields,
    after_s: u64,
}

fn date(s: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(s))
}

fn seconds() -> impl Strategy<Value = u64> {
    select(vec![0, 1, 5, 60, 100, 3_600, 100_000])
}

fn control(
    words: &'static [&'static str],
    numbers: &'static [&'static str],
) -> impl Strategy<Value = Fields> {
    let word = select(words).prop_map(str::to_owned);
    let number = (select(numbers), seconds()).prop_map(|(name, s)| format!("{name}={s}"));
    let one = prop_oneof![word, number];
    proptest::collection::vec(one, 0..3).prop_map(|mut all| {
        let name = |it: &String| it.split('=').next().unwrap_or_default().to_owned();
        // Of two directives of one name the other takes none, or the last.
        all.sort();
        all.dedup_by_key(|it| name(it));
        if all.is_empty() { Vec::new() } else { vec![("cache-control", all.join(", "))] }
    })
}

/// Not generated, since the two differ on purpose:
///
/// * `must-understand` and `CDN-Cache-Control`, which the other does not support.
/// * Invalid numbers and repeated directives, which the other reads differently.
/// * `Vary: *` and cookies, which the other stores with no lifetime and larder does not store.
/// * Status codes unknown to the other; larder stores those with an explicit lifetime.
/// * `immutable`.
/// * `max-stale`, whose last second differs.
/// * Dates that make a response older than it states, which the other ignores.
fn cases() -> impl Strategy<Value = Case> {
    let requested = proptest::option::weighted(0.2, Just(("authorization", "Basic x".to_owned())));
    let status = select(vec![200, 203, 204, 300, 301, 302, 307, 308, 404, 405, 410, 414, 501]);
    let said = control(
        &["public", "private", "no-store", "no-cache", "must-revalidate"],
        &["max-age", "s-maxage", "stale-while-revalidate"],
    );
    let times = (
        proptest::option::of(seconds()),
        proptest::option::of(seconds()),
        proptest::option::of(seconds()),
        proptest::option::of(seconds()),
    );
    let again = control(&["no-cache"], &["max-age", "min-fresh"]);
    (requested, status, said, times, again, seconds()).prop_map(
        |(
            requested,
            status,
            mut answered,
            (made, expires, modified, age),
            requested_again,
            after_s,
        )| {
            let made_s = CAME_S - made.unwrap_or(0).min(age.unwrap_or(0));
            answered.extend(made.map(|_| ("date", date(made_s))));
            answered.extend(expires.map(|in_s| ("expires", date(made_s + in_s))));
            answered.extend(modified.map(|ago_s| ("last-modified", date(made_s - ago_s))));
            answered.extend(age.map(|age_s| ("age", age_s.to_string())));
            Case {
                requested: requested.into_iter().collect(),
                status,
                answered,
                requested_again,
                after_s,
            }
        },
    )
}

fn fields(all: &Fields) -> Vec<Field<'_>> {
    all.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect()
}

fn at(s: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(s)
}

fn their_request(all: &Fields) -> http::Request<()> {
    let request = http::Request::builder().uri("http://a.example/");
    let request = all.iter().fold(request, |it, (name, value)| it.header(*name, value));
    request.body(()).expect("sound")
}

fn ours(case: &Case) -> Option<Stored> {
    ours_by(case, &Rules::default()).ok()
}

fn ours_by(case: &Case, rules: &Rules) -> Result<Stored, Unstored> {
    let (requested, answered) = (fields(&case.requested), fields(&case.answered));
    let request = Request { method: "GET", fields: &requested };
    let response = Response { status: case.status, fields: &answered };
    let moments = Moments { request_s: CAME_S, response_s: CAME_S };
    store(&request, &response, moments, rules)
}

fn theirs(case: &Case) -> CachePolicy {
    let response = http::Response::builder().status(case.status);
    let response = case.answered.iter().fold(response, |it, (name, value)| it.header(*name, value));
    let response = response.body(()).expect("sound");
    let options = CacheOptions { shared: true, cache_heuristic: 0.1, ..CacheOptions::default() };
    CachePolicy::new_options(&their_request(&case.requested), &response, at(CAME_S), options)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    /// Both store the same responses, compute the same age, and serve the same requests without
    /// revalidation.
    #[test]
    fn as_http_cache_semantics_has_it(case in cases()) {
        let (ours, theirs) = (ours(&case), theirs(&case));
        prop_assert_eq!(ours.is_some(), theirs.is_storable(), "kept");
        if let Some(ours) = ours {
            let now_s = CAME_S + case.after_s;
            prop_assert_eq!(ours.life.age_s(now_s), theirs.age(at(now_s)).as_secs(), "age");
            let fields = fields(&case.requested_again);
            let again = RequestDirectives::heeded(&fields, &Rules::default());
            let decision = decide(&ours.life, &again, now_s);
            let before = theirs.before_request(&their_request(&case.requested_again), at(now_s));
            let is_fresh = matches!(before, BeforeRequest::Fresh(_));
            let serves = matches!(decision, Decision::Serve { .. });
            prop_assert_eq!(serves, is_fresh, "{:?}", decision);
        }
    }

    /// Rules for statuses, compared with storage without them. A response with cache directives is
    /// treated as before. Of the others, those that may be shared at all are fresh for the rule's
    /// time; nothing else changes.
    #[test]
    fn rules_for_statuses(case in cases(), fresh_s in seconds(), is_named in any::<bool>()) {
        let mut rules = Rules::default();
        let word = if is_named { case.status.to_string() } else { format!("{}xx", case.status / 100) };
        rules.statuses.add(word.parse().expect("a status"), fresh_s);
        let (before, after) = (ours_by(&case, &Rules::default()), ours_by(&case, &rules));
        let says = case.answered.iter().any(|(name, _)| ["cache-control", "expires"].contains(name));
        let is_ruled = !says && rules.statuses.fresh_s(case.status).is_some();
        match (before, after) {
            (before, after) if !is_ruled => prop_assert_eq!(before, after),
            (Err(why), after) if why != Unstored::NotSaid => prop_assert_eq!(Err(why), after),
            (before, after) => {
                let Ok(after) = after else { return Err(TestCaseError::fail("it is kept")) };
                prop_assert!(after.life.is_by_rule && !after.life.is_heuristic);
                prop_assert_eq!(after.life.lifetime_s, fresh_s);
                if let Ok(before) = before {
                    let life = Life { lifetime_s: fresh_s, is_by_rule: true, is_heuristic: false, ..before.life };
                    prop_assert_eq!(after, Stored { life, ..before });
                }
            }
        }
    }
}
