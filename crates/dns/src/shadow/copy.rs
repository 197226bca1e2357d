//! The copy of a resolver's traffic: a capture, or dnstap from a file or from senders that connect
//! to a socket.
//!
//! ```text
//! capture   file or pipe -> larder_io::batch -> packets   UDP to and from the resolver
//! dnstap    file or pipe -> a thread ----------> frames   CLIENT_*, RESOLVER_*, FORWARDER_*
//!           senders      -> a thread each -----> frames
//! ```
//!
//! Each message comes with its client and time. Messages of other servers, larder's own queries,
//! and messages that cannot be read are counted. In captures, messages over TCP and in fragments
//! are not reassembled, and are counted as such.
//!
//! Bounds: those of [`larder_io::batch`]; [`FRAMES_MAX`] waiting frames, beyond which senders wait.
//! No wait is longer than [`PATIENCE`].

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use larder_io::batch::{Batch, Polled as Given, Source, SourceOptions};
use larder_io::decode::decoder;
use larder_io::frame_streams::{FrameError, Frames};
use larder_io::input::{Content, Input};
use larder_io::sender::{IsOver, PATIENCE, Patient, Socket};
use larder_wire::dnstap::Message;
use larder_wire::packet::{self, Packet};

/// Frames that have arrived and are not processed yet.
const FRAMES_MAX: usize = 1_024;

/// Frames processed before the caller continues.
const FRAMES_AT_ONCE: usize = 256;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// The port of the resolver's upstreams.
const PORT: u16 = 53;

/// The source of the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// A capture, or a file of dnstap: the first bytes decide; `-` is a capture from standard
    /// input.
    File(PathBuf),
    /// dnstap from a file or pipe; `-` is standard input.
    Dnstap(PathBuf),
    /// dnstap from senders that connect to this socket, which larder creates.
    Socket(PathBuf),
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            From::File(path) => write!(f, "{}", path.display()),
            From::Dnstap(path) => write!(f, "dnstap:{}", path.display()),
            From::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ClientQuery,
    ClientResponse,
    /// Between the resolver and its upstreams, in either direction.
    Upstream {
        is_query: bool,
    },
}

/// A message of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen<'a> {
    pub kind: Kind,
    /// The client; without meaning for [`Kind::Upstream`].
    pub client: SocketAddr,
    pub is_stream: bool,
    /// Time of the message, ns since 1970.
    pub at_ns: i64,
    /// Of a response, if it is recorded: time of its query.
    pub query_ns: Option<i64>,
    pub message: &'a [u8],
}

/// Messages of the copy that are not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Packets or records.
    pub records: u64,
    /// Messages of other servers, other protocols, or other kinds.
    pub foreign: u64,
    /// Queries that larder sent itself.
    pub own: u64,
    /// Packets of DNS over TCP, which are not reassembled from a capture.
    pub tcp_packets: u64,
    /// Fragments, which are not reassembled either.
    pub fragments: u64,
    /// Messages that the capture truncated.
    pub cut: u64,
    /// Messages that could not be read.
    pub damaged: u64,
    /// Senders above the limit, and those that do not send dnstap.
    pub refused_senders: u64,
}

/// The result of [`Copied::poll`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// The messages so far were processed, perhaps none.
    Later,
    /// The copy has ended.
    End,
}

/// An open copy.
pub(super) struct Copied {
    feed: Feed,
    whose: Whose,
    pub counts: Counts,
    /// True for a live copy.
    pub is_live: bool,
    /// Ends the thread that accepts senders.
    over: Arc<AtomicBool>,
}

enum Feed {
    Capture(Box<Source>),
    Frames {
        arrived: Receiver<Arrived>,
        /// The thread that accepts senders, and removes the socket's path.
        acceptor: Option<JoinHandle<()>>,
    },
}

enum Arrived {
    Frame(Vec<u8>),
    /// A stream ended in damage.
    Damaged,
    RefusedSender,
    /// It is not dnstap.
    Foreign(String),
}

/// The servers whose messages are compared.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    /// Addresses of the resolver; an unspecified one stands for all.
    pub resolvers: Vec<SocketAddr>,
    /// Addresses from which larder, but no client, sends queries.
    pub own: Vec<IpAddr>,
}

