//! Frames of network interfaces as they pass, as batches of the same kind that files give.
//!
//! ```text
//! open(options)            sockets, rings, the filter: all that needs a capability
//! Source::live(live, ..)   every few milliseconds a batch of pcapng packet blocks; to be dropped as soon as may be
//! stop                     what was received by then is given, then the end
//! ```
//!
//! | file | duty |
//! |---|---|
//! | `ring` | one socket's ring of blocks, shared with the kernel |
//! | `block` | frames of a block, copied as packet blocks |
//! | `socket` | options of sockets, and interfaces |
//! | `queues` | frames by AF_XDP in addition to the rings, by feature `xdp` |
//! | `counts` | frames received, dropped, lost |
//! | `send` | sends frames at full speed, for measurements |
//!
//! The kernel stamps frames in nanoseconds of the time of day, spreads flows over the rings of an
//! interface (both directions of a flow use one ring), and drops and counts frames that no ring has
//! room for. A frame is copied once, from its ring into the batch, and its block returns to the
//! kernel at once: a slow consumer of batches loses frames, counted, and delays no other code.
//!
//! Each interface has one more ring, for frames that are longer than a block of the other rings
//! (`ring::LONG_FROM_BYTES`): the kernel would cut them off. Blocks must be small, since each that
//! has a frame is taken when `batch_ms` are over, however empty: a reader that stands for seconds
//! loses only what does not fit in bytes, and of slow traffic what comes after `batch_ms` times the
//! number of blocks (10 s for the defaults).
//!
//! Several rings give one row in order of time: the earliest frame comes first, once no other ring
//! can bring an earlier one. A ring without complete blocks may have frames in the block that the
//! kernel still writes: the capture waits for that block (`SETTLE_MS` at most). If that block has
//! none either, the ring can bring only later frames. Within a ring the order is the ring's.
//!
//! An interface that is down stays open, and delivers frames when it is up again; one that is
//! removed and created again is bound again by its name, without a capability. Each such change is
//! reported ([`Live::report_to`]). If an interface cannot be bound again, the capture ends
//! ([`Live::failure`]).
//!
//! Invariants
//! 1. Every frame that the kernel put into a ring is given once, but for those of the memory that a
//!    crash takes along.
//! 2. A batch's bytes are whole Enhanced Packet Blocks, which the interfaces of [`Live::header`]
//!    describe.
//! 3. Nothing here waits longer than `STOP_CHECK`, nor does the clock's being set stop anything.
//!
//! Bounds: `rings * ring_bytes` an interface and half of `ring_bytes` for long frames, and the
//! batches in flight. Cost: one copy, no allocation, no system call a frame; about two system calls
//! a batch.

mod block;
mod counts;
mod error;
#[cfg_attr(not(feature = "xdp"), path = "live/no_queues.rs")]
mod queues;
mod ring;
mod send;
mod socket;
#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder_wire::capture::write;

use block::{Link, Shape};
pub use counts::{InterfaceCounts, LiveCounts};
pub use error::LiveError;
use queues::Queue;
use ring::{Frames, LONG_FROM_BYTES, Ring};
pub use send::{FrameSender, Sent};

use crate::stream::STOP_CHECK;

/// The name that stands for every interface.
pub const ANY: &str = "any";

/// How often interfaces and counters are looked at.
const LOOK_MS: u64 = 500;

/// After this long without a frame the capture returns an empty batch, so that code that uses the
/// times of frames sees time advance.
const SILENCE_MS: u64 = 1_000;

/// How long a frame that was stamped may take into its ring: no time, unless the core that has it
/// is taken away.
const IN_FLIGHT_MS: u64 = 3;

/// How much longer than `batch_ms` a block that has frames is waited for: the ticks of its timer,
/// and delays of a core.
const SETTLE_MS: u64 = 100;

/// How long a caller that stops may hold batches before the capture drops the rest.
const STOP_MS_MAX: u64 = 5_000;

/// The same limit for queues that deliver without a pause: they do not show which frames were there
/// before.
const QUEUES_MS_MAX: u64 = 200;

/// How long queues are left to themselves while a batch is gathered.
const GATHER: Duration = Duration::from_micros(200);

/// Sockets kept for interfaces that are made again and have several rings, as such cannot be bound
/// again: for each ring.
const SPARES: usize = 8;

