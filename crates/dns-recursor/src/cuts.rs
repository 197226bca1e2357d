//! The cache of zone cuts: where zones begin and which servers they have, from referrals.
//!
//! A zone cut is cached for as long as the parent's delegation is valid. The servers that a zone itself
//! names are stored with it and expire with it. They are used only after all servers of the delegation
//! have failed. So a domain that the parent has removed disappears when the delegation expires, even if
//! its servers still respond ("ghost domains", Jiang et al., NDSS 2012).
//!
//! A referral also expires no later than the delegation that led to its server. Otherwise the servers of
//! a domain could delegate names below it for a day. Those names would resolve for a day after the domain
//! was deleted ("phoenix domains", Li et al., NDSS 2023).
//!
//! The cache also has names without a zone cut, so that QNAME minimization (RFC 9156) need not query
//! them again.

use std::net::IpAddr;

use crate::names::and_above;
use crate::recent::Recent;

/// The minimum and maximum lifetime of a referral, seconds.
pub const REFERRAL_S: (u32, u32) = (5, 86_400);

/// The lifetime of the fact that a name has no zone cut, milliseconds.
const NO_CUT_MS: u64 = 900_000;

/// The most lame servers that are remembered for a zone.
const LAME_MAX: usize = 16;

/// A name server of a zone, and the addresses that came with the referral.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameserver {
    /// The name, in wire form and lower case.
    pub name: Box<[u8]>,
    /// The addresses, if the referral had any.
    pub addresses: Vec<IpAddr>,
}

/// A zone cut and its servers.
#[derive(Debug)]
pub struct Cut {
    until_ms: u64,
    /// The servers that the parent names.
    pub servers: Vec<Nameserver>,
    /// The servers that the zone itself names; empty until one of them has responded.
    pub own_servers: Vec<Nameserver>,
    /// Servers that do not serve the zone.
    pub lame: Vec<IpAddr>,
}

impl Cut {
    /// An expired zone cut.
    fn of(servers: Vec<Nameserver>) -> Cut {
        Cut { until_ms: 0, servers, own_servers: Vec::new(), lame: Vec::new() }
    }

    /// The servers that the parent names. If those have failed, also the ones that the zone itself
    /// names.
    pub fn servers(&self, has_failed: bool) -> impl Iterator<Item = &Nameserver> {
        let own = if has_failed { self.own_servers.as_slice() } else { &[] };
        self.servers.iter().chain(own)
    }

    /// Records that a server does not serve the zone.
    pub fn mark_lame(&mut self, server: IpAddr) {
        if self.lame.len() < LAME_MAX && !self.lame.contains(&server) {
            self.lame.push(server);
        }
    }
}

#[derive(Debug)]
enum Known {
    Cut(Cut),
    /// No zone cut until this time.
    NoCut(u64),
}

/// The known part of a name, as offsets into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosestCut {
    /// Offset of the deepest known zone that the name is in.
    pub zone_at: usize,
    /// Offset of the deepest name known to have a zone cut or none.
    pub known_at: usize,
    /// When the zone cut expires.
    pub until_ms: u64,
}

/// The cache.
#[derive(Debug)]
pub struct Cuts {
    by_name: Recent<Box<[u8]>, Known>,
    root: Cut,
}

impl Cuts {
    /// A cache with only the root servers, which never expire.
    pub fn new(roots: &[IpAddr], zones_max: usize) -> Cuts {
        let server = Nameserver { name: [0].into(), addresses: roots.to_vec() };
        let root = Cut { until_ms: u64::MAX, ..Cut::of(vec![server]) };
        Cuts { by_name: Recent::new(zones_max), root }
    }

    /// The known part of a name. With `is_above`, only zones above it count (for DS, RFC 4035,
    /// section 3.1.4.1).
    pub fn find(&mut self, name: &[u8], is_above: bool, now_ms: u64) -> ClosestCut {
        let root_at = name.len().saturating_sub(1);
        let mut known_at = None;
        for above in and_above(name).skip(is_above.into()) {
            let at = name.len() - above.len();
            match self.by_name.get(above) {
                Some(Known::Cut(cut)) if cut.until_ms > now_ms => {
                    let until_ms = cut.until_ms;
                    return ClosestCut { zone_at: at, known_at: known_at.unwrap_or(at), until_ms };
                }
                Some(Known::NoCut(until_ms)) if *until_ms > now_ms => {
                    known_at = known_at.or(Some(at));
                }
                _ => {}
            }
        }
        ClosestCut { zone_at: root_at, known_at: known_at.unwrap_or(root_at), until_ms: u64::MAX }
    }

    /// A zone that [`Cuts::find`] found, or the root if it was evicted since.
    pub fn get_or_root(&mut self, zone: &[u8]) -> &mut Cut {
        match self.by_name.get(zone) {
            Some(Known::Cut(cut)) => cut,
            _ => &mut self.root,
        }
    }

