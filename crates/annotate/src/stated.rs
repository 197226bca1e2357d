//! The name that a flow states, compared with the lookups of its destination (rule 6); and flows
//! that no lookup supports.
//!
//! A stated name is the flow's name, whatever lookups gave. A client can lie there, so the name is
//! compared with the lookups, and a name without their support gets a flag.

use larder_wire::{Addr, Name};

use crate::confidence;
use crate::flow::protocol;
use crate::names::{Support, is_address};
use crate::options::NameSources;
use crate::record::{ConflictGrade, End, NameFlags, NameSource, Naming};
use crate::registered::are_of_one_domain;

/// The stated name that counts; an address does not.
pub(crate) fn choose<'n>(
    server_name: Option<&'n Name>,
    is_quic: bool,
    http_host: Option<&'n Name>,
    sources: NameSources,
) -> Option<(&'n Name, NameSource)> {
    let sni = if is_quic { NameSource::QuicSni } else { NameSource::Sni };
    [(server_name, sni), (http_host, NameSource::HttpHost)].into_iter().find_map(
        |(name, source)| {
            let name = name.filter(|name| sources.has(source) && !is_address(name.as_bytes()))?;
            Some((name, source))
        },
    )
}

/// Gives `end`, which has the names that lookups gave (each once), the name that its flow states.
/// `support` is of those names, in their order; `None` if lookups do not count. `are_joined` tells
/// whether an alias chain joins a name to one of others.
pub(crate) fn state(
    end: &mut End,
    (name, source): (&Name, NameSource),
    support: Option<Support>,
    are_joined: impl FnOnce(&Name, &[Name]) -> bool,
) {
    let End { naming, candidates, .. } = end;
    let place = candidates.iter().position(|candidate| candidate == name);
    let is_rival = place.is_none() && support.is_some_and(Support::has_any);
    let conflict_grade = is_rival.then(|| {
        if candidates
            .iter()
            .any(|candidate| are_of_one_domain(candidate.as_bytes(), name.as_bytes()))
        {
            ConflictGrade::SameDomain
        } else if are_joined(name, candidates) {
            ConflictGrade::Chain
        } else {
            ConflictGrade::OtherDomain
        }
    });
    match place {
        Some(at) => candidates[..=at].rotate_right(1),
        None => candidates.insert(0, name.clone()),
    }
    let flags = support
        .map_or(NameFlags::NONE, |support| support.doubt_of(place))
        .with_if(conflict_grade == Some(ConflictGrade::OtherDomain), NameFlags::CONFLICT);
    *naming = Some(Naming {
        name: name.clone(),
        source,
        age_ms: 0,
        flags,
        confidence: confidence::of_stated(flags),
        conflict_grade,
    });
}

/// True for flows that look names up: DNS, also encrypted, with any server; and the protocols of
/// one link, with a responder on it.
pub(crate) fn is_resolver_traffic(protocol: u8, responder: Addr, port: u16) -> bool {
    let is_near = responder.is_local();
    match (protocol, port) {
        (protocol::TCP | protocol::UDP, 53 | 853) | (protocol::UDP, 8853) => true,
        (protocol::UDP, 5353 | 5355 | 137 | 67 | 68 | 546 | 547) => is_near,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DNS with any server is traffic of a resolver; protocols of one link are only on that link,
    /// and only over UDP.
    #[test]
    fn traffic_of_resolvers() {
        let (far, near) = (Addr::v4([8, 8, 8, 8]), Addr::v4([192, 168, 0, 1]));
        for port in [53, 853] {
            for (protocol, addr) in [(protocol::TCP, far), (protocol::UDP, near)] {
                assert!(is_resolver_traffic(protocol, addr, port), "{protocol} {port}");
            }
        }
        assert!(is_resolver_traffic(protocol::UDP, far, 8853));
        assert!(!is_resolver_traffic(protocol::TCP, far, 8853));
        for port in [5353, 5355, 137, 67, 68, 546, 547] {
            assert!(is_resolver_traffic(protocol::UDP, near, port), "{port}");
            assert!(!is_resolver_traffic(protocol::UDP, far, port), "{port}");
            assert!(!is_resolver_traffic(protocol::TCP, near, port), "{port}");
        }
        assert!(!is_resolver_traffic(protocol::UDP, near, 443));
    }
}
