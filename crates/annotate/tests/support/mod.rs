//! What the tests of whole runs share: captures made on the spot, and runs with every output kept.
//!
//! [`Maker`] lays frames end to end: those of the golden captures, and lookups with flows made here.
//! Everything comes from a seed, so that a failure repeats.

// Each test program uses a part of it.
#![allow(dead_code)]

pub use larder_testkit::captures::recorded as golden;
pub use larder_testkit::frames::{Ends, tcp_frame as tcp, udp_frame as udp};
pub use larder_testkit::random::Random;

mod talks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_annotate::options::{Endpoint, Options, OutputFormat, Summary};
use larder_annotate::{Progress, run};
use larder_testkit::dns;
use larder_testkit::frames::{IPV4, ethernet, ipv4};
use larder_wire::capture::write::{interface, packet, pcap_header, pcap_record, section};
use larder_wire::capture::{self, Record};

#[allow(unused_imports)]
pub use talks::{is_in_order, long_traffic, traffic};

pub const ETHERNET: u16 = 1;
pub const SECOND_NS: i64 = 1_000_000_000;
const SNAP_LEN: u32 = 262_144;

/// Every format of this build.
pub const FORMATS: &[OutputFormat] = &[
    OutputFormat::Text,
    OutputFormat::Ecs,
    OutputFormat::Zeek,
    OutputFormat::Csv,
    OutputFormat::Ipfix,
    #[cfg(feature = "parquet")]
    OutputFormat::Parquet,
];

/// Numbers of cores with equal output; the others are compared with the first.
pub const CORES: [usize; 4] = [1, 2, 4, 7];

/// A packet of a capture.
#[derive(Clone)]
pub struct Frame {
    pub at_ns: i64,
    pub link_type: u16,
    pub bytes: Vec<u8>,
}

/// All packets of a capture file.
pub fn frames(path: &Path) -> Vec<Frame> {
    let bytes = std::fs::read(path).expect("a capture");
    let records = capture::records(&bytes).expect("a capture");
    let frame = |record: Record<'_>| Frame {
        at_ns: record.ts_ns,
        link_type: record.link_type,
        bytes: record.frame.to_vec(),
    };
    records.filter_map(|(_, record)| record.ok()).map(frame).collect()
}

/// Appends frames in order of time.
pub struct Maker {
    pub frames: Vec<Frame>,
    pub bytes: usize,
    pub random: Random,
    now_ns: i64,
    visits: u32,
}

impl Maker {
    pub fn new(seed: u64) -> Maker {
        let now_ns = 1_700_000_000 * SECOND_NS;
        Maker { frames: Vec::new(), bytes: 0, random: Random(seed), now_ns, visits: 0 }
    }

    pub fn pause(&mut self, ns: i64) {
        self.now_ns += ns;
    }

    pub fn push(&mut self, bytes: Vec<u8>) {
        self.now_ns += self.random.below(400_000) as i64;
        self.bytes += bytes.len();
        self.frames.push(Frame { at_ns: self.now_ns, link_type: ETHERNET, bytes });
    }

    /// Replays frames from now on; `moved` gives their outer IPv4 ends other addresses.
    pub fn replay(&mut self, frames: &[Frame], moved: u8) {
        let Some(first) = frames.first() else { return };
        let start_ns = self.now_ns;
        for frame in frames {
            // Recordings have pauses of minutes, which other flows need not wait for.
            let since_ns = (frame.at_ns - first.at_ns).min(20 * SECOND_NS);
            self.now_ns = self.now_ns.max(start_ns + since_ns);
            let mut frame = Frame { at_ns: self.now_ns, ..frame.clone() };
            let is_ipv4 = frame.bytes.get(12..15).is_some_and(|head| *head == [8, 0, 0x45]);
            if frame.link_type == ETHERNET && is_ipv4 && frame.bytes.len() >= 34 {
                frame.bytes[28] ^= moved;
                frame.bytes[32] ^= moved;
            }
            self.bytes += frame.bytes.len();
            self.frames.push(frame);
        }
    }

