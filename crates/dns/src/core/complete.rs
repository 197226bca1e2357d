//! The end of a query: its response is stored and sent to all clients that wait, or they get a
//! failure.

use larder::{KeyHash, Reader, Ttl};
use larder_wire::dns::edns::rcode;
use larder_wire::dns::query::{KEY_BYTES_MAX, Query};
use larder_wire::dns::rendered::{Facts, Kind};

use super::answer::{Options, extended};
use super::{BatchQuery, Core, Net, Now, Request, Source};
use crate::key;
use crate::pending::{InFlight, QueryId};

/// First byte of a key that is a digest, if it is for a failure (the digest's own mark is 255).
const DIGEST_OF_FAILURE: u8 = 0xfe;

impl Core {
    /// Ends a query whose response was rendered last.
    pub(super) fn complete(&mut self, id: QueryId, facts: &Facts, net: &mut impl Net) {
        let Some(InFlight { key, state, .. }) = self.pending.get(id) else { return };
        if facts.ttl_s > 0 {
            let (stored, ttl) = (self.renderer.stored(), Ttl::seconds(facts.ttl_s));
            let seconds = self.now.seconds();
            let is_cached =
                self.writer.insert_hashed(state.hash, key, stored, ttl, seconds).is_ok();
            self.counts.limit_cache_writes += u64::from(!is_cached);
            if facts.kind == Kind::NoName && facts.aliases == 0 {
                self.cache_nxdomain(id, ttl);
            }
        } else if state.has_stale && facts.kind != Kind::Inconclusive {
            // The stale entry has been replaced by a response that may not be cached: it must not
            // be served again.
            self.counts.limit_cache_writes += u64::from(self.writer.remove(key).is_err());
        }
        self.respond_all(id, Source::Miss, net, Core::respond_to_waiter);
        self.end_query(id, net);
    }

    /// Ends a query without a response: caches the failure. Clients that wait get the stale
    /// response, or SERVFAIL.
    pub(super) fn fail(&mut self, id: QueryId, error: u16, net: &mut impl Net) {
        let Some(InFlight { key, state, .. }) = self.pending.get(id) else { return };
        let has_stale = state.has_stale;
        let mut room = [0; KEY_BYTES_MAX];
        let (failure, code) = (failure_key(key, &mut room), error.to_be_bytes());
        let ttl = Ttl::seconds(if has_stale {
            self.settings.stale_ttl_s
        } else {
            self.settings.rules.failure_ttl_s
        });
        let now_s = self.now.wall_s;
        let until_s = ttl.as_seconds().map_or(u32::MAX, |ttl_s| now_s.saturating_add(ttl_s));
        self.failures_until_s = self.failures_until_s.max(until_s);
        let is_cached = self.writer.insert(failure, &code, ttl, self.now.seconds()).is_ok();
        self.counts.limit_cache_writes += u64::from(!is_cached);
        self.counts.upstream_failures += 1;
        if !has_stale || !self.respond_all_stale(id, net) {
            self.respond_all(id, Source::Miss, net, |core, request, net| {
                core.respond_failure(request, error, net);
            });
        }
        self.end_query(id, net);
    }

    /// The extended error of a cached failure for a key. Failures that other cores cached are found
    /// only while this core has some itself: if nothing fails, nothing is looked up.
    pub(super) fn cached_failure(&self, at: usize) -> Option<u16> {
        if self.now.wall_s >= self.failures_until_s {
            return None;
        }
        let mut room = [0; KEY_BYTES_MAX];
        let key = failure_key(self.keys[at].as_bytes(), &mut room);
        let entry = self.reader.get(key, self.now.seconds())?;
        entry.value().first_chunk().map(|code| u16::from_be_bytes(*code))
    }

    /// Calls `respond` for each client that waits.
    fn respond_all<N: Net>(
        &mut self,
        id: QueryId,
        source: Source,
        net: &mut N,
        mut respond: impl FnMut(&mut Core, &Request<'_>, &mut N),
    ) {
        let since_us = self.pending.get(id).map(|query| query.state.started_us);
        net.describe(source, since_us);
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        while let Some(client) = self.pending.next_waiter(id, &mut message) {
            // It was valid when it arrived.
            if let Ok(query) = Query::parse(&message) {
                respond(self, &Request { client, query }, net);
            }
            message.clear();
        }
        self.scratch = message;
        net.describe(Source::Local, None);
    }

    /// Sends the stale response to all clients that wait; false if it is no longer in the cache.
    pub(super) fn respond_all_stale(&mut self, id: QueryId, net: &mut impl Net) -> bool {
        let Some(InFlight { key, state, .. }) = self.pending.get(id) else { return false };
        if !copy_stale(&self.reader, state.hash, key, self.now, &mut self.stale) {
            return false;
        }
        let stale = std::mem::take(&mut self.stale);
        self.respond_all(id, Source::Stale, net, |core, request, net| {
            core.respond_stale(request, &stale, net);
        });
        self.stale = stale;
        true
    }

    fn respond_stale(&mut self, request: &Request<'_>, stored: &[u8], net: &mut impl Net) {
        self.counts.stale_answers += 1;
        let is_nxdomain = key::rcode_of(stored) == Some(rcode::NXDOMAIN);
        let code = if is_nxdomain { extended::STALE_NXDOMAIN } else { extended::STALE_ANSWER };
        let ttl_s = self.settings.stale_ttl_s;
        self.respond_about(request, stored, ttl_s, &Options::error(code), net);
    }

    /// Responds to a client that cannot wait: with the stale response, or SERVFAIL.
    pub(super) fn respond_at_once(
        &mut self,
        at: usize,
        BatchQuery { request, .. }: &BatchQuery<'_>,
        has_stale: bool,
        options: &Options,
        net: &mut impl Net,
    ) {
        let key = self.keys[at].as_bytes();
        if has_stale && copy_stale(&self.reader, self.hashes[at], key, self.now, &mut self.stale) {
            let stale = std::mem::take(&mut self.stale);
            net.describe(Source::Stale, None);
            self.respond_stale(request, &stale, net);
            self.stale = stale;
        } else {
            net.describe(Source::Failed, None);
            self.respond_empty(request, rcode::SERVFAIL, options, net);
        }
        net.describe(Source::Local, None);
    }
}

/// Copies the entry of a key, stale or not; false if there is no entry.
fn copy_stale(reader: &Reader, hash: KeyHash, key: &[u8], now: Now, out: &mut Vec<u8>) -> bool {
    let Some(entry) = reader.get_stale_hashed(hash, key, now.seconds()) else { return false };
    out.clear();
    out.extend_from_slice(entry.value());
    true
}

/// The key under which the failure of a query is cached.
fn failure_key<'a>(key: &[u8], room: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
    let made = &mut room[..key.len()];
    made.copy_from_slice(key);
    match made.first_mut() {
        Some(first @ 0xff) => *first = DIGEST_OF_FAILURE,
        _ => {
            if let Some(flags) = made.len().checked_sub(key::EXTRA_BYTES) {
                made[flags] |= key::FAILURE;
            }
        }
    }
    made
}
