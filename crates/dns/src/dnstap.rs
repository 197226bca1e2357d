//! dnstap: records queries and responses to a file or to a collector's socket.
//!
//! ```text
//! a core: tap.record(&event), tap.flush() -> record channel -> a thread: Frame Streams to a file or socket
//!
//! file     START, frames, STOP
//! socket   READY ->, <- ACCEPT, START ->, frames ->, STOP ->, <- FINISH
//! ```
//!
//! A frame is one protobuf message (dnstap.proto of dnstap.info) of type MESSAGE; its few fields
//! are written by hand here. It has the bytes of a DNS message, its addresses, transport and time.
//!
//! A file is overwritten at the start and by [`Writer::reopen`], which is called after a rotation.
//! A lost socket is connected again, and writing a file is tried again after an error, as in
//! [`larder_serve::writer`].
//!
//! Bounds: those of [`larder_serve::record_channel`]; a write to a socket waits for
//! [`SOCKET_TIMEOUT`] at most, on the writer's own thread. Cost: some 60 bytes in addition to the
//! message, and a copy.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use larder_io::frame_streams::{CONTENT_TYPE, CONTROL_BYTES_MAX, control, control_frame};

use larder_serve::log::Log;
use larder_serve::record_channel::RecordSender;
use larder_serve::writer::{Sink, Writer, write_whole};

/// How long a collector may take to respond, or to read.
pub const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);

/// Kind of a message; the numbers are those of dnstap.proto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A query from a client.
    ClientQuery = 5,
    /// The response to it.
    ClientResponse = 6,
    /// A query to an upstream.
    ForwarderQuery = 7,
    /// The response to it.
    ForwarderResponse = 8,
}

/// Transport; the numbers are those of dnstap.proto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// UDP.
    Udp = 1,
    /// TCP.
    Tcp = 2,
    /// DNS over TLS.
    Tls = 3,
    /// DNS over HTTPS.
    Https = 4,
    /// DNS over QUIC.
    Quic = 7,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 5] =
        [Protocol::Udp, Protocol::Tcp, Protocol::Tls, Protocol::Https, Protocol::Quic];

    /// The word of logs.
    pub fn word(self) -> &'static str {
        match self {
            Protocol::Udp => "udp",
            Protocol::Tcp => "tcp",
            Protocol::Tls => "tls",
            Protocol::Https => "https",
            Protocol::Quic => "quic",
        }
    }
}

/// A message that was received or sent.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its transport.
    pub protocol: Protocol,
    /// Sender of the query; `None` if the server's own address is not known.
    pub query_address: Option<SocketAddr>,
    /// Receiver of the query; `None` if the server's own address is not known.
    pub response_address: Option<SocketAddr>,
    /// Time of the query, ns since 1970 UTC; of a response only if it is known.
    pub query_ns: Option<u64>,
    /// Time of the response; `None` for a query.
    pub response_ns: Option<u64>,
    /// The message in wire form: the response if there is `response_ns`, otherwise the query.
    pub message: &'a [u8],
}

/// Records the messages of one core.
#[derive(Debug)]
pub struct Tap {
    sender: RecordSender,
    identity: Arc<str>,
    /// A buffer reused for each record.
    inner: Vec<u8>,
}

impl Tap {
    /// A tap for another core.
    pub fn another(&self) -> Tap {
        let identity = Arc::clone(&self.identity);
        Tap { sender: self.sender.another(), identity, inner: Vec::new() }
    }

    /// Records a message.
    pub fn record(&mut self, event: &Event<'_>) {
        self.inner.clear();
        put_message(&mut self.inner, event);
        let (inner, identity) = (&self.inner, &self.identity);
        self.sender.record(|out| put_frame(out, identity, inner));
    }

    /// Passes the records to the writer thread. Call it once in a turn.
    pub fn flush(&mut self) {
        self.sender.flush();
    }

    /// Records dropped because the buffer was full.
    pub fn dropped(&self) -> u64 {
        self.sender.dropped()
    }
}

