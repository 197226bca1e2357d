//! Live capture compared with the bare limit: a generator on one core, a reader on another, a pair of interfaces
//! between them, in a network that nothing else uses.
//!
//! ```text
//! walk      the ring's frames are visited and given back: what the kernel's side alone allows
//! source    batches are made and dropped
//! work      batches are made, and a work done on each
//! program   larder annotate does all that it does, with or without keeping the packets
//! ```
//!
//! What arrives by a pair is received on the sender's core, in the time of the sender's thread, as far as the ring: so
//! the generator's time is that of the kernel's receiving too, and the reader's is what the stage costs.
//!
//! Invariant: every frame is accounted for. Sent is what the interface received, that is what rings got and what they
//! had no room for, and what rings got is what the reader was given; else the run fails.

mod clients;
pub mod program;

use std::collections::BTreeMap;
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_io::batch::{Batch, Polled, Source, SourceOptions};
use larder_io::cores::{available_cores, pin_to_core};
use larder_io::live::{FrameSender, Live, LiveOptions, Sent};
use larder_io::netns::enter_private_network;

use crate::clock::ThreadTime;
pub use crate::servers::Error;
pub use program::Program;

/// The ends of the pair.
const READER: &str = "larder0";
const SENDER: &str = "larder1";

/// What the reader does.
pub enum Stage<'a> {
    /// Visits frames in the rings.
    Walk,
    /// Makes batches.
    Source,
    /// Makes batches, and does something with each.
    Work(&'a mut (dyn FnMut(&Batch) + Send)),
    /// Is the program.
    Program(&'a Program),
}

/// How a stage is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is sent, round and round.
    pub frames: Vec<Vec<u8>>,
    /// How long.
    pub measured: Duration,
    /// Frames a second; 0: as many as can be sent.
    pub frames_per_s: u64,
    /// Rings, and their bytes.
    pub rings: usize,
    /// Bytes of one ring.
    pub ring_bytes: u64,
    /// By AF_XDP; a failure where that cannot be had.
    pub xdp: bool,
}

/// What a stage did.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What the generator sent.
    pub sent: Sent,
    /// Seconds that the generator sent for.
    pub seconds: f64,
    /// Nanoseconds that the generator's thread ran.
    pub sender_ns: f64,
    /// What the reader did.
    pub read: Read,
}

/// What a reader did.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Frames that it read.
    pub packets: u64,
    /// Frames that the rings received, as the kernel counts.
    pub received: u64,
    /// Frames that the kernel dropped (ring full).
    pub dropped: u64,
    /// Nanoseconds that its threads ran.
    pub reader_ns: f64,
    /// Of the program: packets that it should have stored and did not.
    pub not_kept: u64,
    /// Of the program: responses that the clients of its page received.
    pub fetched: u64,
    /// Of the program: nanoseconds that each of its threads ran since the interface is open, by the names of threads.
    pub threads_ns: BTreeMap<String, f64>,
}

