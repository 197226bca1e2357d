//! From the headers of a request to a response, a wait, or a fetch.
//!
//! ```text
//! lookup  fresh, or stale and allowed   Hit: the response is written
//!         stale while revalidating      Renew: the same, and the origin is asked to confirm it
//!         missing, or to be confirmed   Join: the client waits for the in-flight fetch, or starts it
//!         not shared                    Pass: a fetch for this client alone
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use larder_mem::object::{Object, Phase};

use super::fetch::{Fetch, Purpose};
use super::{ClientRequest, Content, Core, Net, ResponseSummary, Upload};
use crate::answer::{Answer, Body, Composed, RequestContext, Said, compose, push_body, push_own};
use crate::cache_status_header::{CacheStatus, Forward, push_cache_status};
use crate::cacheability::Life;
use crate::coalescing::{Flight, Join, Outcome, Waiter};
use crate::directives::RequestDirectives;
use crate::field::{has, members};
use crate::freshness::{Decision, decide};
use crate::key::{Key, push_url};
use crate::message::trailers::takes_trailers;
use crate::message::{Framing, RequestHead, Target};
use crate::record::Record;
use crate::sent::Sent;
use crate::store::Found;
use crate::{Field, Request};

/// Makes a response one client's own. Keys that are noted as unshared include this name.
pub(super) const CREDENTIALS: &str = "authorization";
/// The same for cookies.
pub(super) const COOKIES: &str = "cookie";
/// In a key: the confirmation of the cached response is one client's own.
pub(super) const RENEWAL: &str = "renewal";

/// A request without a response yet.
#[derive(Debug)]
pub struct Exchange {
    /// The headers, as they were received.
    pub head: Vec<u8>,
    /// The in-flight fetch that its client waits for with others.
    pub flight: Option<Arc<Flight>>,
    /// The client uses HTTP/1.1, so it accepts interim responses.
    pub knows_interim: bool,
    /// Why the request is sent to the origin, for `Cache-Status`.
    pub why: Forward,
}

/// The reply to a request.
#[derive(Debug)]
pub struct Reply {
    /// The next step for the client.
    pub step: Step,
    /// The connection ends after the response.
    pub closes: bool,
    /// The client may still send, and is to receive the response all the same.
    pub lingers: bool,
}

/// The next step for a client.
#[derive(Debug)]
pub enum Step {
    /// The response is in `out`.
    Sent,
    /// Its headers are in `out`, and this body follows.
    Deliver(Box<Content>),
    /// Nothing: it waits for an [`Outcome`]. The body of its request goes to the `Upload`.
    Wait(Box<Exchange>, Option<Box<Upload>>),
}

/// The result of a lookup.
enum Lookup {
    /// The response is written; its body follows if it is not in the record.
    Hit(Composed, Option<Arc<Object>>),
    /// The same, which is stale; the origin should confirm this record.
    Renew(Composed, Option<Arc<Object>>, Key, Vec<u8>),
    /// A request goes to the origin, for all clients that want the object.
    Join(Key, Forward, Option<Vec<u8>>),
    /// A request goes to the origin for this client; the response may be stored, or not.
    Pass(Forward, bool),
    /// The client wants a cached response, and no cached one may be used.
    Unsatisfiable,
}

impl ClientRequest<'_> {
    fn address(&self) -> Option<IpAddr> {
        (self.peer)().map(|peer| peer.ip())
    }

    /// What decides how the response is written.
    fn context(&self, closes: bool) -> RequestContext<'_> {
        let head = self.head;
        let request = Request { method: head.method, fields: head.fields };
        let keeps_alive = head.keeps_alive && !closes;
        RequestContext { request, minor_version: head.minor_version, keeps_alive }
    }

    fn has_content(&self) -> bool {
        self.head.framing != Framing::None
    }
}

impl Reply {
    /// A response whose headers, and body as far as it is in the record, are written.
    fn composed(composed: Composed, content: impl FnOnce(Body) -> Option<Content>) -> Reply {
        let step = match composed.body {
            Body::None => Step::Sent,
            body => content(body).map_or(Step::Sent, |it| Step::Deliver(Box::new(it))),
        };
        Reply { step, closes: composed.closes, lingers: false }
    }

    fn wait(exchange: Exchange, upload: Option<Box<Upload>>) -> Reply {
        let step = Step::Wait(Box::new(exchange), upload);
        Reply { step, closes: false, lingers: false }
    }

    fn closing(mut self, closes: bool) -> Reply {
        self.closes |= closes;
        self
    }
}

