//! `larder-lab gen capture`: a large capture from small ones, the same bytes for the same seed.
//!
//! The inputs are laid end to end in time, and replayed round after round. In each round but the
//! first, private addresses move by a step that the seed gives ([`Shift`]): other clients, other
//! flows, while public addresses stay, so that the DNS answers in the capture stay true.
//!
//! Not moved: addresses inside payloads (answers that name private hosts, packets quoted by ICMP),
//! and inside tunnels.
//!
//! Bounds: the inputs are held in memory once; a record in the output is never cut.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::Range;
use std::path::Path;

use larder_annotate::options::Endpoint;
use larder_bench::data::mix;
use larder_io::input::is_same_file;
use larder_settings::exit::{self, Failure, Outcome};
use larder_wire::capture::write::{pcap_header, pcap_record};
use larder_wire::capture::{Capture, Step};

use crate::settings::bench::GenCapture;

/// Between two inputs, and between two rounds.
const GAP_NS: i64 = 1_000_000_000;

const SNAP_LEN: u32 = 262_144;

/// Runs the command.
pub fn gen_capture(settings: &GenCapture) -> Outcome {
    let mut source = Source::default();
    let output = Endpoint::from(settings.output.clone());
    for path in &settings.read {
        if let Endpoint::Path(output) = &output
            && is_same_file(path, output)
        {
            return Err(Failure::usage(format!("-o {output:?}: this is an input; name another")));
        }
        source.add_file(path)?;
    }
    if source.frames.is_empty() {
        return Err(Failure::usage("no packets in the inputs; name captures that hold some"));
    }
    let (size, seed) = (settings.size, settings.seed);
    let written = match output {
        Endpoint::Path(path) => std::fs::File::create(&path)
            .and_then(|file| source.write(size, seed, &mut BufWriter::with_capacity(1 << 20, file)))
            .map_err(|error| Failure::file(format!("-o {path:?}"), &error, "name another place"))?,
        _ if io::stdout().is_terminal() => {
            return Err(Failure::usage("-o -: standard output is a terminal; name a file"));
        }
        _ => source
            .write(size, seed, &mut BufWriter::with_capacity(1 << 20, io::stdout().lock()))
            .map_err(|error| Failure::stdout(&error))?,
    };
    let _ = writeln!(io::stderr(), "{} packets, {} bytes", written.packets, written.bytes);
    Ok(exit::DONE)
}

/// What is replayed.
#[derive(Default)]
struct Source {
    /// The frames, one after the other.
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    link_type: Option<u16>,
    /// Time of the very first packet, ns since 1970.
    start_ns: i64,
    /// Length of one round, ns.
    span_ns: i64,
}

struct Frame {
    /// Time since the start of the round, ns.
    at_ns: i64,
    original_len: u32,
    /// Where it lies in `Source::bytes`.
    range: Range<usize>,
}

struct Written {
    packets: u64,
    bytes: u64,
}

impl Source {
    fn add_file(&mut self, path: &Path) -> Result<(), Failure> {
        let file = std::fs::read(path)
            .map_err(|error| Failure::file(format!("-r {path:?}"), &error, "name another file"))?;
        self.add(&file).map_err(|why| Failure::usage(format!("-r {path:?}: {why}")))
    }

    /// Appends the packets of one capture after those that are there. Damage is left out.
    fn add(&mut self, file: &[u8]) -> Result<(), String> {
        let (mut capture, mut offset) = Capture::open(file).map_err(|error| error.to_string())?;
        let mut first_ns = None;
        let mut last_ns = self.span_ns;
        loop {
            match capture.next(file, offset, true) {
                Step::Record(record) => {
                    let link_type = *self.link_type.get_or_insert(record.link_type);
                    if record.link_type != link_type {
                        return Err(format!(
                            "link type {}, but the packets before have {link_type}; one pcap file \
                             has one link type, leave this input out",
                            record.link_type
                        ));
                    }
                    if self.frames.is_empty() {
                        self.start_ns = record.ts_ns;
                    }
                    let first_ns = *first_ns.get_or_insert(record.ts_ns);
                    let since = record.ts_ns.saturating_sub(first_ns);
                    let at_ns = self.span_ns.saturating_add(since).max(0);
                    last_ns = last_ns.max(at_ns);
                    let start = self.bytes.len();
                    self.bytes.extend_from_slice(record.frame);
                    self.frames.push(Frame {
                        at_ns,
                        original_len: record.original_len,
                        range: start..self.bytes.len(),
                    });
                    offset = record.next_offset;
                }
                Step::Meta { next_offset } | Step::Damaged { next_offset, .. } => {
                    offset = next_offset;
                }
                Step::NeedMore | Step::End => break,
            }
        }
        self.span_ns = last_ns.saturating_add(GAP_NS);
        Ok(())
    }

