//! Rewrites a batch: removes the parts that are not stored before anything is stored.

use larder_wire::Addr;
use larder_wire::packet::{self, Packet, Skip};

use super::{Privacy, Pseudonyms};
use crate::block::{self, PACKET_BYTES, PacketBlock};
use crate::flow_event::Batch;
use crate::journal::StoredEvent;
use crate::{FlowKey, Interface};

const RAW_IP: u16 = 101;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

#[derive(Debug)]
pub(crate) struct Rewriter {
    privacy: Privacy,
    pseudonyms: Option<Pseudonyms>,
    links: Vec<u16>,
    /// Packets so far that are not IP.
    others: u64,
    /// The batch as it is stored.
    pub blocks: Vec<u8>,
    /// Offset of each packet; of one that is left out, that of the next.
    pub offsets: Vec<u32>,
    /// Packets of the batch that are left out.
    pub unsampled: u64,
}

/// The treatment of a packet.
struct Plan {
    /// Bytes of it that are stored.
    keep: usize,
    packet: Option<Packet>,
}

impl Rewriter {
    /// `None`: nothing is to be rewritten.
    pub fn new(privacy: &Privacy, interfaces: &[Interface]) -> Option<Rewriter> {
        (!privacy.keeps_all()).then(|| Rewriter {
            pseudonyms: privacy.pseudonym_key.as_ref().map(Pseudonyms::new),
            links: interfaces.iter().map(|interface| interface.link_type).collect(),
            privacy: privacy.clone(),
            others: 0,
            blocks: Vec::new(),
            offsets: Vec::new(),
            unsampled: 0,
        })
    }

    /// Rewrites the blocks of a valid batch.
    pub fn rewrite(&mut self, batch: &Batch<'_>) {
        self.blocks.clear();
        self.offsets.clear();
        self.unsampled = 0;
        let mut rest = batch.blocks;
        while let Ok(Some(len)) = block::block_len(rest) {
            let (bytes, after) = rest.split_at(len);
            rest = after;
            self.offsets.push(self.blocks.len() as u32);
            let Some(found) = block::packet(bytes) else { continue };
            match self.plan(&found) {
                Some(plan) => self.put(bytes, &found, &plan),
                None => self.unsampled += 1,
            }
        }
    }

    /// Replaces the addresses in the key of an event.
    pub fn event(&mut self, event: &mut StoredEvent) {
        if let Some(pseudonyms) = &mut self.pseudonyms {
            let (key, is_turned) = pseudonyms.of_key(&event.key);
            event.key = key;
            event.source_is_low ^= is_turned;
        }
    }

    /// `None`: it is left out.
    fn plan(&mut self, found: &PacketBlock<'_>) -> Option<Plan> {
        let link_type = self.links.get(found.interface as usize).copied().unwrap_or(u16::MAX);
        let decoded = packet::decode(link_type, found.frame);
        let Privacy { sample, headers_only, keep_dns, .. } = self.privacy;
        let is_ip = !matches!(decoded, Err(Skip::NotIp(_) | Skip::UnknownLinkType(_)));
        if sample > 1 && !self.is_sampled(decoded.as_ref().ok()) {
            return None;
        }
        let all = found.frame.len();
        let keep = match &decoded {
            Ok(packet) if headers_only && !(keep_dns && is_dns(packet)) => {
                packet.payload_offset as usize
            }
            Ok(_) => all,
            Err(_) if headers_only || is_ip && self.pseudonyms.is_some() => link_bytes(link_type),
            Err(_) => all,
        };
        let snap = match self.privacy.snap_bytes {
            0 => usize::MAX,
            bytes => bytes as usize,
        };
        Some(Plan { keep: keep.min(snap).min(all), packet: decoded.ok() })
    }

    fn is_sampled(&mut self, packet: Option<&Packet>) -> bool {
        let count = u64::from(self.privacy.sample);
        let Some(packet) = packet else {
            self.others += 1;
            return self.others % count == 1;
        };
        let mut packet = *packet;
        if packet.fragment.is_some() {
            (packet.src_port, packet.dst_port) = (0, 0);
        }
        // By the high half: tables use the low one.
        (FlowKey::of(&packet).0.unscoped().hash(self.privacy.sample_seed) >> 32)
            .is_multiple_of(count)
    }

    fn put(&mut self, bytes: &[u8], found: &PacketBlock<'_>, plan: &Plan) {
        if plan.keep == found.frame.len() && self.pseudonyms.is_none() {
            self.blocks.extend_from_slice(bytes);
            return;
        }
        let start = self.blocks.len();
        let len = PACKET_BYTES + plan.keep.next_multiple_of(4);
        self.blocks.extend_from_slice(&bytes[..28]);
        // Whole, so that all headers exist while they are changed.
        self.blocks.extend_from_slice(found.frame);
        if let (Some(pseudonyms), Some(packet)) = (&mut self.pseudonyms, &plan.packet) {
            hide(&mut self.blocks[start + 28..], packet, pseudonyms);
        }
        self.blocks.truncate(start + 28 + plan.keep);
        self.blocks.resize(start + len - 4, 0);
        self.blocks.extend_from_slice(&(len as u32).to_le_bytes());
        self.blocks[start + 4..start + 8].copy_from_slice(&(len as u32).to_le_bytes());
        self.blocks[start + 20..start + 24].copy_from_slice(&(plan.keep as u32).to_le_bytes());
    }
}