/// Measures a stage.
pub fn run(plan: &Plan, stage: Stage<'_>) -> Result<Measured, Error> {
    // On a thread of its own, since it changes its network and its cores.
    thread::scope(|scope| match scope.spawn(|| measure(plan, stage)).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn measure(plan: &Plan, stage: Stage<'_>) -> Result<Measured, Error> {
    let failed = |what: &'static str| move |error| Error::Failed(format!("{what}: {error}"));
    let cores = available_cores().map_err(failed("no cores"))?;
    let (reader_core, sender_core) = match (&*cores, &stage) {
        (&[reader, .., sender], _) => (reader, sender),
        (&[only], Stage::Walk | Stage::Source | Stage::Work(_)) => (only, only),
        _ => return Err(Error::Failed("two cores are needed".to_owned())),
    };
    enter_private_network().map_err(Error::NotPermitted)?;
    make_pair()?;
    let live = match stage {
        Stage::Program(_) => None,
        _ => Some(open(plan)?),
    };
    let sender = FrameSender::open(SENDER, plan.frames.clone())
        .map_err(|error| Error::Failed(error.to_string()))?;
    let (begins, stop) = (AtomicBool::new(live.is_some()), AtomicBool::new(false));
    let before = interface_counts()?;
    let (sending, read) = thread::scope(|scope| {
        let (begins, stop) = (&begins, &stop);
        let generator = scope.spawn(move || {
            while !begins.load(Ordering::Acquire) && !stop.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(1));
            }
            let sent = pin_to_core(sender_core).and_then(|()| generate(sender, plan));
            // Also after a failure, else the reader never ends.
            stop.store(true, Ordering::Release);
            sent
        });
        // A program inherits the cores of this thread.
        let read =
            pin_to_core(reader_core).map_err(Error::from).and_then(|()| match (stage, live) {
                (Stage::Program(program), _) => {
                    program::run(program, plan, sender_core, begins, stop)
                }
                (stage, Some(live)) => Ok(receive(live, stage, stop)),
                (_, None) => Err(Error::Failed("no capture".to_owned())),
            });
        stop.store(true, Ordering::Release);
        (generator.join(), read)
    });
    let read = read?;
    let (sent, seconds, sender_ns) = match sending {
        Ok(sent) => sent.map_err(failed("the generator"))?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let arrived = interface_counts()? - before;
    let Read { packets, received, dropped, .. } = read;
    if sent.frames != arrived || arrived != received + dropped || received != packets {
        return Err(Error::Failed(format!(
            "frames are missing: {} sent, {arrived} arrived, {received} in rings, {dropped} without room, {packets} read",
            sent.frames
        )));
    }
    Ok(Measured { sent, seconds, sender_ns, read })
}

/// Opens the reader's interface.
fn open(plan: &Plan) -> Result<Live, Error> {
    let options = LiveOptions {
        interfaces: vec![READER.to_owned()],
        rings: plan.rings,
        ring_bytes: plan.ring_bytes,
        xdp: plan.xdp,
        ..LiveOptions::default()
    };
    let live = Live::open(&options).map_err(|error| Error::Failed(error.to_string()))?;
    match live.notes().first() {
        Some(why) if plan.xdp => Err(Error::Failed(why.clone())),
        _ => Ok(live),
    }
}

/// Reads until stopped.
fn receive(mut live: Live, mut stage: Stage<'_>, stop: &AtomicBool) -> Read {
    let (counts, time) = (live.counts(), ThreadTime::start());
    let counted = &counts.interfaces()[0];
    let mut packets = 0;
    if let Stage::Walk = stage {
        while let Some(walked) = live.walk(stop) {
            packets += walked.frames;
        }
    } else {
        let mut source = Source::live(live, SourceOptions::default());
        loop {
            match (source.poll_batch(stop), &mut stage) {
                (Polled::Batch(batch), Stage::Work(work)) => work(&batch),
                (Polled::End, _) => break,
                _ => {}
            }
        }
        packets = counted.delivered.load(Ordering::Relaxed);
    }
    Read {
        packets,
        received: counted.received.load(Ordering::Relaxed),
        dropped: counted.dropped.load(Ordering::Relaxed),
        reader_ns: time.elapsed_ns(),
        ..Read::default()
    }
}

/// Sends for the time of the plan: what, for how many seconds, and nanoseconds that the thread ran.
fn generate(mut sender: FrameSender, plan: &Plan) -> io::Result<(Sent, f64, f64)> {
    let (time, start) = (ThreadTime::start(), Instant::now());
    let mut sent = Sent::default();
    loop {
        let elapsed = start.elapsed();
        if elapsed >= plan.measured {
            return Ok((sent, elapsed.as_secs_f64(), time.elapsed_ns()));
        }
        let due = elapsed.as_secs_f64() * plan.frames_per_s as f64;
        if plan.frames_per_s > 0 && sent.frames as f64 > due {
            thread::sleep(Duration::from_micros(200));
            continue;
        }
        let batch = sender.send()?;
        sent.frames += batch.frames;
        sent.bytes += batch.bytes;
    }
}

/// Makes a pair of interfaces that say nothing by themselves.
fn make_pair() -> Result<(), Error> {
    for line in [
        format!("link add {READER} type veth peer name {SENDER}"),
        format!("link set {READER} addrgenmode none arp off"),
        format!("link set {SENDER} addrgenmode none arp off"),
        format!("link set {READER} up"),
        format!("link set {SENDER} up"),
    ] {
        let done = Command::new("ip").args(line.split(' ')).stderr(Stdio::piped()).output();
        let why = match done {
            Ok(output) if output.status.success() => continue,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(Error::Failed(format!("ip {line}: {why}; install iproute2")));
    }
    Ok(())
}

/// Frames that the reader's interface has received.
fn interface_counts() -> Result<u64, Error> {
    let none = || Error::Failed("/proc/thread-self/net/dev lacks the interface".to_owned());
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").map_err(|_| none())?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(READER)?.strip_prefix(':'));
    // Bytes, then packets.
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).ok_or_else(none)
}
