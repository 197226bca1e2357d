//! The name that a flow states: server name of TLS, DTLS or QUIC, HTTP Host or `:authority`, also
//! after the header of a PROXY protocol.
//!
//! Only the initiator's first bytes are read. The common case, a head that is whole in one segment,
//! is read in place in the capture. A head that spans segments is reassembled in a [`Stream`],
//! under the worker's part of the reassembly budget. Reading ends with the first name, or after
//! `TRIES_MAX` segments that begin nothing (a STARTTLS or a proxy's CONNECT may come before the
//! ClientHello, so one miss is not enough).
//!
//! **Decoys.** Tools that evade filters send a head with a false name first, in a packet that the
//! server drops: its checksum is wrong, its TTL too short, its sequence number old. The true head
//! must follow at the same place of the stream, and before the server responds. So larder watches
//! the flow until its responder sends the first bytes (at most `WATCH_MAX` packets of the
//! initiator). A head with another name, or other bytes in place of the head, sets
//! [`OwnName::contradicts`]. This needs neither checksums, which are wrong in each capture of a
//! host with checksum offload, nor a guess of which TTL is short. It costs nothing for packets
//! after the first response.

use larder_wire::Name;
use larder_wire::dtls;
use larder_wire::http;
use larder_wire::http2;
use larder_wire::name::NAME_BYTES_MAX;
use larder_wire::proxy_prefix::{Prefix, prefix};
use larder_wire::quic;
use larder_wire::stream::{Budget, Stream};
use larder_wire::tls;

use crate::flow::tcp_flag::SYN;
use crate::options::NameSources;
use crate::record::{App, NameSource};
use crate::stated::choose;

/// Segments or datagrams that are examined, at most.
const TRIES_MAX: u8 = 10;
/// Segments or datagrams of the initiator that are watched after the first head, at most.
const WATCH_MAX: u8 = 8;
/// Bytes of one head, at most.
pub(crate) const HEAD_BYTES_MAX: u32 = 64 << 10;
/// Segments of one head, at most.
pub(crate) const SEGMENTS_MAX: u8 = u8::MAX;
/// Datagrams of an initiator that are examined, at most.
pub(crate) const DATAGRAMS_MAX: u8 = TRIES_MAX + WATCH_MAX;

/// A host as a flow stated it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Without its port, in lower case, and at most [`NAME_BYTES_MAX`] bytes of it.
    pub text: Name,
    /// It is a host name. Other text (an IP address, a name longer than DNS allows) is logged, and
    /// names nothing.
    pub is_name: bool,
}

impl Stated {
    fn of(bytes: &[u8]) -> Option<Stated> {
        let (text, is_name) = match http::host_name(bytes) {
            Some((name, _port)) => (name, true),
            None => (&bytes[..bytes.len().min(NAME_BYTES_MAX)], false),
        };
        Some(Stated { text: Name::from_text(text)?, is_name })
    }
}

/// True when this datagram, the first or a later one, may be a part of what states the name of a UDP flow.
pub(crate) fn may_state(datagram: &[u8]) -> bool {
    // Long headers of QUIC, and handshakes of DTLS.
    datagram.first().is_some_and(|first| *first >= 0xc0 || *first == 22) || may_begin(datagram)
}

/// False when no flow of QUIC or DTLS has this datagram. The first byte decides, which is QUIC's header form and fixed
/// bit (RFC 9000, 17), or the content type of DTLS (RFC 9147, 4.1).
pub(crate) fn may_follow(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| matches!(first, 20..=0x7f | 0xc0..)) || may_begin(datagram)
}

/// True when this datagram may state the name of a UDP flow.
pub fn may_begin(datagram: &[u8]) -> bool {
    quic::may_begin(datagram) || dtls::looks_like_hello(datagram)
}