    /// Writes rounds until the next record would make more than `size` bytes.
    fn write(&self, size: u64, seed: u64, out: &mut impl Write) -> io::Result<Written> {
        let link_type = self.link_type.unwrap_or(LINK_ETHERNET);
        let mut record = Vec::new();
        pcap_header(&mut record, link_type, SNAP_LEN);
        out.write_all(&record)?;
        let mut written = Written { packets: 0, bytes: record.len() as u64 };
        let mut frame_bytes = Vec::new();
        for round in 0.. {
            let shift = Shift::of_round(seed, round);
            let round_ns = self.start_ns.saturating_add(self.span_ns.saturating_mul(round as i64));
            for frame in &self.frames {
                frame_bytes.clear();
                frame_bytes.extend_from_slice(&self.bytes[frame.range.clone()]);
                shift.apply(link_type, &mut frame_bytes);
                record.clear();
                let ts_ns = round_ns.saturating_add(frame.at_ns);
                pcap_record(&mut record, ts_ns, &frame_bytes, frame.original_len);
                if written.bytes + record.len() as u64 > size {
                    out.flush()?;
                    return Ok(written);
                }
                out.write_all(&record)?;
                written.packets += 1;
                written.bytes += record.len() as u64;
            }
        }
        Ok(written)
    }
}

const LINK_ETHERNET: u16 = 1;
const LINK_RAW: u16 = 101;
const LINK_SLL: u16 = 113;
const LINK_IPV4: u16 = 228;
const LINK_IPV6: u16 = 229;
const LINK_SLL2: u16 = 276;

/// Between the numbers that make shifts of rounds: the golden ratio of 2^64, made odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// How far private addresses move in one round.
#[derive(Clone, Copy)]
struct Shift(u32);

impl Shift {
    /// The first round is the input as it is.
    fn of_round(seed: u64, round: u64) -> Shift {
        if round == 0 {
            return Shift(0);
        }
        // Rounds are far from one another.
        Shift(mix(seed.wrapping_add((round - 1).wrapping_mul(STEP))) as u32)
    }

    /// Moves the addresses of one frame, and mends the checksums that cover them.
    fn apply(self, link_type: u16, frame: &mut [u8]) {
        if self.0 == 0 {
            return;
        }
        let Some(ip) = ip_offset(link_type, frame).and_then(|at| frame.get_mut(at..)) else {
            return;
        };
        match ip.first().map(|first| first >> 4) {
            Some(4) => self.apply_v4(ip),
            Some(6) => self.apply_v6(ip),
            _ => {}
        }
    }

    fn apply_v4(self, ip: &mut [u8]) {
        let Some(header) = ip.first_chunk::<20>() else { return };
        let header_bytes = usize::from(header[0] & 0x0f) * 4;
        let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
        let checksum_at = match header[9] {
            6 if is_first => Some(header_bytes + 16),
            17 if is_first => Some(header_bytes + 6),
            _ => None,
        };
        for at in [12, 16] {
            let Some(address) = ip.get(at..).and_then(|rest| rest.first_chunk()) else { return };
            let old = u32::from_be_bytes(*address);
            let new = self.private_v4(old);
            ip[at..at + 4].copy_from_slice(&new.to_be_bytes());
            mend(ip, 10, old, new);
            if let Some(checksum_at) = checksum_at {
                mend_transport(ip, checksum_at, header_bytes + 6, old, new);
            }
        }
    }

    /// The last four bytes move; a network of its own has room for that.
    fn apply_v6(self, ip: &mut [u8]) {
        let Some(header) = ip.first_chunk::<40>() else { return };
        let checksum_at = match header[6] {
            6 => Some(40 + 16),
            17 => Some(40 + 6),
            58 => Some(40 + 2),
            _ => None,
        };
        for address_at in [8, 24] {
            if ip[address_at] & 0xfe != 0xfc {
                continue;
            }
            let at = address_at + 12;
            let Some(tail) = ip.get(at..).and_then(|rest| rest.first_chunk()) else { return };
            let old = u32::from_be_bytes(*tail);
            let new = old.wrapping_add(self.0);
            ip[at..at + 4].copy_from_slice(&new.to_be_bytes());
            if let Some(checksum_at) = checksum_at {
                mend_transport(ip, checksum_at, 40 + 6, old, new);
            }
        }
    }

