//! Access rules and views: the longest prefix that contains a client's address decides, for access
//! and for the view separately.
//!
//! Two prefixes either nest or are disjoint. So they are unfolded once into steps: sorted
//! addresses, each with the outcome from there on. Access and view are unfolded together, so a
//! client costs one binary search of a small array.
//!
//! Cost: 5 to 6 comparisons with the default list; building is a sort.

use std::net::IpAddr;

use larder_wire::prefix::{Prefix, number};

/// Prefixes of one kind, at most.
pub const PREFIXES_MAX: usize = 1 << 16;

/// Whether a client is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is served, in the view with this number; 0 is the view of clients in no other.
    Allowed {
        /// Number of the view.
        view: u16,
    },
    /// It gets REFUSED.
    Refused,
    /// It gets no response.
    Dropped,
}

/// The action of an access rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Serve.
    Allow,
    /// Respond with REFUSED.
    Refuse,
    /// Do not respond.
    Drop,
}

/// Networks that are served without a list: loopback, private (RFC 1918), shared (RFC 6598),
/// link-local and unique local ones. A resolver open to all is abused to flood others.
pub const ACCESS_DEFAULT: [&str; 9] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "100.64.0.0/10",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
];

/// The unfolded lists: addresses, each with the outcome from there on.
#[derive(Debug, Clone)]
pub struct Admissions {
    v4: Vec<(u128, Admission)>,
    v6: Vec<(u128, Admission)>,
}

impl Admissions {
    /// Unfolds both lists. Of equal prefixes the last one counts.
    pub fn new(access: &[(Prefix, Access)], views: &[(Prefix, u16)]) -> Admissions {
        let family = |is_v6| {
            merge(
                &unfold(access, is_v6, Access::Refuse),
                &unfold(views, is_v6, 0),
                |&access, &view| match access {
                    Access::Allow => Admission::Allowed { view },
                    Access::Refuse => Admission::Refused,
                    Access::Drop => Admission::Dropped,
                },
            )
        };
        Admissions { v4: family(false), v6: family(true) }
    }

    /// Whether a client is served.
    #[inline]
    pub fn of(&self, client: IpAddr) -> Admission {
        let (is_v6, number, _) = number(client);
        let steps = if is_v6 { &self.v6 } else { &self.v4 };
        let after = steps.partition_point(|&(from, _)| from <= number);
        steps.get(after.wrapping_sub(1)).map_or(Admission::Refused, |&(_, outcome)| outcome)
    }
}

/// Steps of one list: the innermost prefix decides; outside of all prefixes `outside` applies.
fn unfold<T: Copy>(list: &[(Prefix, T)], is_v6: bool, outside: T) -> Vec<(u128, T)> {
    let mut list: Vec<_> = list.iter().filter(|(prefix, _)| prefix.is_v6() == is_v6).collect();
    // Outer ones before inner ones. The sort is stable, so the last of equal ones comes last and is
    // innermost.
    list.sort_by_key(|(prefix, _)| *prefix);
    let mut steps = vec![(0, outside)];
    let mut around: Vec<&(Prefix, T)> = Vec::new();
    for next in list {
        close(&mut around, &mut steps, outside, |around| around.last() < next.0.first());
        steps.push((next.0.first(), next.1));
        around.push(next);
    }
    close(&mut around, &mut steps, outside, |_| true);
    // Of steps at one address the last one counts.
    steps.reverse();
    steps.dedup_by_key(|(from, _)| *from);
    steps.reverse();
    steps
}

/// Ends the innermost prefixes that are over according to `ends`: the ones around them apply again.
fn close<T: Copy>(
    around: &mut Vec<&(Prefix, T)>,
    steps: &mut Vec<(u128, T)>,
    outside: T,
    ends: impl Fn(&Prefix) -> bool,
) {
    while let Some((over, _)) = around.pop_if(|(prefix, _)| ends(prefix)) {
        if let Some(from) = over.last().checked_add(1) {
            steps.push((from, around.last().map_or(outside, |(_, outcome)| *outcome)));
        }
    }
}