/// The statements of one flow so far.
#[derive(Debug, Default)]
pub struct OwnName {
    /// Server name of TLS or QUIC.
    pub server_name: Option<Stated>,
    /// HTTP Host, without its port.
    pub http_host: Option<Stated>,
    /// The protocol of the flow.
    pub app: Option<App>,
    /// Whether the ClientHello has an encrypted one inside, or bytes that look like one; `None`
    /// without a ClientHello.
    pub ech: Option<bool>,
    /// The flow stated two hosts, or sent other bytes in place of its head.
    pub contradicts: bool,
    /// The other host, if it is a name.
    pub other: Option<Name>,
    /// The flow goes on after a record of it was written, and the names are those of that record.
    pub is_rest: bool,
    stream: Option<Box<Stream>>,
    datagrams: Option<Box<Datagrams>>,
    http: http::HeadScanner,
    /// Bytes of a PROXY header before the HTTP head.
    http_at: usize,
    /// The HTTP head continues after its first Host.
    http_is_open: bool,
    /// While watching: `stream` has the bytes that came again in place of the head.
    is_again: bool,
    /// Sequence number of the head that was read from one segment, and its length.
    head_seq: u32,
    head_bytes: u32,
    tries: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Looking for a head.
    #[default]
    Looking,
    /// A head was found; looking for a second one until the responder answers.
    Watching,
    Done,
}

/// Reassembles the hello of a flow of datagrams.
#[derive(Debug)]
enum Datagrams {
    Quic(quic::Assembler),
    Dtls(dtls::Assembler),
}

/// The content of a datagram.
enum Brought {
    Hello(Option<Stated>, bool),
    /// A part of a hello.
    Part,
    Nothing,
}

impl Datagrams {
    /// For a flow with this first datagram.
    fn of(datagram: &[u8]) -> Option<Datagrams> {
        if quic::may_begin(datagram) {
            Some(Datagrams::Quic(quic::Assembler::new()))
        } else if dtls::looks_like_hello(datagram) {
            Some(Datagrams::Dtls(dtls::Assembler::new()))
        } else {
            None
        }
    }

    fn app(&self) -> App {
        match self {
            Datagrams::Quic(_) => App::Quic,
            Datagrams::Dtls(_) => App::Dtls,
        }
    }

    fn push(&mut self, datagram: &[u8]) -> Brought {
        let hello = match self {
            Datagrams::Quic(assembler) => match assembler.push(datagram) {
                quic::Initial::Found(hello) => hello,
                quic::Initial::NeedMore => return Brought::Part,
                _ => return Brought::Nothing,
            },
            Datagrams::Dtls(assembler) => match assembler.push(datagram) {
                tls::Hello::Found(hello) => hello,
                tls::Hello::NeedMore => return Brought::Part,
                _ => return Brought::Nothing,
            },
        };
        Brought::Hello(hello.server_name.as_deref().and_then(Stated::of), hello.ech)
    }

    /// Bytes of the hello came twice, with different content.
    fn differs(&self) -> bool {
        match self {
            Datagrams::Quic(assembler) => assembler.differs(),
            Datagrams::Dtls(assembler) => assembler.differs(),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Datagrams::Quic(assembler) => assembler.held_bytes(),
            Datagrams::Dtls(assembler) => assembler.held_bytes(),
        }
    }
}