    /// Private networks of RFC 1918 keep their prefix; other addresses stay.
    fn private_v4(self, address: u32) -> u32 {
        let host_mask = match address.to_be_bytes() {
            [10, ..] => 0x00ff_ffff,
            [172, 16..=31, ..] => 0x000f_ffff,
            [192, 168, ..] => 0x0000_ffff,
            _ => return address,
        };
        address & !host_mask | address.wrapping_add(self.0) & host_mask
    }
}

/// Where the IP header begins, for the link types that captures usually have.
fn ip_offset(link_type: u16, frame: &[u8]) -> Option<usize> {
    let ether_type_at = |at: usize| frame.get(at..).and_then(|rest| rest.first_chunk::<2>());
    match link_type {
        LINK_RAW | LINK_IPV4 | LINK_IPV6 => Some(0),
        LINK_SLL2 => Some(20),
        LINK_ETHERNET | LINK_SLL => {
            let mut at = if link_type == LINK_ETHERNET { 12 } else { 14 };
            for _ in 0..3 {
                match *ether_type_at(at)? {
                    [0x08, 0x00] | [0x86, 0xdd] => return Some(at + 2),
                    [0x81, 0x00] | [0x88, 0xa8] => at += 4,
                    _ => return None,
                }
            }
            None
        }
        _ => None,
    }
}

/// A transport checksum; zero means that a UDP datagram over IPv4 has none (RFC 768).
fn mend_transport(ip: &mut [u8], checksum_at: usize, udp_checksum_at: usize, old: u32, new: u32) {
    let is_udp = checksum_at == udp_checksum_at;
    let none = is_udp && ip.get(checksum_at..checksum_at + 2) == Some(&[0, 0]);
    if none {
        return;
    }
    mend(ip, checksum_at, old, new);
    if is_udp && ip.get(checksum_at..checksum_at + 2) == Some(&[0, 0]) {
        ip[checksum_at..checksum_at + 2].copy_from_slice(&[0xff, 0xff]);
    }
}

