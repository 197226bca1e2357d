//! A fetch: what an origin is asked, and what comes of its answer.
//!
//! ```text
//! asked for all who want it    304          what is kept is brought up to date, and given to all
//!                              may be kept  given to all if it is fresh, kept when it is whole
//!                              else         given to who asked first; the others ask for themselves, and so do, for a while, those
//!                                           who come later. Where only what the first one asked is why (credentials), the others
//!                                           ask once for all again, and only those who ask likewise later ask for themselves
//!                              failed       what is stale, if it may be given; else an error
//! asked for one                             given to that one, and kept if it may be
//! ```
//!
//! What is given to one client lies in a window and is gone when it has been sent; what is kept, or given to several, lies in memory as a
//! whole. A body that came with its head, and is short, is kept at once.

use std::net::SocketAddr;
use std::sync::Arc;

use larder::Ttl;
use larder::mem::object::{Kind, Leased, Object, Plan, ReaderOptions};

use super::Driver;
use super::delivery::Delivery;
use super::origins::{Incoming, Keep, Origin};
use crate::answer::{Answer, Trailers};
use crate::cacheability::{Moments, Selected, Stored, Unstored, store};
use crate::coalescing::{Flight, Outcome};
use crate::directives::{RequestDirectives, ResponseDirectives};
use crate::field::{has, members, only};
use crate::freshness::{conditions, invalidates, is_about, may_serve_on_error, updated};
use crate::key::{Key, apart, push_url, scheme_of, tag};
use crate::message::forward::{push_kept_head, push_request};
use crate::message::trailers::takes_trailers;
use crate::message::{
    self, FieldRoom, Framing, RequestHead, ResponseHead, Scheme, push_date, push_field,
};
use crate::parts::Parts;
use crate::pending::Ticket;
use crate::record::{self, Kept, Record, push_response};
use crate::sent::{OF_ONE, SCHEME_FIELD, Sent, VIA};
use crate::store::Store;
use crate::{Field, Request, Response};

/// Fields by which an origin names tags.
const TAG_FIELDS: [&str; 3] = ["surrogate-key", "xkey", "cache-tag"];
/// Tags of one response; those beyond are not heeded.
const TAGS_MAX: usize = 64;

/// For whom it is.
#[derive(Debug)]
pub enum Purpose {
    /// For all who want it.
    Shared {
        /// Who waits.
        flight: Arc<Flight>,
        /// What is kept of it.
        stale: Option<Vec<u8>>,
        /// The client of this loop that asked first.
        leader: Option<u64>,
    },
    /// For this client.
    Private {
        /// Its token.
        client: u64,
        /// What comes may be kept, if it may be otherwise.
        may_keep: bool,
    },
}

/// What an origin is asked.
#[derive(Debug)]
pub struct Fetch {
    /// What is sent.
    pub(super) request: Vec<u8>,
    /// What the client sent.
    client_head: Vec<u8>,
    pub(super) method: String,
    pub(super) url: Vec<u8>,
    pub(super) purpose: Purpose,
    pub(super) upload: Option<Delivery>,
    asker: Asker,
    asked_s: u64,
    pub(super) serial: u64,
    /// Says whether the URL was forgotten meanwhile.
    ticket: Ticket,
    pub(super) tries: u8,
    interim: u8,
}

/// Who asks, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    pub(super) peer: Option<SocketAddr>,
    pub(super) scheme: Scheme,
    /// The origin is told by which scheme: no other proxy before us knows better.
    pub(super) says_scheme: bool,
}

impl Asker {
    /// The scheme that the origin is told.
    fn said_scheme(&self) -> Option<Scheme> {
        self.says_scheme.then_some(self.scheme)
    }
}

/// Heads before the answer that a client is told of: it need not take what it is sent, and no window holds them up.
const INTERIM_MAX: u8 = 16;

/// Requests that are noted apart as not to be shared: what kind of field makes their responses one client's own.
pub(super) const CREDENTIALS: &str = "authorization";
pub(super) const COOKIES: &str = "cookie";
/// And those that ask whether what is kept is still good.
pub(super) const RENEWAL: &str = "renewal";

