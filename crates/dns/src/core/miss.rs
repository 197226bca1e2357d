//! Questions that are not held: joined to one in flight, or begun.

use larder_io::random::Random;
use larder_wire::dns::edns::{option, rcode};
use larder_wire::dns::query::Query;

use super::alias::Target;
use super::answer::{Options, extended};
use super::in_flight::{Ask, Attempts};
use super::local::Locally;
use super::{Asked, Core, Net, Now};
use crate::choice::{Outlook, PROBE_MS, Tried};
use crate::pending::{InFlight, Question};

/// Why no upstream is asked.
enum NotBegun {
    /// As many questions are in flight as may be.
    Full,
    /// No zone that is forwarded has the name.
    Nobodys,
    /// None of those to ask has answered for some time.
    Silence,
}

impl Core {
    /// What is not held: told by somebody else's question, or asked.
    pub(super) fn miss(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        has_stale: bool,
        net: &mut impl Net,
    ) {
        let Asked { client, query, view, .. } = asked;
        match self.answer_locally(now, client, query, *view, net) {
            Locally::Answered => {}
            Locally::Nothing => self.seek(now, at, asked, None, has_stale, net),
            Locally::Alias(target) => self.miss_alias(now, at, asked, target, net),
        }
    }

    /// What is held neither here nor there; `target` is what is asked for in the place of a
    /// client's question.
    pub(super) fn seek(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        target: Option<&Target>,
        has_stale: bool,
        net: &mut impl Net,
    ) {
        let Asked { client, message, query, .. } = asked;
        self.counts.misses += 1;
        if self.settings.cache_only {
            let options = Options::error(extended::NOT_AUTHORITATIVE);
            return self.answer_empty(now, client, query, rcode::REFUSED, &options, net);
        }
        let hash = self.hashes[at];
        if let Some(error) = self.known_failure(at, now) {
            self.counts.cached_failures += 1;
            let mut options = Options::error(error);
            options.push(option::EXTENDED_ERROR, &extended::CACHED_ERROR.to_be_bytes());
            return self.answer_failure(now, at, asked, has_stale, &options, net);
        }
        if target.is_none() && self.deny_below(now, at, asked, net) {
            return;
        }
        let question = match self.pending.find(hash.get(), self.keys[at].as_bytes()) {
            Some(question) => {
                self.counts.merged_questions += 1;
                self.note_stale(now, question, has_stale);
                Ok(question)
            }
            None => {
                let sent = target.map_or(query.question(), Target::question);
                self.begin_question(now, at, query, sent, has_stale)
            }
        };
        let limited = Options::error(extended::OTHER);
        let question = match question {
            Ok(question) => question,
            Err(NotBegun::Full) => {
                self.counts.limit_questions += 1;
                return self.answer_failure(now, at, asked, has_stale, &limited, net);
            }
            Err(NotBegun::Silence) => {
                self.counts.limit_silent_upstreams += 1;
                let options = Options::error(extended::NO_REACHABLE_AUTHORITY);
                return self.answer_failure(now, at, asked, has_stale, &options, net);
            }
            Err(NotBegun::Nobodys) => {
                let options = Options::error(extended::NOT_AUTHORITATIVE);
                return self.answer_empty(now, client, query, rcode::REFUSED, &options, net);
            }
        };
        let was_told_stale =
            self.pending.get(question).is_some_and(|flight| flight.state.was_told_stale);
        if was_told_stale {
            self.answer_failure(now, at, asked, true, &limited, net);
        } else if !self.pending.join(question, *client, message) {
            self.counts.limit_waiters += 1;
            self.answer_failure(now, at, asked, has_stale, &limited, net);
            if self.pending.waiters(question) == 0 && self.is_new(question) {
                // Nobody is asked what nobody waits for.
                return self.end_question(question, net);
            }
        }
        self.send_if_new(now, question, net);
    }

    /// Asks again for what is held and soon to end; nobody waits for it.
    pub(super) fn prefetch(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        sent: &[u8],
        net: &mut impl Net,
    ) {
        let hash = self.hashes[at];
        if !self.settings.cache_only
            && self.pending.find(hash.get(), self.keys[at].as_bytes()).is_none()
            && self.known_failure(at, now).is_none()
            && let Ok(question) = self.begin_question(now, at, &asked.query, sent, false)
        {
            self.counts.prefetches += 1;
            self.send_if_new(now, question, net);
        }
    }

    /// What is held may come to its end while a question is in flight: fetched before that, it had
    /// nothing past its end.
    fn note_stale(&mut self, now: Now, question: Question, has_stale: bool) {
        if has_stale
            && let Some(InFlight { state: ask, .. }) = self.pending.get_mut(question)
            && !ask.has_stale
        {
            ask.has_stale = true;
            self.set_timer(now, question);
        }
    }

    /// A question in flight that nobody was asked yet: that of a client, or the one in its place.
    fn begin_question(
        &mut self,
        now: Now,
        at: usize,
        query: &Query<'_>,
        question: &[u8],
        has_stale: bool,
    ) -> Result<Question, NotBegun> {
        let mut sent = std::mem::take(&mut self.sent);
        sent.clear();
        sent.extend_from_slice(question);
        let begun = self.begin_sent(now, at, query, has_stale, &mut sent);
        self.sent = sent;
        begun
    }

    /// As `begin_question`, which names the question `sent`.
    fn begin_sent(
        &mut self,
        now: Now,
        at: usize,
        query: &Query<'_>,
        has_stale: bool,
        sent: &mut [u8],
    ) -> Result<Question, NotBegun> {
        let name_bytes = sent.len() - 4;
        sent[..name_bytes].make_ascii_lowercase();
        let zone = self.zones.find(&sent[..name_bytes]).ok_or(NotBegun::Nobodys)?;
        let patience_ms = match self.zones.choice(zone).outlook(now.ms()) {
            Outlook::Good => self.settings.question_ms_max,
            Outlook::Probe => self.settings.question_ms_max.min(PROBE_MS),
            Outlook::Silence => return Err(NotBegun::Silence),
        };
        if self.settings.case_random {
            random_case(&mut sent[..name_bytes], &mut self.random);
        }
        let ask = Ask {
            hash: self.hashes[at],
            zone,
            dnssec_ok: query.dnssec_ok(),
            checking_disabled: query.checking_disabled,
            plain: None,
            begun_us: now.us,
            patience_ms,
            tried: Tried::default(),
            sent: Attempts::default(),
            due_ms: 0,
            hedge_ms: None,
            by_stream: None,
            stream_has_edns: true,
            streams: 0,
            misfits: 0,
            has_stale,
            was_told_stale: false,
            error: None,
            timer: None,
        };
        let key = self.keys[at].as_bytes();
        self.pending.begin(ask.hash.get(), key, sent, ask).ok_or(NotBegun::Full)
    }

    fn send_if_new(&mut self, now: Now, question: Question, net: &mut impl Net) {
        if self.is_new(question) {
            self.ask_another(now, question, extended::NO_REACHABLE_AUTHORITY, net);
        }
    }
}

/// Gives each letter of a name in lower case a case that nobody can foresee (0x20).
pub fn random_case(name: &mut [u8], random: &mut Random) {
    for octets in name.chunks_mut(64) {
        // Without random numbers the letters stay small, and the answer is held against that.
        let Ok(mut bits) = random.u64() else { return };
        for octet in octets {
            // Octets of length are below those of letters.
            if octet.is_ascii_lowercase() && bits & 1 == 1 {
                octet.make_ascii_uppercase();
            }
            bits >>= 1;
        }
    }
}
