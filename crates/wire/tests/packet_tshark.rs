//! Every packet of the shared captures, and generated ones, compared with tshark's dissection.
//!
//! tshark prints all occurrences of a field, outermost first. `frame.protocols` shows which layers
//! they belong to. So the test counts layers to find the innermost IP layer *before* an ICMP
//! error's quotation. tshark's own reassembly is off: the tests compare single packets.

mod packet_support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use larder_testkit::captures as list;
use larder_testkit::frames::{Frame, read_capture};
use larder_testkit::process;
use larder_testkit::skip::skip;
use larder_wire::Addr;
use larder_wire::fragment::{Outcome, Reassembler};
use larder_wire::packet::{addresses, decode};
use packet_support::{generated, write_pcap};

const FIELDS: [&str; 18] = [
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ip.len",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.plen",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.flags",
    "tcp.seq_raw",
    "tcp.window_size_value",
    "tcp.len",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    "sctp.srcport",
    "sctp.dstport",
];

/// Both readings of one packet; `None` if it has no IP.
#[derive(Debug, PartialEq, Eq)]
struct View {
    src: Addr,
    dst: Addr,
    ip_bytes: u32,
    /// Layer, ports.
    transport: Option<(&'static str, u16, u16)>,
    /// Flags, sequence number, window, payload length by the headers.
    tcp: Option<(u8, u32, u16, u32)>,
}

/// tshark's lines for a file; `None` if it is not installed. `defragment` is its preference.
fn tshark(path: &Path, defragment: &str, fields: &[&str]) -> Option<Vec<String>> {
    // Custom blocks of pcapng would also give lines.
    let options = ["-n", "-E", "separator=|", "-Y", "frame.encap_type"];
    let ip = [format!("ip.defragment:{defragment}"), format!("ipv6.defragment:{defragment}")];
    let preferences = ["-o", &ip[0], "-o", &ip[1], "-o", "tcp.desegment_tcp_streams:FALSE"];
    process::tshark(path, &[&options[..], &preferences].concat(), fields)
}

/// Occurrence `nth` of a field.
fn occurrence<'a>(columns: &[&'a str], name: &str, nth: usize) -> Option<&'a str> {
    let index = FIELDS.iter().position(|field| *field == name).expect("a field asked for");
    columns[index].split(',').nth(nth).filter(|text| !text.is_empty())
}

fn number(text: &str) -> u32 {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).expect("a hexadecimal number"),
        None => text.parse().expect("a number"),
    }
}

fn view_of_tshark(line: &str) -> Option<View> {
    let columns: Vec<&str> = line.split('|').collect();
    let layers: Vec<&str> =
        columns[0].split(':').take_while(|layer| !layer.starts_with("icmp")).collect();
    let innermost = layers.iter().rposition(|layer| *layer == "ip" || *layer == "ipv6")?;
    let count = |name: &str| layers.iter().filter(|layer| **layer == name).count();
    let ip = layers[innermost];
    let nth = layers[..innermost].iter().filter(|layer| **layer == ip).count();
    let get = |field: &str| occurrence(&columns, &format!("{ip}.{field}"), nth);
    let addr = |text: &str| Addr::from(text.parse::<std::net::IpAddr>().expect("an address"));
    let ip_bytes = match ip {
        "ip" => number(get("len")?),
        _ => 40 + number(get("plen")?),
    };
    let mut view = View {
        src: addr(get("src")?),
        dst: addr(get("dst")?),
        ip_bytes,
        transport: None,
        tcp: None,
    };
    for layer in ["tcp", "udp", "sctp"] {
        if layers[innermost..].contains(&layer) {
            let nth = count(layer) - 1;
            let port = |end| {
                let text = occurrence(&columns, &format!("{layer}.{end}port"), nth)?;
                Some(number(text) as u16)
            };
            view.transport = Some((layer, port("src")?, port("dst")?));
            if layer == "tcp" {
                let get = |field: &str| {
                    occurrence(&columns, &format!("tcp.{field}"), nth).map_or(0, number)
                };
                let (flags, seq) = (get("flags") as u8, get("seq_raw"));
                view.tcp = Some((flags, seq, get("window_size_value") as u16, get("len")));
            }
        }
    }
    Some(view)
}