impl Core {
    /// Decides about a request. The bytes that the client gets now are appended to `out`.
    pub fn request(
        &mut self,
        net: &mut impl Net,
        from: &ClientRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Reply {
        self.counts.requests += 1;
        let head = from.head;
        if matches!(head.target, Target::Authority(_)) {
            return self.own(from, true, 501, "this server is no tunnel", out);
        }
        let context = from.context(self.is_draining);
        let closes = from.closes || !context.keeps_alive;
        if wants_other_protocol(head.fields) {
            let text = "this server does not switch protocols: Upgrade is not supported";
            return self.own(from, closes, 501, text, out);
        }
        if head.method == "PURGE" {
            return self.purge(from, closes, out);
        }
        let is_looked_up = matches!(head.method, "GET" | "HEAD") && head.framing == Framing::None;
        let found = match is_looked_up {
            true => self.look_up(from, &context, out),
            // A request with content is no plain request for the URL, whatever its method.
            false => Lookup::Pass(Forward::Method, head.framing == Framing::None),
        };
        let reply = match found {
            Lookup::Hit(composed, object) => {
                self.counts.hits += 1;
                cached(composed, object)
            }
            Lookup::Renew(composed, object, key, stale) => {
                self.counts.hits_stale += 1;
                self.renew(net, from, &key, stale);
                cached(composed, object)
            }
            Lookup::Join(key, why, stale) => self.join(net, from, &key, why, stale, closes, out),
            Lookup::Pass(why, may_keep) => self.pass(net, from, why, may_keep, closes, out),
            Lookup::Unsatisfiable => {
                self.own(from, closes, 504, "nothing is kept that may be used", out)
            }
        };
        reply.closing(closes)
    }

    /// Looks for a cached response, and writes it to `out` where it may be used.
    fn look_up(
        &mut self,
        from: &ClientRequest<'_>,
        context: &RequestContext<'_>,
        out: &mut Vec<u8>,
    ) -> Lookup {
        let head = from.head;
        self.url.clear();
        push_url(&mut self.url, from.scheme, head.host, head.target.path());
        let directives = RequestDirectives::heeded(head.fields, &self.options.rules);
        let now = self.seconds();
        let address = || from.address();
        let sent = Sent::new(head, self.stated_scheme(from.scheme), true, &address);
        let (key, kept, is_purged) = match self.handle.find(&self.url, &sent, now) {
            Found::Kept { key, kept, is_purged } => (key, kept, is_purged),
            found => return self.missed(&found, head, &directives),
        };
        let object = match kept.body_id {
            None => None,
            Some(id) => match self.store.bodies.get(id) {
                Some(object) => Some(object),
                None if directives.only_if_cached => return Lookup::Unsatisfiable,
                None => return Lookup::Join(key, Forward::UriMiss, None),
            },
        };
        let (age_s, renews) = match decide(&kept.life, &directives, self.now_s) {
            Decision::Serve { age_s } if !is_purged => (age_s, false),
            Decision::ServeAndValidate { age_s } if !is_purged => (age_s, true),
            Decision::Unsatisfiable => return Lookup::Unsatisfiable,
            _ if directives.no_store
                || self.fetches_alone(&key, head)
                || self.handle.is_unshared_for(&key, RENEWAL, now) =>
            {
                return Lookup::Pass(Forward::Stale, true);
            }
            _ => return Lookup::Join(key, Forward::Stale, Some(kept.bytes.to_vec())),
        };
        self.note.clear();
        if self.options.says_status {
            let life = &kept.life;
            let ttl_s = life.fresh_s(self.now_s) as i64 - life.stale_s(self.now_s) as i64;
            push_cache_status(&mut self.note, CacheStatus::Hit { ttl_s }, life.is_by_rule);
        }
        let said = Said { age_s: Some(age_s), cache_status: &self.note, heeds_conditions: true };
        let composed = compose(out, &kept, context, &said, kept.body_bytes);
        let head_end = out.len();
        if object.is_none() {
            push_body(out, &composed.body, kept.body);
        }
        let (status, body_bytes) = (composed.status, (out.len() - head_end) as u64);
        self.counts.responded(status, body_bytes);
        let cache = Some(if renews { "hit-stale" } else { "hit" });
        self.summary = ResponseSummary { status, body_bytes, cache, origin_status: None };
        // A response that could not be stored would only keep other clients from renewing it.
        let may_renew = || {
            !directives.no_store
                && (!has(head.fields, CREDENTIALS) || is_for_all(&kept.life))
                && !self.fetches_alone(&key, head)
                && !self.store.flights.has(&key)
        };
        match renews && may_renew() {
            true => Lookup::Renew(composed, object, key, kept.bytes.to_vec()),
            false => Lookup::Hit(composed, object),
        }
    }

    /// Decides the next step if no response is cached.
    fn missed(
        &self,
        found: &Found<'_>,
        head: &RequestHead<'_>,
        directives: &RequestDirectives,
    ) -> Lookup {
        match *found {
            _ if directives.only_if_cached => Lookup::Unsatisfiable,
            Found::TooLong => Lookup::Pass(Forward::Bypass, false),
            // Its response would be for no other client, so no client waits for it.
            Found::Nothing { .. } if directives.no_store => Lookup::Pass(Forward::Bypass, true),
            Found::Nothing { key, is_variant } if !self.fetches_alone(&key, head) => {
                let why = if is_variant { Forward::VaryMiss } else { Forward::UriMiss };
                Lookup::Join(key, why, None)
            }
            _ => Lookup::Pass(Forward::Bypass, true),
        }
    }

    /// True where a note states that such a request gets a response of its own: its client waits
    /// for no other fetch, and no other client waits for its fetch.
    fn fetches_alone(&self, key: &Key, head: &RequestHead<'_>) -> bool {
        let is_noted = |kind: &str| {
            has(head.fields, kind) && self.handle.is_unshared_for(key, kind, self.seconds())
        };
        is_noted(CREDENTIALS) || is_noted(COOKIES)
    }

    /// A response of larder itself.
    pub(super) fn own(
        &mut self,
        from: &ClientRequest<'_>,
        closes: bool,
        status: u16,
        text: &str,
        out: &mut Vec<u8>,
    ) -> Reply {
        let context = from.context(closes || from.has_content());
        push_own(out, status, text, &context, &OWN, self.now_s);
        let body_bytes = if from.head.method == "HEAD" { 0 } else { text.len() as u64 + 1 };
        self.counts.responded(status, body_bytes);
        self.summary = ResponseSummary { status, body_bytes, ..ResponseSummary::default() };
        // The body of the request is not read.
        let lingers = from.has_content();
        Reply { step: Step::Sent, closes: closes || !context.keeps_alive, lingers }
    }

    /// An error for a client whose request cannot be read: the connection ends after it.
    pub fn refuse(&mut self, status: u16, text: &str, out: &mut Vec<u8>) {
        let request = Request { method: "GET", fields: &[] };
        let context = RequestContext { request, minor_version: 1, keeps_alive: false };
        push_own(out, status, text, &context, &OWN, self.now_s);
        let body_bytes = text.len() as u64 + 1;
        self.counts.responded(status, body_bytes);
        self.summary = ResponseSummary { status, body_bytes, ..ResponseSummary::default() };
    }

    /// Sends the origin a request to confirm a stale response; no client waits for it.
    fn renew(&mut self, net: &mut impl Net, from: &ClientRequest<'_>, key: &Key, stale: Vec<u8>) {
        if let Join::Leads(flight) = self.store.flights.join(key, None) {
            let purpose = Purpose::Shared { flight, stale: Some(stale), leader: None };
            net.fetch(self.fetch(from, purpose, None));
        }
    }

    /// Waits for the in-flight fetch, or starts it.
    #[expect(clippy::too_many_arguments, reason = "one place calls it, with what a lookup found")]
    fn join(
        &mut self,
        net: &mut impl Net,
        from: &ClientRequest<'_>,
        key: &Key,
        why: Forward,
        stale: Option<Vec<u8>>,
        closes: bool,
        out: &mut Vec<u8>,
    ) -> Reply {
        let waiter = Waiter { loop_number: self.number, client: from.client };
        let flight = match self.store.flights.join(key, Some(waiter)) {
            Join::Leads(flight) if self.is_outdated(from) => {
                self.store.flights.close(&flight);
                self.complete(net, &flight, &Outcome::Again);
                Some(flight)
            }
            Join::Leads(flight) => {
                self.counts.misses += 1;
                let leader = Some(from.client);
                let purpose = Purpose::Shared { flight: flight.clone(), stale, leader };
                net.fetch(self.fetch(from, purpose, None));
                Some(flight)
            }
            Join::Waits(flight) => {
                self.counts.collapsed += 1;
                Some(flight)
            }
            Join::Completed(outcome) => {
                self.counts.collapsed += 1;
                let outcome = self.still_good(from, outcome);
                self.complete_one(net, from.client, outcome);
                None
            }
            Join::Full => return self.pass(net, from, why, true, closes, out),
        };
        Reply::wait(exchange(from, flight, why), None)
    }

    /// True where a new lookup finds something else. The client that starts a fetch looks again:
    /// since its first lookup another client may have stored its response and closed its fetch.
    fn is_outdated(&mut self, from: &ClientRequest<'_>) -> bool {
        let now = self.seconds();
        let address = || from.address();
        let sent = Sent::new(from.head, self.stated_scheme(from.scheme), true, &address);
        let is_known = |found: Found<'_>| match found {
            Found::Kept { key, kept, .. } => Some((key, kept.serial)),
            Found::Nothing { key, .. } => Some((key, 0)),
            Found::Unshared | Found::TooLong => None,
        };
        let before = is_known(self.handle.find(&self.url, &sent, now));
        self.handle.sync(&self.store);
        before != is_known(self.handle.find(&self.url, &sent, now))
    }