/// A frame after its length.
fn put_frame(out: &mut Vec<u8>, identity: &str, inner: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put_bytes(out, 1, identity.as_bytes());
    put_bytes(out, 2, concat!("larder ", env!("CARGO_PKG_VERSION")).as_bytes());
    put_bytes(out, 14, inner);
    // Type MESSAGE.
    put_number(out, 15, 1);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// dnstap.proto's `Message`.
fn put_message(out: &mut Vec<u8>, event: &Event<'_>) {
    put_number(out, 1, event.kind as u64);
    if let Some(either) = event.query_address.or(event.response_address) {
        put_number(out, 2, if either.is_ipv4() { 1 } else { 2 });
    }
    put_number(out, 3, event.protocol as u64);
    for (field, address) in [(4, event.query_address), (5, event.response_address)] {
        if let Some(address) = address {
            put_address(out, field, address.ip());
        }
    }
    for (field, address) in [(6, event.query_address), (7, event.response_address)] {
        if let Some(address) = address {
            put_number(out, field, address.port().into());
        }
    }
    if let Some(query_ns) = event.query_ns {
        put_time(out, 8, query_ns);
    }
    match event.response_ns {
        None => put_bytes(out, 10, event.message),
        Some(response_ns) => {
            put_time(out, 12, response_ns);
            put_bytes(out, 14, event.message);
        }
    }
}

fn put_address(out: &mut Vec<u8>, field: u8, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => put_bytes(out, field, &v4.octets()),
        IpAddr::V6(v6) => put_bytes(out, field, &v6.octets()),
    }
}

/// Seconds in `field`, nanoseconds of fixed width in the next one.
fn put_time(out: &mut Vec<u8>, field: u8, ns: u64) {
    put_number(out, field, ns / 1_000_000_000);
    out.push((field + 1) << 3 | 5);
    out.extend_from_slice(&((ns % 1_000_000_000) as u32).to_le_bytes());
}

/// A field of bytes. Fields have numbers below 16, so a tag is one byte.
fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, field: u8, number: u64) {
    out.push(field << 3);
    put_varint(out, number);
}

/// Groups of seven bits, the lowest first.
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The target of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A file, which is overwritten.
    File(PathBuf),
    /// A collector that listens at a Unix socket.
    Socket(PathBuf),
}

/// Starts to write to `target`. `identity` names this server in every record (its host's name,
/// usually).
pub fn start(target: Target, identity: &str, log: &Log) -> io::Result<(Writer, Tap)> {
    let (writer, sender) = Writer::start(Output { target, stream: None }, log)?;
    let tap = Tap { sender, identity: identity.into(), inner: Vec::new() };
    Ok((writer, tap))
}

/// An open target.
struct Output {
    target: Target,
    stream: Option<Stream>,
}

enum Stream {
    /// The file, and the number of its bytes that are complete frames.
    File(File, u64),
    Socket(UnixStream),
}

impl Sink for Output {
    fn name(&self) -> &'static str {
        "dnstap"
    }

    fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    fn open(&mut self) -> io::Result<()> {
        self.stream = Some(match &self.target {
            Target::File(path) => {
                let mut file = File::create(path)?;
                let start = control_frame(control::START, Some(CONTENT_TYPE));
                file.write_all(&start)?;
                Stream::File(file, start.len() as u64)
            }
            Target::Socket(path) => Stream::Socket(greet(UnixStream::connect(path)?)?),
        });
        Ok(())
    }

    fn write(&mut self, frames: &[u8]) -> io::Result<()> {
        let written = self.stream.as_mut().map_or(Ok(()), |stream| stream.write(frames));
        // A file keeps its content, and writing continues there.
        if written.is_err() && matches!(self.stream, Some(Stream::Socket(_))) {
            self.stream = None;
        }
        written
    }

    /// Ends the stream as its readers expect. An error here loses no record.
    fn close(&mut self) {
        let stop = control_frame(control::STOP, None);
        match self.stream.take() {
            None => {}
            Some(Stream::File(mut file, _)) => {
                let _ = file.write_all(&stop);
            }
            Some(Stream::Socket(mut socket)) => {
                let _ =
                    socket.write_all(&stop).and_then(|()| receive(&mut socket, control::FINISH));
            }
        }
    }

    fn place(&self) -> (&Path, &'static str) {
        match &self.target {
            Target::File(path) => (path, "make room there, or name another file"),
            Target::Socket(path) => (path, "is the collector running?"),
        }
    }
}