/// For whom an answer is that was asked for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// All who wait.
    All,
    /// The one who asked first: the others ask for themselves. Those who come later do so too if it is noted, of all or of one kind.
    One(Option<Noted>),
    /// The same, because of a field that the first one sent: those without it look again.
    Own { kind: &'static str, is_noted: bool },
}

/// What is noted as not to be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noted {
    /// The URL or variant.
    All,
    /// Its renewal by a 304.
    Renewal,
}

/// What was asked, as the client said it and as the origin got it.
#[derive(Clone, Copy)]
struct Question<'a> {
    /// With the method of the fetch.
    request: Request<'a>,
    /// The client wants a part.
    wants_part: bool,
    sent: Sent<'a>,
}

impl Fetch {
    pub(super) fn new(
        head: &RequestHead<'_>,
        octets: &[u8],
        purpose: Purpose,
        upload: Option<Delivery>,
        asker: Asker,
        asked_s: u64,
        store: &Store,
    ) -> Fetch {
        let mut url = Vec::new();
        push_url(&mut url, asker.scheme, head.host, head.target.path());
        let serial = store.next_serial();
        let ticket = store.enter(&url, serial);
        let mut fetch = Fetch {
            request: Vec::new(),
            client_head: octets.to_vec(),
            method: head.method.to_owned(),
            url,
            purpose,
            upload,
            asker,
            asked_s,
            serial,
            ticket,
            tries: 0,
            interim: 0,
        };
        fetch.render(head);
        fetch
    }

    /// Another head came before the answer: whether its client is told.
    pub(super) fn takes_interim(&mut self) -> bool {
        self.interim = self.interim.saturating_add(1);
        self.interim <= INTERIM_MAX
    }

    fn render(&mut self, head: &RequestHead<'_>) {
        self.request.clear();
        let address = self.asker.peer.map(|peer| peer.ip().to_string()).unwrap_or_default();
        let mut extra: Vec<(&str, &[u8])> = Vec::new();
        let shared = match &self.purpose {
            Purpose::Shared { stale, .. } => {
                if let Some(Record::Response(kept)) = stale.as_deref().and_then(Record::read) {
                    extra.extend(conditions(kept.validators));
                }
                // What is only looked at is fetched: the next wants it whole.
                self.method = "GET".to_owned();
                true
            }
            Purpose::Private { .. } => false,
        };
        // Of those who share an answer the one who asks first decides; the others do without.
        if takes_trailers(head.fields) && head.minor_version > 0 {
            extra.extend([("Connection", &b"TE"[..]), ("TE", b"trailers")]);
        }
        extra.push(("Via", VIA.as_bytes()));
        if !address.is_empty() {
            extra.push(("X-Forwarded-For", address.as_bytes()));
        }
        // Who is believed must be known, so that clients cannot say it.
        let says_scheme = self.asker.says_scheme;
        if let Some(scheme) = self.asker.said_scheme() {
            extra.push((SCHEME_FIELD, scheme.as_str().as_bytes()));
        }
        let drops = |name: &str| {
            shared && OF_ONE.iter().any(|it| it.eq_ignore_ascii_case(name))
                || says_scheme && name.eq_ignore_ascii_case(SCHEME_FIELD)
        };
        let head = RequestHead { method: &self.method, ..*head };
        push_request(&mut self.request, &head, None, &extra, drops);
    }

    /// Asks for the whole, whatever is kept.
    fn forget_stale(&mut self, limits: &message::Limits) {
        if let Purpose::Shared { stale, .. } = &mut self.purpose {
            *stale = None;
        }
        let octets = std::mem::take(&mut self.client_head);
        let mut room = FieldRoom::new();
        if let Ok(Some(head)) = message::request(&octets, &mut room, limits) {
            self.render(&head);
        }
        self.client_head = octets;
    }

    /// Who waits for it with whom, where somebody has asked for it.
    pub(super) fn flight(&self) -> Option<&Arc<Flight>> {
        match &self.purpose {
            Purpose::Shared { flight, leader: Some(_), .. } => Some(flight),
            Purpose::Shared { .. } | Purpose::Private { .. } => None,
        }
    }

    /// True where asking twice does no harm, and can be done.
    pub(super) fn may_be_asked_again(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS") && self.upload.is_none()
    }
}

