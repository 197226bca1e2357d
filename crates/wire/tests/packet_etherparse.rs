//! Captured, generated and damaged frames compared with the lax reading of the `etherparse` crate.
//!
//! etherparse does not support tunnels, MPLS or PPPoE. So the tests compare only packets without a
//! tunnel in which it finds an IP header. [`is_known_difference`] lists where it differs by design.

mod packet_support;

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, LenSource, TransportSlice};
use larder_testkit::captures as list;
use larder_testkit::frames::read_capture;
use larder_wire::Addr;
use larder_wire::packet::{Packet, Skip, decode};
use packet_support::generated;

/// etherparse's reading from the first header that it supports.
fn slice(link_type: u16, frame: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let typed = |at: usize, kind_at: usize| {
        let kind = EtherType(u16::from_be_bytes([*frame.get(kind_at)?, *frame.get(kind_at + 1)?]));
        Some(LaxSlicedPacket::from_ether_type(kind, frame.get(at..)?))
    };
    match link_type {
        1 => typed(14, 12),
        113 => typed(16, 14),
        276 => typed(20, 0),
        0 | 108 => LaxSlicedPacket::from_ip(frame.get(4..)?).ok(),
        101 | 228 | 229 => LaxSlicedPacket::from_ip(frame).ok(),
        _ => None,
    }
}

/// The fields that both have.
#[derive(Debug, PartialEq, Eq)]
struct View<'a> {
    src: Addr,
    dst: Addr,
    protocol: u8,
    is_fragment: bool,
    transport: Option<(u16, u16, &'a [u8])>,
    /// Flags, sequence, acknowledgement, window.
    tcp: Option<(u8, u32, u32, u16)>,
}

fn view_of_theirs<'a>(sliced: &LaxSlicedPacket<'a>) -> Option<View<'a>> {
    let (src, dst) = match sliced.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            (Addr::v4(header.source()), Addr::v4(header.destination()))
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            (Addr::v6(header.source()), Addr::v6(header.destination()))
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let payload = sliced.ip_payload()?;
    let (transport, tcp) = match sliced.transport.as_ref() {
        None => (None, None),
        Some(TransportSlice::Udp(udp)) => {
            (Some((udp.source_port(), udp.destination_port(), udp.payload())), None)
        }
        Some(TransportSlice::Tcp(tcp)) => (
            Some((tcp.source_port(), tcp.destination_port(), tcp.payload())),
            Some((
                tcp.slice()[13],
                tcp.sequence_number(),
                tcp.acknowledgment_number(),
                tcp.window_size(),
            )),
        ),
        Some(TransportSlice::Icmpv4(icmp)) => {
            let payload = icmp.slice().get(8..).unwrap_or(&[]);
            (Some((u16::from(icmp.type_u8()), u16::from(icmp.code_u8()), payload)), None)
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            let payload = icmp.slice().get(8..).unwrap_or(&[]);
            (Some((u16::from(icmp.type_u8()), u16::from(icmp.code_u8()), payload)), None)
        }
    };
    Some(View {
        src,
        dst,
        protocol: payload.ip_number.0,
        is_fragment: payload.fragmented,
        transport,
        tcp,
    })
}

fn view_of_ours<'a>(frame: &'a [u8], packet: &Packet) -> View<'a> {
    let at = packet.payload_offset as usize;
    let payload = &frame[at..at + packet.payload_len as usize];
    let is_fragment = packet.fragment.is_some();
    let has_transport = !is_fragment && matches!(packet.protocol, 1 | 6 | 17 | 58);
    let tcp = (packet.tcp_flags, packet.tcp_seq, packet.tcp_ack, packet.tcp_window);
    View {
        src: packet.src,
        dst: packet.dst,
        protocol: packet.protocol,
        is_fragment,
        transport: has_transport.then_some((packet.src_port, packet.dst_port, payload)),
        tcp: (has_transport && packet.protocol == 6).then_some(tcp),
    }
}

/// Compares one frame. `None` if etherparse has nothing to compare.
fn compare(link_type: u16, frame: &[u8]) -> Option<Result<(), String>> {
    let sliced = slice(link_type, frame)?;
    let theirs = view_of_theirs(&sliced)?;
    let answer = decode(link_type, frame);
    if matches!(answer, Ok(packet) if packet.tunnels > 0)
        || is_known_difference(link_type, &sliced, &answer)
    {
        return None;
    }
    let same = match &answer {
        Ok(packet) => view_of_ours(frame, packet) == theirs,
        Err(_) => theirs.transport.is_none() && sliced.stop_err.is_some(),
    };
    Some(if same {
        Ok(())
    } else {
        Err(format!(
            "\n  theirs {theirs:?}, {:?}\n  ours {answer:?}\n  {frame:02x?}",
            sliced.stop_err
        ))
    })
}

