//! The server name that a QUIC client states itself: the ClientHello in its Initial packets (RFC
//! 9000, RFC 9001; version 2 of RFC 9369; drafts 22 to 34; Facebook's mvfst, which numbers drafts
//! 22 and 27 in its own way; Google's T050 and T051). Google QUIC before TLS sends a hello of its
//! own: sealed alike in Q050, in the clear in Q046 and before (module [`google`]).
//!
//! Initial packets are sealed with keys that follow from the first connection ID which the client
//! chose, so anyone on the path may open them. A ClientHello with post-quantum key shares needs two
//! or more packets, and browsers cut it into small frames in random order on purpose: an
//! [`Assembler`] collects them.
//!
//! Life of an [`Assembler`]: the first Initial that can be decrypted with the keys of its own
//! connection ID sets the keys; later ones use the same keys, although the server has changed the
//! ID by then. If decryption fails (after a Retry the client uses another ID, or the 5-tuple has a
//! new connection), the packet's own ID is tried, and on success collecting starts again. Drop the
//! assembler at any result but [`Initial::NeedMore`] and [`Initial::Undecryptable`].
//!
//! Only the client's packets can be decrypted: the server's have other keys, and give
//! [`Initial::Undecryptable`] without harm. A decrypted packet is authentic as far as the wire
//! goes: an altered packet gives no name.
//!
//! Bounds: [`HELLO_BYTES_MAX`] bytes collected, [`INITIALS_MAX`] packets opened a flow. Cost:
//! [`looks_like_initial`] reads a header; a first Initial costs nine HMACs and AES-GCM over the
//! packet.

mod frame;
pub mod google;
mod header;
mod protection;
#[cfg(test)]
mod tests;

use crate::stream::{Budget, Pushed, Stream};
use crate::tls::{self, ClientHello, HELLO_BYTES_MAX, Hello};
use header::{Header, Kind, Version};
use protection::Keys;

/// Most Initial packets that one [`Assembler`] tries to open; after that it returns
/// [`Initial::Malformed`].
pub const INITIALS_MAX: u8 = 32;

/// Most packets that are read in one datagram.
const COALESCED_MAX: usize = 8;

/// Memory for the collected bytes: those of the hello, and as much again for the pieces.
const BUDGET_BYTES: usize = 2 * HELLO_BYTES_MAX;

/// True when the datagram begins with the header of an Initial packet, of either direction, in a
/// version that we read, and its lengths fit. No cryptography.
#[inline]
pub fn looks_like_initial(datagram: &[u8]) -> bool {
    // A long header with the fixed bit: RFC 9000, section 17.2.
    datagram.first().is_some_and(|first| first & 0xc0 == 0xc0)
        && header::parse(datagram).is_some_and(|header| header.kind == Kind::Initial)
}

/// True when the datagram may be one of the first of a client: it begins with an Initial packet,
/// with a 0-RTT packet (the Initial may come later), with a version that only makes the server
/// negotiate, or with a hello of Google QUIC.
#[inline]
pub fn may_begin(datagram: &[u8]) -> bool {
    match datagram.first() {
        Some(first) if first & 0xc0 == 0xc0 => {
            header::parse(datagram)
                .is_some_and(|header| matches!(header.kind, Kind::Initial | Kind::ZeroRtt))
                || header::forces_negotiation(datagram)
                || google::is_plain(datagram)
        }
        Some(_) => google::is_plain(datagram),
        None => false,
    }
}

/// The result of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initial<'a> {
    /// The datagram has no Initial packet of a version that we read.
    NotQuic,
    /// An Initial packet of the client; the hello continues in others.
    NeedMore,
    /// Has Initial packets, and none opens: sent by the server, damaged, cut by the capture, or the
    /// client's first packet was not seen.
    Undecryptable,
    /// A packet opened, and has content that no client may send, or more than we read.
    Malformed,
    /// The hello, complete.
    Found(ClientHello<'a>),
}

/// Collects one flow's ClientHello. See the module for its life and bounds.
#[derive(Debug)]
pub struct Assembler {
    keys: Option<Keys>,
    crypto: Stream,
    budget: Budget,
    initials: u8,
}

impl Default for Assembler {
    fn default() -> Assembler {
        Assembler::new()
    }
}

impl Assembler {
    /// An assembler that has seen nothing. Takes no memory beyond itself until frames wait in it.
    pub const fn new() -> Assembler {
        Assembler {
            keys: None,
            crypto: Stream::starting_at(0),
            budget: Budget::new(BUDGET_BYTES),
            initials: 0,
        }
    }

    /// Bytes of memory held, besides the assembler itself; at most 32 KiB.
    pub fn held_bytes(&self) -> usize {
        self.crypto.held_bytes()
    }

    /// True when CRYPTO frames had different bytes for the same place.
    pub fn differs(&self) -> bool {
        self.crypto.differs()
    }

    /// Takes one UDP payload, best of the client's direction only.
    pub fn push<'a>(&'a mut self, datagram: &'a [u8]) -> Initial<'a> {
        if google::is_plain(datagram) {
            return google::in_datagram(datagram);
        }
        let mut has_initial = false;
        let mut has_opened = false;
        let mut rest = datagram;
        // Several packets may share a datagram (RFC 9000, section 12.2).
        for _ in 0..COALESCED_MAX {
            let Some(header) = header::parse(rest) else { break };
            let (packet, behind) = rest.split_at(header.packet_bytes);
            rest = behind;
            if header.kind != Kind::Initial {
                continue;
            }
            has_initial = true;
            if self.initials == INITIALS_MAX {
                return Initial::Malformed;
            }
            self.initials += 1;
            if let Some(opened) = self.open(packet, &header) {
                has_opened = true;
                if !self.collect(header.version, &opened.packet[opened.payload_at..]) {
                    return Initial::Malformed;
                }
            }
        }
        match (has_initial, has_opened) {
            (false, _) => Initial::NotQuic,
            (true, false) => Initial::Undecryptable,
            (true, true) => match tls::hello_message(self.crypto.contiguous()) {
                Hello::Found(hello) => Initial::Found(hello),
                Hello::NeedMore => Initial::NeedMore,
                Hello::NotTls => google::hello(self.crypto.contiguous()),
                Hello::Malformed => Initial::Malformed,
            },
        }
    }

    /// Opens a packet with the flow's keys, or else with those of its own connection ID.
    fn open(&mut self, packet: &[u8], header: &Header<'_>) -> Option<protection::Opened> {
        if let Some(keys) = &self.keys
            && let Some(opened) = keys.open(packet, header.packet_number_at)
        {
            return Some(opened);
        }
        let keys = Keys::of_client(header.version, header.destination_id);
        let opened = keys.open(packet, header.packet_number_at)?;
        self.keys = Some(keys);
        self.crypto.clear(&mut self.budget);
        self.crypto = Stream::starting_at(0);
        Some(opened)
    }

    /// Stores the CRYPTO frames of a payload. False when the payload is malformed.
    fn collect(&mut self, version: Version, payload: &[u8]) -> bool {
        let take = |offset: u64, data: &[u8]| {
            let end = offset.saturating_add(data.len() as u64);
            end <= HELLO_BYTES_MAX as u64
                && self.crypto.push(offset as u32, 0, data, &mut self.budget) != Pushed::Full
        };
        if version.has_google_frames() {
            frame::for_each_google_crypto(payload, take)
        } else {
            frame::for_each_crypto(payload, take)
        }
    }
}
