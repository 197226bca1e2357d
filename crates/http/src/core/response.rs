//! From the headers of an origin's response to the clients that get it.
//!
//! ```text
//! shared fetch   304               the cached response is updated, and given to all (`renewal`)
//!                may be stored     given to all if it is fresh, or was when it was requested, and
//!                                  stored when its body is complete
//!                else              given to the client that started the fetch. The others ask for
//!                                  themselves, and so do later clients for a while (hit-for-miss).
//!                                  Where credentials or cookies of the first client are the reason,
//!                                  the others share another fetch, and only later clients that send
//!                                  them too ask for themselves
//!                failed            a stale response if allowed, else an error (`renewal`)
//! private fetch                    given to its client, and stored if the rules allow it
//! ```
//!
//! A response for one client is streamed through a bounded window: its memory is reused when the
//! client has been sent it. A response that is stored, or given to several clients, is in memory as
//! a whole. A short body that came with its headers is stored at once.

use std::sync::Arc;

use larder_mem::object::{Kind, Plan};

use super::body::Incoming;
use super::fetch::{Fetch, Purpose};
use super::request::{COOKIES, CREDENTIALS, RENEWAL};
use super::storing::{Keep, Rendered, unkept};
use super::{Core, Net};
use crate::answer::{Answer, Trailers};
use crate::cacheability::{Moments, Stored, Unstored, store};
use crate::coalescing::Outcome;
use crate::field::{has, only};
use crate::freshness::{invalidates, is_about};
use crate::key::{Key, apart};
use crate::message::{self, FieldRoom, Framing, ResponseHead};
use crate::parts::Parts;
use crate::record::Record;
use crate::sent::Sent;
use crate::store::Promise;
use crate::{Request, Response};

/// The next step for a response whose headers have come.
#[derive(Debug)]
pub enum Next {
    /// Read its body.
    Body(Box<Incoming>),
    /// It has no body, or the body was in the bytes after the headers.
    Done,
    /// Send the request again: the fetch requests something else now.
    Again,
    /// Close the connection: no client wants the response.
    Unwanted,
}

/// Which clients get the response to a shared fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// All that wait.
    All,
    /// The one that started the fetch: the others get their own fetches. Later clients do so too if
    /// it is noted.
    One(Option<Noted>),
    /// The same, because of a field that the first client sent: clients without it look again.
    Own {
        /// The field.
        kind: &'static str,
        /// Later clients that send this field get their own fetches.
        is_noted: bool,
    },
}

/// What a note states to be unshared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Noted {
    /// The URL or variant.
    All,
    /// Its confirmation by a 304.
    Renewal,
}

/// A request, as the client sent it and as the origin got it.
#[derive(Clone, Copy)]
pub(super) struct RequestInfo<'a> {
    /// With the method of the fetch.
    pub(super) request: Request<'a>,
    /// The client wants a part.
    wants_part: bool,
    pub(super) sent: Sent<'a>,
}

/// A response for clients, and how it is stored.
struct Taken {
    keep: Option<(Stored, Key)>,
    promise: Option<Promise>,
    reach: Reach,
    wants_part: bool,
    body_bytes: Option<u64>,
}

impl Core {
    /// The headers of an origin's response have come, and `rest` after them. Returns what to do,
    /// and how many bytes of `rest` were used.
    pub fn response(
        &mut self,
        net: &mut impl Net,
        fetch: &mut Fetch,
        head: &ResponseHead<'_>,
        rest: &[u8],
    ) -> (Next, usize) {
        let mut room = FieldRoom::new();
        let limits = message::Limits::READ_BEFORE;
        let Ok(Some(parsed)) = message::request(&fetch.client_head, &mut room, &limits) else {
            return (Next::Unwanted, 0);
        };
        let peer = fetch.peer;
        let client = || peer.map(|peer| peer.ip());
        let is_shared = matches!(fetch.purpose, Purpose::Shared { .. });
        let info = RequestInfo {
            request: Request { method: &fetch.method, fields: parsed.fields },
            wants_part: parsed.method == "GET" && has(parsed.fields, "range"),
            sent: Sent::new(&parsed, fetch.stated_scheme, is_shared, &client),
        };
        let outcome = self.judge(net, fetch, &info, head, rest);
        if matches!(outcome.0, Next::Again) {
            fetch.forget_stale();
        }
        outcome
    }

