//! Parses addresses, ports and protocols; the qualifiers before them say which one it is.

use super::{Parser, Proto, Qualifiers, Thing};
use crate::filter::tree::{ARP, IPV4, IPV6, RARP, Test};
use crate::filter::words::Kind;
use crate::filter::{FilterError, LinkType, ports};

impl<'a> Parser<'a> {
    /// The address, MAC address or name at this place.
    pub(super) fn thing(&mut self, qualifiers: Qualifiers<'a>) -> Result<Test, FilterError> {
        let (start, kind, word) = (self.at, self.kind(), self.word());
        self.at += 1;
        match kind {
            Some(Kind::V4(addr, bits)) => self.v4(addr, bits, qualifiers, start),
            Some(Kind::V6(addr)) => self.v6(addr, qualifiers, start),
            Some(Kind::Mac(mac)) => self.mac(mac, qualifiers, start),
            _ => self.named(word.trim_start_matches('\\'), qualifiers, start),
        }
    }

    fn v4(
        &mut self,
        addr: u32,
        bits: u32,
        qualifiers: Qualifiers<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        let mask = self.v4_mask(bits, qualifiers, start)?;
        if addr & !mask != 0 {
            let what = "the address has bits outside of its net; write the net's first address";
            return Err(self.fail(start, what.to_owned()));
        }
        self.v4_test(addr, mask, qualifiers, start)
    }

    /// The mask after the address, or the one that follows from the address.
    fn v4_mask(
        &mut self,
        bits: u32,
        qualifiers: Qualifiers<'_>,
        start: usize,
    ) -> Result<u32, FilterError> {
        let ones = |bits: u32| u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let written = if self.take_sign("/") {
            match self.kind() {
                Some(Kind::Number(length @ 0..=32)) => ones(length),
                _ => return Err(self.expected("a prefix length up to 32")),
            }
        } else if self.take("mask") {
            match self.kind() {
                Some(Kind::V4(mask, _)) => mask,
                _ => return Err(self.expected("a netmask, such as 255.255.255.0")),
            }
        } else {
            return Ok(ones(bits));
        };
        self.at += 1;
        match qualifiers.kind {
            Thing::Net => Ok(written),
            _ => Err(self.fail(start, "a net stands here; write \"net\" before it".to_owned())),
        }
    }

    fn v4_test(
        &self,
        addr: u32,
        mask: u32,
        qualifiers: Qualifiers<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        if !matches!(qualifiers.kind, Thing::Default | Thing::Host | Thing::Net) {
            return Err(self.fail(start, "an address stands where a number is expected".to_owned()));
        }
        let within = match qualifiers.proto {
            None => None,
            Some((Proto::Network(ether_type @ (IPV4 | ARP | RARP)), _)) => Some(ether_type),
            Some((_, word)) => {
                let what =
                    format!("{word:?} has no IPv4 addresses; leave it out and join it by \"and\"");
                return Err(self.fail(start, what));
            }
        };
        Ok(Test::V4 { within, side: qualifiers.side, addr, mask })
    }

    fn v6(
        &mut self,
        addr: u128,
        qualifiers: Qualifiers<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        let mut mask = u128::MAX;
        if self.take_sign("/") {
            mask = match self.kind() {
                Some(Kind::Number(length @ 0..=128)) => {
                    u128::MAX.checked_shl(128 - length).unwrap_or(0)
                }
                _ => return Err(self.expected("a prefix length up to 128")),
            };
            self.at += 1;
        }
        if addr & !mask != 0 {
            let what = "the address has bits outside of its net; write the net's first address";
            return Err(self.fail(start, what.to_owned()));
        }
        match qualifiers.kind {
            Thing::Net => {}
            Thing::Default | Thing::Host if mask == u128::MAX => {}
            Thing::Default | Thing::Host => {
                return Err(
                    self.fail(start, "a net stands here; write \"net\" before it".to_owned())
                );
            }
            _ => {
                let what = "an address stands where a number is expected";
                return Err(self.fail(start, what.to_owned()));
            }
        }
        match qualifiers.proto {
            None | Some((Proto::Network(IPV6), _)) => {
                Ok(Test::V6 { side: qualifiers.side, addr, mask })
            }
            Some((_, word)) => {
                let what =
                    format!("{word:?} has no IPv6 addresses; leave it out and join it by \"and\"");
                Err(self.fail(start, what))
            }
        }
    }

    fn mac(
        &self,
        mac: [u8; 6],
        qualifiers: Qualifiers<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        let is_link = matches!(qualifiers.proto, Some((Proto::Link, _)));
        if !is_link || !matches!(qualifiers.kind, Thing::Default | Thing::Host) {
            let what = "a MAC address stands here; write \"ether host\", \"ether src\" or \"ether dst\" before it";
            return Err(self.fail(start, what.to_owned()));
        }
        if self.link != LinkType::Ethernet {
            let what =
                format!("there are no Ethernet addresses in {}; leave this out", self.link.name());
            return Err(self.fail(start, what));
        }
        Ok(Test::Mac { side: qualifiers.side, mac })
    }