    /// A client queries a name, gets up to `addresses_max` addresses, and sends to one of them.
    pub fn visit(&mut self, addresses_max: u64, payload_max: u64) {
        self.visits += 1;
        let visit = self.visits;
        let client = [10, 0, self.random.below(4) as u8, self.random.below(200) as u8];
        let port = 1024 + self.random.below(60_000) as u16;
        let id = self.random.next() as u16;
        // Some names and addresses repeat, most are new.
        let host = match self.random.below(4) {
            0 => self.random.below(50) as u32,
            _ => visit,
        };
        let count = 1 + self.random.below(addresses_max);
        let addresses: Vec<[u8; 4]> = (0..count)
            .map(|_| match self.random.below(4) {
                0 => [203, 0, 113, self.random.below(250) as u8],
                _ => {
                    let [_, b, c, d] = (self.random.next() as u32).to_be_bytes();
                    [100, b, c, d]
                }
            })
            .collect();
        self.push(question(client, port, id, host));
        self.push(answer(client, port, id, host, &addresses));
        if payload_max == 0 {
            return;
        }
        let server = addresses[self.random.below(count) as usize];
        let ports = (port ^ 1, [443, 80, 8080, 25][self.random.below(4) as usize]);
        let (mut sequence, mut acknowledged) = (self.random.next() as u32, 0);
        self.push(tcp((client, server), ports, 0x02, sequence, &[]));
        self.push(tcp((server, client), (ports.1, ports.0), 0x12, acknowledged, &[]));
        (sequence, acknowledged) = (sequence.wrapping_add(1), acknowledged + 1);
        for _ in 0..self.random.below(4) {
            let payload = vec![self.random.next() as u8; self.random.below(payload_max) as usize];
            self.push(tcp((client, server), ports, 0x18, sequence, &payload));
            sequence = sequence.wrapping_add(payload.len() as u32);
        }
        match self.random.below(4) {
            // Left open: idle, evicted, or open at the end.
            0 => {}
            1 => self.push(tcp((server, client), (ports.1, ports.0), 0x04, acknowledged, &[])),
            _ => {
                self.push(tcp((client, server), ports, 0x11, sequence, &[]));
                self.push(tcp((server, client), (ports.1, ports.0), 0x11, acknowledged, &[]));
            }
        }
    }

    /// The frames of Ethernet as a pcap file.
    pub fn pcap(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes + 16 * self.frames.len() + 24);
        pcap_header(&mut out, ETHERNET, SNAP_LEN);
        for frame in self.frames.iter().filter(|frame| frame.link_type == ETHERNET) {
            pcap_record(&mut out, frame.at_ns, &frame.bytes, frame.bytes.len() as u32);
        }
        out
    }

    /// All frames as a pcapng file with an interface for each link type.
    pub fn pcapng(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes + 40 * self.frames.len());
        section(&mut out, "a test");
        let mut interfaces: Vec<u16> = Vec::new();
        for frame in &self.frames {
            let known = interfaces.iter().position(|link_type| *link_type == frame.link_type);
            let number = known.unwrap_or_else(|| {
                interface(&mut out, frame.link_type, SNAP_LEN);
                interfaces.push(frame.link_type);
                interfaces.len() - 1
            });
            let len = frame.bytes.len() as u32;
            packet(&mut out, number as u32, frame.at_ns, &frame.bytes, len);
        }
        out
    }
}

/// Recordings and visits in turn, until the capture holds `bytes`.
pub fn mixture(seed: u64, bytes: usize) -> Maker {
    let recordings: Vec<Vec<Frame>> = golden().iter().map(|path| frames(path)).collect();
    let mut maker = Maker::new(seed);
    let mut round = 0;
    while maker.bytes < bytes {
        let recording = &recordings[round % recordings.len()];
        maker.replay(recording, (round / recordings.len()) as u8);
        for _ in 0..30 {
            maker.visit(12, 1400);
        }
        match maker.random.below(20) {
            0 => maker.pause(61 * SECOND_NS),
            1 => maker.pause(301 * SECOND_NS),
            _ => {}
        }
        round += 1;
    }
    maker
}

const RESOLVER: [u8; 4] = [192, 0, 2, 53];

/// An Ethernet frame of IPv4 cut into fragments of at most `step` bytes of payload, a multiple of 8, in order.
pub fn fragments(frame: &[u8], step: usize, id: u16) -> Vec<Vec<u8>> {
    let (head, payload) = frame.split_at(34);
    let parts = payload.chunks(step).enumerate();
    parts
        .map(|(at, part)| {
            let mut out = head.to_vec();
            let offset = (at * step / 8) as u16;
            let more = u16::from((at + 1) * step < payload.len()) << 13;
            out[16..18].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
            out[18..20].copy_from_slice(&id.to_be_bytes());
            out[20..22].copy_from_slice(&(more | offset).to_be_bytes());
            out.extend_from_slice(part);
            out
        })
        .collect()
}

