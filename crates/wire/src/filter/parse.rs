//! Words become tests joined by `and`, `or` and `not`.
//!
//! What stands in parentheses may be a test, a number of a comparison, or what a word before them asks for: it is read
//! once, and what follows decides.

use super::ports;
use super::words::{Kind, Word};
use super::{FilterError, LinkType, NESTING_MAX};

/// Tests joined. `Joined` holds what stands beside one another without parentheses: it binds from the left.
#[derive(Debug)]
pub(super) enum Tree {
    Test(Test),
    Not(Box<Tree>),
    Joined(Box<Tree>, Vec<(Join, Tree)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    And,
    Or,
}

/// One question about a frame.
#[derive(Debug)]
pub(super) enum Test {
    EtherType(u32),
    Protocol { v4: bool, v6: bool, number: u8 },
    V4 { within: Option<u32>, side: Side, addr: u32, mask: u32 },
    V6 { side: Side, addr: u128, mask: u128 },
    Mac { side: Side, mac: [u8; 6] },
    Ports { protocol: Option<u8>, side: Side, low: u16, high: u16 },
    LenAtMost(u32),
    LenAtLeast(u32),
    EtherMulticast,
    V4Multicast,
    V6Multicast,
    Vlan(Option<u16>),
    Compare { left: Value, relation: Relation, right: Value },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
    Either,
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Greater,
    AtLeast,
    Equal,
    AtMost,
    Less,
    Differs,
}

/// A number of an expression.
#[derive(Debug)]
pub(super) enum Value {
    Number(u32),
    Len,
    Load { from: Layer, offset: Box<Value>, bytes: u8 },
    Negative(Box<Value>),
    Computed { operation: Operation, left: Box<Value>, right: Box<Value> },
}

/// With the codes of the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Div = 0x30,
    Or = 0x40,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Mod = 0x90,
    Xor = 0xa0,
}

/// From where octets of `NAME[...]` are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Link,
    /// Behind the link header, of this EtherType.
    Network(u32),
    /// Behind the IPv4 header, of this protocol.
    Transport(u8),
    /// Behind the IPv6 header.
    Icmp6,
}

pub(super) const IPV4: u32 = 0x0800;
pub(super) const IPV6: u32 = 0x86dd;
pub(super) const ARP: u32 = 0x0806;
pub(super) const RARP: u32 = 0x8035;
const ICMP6: u8 = 58;

/// What protocol a word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proto {
    Link,
    Network(u32),
    /// Number; whether of IPv4, of IPv6.
    Transport(u8, bool, bool),
}

/// What the words before an address or a port say of it.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    proto: Option<(Proto, &'a str)>,
    side: Side,
    kind: Thing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    /// Only a direction was said: a host.
    Default,
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// What stands between two joins: a test, with what a word behind it is to be; or a number that is not compared.
enum Part<'a> {
    Tree(Tree, Option<Asked<'a>>),
    Number(Value),
}

/// Words of the language of which we know no more than that.
const OTHERS: [&str; 53] = [
    "aarp",
    "action",
    "addr1",
    "addr2",
    "addr3",
    "addr4",
    "address1",
    "address2",
    "address3",
    "address4",
    "atalk",
    "byte",
    "clnp",
    "csnp",
    "decnet",
    "dir",
    "direction",
    "es-is",
    "esis",
    "fddi",
    "gateway",
    "geneve",
    "ifindex",
    "ifname",
    "iih",
    "inbound",
    "ipx",
    "is-is",
    "isis",
    "iso",
    "l1",
    "l2",
    "lat",
    "llc",
    "lsp",
    "mopdl",
    "moprc",
    "mpls",
    "netbeui",
    "on",
    "outbound",
    "pppoed",
    "pppoes",
    "protochain",
    "psnp",
    "radio",
    "rnr",
    "sca",
    "snp",
    "stp",
    "type",
    "vxlan",
    "wlan",
];

/// The tree of a filter; `None` for an empty one.
pub(super) fn parse(
    text: &str,
    words: &[Word],
    link: LinkType,
) -> Result<Option<Tree>, FilterError> {
    if words.is_empty() {
        return Ok(None);
    }
    let mut parser = Parser { text, words, at: 0, link, nesting: 0, operands: 0 };
    let part = parser.joined(None, false)?;
    let (tree, _) = parser.tree(part, None, 0)?;
    match parser.at == words.len() {
        true => Ok(Some(tree)),
        false => Err(parser.expected("\"and\", \"or\" or the end")),
    }
}

