//! Local aliases that lead to names outside of local data.
//!
//! ```text
//! query --policy--> CNAME … TARGET --key of TARGET--> cached: local aliases, then the cached response
//!                                                     else:   sent to an upstream, or joined to the same query
//! response for TARGET ----> stored under its own key ----> sent to each client, behind the aliases of its query
//! ```
//!
//! Only the upstream's response is cached, under its own name. So queries for the target share it,
//! a flush of the target removes it, and a change of the aliases requires nothing. The price is
//! that the response is rendered again each time, as all local responses are.
//!
//! A client that waits because of an alias waits with a query other than the one in flight. Its
//! aliases are looked up again when the response arrives. If they have changed meanwhile, the
//! client gets a failure, and retries.
//!
//! If the upstream's aliases lead back to a local name, the chain is a loop, which the renderer
//! detects. The response is then SERVFAIL (RFC 1034, section 3.6.2). The response code is that of
//! the last name (RFC 6604).

use std::ops::Range;

use larder_wire::dns::HEADER_BYTES;
use larder_wire::dns::query::{KeyBuf, Query};

use super::answer::{Options, extended, query_info};
use super::local::{InForce, QUESTION_BYTES_MAX, folded};
use super::{BatchQuery, Core, Net, Request, is_ending};
use crate::key;
use crate::policy::Admission;

/// The query for the target of aliases.
#[derive(Debug)]
pub(super) struct Target {
    /// A header, as of a query, and the question.
    message: [u8; HEADER_BYTES + QUESTION_BYTES_MAX],
    end: usize,
}

impl Target {
    /// A name in wire form, with type and class of a query.
    pub fn new(name: &[u8], query: &Query<'_>) -> Option<Target> {
        let name_end = HEADER_BYTES + name.len();
        let (_, fixed) = query.question().split_at(query.name().len());
        let end = name_end + fixed.len();
        let mut message = [0; HEADER_BYTES + QUESTION_BYTES_MAX];
        message[5] = 1;
        message.get_mut(HEADER_BYTES..name_end)?.copy_from_slice(name);
        message.get_mut(name_end..end)?.copy_from_slice(fixed);
        Some(Target { message, end })
    }

    /// Name, type and class.
    pub fn question(&self) -> &[u8] {
        &self.message[HEADER_BYTES..self.end]
    }

    /// Writes the key of the query into `key`; false if the name is not valid.
    fn read(&self, key: &mut KeyBuf) -> bool {
        Query::read(&self.message[..self.end], key).is_ok()
    }
}

impl Core {
    /// Resolves a query whose local response ends in an alias to the name at `target` in
    /// [`Core::own`]. From here on the key at `at` is the key of that name.
    pub(super) fn miss_alias(
        &mut self,
        at: usize,
        query: &BatchQuery<'_>,
        target: Range<usize>,
        net: &mut impl Net,
    ) {
        let BatchQuery { request, view, .. } = query;
        let extra = self.key_extra(&request.query, *view);
        let target = self.own.get(target).and_then(|name| Target::new(name, &request.query));
        let Some(target) = target.filter(|target| target.read(&mut self.keys[at])) else {
            return self.respond_failure(request, extended::OTHER, net);
        };
        self.hashes[at] = self.reader.hash(self.keys[at].finish(&extra));
        let mut cached = std::mem::take(&mut self.stale);
        cached.clear();
        let key = self.keys[at].as_bytes();
        let entry = self.reader.get_stale_hashed(self.hashes[at], key, self.now.seconds());
        let has_stale = entry.as_ref().is_some_and(|entry| entry.is_stale(self.now.seconds()));
        let is_ending = entry.filter(|_| !has_stale).map(|entry| {
            cached.extend_from_slice(entry.value());
            is_ending(&self.settings, self.now, &entry)
        });
        if is_ending.is_some() {
            self.counts.hits += 1;
            self.respond_behind(request, &cached, 0, &Options::new(), net);
        }
        self.stale = cached;
        match is_ending {
            Some(true) => self.prefetch(at, query, target.question(), net),
            Some(false) => {}
            None => self.resolve(at, query, Some(&target), has_stale, net),
        }
    }

    /// Sends the rendered response to a client that waits.
    pub(super) fn respond_to_waiter(&mut self, request: &Request<'_>, net: &mut impl Net) {
        if is_about(self.renderer.stored(), &request.query) {
            return self.respond_rendered(request, &Options::new(), net);
        }
        let mut stored = std::mem::take(&mut self.stale);
        stored.clear();
        stored.extend_from_slice(self.renderer.stored());
        self.respond_behind(request, &stored, 0, &Options::new(), net);
        self.stale = stored;
    }

    /// Responds with a stored response, behind local aliases if it is for their target.
    pub(super) fn respond_about(
        &mut self,
        request: &Request<'_>,
        stored: &[u8],
        stale_ttl_s: u32,
        options: &Options,
        net: &mut impl Net,
    ) {
        if is_about(stored, &request.query) {
            self.respond_stored(request, stored, stale_ttl_s, options, net);
        } else {
            self.respond_behind(request, stored, stale_ttl_s, options, net);
        }
    }

    /// Responds with local aliases, and behind them the response stored for their target.
    fn respond_behind(
        &mut self,
        request: &Request<'_>,
        stored: &[u8],
        stale_ttl_s: u32,
        options: &Options,
        net: &mut impl Net,
    ) {
        if self.render_behind(request, stored).is_some() {
            self.respond_stored(request, self.composer.stored(), stale_ttl_s, options, net);
        } else {
            self.respond_failure(request, extended::OTHER, net);
        }
    }

    fn render_behind(
        &mut self,
        Request { client, query }: &Request<'_>,
        stored: &[u8],
    ) -> Option<()> {
        let Core { in_force, own, composer, now, .. } = self;
        let InForce { policy, .. } = in_force.as_ref()?;
        let Admission::Allowed { view } = policy.admit(client.address()) else { return None };
        let mut room = [0; QUESTION_BYTES_MAX];
        let target = policy.local(view, folded(query, &mut room)?, own)?.alias?;
        let (name, ..) = key::question_of(stored)?;
        if !own.get(target)?.eq_ignore_ascii_case(name) {
            return None;
        }
        composer.put_behind(own, stored, &query_info(query), now.wall_s).ok()
    }
}

/// True if a stored response is for the name of a query.
fn is_about(stored: &[u8], query: &Query<'_>) -> bool {
    let name_at = key::STORED_HEAD_BYTES + HEADER_BYTES;
    let name = stored.get(name_at..name_at + query.name().len());
    name.is_some_and(|name| name.eq_ignore_ascii_case(query.name()))
}
