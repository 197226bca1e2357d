//! Which upstreams are asked for a name: those of the longest zone that it is in.
//!
//! Upstreams are numbered through: a zone has the numbers from its first on, so that what a socket
//! needs to know of an upstream is one number, and what a choice needs is which of its zone it is.
//! An upstream is a server, or a backend of this process, which is chosen, found slow or dead, and
//! given up as a server is.
//!
//! Cost: a walk over the labels of a name with a look into a hash table each; one comparison where
//! only the root is forwarded.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::choice::{UPSTREAMS_MAX, Upstreams};

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// A server at an address, by packets and by TCP.
    Server(SocketAddr),
    /// Threads of this process; see [`crate::backend`].
    Backend(Answers),
}

/// How a backend is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers {
    /// Which of the backends, in their order in [`crate::server::Options`].
    pub number: usize,
    /// How long it is waited for before another is asked, milliseconds: other than a server's, its
    /// wait does not follow its round trips, since whom it asks in turn is not known here.
    pub wait_ms: u32,
    /// It validates, or says what one does that can be believed: its AD counts, whatever is said of
    /// servers.
    pub is_believed: bool,
}

impl From<SocketAddr> for Upstream {
    fn from(address: SocketAddr) -> Upstream {
        Upstream::Server(address)
    }
}

/// A zone and whom to ask for what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// The zone's name in wire form; any case.
    pub zone: Vec<u8>,
    /// Its upstreams.
    pub upstreams: Vec<Upstream>,
}

/// Why zones cannot be forwarded as was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForwardError {
    /// The zone, by its place, has none or too many.
    Upstreams(usize),
    /// The zone, by its place, was named before.
    Twice(usize),
}

/// One zone.
#[derive(Debug)]
struct Zone {
    first: usize,
    choice: Upstreams,
}

/// Zones and their upstreams, with what one core knows of their health.
#[derive(Debug)]
pub struct Zones {
    by_name: HashMap<Box<[u8]>, usize>,
    /// The root is forwarded, and nothing else is.
    is_root_only: bool,
    zones: Vec<Zone>,
    /// Each upstream and its zone.
    upstreams: Vec<(Upstream, usize)>,
}

impl Zones {
    /// These zones; names outside of them all are nobody's.
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

    /// The zone that a name, in wire form and lower case, is forwarded with.
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

    /// Who of a zone is asked, and what is known of them; places are theirs in the zone.
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

    /// How many upstreams a zone has.
    pub fn count(&self, zone: usize) -> usize {
        self.zones.get(zone + 1).map_or(self.upstreams.len(), |next| next.first)
            - self.zones[zone].first
    }

    /// All upstreams, by number.
    pub fn upstreams(&self) -> impl ExactSizeIterator<Item = Upstream> + '_ {
        self.upstreams.iter().map(|&(upstream, _)| upstream)
    }

    /// How an upstream is asked that is a backend.
    pub fn answers(&self, number: usize) -> Option<Answers> {
        match self.upstreams.get(number) {
            Some((Upstream::Backend(answers), _)) => Some(*answers),
            _ => None,
        }
    }

    /// True where an upstream is to be asked with EDNS at `now_ms`.
    pub fn has_edns(&self, number: usize, now_ms: u64) -> bool {
        let (zone, place) = self.place(number);
        self.zones[zone].choice.has_edns(place, now_ms)
    }

    /// Smoothed round trip of an upstream, microseconds, and whether it is up.
    pub fn health(&self, number: usize) -> (Option<u32>, bool) {
        let (zone, place) = self.place(number);
        let choice = &self.zones[zone].choice;
        (choice.round_trip_us(place), choice.is_up(place))
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

    /// A name goes with the longest zone that it is in, whole labels counting.
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

    /// Everything is in the root; a zone needs upstreams, and one entry.
    #[test]
    fn root_and_errors() {
        let root = forward(b"\0", &[53]);
        let zones = Zones::new(std::slice::from_ref(&root)).unwrap();
        assert_eq!((zones.find(b"\0"), zones.find(b"\x01x\0")), (Some(0), Some(0)));
        assert_eq!(Zones::new(&[root.clone(), root]).unwrap_err(), ForwardError::Twice(1));
        assert_eq!(Zones::new(&[forward(b"\0", &[])]).unwrap_err(), ForwardError::Upstreams(0));
    }
}
