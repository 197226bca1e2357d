//! The name that a flow states itself: TLS or QUIC server name, HTTP Host.
//!
//! Only the initiator's first octets are looked at. The common case, a head that lies whole in one
//! segment, is read where it lies in the capture; a head that spans segments is put together in a
//! [`Stream`] under the worker's share of the reassembly budget. Looking ends with the first name,
//! or after `TRIES_MAX` segments that begin nothing (a STARTTLS or a proxy's CONNECT may come
//! before the ClientHello, so one miss is not enough).

use larder_wire::Name;
use larder_wire::http;
use larder_wire::quic;
use larder_wire::stream::{Budget, Stream};
use larder_wire::tls;

use crate::flow::tcp_flag::SYN;
use crate::record::App;

/// Segments or datagrams that are looked at before giving up.
const TRIES_MAX: u8 = 10;
/// Most octets of one head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// What one flow said of itself so far.
#[derive(Debug, Default)]
pub struct OwnName {
    /// Server name of TLS or QUIC.
    pub server_name: Option<Name>,
    /// HTTP/1 Host, without its port.
    pub http_host: Option<Name>,
    /// What the flow speaks.
    pub app: Option<App>,
    stream: Option<Box<Stream>>,
    quic: Option<Box<quic::Assembler>>,
    http: http::HeadScanner,
    tries: u8,
    done: bool,
}

/// One segment of the initiator.
pub struct Segment<'a> {
    /// Sequence number of its first octet.
    pub seq: u32,
    /// Sequence number that the initiator's first octet must have, where the SYN was seen.
    pub seq_first: Option<u32>,
    /// Captured payload.
    pub data: &'a [u8],
}

enum Head {
    Nothing,
    NeedMore,
    Done,
}

impl OwnName {
    /// True when nothing more will be learned.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The names that it said.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.server_name.iter().chain(&self.http_host)
    }

    /// The same for the rest of a flow: nothing more is to be learned.
    pub fn settled(&self) -> OwnName {
        OwnName {
            server_name: self.server_name.clone(),
            http_host: self.http_host.clone(),
            app: self.app,
            done: true,
            ..OwnName::default()
        }
    }

    /// Takes a TCP segment of the initiator.
    pub fn tcp(&mut self, segment: &Segment<'_>, budget: &mut Budget) {
        if self.stream.is_none() {
            let ahead =
                self.tries == 0 && segment.seq_first.is_some_and(|first| first != segment.seq);
            if !ahead {
                match self.examine(segment.data) {
                    Head::Done => return self.finish(budget),
                    Head::Nothing => return self.miss(budget),
                    Head::NeedMore => {}
                }
            }
            let mut stream = Box::new(Stream::new());
            if let (true, Some(first)) = (ahead, segment.seq_first) {
                stream.push(first.wrapping_sub(1), SYN, &[], budget);
            }
            self.stream = Some(stream);
        }
        let Some(mut stream) = self.stream.take() else { return };
        stream.push(segment.seq, 0, segment.data, budget);
        if segment.seq_first.is_none() {
            // A stream without a SYN may still move its origin back.
            self.http = http::HeadScanner::new();
        }
        let head = match stream.contiguous() {
            [] => Head::NeedMore,
            bytes => self.examine(bytes),
        };
        let too_long = stream.buffered_bytes() > HEAD_BYTES_MAX;
        match head {
            Head::Done => {
                stream.clear(budget);
                self.finish(budget);
            }
            Head::NeedMore if !too_long => {
                self.stream = Some(stream);
                self.tries += 1;
                // A head of many tiny segments is bounded by octets, not by tries.
                if self.tries == u8::MAX {
                    self.finish(budget);
                }
            }
            _ => {
                stream.clear(budget);
                self.miss(budget);
            }
        }
    }

    /// Takes a UDP datagram of the initiator.
    pub fn udp(&mut self, data: &[u8], budget: &mut Budget) {
        if self.quic.is_none() && !quic::looks_like_initial(data) {
            return self.finish(budget);
        }
        let assembler = self.quic.get_or_insert_with(Default::default);
        let held_before = assembler.held_bytes();
        let found = match assembler.push(data) {
            quic::Initial::Found(hello) => Some(hello.server_name.as_deref().and_then(host_name)),
            quic::Initial::NeedMore => {
                self.app = Some(App::Quic);
                None
            }
            _ => None,
        };
        let held = assembler.held_bytes();
        budget.recharge(held_before, held);
        match found {
            Some(server_name) => {
                self.app = Some(App::Quic);
                self.server_name = server_name;
                self.finish(budget);
            }
            // Out of room: this flow stays unnamed by itself, and is not retried.
            None if budget.free_bytes() == 0 => self.finish(budget),
            None => self.miss(budget),
        }
    }

    /// Gives back what is held; the flow ended or nothing more is wanted.
    pub fn finish(&mut self, budget: &mut Budget) {
        if let Some(mut stream) = self.stream.take() {
            stream.clear(budget);
        }
        if let Some(quic) = self.quic.take() {
            budget.recharge(quic.held_bytes(), 0);
        }
        self.done = true;
    }

    fn miss(&mut self, budget: &mut Budget) {
        self.http = http::HeadScanner::new();
        self.tries += 1;
        if self.tries >= TRIES_MAX {
            self.finish(budget);
        }
    }

    fn examine(&mut self, bytes: &[u8]) -> Head {
        match tls::client_hello(bytes) {
            tls::Hello::Found(hello) => {
                self.app = Some(App::Tls);
                self.server_name = hello.server_name.as_deref().and_then(host_name);
                return Head::Done;
            }
            tls::Hello::NeedMore => return Head::NeedMore,
            tls::Hello::Malformed => return Head::Done,
            tls::Hello::NotTls => {}
        }
        match self.http.scan(bytes) {
            http::Head::Found(request) => {
                self.app = Some(App::Http);
                if self.http_host.is_none() {
                    self.http_host = request.host.or(request.target_authority).and_then(host_name);
                }
                // Behind a proxy's CONNECT there may come a ClientHello.
                if request.method == b"CONNECT" { Head::Nothing } else { Head::Done }
            }
            http::Head::NeedMore => Head::NeedMore,
            http::Head::Malformed => Head::Done,
            http::Head::NotHttp => Head::Nothing,
        }
    }
}

/// A stated host as a name; an IP literal names nothing.
fn host_name(host: &[u8]) -> Option<Name> {
    let (name, _port) = http::host_name(host)?;
    Name::from_text(name)
}
