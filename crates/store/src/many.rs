//! Searches several stores at once, of this machine and of others, and merges what they find by
//! time.
//!
//! ```text
//! a thread for each place      a folder: Finder; a machine: GET /find?q=.. of its --serve or --ui
//!   -> batches of packets      at most `BATCHES_MAX` wait for each place
//!   -> the calling thread      takes the earliest of the first packets, again and again
//! ```
//!
//! The packets of each place keep their order; packets of one time come in the order of the places.
//!
//! A machine that is slow is waited for up to [`Limits::deadline`] in all, and a second longer for
//! each mebibyte that it sent. Then the search completes without it, and its [`Outcome`] says so:
//! what it had sent by then is in the result, and what follows is missing. The merge waits for all
//! machines at once, so that many slow ones take no longer than one. Time in which the merge does
//! something else counts for none of them.
//!
//! Bounds: for each place `BATCHES_MAX` batches, and those that its thread and the merge have; a
//! batch has `BATCH_BYTES` with what is known of its packets, or one packet. A place waits when the
//! merge is slow. Interfaces have `INTERFACE_BYTES_MAX`.

use std::fmt;
use std::io::Read;
use std::ops::{ControlFlow, Range};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use larder_serve::http_client;

use crate::block::{self, Interface, Walker};
use crate::find::{FindOptions, Finder, FoundPacket, Summary, Visit, number_of};
use crate::options::StoreError;
use crate::query::Query;

/// Batches of a place that wait.
const BATCHES_MAX: usize = 4;

/// Bytes of a query in a request, with its percent signs: the server takes eight KiB more, for the
/// host and a token. A query of 16 KiB always fits.
pub const TARGET_BYTES_MAX: usize = 56 << 10;

/// Bytes of a batch, about.
const BATCH_BYTES: usize = 256 << 10;

/// A smaller batch is passed on after this time.
const BATCH_TIME: Duration = Duration::from_millis(20);

/// Interfaces that a machine may name.
const INTERFACES_MAX: usize = 4096;

/// Bytes of the interfaces that a machine may name.
const INTERFACE_BYTES_MAX: usize = 1 << 20;

/// Bytes that a machine must send for a further second of patience.
const BYTES_PER_S: u64 = 1 << 20;

/// A store.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// A folder of this machine.
    Directory(PathBuf),
    /// A running larder that serves its store, and the token for it.
    Machine(http_client::Place, Option<Vec<u8>>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(path) => write!(f, "{}", path.display()),
            Place::Machine(http_client::Place::Tcp(host), _) => f.write_str(host),
            Place::Machine(http_client::Place::Unix(path), _) => {
                write!(f, "unix:{}", path.display())
            }
        }
    }
}

impl fmt::Debug for Place {
    /// Without the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A query for several places.
#[derive(Clone, Debug)]
pub struct Question {
    /// The query.
    pub query: Query,
    /// Its text, for machines.
    pub text: String,
    /// The time from which `-15m` counts in it, ns since 1970.
    pub now_ns: i64,
    /// Restrictions.
    pub options: FindOptions,
    /// Folders are scanned, not searched by their indexes.
    pub is_scan: bool,
}

/// How long, and how much.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Packets of each place.
    pub packets: u64,
    /// How long a machine is waited for: see the module.
    pub deadline: Duration,
    /// The search ends once this is true.
    pub stop: Arc<AtomicBool>,
}

/// How the search of a place ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The summary of a folder. A machine states only what could not be read.
    Done(Summary, Option<String>),
    /// It failed, or was too slow: packets of it are missing.
    Failed(String),
}

impl Question {
    /// Searches a folder, by its indexes or by a scan.
    pub fn find(&self, finder: &mut Finder, visit: &mut Visit<'_>) -> Result<Summary, StoreError> {
        match self.is_scan {
            true => finder.scan(&self.query, self.options, visit),
            false => finder.find(&self.query, self.options, visit),
        }
    }