impl Whose {
    fn is_resolver(&self, address: SocketAddr) -> bool {
        self.resolvers.iter().any(|resolver| {
            resolver.port() == address.port()
                && (resolver.ip().is_unspecified() || resolver.ip() == address.ip())
        })
    }

    /// True for an address from which the resolver sends its own queries.
    fn queries_from(&self, address: IpAddr) -> bool {
        !address.is_loopback() && self.resolvers.iter().any(|resolver| resolver.ip() == address)
    }
}

impl Copied {
    /// Opens a copy. The error says what to do next.
    pub fn open(from: &From, whose: Whose, stop: &Arc<AtomicBool>) -> Result<Copied, String> {
        let over = Arc::new(AtomicBool::new(false));
        let (feed, is_live) = match from {
            From::File(path) if begins_as_dnstap(path) => Feed::file(path, stop)?,
            From::File(path) => {
                let input = Input::open_until(path, stop).map_err(|error| error.to_string())?;
                let is_live = input.is_live();
                let options = SourceOptions { in_flight: 2, ..SourceOptions::default() };
                let source = Source::new(input, 0, options, stop);
                let source = source.map_err(|error| error.to_string())?;
                (Feed::Capture(Box::new(source)), is_live)
            }
            From::Dnstap(path) => Feed::file(path, stop)?,
            From::Socket(path) => (Feed::socket(path.clone(), [stop, &over])?, true),
        };
        Ok(Copied { feed, whose, counts: Counts::default(), is_live, over })
    }

    /// Passes the messages so far to `each`; waits at most about [`PATIENCE`] for them. The error
    /// says what to do next.
    pub fn poll(
        &mut self,
        stop: &AtomicBool,
        each: &mut dyn FnMut(&Seen<'_>),
    ) -> Result<Polled, String> {
        let Copied { feed, whose, counts, is_live, .. } = self;
        match feed {
            Feed::Capture(source) => match source.poll_batch(stop) {
                Given::Batch(batch) => {
                    // Messages of a live copy that have arrived are all processed. Reading a file
                    // ends at once.
                    let ends = || !*is_live && stop.load(Ordering::Relaxed);
                    read_batch(&batch, whose, counts, &ends, each);
                    Ok(Polled::Later)
                }
                Given::Later => Ok(Polled::Later),
                Given::End => {
                    counts.damaged +=
                        source.damage().iter().map(|damage| damage.count).sum::<u64>();
                    Ok(Polled::End)
                }
            },
            Feed::Frames { arrived, .. } => {
                // After a request to stop, messages that have arrived are processed, without
                // waiting for more.
                let ends = stop.load(Ordering::Relaxed);
                let mut patience = if ends { Duration::ZERO } else { PATIENCE };
                for _ in 0..if ends { FRAMES_MAX } else { FRAMES_AT_ONCE } {
                    match arrived.recv_timeout(patience) {
                        Ok(Arrived::Frame(frame)) => read_frame(&frame, whose, counts, each),
                        Ok(Arrived::Damaged) => counts.damaged += 1,
                        Ok(Arrived::RefusedSender) => counts.refused_senders += 1,
                        Ok(Arrived::Foreign(why)) => return Err(why),
                        Err(RecvTimeoutError::Timeout) => break,
                        Err(RecvTimeoutError::Disconnected) => return Ok(Polled::End),
                    }
                    patience = Duration::ZERO;
                }
                Ok(if ends { Polled::End } else { Polled::Later })
            }
        }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Feed::Frames { acceptor, .. } = &mut self.feed
            && let Some(acceptor) = acceptor.take()
        {
            // It removes the socket's path. A panic was printed.
            let _ = acceptor.join();
        }
    }
}

impl Feed {
    /// dnstap from a file or pipe, and whether it is live.
    fn file(path: &PathBuf, stop: &Arc<AtomicBool>) -> Result<(Feed, bool), String> {
        let Input { name, content } =
            Input::open_until(path, stop).map_err(|error| error.to_string())?;
        let (reader, is_live): (Box<dyn Read + Send>, bool) = match content {
            Content::Stream { file, live } => (Box::new(Lazy::Closed(Some(file))), live),
            // Read rather than mapped: frames are copied anyway.
            Content::Mapped(_) => {
                let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
                (Box::new(file), false)
            }
            Content::Memory(bytes) => (Box::new(bytes), false),
            // A path opens none.
            Content::Senders(_) => (Box::new(std::io::empty()), false),
        };
        let (say, arrived) = sync_channel(FRAMES_MAX);
        let read = move || {
            let foreign = |error: FrameError| {
                let next = "name a file that a dnstap sender or fstrm_capture wrote";
                Arrived::Foreign(format!("{name}: {error}; {next}"))
            };
            match Frames::open(BufReader::new(reader)) {
                Ok(frames) => drop(pass_on(frames, &say)),
                // The receiver may be gone.
                Err(error) => drop(say.send(foreign(error))),
            }
        };
        let thread = thread::Builder::new().name("larder-dnstap".to_owned());
        thread.spawn(read).map_err(|error| format!("no thread could be started ({error})"))?;
        Ok((Feed::Frames { arrived, acceptor: None }, is_live))
    }