fn is_dns(packet: &Packet) -> bool {
    matches!(packet.protocol, TCP | UDP)
        && [packet.src_port, packet.dst_port].iter().any(|port| matches!(port, 53 | 5353))
}

/// Bytes of the link header of a frame that is not IP, approximately.
fn link_bytes(link_type: u16) -> usize {
    match link_type {
        1 => 14,
        113 => 16,
        276 => 20,
        0 | 108 => 4,
        _ => 0,
    }
}

/// Puts pseudonyms into all IP headers around and of `packet`.
///
/// An IP header is a place from which the rest of the frame, decoded as raw IP, gives the same
/// packet: so none is missed in any number of tunnels. Other bytes that look the same are changed
/// as well, which does no harm.
fn hide(frame: &mut [u8], packet: &Packet, pseudonyms: &mut Pseudonyms) {
    let end = (packet.payload_offset as usize).min(frame.len());
    let headers: Vec<usize> = (0..end)
        .filter(|at| matches!(frame[*at] >> 4, 4 | 6))
        .filter(|at| {
            packet::decode(RAW_IP, &frame[*at..]).is_ok_and(|inner| {
                let of = |packet: &Packet| (packet.src, packet.dst, packet.protocol);
                let is_here = inner.payload_offset as usize + at == packet.payload_offset as usize;
                is_here && of(&inner) == of(packet) && inner.ip_version == packet.ip_version
            })
        })
        .collect();
    for at in headers {
        hide_header(frame, at, pseudonyms);
    }
}

/// Puts pseudonyms into the IP header at `at`, if its addresses were captured.
fn hide_header(frame: &mut [u8], at: usize, pseudonyms: &mut Pseudonyms) {
    let transport = transport_at(frame, at);
    let is_v4 = frame[at] >> 4 == 4;
    let (start, len) = if is_v4 { (at + 12, 4) } else { (at + 8, 16) };
    let mut change = Change::default();
    for start in [start, start + len] {
        let Some(bytes) = frame.get_mut(start..start + len) else { return };
        let addr = match <[u8; 4]>::try_from(&bytes[..]) {
            Ok(v4) => Addr::v4(v4),
            Err(_) => bytes.try_into().map_or(Addr::UNSPECIFIED, Addr),
        };
        let pseudonym = pseudonyms.of(addr);
        let new = &pseudonym.0[16 - len..];
        change.replace(bytes, new);
        bytes.copy_from_slice(new);
    }
    if is_v4 {
        change.apply(frame, at + 10);
    }
    match transport {
        Some((TCP, at)) => change.apply(frame, at + 16),
        Some((ICMPV6, at)) => change.apply(frame, at + 2),
        Some((UDP, at)) => {
            // 0: there is no checksum.
            let sum = frame.get(at + 6..at + 8).unwrap_or(&[0, 0]);
            if sum == [0, 0] {
                return;
            }
            if is_v4 && is_tunnel(frame, at) {
                frame[at + 6..at + 8].fill(0);
                return;
            }
            change.apply(frame, at + 6);
            // 0 would mean that there is no checksum.
            if let Some(sum) = frame.get_mut(at + 6..at + 8)
                && sum == [0, 0]
            {
                sum.fill(0xff);
            }
        }
        _ => {}
    }
}

/// The change of a checksum by changed bytes (RFC 1624).
#[derive(Default)]
struct Change(u64);

impl Change {
    /// Replaces an even number of bytes at an even offset.
    fn replace(&mut self, old: &[u8], new: &[u8]) {
        for (old, new) in old.chunks_exact(2).zip(new.chunks_exact(2)) {
            self.0 += u64::from(!u16::from_be_bytes([old[0], old[1]]));
            self.0 += u64::from(u16::from_be_bytes([new[0], new[1]]));
        }
    }

    /// Changes the checksum at `at`, if it was captured.
    fn apply(&self, frame: &mut [u8], at: usize) {
        let Some(bytes) = frame.get_mut(at..at + 2) else { return };
        let mut sum = u64::from(!u16::from_be_bytes([bytes[0], bytes[1]])) + self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        bytes.copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
}

/// Protocol and place of the transport header after the IP header at `at`; `None` if there is none,
/// as in later fragments.
fn transport_at(frame: &[u8], at: usize) -> Option<(u8, usize)> {
    let half = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let is_v4 = *frame.get(at)? >> 4 == 4;
    let (mut protocol, mut next) = match is_v4 {
        true if half(at + 6)? & 0x1fff != 0 => return None,
        true => (*frame.get(at + 9)?, at + usize::from(frame[at] & 15) * 4),
        false => (*frame.get(at + 6)?, at + 40),
    };
    for _ in 0..packet::EXTENSIONS_MAX {
        let len = usize::from(*frame.get(next + 1)?);
        let step = match protocol {
            0 | 43 | 60 if !is_v4 => (len + 1) * 8,
            44 if !is_v4 && half(next + 2)? & 0xfff8 != 0 => return None,
            44 if !is_v4 => 8,
            51 => (len + 2) * 4,
            _ => return Some((protocol, next)),
        };
        protocol = *frame.get(next)?;
        next += step;
    }
    None
}

/// True when the ports of a UDP header are those of a tunnel.
fn is_tunnel(frame: &[u8], at: usize) -> bool {
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    [port(at), port(at + 2)].iter().any(|port| matches!(port, 4789 | 8472 | 6081 | 2152 | 3544))
}
