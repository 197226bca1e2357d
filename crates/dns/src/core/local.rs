//! What the policy says: clients that are not served, questions that are answered here.
//!
//! What was answered here is not kept in the cache: to make it again costs what keeping it would.
//! So all that is held came from upstreams, and outlives a policy. Only an answer to a question
//! that the policy of today would not have sent upstream must not be served any more: what was born
//! before a core took its policy, or so soon after that it may have been asked under the one
//! before, is served only if the policy has no answer of its own ([`InForce::overrules`]). Whatever
//! was born later was asked under this policy.

use std::ops::Range;
use std::sync::Arc;

use larder::Entry;
use larder_wire::dns::edns::rcode;
use larder_wire::dns::query::Query;

use super::answer::{Options, extended};
use super::{Client, Core, Net, Now};
use crate::key;
use crate::policy::{Policy, Source};

/// The longest name in wire form, with type and class.
pub(super) const QUESTION_BYTES_MAX: usize = 255 + 4;

/// Seconds beyond the longest question within which all cores have taken a policy, and stored what
/// they had in hand.
const SETTLED_S: u32 = 3;

/// The policy that a core follows.
#[derive(Debug)]
pub(super) struct InForce {
    pub policy: Arc<Policy>,
    /// What was born at this second or later was asked under it.
    since_s: u32,
}

impl InForce {
    /// True where something that is held must not be served: it is older than the policy, which has
    /// an answer of its own.
    #[inline]
    pub fn overrules(&self, entry: &Entry<'_>, view: u16, query: &Query<'_>) -> bool {
        key::born_of(entry.value()) < self.since_s && self.answers(view, query)
    }

    #[inline(never)]
    fn answers(&self, view: u16, query: &Query<'_>) -> bool {
        if self.policy.is_silent(query.name(), query.qclass) {
            return false;
        }
        let mut room = [0; QUESTION_BYTES_MAX];
        folded(query, &mut room).is_some_and(|question| self.policy.answers(view, question))
    }
}

/// What became of a question here.
pub(super) enum Locally {
    /// Nothing is known of it.
    Nothing,
    /// It was answered, or dropped.
    Answered,
    /// Aliases of ours lead to a name that is not, which stands at these octets of [`Core::own`].
    Alias(Range<usize>),
}

/// Name, type and class of a question, in lower case.
pub(super) fn folded<'r>(
    query: &Query<'_>,
    room: &'r mut [u8; QUESTION_BYTES_MAX],
) -> Option<&'r [u8]> {
    let question = room.get_mut(..query.question().len())?;
    question.copy_from_slice(query.question());
    question[..query.name().len()].make_ascii_lowercase();
    Some(question)
}

impl Core {
    /// Refuses a client that is not served.
    #[cold]
    pub(super) fn prohibit(
        &mut self,
        now: Now,
        client: &Client,
        message: &[u8],
        net: &mut impl Net,
    ) {
        self.counts.acl_refused += 1;
        match Query::parse(message) {
            Ok(query) => {
                let options = Options::error(extended::PROHIBITED);
                self.answer_empty(now, client, &query, rcode::REFUSED, &options, net);
            }
            // Who is not served is not told what is wrong with the question.
            Err(_) => net.ignore(client),
        }
    }

    /// Takes a policy, in the place of another. Without one everybody is answered, and nothing is
    /// answered from here.
    pub fn set_policy(&mut self, now: Now, policy: Arc<Policy>) {
        // Before the first one nothing was asked here: what is older came from a snapshot. Before
        // another one a question that is in flight now is over by then.
        let in_flight_s = self.settings.question_ms_max.div_ceil(1_000);
        let margin_s =
            if self.in_force.is_some() { in_flight_s.saturating_add(SETTLED_S) } else { 0 };
        let since_s = now.wall_s.saturating_add(margin_s);
        self.in_force = Some(InForce { policy, since_s });
    }

    /// What is added to the key of a question of a client in this view.
    #[inline]
    pub(super) fn key_extra(&self, query: &Query<'_>, view: u16) -> [u8; key::EXTRA_BYTES] {
        let mark = self.in_force.as_ref().map_or(0, |in_force| in_force.policy.views_mark());
        key::extra(query.dnssec_ok(), query.checking_disabled, view, mark)
    }

    /// Answers from what the policy knows, or tells whom to ask for. Who desires no recursion is
    /// told of an alias, and no more.
    pub(super) fn answer_locally(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        view: u16,
        net: &mut impl Net,
    ) -> Locally {
        let Some(InForce { policy, .. }) = &self.in_force else { return Locally::Nothing };
        if policy.is_silent(query.name(), query.qclass) {
            return Locally::Nothing;
        }
        let mut room = [0; QUESTION_BYTES_MAX];
        let Some(question) = folded(query, &mut room) else { return Locally::Nothing };
        let mut message = std::mem::take(&mut self.own);
        let Some(local) = policy.local(view, question, &mut message) else {
            self.own = message;
            return Locally::Nothing;
        };
        if let Some(target) = local.alias.filter(|_| query.recursion_desired) {
            self.own = message;
            return Locally::Alias(target);
        }
        if local.is_dropped {
            self.counts.dropped_queries += 1;
            net.ignore(client);
        } else {
            let counter = match local.source {
                Source::Hosts => &mut self.counts.local_answers_hosts,
                Source::Zones => &mut self.counts.local_answers_zone,
                Source::Block { .. } => &mut self.counts.local_answers_blocked,
                Source::Rpz { .. } => &mut self.counts.local_answers_rpz,
                Source::Special => &mut self.counts.local_answers_special,
                Source::Chaos => &mut self.counts.local_answers_chaos,
            };
            *counter += 1;
            let options = local.extended_error.map_or(Options::new(), Options::error);
            self.answer_own(now, client, query, &message, &options, net);
        }
        self.own = message;
        Locally::Answered
    }
}