    /// The target of a request for this query; an error: a machine would refuse it.
    pub fn target(&self, format: &str, packets: u64) -> Result<String, String> {
        let mut pairs = form_urlencoded::Serializer::new(String::from("/find?"));
        let Question { text, now_ns, options, .. } = self;
        pairs.append_pair("q", text).append_pair("format", format);
        pairs.append_pair("now", &now_ns.to_string());
        for (name, value) in [("from", options.from_ns), ("to", options.to_ns)] {
            if let Some(ns) = value {
                pairs.append_pair(name, &seconds(ns));
            }
        }
        for (name, is_on) in [("candidates", options.candidates), ("lookups", options.lookups)] {
            if is_on {
                pairs.append_pair(name, "1");
            }
        }
        if packets != u64::MAX {
            pairs.append_pair("limit", &packets.to_string());
        }
        let target = pairs.finish();
        match target.len() {
            ..=TARGET_BYTES_MAX => Ok(target),
            bytes => Err(format!(
                "the query has {bytes} bytes in a request, and a machine takes {TARGET_BYTES_MAX}; shorten it, \
                 or search in parts"
            )),
        }
    }
}

/// A time as seconds, exactly.
fn seconds(ns: i64) -> String {
    let mut out = Vec::new();
    larder_wire::digits::write_seconds(ns, 9, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Packets that were found, on their way to the merge.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
    /// Interfaces that are new at this place.
    interfaces: Vec<Interface>,
}

struct Packet {
    ts_ns: i64,
    position: u64,
    segment: u64,
    interface: u32,
    original_len: u32,
    frame: Range<usize>,
}

enum Message {
    Batch(Batch),
    End(Outcome),
}

/// What a place has sent.
struct Source {
    messages: Receiver<Message>,
    /// A message that the merge has not looked at: it does so in the order of the places.
    arrived: Option<Message>,
    batch: Batch,
    next: usize,
    /// The number of each of its interfaces in the merged list.
    interfaces: Vec<u32>,
    outcome: Option<Outcome>,
    received: u64,
    waited: Duration,
    is_machine: bool,
}

/// Searches all places, and visits the packets in order of time; the outcome of each place, in
/// their order. `FoundPacket::position` and `segment` are those of its own store, and 0 for packets
/// of machines.
pub fn find(
    places: &[Place],
    question: &Question,
    limits: &Limits,
    visit: &mut Visit<'_>,
) -> Vec<Outcome> {
    let mut sources: Vec<Source> = places
        .iter()
        .map(|place| {
            let (sender, messages) = sync_channel(BATCHES_MAX);
            let (own, question, limits) = (place.clone(), question.clone(), limits.clone());
            let search = move || {
                let outcome = search(&own, &question, &limits, &sender);
                // The merge may have ended.
                let _ = sender.send(Message::End(outcome));
            };
            let started = thread::Builder::new().name("find".to_owned()).spawn(search);
            let failed = |error| Outcome::Failed(format!("no thread: {error}"));
            Source {
                outcome: started.err().map(failed),
                ..Source::new(messages, matches!(place, Place::Machine(..)))
            }
        })
        .collect();
    let mut interfaces = Vec::new();
    loop {
        fill(&mut sources, limits, &mut interfaces);
        let first = sources
            .iter()
            .enumerate()
            .filter_map(|(at, source)| Some((source.head()?.ts_ns, at)))
            .min();
        let Some((_, at)) = first else { break };
        if limits.stop.load(Ordering::Acquire) || sources[at].show(&interfaces, visit).is_break() {
            break;
        }
    }
    let stopped = || Outcome::Done(Summary { is_broken_off: true, ..Summary::default() }, None);
    sources.into_iter().map(|source| source.outcome.unwrap_or_else(stopped)).collect()
}

/// Waits until each place has a packet or has ended. It waits for all of them at once.
fn fill(sources: &mut [Source], limits: &Limits, interfaces: &mut Vec<Interface>) {
    const LOOK: Duration = Duration::from_millis(100);
    loop {
        let is_waited_for = |at: &usize| sources[*at].is_waited_for();
        let waiting: Vec<usize> = (0..sources.len()).filter(is_waited_for).collect();
        let Some(&first) = waiting.first() else {
            let mut has_more = false;
            for source in &mut *sources {
                has_more |= source.take(interfaces);
            }
            match has_more {
                true => continue,
                false => return,
            }
        };
        if limits.stop.load(Ordering::Acquire) {
            return;
        }
        let left = waiting.iter().filter_map(|at| sources[*at].patience_left(limits)).min();
        let since = Instant::now();
        // The merge continues only with all of them, so it may wait for any.
        let received = sources[first].messages.recv_timeout(left.unwrap_or(LOOK).min(LOOK));
        let waited = since.elapsed();
        sources[first].receive(received.map_err(|error| error == RecvTimeoutError::Disconnected));
        for &at in &waiting {
            let source = &mut sources[at];
            if at != first {
                let received = source.messages.try_recv();
                source.receive(received.map_err(|error| error == TryRecvError::Disconnected));
            }
            source.waited += waited;
            source.give_up(limits);
        }
    }
}

impl Source {
    fn new(messages: Receiver<Message>, is_machine: bool) -> Source {
        Source {
            messages,
            arrived: None,
            batch: Batch::default(),
            next: 0,
            interfaces: Vec::new(),
            outcome: None,
            received: 0,
            waited: Duration::ZERO,
            is_machine,
        }
    }

    fn head(&self) -> Option<&Packet> {
        self.batch.packets.get(self.next)
    }

    fn is_waited_for(&self) -> bool {
        self.head().is_none() && self.outcome.is_none() && self.arrived.is_none()
    }

    fn patience(&self, limits: &Limits) -> Duration {
        limits.deadline + Duration::from_secs(self.received / BYTES_PER_S)
    }

    /// How much longer it is waited for; `None`: until it ends.
    fn patience_left(&self, limits: &Limits) -> Option<Duration> {
        self.is_machine.then(|| self.patience(limits).saturating_sub(self.waited))
    }

    /// Ends a machine that was waited for too long.
    fn give_up(&mut self, limits: &Limits) {
        if self.is_waited_for() && self.patience_left(limits) == Some(Duration::ZERO) {
            let patience_s = self.patience(limits).as_secs_f64();
            self.outcome = Some(Outcome::Failed(format!("no response within {patience_s:.1} s")));
        }
    }

    /// Notes what its thread has sent; an error: nothing yet, or with true that it has ended.
    fn receive(&mut self, received: Result<Message, bool>) {
        match received {
            Ok(message) => self.arrived = Some(message),
            Err(true) => {
                self.outcome = Some(Outcome::Failed("the search ended early".to_owned()));
            }
            Err(false) => {}
        }
    }

    /// Looks at the message that has arrived; false: there is none.
    fn take(&mut self, interfaces: &mut Vec<Interface>) -> bool {
        match self.arrived.take() {
            Some(Message::Batch(batch)) => {
                self.received += batch.bytes.len() as u64;
                let new = batch.interfaces.iter().cloned();
                self.interfaces.extend(new.map(|new| number_of(new, interfaces)));
                (self.batch, self.next) = (batch, 0);
            }
            Some(Message::End(outcome)) => self.outcome = Some(outcome),
            None => return false,
        }
        true
    }

    /// Visits the first packet, and removes it.
    fn show(&mut self, interfaces: &[Interface], visit: &mut Visit<'_>) -> ControlFlow<()> {
        let Some(packet) = self.batch.packets.get(self.next) else {
            return ControlFlow::Continue(());
        };
        self.next += 1;
        visit(FoundPacket {
            position: packet.position,
            segment: packet.segment,
            ts_ns: packet.ts_ns,
            interface: self.interfaces.get(packet.interface as usize).copied().unwrap_or(0),
            interfaces,
            original_len: packet.original_len,
            frame: &self.batch.bytes[packet.frame.clone()],
        })
    }
}

/// The packets of a place on their way.
struct Sending<'a> {
    sender: &'a SyncSender<Message>,
    stop: &'a AtomicBool,
    batch: Batch,
    interfaces: usize,
    since: Instant,
}

