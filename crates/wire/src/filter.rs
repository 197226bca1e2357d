//! Compiles tcpdump's filter language to classic BPF, and runs classic BPF.
//!
//! ```
//! use larder_wire::filter::{LinkType, Origin, compile, run};
//! let program = compile("udp port 53 or tcp[tcpflags] & tcp-syn != 0", LinkType::Ethernet, Origin::File, 65535)?;
//! assert_eq!(run(&program, b"too short to be anything", 24), 0);
//! # Ok::<(), larder_wire::filter::FilterError>(())
//! ```
//!
//! ```text
//! text --words--> tokens --parse--> tests joined by and, or, not --generate--> code with labels --assemble--> program
//! ```
//!
//! The language is the part of pcap-filter(7) that [`GUIDE`] describes. A filter selects the frames
//! that it selects with libpcap, including these surprises:
//!
//! * `and` and `or` have the same precedence and associate from the left.
//! * A load beyond the end of the frame ends the program and rejects the frame, also after `not`.
//! * Port tests match only first fragments, and IPv6 only without extension headers. `tcp[...]`
//!   reads IPv4 only.
//! * `vlan` moves all later tests of the text behind one more tag, also after `or`.
//! * An address or port without a qualifier takes that of the one before it: `port 80 or 443`.
//!
//! Three things differ from libpcap. Host names are never resolved; port names come from a small
//! table. In an expression the protocol of every operand is checked, not only that of the first.
//! IPv6 in loopback captures is recognized in the numbers of all systems, in either byte order.
//!
//! On Linux the kernel removes the outer VLAN tag of a live frame and reports it separately.
//! [`Origin::Live`] makes the program read it there first, and then in the frame.
//!
//! Invariants
//! 1. No text and no program panics. Jumps only go forward, so every program ends.
//! 2. Programs that `compile` returns pass the kernel's checks: at most [`INSTRUCTIONS_MAX`], every
//!    path ends in a return, scratch words are written before they are read, no division by a
//!    constant 0.
//!
//! Bounds: [`TEXT_BYTES_MAX`], [`NESTING_MAX`], [`INSTRUCTIONS_MAX`]. Cost: linear in the text,
//! except for jumps that must be made long. Code is not optimized: the same bytes may be loaded
//! twice.

mod assemble;
mod generate;
mod parse;
mod ports;
mod run;
mod tree;
mod words;

use std::fmt;

pub use run::{run, run_live};

/// Bytes of the longest text that is read.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// Nesting of parentheses, `not` and operands, at most.
pub const NESTING_MAX: usize = 64;

/// Instructions of the longest program: the limit of Linux.
pub const INSTRUCTIONS_MAX: usize = 4096;

/// The supported language, for help texts.
pub const GUIDE: &str = "\
[src|dst|src or dst|src and dst] host ADDRESS, net ADDRESS[/BITS], port PORT, portrange LOW-HIGH; \
[ip|ip6] proto NUMBER; ether host|src|dst MAC, ether proto NUMBER; \
ip, ip6, arp, rarp, tcp, udp, sctp, icmp, icmp6, igmp; vlan [ID]; [ip|ip6] multicast, broadcast; \
less N, greater N; comparisons of len, numbers and PROTOCOL[OFFSET:SIZE]; and, or, not, ( )";

/// One instruction of classic BPF, as the kernel's `sock_filter` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip where a comparison is true.
    pub jt: u8,
    /// The steps to skip if it is false.
    pub jf: u8,
    /// A number or an offset.
    pub k: u32,
}

/// The link-layer header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// None: the frame begins with the IPv4 or IPv6 header.
    RawIp,
    /// Linux cooked capture, version 1.
    Cooked,
    /// Linux cooked capture, version 2.
    Cooked2,
    /// The number of an address family, as BSD systems have it for loopback interfaces.
    Loopback,
}

impl LinkType {
    /// The link type of a LINKTYPE_ number; `None` if filters do not support it.
    pub fn of(number: u16) -> Result<LinkType, FilterError> {
        match number {
            0 | 108 => Ok(LinkType::Loopback),
            1 => Ok(LinkType::Ethernet),
            12 | 14 | 101 | 228 | 229 => Ok(LinkType::RawIp),
            113 => Ok(LinkType::Cooked),
            276 => Ok(LinkType::Cooked2),
            _ => Err(FilterError {
                at_bytes: 0,
                what: format!(
                    "filters know Ethernet, raw IP, Linux cooked and loopback captures, not link type {number}; \
                     leave the filter out, or filter with tcpdump"
                ),
            }),
        }
    }

    /// The name of its frames.
    fn name(self) -> &'static str {
        match self {
            LinkType::Ethernet => "Ethernet",
            LinkType::RawIp => "raw IP",
            LinkType::Cooked | LinkType::Cooked2 => "Linux cooked captures",
            LinkType::Loopback => "loopback captures",
        }
    }

    /// Bytes of the link header.
    fn header_bytes(self) -> u32 {
        match self {
            LinkType::Ethernet => 14,
            LinkType::RawIp => 0,
            LinkType::Cooked => 16,
            LinkType::Cooked2 => 20,
            LinkType::Loopback => 4,
        }
    }
}

/// The origin of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A file: VLAN tags are in the frames.
    File,
    /// A packet socket of Linux: the outer VLAN tag may be separate from the frame.
    Live,
}

/// A syntax error in a filter: its place, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// Bytes before the word that is wrong.
    pub at_bytes: usize,
    /// What was found and expected.
    pub what: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "filter, at byte {}: {}", self.at_bytes, self.what)
    }
}

impl std::error::Error for FilterError {}

/// Compiles `text` to a program that returns `snap_bytes` for matching frames, and 0 for others. An
/// empty text matches all frames.
pub fn compile(
    text: &str,
    link: LinkType,
    origin: Origin,
    snap_bytes: u32,
) -> Result<Vec<Instruction>, FilterError> {
    if text.len() > TEXT_BYTES_MAX {
        let what = format!("a filter has at most {TEXT_BYTES_MAX} bytes; write a shorter one");
        return Err(FilterError { at_bytes: TEXT_BYTES_MAX, what });
    }
    let words = words::split(text)?;
    let tree = parse::parse(text, &words, link)?;
    let code = generate::generate(tree.as_ref(), link, origin, snap_bytes.max(1));
    code.and_then(|code| code.assemble())
        .map_err(|what| FilterError { at_bytes: text.len(), what: what.to_owned() })
}