    /// The outcome for a client that comes after the headers of a response. It gets the response if
    /// that is fresh and for this client; else the client gets its own fetch.
    fn still_good(&self, from: &ClientRequest<'_>, outcome: Outcome) -> Outcome {
        let Outcome::Answer(answer) = &outcome else { return Outcome::Alone };
        let Some(Record::Response(kept)) = Record::read(&answer.record) else {
            return Outcome::Alone;
        };
        let directives = RequestDirectives::heeded(from.head.fields, &self.options.rules);
        let is_fresh =
            matches!(decide(&kept.life, &directives, self.now_s), Decision::Serve { .. });
        if is_fresh && self.is_for(answer, from) { outcome } else { Outcome::Alone }
    }

    /// Sends a request to the origin for this client alone, with the body of the request.
    fn pass(
        &mut self,
        net: &mut impl Net,
        from: &ClientRequest<'_>,
        why: Forward,
        may_keep: bool,
        closes: bool,
        out: &mut Vec<u8>,
    ) -> Reply {
        let head = from.head;
        if matches!(head.framing, Framing::Length(bytes) if bytes > self.options.body_bytes_max) {
            self.counts.bodies_too_long += 1;
            return self.own(from, closes, 413, "the body is too long", out);
        }
        self.counts.passed += 1;
        let (upload, content) = match head.framing {
            Framing::None | Framing::UntilClose | Framing::Length(0) => (None, None),
            framing => {
                let (upload, content) = self.upload_of(framing);
                (Some(Box::new(upload)), Some(content))
            }
        };
        if head.expects_continue && upload.is_some() {
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let purpose = Purpose::Private { client: from.client, may_keep };
        net.fetch(self.fetch(from, purpose, content));
        Reply::wait(exchange(from, None, why), upload)
    }

    fn fetch(
        &self,
        from: &ClientRequest<'_>,
        purpose: Purpose,
        upload: Option<Content>,
    ) -> Box<Fetch> {
        let stated_scheme = self.stated_scheme(from.scheme);
        Box::new(Fetch::new(from, purpose, upload, stated_scheme, self.now_s, &self.store))
    }

    /// True where a response is of the variant that a request selects.
    fn is_for(&self, answer: &Answer, from: &ClientRequest<'_>) -> bool {
        let address = || from.address();
        let sent = Sent::new(from.head, self.stated_scheme(from.scheme), true, &address);
        answer.vary.iter().all(|it| sent.value(&it.name) == it.value)
    }

    /// Sends the outcome to a client that waited. The bytes that the client gets now are appended
    /// to `out`.
    pub fn outcome(
        &mut self,
        net: &mut impl Net,
        from: &ClientRequest<'_>,
        why: Forward,
        outcome: Outcome,
        out: &mut Vec<u8>,
    ) -> Reply {
        let is_plain = !has(from.head.fields, CREDENTIALS) && !has(from.head.fields, COOKIES);
        match outcome {
            Outcome::Answer(answer) if self.is_for(&answer, from) => {
                self.give(from, &answer, why, out)
            }
            // Another variant (which one is known now), or a response that is only for a client
            // with credentials or cookies: this request has none.
            Outcome::Answer(_) | Outcome::Again => self.request_again(net, from, out),
            Outcome::Own if is_plain => self.request_again(net, from, out),
            Outcome::Alone | Outcome::Own | Outcome::Interim(_) => {
                self.pass(net, from, Forward::Bypass, true, from.closes, out)
            }
            Outcome::Failed(status) => {
                let text = match status {
                    503 => {
                        "too many requests wait for the origin, or there are too many connections"
                    }
                    504 => "the origin did not answer in time",
                    _ => "the origin cannot be reached, or gave no proper answer",
                };
                self.own(from, from.closes, status, text, out)
            }
        }
    }

    fn request_again(
        &mut self,
        net: &mut impl Net,
        from: &ClientRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Reply {
        self.handle.sync(&self.store);
        self.request(net, from, out)
    }

    /// Gives a client a response that an origin sent.
    fn give(
        &mut self,
        from: &ClientRequest<'_>,
        answer: &Answer,
        why: Forward,
        out: &mut Vec<u8>,
    ) -> Reply {
        let head = from.head;
        // The core wrote this record itself.
        let Some(Record::Response(kept)) = Record::read(&answer.record) else {
            return Reply { step: Step::Sent, closes: true, lingers: false };
        };
        self.note.clear();
        if self.options.says_status {
            let (status, is_stored) = (answer.origin_status, !answer.is_private);
            let status = CacheStatus::Forwarded { why, status, is_stored };
            push_cache_status(&mut self.note, status, kept.life.is_by_rule);
        }
        let age_s = (!answer.is_private).then(|| kept.life.age_s(self.now_s));
        // A response that just came has no age, unless the origin stated one.
        let age_s = age_s.filter(|&age_s| age_s > 0 || answer.object.is_none());
        let said = Said { age_s, cache_status: &self.note, heeds_conditions: !answer.is_private };
        // The rest of the request's body must be read, or the connection cannot be used again.
        let context = from.context(self.is_draining || from.has_upload);
        let sealed_bytes = answer
            .object
            .as_ref()
            .filter(|object| object.phase() == Phase::Sealed)
            .filter(|_| !answer.part.as_ref().is_some_and(|part| part.goes_on()))
            .map(|object| object.published());
        // No trailers come after a body whose length is stated.
        let has_trailers = takes_trailers(head.fields)
            && head.minor_version > 0
            && answer.may_have_trailers()
            && !has(head.fields, "range");
        let body_bytes = kept.body_bytes.or(sealed_bytes.filter(|_| !has_trailers));
        let composed = compose(out, &kept, &context, &said, body_bytes);
        let head_end = out.len();
        if answer.object.is_none() {
            push_body(out, &composed.body, kept.body);
        }
        let (status, origin_status) = (composed.status, answer.origin_status);
        let body_bytes = (out.len() - head_end) as u64;
        let cache = Some(why.as_str());
        self.counts.responded(status, body_bytes);
        self.summary = ResponseSummary { status, body_bytes, cache, origin_status };
        let mut reply = Reply::composed(composed, |body| {
            Some(Content {
                object: answer.object.clone()?,
                body,
                is_private: answer.is_private,
                trailers: answer.trailers.clone().filter(|_| has_trailers),
                part: answer.part.clone(),
            })
        });
        reply.lingers = from.has_upload;
        reply
    }
}

/// The metadata of a response of larder itself.
const OWN: Said<'static> = Said { age_s: None, cache_status: b"", heeds_conditions: false };

/// The reply to a hit.
fn cached(composed: Composed, object: Option<Arc<Object>>) -> Reply {
    Reply::composed(composed, |body| {
        Some(Content { object: object?, body, is_private: false, trailers: None, part: None })
    })
}

fn exchange(from: &ClientRequest<'_>, flight: Option<Arc<Flight>>, why: Forward) -> Exchange {
    let knows_interim = from.head.minor_version > 0;
    Exchange { head: from.bytes.to_vec(), flight, knows_interim, why }
}

/// True where a client wants to switch to another protocol, such as WebSocket. larder serves one
/// that offers HTTP/2 by HTTP/1.1.
fn wants_other_protocol(fields: &[Field<'_>]) -> bool {
    let mut options = members(fields, "connection");
    let mut protocols = members(fields, "upgrade").peekable();
    options.any(|it| it.eq_ignore_ascii_case(b"upgrade"))
        && protocols.peek().is_some()
        && !protocols.any(|it| it.eq_ignore_ascii_case(b"h2c"))
}

/// True where a response states that any client may have it, also where the request had credentials
/// (RFC 9111, section 3.5).
fn is_for_all(life: &Life) -> bool {
    let said = &life.directives;
    said.is_public || said.s_maxage_s.is_some() || said.must_revalidate
}