/// Differences by design, each with its reason.
fn is_known_difference(
    link_type: u16,
    sliced: &LaxSlicedPacket<'_>,
    answer: &Result<Packet, Skip>,
) -> bool {
    // etherparse does not support SCTP.
    if sliced.ip_payload().is_some_and(|payload| payload.ip_number.0 == 132) {
        return true;
    }
    // etherparse reads past extension headers in every fragment, though only the first one has
    // them.
    let is_extension = |protocol| matches!(protocol, 0 | 43 | 51 | 60);
    if matches!(answer, Ok(packet) if packet.fragment.is_some() && is_extension(packet.protocol)) {
        return true;
    }
    // etherparse reads the two reserved bits of an IPv6 fragment header as part of the offset (RFC
    // 8200 has receivers ignore them). In the frames with this difference, the header is the first
    // extension.
    if let Some(LaxNetSlice::Ipv6(ip)) = &sliced.net
        && let [_, _, 0, low, ..] = ip.extensions().slice()
        && low & 0xf9 == 0
        && ip.is_payload_fragmented()
    {
        return true;
    }
    // etherparse gets the bytes after the address family, so it does not see a damaged one.
    if matches!(link_type, 0 | 108) && *answer == Err(Skip::NotIp(0)) {
        return true;
    }
    // larder accepts a packet whose transport header is truncated after the fields that a flow
    // needs.
    let is_cut = sliced.ip_payload().is_some_and(|payload| payload.incomplete);
    if is_cut && sliced.transport.is_none() && answer.is_ok() {
        return true;
    }
    // etherparse regards a length smaller than the header itself as one that is not filled in yet.
    let has_no_length = match (answer, &sliced.net) {
        (Err(Skip::IpMalformed), Some(LaxNetSlice::Ipv4(ip))) => {
            usize::from(ip.header().total_len()) < ip.header().slice().len()
        }
        (Err(Skip::TransportMalformed), _) => match &sliced.transport {
            Some(TransportSlice::Udp(udp)) => udp.payload_len_source() == LenSource::Slice,
            _ => false,
        },
        _ => false,
    };
    // etherparse requires 8 bytes of ICMP; larder needs only type, code and checksum.
    let is_short_icmp = matches!(answer, Ok(packet) if matches!(packet.protocol, 1 | 58))
        && sliced.ip_payload().is_some_and(|payload| payload.payload.len() < 8);
    has_no_length || is_short_icmp
}

/// Collects differences, and counts the comparisons.
#[derive(Default)]
struct Tally {
    compared: usize,
    differences: Vec<String>,
}

impl Tally {
    fn add(&mut self, what: &str, link_type: u16, frame: &[u8]) {
        match compare(link_type, frame) {
            None => {}
            Some(Ok(())) => self.compared += 1,
            Some(Err(text)) => self.differences.push(format!("{what}: {text}")),
        }
    }

    fn finish(self, compared_min: usize) {
        let count = self.differences.len();
        let shown = self.differences.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
        assert!(count == 0, "{count} differences, {} alike\n{shown}", self.compared);
        assert!(self.compared >= compared_min, "only {} packets compared", self.compared);
    }
}

/// Both read every packet of every capture alike, unless it has a tunnel.
#[test]
fn captures_as_etherparse_reads_them() {
    let mut tally = Tally::default();
    for path in &list::all() {
        for (index, frame) in read_capture(path).iter().enumerate() {
            let what = format!("{} {}", path.display(), index + 1);
            tally.add(&what, frame.link_type, &frame.bytes);
        }
    }
    tally.finish(500);
}

/// The same for generated frames, complete and truncated at every byte, and with each header byte
/// replaced by several values.
#[test]
fn generated_as_etherparse_reads_them() {
    let mut frames: Vec<(u16, Vec<u8>)> = generated::other_frames();
    frames.extend(generated::ethernet_frames().into_iter().map(|frame| (1, frame)));
    let mut tally = Tally::default();
    for (link_type, frame) in &frames {
        for len in 0..=frame.len() {
            tally.add("cut", *link_type, &frame[..len]);
        }
        for at in 0..frame.len().min(90) {
            for change in [0x01, 0x04, 0x10, 0x80, 0xff] {
                let mut frame = frame.clone();
                frame[at] ^= change;
                tally.add(&format!("byte {at} ^ {change:#x}"), *link_type, &frame);
            }
        }
    }
    tally.finish(50_000);
}
