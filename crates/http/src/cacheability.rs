//! Decides whether a response may be stored, how long it is fresh, and which requests it is for
//! (RFC 9111, sections 3, 4.1 and 4.2).

use crate::directives::{RequestDirectives, ResponseDirectives};
use crate::field::{date, date_of, has, members, only, seconds, split, values};
use crate::{Field, Request, Response, Rules, SECONDS_MAX};

/// Status codes of responses that may be stored even if they do not state it (RFC 9110, section
/// 15.1). 206 is missing: larder stores no parts.
const HEURISTIC: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];

/// Codes that larder understands, for responses with `must-understand`.
const UNDERSTOOD: [u16; 26] = [
    200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 406, 409, 410, 411, 413,
    414, 415, 500, 501, 502, 503, 504,
];

/// When a request was sent and the headers of its response came, seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Moments {
    pub request_s: u64,
    pub response_s: u64,
}

/// Why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unstored {
    /// The request's method is not GET.
    Method,
    /// The request has content. That may have selected the response, and is not in the key.
    Content,
    /// The status is that of a part or of an update, is not final, or is about conditions of one
    /// request.
    Status,
    /// It states `must-understand`, and larder does not understand its status.
    NotUnderstood,
    /// The response forbids it.
    NoStore,
    /// The request forbids it.
    RequestNoStore,
    /// The response is for one client.
    Private,
    /// The request has credentials, and the response does not state that it is for other clients
    /// too.
    Authorization,
    /// It varies on more than the request.
    VaryAny,
    /// It sets cookies, and does not state that it is for all clients.
    Cookies,
    /// The request has cookies, and the response states neither a lifetime nor an entity tag.
    RequestCookies,
    /// Nothing states that it may be stored.
    NotSaid,
}

/// A field that selected a response, and its value in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// In lower case.
    pub name: String,
    /// Its members, as one list; `None`: it was not there.
    pub value: Option<Vec<u8>>,
}

/// The data that decides how a stored response may be used: small, and cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// Its status code.
    pub status: u16,
    /// Its directives.
    pub directives: ResponseDirectives,
    /// How long it is fresh, seconds from when it was made.
    pub lifetime_s: u64,
    /// The lifetime is a guess: the response did not state one.
    pub is_heuristic: bool,
    /// The lifetime is the operator's rule for its status: the response did not state one.
    pub is_by_rule: bool,
    /// How old it was when it came, seconds (`corrected_initial_age`, RFC 9111, section 4.2.3).
    pub initial_age_s: u64,
    /// When it came, seconds since 1970.
    pub response_s: u64,
}

impl Life {
    /// Its age at a time, seconds: the value of `Age` (RFC 9111, section 5.1).
    pub fn age_s(&self, now_s: u64) -> u64 {
        let resident_s = now_s.saturating_sub(self.response_s);
        self.initial_age_s.saturating_add(resident_s).min(SECONDS_MAX)
    }

    /// How much longer it is fresh, seconds; 0: it is stale.
    pub fn fresh_s(&self, now_s: u64) -> u64 {
        self.lifetime_s.saturating_sub(self.age_s(now_s))
    }

    /// How long it has been stale, seconds; 0 also in the second in which it becomes so.
    pub fn stale_s(&self, now_s: u64) -> u64 {
        self.age_s(now_s).saturating_sub(self.lifetime_s)
    }

    /// How long it may be served stale, for any reason, seconds from when it became so.
    pub fn stale_window_s(&self, rules: &Rules) -> u64 {
        let said = &self.directives;
        let on_error_s = said.stale_if_error_s.unwrap_or(rules.stale_if_error_s);
        on_error_s.max(said.stale_while_revalidate_s.unwrap_or(0))
    }
}

/// The validators of a stored response: bytes as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Validators<'a> {
    /// Its entity tag, with quotes, and `W/` if it is weak.
    pub etag: Option<&'a [u8]>,
    /// `Last-Modified`.
    pub last_modified: Option<&'a [u8]>,
    /// `Date`: a client compares it; the origin is not sent it.
    pub date: Option<&'a [u8]>,
}

impl Validators<'_> {
    /// True where the origin can confirm that the response is still current.
    pub fn has_any(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }
}

/// The metadata of a response that is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// How it may be used.
    pub life: Life,
    /// The fields that selected it among its variants.
    pub vary: Vec<Selected>,
    /// Its entity tag, with quotes, and `W/` if it is weak.
    pub etag: Option<Vec<u8>>,
    /// `Last-Modified` as it came.
    pub last_modified: Option<Vec<u8>>,
}