    fn judge(
        &mut self,
        net: &mut impl Net,
        fetch: &Fetch,
        info: &RequestInfo<'_>,
        head: &ResponseHead<'_>,
        rest: &[u8],
    ) -> (Next, usize) {
        let response = Response { status: head.status, fields: head.fields };
        if invalidates(info.request.method, head.status) {
            self.invalidate(&fetch.url, head.fields);
        }
        if is_unsolicited(fetch, info, head.status) {
            self.counts.bad_responses += 1;
            self.failed(net, fetch, 502);
            return (Next::Unwanted, 0);
        }
        if let Purpose::Shared { flight, stale: Some(stale), .. } = &fetch.purpose {
            let Some(Record::Response(kept)) = Record::read(stale) else {
                return (Next::Unwanted, 0);
            };
            if head.status == 304 {
                if !is_about(kept.validators, &response) {
                    return (Next::Again, 0);
                }
                return (self.renewed(net, fetch, flight, &kept, info, &response), 0);
            }
            if matches!(head.status, 500 | 502 | 503 | 504) && self.give_stale(net, flight, stale) {
                self.counts.stale_on_error += 1;
                return (Next::Unwanted, 0);
            }
        }
        let stored = self.storable(fetch, info, &response);
        let taken = self.take(fetch, info, head, stored);
        self.deliver(net, fetch, head, rest, taken)
    }

    /// Decides how a response is stored, selected by the fields that the origin was sent.
    pub(super) fn storable(
        &self,
        fetch: &Fetch,
        info: &RequestInfo<'_>,
        response: &Response<'_>,
    ) -> Result<Stored, Unstored> {
        let moments = Moments { request_s: fetch.requested_s, response_s: self.now_s };
        let mut stored = store(&info.request, response, moments, &self.options.rules)?;
        for it in &mut stored.vary {
            it.value = info.sent.value(&it.name);
        }
        Ok(stored)
    }

