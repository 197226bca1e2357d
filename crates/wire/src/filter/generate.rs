//! Generates code from tests. Each test continues at one of two labels.
//!
//! Loads have the order of libpcap's unoptimized code, because the first load beyond the end of the
//! frame ends the program.
//!
//! Scratch words: the lower ones hold operands, one for each level. The last holds the number of
//! bytes by which a VLAN tag in a live frame moves the rest of the frame; it is known only when the
//! program runs.

mod value;

use super::assemble::{Code, Label, TOO_LONG};
use super::run::{ASIDE_VLAN_PRESENT, ASIDE_VLAN_TAG};
use super::tree::{ARP, IPV4, IPV6, Join, RARP, Side, Test, Tree};
use super::{LinkType, Origin};

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
/// Added to a load: from X plus the offset.
const INDIRECT: u16 = 0x20;
const LOAD_NUMBER: u16 = 0x00;
const LOAD_SCRATCH: u16 = 0x60;
const LOAD_LEN: u16 = 0x80;
const LOAD_X_SCRATCH: u16 = 0x61;
/// X becomes four times the lower half of a byte: the length of an IPv4 header.
const LOAD_X_HEADER: u16 = 0xb1;
const STORE: u16 = 0x02;
const ADD: u16 = 0x04;
const ADD_X: u16 = 0x0c;
const AND: u16 = 0x54;
const SHIFT_LEFT: u16 = 0x64;
const NEGATE: u16 = 0x84;
const COMPUTE: u16 = 0x04;
const WITH_X: u16 = 0x08;
const A_TO_X: u16 = 0x07;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY: u16 = 0x45;
const RETURN: u16 = 0x06;

const SCRATCH_SHIFT: u32 = 15;
const OPERANDS_MAX: u32 = 15;

const TYPE_AT: u32 = 12;
const FRAGMENT: u8 = 44;

/// Address families in loopback captures: IPv6 of Linux and Windows; NetBSD and OpenBSD; FreeBSD;
/// Darwin.
const FAMILIES_V4: &[u32] = &[2];
const FAMILIES_V6: &[u32] = &[10, 23, 24, 28, 30];

const TOO_DEEP: &str =
    "an expression needs more operands at a time than there are registers; write it flatter";

/// The code of a filter.
pub(super) fn generate(
    tree: Option<&Tree>,
    link: LinkType,
    origin: Origin,
    snap_bytes: u32,
) -> Result<Code, &'static str> {
    let mut generator = Generator {
        code: Code::default(),
        link,
        origin,
        tags: 0,
        type_at: match link {
            LinkType::Cooked => 14,
            LinkType::Cooked2 => 0,
            LinkType::Ethernet | LinkType::RawIp | LinkType::Loopback => TYPE_AT,
        },
        payload_at: link.header_bytes(),
        shifted: false,
    };
    let (yes, no) = (generator.code.label(), generator.code.label());
    if let Some(tree) = tree {
        if origin == Origin::Live && has_vlan(tree) {
            generator.code.plain(LOAD_NUMBER, 0);
            generator.code.plain(STORE, SCRATCH_SHIFT);
        }
        generator.tree(tree, yes, no)?;
    }
    generator.code.mark(yes);
    generator.code.plain(RETURN, snap_bytes);
    generator.code.mark(no);
    if tree.is_some() {
        generator.code.plain(RETURN, 0);
    }
    Ok(generator.code)
}

fn has_vlan(tree: &Tree) -> bool {
    match tree {
        Tree::Test(test) => matches!(test, Test::Vlan(_)),
        Tree::Not(tree) => has_vlan(tree),
        Tree::Joined(first, rest) => has_vlan(first) || rest.iter().any(|(_, tree)| has_vlan(tree)),
    }
}

