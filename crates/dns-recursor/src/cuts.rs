//! Where zones begin, and who serves them: what referrals said.
//!
//! A zone is known by what its parent says of it, for as long as that holds. What a zone says of its own servers is kept
//! beside that for as long and no longer, and only heeded when all that the parent named have failed. So a domain that was
//! taken from its owner is gone when the parent's word has run out, whatever its servers say (the "ghost domains" of Jiang
//! et al., NDSS 2012). Nor does a referral hold for longer than the one that led to the server
//! which gave it: otherwise the servers of a domain could delegate names below it for a day, and those names would resolve
//! for a day after the domain was deleted ("phoenix domains", Li et al., NDSS 2023).
//!
//! Beside zones those names are known at which none begins although one could: who asks name by name on the way down
//! (RFC 9156) need not ask for them again.

use std::net::IpAddr;

use crate::names::and_above;
use crate::recent::Recent;

/// A referral holds at least and at most so long, seconds.
pub const REFERRAL_S: (u32, u32) = (5, 86_400);

/// So long no zone begins at a name, milliseconds.
const NO_CUT_MS: u64 = 900_000;

/// Servers of a zone that are remembered to know nothing of it.
const LAME_MAX: usize = 16;

/// A server of a zone, and the addresses that came with the referral.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameserver {
    /// Its name, in wire form and lower case.
    pub name: Box<[u8]>,
    /// Its addresses, where the referral had any.
    pub addresses: Vec<IpAddr>,
}

/// Who serves a zone.
#[derive(Debug)]
pub struct Cut {
    until_ms: u64,
    /// They do, says the parent.
    pub servers: Vec<Nameserver>,
    /// They do, says the zone; empty as long as it was not heard.
    pub own_servers: Vec<Nameserver>,
    /// They said that they do not.
    pub lame: Vec<IpAddr>,
}

impl Cut {
    /// Over at once.
    fn of(servers: Vec<Nameserver>) -> Cut {
        Cut { until_ms: 0, servers, own_servers: Vec::new(), lame: Vec::new() }
    }

    /// The servers that the parent named, and where those have failed the ones that the zone itself names too.
    pub fn servers(&self, has_failed: bool) -> impl Iterator<Item = &Nameserver> {
        let own = if has_failed { self.own_servers.as_slice() } else { &[] };
        self.servers.iter().chain(own)
    }

    /// Notes that a server knows nothing of the zone.
    pub fn mark_lame(&mut self, server: IpAddr) {
        if self.lame.len() < LAME_MAX && !self.lame.contains(&server) {
            self.lame.push(server);
        }
    }
}

#[derive(Debug)]
enum Known {
    Cut(Cut),
    /// No zone begins there, until then.
    NoCut(u64),
}

/// What is known on the way to a name: offsets into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosestCut {
    /// Where the name of the deepest known zone begins that it is in.
    pub zone_at: usize,
    /// Where the deepest name begins at which it is known whether a zone begins.
    pub known_at: usize,
    /// How long the zone is known.
    pub until_ms: u64,
}

/// All that is known.
#[derive(Debug)]
pub struct Cuts {
    by_name: Recent<Box<[u8]>, Known>,
    root: Cut,
}

impl Cuts {
    /// The root's servers, which are never forgotten.
    pub fn new(roots: &[IpAddr], zones_max: usize) -> Cuts {
        let server = Nameserver { name: [0].into(), addresses: roots.to_vec() };
        let root = Cut { until_ms: u64::MAX, ..Cut::of(vec![server]) };
        Cuts { by_name: Recent::new(zones_max), root }
    }

    /// What is known of a name; where `is_above`, of the zone above it (for DS, RFC 4035, section 3.1.4.1).
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

    /// Who serves a zone that [`Cuts::find`] found; the root's servers where it has been forgotten.
    pub fn get_or_root(&mut self, zone: &[u8]) -> &mut Cut {
        match self.by_name.get(zone) {
            Some(Known::Cut(cut)) => cut,
            _ => &mut self.root,
        }
    }

    /// Who serves a zone, where it has not been forgotten since [`Cuts::find`] found it.
    pub fn get(&mut self, zone: &[u8]) -> Option<&mut Cut> {
        match self.by_name.get(zone) {
            Some(Known::Cut(cut)) => Some(cut),
            _ if zone == [0] => Some(&mut self.root),
            _ => None,
        }
    }

    /// A referral was given, by a server of a zone that is known until `parent_until_ms`: it holds for no longer.
    /// Returns until when.
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

    /// No zone begins at a name.
    pub fn learn_no_cut(&mut self, name: &[u8], now_ms: u64) {
        self.by_name.insert(name.into(), Known::NoCut(now_ms + NO_CUT_MS));
    }

    /// How many zones, and names where none begins.
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

    /// The deepest zone counts, names without one are passed over but known, and both run out.
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

    /// A referral holds neither for no time nor for weeks, nor beyond the one above it, and lame servers are forgotten with
    /// it.
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

    /// Lame servers are noted once each, and only so many.
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