    /// Which clients get the response to a shared fetch that is not for all.
    pub(super) fn reach(
        &self,
        info: &RequestInfo<'_>,
        status: u16,
        stored: &Result<Stored, Unstored>,
        is_kept: bool,
    ) -> Reach {
        let fields = info.request.fields;
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

    /// Decides which clients get a response, and whether it is stored.
    fn take(
        &mut self,
        fetch: &Fetch,
        info: &RequestInfo<'_>,
        head: &ResponseHead<'_>,
        stored: Result<Stored, Unstored>,
    ) -> Taken {
        let now = self.seconds();
        let said_bytes = only(head.fields, "content-length").and_then(digits);
        let may_keep = !matches!(fetch.purpose, Purpose::Private { may_keep: false, .. });
        let is_too_long = said_bytes.is_some_and(|bytes| bytes > self.kept_bytes_max());
        let may_keep = may_keep && !is_too_long;
        let rules = &self.options.rules;
        let expired_in_transit = stored
            .as_ref()
            .is_ok_and(|stored| stored.expired_in_transit(head.fields, fetch.requested_s));
        let is_of_use = |stored: &Stored| stored.is_of_use(rules) || expired_in_transit;
        let of_use = stored.as_ref().ok().filter(|stored| may_keep && is_of_use(stored));
        // A response that is not stored leaves no choice of variants either.
        let keep = of_use.and_then(|stored| {
            let Core { handle, store, .. } = self;
            let key = handle.key_for(store, &fetch.url, stored, &info.sent, now)?;
            Some((stored.clone(), key))
        });
        let body_bytes = match head.framing {
            Framing::None if info.request.method == "HEAD" => said_bytes,
            Framing::None => Some(0),
            Framing::Length(bytes) => Some(bytes),
            Framing::Chunked | Framing::UntilClose => None,
        };
        let promise = keep.as_ref().and_then(|_| self.store.promise(body_bytes));
        let keep = keep.filter(|_| promise.is_some());
        if let (Some((_, key)), Purpose::Shared { flight, .. }) = (&keep, &fetch.purpose) {
            // Clients that wait for another variant look by what selects them, and clients that come
            // now for this one join.
            self.handle.flush();
            self.store.flights.also(flight, key);
        }
        let is_fresh = |stored: &Stored| {
            stored.life.fresh_s(self.now_s) > 0 && !stored.life.directives.no_cache
        };
        let is_for_all =
            keep.as_ref().is_some_and(|(stored, _)| expired_in_transit || is_fresh(stored));
        let reach = match is_for_all {
            true => Reach::All,
            false => self.reach(info, head.status, &stored, keep.is_some()),
        };
        // A body of which a client wants a range is not fetched whole for it.
        let wants_part = info.wants_part && keep.is_none() && head.status == 200;
        Taken { keep, promise, reach, wants_part, body_bytes }
    }

    /// Gives a response to clients, and begins to read its body.
    fn deliver(
        &mut self,
        net: &mut impl Net,
        fetch: &Fetch,
        head: &ResponseHead<'_>,
        rest: &[u8],
        taken: Taken,
    ) -> (Next, usize) {
        let Taken { keep, promise, reach, wants_part, body_bytes } = taken;
        let response = Response { status: head.status, fields: head.fields };
        let vary = keep.as_ref().map(|(stored, _)| stored.vary.clone()).unwrap_or_default();
        let plain = keep.as_ref().map_or_else(|| unkept(&response, self.now_s), |it| it.0.clone());
        let rendered = Rendered::new(fetch, &plain, &response, self.now_s);
        let Some(record) = rendered.record(&plain, body_bytes, None) else {
            self.failed(net, fetch, 502);
            return (Next::Unwanted, 0);
        };
        let is_kept = keep.is_some();
        let mut answer = Answer {
            record,
            vary,
            object: None,
            origin_status: Some(head.status),
            is_private: !is_kept,
            trailers: None,
            part: None,
        };
        if let Some(bytes) = self.at_once(head, rest, body_bytes) {
            answer.record.extend_from_slice(&rest[..bytes]);
            self.counts.received_bytes += bytes as u64;
            if let Some((stored, key)) = &keep {
                self.keep(fetch, key, stored, &answer.record);
            }
            self.hand_out(net, fetch, answer, reach, wants_part);
            self.end_flight(fetch);
            return (Next::Done, bytes);
        }
        let kind = match is_kept {
            true => Kind::Stored,
            false => Kind::Transit { window_bytes: self.options.window_bytes },
        };
        let plan = Plan { loop_number: self.number, bytes: body_bytes, kind };
        let filler = self.store.objects.create(plan);
        let trailers: Option<Arc<Trailers>> = (head.framing == Framing::Chunked).then(Arc::default);
        // A body for all clients must fit into memory, and the length of this one is not known.
        let parts = (is_kept && body_bytes.is_none())
            .then(|| Parts::new(self.store.post.clone(), self.number, filler.object()));
        answer.object = Some(filler.object().clone());
        answer.trailers = trailers.clone();
        answer.part = parts.as_ref().map(Parts::current);
        let is_wanted = self.hand_out(net, fetch, answer, reach, wants_part);
        if !is_wanted && !is_kept {
            self.end_flight(fetch);
            return (Next::Unwanted, 0);
        }
        let keep = keep.map(|(stored, key)| Keep { key, stored, rendered, _promise: promise });
        let incoming = Incoming::new(filler, head.framing, keep, trailers, parts);
        (Next::Body(Box::new(incoming)), 0)
    }

    /// The length of a body that is complete and short. The length that a response to HEAD states
    /// is not that of its own body.
    fn at_once(
        &self,
        head: &ResponseHead<'_>,
        rest: &[u8],
        body_bytes: Option<u64>,
    ) -> Option<usize> {
        if matches!(head.framing, Framing::None | Framing::Length(0)) {
            return Some(0);
        }
        let bytes = usize::try_from(body_bytes?).ok()?;
        (bytes <= rest.len().min(self.options.inline_bytes_max)).then_some(bytes)
    }

    /// Gives a response to the clients that wait for it; false: no client does. `wants_part`: the
    /// client that started the fetch gets its own fetch too, with the range that it wants.
    pub(super) fn hand_out(
        &mut self,
        net: &mut impl Net,
        fetch: &Fetch,
        answer: Answer,
        reach: Reach,
        wants_part: bool,
    ) -> bool {
        let answer = Outcome::Answer(Arc::new(answer));
        let (flight, leader) = match &fetch.purpose {
            Purpose::Private { client, .. } => {
                self.complete_one(net, *client, answer);
                return net.is_connected(*client);
            }
            Purpose::Shared { flight, leader, .. } => (flight, *leader),
        };
        if reach == Reach::All {
            self.complete(net, flight, &answer);
            return true;
        }
        let noted = match reach {
            Reach::One(Some(Noted::All)) => Some(*flight.key()),
            Reach::One(Some(Noted::Renewal)) => Some(apart(flight.key(), RENEWAL)),
            Reach::Own { kind, is_noted: true } => Some(apart(flight.key(), kind)),
            Reach::All | Reach::One(None) | Reach::Own { is_noted: false, .. } => None,
        };
        if let Some(key) = noted {
            let (now, for_s) = (self.seconds(), self.options.unshared_s);
            self.handle.set_unshared(&self.store, &key, false, for_s, now);
            self.handle.flush();
        }
        let others = match reach {
            Reach::Own { .. } => Outcome::Own,
            Reach::All | Reach::One(_) => Outcome::Alone,
        };
        if matches!(others, Outcome::Own) {
            // Clients that look again must not find this fetch.
            self.store.flights.close(flight);
        }
        let mut is_there = false;
        for waiter in flight.complete(others.clone()) {
            let leads = waiter.loop_number == self.number && Some(waiter.client) == leader;
            let outcome = match leads {
                true if wants_part => Outcome::Alone,
                true => answer.clone(),
                false => others.clone(),
            };
            is_there |= leads && !wants_part;
            net.complete(waiter, outcome);
        }
        is_there
    }
}

/// True where an origin sends a 304 or a part, and the request did not ask for that.
fn is_unsolicited(fetch: &Fetch, info: &RequestInfo<'_>, status: u16) -> bool {
    let Request { method, fields } = info.request;
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

fn digits(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
