//! Captures frames of network interfaces, in batches of the same kind that files give.
//!
//! ```text
//! open(options)            sockets, rings, the filter: all that needs a capability
//! Source::live(live, ..)   a batch of pcapng packet blocks every few milliseconds; drop it as soon as possible
//! stop                     everything received by then is delivered, then the end
//! ```
//!
//! | file | duty |
//! |---|---|
//! | `ring` | one socket's ring of blocks, shared with the kernel |
//! | `block` | frames of a block, copied as packet blocks |
//! | `socket` | options of sockets, and interfaces |
//! | `options`, `program` | options of a capture; their filter programs |
//! | `interfaces` | opening interfaces, and binding to them again |
//! | `clock_watch` | steps of the time of day |
//! | `queues` | frames by AF_XDP in addition to the rings, by feature `xdp` |
//! | `counts`, `interface_counts` | frames received, dropped, lost |
//! | `send` | sends frames at full speed, for measurements |
//! | `portable` | the same API on other systems, where opening fails |
//!
//! The kernel stamps frames in nanoseconds of the time of day, spreads flows over the rings of an
//! interface (both directions of a flow use one ring), and drops and counts frames that no ring has
//! room for. A frame is copied once, from its ring into the batch, and its block returns to the
//! kernel at once: a slow consumer of batches loses frames, counted, and delays no other code.
//!
//! Each interface has one more ring, for frames that are longer than a block of the other rings
//! (`ring::LONG_FROM_BYTES`): the kernel would cut them off. Blocks must be small, since each block
//! with a frame is taken after `batch_ms`, however empty: a reader that stops for seconds loses
//! only frames that do not fit in bytes, and of slow traffic those that arrive after `batch_ms`
//! times the number of blocks (10 s for the defaults).
//!
//! Several rings give one sequence in order of time: the earliest frame is first, once no other
//! ring can give an earlier one. A ring without complete blocks may have frames in the block that
//! the kernel still writes. The capture waits for that block (`SETTLE_MS` at most). If that block
//! has no frames either, the ring can give only later ones. Within a ring the order is the ring's.
//!
//! An interface that is down stays open, and delivers frames when it is up again; one that is
//! removed and created again is bound again by its name, without a capability. Each such change is
//! reported ([`Live::report_to`]). If an interface cannot be bound again, the capture ends
//! ([`Live::failure`]).
//!
//! Invariants
//! 1. Every frame that the kernel put into a ring is delivered once, except those in memory that a
//!    crash loses.
//! 2. A batch's bytes are whole Enhanced Packet Blocks, which the interfaces of [`Live::header`]
//!    describe.
//! 3. Nothing here waits longer than `STOP_CHECK`, and a step of the clock stops nothing.
//!
//! Bounds: `rings * ring_bytes` an interface and half of `ring_bytes` for long frames, and the
//! batches in flight. Cost: one copy, no allocation, no system call a frame; about two system calls
//! a batch.

mod block;
mod clock_watch;
mod counts;
mod error;
mod interface_counts;
mod interfaces;
mod options;
mod program;
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

use block::Shape;
use clock_watch::{ClockWatch, read_clock};
pub use counts::LiveCounts;
pub use error::LiveError;
pub use interface_counts::InterfaceCounts;
pub use options::LiveOptions;
use queues::Queue;
use ring::{Frames, Ring};
pub use send::{FrameSender, Sent};

use crate::stream::STOP_CHECK;

/// The name of all interfaces.
pub const ANY: &str = "any";

/// How often interfaces and counters are checked.
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

/// How long the capture does not read queues while it gathers a batch.
const GATHER: Duration = Duration::from_micros(200);

/// How long the capture does not read blocks while it gathers a batch: at least `PAUSE_MS`, and no
/// longer than traffic of `FILL_BYTES_PER_MS` (17 Gbit/s) takes to fill a ring.
const PAUSE_MS: u64 = 1;
const FILL_BYTES_PER_MS: u64 = 2 << 20;

/// Bytes beyond a batch's bound that its buffer has: for most frames that are the last.
const LAST_FRAME_BYTES: usize = 64 << 10;

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