impl Stored {
    /// Its validators.
    pub fn validators(&self) -> Validators<'_> {
        Validators {
            etag: self.etag.as_deref(),
            last_modified: self.last_modified.as_deref(),
            date: None,
        }
    }

    /// True where it can ever be served: it is fresh for some time, or may be stale, or can be
    /// validated.
    pub fn is_of_use(&self, rules: &Rules) -> bool {
        let life = &self.life;
        let is_fresh = life.lifetime_s > life.initial_age_s && !life.directives.no_cache;
        is_fresh || self.validators().has_any() || life.stale_window_s(rules) > 0
    }

    /// True where it was fresh when larder requested it, and was stale when it came: the clients
    /// that waited for it may have it, unless the response forbids any stale use. Without this, an
    /// origin that is slower than its `max-age` (or a fetch of 0.2 s across the turn of a second,
    /// for `max-age=1`) would get one request for each client that waits.
    pub fn expired_in_transit(&self, fields: &[Field<'_>], requested_s: u64) -> bool {
        let Life { directives: said, lifetime_s, .. } = &self.life;
        let at_once = Moments { request_s: requested_s, response_s: requested_s };
        let forbids = said.no_cache || said.must_revalidate || said.proxy_revalidate;
        *lifetime_s <= self.life.initial_age_s
            && *lifetime_s > initial_age_s(fields, at_once)
            && !forbids
    }

    /// True where it is for this request too: the selecting fields have the same values (RFC 9111,
    /// section 4.1).
    pub fn is_for(&self, request: &Request<'_>) -> bool {
        self.vary.iter().all(|it| selecting_value(request.fields, &it.name) == it.value)
    }
}

/// Decides what larder stores of a response, or why it does not store it.
pub fn store(
    request: &Request<'_>,
    response: &Response<'_>,
    moments: Moments,
    rules: &Rules,
) -> Result<Stored, Unstored> {
    let Response { status, fields } = *response;
    let (directives, is_targeted) = ResponseDirectives::read(fields);
    if request.method != "GET" {
        return Err(Unstored::Method);
    }
    if has_content(request.fields) {
        return Err(Unstored::Content);
    }
    // 412 and 416 are about conditions and ranges of one request, whatever the response states.
    if !(200..600).contains(&status) || matches!(status, 206 | 304 | 412 | 416) {
        return Err(Unstored::Status);
    }
    if directives.must_understand && !UNDERSTOOD.contains(&status) {
        return Err(Unstored::NotUnderstood);
    }
    // A response with a status that larder understands may be stored all the same (RFC 9111,
    // section 5.2.2.3).
    if directives.no_store && !directives.must_understand {
        return Err(Unstored::NoStore);
    }
    if rules.heeds_clients && RequestDirectives::read(request.fields).no_store {
        return Err(Unstored::RequestNoStore);
    }
    if directives.is_private {
        return Err(Unstored::Private);
    }
    let is_for_all = directives.is_public || directives.s_maxage_s.is_some();
    if has(request.fields, "authorization") && !is_for_all && !directives.must_revalidate {
        return Err(Unstored::Authorization);
    }
    let vary = vary(request, fields).ok_or(Unstored::VaryAny)?;
    if rules.is_cautious_with_cookies && has(fields, "set-cookie") && !is_for_all {
        return Err(Unstored::Cookies);
    }
    let lifetime = said_lifetime_s(&directives, is_targeted, fields, moments);
    let ruled = ruled_lifetime_s(status, fields, rules);
    let lifetime_s = match lifetime.or(ruled) {
        Some(lifetime_s) => lifetime_s,
        None => unsaid_lifetime_s(request, response, &directives, moments, rules)?,
    };
    Ok(Stored {
        life: Life {
            status,
            directives,
            lifetime_s,
            is_heuristic: lifetime.is_none() && ruled.is_none(),
            is_by_rule: ruled.is_some(),
            initial_age_s: initial_age_s(fields, moments),
            response_s: moments.response_s,
        },
        vary,
        etag: only(fields, "etag").filter(|it| is_entity_tag(it)).map(<[u8]>::to_vec),
        last_modified: only(fields, "last-modified")
            .filter(|it| date(it).is_some())
            .map(<[u8]>::to_vec),
    })
}

/// The lifetime in seconds of a response that states nothing about caching, where the operator has
/// no rule. A guess must not give one client's page to others.
fn unsaid_lifetime_s(
    request: &Request<'_>,
    response: &Response<'_>,
    directives: &ResponseDirectives,
    moments: Moments,
    rules: &Rules,
) -> Result<u64, Unstored> {
    let Response { status, fields } = *response;
    let may_be_ones_own =
        has(request.fields, "cookie") && !directives.is_public && !rules.guesses_with_cookies;
    let has_etag = only(fields, "etag").is_some_and(is_entity_tag);
    match may_be_ones_own {
        _ if !HEURISTIC.contains(&status) && !directives.is_public => Err(Unstored::NotSaid),
        false => Ok(guessed_lifetime_s(fields, moments, rules)),
        // An entity tag identifies these bytes; the pages of two clients may have the same date.
        true if has_etag || !has(fields, "last-modified") => Ok(0),
        true => Err(Unstored::RequestCookies),
    }
}

