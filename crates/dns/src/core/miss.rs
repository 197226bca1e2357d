//! Misses: a query joins the same query in flight, or starts one.

use larder_io::random::Random;
use larder_wire::dns::edns::{option, rcode};
use larder_wire::dns::query::Query;

use super::alias::Target;
use super::answer::{Options, extended};
use super::in_flight::{Attempts, QueryState};
use super::local::LocalResult;
use super::{BatchQuery, Core, Net};
use crate::choice::{Outlook, PROBE_MS, Tried};
use crate::pending::{InFlight, QueryId};

/// Why no upstream is queried.
enum NotStarted {
    /// The limit of queries in flight is reached.
    Full,
    /// The name is in no forwarded zone.
    NoZone,
    /// No upstream of the zone has responded for some time.
    Silence,
}

impl Core {
    /// Resolves a query that is not in the cache.
    pub(super) fn miss(
        &mut self,
        at: usize,
        query: &BatchQuery<'_>,
        has_stale: bool,
        net: &mut impl Net,
    ) {
        match self.respond_locally(&query.request, query.view, net) {
            LocalResult::Done => {}
            LocalResult::Nothing => self.resolve(at, query, None, has_stale, net),
            LocalResult::Alias(target) => self.miss_alias(at, query, target, net),
        }
    }

    /// Resolves a query that neither the cache nor local data has. `target` is the name to resolve
    /// instead of the client's.
    pub(super) fn resolve(
        &mut self,
        at: usize,
        query: &BatchQuery<'_>,
        target: Option<&Target>,
        has_stale: bool,
        net: &mut impl Net,
    ) {
        let BatchQuery { request, message, .. } = query;
        self.counts.misses += 1;
        if self.settings.cache_only {
            let options = Options::error(extended::NOT_AUTHORITATIVE);
            return self.respond_empty(request, rcode::REFUSED, &options, net);
        }
        let hash = self.hashes[at];
        if let Some(error) = self.cached_failure(at) {
            self.counts.cached_failures += 1;
            let mut options = Options::error(error);
            options.push(option::EXTENDED_ERROR, &extended::CACHED_ERROR.to_be_bytes());
            return self.respond_at_once(at, query, has_stale, &options, net);
        }
        if target.is_none() && self.respond_from_nxdomain(at, request, net) {
            return;
        }
        let id = match self.pending.find(hash.get(), self.keys[at].as_bytes()) {
            Some(id) => {
                self.counts.merged_questions += 1;
                self.note_stale(id, has_stale);
                Ok(id)
            }
            None => {
                let question = target.map_or(request.query.question(), Target::question);
                self.start_query(at, &request.query, question, has_stale)
            }
        };
        let limited = Options::error(extended::OTHER);
        let id = match id {
            Ok(id) => id,
            Err(NotStarted::Full) => {
                self.counts.limit_questions += 1;
                return self.respond_at_once(at, query, has_stale, &limited, net);
            }
            Err(NotStarted::Silence) => {
                self.counts.limit_silent_upstreams += 1;
                let options = Options::error(extended::NO_REACHABLE_AUTHORITY);
                return self.respond_at_once(at, query, has_stale, &options, net);
            }
            Err(NotStarted::NoZone) => {
                let options = Options::error(extended::NOT_AUTHORITATIVE);
                return self.respond_empty(request, rcode::REFUSED, &options, net);
            }
        };
        let was_stale_served =
            self.pending.get(id).is_some_and(|pending| pending.state.was_stale_served);
        if was_stale_served {
            self.respond_at_once(at, query, true, &limited, net);
        } else if !self.pending.join(id, request.client, message) {
            self.counts.limit_waiters += 1;
            self.respond_at_once(at, query, has_stale, &limited, net);
            if self.pending.waiters(id) == 0 && self.is_new(id) {
                // No client waits for it.
                return self.end_query(id, net);
            }
        }
        self.send_if_new(id, net);
    }

    /// Queries again for an entry that expires soon. No client waits for the response.
    pub(super) fn prefetch(
        &mut self,
        at: usize,
        BatchQuery { request, .. }: &BatchQuery<'_>,
        question: &[u8],
        net: &mut impl Net,
    ) {
        let hash = self.hashes[at];
        if !self.settings.cache_only
            && self.pending.find(hash.get(), self.keys[at].as_bytes()).is_none()
            && self.cached_failure(at).is_none()
            && let Ok(id) = self.start_query(at, &request.query, question, false)
        {
            self.counts.prefetches += 1;
            self.send_if_new(id, net);
        }
    }

    /// Records that the entry is stale now: it may expire while a query that prefetches it is in
    /// flight.
    fn note_stale(&mut self, id: QueryId, has_stale: bool) {
        if has_stale
            && let Some(InFlight { state, .. }) = self.pending.get_mut(id)
            && !state.has_stale
        {
            state.has_stale = true;
            self.set_timer(id);
        }
    }

    /// Starts a query in flight; no upstream is queried yet. `question` is the client's, or the one
    /// for its alias.
    fn start_query(
        &mut self,
        at: usize,
        query: &Query<'_>,
        question: &[u8],
        has_stale: bool,
    ) -> Result<QueryId, NotStarted> {
        let Core { question: sent, now, zones, settings, pending, random, .. } = self;
        sent.clear();
        sent.extend_from_slice(question);
        let name_bytes = sent.len() - 4;
        sent[..name_bytes].make_ascii_lowercase();
        let zone = zones.find(&sent[..name_bytes]).ok_or(NotStarted::NoZone)?;
        let limit_ms = match zones.choice(zone).outlook(now.ms()) {
            Outlook::Good => settings.query_ms_max,
            Outlook::Probe => settings.query_ms_max.min(PROBE_MS),
            Outlook::Silence => return Err(NotStarted::Silence),
        };
        if settings.case_random {
            random_case(&mut sent[..name_bytes], random);
        }
        let state = QueryState {
            hash: self.hashes[at],
            zone,
            dnssec_ok: query.dnssec_ok(),
            checking_disabled: query.checking_disabled,
            plain: None,
            started_us: now.us,
            limit_ms,
            tried: Tried::default(),
            attempts: Attempts::default(),
            due_ms: 0,
            hedge_ms: None,
            by_stream: None,
            stream_has_edns: true,
            streams: 0,
            mismatches: 0,
            has_stale,
            was_stale_served: false,
            error: None,
            timer: None,
        };
        let key = self.keys[at].as_bytes();
        pending.begin(state.hash.get(), key, sent, state).ok_or(NotStarted::Full)
    }

    fn send_if_new(&mut self, id: QueryId, net: &mut impl Net) {
        if self.is_new(id) {
            self.try_next(id, extended::NO_REACHABLE_AUTHORITY, net);
        }
    }
}

/// Gives each lower-case letter of a name an unpredictable case (0x20).
pub fn random_case(name: &mut [u8], random: &mut Random) {
    for bytes in name.chunks_mut(64) {
        // Without random numbers the letters stay lower case, and the response must have them so.
        let Ok(mut bits) = random.u64() else { return };
        for byte in bytes {
            // Lengths of labels are below the codes of letters.
            if byte.is_ascii_lowercase() && bits & 1 == 1 {
                byte.make_ascii_uppercase();
            }
            bits >>= 1;
        }
    }
}