/// How long blocks are left to themselves while they are gathered for a batch.
const PAUSE: Duration = Duration::from_millis(1);

/// The ring for long frames, against `ring_bytes`.
const LONG_SHARE: u64 = 2;

/// A change of the time of day, against the time since boot, that counts as a step.
const STEP_NS: i64 = 1_000_000_000;

/// Bytes beyond a batch's bound that its buffer has: for most frames that are the last.
const LAST_FRAME_BYTES: usize = 64 << 10;

/// An instruction of the classic packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterInstruction {
    /// The operation.
    pub code: u16,
    /// Instructions to leap when true.
    pub jt: u8,
    /// And when false.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// `ret #k`, `ld #len`, `jgt #k`.
const RETURN: u16 = 0x06;
const LOAD_LENGTH: u16 = 0x80;
const JUMP_IF_GREATER: u16 = 0x25;

/// Which frames to capture, and how.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// Names of interfaces, or [`ANY`] alone.
    pub interfaces: Vec<String>,
    /// Rings of each interface; flows are spread over them.
    pub rings: usize,
    /// Bytes of one ring, 64 KiB at least. An interface has one ring of half as many bytes, 256 KiB
    /// at least, for long frames.
    pub ring_bytes: u64,
    /// The longest that a frame waits in a ring for others, milliseconds.
    pub batch_ms: u32,
    /// Bytes of a frame that are kept; 0: as many as there are.
    pub snap_bytes: u32,
    /// The frames that the kernel passes; empty: all. The filter sees frames as [`link_type`] says
    /// (of 276, IP without the header), and without the outermost VLAN tag, which it must load by
    /// `SKF_AD_VLAN_TAG`.
    pub filter: Vec<FilterInstruction>,
    /// Have interfaces take frames that are for others.
    pub is_promiscuous: bool,
    /// Use hardware timestamps if the card has them: its own clock, which may differ from the
    /// system's.
    pub hardware_time: bool,
    /// Take frames by AF_XDP, with `ring_bytes` for each queue of the card: the kernel's network
    /// does not get what comes by the interfaces, which must carry only what is to be captured.
    /// They are stamped when they are taken, not by the kernel. Longer frames than AF_XDP takes,
    /// and sent ones, come by the rings. Where it cannot be had ([`Live::notes`]), all come by the
    /// rings; so with a filter. Needs more capabilities at the start.
    pub xdp: bool,
}

impl Default for LiveOptions {
    fn default() -> LiveOptions {
        LiveOptions {
            interfaces: Vec::new(),
            rings: 1,
            ring_bytes: 64 << 20,
            batch_ms: 5,
            snap_bytes: 256 << 10,
            filter: Vec::new(),
            is_promiscuous: true,
            hardware_time: false,
            xdp: false,
        }
    }
}

/// An interface that is captured from.
#[derive(Debug)]
struct Opened {
    name: String,
    /// 0: every interface.
    index: libc::c_int,
    shape: Shape,
    is_up: bool,
    /// It was removed, and not found again yet.
    is_gone: bool,
    /// Sockets that are not bound yet.
    spares: Vec<OwnedFd>,
}

/// A ring of an interface.
#[derive(Debug)]
struct Line {
    ring: Ring,
    interface: usize,
    frames: Frames,
    /// Its interface was made again, and has other rings.
    is_left: bool,
}

/// Takes lines for the operator.
struct Reporter(Box<dyn FnMut(String) + Send>);

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reporter")
    }
}

/// Interfaces that are captured from.
#[derive(Debug)]
pub struct Live {
    options: LiveOptions,
    interfaces: Vec<Opened>,
    lines: Vec<Line>,
    queues: Vec<Queue>,
    /// The last look at them brought nothing.
    queues_are_empty: bool,
    counts: Arc<LiveCounts>,
    notes: Vec<String>,
    reporter: Option<Reporter>,
    failure: Option<String>,
    begun: Instant,
    looked_ms: u64,
    /// When a batch was given last.
    given_ms: u64,
    /// When a stop was first seen.
    stopped_ms: Option<u64>,
    clock: ClockWatch,
}

/// The result of [`Live::fill`].
pub(crate) enum Filled {
    Some,
    Nothing,
    End,
}

