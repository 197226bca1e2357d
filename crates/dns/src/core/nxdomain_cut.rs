//! NXDOMAIN cut: names below a name that does not exist (RFC 8020).
//!
//! An NXDOMAIN response is stored a second time, under a key of the name alone. A miss looks up the
//! names above. If one of them does not exist, the core makes the response from that entry. This is
//! done only for clients without DNSSEC, since a proof need not hold for the names below (NSEC3).
//!
//! [`NxdomainCut`] controls whether this is done: some servers deny names that have names below
//! them.
//!
//! Cost: a lookup for each name above; nothing if it is off.

use larder::Ttl;
use larder_wire::dns::query::KEY_BYTES_MAX;

use super::answer::{Options, query_info};
use super::{Core, Net, NxdomainCut, Request, Source};
use crate::key::{DENIED, EXTRA_BYTES, STORED_HEAD_BYTES};
use crate::pending::QueryId;

/// Bytes of type and class in a key, before the extra bytes.
const TYPE_AND_CLASS_BYTES: usize = 4;

/// AD, in the fourth byte of the message of a stored response.
const AUTHENTIC_DATA: (usize, u8) = (STORED_HEAD_BYTES + 3, 0x20);

impl Core {
    /// Caches that the name of a query does not exist; its response was rendered last.
    pub(super) fn cache_nxdomain(&mut self, id: QueryId, ttl: Ttl) {
        let Some(query) = self.pending.get(id) else { return };
        let stored = self.renderer.stored();
        let is_validated =
            stored.get(AUTHENTIC_DATA.0).is_some_and(|flags| flags & AUTHENTIC_DATA.1 != 0);
        let is_meant = match self.settings.nxdomain_cut {
            NxdomainCut::Never => false,
            NxdomainCut::Validated => is_validated,
            NxdomainCut::Always => true,
        };
        let mut room = [0; KEY_BYTES_MAX];
        let Some(key) = nxdomain_key(query.key, 0, &mut room).filter(|_| is_meant) else { return };
        let is_cached = self.writer.insert(key, stored, ttl, self.now.seconds()).is_ok();
        self.counts.limit_cache_writes += u64::from(!is_cached);
    }

    /// Responds to a query for a name below one that is known not to exist; false if there is no
    /// such name.
    pub(super) fn respond_from_nxdomain(
        &mut self,
        at: usize,
        request: &Request<'_>,
        net: &mut impl Net,
    ) -> bool {
        let is_possible = match self.settings.nxdomain_cut {
            NxdomainCut::Never => false,
            // Without trust in the upstream no response counts as validated.
            NxdomainCut::Validated => self.settings.rules.believes_ad,
            NxdomainCut::Always => true,
        };
        if !is_possible || request.query.dnssec_ok() {
            return false;
        }
        let key = self.keys[at].as_bytes();
        let mut room = [0; KEY_BYTES_MAX];
        let mut label = 0;
        while let Some(&length @ 1..=63) = key.get(label) {
            label += 1 + usize::from(length);
            let Some(above) = nxdomain_key(key, label, &mut room) else { return false };
            let Some(entry) = self.reader.get(above, self.now.seconds()) else { continue };
            if self.renderer.deny_below(entry.value(), &query_info(&request.query)) {
                self.counts.denied_below += 1;
                net.describe(Source::Hit, None);
                self.respond_rendered(request, &Options::new(), net);
                net.describe(Source::Local, None);
                return true;
            }
        }
        false
    }
}

/// The key under which it is stored that a name does not exist: the name at `label` of the key of a
/// query. `None` for the digest of a long key.
fn nxdomain_key<'a>(
    key: &[u8],
    label: usize,
    room: &'a mut [u8; KEY_BYTES_MAX],
) -> Option<&'a [u8]> {
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
