//! The policy: clients that are not served, and responses from local data.
//!
//! Local responses are not cached, since making one again costs as much as a hit. So all cached
//! responses come from upstreams and outlive a policy. But a cached response must not be served if
//! the present policy would not have sent its query upstream.
//!
//! Some entries were born before a core took its policy, or so soon after that their query may have
//! started under the previous one. The core serves them only if the policy has no response of its
//! own ([`InForce::overrules`]). An entry born later was queried under this policy.

use std::ops::Range;
use std::sync::Arc;

use larder::Entry;
use larder_wire::dns::edns::rcode;
use larder_wire::dns::query::Query;

use super::answer::{Options, extended};
use super::{Client, Core, Net, Now, Request};
use crate::key;
use crate::policy::{Policy, Source};

/// The longest name in wire form, with type and class.
pub(super) const QUESTION_BYTES_MAX: usize = 255 + 4;

/// Seconds after the longest query within which all cores have taken a policy, and stored the
/// responses in hand.
const SETTLED_S: u32 = 3;

/// The policy that a core follows.
#[derive(Debug)]
pub(super) struct InForce {
    pub policy: Arc<Policy>,
    /// Entries born at this second or later were queried under it.
    since_s: u32,
}

impl InForce {
    /// True if a cached response must not be served: it is older than the policy, which has a
    /// response of its own.
    #[inline]
    pub fn overrules(&self, entry: &Entry<'_>, view: u16, query: &Query<'_>) -> bool {
        key::born_of(entry.value()) < self.since_s && self.responds(view, query)
    }

    #[inline(never)]
    fn responds(&self, view: u16, query: &Query<'_>) -> bool {
        if self.policy.is_silent(query.name(), query.qclass) {
            return false;
        }
        let mut room = [0; QUESTION_BYTES_MAX];
        folded(query, &mut room).is_some_and(|question| self.policy.answers(view, question))
    }
}

/// The outcome of a query in local data.
pub(super) enum LocalResult {
    /// The policy has nothing for it.
    Nothing,
    /// The client got its response, or the query was dropped.
    Done,
    /// Local aliases lead to a name outside of local data, which is at these bytes of
    /// [`Core::own`].
    Alias(Range<usize>),
}

/// Name, type and class of a query, in lower case.
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
    pub(super) fn refuse_client(&mut self, client: Client, message: &[u8], net: &mut impl Net) {
        self.counts.acl_refused += 1;
        match Query::parse(message) {
            Ok(query) => {
                let options = Options::error(extended::PROHIBITED);
                self.respond_empty(&Request { client, query }, rcode::REFUSED, &options, net);
            }
            // Such a client gets no response that says what is wrong with its query.
            Err(_) => net.drop_query(&client),
        }
    }

    /// Replaces the policy. Without one all clients are served, and there is no local data.
    pub fn set_policy(&mut self, now: Now, policy: Arc<Policy>) {
        // Entries older than the first policy came from a snapshot. When a later policy replaces
        // it, queries may be in flight that end within their time limit.
        let in_flight_s = self.settings.query_ms_max.div_ceil(1_000);
        let margin_s =
            if self.in_force.is_some() { in_flight_s.saturating_add(SETTLED_S) } else { 0 };
        let since_s = now.wall_s.saturating_add(margin_s);
        self.in_force = Some(InForce { policy, since_s });
    }

    /// The part of a key that depends on the client's view and on the flags of its query.
    #[inline]
    pub(super) fn key_extra(&self, query: &Query<'_>, view: u16) -> [u8; key::EXTRA_BYTES] {
        let mark = self.in_force.as_ref().map_or(0, |in_force| in_force.policy.views_mark());
        key::extra(query.dnssec_ok(), query.checking_disabled, view, mark)
    }

    /// Responds from local data, or returns the name to resolve. A query without RD gets an alias
    /// without its target.
    pub(super) fn respond_locally(
        &mut self,
        request: &Request<'_>,
        view: u16,
        net: &mut impl Net,
    ) -> LocalResult {
        let query = &request.query;
        let Some(InForce { policy, .. }) = &self.in_force else { return LocalResult::Nothing };
        if policy.is_silent(query.name(), query.qclass) {
            return LocalResult::Nothing;
        }
        let mut room = [0; QUESTION_BYTES_MAX];
        let Some(question) = folded(query, &mut room) else { return LocalResult::Nothing };
        let mut message = std::mem::take(&mut self.own);
        let Some(local) = policy.local(view, question, &mut message) else {
            self.own = message;
            return LocalResult::Nothing;
        };
        if let Some(target) = local.alias.filter(|_| query.recursion_desired) {
            self.own = message;
            return LocalResult::Alias(target);
        }
        if local.is_dropped {
            self.counts.dropped_queries += 1;
            net.drop_query(&request.client);
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
            let is_blocked = matches!(local.source, Source::Block { .. } | Source::Rpz { .. });
            let options = local.extended_error.map_or(Options::new(), Options::error);
            if is_blocked {
                net.describe(super::Source::Blocked, None);
            }
            self.respond_own(request, &message, &options, net);
            if is_blocked {
                net.describe(super::Source::Local, None);
            }
        }
        self.own = message;
        LocalResult::Done
    }
}