/// LINKTYPE_ number of an interface's frames, which a filter's maker must know.
pub fn link_type(interface: &str) -> Result<u16, LiveError> {
    // Any socket will do to ask.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")
        .map_err(|error| LiveError::Kernel { what: "no socket", error })?;
    let found = socket::find(&OwnedFd::from(socket), interface)?;
    Ok(found.ok_or_else(|| no_such(interface))?.link.link_type())
}

fn no_such(name: &str) -> LiveError {
    LiveError::NoSuchInterface { name: name.to_owned(), there: socket::names() }
}

impl Live {
    /// Opens the interfaces. Afterwards nothing needs a capability. Frames are received from here
    /// on.
    pub fn open(options: &LiveOptions) -> Result<Live, LiveError> {
        let names = &options.interfaces;
        if names.is_empty() {
            return Err(LiveError::NoInterfaces);
        }
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) || (name == ANY && names.len() > 1) {
                return Err(LiveError::Twice { name: name.clone() });
            }
        }
        let snap_bytes = match options.snap_bytes {
            0 => LiveOptions::default().snap_bytes,
            snap_bytes => snap_bytes,
        };
        let mut live = Live {
            options: LiveOptions { rings: options.rings.max(1), snap_bytes, ..options.clone() },
            interfaces: Vec::new(),
            lines: Vec::new(),
            queues: Vec::new(),
            queues_are_empty: true,
            counts: Arc::new(LiveCounts::new(names)),
            notes: Vec::new(),
            reporter: None,
            failure: None,
            begun: Instant::now(),
            looked_ms: 0,
            given_ms: 0,
            stopped_ms: None,
            clock: ClockWatch::start(),
        };
        for name in names {
            live.open_interface(name)?;
        }
        Ok(live)
    }

    fn open_interface(&mut self, name: &str) -> Result<(), LiveError> {
        let number = self.interfaces.len();
        // A socket of any kind shows what kind is needed.
        let found = socket::find(&socket::open(Link::Ethernet)?, name)?;
        let found = found.ok_or_else(|| no_such(name))?;
        let shape = Shape {
            interface: number as u32,
            link: found.link,
            has_loopback: found.is_loopback,
            snap_bytes: self.options.snap_bytes as usize,
        };
        if self.options.rings > 1 && !found.is_up {
            return Err(LiveError::Down { name: name.to_owned() });
        }
        let sockets = |count: usize| -> Result<Vec<OwnedFd>, LiveError> {
            (0..count).map(|_| socket::open(found.link)).collect()
        };
        let several = self.options.rings > 1;
        let spares = sockets(if several { SPARES * self.options.rings } else { 0 })?;
        let (index, is_up) = (found.index, found.is_up);
        let name = name.to_owned();
        self.interfaces.push(Opened { name, index, shape, is_up, is_gone: false, spares });
        self.counts.set_up(number, is_up);
        self.start(number, sockets(self.options.rings)?)?;
        if has_long_frames(&self.options) {
            let long = self.open_line(number, socket::open(found.link)?, Frames::Long)?;
            self.counts.watch(number, long.ring.socket());
            self.lines.push(long);
        }
        if self.options.xdp {
            self.open_queues(number);
        }
        Ok(())
    }

    /// Takes frames by AF_XDP, or notes why not.
    fn open_queues(&mut self, number: usize) {
        let Opened { name, shape, .. } = &self.interfaces[number];
        let opened = if self.options.filter.is_empty() {
            queues::open(name, *shape, self.options.ring_bytes)
        } else {
            Err(format!("{name}: what comes by AF_XDP passes no filter"))
        };
        match opened {
            Ok(opened) => {
                for queue in &opened {
                    if let Ok(socket) = queue.socket() {
                        self.counts.watch_queue(number, socket);
                    }
                }
                self.queues.extend(opened);
            }
            Err(why) => self.notes.push(format!("no AF_XDP, but the kernel's rings: {why}")),
        }
    }

    /// Gives sockets rings and binds them to an interface, so that each frame comes to one of them
    /// from some moment on.
    fn start(&mut self, number: usize, sockets: Vec<OwnedFd>) -> Result<(), LiveError> {
        let several = sockets.len() > 1;
        let mut lines = Vec::with_capacity(sockets.len());
        let mut group = None;
        for socket in sockets {
            let line = self.open_line(number, socket, Frames::Usual)?;
            if several {
                let joined = socket::join(line.ring.socket(), group);
                let joined = joined
                    .map_err(|error| LiveError::Kernel { what: "no group of rings", error })?;
                group = Some(joined);
            }
            lines.push(line);
        }
        let Opened { name, index, shape, is_up, .. } = &self.interfaces[number];
        if several {
            let program = program(&self.options, Frames::Usual);
            for line in &lines {
                let set = socket::set_filter(line.ring.socket(), &program);
                set.map_err(|error| LiveError::Filter { error })?;
            }
        }
        if self.options.is_promiscuous && *index != 0 && !shape.has_loopback {
            // An interface without addresses needs no promiscuous mode.
            if let Err(error) = socket::be_promiscuous(lines[0].ring.socket(), *index)
                && *is_up
            {
                self.notes.push(format!("{name}: only frames for this machine: {error}"));
            }
        }
        for line in &lines {
            self.counts.watch(number, line.ring.socket());
        }
        self.lines.append(&mut lines);
        Ok(())
    }

    /// Gives a socket a ring and binds it to an interface.
    fn open_line(
        &mut self,
        number: usize,
        socket: OwnedFd,
        frames: Frames,
    ) -> Result<Line, LiveError> {
        let Opened { name, index, shape, .. } = &self.interfaces[number];
        let LiveOptions { ring_bytes, batch_ms, rings, hardware_time, .. } = self.options;
        // One that has no group yet would see what others see: until all are in it, none sees
        // anything.
        let is_of_group = rings > 1 && frames == Frames::Usual;
        let program = if is_of_group { nothing() } else { program(&self.options, frames) };
        socket::set_filter(&socket, &program).map_err(|error| LiveError::Filter { error })?;
        if shape.has_loopback && shape.link == Link::Ethernet {
            socket::ignore_outgoing(&socket);
        }
        if hardware_time && let Err(why) = socket::use_hardware_time(&socket, name) {
            let note = format!("{name}: no stamps of the card, but the system's: {why}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        let socket = Arc::new(socket);
        let bytes = match frames {
            Frames::Usual => ring_bytes,
            Frames::Long => ring_bytes / LONG_SHARE,
        };
        let ring = Ring::new(Arc::clone(&socket), (bytes, frames), batch_ms);
        let ring = ring.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOMEM | libc::ENOBUFS) => {
                LiveError::NoMemory { name: name.clone(), ring_bytes }
            }
            _ => LiveError::Kernel { what: "no ring", error },
        })?;
        socket::bind(&socket, *index, socket::EVERY_PROTOCOL)
            .map_err(|error| LiveError::Kernel { what: "the interface cannot be had", error })?;
        Ok(Line { ring, interface: number, frames, is_left: false })
    }

    /// The beginning of the capture: a section header, and a description of each interface.
    pub fn header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write::section(&mut out, concat!("larder ", env!("CARGO_PKG_VERSION")));
        for interface in &self.interfaces {
            let link_type = interface.shape.link.link_type();
            write::interface_named(&mut out, link_type, self.options.snap_bytes, &interface.name);
        }
        out
    }

    /// The counters, which change during the capture.
    pub fn counts(&self) -> Arc<LiveCounts> {
        Arc::clone(&self.counts)
    }

    /// Requested options that are not available, as messages.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Has changes of interfaces reported, a line each.
    pub fn report_to(&mut self, report: impl FnMut(String) + Send + 'static) {
        self.reporter = Some(Reporter(Box::new(report)));
    }

    /// Why the capture ended by itself, and what to do next.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn report(&mut self, number: usize, what: &str) {
        if let Some(Reporter(report)) = &mut self.reporter {
            report(format!("interface {} {what}", self.interfaces[number].name));
        }
    }

    /// The interfaces' names.
    pub(crate) fn name(&self) -> String {
        self.options.interfaces.join(",")
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// How long a block that has frames is waited for.
    fn settle_ms(&self) -> u64 {
        u64::from(self.options.batch_ms) + SETTLE_MS
    }

    /// By how much the time of day was set since the last call, ns; 0: it was not.
    pub(crate) fn clock_step_ns(&mut self) -> i64 {
        let step_ns = self.clock.look();
        self.counts.clock_steps.fetch_add(u64::from(step_ns != 0), Ordering::Relaxed);
        step_ns
    }

    /// The time of day, where nothing was received for [`SILENCE_MS`]; once in that time.
    pub(crate) fn silent_at_ns(&mut self) -> Option<i64> {
        let now_ms = self.now_ms();
        if now_ms < self.given_ms + SILENCE_MS {
            return None;
        }
        self.given_ms = now_ms;
        Some(read_clock(libc::CLOCK_REALTIME))
    }

    /// Looks at counters and interfaces if it is time to. To be called at least once a second.
    pub(crate) fn keep_house(&mut self) {
        let now_ms = self.now_ms();
        if now_ms >= self.looked_ms + LOOK_MS {
            self.looked_ms = now_ms;
            self.counts.refresh();
            self.look_at_interfaces();
        }
    }

    /// Whether to end although frames are left: the caller stops, and does not take them.
    pub(crate) fn gives_up(&mut self, stop: &AtomicBool) -> bool {
        let now_ms = self.now_ms();
        self.note_stop(stop, now_ms).is_some_and(|since| now_ms > since + STOP_MS_MAX)
    }

    fn note_stop(&mut self, stop: &AtomicBool, now_ms: u64) -> Option<u64> {
        let is_over = stop.load(Ordering::Relaxed) || self.failure.is_some();
        if self.stopped_ms.is_none() && is_over {
            self.stopped_ms = Some(now_ms);
        }
        self.stopped_ms
    }

    /// Appends packet blocks, until there are `bytes_max` bytes or no more frames. Waits
    /// `patience` for the first, [`STOP_CHECK`] at most.
    pub(crate) fn fill(
        &mut self,
        out: &mut Vec<u8>,
        bytes_max: usize,
        stop: &AtomicBool,
        patience: Duration,
    ) -> Filled {
        let until_ms = self.now_ms() + patience.min(STOP_CHECK).as_millis() as u64;
        let mut gather_ms = None;
        loop {
            self.keep_house();
            // Before the rings are looked at: what is seen then was there at this time.
            let now_ms = self.now_ms();
            let stopped_ms = self.note_stop(stop, now_ms);
            for line in &mut self.lines {
                line.ring.discover(now_ms);
            }
            // Before more is copied, as frames may come for ever.
            let is_drained = stopped_ms.is_some_and(|since| self.is_drained(now_ms, since));
            if out.is_empty() && is_drained {
                self.counts.refresh();
                return Filled::End;
            }
            let is_ripe = stopped_ms.is_some() || self.is_ripe(now_ms);
            let ready_ms = if is_ripe { self.copy(now_ms, out, bytes_max) } else { None };
            self.copy_queues(out, bytes_max);
            if !out.is_empty() {
                // Rings give what has come in some milliseconds; queues give each frame, and are
                // waited for here.
                let batch_ms = u64::from(self.options.batch_ms);
                let until_ms = *gather_ms.get_or_insert(now_ms + batch_ms);
                let is_whole = out.len() >= bytes_max || now_ms >= until_ms;
                if self.queues.is_empty() || is_whole || stopped_ms.is_some() {
                    self.given_ms = now_ms;
                    return Filled::Some;
                }
                std::thread::sleep(GATHER);
                continue;
            }
            if now_ms >= until_ms {
                return Filled::Nothing;
            }
            let mut wake_ms = ready_ms.unwrap_or(u64::MAX).clamp(now_ms + 1, until_ms);
            if stopped_ms.is_some() {
                wake_ms = now_ms + 1;
            }
            match is_ripe {
                true => self.wait(wake_ms - now_ms),
                false => self.await_more(wake_ms - now_ms),
            }
        }
    }

    /// Waits where nothing is ripe: for a first block, or a moment for more of them.
    fn await_more(&mut self, wait_ms: u64) {
        if self.lines.iter().any(|line| line.ring.seen_ms().is_some()) {
            // A poll would return with each block.
            std::thread::sleep(PAUSE);
        } else {
            self.wait(wait_ms);
        }
    }

    /// For measurements, the least that a reader can do: visits what rings have, without a copy, in
    /// no order among rings, and gives it back. Frames and their bytes; `None` after what was
    /// received before a stop.
    pub fn walk(&mut self, stop: &AtomicBool) -> Option<Sent> {
        self.keep_house();
        let now_ms = self.now_ms();
        let stopped_ms = self.note_stop(stop, now_ms);
        if stopped_ms.is_some_and(|since| self.is_drained(now_ms, since)) {
            self.counts.refresh();
            return None;
        }
        for line in &mut self.lines {
            line.ring.discover(now_ms);
        }
        let mut walked = Sent::default();
        if stopped_ms.is_none() && !self.is_ripe(now_ms) {
            self.await_more(STOP_CHECK.as_millis() as u64);
            return Some(walked);
        }
        for line in &mut self.lines {
            let (frames, bytes) = line.ring.walk();
            self.counts.delivered(line.interface, frames);
            walked.frames += frames;
            walked.bytes += bytes;
        }
        if walked == Sent::default() {
            self.await_more(1);
        }
        Some(walked)
    }

    /// Whether a ring has enough for a batch.
    fn is_ripe(&self, now_ms: u64) -> bool {
        let batch_ms = u64::from(self.options.batch_ms);
        self.lines.iter().any(|line| line.ring.is_ripe(now_ms, batch_ms))
    }

    /// Copies what may be copied. When more may be, if a ring must settle before.
    fn copy(&mut self, now_ms: u64, out: &mut Vec<u8>, bytes_max: usize) -> Option<u64> {
        let settle_ms = self.settle_ms();
        while out.len() < bytes_max {
            // The earliest frame, and the stamp of the earliest one of another ring.
            let (mut first, mut second_ns) = (None, u64::MAX);
            // How long after its block was seen it may go.
            let mut wait_ms = 0;
            for (at, line) in self.lines.iter_mut().enumerate() {
                match (line.ring.head_ns(), first) {
                    (None, _) if line.is_left => {}
                    (None, _) if line.ring.has_unfinished() => wait_ms = settle_ms,
                    // A core that has stamped a long frame has begun with it before it has any
                    // frame that follows.
                    (None, _) if line.frames == Frames::Long => {}
                    (None, _) => wait_ms = wait_ms.max(IN_FLIGHT_MS),
                    (Some(ns), Some((_, first_ns))) if ns >= first_ns => {
                        second_ns = second_ns.min(ns);
                    }
                    (Some(ns), before) => {
                        second_ns = before.map_or(second_ns, |(_, before_ns)| before_ns);
                        first = Some((at, ns));
                    }
                }
            }
            let (at, _) = first?;
            let Line { ring, interface, .. } = &mut self.lines[at];
            let ready_ms = ring.seen_ms().map_or(0, |seen| seen + wait_ms);
            if now_ms < ready_ms && !ring.is_crowded() {
                return Some(ready_ms);
            }
            if out.is_empty() {
                out.reserve(bytes_max + LAST_FRAME_BYTES);
            }
            let shape = &self.interfaces[*interface].shape;
            let copied = ring.copy(shape, second_ns, bytes_max, out);
            self.counts.delivered(*interface, copied.frames);
        }
        None
    }

    /// Appends what has come by queues.
    fn copy_queues(&mut self, out: &mut Vec<u8>, bytes_max: usize) {
        if self.queues.is_empty() {
            return;
        }
        if out.is_empty() {
            out.reserve(bytes_max + LAST_FRAME_BYTES);
        }
        let mut came = 0;
        for queue in &mut self.queues {
            let frames = queue.copy(bytes_max, out);
            self.counts.received(queue.interface(), frames);
            self.counts.delivered(queue.interface(), frames);
            came += frames;
        }
        self.queues_are_empty = came == 0;
    }

    /// Whether all frames received before a stop have been delivered.
    fn is_drained(&self, now_ms: u64, since_ms: u64) -> bool {
        let settled_ms = since_ms + self.settle_ms();
        let is_drained = |line: &Line| match line.ring.seen_ms() {
            Some(seen_ms) => seen_ms > settled_ms,
            None => !line.ring.has_unfinished() || now_ms > settled_ms,
        };
        let queues_are = self.queues_are_empty || now_ms > since_ms + QUEUES_MS_MAX;
        let rings_are = || self.lines.iter().all(is_drained);
        now_ms > since_ms + STOP_MS_MAX
            || (now_ms > since_ms + IN_FLIGHT_MS && queues_are && rings_are())
    }

    /// Waits until a ring that is empty has something, or for some milliseconds.
    fn wait(&mut self, wait_ms: u64) {
        let is_empty = |line: &&Line| !line.is_left && line.ring.seen_ms().is_none();
        let mut waiting: Vec<libc::pollfd> = self
            .lines
            .iter()
            .filter(is_empty)
            .map(|line| {
                let fd = line.ring.socket().as_raw_fd();
                libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
            })
            .collect();
        waiting.extend(self.queues.iter().map(|queue| libc::pollfd {
            fd: queue.fd(),
            events: libc::POLLIN,
            revents: 0,
        }));
        // SAFETY: the kernel reads and writes as many entries as there are.
        let ready = unsafe {
            let count = waiting.len() as libc::nfds_t;
            libc::poll(waiting.as_mut_ptr(), count, wait_ms as libc::c_int)
        };
        if ready > 0 && waiting.iter().any(|entry| entry.revents & libc::POLLERR != 0) {
            for line in &self.lines {
                // The socket reports once that the interface is down, and would not wait before
                // that was read.
                socket::take_error(line.ring.socket());
            }
            self.look_at_interfaces();
        }
    }

    /// Notes which interfaces are up, and finds those again that were made again.
    fn look_at_interfaces(&mut self) {
        self.leave_empty_rings();
        for number in 0..self.interfaces.len() {
            let Some(line) = self.lines.iter().find(|l| l.interface == number && !l.is_left) else {
                continue;
            };
            let socket = Arc::clone(line.ring.socket());
            let interface = &mut self.interfaces[number];
            let was_up = interface.is_up;
            let is_there = socket::is_up(&socket, interface.index);
            interface.is_up = is_there.unwrap_or(false);
            match is_there {
                Some(true) if !was_up => self.report(number, "is up"),
                Some(false) if was_up => self.report(number, "is down"),
                _ => {}
            }
            if is_there.is_none() {
                if !std::mem::replace(&mut self.interfaces[number].is_gone, true) {
                    self.report(number, "was removed");
                }
                // Queues go with their interface; another is captured from by rings alone.
                self.queues.retain(|queue| queue.interface() != number);
                self.counts.forget_queues(number);
                match self.open_again(number, &socket) {
                    Ok(false) => {}
                    Ok(true) => {
                        let interface = &mut self.interfaces[number];
                        (interface.is_up, interface.is_gone) = (true, false);
                        self.counts.came_again(number);
                        self.report(number, "was made again, and is captured from");
                    }
                    Err(error) => {
                        let name = &self.interfaces[number].name;
                        self.failure = Some(format!(
                            "interface {name} was made again, and cannot be captured from: {error}; start again"
                        ));
                    }
                }
            }
            let is_up = self.interfaces[number].is_up;
            self.counts.set_up(number, is_up);
            if was_up && (!is_up || is_there.is_none()) {
                self.counts.went_down(number);
            }
        }
    }

    /// Binds to an interface with the name of one that was removed; false while there is none that
    /// is up.
    fn open_again(&mut self, number: usize, socket: &OwnedFd) -> Result<bool, LiveError> {
        let rings = self.options.rings;
        let interface = &mut self.interfaces[number];
        let Some(found) = socket::find(socket, &interface.name)?.filter(|found| found.is_up) else {
            return Ok(false);
        };
        if found.link != interface.shape.link {
            // Its frames would not fit the link type of the header.
            return Err(LiveError::OtherLink);
        }
        let before = std::mem::replace(&mut interface.index, found.index);
        match self.bind_again(number, rings) {
            // It was removed or went down meanwhile.
            Err(LiveError::Kernel { error, .. }) if socket::is_gone(&error) => {
                self.interfaces[number].index = before;
                Ok(false)
            }
            result => result.map(|()| true),
        }
    }

    /// Has what an interface is captured by look at the number that it has now.
    fn bind_again(&mut self, number: usize, rings: usize) -> Result<(), LiveError> {
        let index = self.interfaces[number].index;
        let lines = self.lines.len();
        if rings > 1 {
            // A socket in a group cannot be bound again.
            let Opened { spares, shape, .. } = &mut self.interfaces[number];
            while spares.len() < rings {
                spares.push(socket::open(shape.link)?);
            }
            let sockets = spares.split_off(spares.len() - rings);
            self.start(number, sockets)?;
        }
        for line in self.lines[..lines].iter_mut().filter(|line| line.interface == number) {
            if rings > 1 && line.frames == Frames::Usual {
                line.is_left = true;
                continue;
            }
            socket::bind(line.ring.socket(), index, socket::EVERY_PROTOCOL).map_err(|error| {
                LiveError::Kernel { what: "the interface cannot be had", error }
            })?;
            if self.options.is_promiscuous && line.frames == Frames::Usual {
                // Errors were reported at the start.
                let _ = socket::be_promiscuous(line.ring.socket(), index);
            }
        }
        Ok(())
    }

    /// Drops rings whose interface has others, once they are empty.
    fn leave_empty_rings(&mut self) {
        let counts = &self.counts;
        self.lines.retain_mut(|line| {
            counts.malformed(line.interface, line.ring.take_malformed());
            let is_done = line.is_left && line.ring.head_ns().is_none();
            if is_done {
                counts.forget(line.ring.socket());
            }
            !is_done
        });
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.counts.close();
    }
}