/// What is to be done with an answer whose head is there.
pub(super) enum Next {
    /// Its body is to be read.
    Body(Box<Incoming>),
    /// It has none, or it is done with.
    Done,
    /// The origin is to be asked again, otherwise.
    Again,
    /// Nobody wants it.
    Unwanted,
}

impl Driver {
    /// An origin's head has come. What follows it in the inbox is its body.
    pub(super) fn answered(
        &mut self,
        origin: &mut Origin,
        head: &ResponseHead<'_>,
        rest: &[u8],
    ) -> (Next, usize) {
        let Some(mut fetch) = origin.fetch.take() else { return (Next::Unwanted, 0) };
        let client_head = std::mem::take(&mut fetch.client_head);
        let mut room = FieldRoom::new();
        let asked = match message::request(&client_head, &mut room, &message::Limits::READ_BEFORE) {
            Ok(Some(asked)) => asked,
            _ => return (Next::Unwanted, 0),
        };
        let method = std::mem::take(&mut fetch.method);
        let request = Request { method: &method, fields: asked.fields };
        let response = Response { status: head.status, fields: head.fields };
        let is_shared = matches!(fetch.purpose, Purpose::Shared { .. });
        let peer = fetch.asker.peer;
        let client = || peer.map(|peer| peer.ip());
        let question = Question {
            request,
            wants_part: asked.method == "GET" && has(asked.fields, "range"),
            sent: Sent::new(&asked, fetch.asker.said_scheme(), is_shared, &client),
        };
        let outcome = self.judge(&mut fetch, &question, &response, head, rest);
        (fetch.client_head, fetch.method) = (client_head, method);
        if matches!(outcome.0, Next::Again) {
            fetch.forget_stale(&message::Limits::READ_BEFORE);
        }
        origin.fetch = Some(fetch);
        outcome
    }

    fn judge(
        &mut self,
        fetch: &mut Fetch,
        question: &Question<'_>,
        response: &Response<'_>,
        head: &ResponseHead<'_>,
        rest: &[u8],
    ) -> (Next, usize) {
        let request = &question.request;
        if invalidates(request.method, head.status) {
            self.invalidate(&fetch.url, head.fields);
        }
        if is_unasked(fetch, question, head.status) {
            self.counts.bad_responses += 1;
            self.fail_fetch(fetch, 502);
            return (Next::Unwanted, 0);
        }
        if let Purpose::Shared { flight, stale: Some(stale), .. } = &fetch.purpose {
            let (flight, stale) = (flight.clone(), stale.clone());
            let Some(Record::Response(kept)) = Record::read(&stale) else {
                return (Next::Unwanted, 0);
            };
            if head.status == 304 {
                if !is_about(kept.validators, response) {
                    return (Next::Again, 0);
                }
                return (self.renewed(fetch, &flight, &kept, question, response), 0);
            }
            if matches!(head.status, 500 | 502 | 503 | 504) && self.give_stale(&flight, &stale) {
                self.counts.stale_on_error += 1;
                return (Next::Unwanted, 0);
            }
        }
        let stored = self.storable(fetch, question, response);
        self.take(fetch, question, response, head, rest, stored)
    }

    /// What is to be stored of a response, chosen by what the origin was sent.
    fn storable(
        &self,
        fetch: &Fetch,
        question: &Question<'_>,
        response: &Response<'_>,
    ) -> Result<Stored, Unstored> {
        let moments = Moments { request_s: fetch.asked_s, response_s: self.now.wall_s };
        let mut stored = store(&question.request, response, moments, &self.options.rules)?;
        for it in &mut stored.vary {
            it.value = question.sent.value(&it.name);
        }
        Ok(stored)
    }

    /// For whom the answer to a question for all is that is not for all.
    fn reach(
        &self,
        question: &Question<'_>,
        status: u16,
        stored: &Result<Stored, Unstored>,
        is_kept: bool,
    ) -> Reach {
        let fields = question.request.fields;
        let is_cookies = match stored {
            Ok(stored) => stored.life.is_heuristic && stored.life.lifetime_s == 0,
            Err(why) => *why == Unstored::RequestCookies,
        };
        // Such a status is about the request: another one may get something else.
        let is_of_request = matches!(status, 206 | 304 | 400..=499) && !matches!(status, 404 | 410);
        let is_noted = !is_kept && !is_of_request;
        if has(fields, CREDENTIALS) {
            Reach::Own { kind: CREDENTIALS, is_noted }
        } else if is_cookies && has(fields, COOKIES) {
            Reach::Own { kind: COOKIES, is_noted }
        } else {
            let is_noted = is_noted && !matches!(stored, Err(Unstored::RequestNoStore));
            Reach::One(is_noted.then_some(Noted::All))
        }
    }