    /// A name of a port, a range of ports or a protocol. Names of hosts are not resolved.
    fn named(
        &self,
        name: &str,
        qualifiers: Qualifiers<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        match qualifiers.kind {
            Thing::Default | Thing::Host | Thing::Net => {
                let what = format!(
                    "{name:?} is a name, and larder never asks DNS; write the address (`larder find` takes names)"
                );
                Err(self.fail(start, what))
            }
            Thing::Port => {
                let (port, protocol) = self.port(name, start)?;
                self.ports((port, port), protocol, qualifiers, start)
            }
            Thing::PortRange => {
                let ends = match name.split_once('-') {
                    None => (name, name),
                    Some(ends) => ends,
                };
                let (low, protocol) = self.port(ends.0, start)?;
                let (high, other) = self.port(ends.1, start)?;
                let protocol = if protocol == other { protocol } else { None };
                self.ports((low.min(high), low.max(high)), protocol, qualifiers, start)
            }
            Thing::Protocol => match qualifiers.proto {
                Some((Proto::Link, _)) => match ports::ether_type(name) {
                    Some(ether_type) => Ok(Test::EtherType(ether_type)),
                    None => Err(self.fail(
                        start,
                        format!("{name:?} is no EtherType that is known; write its number"),
                    )),
                },
                _ => match ports::protocol(name) {
                    Some(number) => self.protocol(u32::from(number), qualifiers, start),
                    None => Err(self.fail(
                        start,
                        format!("{name:?} is no protocol that is known; write its number"),
                    )),
                },
            },
        }
    }

    /// A port by number or name, and the protocol of a name that has only one.
    fn port(&self, text: &str, start: usize) -> Result<(u16, Option<u8>), FilterError> {
        if text.bytes().all(|c| c.is_ascii_digit())
            && let Ok(port) = text.parse()
        {
            return Ok((port, None));
        }
        ports::port(text).ok_or_else(|| {
            self.fail(start, format!("{text:?} is no port that is known; write its number"))
        })
    }

    fn ports(
        &self,
        (low, high): (u16, u16),
        of_name: Option<u8>,
        qualifiers: Qualifiers<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        let protocol = match (qualifiers.proto, of_name) {
            (None, protocol) => protocol,
            (Some((Proto::Transport(number @ (6 | 17 | 132), ..), word)), of_name) => {
                if of_name.is_some_and(|own| own != number) {
                    let what = format!("this port is not one of {word:?}; write its number");
                    return Err(self.fail(start, what));
                }
                Some(number)
            }
            (Some((_, word)), _) => {
                let what = format!("{word:?} has no ports; leave it out and join it by \"and\"");
                return Err(self.fail(start, what));
            }
        };
        Ok(Test::Ports { protocol, side: qualifiers.side, low, high })
    }

    /// A number whose kind the qualifiers before it state.
    pub(super) fn numbered(
        &self,
        number: u32,
        qualifiers: Qualifiers<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        match qualifiers.kind {
            Thing::Port | Thing::PortRange => {
                let port = u16::try_from(number).map_err(|_| {
                    self.fail(start, format!("{number} is no port; they end at 65535"))
                })?;
                self.ports((port, port), None, qualifiers, start)
            }
            Thing::Protocol => self.protocol(number, qualifiers, start),
            Thing::Default | Thing::Host => self.v4_test(number, u32::MAX, qualifiers, start),
            Thing::Net => {
                // `net 10` is 10.0.0.0/8, and `net 0` all addresses.
                let bytes = 4 - number.leading_zeros() / 8;
                let shift = 32 - bytes * 8;
                let addr = number.checked_shl(shift).unwrap_or(0);
                let mask = if bytes == 0 { u32::MAX } else { u32::MAX << shift };
                self.v4_test(addr, mask, qualifiers, start)
            }
        }
    }

    fn protocol(
        &self,
        number: u32,
        qualifiers: Qualifiers<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        let (v4, v6) = match qualifiers.proto {
            None => (true, true),
            Some((Proto::Network(IPV4), _)) => (true, false),
            Some((Proto::Network(IPV6), _)) => (false, true),
            Some((Proto::Link, _)) => {
                return match number {
                    0x0600..=0xffff => Ok(Test::EtherType(number)),
                    _ => {
                        let what = format!("{number} is no EtherType; they are 1536 to 65535");
                        Err(self.fail(start, what))
                    }
                };
            }
            Some((_, word)) => {
                let what = format!(
                    "{word:?} carries no protocols by number; write \"ip\", \"ip6\" or \"ether\""
                );
                return Err(self.fail(start, what));
            }
        };
        match u8::try_from(number) {
            Ok(number) => Ok(Test::Protocol { v4, v6, number }),
            Err(_) => Err(self.fail(start, format!("{number} is no protocol; they end at 255"))),
        }
    }
}
