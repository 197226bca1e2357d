//! Packets and batches made by hand.
#![allow(dead_code, reason = "each test uses its part")]

pub mod world;

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_serve::log::{Format, Level, Log};
use larder_store::{Batch, FlowEvent, FlowKey, Interface, NameRole, Options, Store};
use larder_testkit::frames;
pub use larder_testkit::frames::transport_sum;
use larder_testkit::wait::until_so;
use larder_wire::capture::write;
use larder_wire::{Addr, Name, packet};

pub fn interfaces() -> Vec<Interface> {
    vec![
        Interface { name: "eth0".into(), link_type: 1, snap_bytes: 0 },
        Interface { name: "tun0".into(), link_type: 101, snap_bytes: 0 },
    ]
}

/// Small segments, flushed at once.
pub fn options(directory: &Path) -> Options {
    let mut options = Options::new(directory, 1 << 30);
    options.segment_bytes = 4 << 10;
    options.memory_bytes = 8 << 20;
    options.flush_ms = 1;
    options.log = Log::new("store", Level::Info, Format::Text);
    options
}

/// The same, and segments are compressed if `is_compressed`: all of them at the end.
pub fn options_of(directory: &Path, is_compressed: bool) -> Options {
    let (compress, finishes_work) = (is_compressed, is_compressed);
    Options { compress, finishes_work, ..options(directory) }
}

/// Ethernet, IPv4, UDP, with right checksums.
pub fn udp(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16, payload: &[u8]) -> Vec<u8> {
    summed(src, dst, 17, frames::udp((sport, dport), payload))
}

/// Ethernet, IPv4, TCP.
pub fn tcp(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16, payload: &[u8]) -> Vec<u8> {
    summed(src, dst, 6, frames::tcp((sport, dport), 0x10, 1, payload))
}