impl<'a> Sending<'a> {
    fn new(sender: &'a SyncSender<Message>, stop: &'a AtomicBool) -> Sending<'a> {
        Sending { sender, stop, batch: Batch::default(), interfaces: 0, since: Instant::now() }
    }

    /// Takes a packet; a break: the merge has ended.
    fn take(&mut self, found: &FoundPacket<'_>) -> ControlFlow<()> {
        let batch = &mut self.batch;
        let new = found.interfaces.get(self.interfaces..).unwrap_or_default();
        batch.interfaces.extend_from_slice(new);
        self.interfaces += new.len();
        let start = batch.bytes.len();
        batch.bytes.extend_from_slice(found.frame);
        batch.packets.push(Packet {
            ts_ns: found.ts_ns,
            position: found.position,
            segment: found.segment,
            interface: found.interface,
            original_len: found.original_len,
            frame: start..batch.bytes.len(),
        });
        let bytes = batch.bytes.len() + batch.packets.len() * size_of::<Packet>();
        match bytes >= BATCH_BYTES || self.since.elapsed() >= BATCH_TIME {
            true => self.flush(),
            false => ControlFlow::Continue(()),
        }
    }

    fn flush(&mut self) -> ControlFlow<()> {
        self.since = Instant::now();
        let batch = std::mem::take(&mut self.batch);
        let is_gone = !batch.packets.is_empty() && self.sender.send(Message::Batch(batch)).is_err();
        match is_gone || self.stop.load(Ordering::Acquire) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

fn search(
    place: &Place,
    question: &Question,
    limits: &Limits,
    sender: &SyncSender<Message>,
) -> Outcome {
    let mut sending = Sending::new(sender, &limits.stop);
    let outcome = match place {
        Place::Directory(_) if limits.packets == 0 => Outcome::Done(Summary::default(), None),
        Place::Directory(path) => {
            let mut left = limits.packets;
            let mut visit = |found: FoundPacket<'_>| {
                left -= 1;
                match sending.take(&found) {
                    ControlFlow::Continue(()) if left > 0 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            };
            let found = Finder::open(path).and_then(|mut finder| {
                finder.stop_when(Arc::clone(&limits.stop));
                question.find(&mut finder, &mut visit)
            });
            found.map_or_else(
                |error: StoreError| Outcome::Failed(error.to_string()),
                |summary| Outcome::Done(summary, None),
            )
        }
        Place::Machine(at, token) => {
            let target = match question.target("pcapng", limits.packets) {
                Ok(target) => target,
                Err(why) => return Outcome::Failed(why),
            };
            match http_client::get(at, &target, token.as_deref(), limits.deadline) {
                Ok(response) if response.status == 200 => receive(response, &mut sending),
                Ok(response) => Outcome::Failed(refused(response)),
                Err(error) => Outcome::Failed(error.to_string()),
            }
        }
    };
    let _ = sending.flush();
    outcome
}

/// A line about a response that is no result.
pub fn refused(response: http_client::Response) -> String {
    let status = response.status;
    let text: String = response.text().chars().take(200).collect();
    format!("status {status}: {}", text.escape_debug())
}

/// Takes the packets of a capture that a machine sends.
fn receive(mut response: http_client::Response, sending: &mut Sending<'_>) -> Outcome {
    let (mut walker, mut buffer) = (Walker::default(), vec![0; 64 << 10]);
    let (mut interfaces, mut lack) = (Vec::new(), None);
    loop {
        let read = match response.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        let mut is_over = false;
        walker.feed(&buffer[..read], |_, bytes| {
            if let Some(interface) = block::interface(bytes) {
                interfaces.push(interface);
            }
            if let Some(comment) = block::comment(bytes) {
                lack = Some(comment);
            }
            let Some(packet) = block::packet(bytes) else { return };
            is_over |= sending
                .take(&FoundPacket {
                    position: 0,
                    segment: 0,
                    ts_ns: packet.ts_ns,
                    interface: packet.interface,
                    interfaces: &interfaces,
                    original_len: packet.original_len,
                    frame: packet.frame,
                })
                .is_break();
        });
        let bytes: usize = interfaces.iter().map(|interface| interface.name.len()).sum();
        let is_too_much = interfaces.len() > INTERFACES_MAX || bytes > INTERFACE_BYTES_MAX;
        if walker.is_lost() || is_too_much {
            return Outcome::Failed("its response is no capture".to_owned());
        }
        if is_over {
            break;
        }
    }
    Outcome::Done(Summary::default(), lack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(deadline: Duration) -> Limits {
        Limits { packets: u64::MAX, deadline, stop: Arc::new(AtomicBool::new(false)) }
    }

    /// Five machines that send nothing are waited for at once: the waits for them add up to more than the time
    /// that passed. A sixth that responds has its packet in the result.
    #[test]
    fn machines_are_waited_for_at_once() {
        let (senders, mut sources): (Vec<_>, Vec<Source>) = (0..6)
            .map(|_| sync_channel(BATCHES_MAX))
            .map(|(sender, messages)| (sender, Source::new(messages, true)))
            .unzip();
        let packet = Packet {
            ts_ns: 7,
            position: 0,
            segment: 0,
            interface: 0,
            original_len: 0,
            frame: 0..0,
        };
        let batch = Batch { packets: vec![packet], ..Batch::default() };
        senders[5].send(Message::Batch(batch)).unwrap();
        let limits = limits(Duration::from_millis(150));
        let started = Instant::now();
        fill(&mut sources, &limits, &mut Vec::new());
        let passed = started.elapsed();
        for source in &sources[..5] {
            let Some(Outcome::Failed(why)) = &source.outcome else { panic!("{}", source.received) };
            assert_eq!(why, "no response within 0.1 s");
            assert!(source.waited >= limits.deadline, "{:?}", source.waited);
        }
        assert_eq!(sources[5].head().map(|packet| packet.ts_ns), Some(7));
        let waited: Duration = sources[..5].iter().map(|source| source.waited).sum();
        assert!(waited > passed, "{waited:?} in {passed:?}");
    }

    /// Packets without bytes fill a batch, too, and a place whose packets are not taken waits.
    #[test]
    fn a_slow_merge_holds_up_the_places() {
        let (sender, messages) = sync_channel(BATCHES_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let place = thread::spawn(move || {
            let mut sending = Sending::new(&sender, &of_thread);
            let packet = FoundPacket {
                position: 0,
                segment: 0,
                ts_ns: 0,
                interface: 0,
                interfaces: &[],
                original_len: 0,
                frame: &[],
            };
            let mut taken = 0_usize;
            while sending.take(&packet).is_continue() {
                taken += 1;
            }
            taken
        });
        let Ok(Message::Batch(batch)) = messages.recv() else { panic!("no batch") };
        assert!(batch.packets.len() * size_of::<Packet>() <= BATCH_BYTES + size_of::<Packet>());
        stop.store(true, Ordering::Release);
        drop(messages);
        let taken = place.join().unwrap();
        let batches = BATCHES_MAX + 3;
        assert!(taken * size_of::<Packet>() <= batches * BATCH_BYTES, "{taken} packets");
    }
}