/// A filter that passes nothing.
fn nothing() -> Vec<FilterInstruction> {
    vec![FilterInstruction { code: RETURN, jt: 0, jf: 0, k: 0 }]
}

/// Whether frames may be longer than the blocks of most rings.
fn has_long_frames(options: &LiveOptions) -> bool {
    options.snap_bytes as usize > LONG_FROM_BYTES
}

/// The filter that is wanted, for frames of such a length, with frames cut so that no ring holds
/// more of them than is kept.
fn program(options: &LiveOptions, frames: Frames) -> Vec<FilterInstruction> {
    let snap = options.snap_bytes;
    let instruction = |code, jt, jf, k| FilterInstruction { code, jt, jf, k };
    let mut program = Vec::with_capacity(options.filter.len() + 4);
    if has_long_frames(options) {
        // Over the `ret #0` for those that are wanted.
        let (jt, jf) = match frames {
            Frames::Usual => (0, 1),
            Frames::Long => (1, 0),
        };
        program.push(instruction(LOAD_LENGTH, 0, 0, 0));
        program.push(instruction(JUMP_IF_GREATER, jt, jf, LONG_FROM_BYTES as u32));
        program.push(instruction(RETURN, 0, 0, 0));
    }
    if options.filter.is_empty() {
        program.push(instruction(RETURN, 0, 0, snap));
    }
    program.extend(options.filter.iter().map(|i| match i.code {
        RETURN => FilterInstruction { k: i.k.min(snap), ..*i },
        _ => *i,
    }));
    program
}