/// Ethernet, IPv6, TCP; the ends are the last byte of an address and a port.
pub fn tcp6(src: (u8, u16), dst: (u8, u16), payload: &[u8]) -> Vec<u8> {
    let transport = frames::tcp((src.1, dst.1), 0x10, 1, payload);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend_from_slice(&(transport.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[6, 64]);
    for (last, _) in [src, dst] {
        packet.extend_from_slice(&[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend_from_slice(&transport);
    ethernet(&packet, 0x86dd)
}

fn summed(src: [u8; 4], dst: [u8; 4], protocol: u8, mut transport: Vec<u8>) -> Vec<u8> {
    let at = if protocol == 6 { 16 } else { 6 };
    let sum = transport_sum(&src, &dst, protocol, &transport);
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    ethernet(&ipv4(src, dst, protocol, 0, &transport), 0x0800)
}

/// `fragment`: more fragments, and the offset in units of 8 bytes, as in the header.
pub fn ipv4(src: [u8; 4], dst: [u8; 4], protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    frames::ipv4_fragment((src, dst), protocol, (7, fragment), payload)
}

pub fn ethernet(payload: &[u8], kind: u16) -> Vec<u8> {
    frames::ethernet(kind, payload)
}

/// The key of a frame on interface 0.
pub fn key(frame: &[u8]) -> FlowKey {
    FlowKey::of(&packet::decode(1, frame).expect("a frame of a flow")).0
}

/// A batch in the making.
#[derive(Default)]
pub struct Made {
    pub blocks: Vec<u8>,
    pub offsets: Vec<u32>,
    pub events: Vec<FlowEvent>,
}

impl Made {
    pub fn packet(&mut self, interface: u32, ts_ns: i64, frame: &[u8]) {
        self.offsets.push(self.blocks.len() as u32);
        write::packet(&mut self.blocks, interface, ts_ns, frame, frame.len() as u32);
    }

    /// Appends it; `next` is the number of its first packet, and then of the next batch's.
    pub fn append(&self, store: &mut Store, next: &mut u64) {
        store
            .append(&Batch {
                blocks: &self.blocks,
                offsets: &self.offsets,
                first_packet: *next,
                events: &self.events,
            })
            .expect("a sound batch");
        *next += self.offsets.len() as u64;
    }
}

pub fn event(key: FlowKey, first_packet: u64, name: &str) -> FlowEvent {
    FlowEvent {
        key,
        first_packet,
        start_ns: 0,
        end_packet: None,
        last_ns: 0,
        source_is_low: true,
        names: vec![(NameRole::Destination, Name::from_text(name.as_bytes()).expect("a name"))],
        choices: [None; 2],
    }
}

pub fn addr(bytes: [u8; 4]) -> Addr {
    Addr::v4(bytes)
}

/// Names of the files of a folder, in order.
pub fn files(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("plain names"))
        .collect();
    names.sort();
    names
}

/// Waits until every byte that was appended is in its file.
pub fn wait_until_written(store: &Store) {
    let counts = store.counts();
    let (written, all) = (&counts.bytes_written, &counts.bytes);
    let of = |count: &AtomicU64| count.load(Ordering::Acquire);
    until_so("all bytes are written", || of(written) >= of(all));
}

/// Copies the files of a folder, as a kill would leave them.
pub fn copy_files(from: &Path, to: &Path) {
    for name in files(from) {
        std::fs::copy(from.join(&name), to.join(&name)).expect("room for a copy");
    }
}

/// The frames of a capture, with their times.
pub fn frames(file: &[u8]) -> Vec<(i64, Vec<u8>)> {
    let records = larder_wire::capture::records(file).expect("a capture");
    let sound = records.map(|(at, record)| record.unwrap_or_else(|why| panic!("{why:?} at {at}")));
    sound.map(|record| (record.ts_ns, record.frame.to_vec())).collect()
}

/// All frames of the folder's segments, closed or not.
pub fn all_frames(directory: &Path) -> Vec<(i64, Vec<u8>)> {
    files(directory)
        .iter()
        .filter(|name| name.ends_with(".pcapng") || name.ends_with(".pcapng.zst"))
        .flat_map(|name| frames(&content(&directory.join(name))))
        .collect()
}

/// An index of the version before packets had other addresses than the ends of their flows.
pub fn of_version_1(index: &[u8]) -> Vec<u8> {
    const SHIFT: u64 = 2 * 16;
    let long = |at: usize| u64::from_le_bytes(*index[at..].first_chunk().unwrap());
    let header_bytes = 8 + 7 * 8 + 8 * 16 + 16 + 4;
    let end = long(64 + 6 * 16) as usize;
    let body = &index[header_bytes..end];
    let mut out = b"LARDERI1".to_vec();
    out.extend_from_slice(&index[8..64]);
    for section in 0..6 {
        out.extend_from_slice(&(long(64 + section * 16) - SHIFT).to_le_bytes());
        out.extend_from_slice(&long(64 + section * 16 + 8).to_le_bytes());
    }
    let mut checksums: Vec<u8> =
        body.chunks(4096).flat_map(|page| crc32fast::hash(page).to_le_bytes()).collect();
    checksums.extend_from_slice(&crc32fast::hash(&checksums).to_le_bytes());
    out.extend_from_slice(&(end as u64 - SHIFT).to_le_bytes());
    out.extend_from_slice(&(checksums.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    [out, body.to_vec(), checksums].concat()
}

/// The bytes of a file, decompressed if it is compressed.
pub fn content(path: &Path) -> Vec<u8> {
    let file = std::fs::File::open(path).expect("a segment");
    let (mut decoded, mut content) =
        (larder_io::decode::decoder(file).expect("a file").0, Vec::new());
    decoded.read_to_end(&mut content).expect("sound frames");
    content
}

/// Appends 200 packets, in batches of ten, each by the host that `host_of` gives it.
pub fn append_packets(store: &mut Store, host_of: impl Fn(u8) -> u8) {
    let mut next = 1;
    for batch in 0..20 {
        let mut made = Made::default();
        for number in 0..10 {
            let host = [10, 0, 0, host_of(number)];
            let frame = udp(host, 1, [10, 0, 1, 1], 53, &[number; 900]);
            made.packet(0, batch * 10 + i64::from(number), &frame);
        }
        made.append(store, &mut next);
    }
}
