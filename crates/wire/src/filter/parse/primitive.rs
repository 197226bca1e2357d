//! Parses tests that begin with a keyword, up to the addresses and ports that must follow it.

use super::{Parser, Part, Proto, Qualifiers, Thing, is_keyword, proto};
use crate::filter::tree::{IPV4, IPV6, Join, Side, Test, Tree, Value};
use crate::filter::words::Kind;
use crate::filter::{FilterError, GUIDE, LinkType, ports};

impl<'a> Parser<'a> {
    /// A test that begins with a keyword.
    pub(super) fn primitive(&mut self) -> Result<Part<'a>, FilterError> {
        let test = match self.keyword() {
            "less" => Test::LenAtMost(self.length()?),
            "greater" => Test::LenAtLeast(self.length()?),
            "vlan" => self.vlan()?,
            _ => return self.qualified(),
        };
        Ok(Part::Tree(Tree::Test(test), None))
    }

    fn length(&mut self) -> Result<u32, FilterError> {
        self.at += 1;
        let Some(Kind::Number(length)) = self.kind() else {
            return Err(self.expected("a length in bytes"));
        };
        self.at += 1;
        Ok(length)
    }

    fn vlan(&mut self) -> Result<Test, FilterError> {
        if self.link != LinkType::Ethernet {
            let what = format!("there are no VLANs in {}; leave this out", self.link.name());
            return Err(self.fail(self.at, what));
        }
        self.at += 1;
        // An ID may be in parentheses; anything else there is not an ID.
        let start = self.at;
        let mut open = 0;
        while self.take_sign("(") {
            open += 1;
        }
        let Some(Kind::Number(id)) = self.kind() else {
            self.at = start;
            return Ok(Test::Vlan(None));
        };
        if id > 0xfff {
            return Err(self.expected("a VLAN ID up to 4095"));
        }
        self.at += 1;
        for _ in 0..open {
            self.close()?;
        }
        Ok(Test::Vlan(Some(id as u16)))
    }

    /// `[PROTOCOL] [src|dst|…] [host|net|port|portrange|proto] THING`, or the protocol alone, or
    /// with `multicast`.
    fn qualified(&mut self) -> Result<Part<'a>, FilterError> {
        let start = self.at;
        let proto = match proto(self.keyword()) {
            Some(proto) => {
                let word = self.word();
                self.at += 1;
                Some((proto, word))
            }
            None => None,
        };
        if matches!(self.keyword(), "broadcast" | "multicast") {
            return self.group_addresses(proto).map(|test| Part::Tree(Tree::Test(test), None));
        }
        let side = self.side();
        let kind = match self.keyword() {
            "host" => Thing::Host,
            "net" => Thing::Net,
            "port" => Thing::Port,
            "portrange" => Thing::PortRange,
            "proto" if side.is_none() => Thing::Protocol,
            _ if side.is_some() => Thing::Default,
            _ => return self.alone(proto, start),
        };
        self.at += usize::from(kind != Thing::Default);
        let qualifiers = Qualifiers { proto, side: side.unwrap_or(Side::Either), kind };
        self.id(qualifiers)
    }

    fn side(&mut self) -> Option<Side> {
        let (first, other) = match self.keyword() {
            "src" => (Side::Source, "dst"),
            "dst" => (Side::Destination, "src"),
            _ => return None,
        };
        self.at += 1;
        let behind = |parser: &Parser<'a>| {
            let next = parser.words.get(parser.at + 1)?;
            Some(next.kind == Kind::Name(false) && &parser.text[next.at..next.end] == other)
        };
        if behind(self) == Some(true)
            && let Some(join) = self.join()
        {
            self.at += 1;
            return Some(if join == Join::Or { Side::Either } else { Side::Both });
        }
        Some(first)
    }

    /// A protocol alone.
    fn alone(&self, proto: Option<(Proto, &str)>, start: usize) -> Result<Part<'a>, FilterError> {
        let test = match proto {
            Some((Proto::Network(ether_type), _)) => Test::EtherType(ether_type),
            Some((Proto::Transport(number, v4, v6), _)) => Test::Protocol { v4, v6, number },
            Some((Proto::Link, word)) => {
                let what =
                    format!("behind {word:?} \"host\", \"src\", \"dst\", \"proto\", \"multicast\"");
                return Err(self.expected(&what));
            }
            None if self.begins_thing() => {
                let what = match self.kind() {
                    Some(Kind::Name(_)) => format!(
                        "{:?} is no word of the language; it is: {}. Names of hosts are never looked up: \
                         write the address behind \"host\"",
                        self.word(),
                        GUIDE
                    ),
                    _ => format!("write \"host\" or \"net\" before {}", self.word()),
                };
                return Err(self.fail(start, what));
            }
            None => {
                return Err(self.expected(
                    "a test: \"host\", \"net\", \"port\", a protocol, a comparison, \"not\" or \"(\"",
                ));
            }
        };
        Ok(Part::Tree(Tree::Test(test), None))
    }

    fn group_addresses(&mut self, proto: Option<(Proto, &str)>) -> Result<Test, FilterError> {
        let (start, broadcast) = (self.at, self.keyword() == "broadcast");
        self.at += 1;
        let needs_ethernet = match proto {
            None | Some((Proto::Link, _)) => true,
            Some((Proto::Network(IPV4), _)) if !broadcast => return Ok(Test::V4Multicast),
            Some((Proto::Network(IPV6), _)) if !broadcast => return Ok(Test::V6Multicast),
            Some((Proto::Network(IPV4), _)) => {
                let what = "\"ip broadcast\" needs a netmask, which larder does not know; \
                            write \"dst host\" and the broadcast address";
                return Err(self.fail(start, what.to_owned()));
            }
            Some((_, word)) => {
                let what = format!(
                    "{word:?} has no such addresses; leave it out, or write \"ip\" or \"ip6\""
                );
                return Err(self.fail(start, what));
            }
        };
        if needs_ethernet && self.link != LinkType::Ethernet {
            let what = format!(
                "there are no Ethernet addresses in {}; write \"ip multicast\" or \"ip6 multicast\"",
                self.link.name()
            );
            return Err(self.fail(start, what));
        }
        Ok(match broadcast {
            true => Test::Mac { side: Side::Destination, mac: [0xff; 6] },
            false => Test::EtherMulticast,
        })
    }

    /// The value that must follow a qualifier.
    fn id(&mut self, qualifiers: Qualifiers<'a>) -> Result<Part<'a>, FilterError> {
        let start = self.at;
        let is_sign = |sign| self.kind() == Some(Kind::Sign(sign));
        let fits = self.begins_thing()
            || matches!(self.kind(), Some(Kind::Number(_)))
            || is_sign("(")
            || is_sign("!")
            || self.keyword() == "not"
            || ports::constant(self.keyword()).is_some();
        if !fits {
            let escaped = qualifiers.kind == Thing::Protocol && is_keyword(self.word());
            return Err(match escaped {
                true => self.expected(&format!(
                    "a number, or the name with a backslash: \\{}",
                    self.word()
                )),
                false => self.expected(match qualifiers.kind {
                    Thing::Port | Thing::PortRange => "a port",
                    Thing::Protocol => "the number of a protocol",
                    _ => "an address",
                }),
            });
        }
        // An expression may not begin here: its number would take the words after it.
        let part = match self.kind() {
            Some(Kind::Number(number)) => {
                self.at += 1;
                Part::Number(Value::Number(number))
            }
            _ => self.part(Some(qualifiers), true)?,
        };
        self.tree(part, Some(qualifiers), start).map(|(tree, _)| Part::Tree(tree, Some(qualifiers)))
    }
}
