//! Parses words into tests joined by `and`, `or` and `not`.
//!
//! Text in parentheses may be a test, a number of a comparison, or the value of the word before
//! them. The parser reads it once; the text after it decides.

mod primitive;
mod thing;
mod value;

use super::ports;
use super::tree::{ARP, IPV4, IPV6, Join, RARP, Side, Tree, Value};
use super::words::{Kind, Word};
use super::{FilterError, LinkType, NESTING_MAX};

const ICMP6: u8 = 58;

/// The protocol that a word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proto {
    Link,
    Network(u32),
    /// Number, and whether it is a protocol of IPv4 and of IPv6.
    Transport(u8, bool, bool),
}

/// The qualifiers before an address or a port.
#[derive(Clone, Copy, Debug)]
struct Qualifiers<'a> {
    proto: Option<(Proto, &'a str)>,
    side: Side,
    kind: Thing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    /// Only a direction: a host.
    Default,
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// The part between two joins: a test with the qualifiers that a next value inherits, or a number
/// without a comparison.
enum Part<'a> {
    Tree(Tree, Option<Qualifiers<'a>>),
    Number(Value),
}

/// Words of pcap-filter(7) that are not supported.
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
    /// Nesting of the expression that is being read.
    operands: usize,
}

impl<'a> Parser<'a> {
    fn kind(&self) -> Option<Kind> {
        self.words.get(self.at).map(|word| word.kind)
    }

    /// The current word; empty at the end.
    fn word(&self) -> &'a str {
        self.words.get(self.at).map_or("", |word| &self.text[word.at..word.end])
    }

    /// The current word if it is a name without a backslash.
    fn keyword(&self) -> &'a str {
        if self.kind() == Some(Kind::Name(false)) { self.word() } else { "" }
    }

    // Branches, not a sum of the comparison: rust-lang/rust#158206 loses such a comparison.

    fn take(&mut self, keyword: &str) -> bool {
        let is = self.keyword() == keyword;
        if is {
            self.at += 1;
        }
        is
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is = matches!(self.kind(), Some(Kind::Sign(found)) if found == sign);
        if is {
            self.at += 1;
        }
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

    /// Enters one more level of nesting; an error at the limit.
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

    /// Tests joined by `and` and `or`, or a number. `only_things`: only addresses or ports, because a
    /// qualifier comes before the parenthesis.
    fn joined(
        &mut self,
        qualifiers: Option<Qualifiers<'a>>,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        let start = self.at;
        let first = self.part(qualifiers, only_things)?;
        let Some(mut join) = self.join() else { return Ok(first) };
        let (first, mut last) = self.tree(first, qualifiers, start)?;
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

    /// A number without a comparison is the value of the qualifiers before it.
    fn tree(
        &mut self,
        part: Part<'a>,
        qualifiers: Option<Qualifiers<'a>>,
        word: usize,
    ) -> Result<(Tree, Option<Qualifiers<'a>>), FilterError> {
        match (part, qualifiers) {
            (Part::Tree(tree, qualifiers), _) => Ok((tree, qualifiers)),
            (Part::Number(Value::Number(number)), Some(qualifiers)) => {
                Ok((Tree::Test(self.numbered(number, qualifiers, word)?), Some(qualifiers)))
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
        qualifiers: Option<Qualifiers<'a>>,
        only_things: bool,
    ) -> Result<Part<'a>, FilterError> {
        if self.take("not") || self.take_sign("!") {
            self.deeper()?;
            let start = self.at;
            let part = self.part(qualifiers, only_things)?;
            self.nesting -= 1;
            let (tree, qualifiers) = self.tree(part, qualifiers, start)?;
            return Ok(Part::Tree(Tree::Not(Box::new(tree)), qualifiers));
        }
        if self.begins_value() {
            return self.compared(qualifiers, only_things);
        }
        if let Some(qualifiers) = qualifiers
            && self.begins_thing()
        {
            return Ok(Part::Tree(Tree::Test(self.thing(qualifiers)?), Some(qualifiers)));
        }
        if only_things {
            return Err(self.expected("an address, a port or a number, as the word before has it"));
        }
        self.primitive()
    }

    /// True if a number of an expression or a parenthesis begins here.
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

    /// True if an address begins here, or a name that is not a keyword.
    fn begins_thing(&self) -> bool {
        match self.kind() {
            Some(Kind::V4(..) | Kind::V6(_) | Kind::Mac(_) | Kind::Name(true)) => true,
            Some(Kind::Name(false)) => !is_keyword(self.word()),
            _ => false,
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