/// True where a request has content, or may have some: a length other than 0, or a coding.
fn has_content(fields: &[Field<'_>]) -> bool {
    let is_zero = |value: &[u8]| value.iter().all(|byte| b"0, \t".contains(byte));
    has(fields, "transfer-encoding") || !values(fields, "content-length").all(is_zero)
}

/// The lifetime that it states, seconds (RFC 9111, section 4.2.1); `None`: it states none.
fn said_lifetime_s(
    directives: &ResponseDirectives,
    is_targeted: bool,
    fields: &[Field<'_>],
    moments: Moments,
) -> Option<u64> {
    let said = directives.s_maxage_s.or(directives.max_age_s);
    if said.is_some() || is_targeted || !has(fields, "expires") {
        return said;
    }
    // An invalid date, such as the usual 0, is in the past (section 5.3).
    let made_s = date_of(fields, "date").unwrap_or(moments.response_s);
    let expires = values(fields, "expires").next().and_then(date);
    Some(expires.map_or(0, |expires_s| expires_s.saturating_sub(made_s).min(SECONDS_MAX)))
}

/// The lifetime by the operator's rule for its status, seconds, where the response states nothing
/// about caching. A response that sets cookies is likely for one client.
fn ruled_lifetime_s(status: u16, fields: &[Field<'_>], rules: &Rules) -> Option<u64> {
    const SAYS: [&str; 4] = ["cache-control", "cdn-cache-control", "expires", "set-cookie"];
    let fresh_s = rules.statuses.fresh_s(status)?;
    let says = |field: &Field<'_>| SAYS.iter().any(|it| it.eq_ignore_ascii_case(field.name));
    // `Pragma: no-cache` means nothing in a response (RFC 9111, section 5.4), but an origin that
    // sends it does not want it stored.
    let has_pragma_no_cache =
        members(fields, "pragma").any(|it| it.eq_ignore_ascii_case(b"no-cache"));
    (!has_pragma_no_cache && !fields.iter().any(says)).then(|| fresh_s.min(SECONDS_MAX))
}

/// The lifetime guessed from the time since the last modification, seconds (section 4.2.2).
fn guessed_lifetime_s(fields: &[Field<'_>], moments: Moments, rules: &Rules) -> u64 {
    let made_s = date_of(fields, "date").unwrap_or(moments.response_s);
    let unchanged_s = date_of(fields, "last-modified").map_or(0, |it| made_s.saturating_sub(it));
    let share_s = (unchanged_s as f64 * rules.heuristic_share.clamp(0.0, 1.0)) as u64;
    share_s.min(rules.heuristic_max_s)
}

/// Its age when it was received, seconds (section 4.2.3).
fn initial_age_s(fields: &[Field<'_>], moments: Moments) -> u64 {
    let apparent_s = date_of(fields, "date").map_or(0, |it| moments.response_s.saturating_sub(it));
    let delay_s = moments.response_s.saturating_sub(moments.request_s);
    // The first member of a list counts, and an invalid number is ignored (section 5.1).
    let stated_s =
        values(fields, "age").next().and_then(|it| split(it, b',').next().and_then(seconds));
    apparent_s.max(stated_s.unwrap_or(0).saturating_add(delay_s)).min(SECONDS_MAX)
}

/// The request's values of the fields that `Vary` names; `None` for `*`.
fn vary(request: &Request<'_>, fields: &[Field<'_>]) -> Option<Vec<Selected>> {
    let mut selected: Vec<Selected> = Vec::new();
    for name in members(fields, "vary") {
        if name == b"*" {
            return None;
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if !selected.iter().any(|it| it.name == name) {
            let value = selecting_value(request.fields, &name);
            selected.push(Selected { name, value });
        }
    }
    Some(selected)
}

/// Fields whose values ignore case: codings and language tags (RFC 9110, sections 8.4.1, 8.5.1 and
/// 12.5). Media types are not among them: their parameters may depend on case.
const CASELESS: [&str; 2] = ["accept-encoding", "accept-language"];

/// A request's value of a selecting field: its members as one list, however the client spread and
/// spaced them; `None` where the field is missing.
pub fn selecting_value(fields: &[Field<'_>], name: &str) -> Option<Vec<u8>> {
    if !has(fields, name) {
        return None;
    }
    let mut value = members(fields, name).collect::<Vec<_>>().join(&b", "[..]);
    if CASELESS.iter().any(|it| it.eq_ignore_ascii_case(name)) {
        value.make_ascii_lowercase();
    }
    Some(value)
}

/// True for an entity tag: `"…"` or `W/"…"` (RFC 9110, section 8.8.3).
pub(crate) fn is_entity_tag(value: &[u8]) -> bool {
    let opaque = value.strip_prefix(b"W/").unwrap_or(value);
    let inner = opaque.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\""));
    inner.is_some_and(|it| it.iter().all(|&byte| byte > 0x20 && byte != b'"' && byte != 0x7f))
}

#[cfg(test)]
mod tests;