/// The IP packet of an Ethernet frame in another IPv4 packet.
pub fn in_ip_tunnel(ends: Ends, frame: &[u8]) -> Vec<u8> {
    ethernet(IPV4, &ipv4(ends, 4, &frame[14..]))
}

/// The same in GRE with a key.
pub fn in_gre(ends: Ends, key: u32, frame: &[u8]) -> Vec<u8> {
    let mut out = vec![0x20, 0, 8, 0];
    out.extend_from_slice(&key.to_be_bytes());
    out.extend_from_slice(&frame[14..]);
    ethernet(IPV4, &ipv4(ends, 47, &out))
}

/// An Ethernet frame in VXLAN.
pub fn in_vxlan(ends: Ends, vni: u32, frame: &[u8]) -> Vec<u8> {
    let mut out = vec![8, 0, 0, 0];
    out.extend_from_slice(&(vni << 8).to_be_bytes());
    out.extend_from_slice(frame);
    udp(ends, (50_000, 4789), &out)
}

/// An Ethernet frame in Geneve.
pub fn in_geneve(ends: Ends, vni: u32, frame: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 0x65, 0x58];
    out.extend_from_slice(&(vni << 8).to_be_bytes());
    out.extend_from_slice(frame);
    udp(ends, (50_000, 6081), &out)
}

/// An Ethernet frame with VLAN tags, the outer one first.
pub fn tagged(frame: &[u8], ids: &[u16]) -> Vec<u8> {
    let mut out = frame[..12].to_vec();
    for id in ids {
        out.extend_from_slice(&[0x81, 0]);
        out.extend_from_slice(&id.to_be_bytes());
    }
    out.extend_from_slice(&frame[12..]);
    out
}

fn name_of(host: u32) -> String {
    format!("h{host}.larder.example")
}

pub fn question(client: [u8; 4], port: u16, id: u16, host: u32) -> Vec<u8> {
    udp((client, RESOLVER), (port, 53), &dns::query(id, name_of(host), dns::A))
}

pub fn answer(client: [u8; 4], port: u16, id: u16, host: u32, addresses: &[[u8; 4]]) -> Vec<u8> {
    let message = dns::answer(&dns::query(id, name_of(host), dns::A), addresses, 30);
    udp((RESOLVER, client), (53, port), &message)
}

/// The mutations of a capture: some packets are cut into fragments, put in tunnels, tagged, moved,
/// repeated, lost, or damaged.
pub fn mutated(seed: u64) -> Maker {
    let mut maker = Maker::new(seed);
    for _ in 0..20 {
        maker.visit(3, 300);
    }
    let mut random = Random(seed ^ 0x5eed);
    let mut frames: Vec<Vec<u8>> = maker.frames.iter().map(|frame| frame.bytes.clone()).collect();
    let mut out = Maker::new(seed);
    // Few ends, so that flows of fragments meet.
    let ends = |random: &mut Random| {
        ([10, 9, 0, random.below(2) as u8], [10, 9, 1, random.below(2) as u8])
    };
    for frame in &mut frames {
        if random.below(3) == 0 {
            *frame = match random.below(4) {
                0 => in_ip_tunnel(ends(&mut random), frame),
                1 => in_gre(ends(&mut random), random.below(3) as u32, frame),
                _ => in_vxlan(ends(&mut random), random.below(3) as u32, frame),
            };
        }
        let mut parts = match random.below(2) {
            0 => {
                let step = [8, 24, 48, 96][random.below(4) as usize];
                fragments(frame, step, random.below(4) as u16)
            }
            _ => vec![frame.clone()],
        };
        for _ in 0..random.below(3) {
            let (one, other) = (random.below(parts.len() as u64), random.below(parts.len() as u64));
            parts.swap(one as usize, other as usize);
        }
        if random.below(4) == 0 && parts.len() > 1 {
            parts.remove(random.below(parts.len() as u64) as usize);
        }
        if random.below(6) == 0 {
            parts = parts.iter().map(|part| tagged(part, &[random.below(3) as u16])).collect();
        }
        for part in &mut parts {
            if random.below(12) == 0 {
                let at = 12 + random.below(part.len() as u64 - 12) as usize;
                part[at] ^= 1 << random.below(8);
            }
        }
        parts.into_iter().for_each(|part| out.push(part));
    }
    // Some are late: fragments of several datagrams then wait at one time.
    for _ in 0..frames.len() / 2 {
        let at = random.below(out.frames.len() as u64) as usize;
        let to = (at + random.below(30) as usize).min(out.frames.len() - 1);
        let frame = out.frames.remove(at);
        out.frames.insert(to, frame);
    }
    if random.below(4) == 0 {
        let at = random.below(out.frames.len() as u64) as usize;
        out.frames[at..].iter_mut().for_each(|frame| frame.at_ns += 40_000_000_000);
    }
    out
}

