//! What the policy says: clients that are not served, questions that are answered here.
//!
//! What was answered here is not kept in the cache: to make it again costs what keeping it would. What was kept before a
//! policy came is not found under the new one, as its generation is part of the key.

use larder_wire::dns::edns::rcode;
use larder_wire::dns::query::Query;

use super::answer::{Options, extended};
use super::{Client, Core, Net, Now};

/// The longest name in wire form, with type and class.
const QUESTION_BYTES_MAX: usize = 255 + 4;

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
        self.counts.prohibited += 1;
        let mut key = std::mem::take(&mut self.scratch_key);
        match Query::read(message, &mut key) {
            Ok(query) => {
                let options = Options::error(extended::PROHIBITED);
                self.answer_empty(now, client, &query, rcode::REFUSED, &options, net);
            }
            // Who is not served is not told what is wrong with the question.
            Err(_) => net.ignore(client),
        }
        self.scratch_key = key;
    }

    /// Answers from what the policy knows; false where it says nothing.
    pub(super) fn answer_locally(
        &mut self,
        now: Now,
        client: &Client,
        query: &Query<'_>,
        view: u16,
        net: &mut impl Net,
    ) -> bool {
        let Some(policy) = &self.policy else { return false };
        let mut room = [0; QUESTION_BYTES_MAX];
        let Some(question) = room.get_mut(..query.question().len()) else { return false };
        question.copy_from_slice(query.question());
        let name_bytes = query.name().len();
        question[..name_bytes].make_ascii_lowercase();
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        let local = policy.local(view, question, &mut message);
        let is_answered = local.is_some();
        if let Some(local) = local {
            if local.is_dropped {
                self.counts.local_dropped += 1;
                net.ignore(client);
            } else {
                self.counts.local_answers += 1;
                let options = local.extended_error.map_or(Options::new(), Options::error);
                self.answer_own(now, client, query, &message, &options, net);
            }
        }
        self.scratch = message;
        is_answered
    }
}
