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

pub mod program;

use std::collections::BTreeMap;
use std::fmt;
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
pub use program::{Program, Said};

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
    /// Frames that the reader was given.
    pub received: u64,
    /// Frames for which rings had no room.
    pub dropped: u64,
    /// Seconds that the generator sent for.
    pub seconds: f64,
    /// Nanoseconds that the reader's thread ran.
    pub reader_ns: f64,
    /// Nanoseconds that the generator's thread ran.
    pub sender_ns: f64,
    /// Of the program: packets that it should have stored and did not.
    pub not_kept: u64,
    /// Of the program: nanoseconds that each of its threads ran, by the names of threads.
    pub threads_ns: BTreeMap<String, f64>,
}

/// Why nothing was measured.
#[derive(Debug)]
pub enum Error {
    /// We may have no network of our own.
    NotPermitted(io::Error),
    /// Something else is missing, or wrong.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotPermitted(error) => write!(f, "no network of its own: {error}"),
            Error::Failed(why) => f.write_str(why),
        }
    }
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
    enter_private_network().map_err(Error::NotPermitted)?;
    make_pair()?;
    if let Stage::Program(program) = stage {
        return measure_program(plan, program, &cores);
    }
    let options = LiveOptions {
        interfaces: vec![READER.to_owned()],
        rings: plan.rings,
        ring_bytes: plan.ring_bytes,
        xdp: plan.xdp,
        ..LiveOptions::default()
    };
    let live = Live::open(&options).map_err(|error| Error::Failed(error.to_string()))?;
    if let (true, Some(why)) = (plan.xdp, live.notes().first()) {
        return Err(Error::Failed(why.clone()));
    }
    let sender = FrameSender::open(SENDER, plan.frames.clone())
        .map_err(|error| Error::Failed(error.to_string()))?;
    let counts = live.counts();
    let stop = AtomicBool::new(false);
    let (&reader_core, others) =
        cores.split_first().ok_or_else(|| Error::Failed("no core".into()))?;
    let sender_core = others.first().copied().unwrap_or(reader_core);
    let before = interface_counts()?;
    let (sending, (read, reader_ns)) = thread::scope(|scope| {
        let stop = &stop;
        let generator = scope.spawn(move || {
            let sent = pin_to_core(sender_core).and_then(|()| generate(sender, plan));
            // Also after a failure, else the reader waits for ever.
            stop.store(true, Ordering::Relaxed);
            sent
        });
        let read = pin_to_core(reader_core).map(|()| {
            let time = ThreadTime::start();
            let read = receive(live, stage, stop);
            (read, time.elapsed_ns())
        });
        (generator.join(), read.unwrap_or((0, 0.0)))
    });
    let (sent, seconds, sender_ns) = match sending {
        Ok(sent) => sent.map_err(failed("the generator"))?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let counted = &counts.interfaces()[0];
    let dropped = counted.dropped.load(Ordering::Relaxed);
    let received = counted.received.load(Ordering::Relaxed);
    let arrived = interface_counts()? - before;
    if sent.frames != arrived || arrived != received + dropped || received != read {
        return Err(Error::Failed(format!(
            "frames are missing: {} sent, {arrived} arrived, {received} in rings, {dropped} without room, {read} read",
            sent.frames
        )));
    }
    let (not_kept, threads_ns) = (0, BTreeMap::new());
    Ok(Measured { sent, received, dropped, seconds, reader_ns, sender_ns, not_kept, threads_ns })
}

fn measure_program(plan: &Plan, program: &Program, cores: &[usize]) -> Result<Measured, Error> {
    let failed = |error: io::Error| Error::Failed(error.to_string());
    let sender = FrameSender::open(SENDER, plan.frames.clone())
        .map_err(|error| Error::Failed(error.to_string()))?;
    let &[reader_core, .., sender_core] = cores else {
        return Err(Error::Failed("two cores are needed".to_owned()));
    };
    let (begins, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let before = interface_counts()?;
    let (sending, said) = thread::scope(|scope| {
        let (begins, stop) = (&begins, &stop);
        let generator = scope.spawn(move || {
            while !begins.load(Ordering::Acquire) && !stop.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(1));
            }
            let sent = pin_to_core(sender_core).and_then(|()| generate(sender, plan));
            stop.store(true, Ordering::Release);
            sent
        });
        // The program inherits the cores of this thread.
        let said = pin_to_core(reader_core)
            .map_err(failed)
            .and_then(|()| program::run(program, plan, begins, stop));
        stop.store(true, Ordering::Release);
        (generator.join(), said)
    });
    let said = said?;
    let (sent, seconds, sender_ns) = match sending {
        Ok(sent) => sent.map_err(failed)?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let arrived = interface_counts()? - before;
    let Said { packets, received, dropped, not_kept, threads_ns } = said;
    if sent.frames != arrived || arrived != received + dropped || received != packets {
        return Err(Error::Failed(format!(
            "frames are missing: {} sent, {arrived} arrived, {received} in rings, {dropped} without room, {packets} read",
            sent.frames
        )));
    }
    let reader_ns = threads_ns.values().sum();
    Ok(Measured { sent, received, dropped, seconds, reader_ns, sender_ns, not_kept, threads_ns })
}

/// Reads until stopped: frames.
fn receive(mut live: Live, mut stage: Stage<'_>, stop: &AtomicBool) -> u64 {
    if let Stage::Walk = stage {
        let mut frames = 0;
        while let Some(walked) = live.walk(stop) {
            frames += walked.frames;
        }
        return frames;
    }
    let counts = live.counts();
    let mut source = Source::live(live, SourceOptions::default());
    loop {
        match (source.poll_batch(stop), &mut stage) {
            (Polled::Batch(batch), Stage::Work(work)) => work(&batch),
            (Polled::End, _) => break,
            _ => {}
        }
    }
    counts.interfaces()[0].delivered.load(Ordering::Relaxed)
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