/// A number from the environment.
pub fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A folder for captures.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    pub fn keep(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("room for a capture");
        path
    }

    /// Writes a capture of these frames.
    pub fn capture(&self, frames: Vec<Vec<u8>>) -> PathBuf {
        let mut maker = Maker::new(1);
        frames.into_iter().for_each(|frame| maker.push(frame));
        self.keep("made.pcap", maker.pcap())
    }
}

/// A run over a capture that is logged as ECS.
pub fn ecs(path: &Path) -> Options {
    Options {
        read: vec![Endpoint::Path(path.to_owned())],
        format: OutputFormat::Ecs,
        names_budget_bytes: 8 << 20,
        ..Options::default()
    }
}

/// The output of a run.
pub struct Made {
    pub files: BTreeMap<String, Vec<u8>>,
    /// With the name of the damaged file taken out, which inputs of the same content differ in.
    pub summary: Summary,
}

/// Runs with every output, on `cores` cores.
pub fn made(options: &Options, cores: usize) -> Made {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let options = Options {
        cores,
        output: Endpoint::Path(at("log")),
        write_packets: Some(Endpoint::Path(at("packets.pcapng"))),
        directory: Some(at("directory")),
        names_save: Some(at("names")),
        ..options.clone()
    };
    let mut summary = run(&options, &Arc::new(Progress::default())).expect("a run");
    summary.damaged.values_mut().for_each(|damage| damage.first_file.clear());
    let mut files = BTreeMap::new();
    for folder in [folder.path(), &at("directory")] {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                let name = path.file_name().expect("a file").to_string_lossy().into_owned();
                files.insert(name, std::fs::read(&path).expect("an output"));
            }
        }
    }
    Made { files, summary }
}

impl Made {
    /// The log as text.
    pub fn log(&self) -> String {
        String::from_utf8(self.files["log"].clone()).expect("a log is ASCII")
    }

    /// The lines of a log with a header of one line, without it.
    pub fn lines(&self) -> Vec<String> {
        self.log().lines().skip(1).map(str::to_owned).collect()
    }

    /// The records of a log of ECS.
    pub fn records(&self) -> Vec<serde_json::Value> {
        self.log().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// What is different, if anything: the first place of each file, as text.
pub fn difference(a: &Made, b: &Made) -> Option<String> {
    let mut wrong = String::new();
    if a.summary != b.summary {
        wrong += &format!("summary\n  {:?}\n  {:?}\n", a.summary, b.summary);
    }
    if !a.files.keys().eq(b.files.keys()) {
        wrong += "other files\n";
    }
    for (name, left) in &a.files {
        let Some(right) = b.files.get(name).filter(|right| *right != left) else { continue };
        let same = left.iter().zip(right).take_while(|(a, b)| a == b).count();
        let start = left[..same].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let shown = |bytes: &[u8]| {
            let end = bytes.len().min(start + 300);
            String::from_utf8_lossy(&bytes[start.min(end)..end]).into_owned()
        };
        wrong += &format!(
            "{name}: {} and {} bytes, other from {same} on\n  {}\n  {}\n",
            left.len(),
            right.len(),
            shown(left),
            shown(right)
        );
    }
    (!wrong.is_empty()).then_some(wrong)
}

/// Runs on every number of cores; all must write the same as the first, which is returned.
pub fn same_on_all_cores(what: &str, options: &Options) -> Made {
    let first = made(options, CORES[0]);
    for &cores in &CORES[1..] {
        if let Some(difference) = difference(&first, &made(options, cores)) {
            panic!("{what}: {cores} cores differ from one\n{difference}");
        }
    }
    first
}
