//! Forwarded zones: the upstreams of a name are those of the longest zone that contains it.
//!
//! Upstreams have numbers, and a zone has consecutive ones. So a socket needs only a number, and a
//! choice only the place in the zone. An upstream is a server, or a backend of this process, to
//! which the same rules of choice and failure apply.
//!
//! Cost: a walk over the labels of a name with a lookup in a hash table for each. If only the root
//! is forwarded, it is one comparison.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::choice::{Measured, UPSTREAMS_MAX, Upstreams};

/// An upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// A server at an address, over UDP and TCP.
    Server(SocketAddr),
    /// Threads of this process; see [`crate::backend`].
    Backend(Answers),
}

/// Properties of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    /// Its place in [`crate::server::Options`].
    pub number: usize,
    /// How long a core waits before it queries another upstream, milliseconds. Unlike that of a
    /// server, this wait does not follow round trips, since they depend on other servers.
    pub wait_ms: u32,
    /// Its AD is trusted, regardless of the setting for servers. It validates, or forwards to a
    /// server that does.
    pub is_believed: bool,
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Upstream {
        Upstream::Server(address)
    }
}

/// A zone and its upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// The zone's name in wire form; any case.
    pub zone: Vec<u8>,
    /// Its upstreams.
    pub upstreams: Vec<Upstream>,
}

/// Why zones cannot be forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForwardError {
    /// The zone at this place has no upstreams, or too many.
    Upstreams(usize),
    /// The zone at this place is a duplicate.
    Twice(usize),
}

/// One zone.
#[derive(Debug)]
struct Zone {
    first: usize,
    choice: Upstreams,
}

/// Zones and their upstreams, with their health as one core sees it.
#[derive(Debug)]
pub struct Zones {
    by_name: HashMap<Box<[u8]>, usize>,
    /// Only the root is forwarded.
    is_root_only: bool,
    zones: Vec<Zone>,
    /// Each upstream and its zone.
    upstreams: Vec<(Upstream, usize)>,
}

impl Zones {
    /// The given zones; a name outside of them has no upstream.
    pub fn new(forwards: &[Forward]) -> Result<Zones, ForwardError> {
        let mut made = Zones {
            by_name: HashMap::new(),
            is_root_only: matches!(forwards, [Forward { zone, .. }] if zone == &[0]),
            zones: Vec::new(),
            upstreams: Vec::new(),
        };
        for (at, forward) in forwards.iter().enumerate() {
            let count = forward.upstreams.len();
            if !(1..=UPSTREAMS_MAX).contains(&count) {
                return Err(ForwardError::Upstreams(at));
            }
            let name = forward.zone.to_ascii_lowercase().into_boxed_slice();
            if made.by_name.insert(name, at).is_some() {
                return Err(ForwardError::Twice(at));
            }
            let first = made.upstreams.len();
            made.zones.push(Zone { first, choice: Upstreams::new(count) });
            made.upstreams.extend(forward.upstreams.iter().map(|&upstream| (upstream, at)));
        }
        Ok(made)
    }

    /// The zone that forwards a name, given in wire form and lower case.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let mut rest = name;
        if self.is_root_only {
            return Some(0);
        }
        loop {
            if let Some(&zone) = self.by_name.get(rest) {
                return Some(zone);
            }
            let (&length, _) = rest.split_first()?;
            rest = rest.get(1 + usize::from(length)..)?;
        }
    }

    /// The choice among a zone's upstreams, by their places in the zone.
    pub fn choice(&mut self, zone: usize) -> &mut Upstreams {
        &mut self.zones[zone].choice
    }

    /// The number of an upstream from its place in a zone.
    pub fn number(&self, zone: usize, place: usize) -> usize {
        self.zones[zone].first + place
    }

    /// Zone and place of an upstream.
    pub fn place(&self, number: usize) -> (usize, usize) {
        let zone = self.upstreams[number].1;
        (zone, number - self.zones[zone].first)
    }

    /// The number of upstreams in a zone.
    pub fn count(&self, zone: usize) -> usize {
        self.zones.get(zone + 1).map_or(self.upstreams.len(), |next| next.first)
            - self.zones[zone].first
    }

    /// All upstreams, by number.
    pub fn upstreams(&self) -> impl ExactSizeIterator<Item = Upstream> + '_ {
        self.upstreams.iter().map(|&(upstream, _)| upstream)
    }

    /// The properties of a backend; `None` for a server.
    pub fn answers(&self, number: usize) -> Option<Answers> {
        match self.upstreams.get(number) {
            Some((Upstream::Backend(answers), _)) => Some(*answers),
            _ => None,
        }
    }

    /// True if an upstream is queried with EDNS at `now_ms`.
    pub fn has_edns(&self, number: usize, now_ms: u64) -> bool {
        let (zone, place) = self.place(number);
        self.zones[zone].choice.has_edns(place, now_ms)
    }

    /// What is known of an upstream.
    pub fn health(&self, number: usize) -> Measured {
        let (zone, place) = self.place(number);
        self.zones[zone].choice.measured(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forward(zone: &[u8], ports: &[u16]) -> Forward {
        let server = |&port| Upstream::Server(([192, 0, 2, 1], port).into());
        let upstreams = ports.iter().map(server).collect();
        Forward { zone: zone.to_vec(), upstreams }
    }

    /// A name belongs to the longest zone that contains it, by whole labels.
    #[test]
    fn longest_zone() {
        let zones = Zones::new(&[
            forward(b"\x07example\0", &[1, 2]),
            forward(b"\x01A\x07Example\0", &[3]),
            forward(b"\x04corp\0", &[4]),
        ])
        .unwrap();
        for (name, zone) in [
            (&b"\x07example\0"[..], Some(0)),
            (b"\x01b\x07example\0", Some(0)),
            (b"\x01a\x07example\0", Some(1)),
            (b"\x01b\x01a\x07example\0", Some(1)),
            (b"\x02xa\x07example\0", Some(0)),
            (b"\x04corp\0", Some(2)),
            (b"\x05xcorp\0", None),
            (b"\0", None),
        ] {
            assert_eq!(zones.find(name), zone, "{name:?}");
        }
        let ports = zones.upstreams().map(|each| match each {
            Upstream::Server(address) => address.port(),
            Upstream::Backend(_) => 0,
        });
        assert_eq!(ports.collect::<Vec<_>>(), [1, 2, 3, 4]);
        for number in 0..4 {
            let (zone, place) = zones.place(number);
            assert_eq!(zones.number(zone, place), number);
        }
        assert_eq!([zones.count(0), zones.count(1), zones.count(2)], [2, 1, 1]);
    }

    /// The root contains every name. A zone needs upstreams, and may be given only once.
    #[test]
    fn root_and_errors() {
        let root = forward(b"\0", &[53]);
        let zones = Zones::new(std::slice::from_ref(&root)).unwrap();
        assert_eq!((zones.find(b"\0"), zones.find(b"\x01x\0")), (Some(0), Some(0)));
        assert_eq!(Zones::new(&[root.clone(), root]).unwrap_err(), ForwardError::Twice(1));
        assert_eq!(Zones::new(&[forward(b"\0", &[])]).unwrap_err(), ForwardError::Upstreams(0));
    }
}