/// The steps of two lists together. Both begin at 0.
fn merge<A, B, T: PartialEq>(
    one: &[(u128, A)],
    two: &[(u128, B)],
    both: impl Fn(&A, &B) -> T,
) -> Vec<(u128, T)> {
    let (mut steps, mut at, mut bt) = (Vec::new(), 0, 0);
    while let (Some((_, a)), Some((_, b))) = (one.get(at), two.get(bt)) {
        steps.push((one[at].0.max(two[bt].0), both(a, b)));
        let (next_a, next_b) = (one.get(at + 1), two.get(bt + 1));
        let a_from = next_a.map_or(u128::MAX, |(from, _)| *from);
        let b_from = next_b.map_or(u128::MAX, |(from, _)| *from);
        at += usize::from(next_a.is_some() && a_from <= b_from || next_b.is_none());
        bt += usize::from(next_b.is_some() && b_from <= a_from || next_a.is_none());
    }
    steps.dedup_by(|next, before| next.1 == before.1);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        Prefix::parse(text).unwrap()
    }

    /// The default list allows local networks, and refuses addresses next to them.
    #[test]
    fn default_list() {
        let list: Vec<_> =
            ACCESS_DEFAULT.iter().map(|text| (prefix(text), Access::Allow)).collect();
        let admissions = Admissions::new(&list, &[]);
        for (client, allowed) in [
            ("127.0.0.1", true),
            ("128.0.0.0", false),
            ("9.255.255.255", false),
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("172.15.255.255", false),
            ("172.31.0.1", true),
            ("192.168.1.1", true),
            ("100.127.0.1", true),
            ("100.128.0.1", false),
            ("255.255.255.255", false),
            ("0.0.0.0", false),
            ("::1", true),
            ("::2", false),
            ("fdff::1", true),
            ("fe00::1", false),
            ("fe80::1", true),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false),
            ("::ffff:10.0.0.1", true),
        ] {
            let admission = admissions.of(client.parse().unwrap());
            assert_eq!(admission == Admission::Allowed { view: 0 }, allowed, "{client}");
        }
    }

    fn any_prefix() -> impl Strategy<Value = Prefix> {
        // Few bits at either end, so that prefixes nest, touch and reach both ends of the address
        // space.
        (any::<bool>(), any::<bool>(), 0_u8..8, 0_u8..5).prop_map(|(is_v6, low, number, bits)| {
            let width = if is_v6 { 128 } else { 32 };
            let bits = if low { width - bits.min(3) } else { bits };
            let number = u128::from(number) << if low { 0 } else { width - 3 };
            let address: IpAddr = match is_v6 {
                true => number.to_be_bytes().into(),
                false => (number as u32).to_be_bytes().into(),
            };
            Prefix::new(address, bits)
        })
    }

    proptest! {
        /// Every client, at and around every edge, has the outcome of a plain search for its
        /// longest prefixes.
        #[test]
        fn as_the_obvious_search(
            access in prop::collection::vec((any_prefix(), 0_u8..3), 0..12),
            views in prop::collection::vec((any_prefix(), 1_u16..4), 0..12),
        ) {
            let actions = [Access::Allow, Access::Refuse, Access::Drop];
            let access: Vec<_> = access.iter().map(|&(p, a)| (p, actions[usize::from(a)])).collect();
            let admissions = Admissions::new(&access, &views);
            let edges = access.iter().map(|(p, _)| *p).chain(views.iter().map(|(p, _)| *p));
            for edge in edges.flat_map(|p| [p.first(), p.last()]).chain([0, u128::MAX]) {
                for number in [edge.wrapping_sub(1), edge, edge.wrapping_add(1)] {
                    for client in [IpAddr::from((number as u32).to_be_bytes()), IpAddr::from(number.to_be_bytes())] {
                        let (is_v6, number, _) = super::number(client);
                        let covers = |p: &Prefix| p.is_v6() == is_v6 && (p.first()..=p.last()).contains(&number);
                        // The last of the longest.
                        let action = access.iter().filter(|(p, _)| covers(p)).max_by_key(|(p, _)| p.bits());
                        let view = views.iter().filter(|(p, _)| covers(p)).max_by_key(|(p, _)| p.bits());
                        let expected = match action.map_or(Access::Refuse, |(_, action)| *action) {
                            Access::Allow => Admission::Allowed { view: view.map_or(0, |(_, view)| *view) },
                            Access::Refuse => Admission::Refused,
                            Access::Drop => Admission::Dropped,
                        };
                        prop_assert_eq!(admissions.of(client), expected, "{}", client);
                    }
                }
            }
        }
    }
}