/// One segment of the initiator.
pub struct Segment<'a> {
    /// Sequence number of its first byte.
    pub seq: u32,
    /// Sequence number that the initiator's first byte must have, if the SYN was seen.
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
    /// True when nothing more is read.
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// True while the responder's first bytes are reported to [`OwnName::replied`].
    pub fn awaits_reply(&self) -> bool {
        self.phase == Phase::Watching
    }

    /// True until the first head was read, or the search was given up.
    pub fn is_looking(&self) -> bool {
        self.phase == Phase::Looking
    }

    /// The stated names.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        let stated = self.server_name.iter().chain(&self.http_host);
        stated.filter(|stated| stated.is_name).map(|stated| &stated.text)
    }

    /// The stated name that counts, of those that `sources` allow.
    pub(crate) fn chosen(&self, sources: NameSources) -> Option<(&Name, NameSource)> {
        let [sni, host] = [&self.server_name, &self.http_host].map(|stated| {
            let stated = stated.as_ref().filter(|stated| stated.is_name);
            stated.map(|stated| &stated.text)
        });
        choose(sni, self.app == Some(App::Quic), host, sources)
    }

    /// The same for the rest of a flow: nothing more is read.
    pub fn settled(&self) -> OwnName {
        OwnName {
            server_name: self.server_name.clone(),
            http_host: self.http_host.clone(),
            app: self.app,
            ech: self.ech,
            contradicts: self.contradicts,
            other: self.other.clone(),
            is_rest: true,
            phase: Phase::Done,
            ..OwnName::default()
        }
    }

    /// Reads a TCP segment of the initiator.
    pub fn tcp(&mut self, segment: &Segment<'_>, budget: &mut Budget) {
        match self.phase {
            Phase::Looking => self.look(segment, budget),
            Phase::Watching => self.watch(segment, budget),
            Phase::Done => {}
        }
    }

    /// The responder sent bytes: it has accepted a head.
    pub fn replied(&mut self, budget: &mut Budget) {
        if self.phase == Phase::Watching {
            self.finish(budget);
        }
    }

    fn look(&mut self, segment: &Segment<'_>, budget: &mut Budget) {
        if self.stream.is_none() {
            let ahead =
                self.tries == 0 && segment.seq_first.is_some_and(|first| first != segment.seq);
            if !ahead {
                match self.examine(segment.data) {
                    Head::Done if self.http_is_open => {}
                    Head::Done => {
                        self.head_seq = segment.seq;
                        self.head_bytes = segment.data.len() as u32;
                        return self.settle(budget);
                    }
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
        self.contradicts |= stream.differs();
        if self.http_is_open {
            // The first segment; the Host was found in place.
            self.stream = Some(stream);
            return self.settle(budget);
        }
        if segment.seq_first.is_none() {
            // A stream without a SYN may still move its start back.
            self.http = http::HeadScanner::new();
        }
        let head = match stream.contiguous() {
            [] => Head::NeedMore,
            bytes => self.examine(bytes),
        };
        let too_long = stream.buffered_bytes() > HEAD_BYTES_MAX as usize;
        match head {
            Head::Done => {
                self.stream = Some(stream);
                self.settle(budget);
            }
            Head::NeedMore if !too_long => {
                self.stream = Some(stream);
                self.tries += 1;
                // A head of many tiny segments is bounded by bytes, not by tries.
                if self.tries == SEGMENTS_MAX {
                    self.finish(budget);
                }
            }
            _ => {
                stream.clear(budget);
                self.miss(budget);
            }
        }
    }

    /// Reads a segment after the head, before the responder answered.
    fn watch(&mut self, segment: &Segment<'_>, budget: &mut Budget) {
        self.tries += 1;
        let mut stream = self.stream.take();
        if stream.is_none() {
            let distance = segment.seq.wrapping_sub(self.head_seq);
            let lies_over = distance < self.head_bytes
                || (distance.wrapping_neg() as usize) < segment.data.len();
            if lies_over {
                self.is_again = true;
                stream = Some(Box::new(Stream::starting_at(self.head_seq)));
            }
        }
        if let Some(stream) = &mut stream {
            stream.push(segment.seq, 0, segment.data, budget);
            self.contradicts |= stream.differs();
        }
        match &stream {
            Some(stream) if self.is_again => self.compare(stream.contiguous(), true),
            Some(stream) if self.http_is_open && segment.seq_first.is_some() => {
                self.read_rest(stream.contiguous().get(self.http_at..).unwrap_or_default());
            }
            _ => {}
        }
        if !self.is_again || segment.seq != self.head_seq {
            self.compare(segment.data, false);
        }
        self.stream = stream;
        if self.contradicts || self.tries >= WATCH_MAX {
            self.finish(budget);
        }
    }

    /// Compares a second head with the first. It is at the same place of the stream, or at another
    /// one, where most bytes are no head at all.
    fn compare(&mut self, bytes: &[u8], same_place: bool) {
        let mut again = OwnName::default();
        if let Head::NeedMore = again.examine(bytes) {
            return;
        }
        if again.app.is_none() && !same_place {
            return;
        }
        let differs = match again.app {
            Some(App::Http) => again.http_host != self.http_host,
            _ => again.server_name != self.server_name,
        };
        if differs || same_place && again.app != self.app || again.contradicts {
            self.contradict(again.server_name.or(again.http_host));
        }
    }

    fn contradict(&mut self, other: Option<Stated>) {
        self.contradicts = true;
        self.other = other.filter(|stated| stated.is_name).map(|stated| stated.text);
    }

    /// Reads a UDP datagram of the initiator.
    pub fn udp(&mut self, data: &[u8], budget: &mut Budget) {
        let Some(datagrams) = &mut self.datagrams else {
            let Some(datagrams) = Datagrams::of(data) else { return self.finish(budget) };
            self.datagrams = Some(Box::new(datagrams));
            return self.udp(data, budget);
        };
        if !may_follow(data) {
            return self.finish(budget);
        }
        let held_before = datagrams.held_bytes();
        let brought = datagrams.push(data);
        let app = datagrams.app();
        self.contradicts |= datagrams.differs();
        budget.recharge(held_before, datagrams.held_bytes());
        if self.phase == Phase::Watching {
            self.tries += 1;
            if let Brought::Hello(server_name, _) = brought
                && server_name != self.server_name
            {
                self.contradict(server_name);
            }
            if self.contradicts || self.tries >= WATCH_MAX {
                self.finish(budget);
            }
            return;
        }
        match brought {
            Brought::Hello(server_name, ech) => {
                self.app = Some(app);
                self.server_name = server_name;
                self.ech = Some(ech);
                return self.settle(budget);
            }
            Brought::Part => self.app = Some(app),
            Brought::Nothing => {}
        }
        if budget.free_bytes() == 0 {
            // No memory is left: the flow states no name, and is not tried again.
            self.finish(budget);
        } else {
            self.miss(budget);
        }
    }

    /// The head was read: watches for another one, if it is a head of a known protocol.
    fn settle(&mut self, budget: &mut Budget) {
        if self.app.is_none() || self.contradicts {
            return self.finish(budget);
        }
        self.phase = Phase::Watching;
        self.tries = 0;
    }

    /// Frees all memory; the flow ended or nothing more is read.
    pub fn finish(&mut self, budget: &mut Budget) {
        if let Some(mut stream) = self.stream.take() {
            stream.clear(budget);
        }
        if let Some(datagrams) = self.datagrams.take() {
            budget.recharge(datagrams.held_bytes(), 0);
        }
        self.phase = Phase::Done;
    }

    fn miss(&mut self, budget: &mut Budget) {
        self.http = http::HeadScanner::new();
        self.tries += 1;
        if self.tries >= TRIES_MAX {
            self.finish(budget);
        }
    }

    fn examine(&mut self, bytes: &[u8]) -> Head {
        self.http_at = match prefix(bytes) {
            Prefix::None => 0,
            Prefix::NeedMore => return Head::NeedMore,
            Prefix::Bytes(len) if len == bytes.len() => return Head::NeedMore,
            Prefix::Bytes(len) => len,
        };
        let bytes = &bytes[self.http_at..];
        match tls::client_hello(bytes) {
            tls::Hello::Found(hello) => {
                self.app = Some(App::Tls);
                self.server_name = hello.server_name.as_deref().and_then(Stated::of);
                self.ech = Some(hello.ech);
                return Head::Done;
            }
            tls::Hello::NeedMore => return Head::NeedMore,
            tls::Hello::Malformed => return Head::Done,
            tls::Hello::NotTls => {}
        }
        match http2::first_request(bytes) {
            http2::Start::Found(request) => {
                self.app = Some(App::Http);
                self.http_host = request.authority.as_deref().and_then(Stated::of);
                if let Some(other) = request.other.as_deref().map(Stated::of)
                    && other != self.http_host
                {
                    self.contradict(other);
                }
                return Head::Done;
            }
            http2::Start::NeedMore => return Head::NeedMore,
            http2::Start::Malformed => return Head::Done,
            http2::Start::NotHttp2 => {}
        }
        match self.http.scan(bytes) {
            http::Head::Found(request) => {
                self.app = Some(App::Http);
                let target = request.target_authority.and_then(Stated::of);
                let host = request.host.and_then(Stated::of);
                if self.http_host.is_none() {
                    // The target has precedence (RFC 9112, section 3.2.2).
                    if target.is_some() && host.is_some() && host != target {
                        self.contradict(host.clone());
                    }
                    self.http_host = target.or(host);
                }
                self.read_rest(bytes);
                // After a proxy's CONNECT a ClientHello may follow.
                if request.method == b"CONNECT" { Head::Nothing } else { Head::Done }
            }
            http::Head::NeedMore => Head::NeedMore,
            http::Head::Malformed => Head::Done,
            http::Head::NotHttp => Head::Nothing,
        }
    }

    /// Looks for a second Host in the HTTP head of `bytes`, which has one.
    fn read_rest(&mut self, bytes: &[u8]) {
        loop {
            let rest = self.http.rest(bytes);
            self.http_is_open = rest == http::Rest::NeedMore;
            let http::Rest::AnotherHost(value) = rest else { return };
            let other = Stated::of(value);
            if other != self.http_host {
                return self.contradict(other);
            }
        }
    }
}

#[cfg(test)]
mod tests;
