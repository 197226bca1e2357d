//! tcpdump's filter language, compiled to classic BPF; and classic BPF, run.
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
//! The language is that of pcap-filter(7), as far as [`GUIDE`] says; filters in it decide as with
//! libpcap, including these surprises:
//!
//! * `and` and `or` bind alike, from the left.
//! * A load that is not in the frame ends the program, and the frame is not taken: also behind a
//!   `not`.
//! * Ports are those of first fragments, and of IPv6 without extension headers; `tcp[...]` is of
//!   IPv4 only.
//! * `vlan` shifts all that stands behind it in the text by a tag, whatever joins them.
//! * A word that follows `and` or `or` without its kind has that of the one before: `port 80 or
//!   443`.
//!
//! In three it does not. A name is never looked up: only literal addresses, and ports by a small
//! table. In an expression every operand's protocol is checked, not only that of the first. And
//! IPv6 in loopback captures is that of any system, in either byte order.
//!
//! A live frame on Linux comes without its outer VLAN tag, which the kernel keeps aside:
//! [`Origin::Live`] asks for it there first, and in the frame second.
//!
//! Invariants
//! 1. No text and no program panics; a program's jumps only go forward, so it ends.
//! 2. What `compile` gives passes the kernel's checks: at most [`INSTRUCTIONS_MAX`], every path
//!    ends in a return, scratch words are written before they are read, no division by a constant
//!    0.
//!
//! Bounds: [`TEXT_BYTES_MAX`], [`NESTING_MAX`], [`INSTRUCTIONS_MAX`]. Cost: linear in the text, but
//! for jumps that must be made long. Nothing is optimised: the same bytes may be loaded twice.

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

/// Parentheses, `not`s and operands within one another.
pub const NESTING_MAX: usize = 64;

/// Instructions of the longest program: what Linux takes.
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
    /// IPv4 or IPv6 at once.
    RawIp,
    /// A header of Linux for interfaces of any kind, version 1.
    Cooked,
    /// Linux cooked capture, version 2.
    Cooked2,
    /// The number of an address family, as BSD systems have it for loopback interfaces.
    Loopback,
}

impl LinkType {
    /// That of a LINKTYPE_ number, if filters know it.
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

/// Why a text is no filter: where, and what to write instead.
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

/// The program that returns `snap_bytes` for frames that the text describes, and 0 for others. An
/// empty text describes all.
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