    /// A zone that [`Cuts::find`] found, unless it was evicted since.
    pub fn get(&mut self, zone: &[u8]) -> Option<&mut Cut> {
        match self.by_name.get(zone) {
            Some(Known::Cut(cut)) => Some(cut),
            _ if zone == [0] => Some(&mut self.root),
            _ => None,
        }
    }

    /// Caches a referral by a server of a zone that expires at `parent_until_ms`; the referral
    /// expires no later. Returns when it expires.
    pub fn learn(
        &mut self,
        zone: &[u8],
        servers: Vec<Nameserver>,
        ttl_s: u32,
        parent_until_ms: u64,
        now_ms: u64,
    ) -> u64 {
        let (least, most) = REFERRAL_S;
        let until_ms = now_ms + u64::from(ttl_s.clamp(least, most)) * 1_000;
        let until_ms = until_ms.min(parent_until_ms);
        self.by_name.insert(zone.into(), Known::Cut(Cut { until_ms, ..Cut::of(servers) }));
        until_ms
    }

    /// Caches that a name has no zone cut.
    pub fn learn_no_cut(&mut self, name: &[u8], now_ms: u64) {
        self.by_name.insert(name.into(), Known::NoCut(now_ms + NO_CUT_MS));
    }

    /// The number of zone cuts, and of names without one.
    pub fn count(&self) -> usize {
        self.by_name.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u32 = 86_400;

    fn closest(cuts: &mut Cuts, name: &[u8], is_above: bool, now_ms: u64) -> (usize, usize) {
        let ClosestCut { zone_at, known_at, .. } = cuts.find(name, is_above, now_ms);
        (zone_at, known_at)
    }

    /// The deepest zone counts, names without a zone cut are skipped but known, and both expire.
    #[test]
    fn deepest_known_zone() {
        let mut cuts = Cuts::new(&[[192, 0, 2, 1].into()], 100);
        let name = b"\x01a\x01b\x07example\x03com\0";
        assert_eq!(closest(&mut cuts, name, false, 0), (16, 16));
        assert_eq!(cuts.count(), 0, "the root is not counted");
        cuts.learn(b"\x03com\0", Vec::new(), 1_000, u64::MAX, 0);
        cuts.learn(b"\x07example\x03com\0", Vec::new(), 600, u64::MAX, 0);
        cuts.learn_no_cut(b"\x01b\x07example\x03com\0", 0);
        assert_eq!(cuts.count(), 3);
        assert_eq!(closest(&mut cuts, name, false, 0), (4, 2));
        assert_eq!(closest(&mut cuts, &name[4..], false, 0), (0, 0));
        assert_eq!(closest(&mut cuts, &name[4..], true, 0), (8, 8), "for DS");
        assert_eq!(closest(&mut cuts, name, false, 600_000), (12, 2));
        assert_eq!(closest(&mut cuts, name, false, NO_CUT_MS - 1), (12, 2));
        assert_eq!(closest(&mut cuts, name, false, NO_CUT_MS), (12, 12), "that runs out too");
        assert_eq!(closest(&mut cuts, b"\0", false, 0), (0, 0));
        assert_eq!(
            cuts.get_or_root(b"\x03org\0").servers[0].addresses,
            [IpAddr::from([192, 0, 2, 1])]
        );
    }

    /// A referral lives at least seconds and at most a day, and no longer than the one above it.
    /// Its lame servers expire with it.
    #[test]
    fn lifetime_of_a_referral() {
        let mut cuts = Cuts::new(&[], 100);
        let cases = [
            (0, u64::MAX, 5_000),
            (DAY_S, u64::MAX, 86_400_000),
            (u32::MAX, u64::MAX, 86_400_000),
            (DAY_S, 60_000, 60_000),
            (0, 1_000, 1_000),
        ];
        for (ttl_s, parent_until_ms, until_ms) in cases {
            let learned_ms = cuts.learn(b"\x03com\0", Vec::new(), ttl_s, parent_until_ms, 0);
            assert_eq!(learned_ms, until_ms, "{ttl_s}");
            assert!(cuts.get_or_root(b"\x03com\0").lame.is_empty());
            cuts.get_or_root(b"\x03com\0").mark_lame([192, 0, 2, 9].into());
            let found = cuts.find(b"\x03com\0", false, until_ms - 1);
            assert_eq!((found.zone_at, found.until_ms), (0, until_ms), "{ttl_s}");
            assert_eq!(closest(&mut cuts, b"\x03com\0", false, until_ms).0, 4, "{ttl_s}");
        }
    }

    /// Each lame server is recorded once, up to a limit.
    #[test]
    fn lame_servers() {
        let mut cuts = Cuts::new(&[], 100);
        let cut = cuts.get_or_root(b"\0");
        let at = |last: u8| IpAddr::from([192, 0, 2, last]);
        for last in [1, 2, 1, 2] {
            cut.mark_lame(at(last));
        }
        assert_eq!(cut.lame, [at(1), at(2)]);
        (0..100).for_each(|last| cut.mark_lame(at(last)));
        assert_eq!(cut.lame.len(), LAME_MAX);
    }
}
