//! `larder-lab bench live`: live capture compared with the limit of the kernel's rings.
//!
//! All measuring is done by `larder_bench::live`; here are the frames, the decoding, and what is printed.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use larder_annotate::decode::{Decoded, Keying, decode};
use larder_bench::live::{Measured, Plan, Program, Stage, run};
use larder_bench::result_table::{Cell, Column, ResultTable};
use larder_bench::sample::Median;
use larder_io::batch::Batch;
use larder_settings::exit::{DONE, Failure, Outcome};
use larder_settings::terminal::eprint_quietly;
use larder_settings::terminal::print;
use larder_wire::udp_frame::{FrameAddresses, HEADERS_V4};
use serde_json::{Map, Value, json};

use super::printer::{Format, failure};
use crate::settings::bench_live::BenchLive;

/// The last by AF_XDP, where that is asked for.
const STAGES: [&str; 7] = ["walk", "source", "decode", "annotate", "store", "page", "xdp"];
/// Clients of the page in the stage `page`.
const CLIENTS: usize = 10;
/// Bytes of packets that are kept in the stages `store` and `page`: as a ring it is used many times over.
const STORE_BYTES: u64 = 1 << 30;

/// Frames in the row that is sent: some of each flow, and DNS answers among them.
const FRAMES_MIN: usize = 2000;
const ANSWER_EVERY: usize = 500;
const ANSWER_BYTES: usize = 100;

/// Runs the command.
pub fn bench_live(settings: &BenchLive) -> Outcome {
    let format = Format::of(settings.format);
    let mut rows = Vec::new();
    let wanted: Vec<&str> = settings.stages.iter().map(String::as_str).collect();
    if let Some(word) = wanted.iter().find(|word| !STAGES.contains(word)) {
        return Err(Failure::usage(format!(
            "--stages: unknown stage '{word}'; known: {}",
            STAGES.join(", ")
        )));
    }
    let is_wanted = |stage: &&&str| match wanted.as_slice() {
        [] => settings.xdp || **stage != "xdp",
        wanted => wanted.contains(*stage),
    };
    let stages: Vec<&str> = STAGES.iter().filter(is_wanted).copied().collect();
    for size in sizes(&settings.sizes)? {
        let plan = Plan {
            frames: frames(settings.flows, size),
            measured: Duration::from_millis(settings.measured_ms),
            frames_per_s: settings.rate,
            rings: settings.rings,
            ring_bytes: settings.ring,
            xdp: false,
        };
        let rounds = settings.rounds;
        let mut measured = [const { Vec::new() }; STAGES.len()];
        for round in 1..=rounds {
            for (at, name) in stages.iter().enumerate() {
                eprint_quietly(&format!("{size} B, round {round} of {rounds}: {name}"));
                measured[at].push(stage(name, &plan)?);
            }
        }
        for (name, rounds) in stages.iter().zip(measured) {
            let row = Medians::of(name, size, rounds);
            match format {
                Format::Json => print(&row.json()).map(drop)?,
                Format::Tables(_) => rows.push(row),
            }
        }
    }
    match format {
        Format::Json => Ok(DONE),
        Format::Tables(style) => print(&table(&rows).draw(style)),
    }
}

fn stage(name: &str, plan: &Plan) -> Result<Measured, Failure> {
    let mut decoded = Decoded::default();
    let mut packets = 0;
    let program = match name {
        "annotate" | "store" | "page" => Some(program(name)?),
        _ => None,
    };
    let mut work = |batch: &Batch| {
        decode(batch, 1, Keying { seed: 0, ignores_vlan: false }, &mut decoded);
        packets += u64::from(decoded.packets);
    };
    let plan = Plan { xdp: name == "xdp", ..plan.clone() };
    let measured = run(
        &plan,
        match (name, &program) {
            (_, Some(program)) => Stage::Program(program),
            ("walk", _) => Stage::Walk,
            ("source" | "xdp", _) => Stage::Source,
            _ => Stage::Work(&mut work),
        },
    );
    if let Some(program) = &program {
        // The files of a run are of no use; if they stay, they do no harm.
        let _ = std::fs::remove_dir_all(&program.directory);
    }
    let measured = measured.map_err(|error| failure("bench live", error))?;
    if name == "decode" && packets != measured.read.received {
        return Err(Failure::usage(format!(
            "{packets} packets decoded of {} received",
            measured.read.received
        )));
    }
    Ok(measured)
}

/// larder, in a folder of its own.
fn program(name: &str) -> Result<Program, Failure> {
    let path = crate::larder();
    if !path.is_file() {
        return Err(Failure::usage(format!(
            "{path:?}: larder itself is measured too, and is not there; cargo build --release makes it"
        )));
    }
    let directory = std::env::temp_dir().join(format!("larder-bench-live-{}", std::process::id()));
    std::fs::create_dir_all(&directory)
        .map_err(|error| Failure::file("the folder for temporary files", &error, "set TMPDIR"))?;
    Ok(Program {
        path,
        directory,
        store_bytes: if name == "annotate" { 0 } else { STORE_BYTES },
        clients: if name == "page" { CLIENTS } else { 0 },
    })
}

/// The sizes of a list.
fn sizes(list: &str) -> Result<Vec<usize>, Failure> {
    list.split(',')
        .map(|word| match word.trim().parse() {
            Ok(size @ 60..=1514) => Ok(size),
            _ => Err(Failure::usage(format!(
                "--sizes: '{word}' is none; name bytes from 60 to 1514, as in 60,1500"
            ))),
        })
        .collect()
}

