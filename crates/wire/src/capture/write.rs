//! Writes capture files: blocks of pcapng, and pcap with nanoseconds, appended to a buffer.
//!
//! A pcapng file is one [`section`], an [`interface`] for each link type, then [`packet`]s and
//! [`Names`] in any order. A pcap file is one [`pcap_header`] and then [`pcap_record`]s. All is
//! written little-endian, and interfaces count nanoseconds.
//!
//! Times before 1970 become 1970, and in pcap times after 2106 become 2106: the formats have no
//! room for others.

use crate::Addr;

/// Appends a section header block: the start of a pcapng file. `application` names the writer.
pub fn section(out: &mut Vec<u8>, application: &str) {
    section_with_comment(out, application, "");
}

/// Like [`section`], with a comment about what follows, or about what a reader should know at the
/// end. An empty one is omitted, and one that is longer than 1024 bytes is cut.
pub fn section_with_comment(out: &mut Vec<u8>, application: &str, comment: &str) {
    let start = begin_block(out, 0x0a0d_0d0a);
    put_u32(out, 0x1a2b_3c4d);
    put_u16(out, 1);
    put_u16(out, 0);
    // Section length: not known in advance.
    out.extend_from_slice(&u64::MAX.to_le_bytes());
    if !comment.is_empty() {
        put_option(out, 1, &comment.as_bytes()[..comment.len().min(1024)]);
    }
    put_option(out, 4, application.as_bytes());
    end_options(out);
    end_block(out, start);
}

/// Appends an interface description block; interfaces are numbered in the order they are written.
pub fn interface(out: &mut Vec<u8>, link_type: u16, snap_len: u32) {
    interface_named(out, link_type, snap_len, "");
}

/// Like [`interface`], with the interface's name on the machine that captured. An empty name is
/// omitted, and one that is longer than 255 bytes is cut.
pub fn interface_named(out: &mut Vec<u8>, link_type: u16, snap_len: u32, name: &str) {
    let start = begin_block(out, 1);
    put_u16(out, link_type);
    put_u16(out, 0);
    put_u32(out, snap_len);
    if !name.is_empty() {
        put_option(out, 2, &name.as_bytes()[..name.len().min(255)]);
    }
    put_option(out, 9, &[9]);
    end_options(out);
    end_block(out, start);
}

/// Appends an enhanced packet block.
pub fn packet(out: &mut Vec<u8>, interface: u32, ts_ns: i64, frame: &[u8], original_len: u32) {
    let start = begin_packet(out, interface, ts_ns, frame, original_len);
    end_block(out, start);
}

/// The same, with the packet's number in another capture (`epb_packetid`).
pub fn numbered_packet(
    out: &mut Vec<u8>,
    interface: u32,
    ts_ns: i64,
    frame: &[u8],
    original_len: u32,
    number: u64,
) {
    let start = begin_packet(out, interface, ts_ns, frame, original_len);
    put_option(out, 5, &number.to_le_bytes());
    end_options(out);
    end_block(out, start);
}

fn begin_packet(
    out: &mut Vec<u8>,
    interface: u32,
    ts_ns: i64,
    frame: &[u8],
    original_len: u32,
) -> usize {
    let start = begin_block(out, 6);
    let ts = u64::try_from(ts_ns).unwrap_or(0);
    put_u32(out, interface);
    put_u32(out, (ts >> 32) as u32);
    put_u32(out, ts as u32);
    put_u32(out, frame.len() as u32);
    put_u32(out, original_len);
    out.extend_from_slice(frame);
    pad_from(out, start);
    start
}

/// A name resolution block under construction: [`Names::begin`], [`Names::record`] for each
/// address, [`Names::end`].
#[derive(Debug)]
#[must_use = "the block is not whole until `end`"]
pub struct Names<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Names<'a> {
    /// Begins a block at the end of `out`.
    pub fn begin(out: &'a mut Vec<u8>) -> Names<'a> {
        let start = begin_block(out, 4);
        Names { out, start }
    }

    /// Adds one address and its names, in the given order (readers that store one name use the
    /// last). Names are bytes without a zero. Omitted are an empty name, one with a zero in it, and
    /// one that would make the record longer than 65535 bytes. Without names there is no record.
    pub fn record<N: AsRef<[u8]>>(&mut self, addr: Addr, names: impl IntoIterator<Item = N>) {
        let start = self.out.len();
        put_u16(self.out, if addr.is_v4() { 1 } else { 2 });
        put_u16(self.out, 0);
        self.out.extend_from_slice(addr.octets());
        let names_start = self.out.len();
        for name in names {
            let name = name.as_ref();
            let len = self.out.len() - start - 4 + name.len() + 1;
            if !name.is_empty() && !name.contains(&0) && len <= usize::from(u16::MAX) {
                self.out.extend_from_slice(name);
                self.out.push(0);
            }
        }
        if self.out.len() == names_start {
            self.out.truncate(start);
            return;
        }
        let len = (self.out.len() - start - 4) as u16;
        self.out[start + 2..start + 4].copy_from_slice(&len.to_le_bytes());
        pad_from(self.out, start);
    }

    /// Ends the block.
    pub fn end(self) {
        put_u32(self.out, 0);
        end_block(self.out, self.start);
    }
}

/// Appends the header of a pcap file with nanoseconds.
pub fn pcap_header(out: &mut Vec<u8>, link_type: u16, snap_len: u32) {
    put_u32(out, 0xa1b2_3c4d);
    put_u16(out, 2);
    put_u16(out, 4);
    put_u32(out, 0);
    put_u32(out, 0);
    put_u32(out, snap_len);
    put_u32(out, u32::from(link_type));
}

/// Appends a record of a pcap file with nanoseconds.
pub fn pcap_record(out: &mut Vec<u8>, ts_ns: i64, frame: &[u8], original_len: u32) {
    let ts = u64::try_from(ts_ns).unwrap_or(0);
    put_u32(out, u32::try_from(ts / 1_000_000_000).unwrap_or(u32::MAX));
    put_u32(out, (ts % 1_000_000_000) as u32);
    put_u32(out, frame.len() as u32);
    put_u32(out, original_len);
    out.extend_from_slice(frame);
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Pads the field that began at `field_start` to a multiple of 4: `out` may begin before the file,
/// so its length is not used.
fn pad_from(out: &mut Vec<u8>, field_start: usize) {
    let len = out.len() - field_start;
    out.resize(field_start + len.next_multiple_of(4), 0);
}

fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    put_u16(out, code);
    put_u16(out, value.len() as u16);
    let start = out.len();
    out.extend_from_slice(value);
    pad_from(out, start);
}

fn end_options(out: &mut Vec<u8>) {
    put_u32(out, 0);
}

fn begin_block(out: &mut Vec<u8>, kind: u32) -> usize {
    let start = out.len();
    put_u32(out, kind);
    put_u32(out, 0);
    start
}

fn end_block(out: &mut Vec<u8>, start: usize) {
    let len = (out.len() - start + 4) as u32;
    put_u32(out, len);
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
}