/// Compares the time of day with the time since boot, to find steps.
#[derive(Debug)]
struct ClockWatch {
    difference_ns: i64,
}

impl ClockWatch {
    fn start() -> ClockWatch {
        ClockWatch { difference_ns: difference_ns() }
    }

    /// By how much the time of day was set since the last call; 0: not, or by less than counts.
    fn look(&mut self) -> i64 {
        self.compare(difference_ns())
    }

    fn compare(&mut self, difference_ns: i64) -> i64 {
        // Slow corrections are no steps, however far they lead.
        let step_ns = difference_ns.saturating_sub(self.difference_ns);
        self.difference_ns = difference_ns;
        if step_ns.saturating_abs() > STEP_NS { step_ns } else { 0 }
    }
}

/// The time of day minus the time since boot (which includes the time that the machine sleeps, as
/// the time of day does).
fn difference_ns() -> i64 {
    let mut difference = 0;
    for _ in 0..3 {
        let before = read_clock(libc::CLOCK_BOOTTIME);
        let real = read_clock(libc::CLOCK_REALTIME);
        difference = real.saturating_sub(before);
        // If the thread was interrupted between the two reads, the difference is not exact.
        if read_clock(libc::CLOCK_BOOTTIME) - before < STEP_NS / 10 {
            break;
        }
    }
    difference
}

fn read_clock(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a `timespec`, which is ours; a missing clock leaves it unchanged.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}