struct Parser<'a> {
    text: &'a str,
    words: &'a [Word],
    at: usize,
    link: LinkType,
    nesting: usize,
    /// Of the expression that is read.
    operands: usize,
}

impl<'a> Parser<'a> {
    fn kind(&self) -> Option<Kind> {
        self.words.get(self.at).map(|word| word.kind)
    }

    /// The word as it stands; nothing behind the last.
    fn word(&self) -> &'a str {
        self.words.get(self.at).map_or("", |word| &self.text[word.at..word.end])
    }

    /// The name at this place, if it is one, and no escaped one.
    fn keyword(&self) -> &'a str {
        if self.kind() == Some(Kind::Name(false)) { self.word() } else { "" }
    }

    fn take(&mut self, keyword: &str) -> bool {
        let is = self.keyword() == keyword;
        self.at += usize::from(is);
        is
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is = matches!(self.kind(), Some(Kind::Sign(found)) if found == sign);
        self.at += usize::from(is);
        is
    }

    fn close(&mut self) -> Result<(), FilterError> {
        if self.take_sign(")") { Ok(()) } else { Err(self.expected("\")\"")) }
    }

    fn fail(&self, word: usize, what: String) -> FilterError {
        let at_bytes = self.words.get(word).map_or(self.text.len(), |word| word.at);
        FilterError { at_bytes, what }
    }

    fn expected(&self, what: &str) -> FilterError {
        let found = match self.kind() {
            None => "the filter ends".to_owned(),
            Some(_) if OTHERS.contains(&self.word()) => {
                let what = format!(
                    "larder's filters do not know {:?}; they know: {}",
                    self.word(),
                    super::GUIDE
                );
                return self.fail(self.at, what);
            }
            Some(_) => format!("{:?} stands here", self.word()),
        };
        self.fail(self.at, format!("{found}, expected is {what}"))
    }

    /// One level deeper, or too deep.
    fn deeper(&mut self) -> Result<(), FilterError> {
        self.nesting += 1;
        match self.nesting > NESTING_MAX {
            true => {
                let what = format!("more than {NESTING_MAX} levels; write it flatter");
                Err(self.fail(self.at, what))
            }
            false => Ok(()),
        }
    }

    /// Tests with `and` and `or` between, or a number. `only_things`: addresses or ports, as a word before asks.
    fn joined(
        &mut self,
        asked: Option<Asked<'a>>,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        let start = self.at;
        let first = self.part(asked, only_things)?;
        let Some(mut join) = self.join() else { return Ok(first) };
        let (first, mut last) = self.tree(first, asked, start)?;
        let mut rest = Vec::new();
        loop {
            let start = self.at;
            let part = self.part(last, only_things)?;
            let (tree, next) = self.tree(part, last, start)?;
            last = next;
            rest.push((join, tree));
            match self.join() {
                Some(next) => join = next,
                None => return Ok(Part::Tree(Tree::Joined(Box::new(first), rest), last)),
            }
        }
    }

    fn join(&mut self) -> Option<Join> {
        if self.take("and") || self.take_sign("&&") {
            Some(Join::And)
        } else if self.take("or") || self.take_sign("||") {
            Some(Join::Or)
        } else {
            None
        }
    }

    /// A number that is compared with nothing is what the words before ask for.
    fn tree(
        &mut self,
        part: Part<'a>,
        asked: Option<Asked<'a>>,
        word: usize,
    ) -> Result<(Tree, Option<Asked<'a>>), FilterError> {
        match (part, asked) {
            (Part::Tree(tree, asked), _) => Ok((tree, asked)),
            (Part::Number(Value::Number(number)), Some(asked)) => {
                Ok((Tree::Test(self.numbered(number, asked, word)?), Some(asked)))
            }
            (Part::Number(Value::Number(_)), None) => {
                let what =
                    "a number alone says nothing; write what it is: \"port\", \"net\", \"proto\"";
                Err(self.fail(word, what.to_owned()))
            }
            (Part::Number(_), _) => {
                Err(self.expected("a comparison: \"=\", \"!=\", \"<\", \">\", \"<=\" or \">=\""))
            }
        }
    }

    fn part(
        &mut self,
        asked: Option<Asked<'a>>,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        if self.take("not") || self.take_sign("!") {
            self.deeper()?;
            let start = self.at;
            let part = self.part(asked, only_things)?;
            self.nesting -= 1;
            let (tree, asked) = self.tree(part, asked, start)?;
            return Ok(Part::Tree(Tree::Not(Box::new(tree)), asked));
        }
        if self.begins_value() {
            return self.compared(asked, only_things);
        }
        if let Some(asked) = asked
            && self.begins_thing()
        {
            return Ok(Part::Tree(Tree::Test(self.thing(asked)?), Some(asked)));
        }
        if only_things {
            return Err(self.expected("an address, a port or a number, as the word before has it"));
        }
        self.primitive()
    }

    /// True where a number of an expression begins, or a parenthesis.
    fn begins_value(&self) -> bool {
        match self.kind() {
            Some(Kind::Number(_) | Kind::Sign("(" | "-")) => true,
            Some(Kind::Name(false)) => {
                let next = self.words.get(self.at + 1).map(|word| word.kind);
                matches!(self.word(), "len" | "length")
                    || ports::constant(self.word()).is_some()
                    || next == Some(Kind::Sign("["))
            }
            _ => false,
        }
    }

    /// True where an address or a name stands that is no keyword.
    fn begins_thing(&self) -> bool {
        match self.kind() {
            Some(Kind::V4(..) | Kind::V6(_) | Kind::Mac(_) | Kind::Name(true)) => true,
            Some(Kind::Name(false)) => !is_keyword(self.word()),
            _ => false,
        }
    }

    /// A value, and what it is compared with, if it is.
    fn compared(
        &mut self,
        asked: Option<Asked<'a>>,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        self.operands = 0;
        let left = match self.value(asked, 0, only_things)? {
            Part::Number(value) => value,
            tree => return Ok(tree),
        };
        let relation = match self.kind() {
            Some(Kind::Sign(">")) => Relation::Greater,
            Some(Kind::Sign(">=")) => Relation::AtLeast,
            Some(Kind::Sign("=" | "==")) => Relation::Equal,
            Some(Kind::Sign("<=")) => Relation::AtMost,
            Some(Kind::Sign("<")) => Relation::Less,
            Some(Kind::Sign("!=")) => Relation::Differs,
            _ => return Ok(Part::Number(left)),
        };
        if only_things {
            return Err(self.expected("an address, a port or a number, as the word before has it"));
        }
        self.at += 1;
        let right = self.number(0)?;
        Ok(Part::Tree(Tree::Test(Test::Compare { left, relation, right }), None))
    }

    /// A value where nothing else can stand.
    fn number(&mut self, binding: u8) -> Result<Value, FilterError> {
        if !self.begins_value() {
            return Err(self.expected("a number, \"len\" or PROTOCOL[OFFSET:SIZE]"));
        }
        let start = self.at;
        match self.value(None, binding, false)? {
            Part::Number(value) => Ok(value),
            Part::Tree(..) => {
                Err(self.fail(start, "a test stands where a number is expected".to_owned()))
            }
        }
    }

    /// Operands and operators that bind stronger than `binding`; or, in parentheses, tests.
    fn value(
        &mut self,
        asked: Option<Asked<'a>>,
        binding: u8,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        let mut left = match self.operand(asked, only_things)? {
            Part::Number(value) => value,
            tree => return Ok(tree),
        };
        while let Some((operation, own, right)) = self.operation()
            && own > binding
        {
            let sign = self.at;
            self.at += 1;
            self.count_operand()?;
            self.deeper()?;
            let right = self.number(right)?;
            self.nesting -= 1;
            check_constant(operation, &right).map_err(|what| self.fail(sign, what.to_owned()))?;
            left = Value::Computed { operation, left: Box::new(left), right: Box::new(right) };
        }
        Ok(Part::Number(left))
    }

    /// The left operands of left operands are within one another as well.
    fn count_operand(&mut self) -> Result<(), FilterError> {
        self.operands += 1;
        match self.operands > NESTING_MAX {
            true => {
                let what = format!("more than {NESTING_MAX} operators; write a shorter expression");
                Err(self.fail(self.at, what))
            }
            false => Ok(()),
        }
    }

    /// The operator at this place, how strongly it binds, and how strongly its right operand is bound. libpcap gives `%`
    /// and `^` no place in that order: they take what they find.
    fn operation(&self) -> Option<(Operation, u8, u8)> {
        let Some(Kind::Sign(sign)) = self.kind() else { return None };
        Some(match sign {
            "|" => (Operation::Or, 1, 1),
            "&" => (Operation::And, 2, 2),
            "<<" => (Operation::Lsh, 3, 3),
            ">>" => (Operation::Rsh, 3, 3),
            "+" => (Operation::Add, 4, 4),
            "-" => (Operation::Sub, 4, 4),
            "*" => (Operation::Mul, 5, 5),
            "/" => (Operation::Div, 5, 5),
            "%" => (Operation::Mod, 7, 0),
            "^" => (Operation::Xor, 7, 0),
            _ => return None,
        })
    }

    fn operand(
        &mut self,
        asked: Option<Asked<'a>>,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        if self.take_sign("(") {
            self.deeper()?;
            let operands = self.operands;
            let part = self.joined(asked, only_things)?;
            self.operands = operands.max(self.operands);
            self.nesting -= 1;
            self.close()?;
            // What was asked for inside ends there.
            return Ok(match part {
                Part::Tree(tree, _) => Part::Tree(tree, asked),
                number => number,
            });
        }
        if self.take_sign("-") {
            self.count_operand()?;
            self.deeper()?;
            let value = self.number(6)?;
            self.nesting -= 1;
            return Ok(Part::Number(Value::Negative(Box::new(value))));
        }
        if let Some(Kind::Number(number)) = self.kind() {
            self.at += 1;
            return Ok(Part::Number(Value::Number(number)));
        }
        let word = self.keyword();
        if let Some(number) = ports::constant(word) {
            self.at += 1;
            return Ok(Part::Number(Value::Number(number)));
        }
        if matches!(word, "len" | "length") {
            self.at += 1;
            return Ok(Part::Number(Value::Len));
        }
        self.load().map(Part::Number)
    }

    /// `NAME[OFFSET]` or `NAME[OFFSET:SIZE]`.
    fn load(&mut self) -> Result<Value, FilterError> {
        let from = match proto(self.word()) {
            Some(Proto::Link) => Layer::Link,
            Some(Proto::Network(ether_type)) => Layer::Network(ether_type),
            Some(Proto::Transport(ICMP6, ..)) => Layer::Icmp6,
            Some(Proto::Transport(number, true, _)) if !matches!(number, 50 | 51) => {
                Layer::Transport(number)
            }
            _ => {
                return Err(self
                    .expected("a protocol before \"[\": ether, ip, ip6, arp, tcp, udp, icmp, …"));
            }
        };
        self.at += 1;
        if !self.take_sign("[") {
            return Err(self.expected("\"[\""));
        }
        self.count_operand()?;
        self.deeper()?;
        let offset = Box::new(self.number(0)?);
        self.nesting -= 1;
        let mut bytes = 1;
        if self.take_sign(":") {
            match self.kind() {
                Some(Kind::Number(size @ (1 | 2 | 4))) => bytes = size as u8,
                _ => return Err(self.expected("a size of 1, 2 or 4 octets")),
            }
            self.at += 1;
        }
        if !self.take_sign("]") {
            return Err(self.expected("\"]\" or \":\" and a size of 1, 2 or 4"));
        }
        Ok(Value::Load { from, offset, bytes })
    }

    /// A test that begins with a keyword.
    fn primitive(&mut self) -> Result<Part<'a>, FilterError> {
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
            return Err(self.expected("a length in octets"));
        };
        self.at += 1;
        Ok(length)
    }

    fn vlan(&mut self) -> Result<Test, FilterError> {
        if self.link != LinkType::Ethernet {
            return Err(
                self.fail(self.at, "there are no VLANs in raw IP; leave this out".to_owned())
            );
        }
        self.at += 1;
        // An ID may stand in parentheses; what else does is none.
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

    /// `[PROTOCOL] [src|dst|…] [host|net|port|portrange|proto] THING`, or the protocol alone, or with `multicast`.
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
        let asked = Asked { proto, side: side.unwrap_or(Side::Either), kind };
        self.id(asked)
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

    /// A protocol without more.
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
                        super::GUIDE
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
            let what = "there are no Ethernet addresses in raw IP; write \"ip multicast\" or \"ip6 multicast\"";
            return Err(self.fail(start, what.to_owned()));
        }
        Ok(match broadcast {
            true => Test::Mac { side: Side::Destination, mac: [0xff; 6] },
            false => Test::EtherMulticast,
        })
    }

    /// What must follow words that ask for something.
    fn id(&mut self, asked: Asked<'a>) -> Result<Part<'a>, FilterError> {
        let start = self.at;
        let is_sign = |sign| self.kind() == Some(Kind::Sign(sign));
        let fits = self.begins_thing()
            || matches!(self.kind(), Some(Kind::Number(_)))
            || is_sign("(")
            || is_sign("!")
            || self.keyword() == "not"
            || ports::constant(self.keyword()).is_some();
        if !fits {
            let escaped = asked.kind == Thing::Protocol && is_keyword(self.word());
            return Err(match escaped {
                true => self.expected(&format!(
                    "a number, or the name with a backslash: \\{}",
                    self.word()
                )),
                false => self.expected(match asked.kind {
                    Thing::Port | Thing::PortRange => "a port",
                    Thing::Protocol => "the number of a protocol",
                    _ => "an address",
                }),
            });
        }
        // No expression may begin here, or a number would take what follows.
        let part = match self.kind() {
            Some(Kind::Number(number)) => {
                self.at += 1;
                Part::Number(Value::Number(number))
            }
            _ => self.part(Some(asked), true)?,
        };
        self.tree(part, Some(asked), start).map(|(tree, _)| Part::Tree(tree, Some(asked)))
    }

    /// The address, MAC address or name at this place.
    fn thing(&mut self, asked: Asked<'a>) -> Result<Test, FilterError> {
        let (start, kind, word) = (self.at, self.kind(), self.word());
        self.at += 1;
        match kind {
            Some(Kind::V4(addr, bits)) => self.v4(addr, bits, asked, start),
            Some(Kind::V6(addr)) => self.v6(addr, asked, start),
            Some(Kind::Mac(mac)) => self.mac(mac, asked, start),
            _ => self.named(word.trim_start_matches('\\'), asked, start),
        }
    }

    fn v4(
        &mut self,
        addr: u32,
        bits: u32,
        asked: Asked<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        let mask = self.v4_mask(bits, asked, start)?;
        if addr & !mask != 0 {
            let what = "the address has bits outside of its net; write the net's first address";
            return Err(self.fail(start, what.to_owned()));
        }
        self.v4_test(addr, mask, asked, start)
    }

    /// What is written behind the address, or what the address itself says.
    fn v4_mask(&mut self, bits: u32, asked: Asked<'_>, start: usize) -> Result<u32, FilterError> {
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
        match asked.kind {
            Thing::Net => Ok(written),
            _ => Err(self.fail(start, "a net stands here; write \"net\" before it".to_owned())),
        }
    }

    fn v4_test(
        &self,
        addr: u32,
        mask: u32,
        asked: Asked<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        if !matches!(asked.kind, Thing::Default | Thing::Host | Thing::Net) {
            return Err(self.fail(start, "an address stands where a number is expected".to_owned()));
        }
        let within = match asked.proto {
            None => None,
            Some((Proto::Network(ether_type @ (IPV4 | ARP | RARP)), _)) => Some(ether_type),
            Some((_, word)) => {
                let what =
                    format!("{word:?} has no IPv4 addresses; leave it out and join it by \"and\"");
                return Err(self.fail(start, what));
            }
        };
        Ok(Test::V4 { within, side: asked.side, addr, mask })
    }

    fn v6(&mut self, addr: u128, asked: Asked<'_>, start: usize) -> Result<Test, FilterError> {
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
        match asked.kind {
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
        match asked.proto {
            None | Some((Proto::Network(IPV6), _)) => Ok(Test::V6 { side: asked.side, addr, mask }),
            Some((_, word)) => {
                let what =
                    format!("{word:?} has no IPv6 addresses; leave it out and join it by \"and\"");
                Err(self.fail(start, what))
            }
        }
    }

    fn mac(&self, mac: [u8; 6], asked: Asked<'_>, start: usize) -> Result<Test, FilterError> {
        let is_link = matches!(asked.proto, Some((Proto::Link, _)));
        if !is_link || !matches!(asked.kind, Thing::Default | Thing::Host) {
            let what = "a MAC address stands here; write \"ether host\", \"ether src\" or \"ether dst\" before it";
            return Err(self.fail(start, what.to_owned()));
        }
        if self.link != LinkType::Ethernet {
            let what = "there are no Ethernet addresses in raw IP; leave this out";
            return Err(self.fail(start, what.to_owned()));
        }
        Ok(Test::Mac { side: asked.side, mac })
    }

    /// A name: of a port, a range of ports or a protocol. Nobody is asked what address a name has.
    fn named(&self, name: &str, asked: Asked<'_>, start: usize) -> Result<Test, FilterError> {
        match asked.kind {
            Thing::Default | Thing::Host | Thing::Net => {
                let what = format!(
                    "{name:?} is a name, and larder never asks DNS; write the address (`larder find` takes names)"
                );
                Err(self.fail(start, what))
            }
            Thing::Port => {
                let (port, protocol) = self.port(name, start)?;
                self.ports((port, port), protocol, asked, start)
            }
            Thing::PortRange => {
                let ends = match name.split_once('-') {
                    None => (name, name),
                    Some(ends) => ends,
                };
                let (low, protocol) = self.port(ends.0, start)?;
                let (high, other) = self.port(ends.1, start)?;
                let protocol = if protocol == other { protocol } else { None };
                self.ports((low.min(high), low.max(high)), protocol, asked, start)
            }
            Thing::Protocol => match asked.proto {
                Some((Proto::Link, _)) => match ports::ether_type(name) {
                    Some(ether_type) => Ok(Test::EtherType(ether_type)),
                    None => Err(self.fail(
                        start,
                        format!("{name:?} is no EtherType that is known; write its number"),
                    )),
                },
                _ => match ports::protocol(name) {
                    Some(number) => self.protocol(u32::from(number), asked, start),
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
        asked: Asked<'_>,
        start: usize,
    ) -> Result<Test, FilterError> {
        let protocol = match (asked.proto, of_name) {
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
        Ok(Test::Ports { protocol, side: asked.side, low, high })
    }

    /// A number where words before it say what it is.
    fn numbered(&self, number: u32, asked: Asked<'_>, start: usize) -> Result<Test, FilterError> {
        match asked.kind {
            Thing::Port | Thing::PortRange => {
                let port = u16::try_from(number).map_err(|_| {
                    self.fail(start, format!("{number} is no port; they end at 65535"))
                })?;
                self.ports((port, port), None, asked, start)
            }
            Thing::Protocol => self.protocol(number, asked, start),
            Thing::Default | Thing::Host => self.v4_test(number, u32::MAX, asked, start),
            Thing::Net => {
                // `net 10` is 10.0.0.0/8, `net 0` all of it.
                let octets = 4 - number.leading_zeros() / 8;
                let shift = 32 - octets * 8;
                let addr = number.checked_shl(shift).unwrap_or(0);
                let mask = if octets == 0 { u32::MAX } else { u32::MAX << shift };
                self.v4_test(addr, mask, asked, start)
            }
        }
    }

    fn protocol(&self, number: u32, asked: Asked<'_>, start: usize) -> Result<Test, FilterError> {
        let (v4, v6) = match asked.proto {
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

/// The protocol that a keyword names.
fn proto(word: &str) -> Option<Proto> {
    Some(match word {
        "ether" | "link" => Proto::Link,
        "ip" => Proto::Network(IPV4),
        "ip6" => Proto::Network(IPV6),
        "arp" => Proto::Network(ARP),
        "rarp" => Proto::Network(RARP),
        "tcp" => Proto::Transport(6, true, true),
        "udp" => Proto::Transport(17, true, true),
        "sctp" => Proto::Transport(132, true, true),
        "icmp" => Proto::Transport(1, true, false),
        "icmp6" => Proto::Transport(ICMP6, false, true),
        "igmp" => Proto::Transport(2, true, false),
        "vrrp" => Proto::Transport(112, true, false),
        "pim" => Proto::Transport(103, true, true),
        "ah" => Proto::Transport(51, true, true),
        "esp" => Proto::Transport(50, true, true),
        _ => return None,
    })
}

fn is_keyword(word: &str) -> bool {
    const OWN: [&str; 18] = [
        "and",
        "or",
        "not",
        "src",
        "dst",
        "host",
        "net",
        "mask",
        "port",
        "portrange",
        "proto",
        "less",
        "greater",
        "broadcast",
        "multicast",
        "len",
        "length",
        "vlan",
    ];
    OWN.contains(&word) || proto(word).is_some() || OTHERS.contains(&word)
}

/// What can't be computed, if the right operand stands in the text.
fn check_constant(operation: Operation, right: &Value) -> Result<(), &'static str> {
    match (operation, right) {
        (Operation::Div | Operation::Mod, Value::Number(0)) => Err("a division by 0"),
        (Operation::Lsh | Operation::Rsh, Value::Number(32..)) => {
            Err("a shift by more than 31 bits; a number has 32")
        }
        _ => Ok(()),
    }
}