fn view_of_ours(link_type: u16, frame: &[u8]) -> Option<View> {
    let packet = decode(link_type, frame).ok()?;
    let layer = match packet.protocol {
        6 => Some("tcp"),
        17 => Some("udp"),
        132 => Some("sctp"),
        _ => None,
    };
    let is_later = packet.fragment.is_some_and(|fragment| fragment.offset != 0);
    let tcp = (packet.tcp_flags, packet.tcp_seq, packet.tcp_window, packet.payload_bytes);
    Some(View {
        src: packet.src,
        dst: packet.dst,
        ip_bytes: packet.ip_bytes,
        transport: layer
            .filter(|_| !is_later)
            .map(|layer| (layer, packet.src_port, packet.dst_port)),
        tcp: (packet.protocol == 6 && !is_later).then_some(tcp),
    })
}

/// The results of comparisons.
#[derive(Default)]
struct Tally {
    /// IP packets that both read alike.
    alike: usize,
    differences: Vec<String>,
}

/// Compares a file's packets.
fn compare(
    tally: &mut Tally,
    name: &str,
    lines: &[String],
    frames: impl ExactSizeIterator<Item = (u16, Vec<u8>)>,
) {
    assert_eq!(lines.len(), frames.len(), "{name}: both read all packets");
    for (index, (line, (link_type, frame))) in lines.iter().zip(frames).enumerate() {
        let (theirs, ours) = (view_of_tshark(line), view_of_ours(link_type, &frame));
        if theirs != ours {
            let number = index + 1;
            let text = format!("{name} {number}: tshark {theirs:?}\n  ours {ours:?} {line}");
            tally.differences.push(text);
        } else {
            tally.alike += usize::from(ours.is_some());
        }
    }
}

/// On every packet of every capture, tshark and larder agree on the innermost addresses, ports, IP
/// length and TCP header.
#[test]
fn captures_as_tshark_reads_them() {
    let mut tally = Tally::default();
    for path in &list::all() {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let Some(lines) = tshark(path, "FALSE", &FIELDS) else {
            skip("captures_as_tshark_reads_them", "tshark is not installed");
            return;
        };
        let frames = read_capture(path).into_iter().map(|frame| (frame.link_type, frame.bytes));
        compare(&mut tally, &name, &lines, frames);
    }
    assert!(tally.differences.is_empty(), "{}", tally.differences.join("\n"));
    assert!(tally.alike > 1_000, "only {} packets compared", tally.alike);
}

/// The same for generated frames with every encapsulation.
#[test]
fn generated_as_tshark_reads_them() {
    let mut files: Vec<(u16, Vec<Vec<u8>>)> = vec![(1, generated::ethernet_frames())];
    for (link_type, frame) in generated::other_frames() {
        match files.iter_mut().find(|(kind, _)| *kind == link_type) {
            Some((_, frames)) => frames.push(frame),
            None => files.push((link_type, vec![frame])),
        }
    }
    let mut tally = Tally::default();
    for (link_type, frames) in files {
        let name = format!("larder-packet-{}-{link_type}.pcap", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, write_pcap(link_type, &frames)).expect("a writable folder");
        let lines = tshark(&path, "FALSE", &FIELDS);
        std::fs::remove_file(&path).expect("the file written above");
        let Some(lines) = lines else {
            skip("generated_as_tshark_reads_them", "tshark is not installed");
            return;
        };
        let name = format!("link type {link_type}");
        let frames: Vec<_> = frames.into_iter().map(|frame| (link_type, frame)).collect();
        compare(&mut tally, &name, &lines, frames.into_iter());
    }
    assert!(tally.differences.is_empty(), "{}", tally.differences.join("\n"));
    assert!(tally.alike > 500, "only {} packets compared", tally.alike);
}

