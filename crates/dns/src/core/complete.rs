//! The end of a question: its answer is kept and told to all who wait, or they are told that there
//! is none.

use larder::{KeyHash, Reader, Ttl};
use larder_wire::dns::edns::rcode;
use larder_wire::dns::query::{KEY_BYTES_MAX, Query};
use larder_wire::dns::rendered::{Facts, Kind};

use super::Source;
use super::answer::{Options, extended};
use super::{Asked, Client, Core, Net, Now};
use crate::key;
use crate::pending::{InFlight, Question};

/// What a key of a digest begins with where it stands for a failure (the digest's own mark is 255).
const DIGEST_OF_FAILURE: u8 = 0xfe;

impl Core {
    /// A question has its answer: it is kept, and everybody is told.
    pub(super) fn over(&mut self, now: Now, question: Question, facts: &Facts, net: &mut impl Net) {
        let Some(InFlight { key, state: ask, .. }) = self.pending.get(question) else { return };
        if facts.ttl_s > 0 {
            let (stored, ttl) = (self.renderer.stored(), Ttl::seconds(facts.ttl_s));
            let kept = self.writer.insert_hashed(ask.hash, key, stored, ttl, now.seconds());
            if kept.is_err() {
                self.counts.limit_cache_writes += 1;
            }
            if facts.kind == Kind::NoName && facts.aliases == 0 {
                self.remember_denied(now, question, ttl);
            }
        } else if ask.has_stale && facts.kind != Kind::Inconclusive {
            // What is past its end has been replaced by what may not be kept: it must not come
            // back.
            if self.writer.remove(key).is_err() {
                self.counts.limit_cache_writes += 1;
            }
        }
        self.tell_all(question, Source::Miss, net, |core, client, query, net| {
            core.tell_rendered(now, client, query, net);
        });
        self.note_time(now, question);
        self.end_question(question, net);
    }

    /// A question has none: that is remembered, and those who wait get what is held past its end,
    /// or are told.
    pub(super) fn fail(&mut self, now: Now, question: Question, error: u16, net: &mut impl Net) {
        let Some(InFlight { key, state: ask, .. }) = self.pending.get(question) else { return };
        let has_stale = ask.has_stale;
        let mut room = [0; KEY_BYTES_MAX];
        let (failure, code) = (failure_key(key, &mut room), error.to_be_bytes());
        let ttl = Ttl::seconds(if has_stale {
            self.settings.stale_ttl_s
        } else {
            self.settings.rules.failure_ttl_s
        });
        let until_s = ttl.as_seconds().map_or(u32::MAX, |ttl_s| now.wall_s.saturating_add(ttl_s));
        self.failures_until_s = self.failures_until_s.max(until_s);
        if self.writer.insert(failure, &code, ttl, now.seconds()).is_err() {
            self.counts.limit_cache_writes += 1;
        }
        self.counts.upstream_failures += 1;
        if !has_stale || !self.tell_stale(now, question, net) {
            let options = Options::error(error);
            self.tell_all(question, Source::Miss, net, |core, client, query, net| {
                core.answer_empty(now, client, query, rcode::SERVFAIL, &options, net);
            });
        }
        self.note_time(now, question);
        self.end_question(question, net);
    }

    /// The extended error of a failure that is remembered for a key. Others' failures are found as
    /// long as this core has any of its own: where nothing fails, nothing is looked for.
    pub(super) fn known_failure(&self, at: usize, now: Now) -> Option<u16> {
        if now.wall_s >= self.failures_until_s {
            return None;
        }
        let mut room = [0; KEY_BYTES_MAX];
        let entry =
            self.reader.get(failure_key(self.keys[at].as_bytes(), &mut room), now.seconds())?;
        entry.value().first_chunk().map(|code| u16::from_be_bytes(*code))
    }

    /// Calls `tell` for each who waits.
    fn tell_all<N: Net>(
        &mut self,
        question: Question,
        source: Source,
        net: &mut N,
        mut tell: impl FnMut(&mut Core, &Client, &Query<'_>, &mut N),
    ) {
        let since_us = self.pending.get(question).map(|flight| flight.state.begun_us);
        net.describe(source, since_us);
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        while let Some(client) = self.pending.next_waiter(question, &mut message) {
            // It was read before it was kept.
            if let Ok(query) = Query::parse(&message) {
                tell(self, &client, &query, net);
            }
            message.clear();
        }
        self.scratch = message;
        net.describe(Source::Local, None);
    }

    /// Tells those who wait what is held past its end; false where that is gone meanwhile.
    pub(super) fn tell_stale(&mut self, now: Now, question: Question, net: &mut impl Net) -> bool {
        let Some(InFlight { key, state: ask, .. }) = self.pending.get(question) else {
            return false;
        };
        if !copy_stale(&self.reader, ask.hash, key, now, &mut self.stale) {
            return false;
        }
        let stale = std::mem::take(&mut self.stale);
        self.tell_all(question, Source::Stale, net, |core, client, query, net| {
            core.answer_stale(now, client, query, &stale, net);
        });
        self.stale = stale;
        true
    }

    /// Answers with something past its end.
    fn answer_stale(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        stored: &[u8],
        net: &mut impl Net,
    ) {
        self.counts.stale_answers += 1;
        let is_denied = key::rcode_of(stored) == Some(rcode::NXDOMAIN);
        let code = if is_denied { extended::STALE_NXDOMAIN } else { extended::STALE_ANSWER };
        let ttl_s = self.settings.stale_ttl_s;
        self.answer_about(now, client, query, stored, ttl_s, &Options::error(code), net);
    }

    /// A client that cannot wait: what is held past its end, or SERVFAIL.
    pub(super) fn answer_failure(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        has_stale: bool,
        options: &Options,
        net: &mut impl Net,
    ) {
        let Asked { client, query, .. } = asked;
        let key = self.keys[at].as_bytes();
        if has_stale && copy_stale(&self.reader, self.hashes[at], key, now, &mut self.stale) {
            let stale = std::mem::take(&mut self.stale);
            net.describe(Source::Stale, None);
            self.answer_stale(now, client, query, &stale, net);
            self.stale = stale;
        } else {
            net.describe(Source::Failed, None);
            self.answer_empty(now, client, query, rcode::SERVFAIL, options, net);
        }
        net.describe(Source::Local, None);
    }
}

/// Copies what is held for a key, past its end or not; false where nothing is.
fn copy_stale(reader: &Reader, hash: KeyHash, key: &[u8], now: Now, out: &mut Vec<u8>) -> bool {
    let Some(entry) = reader.get_stale_hashed(hash, key, now.seconds()) else { return false };
    out.clear();
    out.extend_from_slice(entry.value());
    true
}

/// The key of what is remembered of a question that failed.
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