struct Generator {
    code: Code,
    link: LinkType,
    origin: Origin,
    /// `vlan`s so far in the text.
    tags: u32,
    /// Offset of the EtherType.
    type_at: u32,
    /// Its end.
    payload_at: u32,
    /// Both offsets move by the value of [`SCRATCH_SHIFT`].
    shifted: bool,
}

impl Generator {
    fn tree(&mut self, tree: &Tree, yes: Label, no: Label) -> Result<(), &'static str> {
        match tree {
            Tree::Not(tree) => self.tree(tree, no, yes),
            Tree::Test(test) => self.test(test, yes, no),
            Tree::Joined(first, rest) => self.joined(first, rest, yes, no),
        }
    }

    /// The last join is the outermost. From it inwards, each join determines the label at which the
    /// part before it continues.
    fn joined(
        &mut self,
        first: &Tree,
        rest: &[(Join, Tree)],
        yes: Label,
        no: Label,
    ) -> Result<(), &'static str> {
        let (mut yes, mut no) = (yes, no);
        let mut plan = Vec::with_capacity(rest.len());
        for (join, tree) in rest.iter().rev() {
            let next = self.code.label();
            plan.push((tree, next, yes, no));
            match join {
                Join::And => yes = next,
                Join::Or => no = next,
            }
        }
        self.tree(first, yes, no)?;
        for (tree, at, yes, no) in plan.into_iter().rev() {
            self.code.mark(at);
            self.tree(tree, yes, no)?;
            if !self.code.has_room() {
                return Err(TOO_LONG);
            }
        }
        Ok(())
    }

    fn test(&mut self, test: &Test, yes: Label, no: Label) -> Result<(), &'static str> {
        match test {
            Test::EtherType(ether_type) => self.ether_type(*ether_type, yes, no),
            Test::Protocol { v4, v6, number } => self.protocol(*v4, *v6, *number, yes, no),
            Test::V4 { within, side, addr, mask } => match within {
                Some(ether_type) => self.v4(*ether_type, *side, *addr, *mask, yes, no),
                None => {
                    let (arp, rarp) = (self.code.label(), self.code.label());
                    self.v4(IPV4, *side, *addr, *mask, yes, arp);
                    self.code.mark(arp);
                    self.v4(ARP, *side, *addr, *mask, yes, rarp);
                    self.code.mark(rarp);
                    self.v4(RARP, *side, *addr, *mask, yes, no);
                }
            },
            Test::V6 { side, addr, mask } => self.v6(*side, *addr, *mask, yes, no),
            Test::Mac { side, mac } => {
                self.sides(*side, yes, no, |this, from_source, yes, no| {
                    this.mac(mac, from_source, yes, no)
                });
            }
            Test::Ports { protocol, side, low, high } => {
                self.ports(*protocol, *side, *low, *high, yes, no)
            }
            Test::LenAtMost(length) => {
                self.code.plain(LOAD_LEN, 0);
                self.code.branch(IF_GREATER, *length, no, yes);
            }
            Test::LenAtLeast(length) => {
                self.code.plain(LOAD_LEN, 0);
                self.code.branch(IF_AT_LEAST, *length, yes, no);
            }
            Test::EtherMulticast => {
                self.code.plain(LOAD_BYTE, 0);
                self.code.branch(IF_ANY, 1, yes, no);
            }
            Test::V4Multicast => {
                let next = self.within(IPV4, no);
                self.code.mark(next);
                self.payload(LOAD_BYTE, 16);
                self.code.branch(IF_AT_LEAST, 0xe0, yes, no);
            }
            Test::V6Multicast => {
                let next = self.within(IPV6, no);
                self.code.mark(next);
                self.payload(LOAD_BYTE, 24);
                self.code.branch(IF_EQUAL, 0xff, yes, no);
            }
            Test::Vlan(id) => self.vlan(*id, yes, no),
            Test::Compare { left, relation, right } => {
                return self.compare(left, *relation, right, yes, no);
            }
        }
        Ok(())
    }

    /// Loads from the link header at an offset that tags may have shifted.
    fn at_shifted(&mut self, load: u16, at: u32) {
        if self.shifted {
            self.code.plain(LOAD_X_SCRATCH, SCRATCH_SHIFT);
            self.code.plain(load + INDIRECT, at);
        } else {
            self.code.plain(load, at);
        }
    }

    /// Loads at an offset after the link header.
    fn payload(&mut self, load: u16, at: u32) {
        self.at_shifted(load, self.payload_at + at);
    }

    fn ether_type(&mut self, ether_type: u32, yes: Label, no: Label) {
        match (self.link, ether_type) {
            (LinkType::Ethernet | LinkType::Cooked | LinkType::Cooked2, _) => {
                self.at_shifted(LOAD_HALF, self.type_at);
                self.code.branch(IF_EQUAL, ether_type, yes, no);
            }
            (LinkType::RawIp, IPV4 | IPV6) => {
                self.code.plain(LOAD_BYTE, 0);
                self.code.plain(AND, 0xf0);
                let version = if ether_type == IPV4 { 0x40 } else { 0x60 };
                self.code.branch(IF_EQUAL, version, yes, no);
            }
            (LinkType::Loopback, IPV4 | IPV6) => {
                let families = if ether_type == IPV4 { FAMILIES_V4 } else { FAMILIES_V6 };
                self.code.plain(LOAD_WORD, 0);
                for family in families.iter().flat_map(|family| [*family, family.swap_bytes()]) {
                    let next = self.code.label();
                    self.code.branch(IF_EQUAL, family, yes, next);
                    self.code.mark(next);
                }
                self.code.always(no);
            }
            (LinkType::RawIp | LinkType::Loopback, _) => self.code.always(no),
        }
    }

    /// Continues at the returned label, which the caller must mark, if the frame has this
    /// EtherType.
    fn within(&mut self, ether_type: u32, no: Label) -> Label {
        let next = self.code.label();
        self.ether_type(ether_type, next, no);
        next
    }

    /// One comparison for each wanted side.
    fn sides(
        &mut self,
        side: Side,
        yes: Label,
        no: Label,
        mut compare: impl FnMut(&mut Self, bool, Label, Label),
    ) {
        match side {
            Side::Source => compare(self, true, yes, no),
            Side::Destination => compare(self, false, yes, no),
            Side::Either | Side::Both => {
                let next = self.code.label();
                match side {
                    Side::Either => compare(self, true, yes, next),
                    _ => compare(self, true, next, no),
                }
                self.code.mark(next);
                compare(self, false, yes, no);
            }
        }
    }

    fn protocol(&mut self, v4: bool, v6: bool, number: u8, yes: Label, no: Label) {
        let other = if v4 && v6 { self.code.label() } else { no };
        if v4 {
            let next = self.within(IPV4, other);
            self.code.mark(next);
            self.payload(LOAD_BYTE, 9);
            self.code.branch(IF_EQUAL, u32::from(number), yes, other);
        }
        if v4 && v6 {
            self.code.mark(other);
        }
        if v6 {
            let next = self.within(IPV6, no);
            self.code.mark(next);
            let (behind, fragment) = (self.code.label(), self.code.label());
            self.payload(LOAD_BYTE, 6);
            self.code.branch(IF_EQUAL, u32::from(number), yes, behind);
            self.code.mark(behind);
            self.payload(LOAD_BYTE, 6);
            self.code.branch(IF_EQUAL, u32::from(FRAGMENT), fragment, no);
            self.code.mark(fragment);
            self.payload(LOAD_BYTE, 40);
            self.code.branch(IF_EQUAL, u32::from(number), yes, no);
        }
    }

    fn v4(&mut self, ether_type: u32, side: Side, addr: u32, mask: u32, yes: Label, no: Label) {
        let at = if ether_type == IPV4 { (12, 16) } else { (14, 24) };
        let next = self.within(ether_type, no);
        self.code.mark(next);
        self.sides(side, yes, no, |this, from_source, yes, no| {
            this.payload(LOAD_WORD, if from_source { at.0 } else { at.1 });
            if mask != u32::MAX {
                this.code.plain(AND, mask);
            }
            this.code.branch(IF_EQUAL, addr, yes, no);
        });
    }

    fn v6(&mut self, side: Side, addr: u128, mask: u128, yes: Label, no: Label) {
        let next = self.within(IPV6, no);
        self.code.mark(next);
        let words = |number: u128| [96, 64, 32, 0].map(|shift| (number >> shift) as u32);
        let (addr, mask) = (words(addr), words(mask));
        self.sides(side, yes, no, |this, from_source, yes, no| {
            for (index, (addr, mask)) in addr.into_iter().zip(mask).enumerate() {
                let at = if from_source { 8 } else { 24 };
                this.payload(LOAD_WORD, at + 4 * index as u32);
                if mask != u32::MAX {
                    this.code.plain(AND, mask);
                }
                let next = if index == 3 { yes } else { this.code.label() };
                this.code.branch(IF_EQUAL, addr, next, no);
                if index < 3 {
                    this.code.mark(next);
                }
            }
        });
    }

    /// The link header does not move: tags are behind the addresses.
    fn mac(&mut self, mac: &[u8; 6], from_source: bool, yes: Label, no: Label) {
        let at = if from_source { 6 } else { 0 };
        let next = self.code.label();
        self.code.plain(LOAD_WORD, at + 2);
        let low = mac[2..].iter().fold(0, |low, byte| low << 8 | u32::from(*byte));
        self.code.branch(IF_EQUAL, low, next, no);
        self.code.mark(next);
        self.code.plain(LOAD_HALF, at);
        self.code.branch(IF_EQUAL, u32::from(mac[0]) << 8 | u32::from(mac[1]), yes, no);
    }

    fn ports(
        &mut self,
        protocol: Option<u8>,
        side: Side,
        low: u16,
        high: u16,
        yes: Label,
        no: Label,
    ) {
        let v4 = self.code.label();
        let next = self.within(IPV6, v4);
        self.code.mark(next);
        self.one_of(protocol, 6, v4);
        self.sides(side, yes, v4, |this, from_source, yes, no| {
            let at = if from_source { 40 } else { 42 };
            this.in_range(low, high, yes, no, |this| this.payload(LOAD_HALF, at));
        });
        self.code.mark(v4);
        let next = self.within(IPV4, no);
        self.code.mark(next);
        self.one_of(protocol, 9, no);
        self.first_fragment(no);
        self.sides(side, yes, no, |this, from_source, yes, no| {
            let at = if from_source { 0 } else { 2 };
            this.in_range(low, high, yes, no, |this| {
                this.header_to_x();
                this.code.plain(LOAD_HALF + INDIRECT, this.payload_at + at);
            });
        });
    }

    /// Continues after this code if the byte is the protocol, or any protocol with ports.
    fn one_of(&mut self, protocol: Option<u8>, at: u32, no: Label) {
        let next = self.code.label();
        self.payload(LOAD_BYTE, at);
        match protocol {
            Some(number) => self.code.branch(IF_EQUAL, u32::from(number), next, no),
            None => {
                let (udp, sctp) = (self.code.label(), self.code.label());
                self.code.branch(IF_EQUAL, 6, next, udp);
                self.code.mark(udp);
                self.code.branch(IF_EQUAL, 17, next, sctp);
                self.code.mark(sctp);
                self.code.branch(IF_EQUAL, 132, next, no);
            }
        }
        self.code.mark(next);
    }

    fn first_fragment(&mut self, no: Label) {
        let next = self.code.label();
        self.payload(LOAD_HALF, 6);
        self.code.branch(IF_ANY, 0x1fff, no, next);
        self.code.mark(next);
    }

    fn in_range(&mut self, low: u16, high: u16, yes: Label, no: Label, load: impl Fn(&mut Self)) {
        load(self);
        if low == high {
            return self.code.branch(IF_EQUAL, u32::from(low), yes, no);
        }
        let next = self.code.label();
        self.code.branch(IF_AT_LEAST, u32::from(low), next, no);
        self.code.mark(next);
        self.code.branch(IF_GREATER, u32::from(high), no, yes);
    }

    /// Sets X to the length of the IPv4 header, plus the shift if there is one; then A is
    /// overwritten.
    fn header_to_x(&mut self) {
        if !self.shifted {
            return self.code.plain(LOAD_X_HEADER, self.payload_at);
        }
        self.payload(LOAD_BYTE, 0);
        self.code.plain(AND, 0x0f);
        self.code.plain(SHIFT_LEFT, 2);
        self.code.plain(ADD_X, 0);
        self.code.plain(A_TO_X, 0);
    }

    /// A test for a tag, which moves the tests after it in the text.
    fn vlan(&mut self, id: Option<u16>, yes: Label, no: Label) {
        let tagged = if id.is_some() { self.code.label() } else { yes };
        let aside = self.origin == Origin::Live && self.tags == 0;
        self.tags += 1;
        if aside {
            self.vlan_aside(id, tagged, yes, no);
        } else {
            self.vlan_types(tagged, no, |this| this.at_shifted(LOAD_HALF, this.type_at));
            if let Some(id) = id {
                self.code.mark(tagged);
                self.at_shifted(LOAD_HALF, self.payload_at);
                self.code.plain(AND, 0x0fff);
                self.code.branch(IF_EQUAL, u32::from(id), yes, no);
            }
            self.type_at += 4;
            self.payload_at += 4;
        }
    }

    /// A test for the outer tag of a live frame: first in the kernel's metadata, then in the frame.
    fn vlan_aside(&mut self, id: Option<u16>, tagged: Label, yes: Label, no: Label) {
        let in_frame = self.code.label();
        self.code.plain(LOAD_BYTE, ASIDE_VLAN_PRESENT);
        self.code.branch(IF_EQUAL, 1, tagged, in_frame);
        self.code.mark(in_frame);
        self.code.plain(LOAD_SCRATCH, SCRATCH_SHIFT);
        self.code.plain(ADD, 4);
        self.code.plain(STORE, SCRATCH_SHIFT);
        self.vlan_types(tagged, no, |this| this.code.plain(LOAD_HALF, TYPE_AT));
        if let Some(id) = id {
            let (aside, frame, compare) = (self.code.label(), self.code.label(), self.code.label());
            self.code.mark(tagged);
            self.code.plain(LOAD_BYTE, ASIDE_VLAN_PRESENT);
            self.code.branch(IF_EQUAL, 1, aside, frame);
            self.code.mark(aside);
            self.code.plain(LOAD_HALF, ASIDE_VLAN_TAG);
            self.code.always(compare);
            self.code.mark(frame);
            self.code.plain(LOAD_HALF, TYPE_AT + 2);
            self.code.mark(compare);
            self.code.plain(AND, 0x0fff);
            self.code.branch(IF_EQUAL, u32::from(id), yes, no);
        }
        self.shifted = true;
    }

    /// 802.1Q, 802.1ad, and the EtherType that some switches used before 802.1ad.
    fn vlan_types(&mut self, yes: Label, no: Label, load: impl Fn(&mut Self)) {
        let (second, third) = (self.code.label(), self.code.label());
        load(self);
        self.code.branch(IF_EQUAL, 0x8100, yes, second);
        self.code.mark(second);
        self.code.branch(IF_EQUAL, 0x88a8, yes, third);
        self.code.mark(third);
        self.code.branch(IF_EQUAL, 0x9100, yes, no);
    }
}