/// Frames of `flows` flows over UDP; one in [`ANSWER_EVERY`] is a response that names an address of them.
fn frames(flows: usize, size: usize) -> Vec<Vec<u8>> {
    let count = FRAMES_MIN.max(flows);
    (0..count)
        .map(|n| {
            let flow = (n % flows) as u32;
            let client = Ipv4Addr::from(0x0a00_0000 + flow % 250 + 1);
            let server = Ipv4Addr::from(0xc633_6400 + flow % 200 + 1);
            if n % ANSWER_EVERY == 0 {
                let from = SocketAddr::from(([10, 0, 1, 1], 53));
                let message = answer(n, server);
                return frame(from, (client, 30_000).into(), ANSWER_BYTES, &message);
            }
            let port = 1024 + (flow / 250) as u16;
            frame((client, port).into(), (server, 443).into(), size, &[])
        })
        .collect()
}

/// A frame of `size` bytes with a message at the beginning of what it carries.
fn frame(from: SocketAddr, to: SocketAddr, size: usize, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; size.max(HEADERS_V4 + message.len())];
    frame[HEADERS_V4..][..message.len()].copy_from_slice(message);
    let ends = FrameAddresses {
        peer: to,
        local: from,
        peer_mac: [2, 0, 0, 0, 0, 1],
        local_mac: [2, 0, 0, 0, 0, 2],
    };
    let message_bytes = frame.len() - HEADERS_V4;
    let sealed = ends.seal(message_bytes, &mut frame);
    debug_assert_eq!(sealed, Some(frame.len()));
    frame
}

/// An answer: a name has an address.
fn answer(id: usize, address: Ipv4Addr) -> Vec<u8> {
    let mut message = (id as u16).to_be_bytes().to_vec();
    message.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
    let label = format!("host{id}");
    message.push(label.len() as u8);
    message.extend(label.as_bytes());
    message.extend(b"\x07example\x03com\x00\x00\x01\x00\x01");
    message.extend(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x01\x2c\x00\x04");
    message.extend(address.octets());
    message
}

/// What the rounds of a stage gave: medians and sums.
struct Medians<'a> {
    stage: &'a str,
    size: usize,
    rounds: Vec<Measured>,
    sent_per_s: f64,
    bits_per_s: f64,
    read_per_s: f64,
    /// Of the reader's thread, a packet.
    reader_ns: f64,
    /// Of the generator's thread, a packet.
    sender_ns: f64,
}

impl Medians<'_> {
    fn of(stage: &str, size: usize, rounds: Vec<Measured>) -> Medians<'_> {
        let median = |figure: &dyn Fn(&Measured) -> f64| {
            Median::of(&rounds.iter().map(figure).collect::<Vec<f64>>()).value
        };
        Medians {
            stage,
            size,
            sent_per_s: median(&|m| m.sent.frames as f64 / m.seconds),
            bits_per_s: median(&|m| m.sent.bytes as f64 * 8.0 / m.seconds),
            read_per_s: median(&|m| m.read.received as f64 / m.seconds),
            reader_ns: median(&|m| m.read.reader_ns / (m.read.received as f64).max(1.0)),
            sender_ns: median(&|m| m.sender_ns / (m.sent.frames as f64).max(1.0)),
            rounds,
        }
    }

    fn total(&self, figure: fn(&Measured) -> u64) -> u64 {
        self.rounds.iter().map(figure).sum()
    }

    fn json(&self) -> String {
        let line = json!({
            "size": self.size,
            "stage": self.stage,
            "rounds": self.rounds.len(),
            "sent_per_s": self.sent_per_s.round(),
            "bits_per_s": self.bits_per_s.round(),
            "read_per_s": self.read_per_s.round(),
            "sent": self.total(|m| m.sent.frames),
            "read": self.total(|m| m.read.received),
            "dropped": self.total(|m| m.read.dropped),
            "reader_ns_per_packet": tenths(self.reader_ns),
            "sender_ns_per_packet": tenths(self.sender_ns),
            "not_kept": self.total(|m| m.read.not_kept),
            "fetched": self.total(|m| m.read.fetched),
            "threads": self.threads(),
        });
        format!("{line}\n")
    }

    /// What each of the program's threads took, ns a packet: the workers receive, decode, name and write; `store`
    /// writes packets.
    fn threads(&self) -> Map<String, Value> {
        let Some(last) = self.rounds.last() else { return Map::new() };
        let each = last.read.threads_ns.iter().filter(|(_, ns)| **ns > 0.0);
        each.map(|(name, ns)| (name.clone(), tenths(ns / (last.read.received as f64).max(1.0))))
            .collect()
    }
}

/// A row for each stage and size.
fn table(rows: &[Medians<'_>]) -> ResultTable {
    let columns: [Column<'_, &Medians<'_>>; 11] = [
        ("size", &|of| (of.size as u64).into()),
        ("stage", &|of| of.stage.into()),
        ("sent k/s", &|of| Cell::Number(of.sent_per_s / 1e3, 1)),
        ("Gbit/s", &|of| Cell::Number(of.bits_per_s / 1e9, 3)),
        ("read k/s", &|of| Cell::Number(of.read_per_s / 1e3, 1)),
        ("sent", &|of| of.total(|m| m.sent.frames).into()),
        ("read", &|of| of.total(|m| m.read.received).into()),
        ("dropped", &|of| of.total(|m| m.read.dropped).into()),
        ("reader ns", &|of| Cell::Number(of.reader_ns, 1)),
        ("sender ns", &|of| Cell::Number(of.sender_ns, 1)),
        ("not kept", &|of| of.total(|m| m.read.not_kept).into()),
    ];
    ResultTable::of(rows, &columns)
}

/// A number with one digit after the point.
fn tenths(value: f64) -> Value {
    Value::from((value * 10.0).round() / 10.0)
}
