//! Aliases of our own that lead to names that are not.
//!
//! ```text
//! question --policy--> CNAME … TARGET --key of TARGET--> held:  our aliases, and what is held
//!                                                        else:  asked, or joined to who asks the same
//! answer for TARGET ----> stored under its own key ----> told to each: as it is, or behind the aliases of his question
//! ```
//!
//! Only what the upstream said is held, and under its own name: a question for the target shares
//! it, a flush of the target flushes it, and when the aliases change there is nothing to be undone.
//! The price is that the answer is written anew each time, as all answers of our own are.
//!
//! Who waits by way of an alias is known by his question, which is not the one in flight. His
//! aliases are looked up again when he is told; where they lead elsewhere meanwhile, he is told
//! that it failed, and asks again.
//!
//! Where the upstream leads back to a name of ours the chain is a circle, and the answer SERVFAIL
//! (RFC 1034, section 3.6.2); the renderer finds it. The response code is that of the last name
//! (RFC 6604).

use std::ops::Range;

use larder_wire::dns::HEADER_BYTES;
use larder_wire::dns::edns::rcode;
use larder_wire::dns::query::{KeyBuf, Query};

use super::answer::{Options, asked_of, extended};
use super::local::{InForce, QUESTION_BYTES_MAX, folded};
use super::{Asked, Client, Core, Net, Now, is_ending};
use crate::key;
use crate::policy::Admission;

/// The question for a name that aliases lead to.
#[derive(Debug)]
pub(super) struct Target {
    /// A header, as of a query, and the question.
    message: [u8; HEADER_BYTES + QUESTION_BYTES_MAX],
    end: usize,
}

impl Target {
    /// That name, in wire form, with type and class of a question.
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

    /// Puts the key of the question into `key`; false where it is none.
    fn read(&self, key: &mut KeyBuf) -> bool {
        Query::read(&self.message[..self.end], key).is_ok()
    }
}

impl Core {
    /// A question whose answer of our own ends in an alias to the name at these octets of it. From
    /// here on the key at `at` is that of this name.
    pub(super) fn miss_alias(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        target: Range<usize>,
        net: &mut impl Net,
    ) {
        let Asked { client, query, view, .. } = asked;
        let extra = self.key_extra(query, *view);
        let target = self.own.get(target).and_then(|name| Target::new(name, query));
        let Some(target) = target.filter(|target| target.read(&mut self.keys[at])) else {
            let options = Options::error(extended::OTHER);
            return self.answer_empty(now, client, query, rcode::SERVFAIL, &options, net);
        };
        self.hashes[at] = self.reader.hash(self.keys[at].finish(&extra));
        let mut held = std::mem::take(&mut self.stale);
        held.clear();
        let key = self.keys[at].as_bytes();
        let entry = self.reader.get_stale_hashed(self.hashes[at], key, now.seconds());
        let has_stale = entry.as_ref().is_some_and(|entry| entry.is_stale(now.seconds()));
        let is_ending = entry.filter(|_| !has_stale).map(|entry| {
            held.extend_from_slice(entry.value());
            is_ending(&self.settings, now, &entry)
        });
        if is_ending.is_some() {
            self.counts.hits += 1;
            self.answer_behind(now, client, query, &held, 0, &Options::new(), net);
        }
        self.stale = held;
        match is_ending {
            Some(true) => self.prefetch(now, at, asked, target.question(), net),
            Some(false) => {}
            None => self.seek(now, at, asked, Some(&target), has_stale, net),
        }
    }

    /// Tells one who waits what was rendered last.
    pub(super) fn tell_rendered(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        net: &mut impl Net,
    ) {
        if is_about(self.renderer.stored(), query) {
            return self.answer_rendered(now, client, query, &Options::new(), net);
        }
        let mut stored = std::mem::take(&mut self.stale);
        stored.clear();
        stored.extend_from_slice(self.renderer.stored());
        self.answer_behind(now, client, query, &stored, 0, &Options::new(), net);
        self.stale = stored;
    }

    /// Answers with something that was stored, behind our own aliases where it is for the name that
    /// they lead to.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn answer_about(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        stored: &[u8],
        stale_ttl_s: u32,
        options: &Options,
        net: &mut impl Net,
    ) {
        if is_about(stored, query) {
            self.answer_stored(now, client, query, stored, stale_ttl_s, options, net);
        } else {
            self.answer_behind(now, client, query, stored, stale_ttl_s, options, net);
        }
    }

    /// Answers with our own aliases, and behind them what was stored for the name that they lead
    /// to.
    #[allow(clippy::too_many_arguments)]
    fn answer_behind(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        stored: &[u8],
        stale_ttl_s: u32,
        options: &Options,
        net: &mut impl Net,
    ) {
        if self.render_behind(now, client, query, stored).is_some() {
            let stored = self.composer.stored();
            self.answer_stored(now, client, query, stored, stale_ttl_s, options, net);
        } else {
            let options = Options::error(extended::OTHER);
            self.answer_empty(now, client, query, rcode::SERVFAIL, &options, net);
        }
    }

    fn render_behind(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        stored: &[u8],
    ) -> Option<()> {
        let Core { in_force, own, composer, .. } = self;
        let InForce { policy, .. } = in_force.as_ref()?;
        let Admission::Allowed { view } = policy.admit(client.address()) else { return None };
        let mut room = [0; QUESTION_BYTES_MAX];
        let target = policy.local(view, folded(query, &mut room)?, own)?.alias?;
        let (name, ..) = key::question_of(stored)?;
        if !own.get(target)?.eq_ignore_ascii_case(name) {
            return None;
        }
        composer.put_behind(own, stored, &asked_of(query), now.wall_s).ok()
    }
}

/// True where something that was stored is for the name of a question.
fn is_about(stored: &[u8], query: &Query<'_>) -> bool {
    let name_at = key::STORED_HEAD_BYTES + HEADER_BYTES;
    let name = stored.get(name_at..name_at + query.name().len());
    name.is_some_and(|name| name.eq_ignore_ascii_case(query.name()))
}
