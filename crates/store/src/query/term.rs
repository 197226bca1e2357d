//! The terms of a query: what one of them says about a flow, and the forms of a single word.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use larder_wire::Addr;
use larder_wire::community_id;
use larder_wire::flow_key::protocol;
use larder_wire::naming::{NameFlags, NameSource};

use super::pattern::{Pattern, pattern};
use crate::FlowKey;
use crate::flow_event::Choice;

/// Protocols whose flows have ports.
pub(crate) const WITH_PORTS: [u8; 5] = [protocol::TCP, protocol::UDP, 33, 132, 136];

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// The flow has a name like this.
    Name(Pattern),
    /// An address from the first to the last, in any header; see [`ranges`].
    Net(Addr, Addr),
    /// Two ends, in either order, and a protocol.
    Flow([End; 2], Option<u8>),
    /// A Community ID (seed 0).
    Community(String),
    /// A port of either end, from the first to the last.
    Port(u16, u16),
    /// The protocol above IP.
    Protocol(u8),
    /// IPv4, or IPv6.
    IsV4(bool),
    /// A VLAN tag with this ID, outermost or innermost; `None`: any tag.
    Vlan(Option<u16>),
    /// The identifier of an overlay network.
    Vni(u32),
    /// From this time on, ns since 1970.
    After(i64),
    /// Before this time.
    Before(i64),
    /// The confidence of a name, percent, from the first to the last.
    Confidence(u8, u8),
    /// A name has this flag.
    Flag(NameFlags),
    /// A name came from this source.
    Source(NameSource),
}

/// An end of a flow; an absent part matches anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    pub addr: Option<Addr>,
    pub port: Option<u16>,
}

impl Term {
    /// True if events of the flows decide it.
    pub fn is_of_events(&self) -> bool {
        matches!(self, Term::Name(_)) || self.is_of_choices()
    }

    /// True if it is about the choice of names.
    pub fn is_of_choices(&self) -> bool {
        matches!(self, Term::Confidence(..) | Term::Flag(_) | Term::Source(_))
    }

    /// True if the choice meets it.
    pub fn matches_choice(&self, choice: &Choice) -> bool {
        match self {
            Term::Confidence(least, greatest) => (least..=greatest).contains(&&choice.confidence),
            Term::Flag(flag) => choice.flags.has(*flag),
            Term::Source(source) => choice.source == *source,
            _ => false,
        }
    }

    /// True if packets of flows with this key meet it. False for what a key does not decide: names,
    /// their choice, and times.
    pub fn matches_key(&self, key: &FlowKey) -> bool {
        match self {
            Term::Name(_) | Term::Confidence(..) | Term::Flag(_) | Term::Source(_) => false,
            Term::After(_) | Term::Before(_) => false,
            Term::Net(first, last) => {
                is_in(*first, *last, key.low) || is_in(*first, *last, key.high)
            }
            Term::Flow([one, other], protocol) => {
                let low = |end: &End| end.is(key.low, key.low_port);
                let high = |end: &End| end.is(key.high, key.high_port);
                protocol.is_none_or(|protocol| protocol == key.protocol)
                    && (low(one) && high(other) || low(other) && high(one))
            }
            // ICMP messages without a response have another ID for each direction.
            Term::Community(id) => {
                let FlowKey { low, high, low_port, high_port, protocol, .. } = *key;
                *id == community_id::v1(low, high, low_port, high_port, protocol, 0)
                    || *id == community_id::v1(high, low, high_port, low_port, protocol, 0)
            }
            Term::Port(first, last) => {
                let ports = first..=last;
                WITH_PORTS.contains(&key.protocol)
                    && (ports.contains(&&key.low_port) || ports.contains(&&key.high_port))
            }
            Term::Protocol(wanted) => key.protocol == *wanted,
            Term::IsV4(is_v4) => key.low.is_v4() == *is_v4,
            Term::Vlan(None) => key.scope.vlan().is_some(),
            Term::Vlan(wanted) => [key.scope.vlan(), key.scope.inner_vlan()].contains(wanted),
            Term::Vni(vni) => key.scope.vni() == Some(*vni),
        }
    }
}

impl End {
    fn is(&self, addr: Addr, port: u16) -> bool {
        self.addr.is_none_or(|wanted| wanted == addr)
            && self.port.is_none_or(|wanted| wanted == port)
    }
}