    /// dnstap from senders that connect to a socket.
    fn socket(path: PathBuf, ends: [&Arc<AtomicBool>; 2]) -> Result<Feed, String> {
        let name = path.display().to_string();
        let socket = Socket::bind(path).map_err(|why| format!("{name}: {why}"))?;
        let (say, arrived) = sync_channel(FRAMES_MAX);
        let (ends, refusing) = (ends.map(Arc::clone), say.clone());
        let is_over: IsOver = Arc::new(move || ends.iter().any(|end| end.load(Ordering::Relaxed)));
        let receive = move |stream: Patient| match Frames::accept(stream) {
            Ok(frames) => {
                if let Some(mut frames) = pass_on(frames, &say) {
                    // The sender may be gone; no message is lost.
                    let _ = frames.finish();
                }
            }
            Err(_) => drop(say.send(Arrived::RefusedSender)),
        };
        let refuse = move || drop(refusing.try_send(Arrived::RefusedSender));
        let acceptor = socket
            .receive(is_over, receive, refuse)
            .map_err(|error| format!("no thread could be started ({error})"))?;
        Ok(Feed::Frames { arrived, acceptor: Some(acceptor) })
    }
}

/// Passes on all frames of a stream, and returns it if it ended properly.
fn pass_on<S: Read>(mut frames: Frames<S>, say: &SyncSender<Arrived>) -> Option<Frames<S>> {
    loop {
        let arrived = match frames.next_frame() {
            Ok(Some(frame)) => Arrived::Frame(frame.to_vec()),
            Ok(None) => return Some(frames),
            Err(_) => {
                let _ = say.send(Arrived::Damaged);
                return None;
            }
        };
        if say.send(arrived).is_err() {
            return None;
        }
    }
}

/// A stream that is checked for compression at its first read, which may wait.
enum Lazy {
    Closed(Option<File>),
    Open(Box<dyn Read + Send>),
}

impl Read for Lazy {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if let Lazy::Closed(file) = self {
            let Some(file) = file.take() else { return Ok(0) };
            *self = Lazy::Open(decoder(file)?.0);
        }
        match self {
            Lazy::Open(reader) => reader.read(out),
            Lazy::Closed(_) => Ok(0),
        }
    }
}

/// True for a plain file that begins with the zero of a control frame, which no capture does.
fn begins_as_dnstap(path: &PathBuf) -> bool {
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let mut head = [1; 4];
    is_file
        && File::open(path).is_ok_and(|file| file.read_exact_at(&mut head, 0).is_ok())
        && head == [0; 4]
}

/// Passes on the messages of a batch of packets.
fn read_batch(
    batch: &Batch,
    whose: &Whose,
    counts: &mut Counts,
    ends: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&Seen<'_>),
) {
    let Some(begin) = batch.begin() else { return };
    let records = batch.capture.clone().records(&batch.bytes, begin..batch.limit, batch.at_end);
    for (_, record) in records.take_while(|_| !ends()) {
        let Ok(record) = record else {
            counts.damaged += 1;
            continue;
        };
        counts.records += 1;
        match packet::decode(record.link_type, record.frame) {
            Ok(packet) => read_packet(&packet, &record, whose, counts, each),
            Err(_) => counts.foreign += 1,
        }
    }
}

