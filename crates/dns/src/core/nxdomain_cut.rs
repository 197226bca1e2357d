//! Names below one that does not exist (RFC 8020).
//!
//! An answer that a name does not exist is held once more under a key of the name alone. A miss
//! looks for the names above, and where one of them does not exist, the answer is made of that.
//! Only without DNSSEC: a proof need not hold for the names below (NSEC3).
//!
//! Whether that is done at all is [`NxdomainCut`]: there are servers that deny names which have
//! others below them.
//!
//! Cost: a look-up for each name above; nothing where it is not done.

use larder::Ttl;
use larder_wire::dns::query::KEY_BYTES_MAX;

use super::Source;
use super::answer::{Options, asked_of};
use super::{Asked, Core, Net, Now, NxdomainCut};
use crate::key::{DENIED, EXTRA_BYTES, STORED_HEAD_BYTES};
use crate::pending::Question;

/// Octets of type and class in a key, before what is added to it.
const TYPE_AND_CLASS_BYTES: usize = 4;

/// AD, in the fourth octet of the message of a stored answer.
const AUTHENTIC_DATA: (usize, u8) = (STORED_HEAD_BYTES + 3, 0x20);

impl Core {
    /// Remembers that the name of a question does not exist; its answer was rendered last.
    pub(super) fn remember_denied(&mut self, now: Now, question: Question, ttl: Ttl) {
        let Some(flight) = self.pending.get(question) else { return };
        let stored = self.renderer.stored();
        let is_validated =
            stored.get(AUTHENTIC_DATA.0).is_some_and(|flags| flags & AUTHENTIC_DATA.1 != 0);
        let is_meant = match self.settings.nxdomain_cut {
            NxdomainCut::Never => false,
            NxdomainCut::Validated => is_validated,
            NxdomainCut::Always => true,
        };
        let mut room = [0; KEY_BYTES_MAX];
        let Some(key) = denied_key(flight.key, 0, &mut room).filter(|_| is_meant) else { return };
        if self.writer.insert(key, stored, ttl, now.seconds()).is_err() {
            self.counts.limit_cache_writes += 1;
        }
    }

    /// Answers a question for a name below one that does not exist; false where none is known.
    pub(super) fn deny_below(
        &mut self,
        now: Now,
        at: usize,
        asked: &Asked<'_>,
        net: &mut impl Net,
    ) -> bool {
        let is_possible = match self.settings.nxdomain_cut {
            NxdomainCut::Never => false,
            // Nothing that an upstream says was validated if it is not believed.
            NxdomainCut::Validated => self.settings.rules.believes_ad,
            NxdomainCut::Always => true,
        };
        if !is_possible || asked.query.dnssec_ok() {
            return false;
        }
        let key = self.keys[at].as_bytes();
        let mut room = [0; KEY_BYTES_MAX];
        let mut label = 0;
        while let Some(&length @ 1..=63) = key.get(label) {
            label += 1 + usize::from(length);
            let Some(above) = denied_key(key, label, &mut room) else { return false };
            let Some(entry) = self.reader.get(above, now.seconds()) else { continue };
            if self.renderer.deny_below(entry.value(), &asked_of(&asked.query)) {
                self.counts.denied_below += 1;
                let (client, query) = (&asked.client, &asked.query);
                net.describe(Source::Hit, None);
                self.answer_rendered(now, client, query, &Options::new(), net);
                net.describe(Source::Local, None);
                return true;
            }
        }
        false
    }
}

/// The key that says of a name that it does not exist: the one at `label` of the key of a question.
/// `None` for the digest of a long key.
fn denied_key<'a>(key: &[u8], label: usize, room: &'a mut [u8; KEY_BYTES_MAX]) -> Option<&'a [u8]> {
    let end = key.len().checked_sub(label)?;
    let made = room.get_mut(..end)?;
    made.copy_from_slice(&key[label..]);
    let extra = end.checked_sub(EXTRA_BYTES)?;
    let fixed = extra.checked_sub(TYPE_AND_CLASS_BYTES)?;
    if made.first().is_none_or(|&length| length > 63) {
        return None;
    }
    made[fixed..fixed + 2].fill(0);
    made[extra] = DENIED;
    Some(made)
}