/// Takes an event and the name of its interface.
type Report = dyn FnMut(&'static str, &str) + Send;

/// Takes lines for the operator.
struct Reporter(Box<Report>);

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
    /// The last check found no frames.
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
    // The request needs a socket of any kind.
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
    pub fn report_to(&mut self, report: impl FnMut(&'static str, &str) + Send + 'static) {
        self.reporter = Some(Reporter(Box::new(report)));
    }

    /// Why the capture ended by itself, and what to do next.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn report(&mut self, number: usize, event: &'static str) {
        if let Some(Reporter(report)) = &mut self.reporter {
            report(event, &self.interfaces[number].name);
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

    /// Updates counters and the state of interfaces when due. Call it at least once a second.
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
            // Read before the rings: everything found there existed at this time.
            let now_ms = self.now_ms();
            let stopped_ms = self.note_stop(stop, now_ms);
            for line in &mut self.lines {
                line.ring.discover(now_ms);
            }
            // Checked before more is copied, as frames may come for ever.
            let is_drained = stopped_ms.is_some_and(|since| self.is_drained(now_ms, since));
            if out.is_empty() && is_drained {
                self.counts.refresh();
                return Filled::End;
            }
            let is_ripe = stopped_ms.is_some() || self.is_ripe(now_ms);
            let ready_ms = if is_ripe { self.copy(now_ms, out, bytes_max) } else { None };
            self.copy_queues(out, bytes_max);
            if !out.is_empty() {
                // Rings give the frames of some milliseconds at once; queues give each frame, so
                // the wait is here.
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
                false => self.await_more(now_ms, wake_ms - now_ms),
            }
        }
    }

    /// Waits while no ring is ripe: for a first block, or until the blocks are ripe.
    fn await_more(&mut self, now_ms: u64, wait_ms: u64) {
        let Some(seen_ms) = self.lines.iter().filter_map(|line| line.ring.seen_ms()).min() else {
            return self.wait(wait_ms);
        };
        // A poll would return with each block, and each return costs as much as some ten frames.
        let ripe_ms = seen_ms + u64::from(self.options.batch_ms);
        let full_ms = self.options.ring_bytes / FILL_BYTES_PER_MS;
        let pause_ms = ripe_ms.saturating_sub(now_ms).min(full_ms).max(PAUSE_MS);
        std::thread::sleep(Duration::from_millis(pause_ms));
    }

    /// For measurements, the least work of a reader: visits the frames of rings without a copy, in
    /// no order among rings, and gives the blocks back. Returns frames and their bytes; `None`
    /// after those received before a stop.
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
            self.await_more(now_ms, STOP_CHECK.as_millis() as u64);
            return Some(walked);
        }
        for line in &mut self.lines {
            let (frames, bytes) = line.ring.walk();
            self.counts.delivered(line.interface, frames);
            walked.frames += frames;
            walked.bytes += bytes;
        }
        if walked == Sent::default() {
            self.await_more(now_ms, 1);
        }
        Some(walked)
    }

    /// Whether a ring has enough for a batch.
    fn is_ripe(&self, now_ms: u64) -> bool {
        let batch_ms = u64::from(self.options.batch_ms);
        self.lines.iter().any(|line| line.ring.is_ripe(now_ms, batch_ms))
    }

    /// Copies the frames that may be copied now. Returns when to continue, if a ring must settle
    /// before.
    fn copy(&mut self, now_ms: u64, out: &mut Vec<u8>, bytes_max: usize) -> Option<u64> {
        let settle_ms = self.settle_ms();
        while out.len() < bytes_max {
            // The earliest frame, and the stamp of the earliest one of another ring.
            let (mut first, mut second_ns) = (None, u64::MAX);
            // How long after its block was seen it may be copied.
            let mut wait_ms = 0;
            for (at, line) in self.lines.iter_mut().enumerate() {
                match (line.ring.head_ns(), first) {
                    (None, _) if line.is_left => {}
                    (None, _) if line.ring.has_unfinished() => wait_ms = settle_ms,
                    // A core that has stamped a long frame has begun to store it before it receives
                    // any later frame.
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

    /// Appends the frames received by queues.
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
}

impl Drop for Live {
    fn drop(&mut self) {
        self.counts.close();
    }
}
