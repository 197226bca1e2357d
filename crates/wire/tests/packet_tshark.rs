//! Every packet of the shared captures, and generated ones, against tshark's dissection.
//!
//! tshark prints all occurrences of a field, outermost first. `frame.protocols` says which layers
//! they belong to, so the innermost IP layer *before* an ICMP error's quotation is found by
//! counting. tshark's own reassembly is off: this compares single packets.

mod packet_support;

use std::path::Path;
use std::process::Command;

use larder_wire::Addr;
use larder_wire::fragment::{Outcome, Reassembler};
use larder_wire::packet::decode;
use packet_support::{Frame, generated, list, read_capture, skip, write_pcap};

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

/// What both sides say of one packet; `None` where there is no IP in it.
#[derive(Debug, PartialEq, Eq)]
struct View {
    src: Addr,
    dst: Addr,
    ip_bytes: u32,
    /// Layer, ports.
    transport: Option<(&'static str, u16, u16)>,
    /// Flags, sequence number, window, payload by the headers.
    tcp: Option<(u8, u32, u16, u32)>,
}

/// tshark's lines for a file, or nothing when it is not installed. `defragment` is its preference.
fn tshark(path: &Path, defragment: &str, fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(path).args(["-T", "fields", "-E", "separator=|"]);
    // pcapng's custom blocks would be lines, too.
    command.args(["-Y", "frame.encap_type"]);
    command.args(["-o", &format!("ip.defragment:{defragment}")]);
    command.args(["-o", &format!("ipv6.defragment:{defragment}")]);
    command.args(["-o", "tcp.desegment_tcp_streams:FALSE"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).expect("tshark writes UTF-8");
    Some(text.lines().map(str::to_owned).collect())
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

/// What comparing found.
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

/// On every packet of every capture, tshark and we agree on the innermost addresses, ports,
/// IP length and TCP header.
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

/// Fragments come together in the same packets as in tshark, to datagrams of the same length.
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