/// larder reassembles fragments at the same packets as tshark, to datagrams of the same length.
#[test]
fn fragments_as_tshark_joins_them() {
    let fields = ["ip.reassembled.length", "ipv6.reassembled.length"];
    let mut joined = 0;
    for path in &list::all() {
        let frames = read_capture(path);
        let is_fragment = |frame: &Frame| {
            decode(frame.link_type, &frame.bytes).is_ok_and(|p| p.fragment.is_some())
        };
        if !frames.iter().any(is_fragment) {
            continue;
        }
        let Some(lines) = tshark(path, "TRUE", &fields) else {
            skip("fragments_as_tshark_joins_them", "tshark is not installed");
            return;
        };
        let mut table = Reassembler::new(1 << 20);
        for (index, frame) in frames.iter().enumerate() {
            let theirs = lines[index].split('|').find(|text| !text.is_empty()).map(number);
            let ours = decode(frame.link_type, &frame.bytes).ok().and_then(|packet| {
                let fragment = packet.fragment?;
                let at = fragment.data_offset as usize;
                let data = &frame.bytes[at..at + fragment.data_len as usize];
                match table.push(&packet, data, index as u64, 0).outcome {
                    Outcome::Complete { payload, .. } => Some(payload.len() as u32),
                    _ => None,
                }
            });
            assert_eq!(ours, theirs, "{} {}", path.display(), index + 1);
            joined += u32::from(ours.is_some());
        }
    }
    assert!(joined >= 2, "only {joined} datagrams joined");
}

/// All addresses that tshark shows in IP headers and in ARP.
fn addresses_of_tshark(line: &str) -> BTreeSet<Addr> {
    let fields = line.split('|').flat_map(|field| field.split(','));
    fields
        .filter(|text| !text.is_empty())
        .map(|text| Addr::from(text.parse::<std::net::IpAddr>().expect("an address")))
        .collect()
}

/// Frames in which larder decodes no packet, or not all layers that have addresses.
fn odd_frames() -> Vec<Vec<u8>> {
    use packet_support::layer::*;
    let (inner, inner6) = (ipv4(7, 17, &udp(5, 6, &[1; 40])), ipv6(7, 17, &udp(5, 6, &[1; 40])));
    let gre4 = ipv4(8, 47, &gre(0, 0x0800, &[], &inner));
    let arp = |operation, hardware_len: usize| {
        let (one, other) = (vec![2; hardware_len], vec![3; hardware_len]);
        let head = [0, 1, 8, 0, hardware_len as u8, 4, 0, operation];
        join(&[&head, &one, &[10, 9, 8, 7], &other, &[10, 9, 8, 6]])
    };
    let error = |kind: u8, quoted: &[u8]| join(&[&[kind, 1, 0, 0, 0, 0, 0, 0], quoted]);
    let mut frames = vec![ethernet(0x0806, &arp(1, 6)), ethernet(0x8035, &arp(3, 6))];
    frames.push(ethernet(0x8100, &vlan(0x0806, &arp(2, 6))));
    frames.push(ethernet(0x0800, &ipv4(1, 17, &udp(9, 4789, &vxlan(&frames[0])))));
    for kind in [3, 5, 11, 12, 8] {
        // tshark shows no fields of the inner packet of one that a redirect quotes.
        let quoted = if kind == 5 { &inner } else { &gre4 };
        frames.push(ethernet(0x0800, &ipv4(1, 1, &error(kind, quoted))));
        frames.push(ethernet(0x0800, &ipv4(1, 1, &error(kind, &gre4[..28]))));
    }
    for kind in [1, 2, 3, 4, 128] {
        frames.push(ethernet(0x86dd, &ipv6(1, 58, &error(kind, &inner6))));
    }
    // Transport headers that contradict themselves, in a tunnel and outside.
    for transport in [tcp(1, 2, 0, &[], &[])[..13].to_vec(), vec![0, 1, 0, 2, 0, 3, 0, 0], vec![0]]
    {
        for protocol in [6, 17] {
            let broken = ipv4(3, protocol, &transport);
            frames.push(ethernet(0x0800, &ipv4(4, 47, &gre(0, 0x0800, &[], &broken))));
            frames.push(ethernet(0x0800, &broken));
            frames.push(ethernet(0x86dd, &ipv6(3, protocol, &transport)));
        }
    }
    frames
}

