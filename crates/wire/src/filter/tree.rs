//! The tests of a filter, parsed.

/// Joined tests. `Joined` has tests without parentheses between them; they associate from the left.
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

/// One test of a frame.
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

/// Operations; the values are the codes of their instructions.
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

/// The place from which the offset of `NAME[...]` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Link,
    /// After the link header, for this EtherType.
    Network(u32),
    /// After the IPv4 header, for this protocol.
    Transport(u8),
    /// After the IPv6 header.
    Icmp6,
}

pub(super) const IPV4: u32 = 0x0800;
pub(super) const IPV6: u32 = 0x86dd;
pub(super) const ARP: u32 = 0x0806;
pub(super) const RARP: u32 = 0x8035;
