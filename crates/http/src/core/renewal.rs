//! Changes to a cached response: a 304 updates it, an origin that fails lets larder serve it stale,
//! and a write to its URL invalidates it.

use std::sync::Arc;

use super::fetch::{Fetch, Purpose};
use super::response::{Next, Noted, Reach, RequestInfo};
use super::storing::{Rendered, unkept};
use super::{Core, Net};
use crate::answer::Answer;
use crate::cacheability::Unstored;
use crate::coalescing::{Flight, Outcome};
use crate::directives::{RequestDirectives, ResponseDirectives};
use crate::field::{has, members, only};
use crate::freshness::{is_unsafe, may_serve_on_error, updated};
use crate::key::{push_url, scheme_of};
use crate::record::{Kept, Record};
use crate::{Field, Response};

impl Core {
    /// A 304 came: the cached response is updated (RFC 9111, section 4.3.4).
    pub(super) fn renewed(
        &mut self,
        net: &mut impl Net,
        fetch: &Fetch,
        flight: &Flight,
        kept: &Kept<'_>,
        info: &RequestInfo<'_>,
        response: &Response<'_>,
    ) -> Next {
        self.counts.renewed += 1;
        let old: Vec<Field<'_>> = kept.fields().collect();
        let fields = updated(&old, response.fields);
        let is_in = |name: &[u8]| members(&old, "vary").any(|it| it.eq_ignore_ascii_case(name));
        if members(&fields, "vary").any(|name| !is_in(name)) {
            // The lookup that found it did not use the fields that select it from now on.
            return Next::Again;
        }
        let fresh = Response { status: kept.life.status, fields: &fields };
        let object = kept.body_id.and_then(|id| self.store.bodies.get(id));
        if kept.body_id.is_some() && object.is_none() {
            // Its body was evicted meanwhile.
            return Next::Again;
        }
        let rules = &self.options.rules;
        let stored = match self.storable(fetch, info, &fresh) {
            // A response that was public when it was stored does not make a new cookie public.
            Ok(_) if rules.is_cautious_with_cookies && sets_own_cookies(response) => {
                Err(Unstored::Cookies)
            }
            stored => stored,
        };
        let plain = stored.clone().unwrap_or_else(|_| unkept(&fresh, self.now_s));
        let rendered = Rendered::new(fetch, &plain, &fresh, self.now_s);
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
        // A response that may not be stored may have fields for one client only. The cached
        // response stays as it was, for the clients that may have it.
        let reach = match (is_for_all, self.reach(info, kept.life.status, &stored, false)) {
            (true, _) => Reach::All,
            (false, Reach::One(Some(Noted::All))) => Reach::One(Some(Noted::Renewal)),
            (false, reach) => reach,
        };
        self.hand_out(net, fetch, answer, reach, false);
        self.end_flight(fetch);
        Next::Done
    }

    /// Serves a stale response because the origin failed; false: it may not be served.
    pub(super) fn give_stale(
        &self,
        net: &mut impl Net,
        flight: &Arc<Flight>,
        stale: &[u8],
    ) -> bool {
        let Some(Record::Response(kept)) = Record::read(stale) else { return false };
        let requested = RequestDirectives::default();
        if !may_serve_on_error(&kept.life, &requested, self.now_s, &self.options.rules) {
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
        self.complete(net, flight, &Outcome::Answer(Arc::new(answer)));
        self.store.flights.close(flight);
        true
    }

    /// The origin gave no response to a fetch: clients that wait get a stale one, or this status.
    pub fn failed(&mut self, net: &mut impl Net, fetch: &Fetch, status: u16) {
        self.counts.fetches_failed += 1;
        match &fetch.purpose {
            Purpose::Private { client, .. } => {
                self.complete_one(net, *client, Outcome::Failed(status));
            }
            Purpose::Shared { flight, stale, .. } => {
                if let Some(stale) = stale
                    && self.give_stale(net, flight, stale)
                {
                    self.counts.stale_on_error += 1;
                    return;
                }
                self.complete(net, flight, &Outcome::Failed(status));
                self.store.flights.close(flight);
            }
        }
    }

    /// No client waits for a fetch any more, and larder aborted it. A request to change something
    /// may still have changed it.
    pub fn aborted(&mut self, fetch: &Fetch) {
        if is_unsafe(&fetch.method) {
            self.invalidate(&fetch.url, &[]);
        }
    }

    /// Takes a shared fetch out of the table: clients that come now find what was stored, or start
    /// another fetch.
    pub fn end_flight(&self, fetch: &Fetch) {
        if let Purpose::Shared { flight, .. } = &fetch.purpose {
            self.store.flights.close(flight);
        }
    }

    /// A write invalidates the cached response of its URL, and those of URLs on the same host that
    /// the response to the write names (RFC 9111, section 4.4).
    pub(super) fn invalidate(&mut self, url: &[u8], fields: &[Field<'_>]) {
        let now = self.seconds();
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
                    // By the scheme of the request: a proxy that ends TLS in front of this one
                    // states https.
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
        // Before the client learns that the write is done.
        self.handle.flush();
    }
}

/// True where a 304 sets cookies and does not state that they are for every client.
fn sets_own_cookies(response: &Response<'_>) -> bool {
    let (said, _) = ResponseDirectives::read(response.fields);
    has(response.fields, "set-cookie") && !said.is_public && said.s_maxage_s.is_none()
}

/// A reference on the same host, as far as caches need it: from the root, or relative to the URL
/// (RFC 3986, section 5.2).
fn resolve(url: &[u8], reference: &[u8]) -> Vec<u8> {
    let host_bytes = memchr::memchr(b'/', url).unwrap_or(url.len());
    let reference = reference.split(|&byte| byte == b'#').next().unwrap_or_default();
    if reference.first() == Some(&b'/') {
        return [&url[..host_bytes], reference].concat();
    }
    let path = url.split(|&byte| byte == b'?').next().unwrap_or_default();
    if reference.first() == Some(&b'?') {
        return [path, reference].concat();
    }
    let folder = memchr::memrchr(b'/', path).map_or(path, |at| &path[..=at]);
    [folder, reference].concat()
}