/// Compares the addresses of a file's packets; false if tshark is not installed. `is_cut`: the
/// frames are truncated, and tshark often stops before the last address.
fn compare_addresses(path: &Path, is_cut: bool, tally: &mut Tally) -> bool {
    let fields = ["ip.addr", "ipv6.addr", "arp.src.proto_ipv4", "arp.dst.proto_ipv4"];
    let Some(lines) = tshark(path, "FALSE", &fields) else { return false };
    let frames = read_capture(path);
    assert_eq!(lines.len(), frames.len(), "{}: both read all packets", path.display());
    for (index, (line, frame)) in lines.iter().zip(frames).enumerate() {
        let theirs = addresses_of_tshark(line);
        let mut ours = BTreeSet::new();
        addresses(frame.link_type, &frame.bytes, &mut |addr| {
            ours.insert(addr);
        });
        // tshark does not dissect the payload of a fragment unless it reassembles the datagram.
        let is_first = decode(frame.link_type, &frame.bytes)
            .is_ok_and(|packet| packet.fragment.is_some_and(|of| of.offset == 0));
        if ours == theirs || (is_cut || is_first) && ours.is_superset(&theirs) {
            tally.alike += usize::from(!ours.is_empty());
        } else {
            let name = path.display();
            let text = format!("{name} {}: tshark {theirs:?} ours {ours:?}", index + 1);
            tally.differences.push(text);
        }
    }
    true
}

/// On every packet of every capture, and of generated frames with every encapsulation, larder finds
/// the addresses that tshark shows. They are in IP headers (outer, inner and quoted) and in ARP. In
/// truncated frames larder finds at least those.
#[test]
fn addresses_as_tshark_shows_them() {
    let folder = std::env::temp_dir().join(format!("larder-addresses-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let write = |name: &str, link_type: u16, frames: &[Vec<u8>]| {
        let path = folder.join(format!("{name}-{link_type}.pcap"));
        std::fs::write(&path, write_pcap(link_type, frames)).expect("a writable folder");
        path
    };
    let ethernet = [generated::ethernet_frames(), odd_frames()].concat();
    let cut =
        |frame: &Vec<u8>| [frame.len() * 3 / 4, frame.len() / 2].map(|end| frame[..end].to_vec());
    let cut: Vec<Vec<u8>> = ethernet.iter().flat_map(cut).collect();
    let cut = write("cut", 1, &cut);
    let mut paths: Vec<PathBuf> = list::all();
    paths.push(write("whole", 1, &ethernet));
    let mut others = generated::other_frames();
    others.sort();
    for of_link in others.chunk_by(|one, other| one.0 == other.0) {
        let frames: Vec<Vec<u8>> = of_link.iter().map(|(_, frame)| frame.clone()).collect();
        paths.push(write("whole", of_link[0].0, &frames));
    }
    let mut tally = Tally::default();
    let is_installed = paths.iter().all(|path| compare_addresses(path, false, &mut tally))
        && compare_addresses(&cut, true, &mut tally);
    std::fs::remove_dir_all(&folder).expect("the folder made above");
    if !is_installed {
        skip("addresses_as_tshark_shows_them", "tshark is not installed");
        return;
    }
    assert!(tally.differences.is_empty(), "{}", tally.differences.join("\n"));
    assert!(tally.alike > 1_500, "only {} packets compared", tally.alike);
}