/// A word that states its kind by its form; else it is a name. The error says what is wrong.
pub(super) fn term(word: &str) -> Result<Term, &'static str> {
    if word.is_empty() {
        return Err("an empty word");
    }
    if is_community_id(word) {
        return Ok(Term::Community(word.to_owned()));
    }
    if let Some(addr) = address(word) {
        return Ok(Term::Net(addr, addr));
    }
    if let Some((addr, bits)) = word.split_once('/')
        && let (Some(addr), Ok(bits)) = (address(addr), bits.parse())
    {
        let wrong = "a prefix has up to 32 bits, in IPv6 up to 128";
        return net(addr, bits).map(|(first, last)| Term::Net(first, last)).ok_or(wrong);
    }
    match flow(word) {
        Some((ends, protocol)) => Ok(Term::Flow(ends, protocol?)),
        None => name(word),
    }
}

/// A name with stars, whatever else the word could be.
pub(super) fn name(word: &str) -> Result<Term, &'static str> {
    let wrong = "a byte is written \\xHH, with two hexadecimal digits";
    pattern(word).map(Term::Name).ok_or(wrong)
}

pub(super) fn is_community_id(word: &str) -> bool {
    word.len() == 30 && word.starts_with("1:") && word.ends_with('=')
}

pub(super) fn address(text: &str) -> Option<Addr> {
    text.parse::<IpAddr>().ok().map(Addr::from)
}

pub(super) fn net(addr: Addr, bits: u32) -> Option<(Addr, Addr)> {
    let bits = if addr.is_v4() { bits.checked_add(96)? } else { bits };
    let mask = match bits {
        0 => 0,
        1..=128 => u128::MAX << (128 - bits),
        _ => return None,
    };
    let value = u128::from_be_bytes(addr.0);
    Some((Addr((value & mask).to_be_bytes()), Addr((value | !mask).to_be_bytes())))
}

/// The addresses of IPv4, as all addresses are stored.
const V4: (Addr, Addr) = (Addr::v4([0; 4]), Addr::v4([0xff; 4]));

/// The addresses of a network. One of IPv6 has none of IPv4, although `::/0` spans them as they are stored: a
/// person who writes it means packets of IPv6, as in tcpdump and Wireshark.
pub(super) fn ranges(first: Addr, last: Addr) -> impl Iterator<Item = RangeInclusive<Addr>> {
    let beyond = |addr: Addr, by: i8| {
        let number = u128::from_be_bytes(addr.0);
        // Neither end of IPv4 is an end of all addresses.
        Addr(number.wrapping_add_signed(by.into()).to_be_bytes())
    };
    let parts = match !first.is_v4() && first < V4.0 && last >= V4.1 {
        true => [first..=beyond(V4.0, -1), beyond(V4.1, 1)..=last],
        // The second part is empty.
        false => [first..=last, V4.1..=V4.0],
    };
    parts.into_iter().filter(|range| !range.is_empty())
}

/// True if a network has this address.
pub(super) fn is_in(first: Addr, last: Addr, addr: Addr) -> bool {
    (first..=last).contains(&addr) && first.is_v4() == addr.is_v4()
}

type Protocol = Result<Option<u8>, &'static str>;

/// A flow; `None`: the word is not a flow.
pub(super) fn flow(word: &str) -> Option<([End; 2], Protocol)> {
    let (ends, protocol) = match word.rsplit_once('/') {
        Some((ends, protocol)) => (ends, protocol_of(protocol)),
        None => (word, Ok(None)),
    };
    let ends = match ends.split_once('-') {
        Some((one, other)) => [end(one)?, end(other)?],
        None => [end(ends)?, End::default()],
    };
    (ends != [End::default(); 2]).then_some((ends, protocol))
}

fn protocol_of(text: &str) -> Protocol {
    let wrong = "a flow ends with /tcp, /udp, /icmp, /icmp6, /sctp or a number";
    protocol_number(text).map(Some).ok_or(wrong)
}

/// A protocol by its name or number.
pub(super) fn protocol_number(text: &str) -> Option<u8> {
    match text {
        "tcp" => Some(protocol::TCP),
        "udp" => Some(protocol::UDP),
        "icmp" => Some(protocol::ICMP),
        "icmp6" | "icmpv6" => Some(protocol::ICMP6),
        "sctp" => Some(132),
        number => number.parse().ok(),
    }
}

fn end(text: &str) -> Option<End> {
    if text == "*" {
        return Some(End::default());
    }
    if let Some(addr) = address(text) {
        return Some(End { addr: Some(addr), port: None });
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => {
            let colon = text.rfind(':')?;
            (&text[..colon], &text[colon..])
        }
    };
    let addr = match host {
        "*" => None,
        host => Some(address(host)?),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => Some(port.parse().ok()?),
        None if port.is_empty() => None,
        None => return None,
    };
    Some(End { addr, port })
}