/// Updates the Internet checksum at `at` for a field that went from `old` to `new`: RFC 1624,
/// equation 3. A checksum that the capture has cut off is left alone.
fn mend(ip: &mut [u8], at: usize, old: u32, new: u32) {
    let Some(field) = ip.get_mut(at..at + 2) else { return };
    let checksum = u16::from_be_bytes([field[0], field[1]]);
    let mut sum = u32::from(!checksum);
    for (old, new) in [(old >> 16, new >> 16), (old & 0xffff, new & 0xffff)] {
        sum += (!old & 0xffff) + new;
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    field.copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Internet checksum of RFC 1071, the slow and obvious way.
    fn checksum(parts: &[&[u8]]) -> u16 {
        let bytes: Vec<u8> = parts.concat();
        let words =
            bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | *word.get(1).unwrap_or(&0) as u64);
        let mut sum: u64 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// Ethernet, IPv4, UDP with sound checksums.
    fn udp4(source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let udp_len = (8 + payload.len() as u16).to_be_bytes();
        let total = (28 + payload.len() as u16).to_be_bytes();
        let mut ip =
            [&[0x45, 0], &total[..], &[0, 1, 0, 0, 64, 17, 0, 0], &source, &destination].concat();
        let sum = checksum(&[&ip]).to_be_bytes();
        ip[10..12].copy_from_slice(&sum);
        let mut udp = [&[0x30, 0x39, 0, 53], &udp_len[..], &[0, 0], payload].concat();
        let sum = checksum(&[&source, &destination, &[0, 17], &udp_len, &udp]).to_be_bytes();
        udp[6..8].copy_from_slice(&sum);
        [&[2; 12][..], &[0x08, 0x00], &ip, &udp].concat()
    }

    fn sound(frame: &[u8]) -> bool {
        let (ip, udp) = (&frame[14..34], &frame[34..]);
        let len = (udp.len() as u16).to_be_bytes();
        checksum(&[ip]) == 0 && checksum(&[&ip[12..20], &[0, 17], &len, udp]) == 0
    }

    fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = Vec::new();
        pcap_header(&mut file, LINK_ETHERNET, SNAP_LEN);
        for (index, frame) in frames.iter().enumerate() {
            pcap_record(&mut file, index as i64 * 1_000, frame, frame.len() as u32);
        }
        file
    }

    /// Moved packets have sound checksums, private addresses stay in their network, public ones
    /// stay as they are, and another round moves them elsewhere.
    #[test]
    fn addresses_move_and_checksums_hold() {
        let (client, server) = ([192, 168, 7, 9], [192, 0, 2, 1]);
        let before = udp4(client, server, b"odd");
        assert!(sound(&before));
        let mut seen = std::collections::BTreeSet::new();
        for round in 1..200 {
            let mut frame = before.clone();
            Shift::of_round(7, round).apply(LINK_ETHERNET, &mut frame);
            assert!(sound(&frame), "round {round}");
            assert_eq!(frame[26..28], [192, 168]);
            assert_eq!(frame[30..34], server);
            seen.insert(frame[28..30].to_vec());
        }
        assert!(seen.len() > 190, "rounds differ: {}", seen.len());
    }

    /// A UDP datagram without a checksum stays without one.
    #[test]
    fn no_checksum_stays_none() {
        let mut frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], b"x");
        frame[40..42].copy_from_slice(&[0, 0]);
        Shift(5).apply(LINK_ETHERNET, &mut frame);
        assert_eq!(frame[40..42], [0, 0]);
        assert_eq!(frame[26..34], [10, 0, 0, 6, 10, 0, 0, 7]);
    }

    /// Unique local IPv6 addresses move under a sound ICMPv6 checksum; documentation ones stay.
    #[test]
    fn ipv6_moves() {
        let mut source = [0u8; 16];
        source[0] = 0xfd;
        source[15] = 9;
        let mut destination = [0u8; 16];
        destination[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        let mut icmp = [128, 0, 0, 0, 1, 2, 3, 4];
        let pseudo = |icmp: &[u8], source: &[u8]| {
            checksum(&[source, &destination, &[0, 0, 0, 8, 0, 0, 0, 58], icmp])
        };
        let sum = pseudo(&icmp, &source).to_be_bytes();
        icmp[2..4].copy_from_slice(&sum);
        let mut ip = [&[0x60, 0, 0, 0, 0, 8, 58, 64][..], &source, &destination, &icmp].concat();
        Shift(0x0102_0304).apply(LINK_RAW, &mut ip);
        assert_eq!(ip[20..24], [1, 2, 3, 13]);
        assert_eq!(ip[24..40], destination);
        assert_eq!(pseudo(&ip[40..], &ip[8..24]), 0);
    }

    /// Frames that are cut anywhere, or are no IP at all, are moved without a panic.
    #[test]
    fn cut_frames_do_not_panic() {
        let whole = udp4([10, 0, 0, 1], [172, 16, 0, 2], b"x");
        for link_type in [LINK_ETHERNET, LINK_RAW, LINK_SLL, LINK_SLL2, 9999] {
            for len in 0..whole.len() {
                Shift(77).apply(link_type, &mut whole[..len].to_vec());
            }
        }
    }

    /// The same seed gives the same bytes, another one others; the size is kept; times only grow;
    /// and the first round is the input.
    #[test]
    fn output_is_by_seed_and_size() {
        let input = capture(&[
            udp4([10, 1, 2, 3], [192, 0, 2, 1], b"a"),
            udp4([192, 0, 2, 1], [10, 1, 2, 3], b"bc"),
        ]);
        let generate = |seed: u64, size: u64| {
            let mut source = Source::default();
            source.add(&input).expect("a capture");
            let mut out = Vec::new();
            let written = source.write(size, seed, &mut out).expect("a vector takes all");
            assert_eq!(written.bytes, out.len() as u64);
            assert!(written.bytes <= size && written.bytes + 200 > size);
            out
        };
        let out = generate(1, 5_000);
        assert_eq!(out, generate(1, 5_000));
        assert_ne!(out, generate(2, 5_000));
        assert_eq!(out[..input.len()], input);
        let (mut reader, mut offset) = Capture::open(&out).expect("a capture");
        let mut last_ns = i64::MIN;
        while let Step::Record(record) = reader.next(&out, offset, true) {
            assert!(record.ts_ns >= last_ns);
            assert!(sound(record.frame));
            (last_ns, offset) = (record.ts_ns, record.next_offset);
        }
        assert_eq!(offset, out.len());
    }

    /// One pcap file has one link type.
    #[test]
    fn link_types_do_not_mix() {
        let mut source = Source::default();
        source.add(&capture(&[udp4([10, 0, 0, 1], [10, 0, 0, 2], b"")])).expect("a capture");
        let mut other = Vec::new();
        pcap_header(&mut other, LINK_RAW, SNAP_LEN);
        pcap_record(&mut other, 0, &[0x45; 20], 20);
        assert!(source.add(&other).expect_err("another link type").contains("link type 101"));
    }
}