    /// A whole answer: who gets it, and whether it is kept.
    fn take(
        &mut self,
        fetch: &mut Fetch,
        question: &Question<'_>,
        response: &Response<'_>,
        head: &ResponseHead<'_>,
        rest: &[u8],
        stored: Result<Stored, Unstored>,
    ) -> (Next, usize) {
        let now = self.now;
        let said_bytes = only(head.fields, "content-length").and_then(digits);
        let may_keep = !matches!(fetch.purpose, Purpose::Private { may_keep: false, .. });
        let is_too_long = said_bytes.is_some_and(|bytes| bytes > self.kept_bytes_max());
        let may_keep = may_keep && !is_too_long;
        let rules = &self.options.rules;
        let of_use = stored.as_ref().ok().filter(|stored| may_keep && stored.is_of_use(rules));
        // What is not kept leaves no choice behind either.
        let keep = of_use.and_then(|stored| {
            let Driver { handle, store, .. } = self;
            let key = handle.key_for(store, &fetch.url, stored, &question.sent, now.seconds())?;
            Some((stored.clone(), key))
        });
        let body_bytes = match head.framing {
            Framing::None if question.request.method == "HEAD" => said_bytes,
            Framing::None => Some(0),
            Framing::Length(bytes) => Some(bytes),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let promise = keep.as_ref().and_then(|_| self.store.promise(body_bytes));
        let keep = keep.filter(|_| promise.is_some());
        if let (Some((_, key)), Purpose::Shared { flight, .. }) = (&keep, &fetch.purpose) {
            // Who waits for another variant looks by what chooses them, and who comes now for this one joins.
            self.handle.flush();
            self.store.flights.also(flight, key);
        }
        let is_fresh = keep.as_ref().is_some_and(|(stored, _)| {
            stored.life.fresh_s(now.wall_s) > 0 && !stored.life.directives.no_cache
        });
        let reach = match is_fresh {
            true => Reach::All,
            false => self.reach(question, head.status, &stored, keep.is_some()),
        };
        // What one client asked for with its range is not fetched whole for it.
        let wants_part = question.wants_part && keep.is_none() && head.status == 200;
        let has_body = !matches!(head.framing, Framing::None | Framing::Length(0));
        let vary = keep.as_ref().map(|(stored, _)| stored.vary.clone()).unwrap_or_default();
        let (is_kept, origin_status) = (keep.is_some(), Some(head.status));
        let plain = keep.as_ref().map_or_else(|| unkept(response, now.wall_s), |it| it.0.clone());
        let rendered = Rendered::new(fetch, &plain, response, now.wall_s);
        let whole = body_bytes
            .and_then(|bytes| usize::try_from(bytes).ok())
            .filter(|&bytes| !has_body || bytes <= rest.len().min(self.options.inline_bytes_max));
        // Of a response to HEAD the length is another's.
        let whole = if has_body { whole } else { Some(0) };
        let Some(mut record) = rendered.record(&plain, body_bytes, None) else {
            self.fail_fetch(fetch, 502);
            return (Next::Unwanted, 0);
        };
        if let Some(bytes) = whole {
            record.extend_from_slice(&rest[..bytes]);
            if let Some((stored, key)) = &keep {
                self.keep(fetch, key, stored, &record);
            }
            let (object, trailers, is_private) = (None, None, !is_kept);
            let answer =
                Answer { record, vary, object, origin_status, is_private, trailers, part: None };
            self.hand_out(fetch, Arc::new(answer), reach, wants_part);
            self.end_flight(fetch);
            return (Next::Done, bytes);
        }
        let kind = if is_kept {
            Kind::Stored
        } else {
            Kind::Transit { window_bytes: self.options.window_bytes }
        };
        let plan = Plan { loop_number: self.number, bytes: body_bytes, kind };
        let filler = self.store.objects.create(plan);
        let object = Some(filler.object().clone());
        let trailers: Option<Arc<Trailers>> = (head.framing == Framing::Chunked).then(Arc::default);
        // What is given to all must not be longer than memory: nobody knows how long this one is.
        let parts = (is_kept && body_bytes.is_none())
            .then(|| Parts::new(self.channels.clone(), self.number, filler.object()));
        let answer = Answer {
            record,
            vary,
            object,
            origin_status,
            is_private: !is_kept,
            trailers: trailers.clone(),
            part: parts.as_ref().map(Parts::current),
        };
        let is_wanted = self.hand_out(fetch, Arc::new(answer), reach, wants_part);
        if !is_wanted && !is_kept {
            self.end_flight(fetch);
            return (Next::Unwanted, 0);
        }
        let keep = keep.map(|(stored, key)| Keep { key, stored, rendered, _promise: promise });
        let incoming = Incoming::new(filler, head.framing, head.keeps_alive, keep, trailers, parts);
        (Next::Body(Box::new(incoming)), 0)
    }

    /// Gives an answer to those who wait for it; false: nobody does. `wants_part`: the one who asked first asks for itself too, with the
    /// range that it wants.
    fn hand_out(
        &mut self,
        fetch: &Fetch,
        answer: Arc<Answer>,
        reach: Reach,
        wants_part: bool,
    ) -> bool {
        match &fetch.purpose {
            Purpose::Private { client, .. } => {
                let is_there = self.clients.id_of(*client).is_some();
                self.outcomes.push_back((*client, Outcome::Answer(answer)));
                is_there
            }
            Purpose::Shared { flight, .. } if reach == Reach::All => {
                let outcome = Outcome::Answer(answer);
                let flight = flight.clone();
                self.complete_flight(&flight, &outcome);
                true
            }
            Purpose::Shared { flight, leader, .. } => {
                let noted = match reach {
                    Reach::One(Some(Noted::All)) => Some(*flight.key()),
                    Reach::One(Some(Noted::Renewal)) => Some(apart(flight.key(), RENEWAL)),
                    Reach::Own { kind, is_noted: true } => Some(apart(flight.key(), kind)),
                    Reach::All | Reach::One(None) | Reach::Own { is_noted: false, .. } => None,
                };
                if let Some(key) = noted {
                    let (now, for_s) = (self.now.seconds(), self.options.unshared_s);
                    self.handle.set_unshared(&self.store, &key, false, for_s, now);
                    self.handle.flush();
                }
                let outcome = match reach {
                    Reach::Own { .. } => Outcome::Own,
                    Reach::All | Reach::One(_) => Outcome::Alone,
                };
                if matches!(outcome, Outcome::Own) {
                    // Who looks again must not find this one.
                    self.store.flights.close(flight);
                }
                let mut is_there = false;
                for waiter in flight.complete(outcome.clone()) {
                    let is_here = waiter.loop_number == self.number;
                    let leads = is_here && Some(waiter.client) == *leader;
                    let outcome = match leads {
                        true if wants_part => Outcome::Alone,
                        true => Outcome::Answer(answer.clone()),
                        false => outcome.clone(),
                    };
                    is_there |= leads && !wants_part;
                    if is_here {
                        self.outcomes.push_back((waiter.client, outcome));
                    } else {
                        self.channels.tell(&[waiter], &outcome);
                    }
                }
                is_there
            }
        }
    }

    /// Keeps a record, unless what it is of was forgotten meanwhile; true: it is kept.
    fn keep(&mut self, fetch: &Fetch, key: &Key, stored: &Stored, record: &[u8]) -> bool {
        let (rules, now) = (&self.options.rules, self.now);
        let life = &stored.life;
        let keep_s = if stored.validators().has_any() { u64::from(self.options.keep_s) } else { 0 };
        let ttl_s = life.fresh_s(now.wall_s) + life.stale_window_s(rules).max(keep_s);
        let ttl = Ttl::seconds(u32::try_from(ttl_s).unwrap_or(u32::MAX - 1));
        if fetch.ticket.is_outdated() {
            self.counts.outdated += 1;
            return false;
        }
        let is_kept = self.handle.insert(&self.store, key, record, ttl, now.seconds());
        if is_kept && fetch.ticket.is_outdated() {
            self.counts.outdated += 1;
            self.handle.remove(key);
            self.handle.flush();
            return false;
        }
        // Who looks from now on finds it, and nobody waits for the turn's end.
        self.handle.flush();
        if is_kept {
            self.counts.kept += 1;
        } else {
            self.counts.not_kept += 1;
        }
        is_kept
    }

    /// The longest body that is kept: several have to fit, or each would be in the way of all others.
    pub(super) fn kept_bytes_max(&self) -> u64 {
        self.options.memory.bodies_bytes / 2
    }

    /// A body turned out to be too long to be kept: who asks from now on gets it without that, and its memory goes with its readers.
    pub(super) fn note_too_long(&mut self, fetch: &Fetch, key: &Key) {
        let (now, for_s) = (self.now.seconds(), self.options.unshared_s);
        self.counts.too_long += 1;
        self.handle.set_unshared(&self.store, key, true, for_s, now);
        self.handle.flush();
        self.end_flight(fetch);
        if let Purpose::Shared { flight, .. } = &fetch.purpose {
            flight.let_go();
        }
    }

    /// A body is whole: it is kept, if it may be.
    pub(super) fn keep_whole(&mut self, fetch: &Fetch, keep: Keep, object: &Arc<Object>) {
        let bytes = object.published();
        let Keep { key, stored, rendered, .. } = keep;
        let inline_max = self.options.inline_bytes_max;
        let room = self.handle.record_bytes_max(&self.store);
        if let Some(mut record) = rendered.record(&stored, Some(bytes), None)
            && bytes <= inline_max as u64
            && record.len() + bytes as usize <= room
            && append_body(&mut record, object)
        {
            self.keep(fetch, &key, &stored, &record);
            return;
        }
        let id = self.store.bodies.insert(&key, object.clone());
        let record = rendered.record(&stored, Some(bytes), Some(id));
        let is_kept = match record.filter(|record| record.len() <= room) {
            Some(record) => self.keep(fetch, &key, &stored, &record),
            None => {
                self.counts.not_kept += 1;
                false
            }
        };
        if !is_kept {
            self.store.bodies.remove(id);
        }
    }

    /// A 304 came: what is kept is brought up to date (RFC 9111, section 4.3.4).
    fn renewed(
        &mut self,
        fetch: &Fetch,
        flight: &Arc<Flight>,
        kept: &Kept<'_>,
        question: &Question<'_>,
        response: &Response<'_>,
    ) -> Next {
        self.counts.renewed += 1;
        let old: Vec<Field<'_>> = kept.fields().collect();
        let fields = updated(&old, response.fields);
        let is_in = |name: &[u8]| members(&old, "vary").any(|it| it.eq_ignore_ascii_case(name));
        if members(&fields, "vary").any(|name| !is_in(name)) {
            // It was found without regard to what chooses it from now on.
            return Next::Again;
        }
        let fresh = Response { status: kept.life.status, fields: &fields };
        let object = kept.body_id.and_then(|id| self.store.bodies.get(id));
        if kept.body_id.is_some() && object.is_none() {
            // Its body left meanwhile.
            return Next::Again;
        }
        let rules = &self.options.rules;
        let stored = match self.storable(fetch, question, &fresh) {
            // What it said to everybody when it was kept does not make a cookie of today everybody's.
            Ok(_) if rules.is_cautious_with_cookies && sets_own_cookies(response) => {
                Err(Unstored::Cookies)
            }
            stored => stored,
        };
        let plain = stored.clone().unwrap_or_else(|_| unkept(&fresh, self.now.wall_s));
        let rendered = Rendered::new(fetch, &plain, &fresh, self.now.wall_s);
        let Some(mut record) = rendered.record(&plain, kept.body_bytes, kept.body_id) else {
            return Next::Again;
        };
        record.extend_from_slice(kept.body);
        let is_for_all = stored.is_ok();
        if is_for_all {
            self.keep(fetch, flight.key(), &plain, &record);
        }
        let answer = Answer {
            record,
            vary: plain.vary,
            object,
            origin_status: Some(response.status),
            is_private: !is_for_all,
            trailers: None,
            part: None,
        };
        // What may not be stored may have one client's fields. What is kept stays as it was, for who may have it.
        let reach = match (is_for_all, self.reach(question, kept.life.status, &stored, false)) {
            (true, _) => Reach::All,
            (false, Reach::One(Some(Noted::All))) => Reach::One(Some(Noted::Renewal)),
            (false, reach) => reach,
        };
        self.hand_out(fetch, Arc::new(answer), reach, false);
        self.end_flight(fetch);
        Next::Done
    }

    /// Gives what is stale, because the origin fails; false: it may not be.
    fn give_stale(&mut self, flight: &Arc<Flight>, stale: &[u8]) -> bool {
        let Some(Record::Response(kept)) = Record::read(stale) else { return false };
        let asked = RequestDirectives::default();
        if !may_serve_on_error(&kept.life, &asked, self.now.wall_s, &self.options.rules) {
            return false;
        }
        let object = kept.body_id.and_then(|id| self.store.bodies.get(id));
        if kept.body_id.is_some() && object.is_none() {
            return false;
        }
        let answer = Answer {
            record: stale.to_vec(),
            vary: Vec::new(),
            object,
            origin_status: None,
            is_private: false,
            trailers: None,
            part: None,
        };
        self.complete_flight(flight, &Outcome::Answer(Arc::new(answer)));
        self.store.flights.close(flight);
        true
    }

    /// A fetch brought nothing: those who wait get what is stale, or are told.
    pub(super) fn fail_fetch(&mut self, fetch: &Fetch, status: u16) {
        self.counts.fetches_failed += 1;
        match &fetch.purpose {
            Purpose::Private { client, .. } => {
                self.outcomes.push_back((*client, Outcome::Failed(status)));
            }
            Purpose::Shared { flight, stale, .. } => {
                let flight = flight.clone();
                if let Some(stale) = stale
                    && self.give_stale(&flight, &stale.clone())
                {
                    self.counts.stale_on_error += 1;
                    return;
                }
                self.complete_flight(&flight, &Outcome::Failed(status));
                self.store.flights.close(&flight);
            }
        }
    }

    pub(super) fn end_flight(&mut self, fetch: &Fetch) {
        if let Purpose::Shared { flight, .. } = &fetch.purpose {
            self.store.flights.close(flight);
        }
    }

    /// What an unsafe method did makes what is kept of its URL outdated, and of URLs that the answer names, on the same host
    /// (RFC 9111, section 4.4).
    pub(super) fn invalidate(&mut self, url: &[u8], fields: &[Field<'_>]) {
        let now = self.now.seconds();
        self.handle.sync(&self.store);
        self.handle.forget(&self.store, url, now);
        let host_bytes = memchr::memchr(b'/', url).unwrap_or(url.len());
        let host = &url[..host_bytes];
        for name in ["location", "content-location"] {
            let Some(named) = only(fields, name) else { continue };
            let absolute = named.strip_prefix(b"http://").or(named.strip_prefix(b"https://"));
            let other = match absolute {
                Some(rest) => {
                    let end = memchr::memchr(b'/', rest).unwrap_or(rest.len());
                    let mut other = Vec::new();
                    // By the scheme that the request came by: who ends TLS before us is told of https.
                    push_url(&mut other, scheme_of(url), &rest[..end], &rest[end..]);
                    other
                }
                None => resolve(url, named),
            };
            let is_same_host = other.starts_with(host) && other.get(host.len()) == Some(&b'/');
            if is_same_host {
                self.handle.forget(&self.store, &other, now);
            }
        }
        // Before the client hears that it was done.
        self.handle.flush();
    }
}

/// True where an origin says that nothing has changed, or sends a part, to who did not ask for that.
fn is_unasked(fetch: &Fetch, question: &Question<'_>, status: u16) -> bool {
    let Request { method, fields } = question.request;
    let validates = match &fetch.purpose {
        Purpose::Shared { stale, .. } => {
            let record = stale.as_deref().and_then(Record::read);
            matches!(record, Some(Record::Response(kept)) if kept.validators.has_any())
        }
        Purpose::Private { .. } => false,
    };
    let has_condition = has(fields, "if-none-match") || has(fields, "if-modified-since");
    match status {
        304 => !(validates || has_condition && matches!(method, "GET" | "HEAD")),
        206 => !has(fields, "range"),
        _ => false,
    }
}

/// True where a 304 sets cookies and does not say itself that they are for everybody.
fn sets_own_cookies(response: &Response<'_>) -> bool {
    let (said, _) = ResponseDirectives::read(response.fields);
    has(response.fields, "set-cookie") && !said.is_public && said.s_maxage_s.is_none()
}

/// A reference of the same host, as far as caches need it: from the root, or beside the URL (RFC 3986, section 5.2).
fn resolve(url: &[u8], reference: &[u8]) -> Vec<u8> {
    let host_bytes = memchr::memchr(b'/', url).unwrap_or(url.len());
    let reference = reference.split(|&octet| octet == b'#').next().unwrap_or_default();
    if reference.first() == Some(&b'/') {
        return [&url[..host_bytes], reference].concat();
    }
    let path = url.split(|&octet| octet == b'?').next().unwrap_or_default();
    if reference.first() == Some(&b'?') {
        return [path, reference].concat();
    }
    let folder = memchr::memrchr(b'/', path).map_or(path, |at| &path[..=at]);
    [folder, reference].concat()
}

/// A response that is not kept, as its record says it.
fn unkept(response: &Response<'_>, now_s: u64) -> Stored {
    let life = crate::cacheability::Life {
        status: response.status,
        directives: Default::default(),
        lifetime_s: 0,
        is_heuristic: false,
        is_by_rule: false,
        initial_age_s: 0,
        response_s: now_s,
    };
    Stored { life, vary: Vec::<Selected>::new(), etag: None, last_modified: None }
}

fn digits(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// A head in its final form.
#[derive(Debug)]
pub struct Rendered {
    url: Vec<u8>,
    serial: u64,
    tags: Vec<u64>,
    status_line: Vec<u8>,
    field_lines: Vec<u8>,
}

impl Rendered {
    fn new(fetch: &Fetch, stored: &Stored, response: &Response<'_>, now_s: u64) -> Rendered {
        let mut status_line = Vec::new();
        let is_skipped = |name: &str| {
            // Of what is not kept the age is its origin's to tell.
            let is_kept = stored.etag.is_some() || stored.life.lifetime_s > 0;
            name.eq_ignore_ascii_case("content-length")
                || is_kept && name.eq_ignore_ascii_case("age")
        };
        push_kept_head(&mut status_line, stored.life.status, response.fields, is_skipped);
        let status_bytes = memchr::memmem::find(&status_line, b"\r\n").map_or(0, |at| at + 2);
        let mut field_lines = status_line.split_off(status_bytes);
        if !crate::field::has(response.fields, "date") {
            let mut date = Vec::new();
            push_date(&mut date, now_s);
            push_field(&mut field_lines, "Date", &date);
        }
        let mut tags: Vec<u64> = Vec::new();
        for name in TAG_FIELDS {
            let words = members(response.fields, name)
                .flat_map(|member| member.split(|octet| octet.is_ascii_whitespace()));
            tags.extend(words.filter(|word| !word.is_empty()).map(tag));
        }
        tags.truncate(TAGS_MAX);
        Rendered { url: fetch.url.clone(), serial: fetch.serial, tags, status_line, field_lines }
    }

    fn record(
        &self,
        stored: &Stored,
        body_bytes: Option<u64>,
        body_id: Option<crate::record::BodyId>,
    ) -> Option<Vec<u8>> {
        let mut record = Vec::with_capacity(256 + self.field_lines.len());
        let parts = record::Parts {
            stored,
            url: &self.url,
            serial: self.serial,
            tags: &self.tags,
            status_line: &self.status_line,
            field_lines: &self.field_lines,
            body_bytes,
            body_id,
        };
        push_response(&mut record, &parts).then_some(record)
    }
}

/// Copies a whole body behind its record; false where it cannot be read.
fn append_body(record: &mut Vec<u8>, object: &Arc<Object>) -> bool {
    let options = ReaderOptions { loop_number: 0, lease_bytes_max: u64::MAX };
    let Ok(mut reader) = object.open(0..u64::MAX, options) else { return false };
    let mut leases = Vec::new();
    loop {
        match reader.lease(&mut leases, u64::MAX) {
            Leased::Some { .. } => {
                leases.drain(..).for_each(|lease| record.extend_from_slice(lease.as_bytes()));
            }
            Leased::End => return true,
            _ => return false,
        }
    }
}