fn read_packet(
    packet: &Packet,
    record: &larder_wire::capture::Record<'_>,
    whose: &Whose,
    counts: &mut Counts,
    each: &mut dyn FnMut(&Seen<'_>),
) {
    let src = SocketAddr::new(packet.src.into(), packet.src_port);
    let dst = SocketAddr::new(packet.dst.into(), packet.dst_port);
    let (kind, client) = if whose.is_resolver(dst) {
        (Kind::ClientQuery, src)
    } else if whose.is_resolver(src) {
        (Kind::ClientResponse, dst)
    } else if dst.port() == PORT && whose.queries_from(src.ip()) {
        (Kind::Upstream { is_query: true }, src)
    } else if src.port() == PORT && whose.queries_from(dst.ip()) {
        (Kind::Upstream { is_query: false }, dst)
    } else {
        counts.foreign += 1;
        return;
    };
    if packet.fragment.is_some() {
        counts.fragments += 1;
        return;
    }
    match packet.protocol {
        PROTOCOL_UDP => {}
        PROTOCOL_TCP => {
            counts.tcp_packets += 1;
            return;
        }
        _ => {
            counts.foreign += 1;
            return;
        }
    }
    if packet.payload_len < packet.payload_bytes {
        counts.cut += 1;
        return;
    }
    let begin = packet.payload_offset as usize;
    let message = &record.frame[begin..begin + packet.payload_len as usize];
    let seen =
        Seen { kind, client, is_stream: false, at_ns: record.ts_ns, query_ns: None, message };
    report(&seen, whose, counts, each);
}

/// Passes on the message of a frame.
fn read_frame(frame: &[u8], whose: &Whose, counts: &mut Counts, each: &mut dyn FnMut(&Seen<'_>)) {
    counts.records += 1;
    let Some(found) = Message::parse(frame) else {
        counts.damaged += 1;
        return;
    };
    let (kind, message, at_ns) = match found.kind {
        5 => (Kind::ClientQuery, found.query, found.query_time_ns),
        6 => (Kind::ClientResponse, found.response, found.response_time_ns),
        3 | 7 => (Kind::Upstream { is_query: true }, found.query, found.query_time_ns),
        4 | 8 => (Kind::Upstream { is_query: false }, found.response, found.response_time_ns),
        _ => {
            counts.foreign += 1;
            return;
        }
    };
    let (Some(message), Some(at_ns)) = (message, at_ns) else {
        counts.damaged += 1;
        return;
    };
    let is_upstream = matches!(kind, Kind::Upstream { .. });
    let at_other = found.server.is_some_and(|server| {
        let ports: Vec<u16> = match found.server_port {
            Some(port) => vec![port],
            None => whose.resolvers.iter().map(SocketAddr::port).collect(),
        };
        !ports.iter().any(|port| whose.is_resolver(SocketAddr::new(server.into(), *port)))
    });
    let client = match (found.client, found.client_port) {
        (Some(client), Some(port)) => SocketAddr::new(client.into(), port),
        _ if is_upstream => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        _ => {
            counts.damaged += 1;
            return;
        }
    };
    if !is_upstream && at_other {
        counts.foreign += 1;
        return;
    }
    // TCP, TLS, HTTPS, DNSCrypt over TCP, QUIC.
    let is_stream = matches!(found.protocol, 2..=4 | 6 | 7);
    let query_ns = found.query_time_ns.filter(|_| kind == Kind::ClientResponse);
    report(&Seen { kind, client, is_stream, at_ns, query_ns, message }, whose, counts, each);
}

fn report(seen: &Seen<'_>, whose: &Whose, counts: &mut Counts, each: &mut dyn FnMut(&Seen<'_>)) {
    let is_upstream = matches!(seen.kind, Kind::Upstream { .. });
    if !is_upstream && whose.own.contains(&seen.client.ip()) {
        counts.own += u64::from(seen.kind == Kind::ClientQuery);
    } else {
        each(seen);
    }
}