impl Stream {
    /// Writes whole frames.
    fn write(&mut self, frames: &[u8]) -> io::Result<()> {
        match self {
            Stream::Socket(socket) => socket.write_all(frames),
            Stream::File(file, whole) => write_whole(file, whole, frames),
        }
    }
}

/// The handshake with a collector.
fn greet(mut socket: UnixStream) -> io::Result<UnixStream> {
    socket.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    socket.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    socket.write_all(&control_frame(control::READY, Some(CONTENT_TYPE)))?;
    receive(&mut socket, control::ACCEPT)?;
    socket.write_all(&control_frame(control::START, Some(CONTENT_TYPE)))?;
    Ok(socket)
}

/// Reads a control frame, which must have the expected type. An ACCEPT must include dnstap.
fn receive(socket: &mut UnixStream, expected: u32) -> io::Result<()> {
    let foreign =
        || io::Error::new(io::ErrorKind::InvalidData, "no dnstap collector listens there");
    let mut number = || {
        let mut bytes = [0; 4];
        socket.read_exact(&mut bytes).map(|()| u32::from_be_bytes(bytes))
    };
    let (zero, length, kind) = (number()?, number()?, number()?);
    if zero != 0 || !(4..=CONTROL_BYTES_MAX as u32).contains(&length) || kind != expected {
        return Err(foreign());
    }
    let mut fields = vec![0; length as usize - 4];
    socket.read_exact(&mut fields)?;
    let takes = fields.windows(CONTENT_TYPE.len()).any(|field| field == CONTENT_TYPE);
    if expected == control::ACCEPT && !takes { Err(foreign()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_io::frame_streams::Frames;
    use larder_serve::log::{Format, Level};
    use larder_wire::Addr;
    use larder_wire::dnstap::Message;
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::thread;
    use std::time::Instant;

    fn event(kind: Kind, message: &[u8]) -> Event<'_> {
        let response_ns = [Kind::ClientResponse, Kind::ForwarderResponse]
            .contains(&kind)
            .then_some(1_700_000_001_000_000_002);
        Event {
            kind,
            protocol: Protocol::Udp,
            query_address: Some("192.0.2.7:4242".parse().unwrap()),
            response_address: Some("[2001:db8::1]:53".parse().unwrap()),
            query_ns: Some(1_700_000_000_999_999_999),
            response_ns,
            message,
        }
    }

    /// Reads a stream to its end: kinds and messages.
    fn read<S: Read>(mut frames: Frames<S>) -> (Vec<(u32, Vec<u8>)>, Frames<S>) {
        let mut all = Vec::new();
        while let Some(frame) = frames.next_frame().unwrap() {
            let message = Message::parse(frame).unwrap();
            let bytes = message.query.or(message.response).unwrap().to_vec();
            all.push((message.kind, bytes));
        }
        (all, frames)
    }

    fn wait(mut is_done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// An independent reader of dnstap finds every field.
    #[test]
    fn fields_arrive() {
        let long = [7; 300];
        for kind in
            [Kind::ClientQuery, Kind::ClientResponse, Kind::ForwarderQuery, Kind::ForwarderResponse]
        {
            let (mut inner, mut frame) = (Vec::new(), Vec::new());
            let event = event(kind, &long);
            put_message(&mut inner, &event);
            put_frame(&mut frame, "host", &inner);
            let is_response = event.response_ns.is_some();
            let expected = Message {
                kind: kind as u32,
                protocol: Protocol::Udp as u32,
                client: Some(Addr::v4([192, 0, 2, 7])),
                server: Some(Addr::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])),
                client_port: Some(4242),
                server_port: Some(53),
                query_time_ns: Some(1_700_000_000_999_999_999),
                response_time_ns: is_response.then_some(1_700_000_001_000_000_002),
                query: (!is_response).then_some(&long[..]),
                response: is_response.then_some(&long[..]),
            };
            assert_eq!(Message::parse(&frame[4..]), Some(expected));
            assert_eq!(frame[..4], ((frame.len() - 4) as u32).to_be_bytes());
        }
    }

    /// The file has the records of several cores when the writer has finished. A rotated file is
    /// complete, and the writer begins another.
    #[test]
    fn files_are_written_and_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("tap"), folder.path().join("tap.1"));
        let (writer, mut tap) = start(Target::File(path.clone()), "host", &Log::default()).unwrap();
        let mut other = tap.another();
        tap.record(&event(Kind::ClientQuery, b"one"));
        tap.flush();
        wait(|| writer.counts().0 == 1);
        fs::rename(&path, &rotated).unwrap();
        writer.reopen();
        wait(|| path.exists());
        other.record(&event(Kind::ClientResponse, b"two"));
        other.flush();
        tap.record(&event(Kind::ForwarderQuery, b"three"));
        tap.flush();
        assert_eq!(tap.dropped(), 0);
        writer.finish();
        let content = |path| read(Frames::open(File::open(path).unwrap()).unwrap()).0;
        assert_eq!(content(&rotated), [(5, b"one".to_vec())]);
        assert_eq!(content(&path), [(6, b"two".to_vec()), (7, b"three".to_vec())]);
        assert!(fs::read(&rotated).unwrap().ends_with(&control_frame(control::STOP, None)));
    }

    /// A collector gets the stream after the handshake. A missing collector is reported once, and
    /// the writer connects when it is there. Records until then are counted as dropped.
    #[test]
    fn collectors_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("collector");
        let log = Log::new("dns", Level::Info, Format::Text);
        let (writer, mut tap) = start(Target::Socket(path.clone()), "host", &log).unwrap();
        tap.record(&event(Kind::ClientQuery, b"lost"));
        tap.flush();
        wait(|| writer.counts() == (0, 1));
        let lines = log.take();
        assert!(lines.len() == 1 && lines[0].contains("is the collector running?"), "{lines:?}");
        let listener = UnixListener::bind(&path).unwrap();
        // `reopen` ends the wait for the next try.
        writer.reopen();
        let (socket, _) = listener.accept().unwrap();
        let frames = Frames::accept(socket).unwrap();
        tap.record(&event(Kind::ClientQuery, b"kept"));
        tap.flush();
        let collector = thread::spawn(move || {
            let (all, mut frames) = read(frames);
            frames.finish().unwrap();
            all
        });
        wait(|| writer.counts() == (1, 1));
        writer.finish();
        assert_eq!(collector.join().unwrap(), [(5, b"kept".to_vec())]);
    }

    /// A full disk is reported once. It loses records, each of which is counted, and the writer
    /// continues.
    #[test]
    fn a_full_disk_is_reported_once() {
        let path = PathBuf::from("/dev/full");
        let log = Log::new("dns", Level::Info, Format::Text);
        let (writer, mut tap) = start(Target::File(path), "host", &log).unwrap();
        for number in 1..=3 {
            tap.record(&event(Kind::ClientQuery, b"lost"));
            tap.flush();
            wait(|| writer.counts() == (0, number));
        }
        let lines = log.take();
        assert!(lines.len() == 1 && lines[0].contains("make room there"), "{lines:?}");
        writer.finish();
    }

    /// A server that responds but is not a collector gets no records.
    #[test]
    fn others_are_no_collectors() {
        for answer in [
            control_frame(control::ACCEPT, None),
            control_frame(control::FINISH, Some(CONTENT_TYPE)),
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            [&[0; 4][..], &[0xff; 8]].concat(),
        ] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&answer).unwrap();
            let error = greet(ours).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
