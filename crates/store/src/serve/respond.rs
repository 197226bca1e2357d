//! Responses to requests for packets.

use std::borrow::Cow;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use larder_serve::authorize::{Authorizer, Claims};
use larder_serve::http_server::{Body, Change, Piece, Request, Respond, Response};
use larder_serve::pages::{Page, Pages};

use super::Counts;
use super::body::{Packets, TRIES};
use super::request::{self, Range, What};
use super::search::{Search, Searches, Wanted, Wrong};
use crate::catalog::{Catalog, Segment};

/// How much longer a client of a search may receive nothing: ten minutes.
const PATIENCE_MS: u64 = 600_000;

/// Shared by all clients.
pub struct Common {
    pub catalog: Arc<Catalog>,
    pub waker: Waker,
    pub counts: Arc<Counts>,
    pub authorizer: Authorizer,
    /// `None`: there is no store.
    pub searches: Option<Searches>,
    /// Resources of the program, before those of this module.
    pub pages: Option<Arc<dyn Pages>>,
}

/// A body that is being sent.
pub enum Sent {
    /// Bytes of segments.
    Packets(Packets),
    /// The result of a search.
    Found(Search),
}

impl Sent {
    /// See [`Packets::leave_revoked`]; a search holds no memory of the store.
    pub fn leave_revoked(&mut self, catalog: &Catalog) {
        if let Sent::Packets(packets) = self {
            packets.leave_revoked(catalog);
        }
    }
}

impl Respond for Common {
    type Body = Sent;

    fn respond(&mut self, request: &Request<'_>) -> Response<Sent> {
        let Some(claims) = Claims::of(request) else { return self.refuse(400) };
        let is_public = self.pages.as_ref().is_some_and(|pages| pages.is_public(request.path));
        let judged = match is_public {
            true => self.authorizer.judge_place(&claims, request.local),
            false => self.authorizer.judge(&claims, request.local),
        };
        if let Err(status) = judged {
            self.counts.denied.fetch_add(1, Ordering::Relaxed);
            return refusal(status);
        }
        if let Some(page) = self.pages.as_ref().and_then(|pages| pages.get(request.path)) {
            return of_page(page);
        }
        let range = request::range_of(request);
        match request::wanted(request.path) {
            What::Unknown => refusal(404),
            What::List => listing(TEXT, list(&self.catalog)),
            What::Json => listing(JSON, json(&self.catalog)),
            What::Segment(number) => match self.catalog.get(number) {
                Some(segment) => self.segment(request, &segment, range),
                None => refusal(404),
            },
            What::Find => self.find(request),
            What::Live => match self.catalog.last() {
                Some(segment) => self.live(request, &segment),
                None => refusal(503),
            },
        }
    }

    fn refuse(&mut self, status: u16) -> Response<Sent> {
        Response { closes: true, ..refusal(status) }
    }

    fn greet(&mut self) -> Option<(Vec<u8>, Sent)> {
        let (first, packets) = match self.catalog.last() {
            None => (Vec::new(), Packets::from_the_first()),
            Some(segment) => {
                // Its memory may have been revoked at this moment: then it is in a file.
                let again = || self.catalog.get(segment.number).and_then(|it| Packets::live(&it));
                Packets::live(&segment).or_else(again)?
            }
        };
        self.counts.bodies.fetch_add(1, Ordering::Relaxed);
        Some((first, Sent::Packets(packets)))
    }

    fn next(&mut self, body: &mut Sent, bytes_max: u64) -> Piece {
        match body {
            Sent::Packets(packets) => packets.next(&self.catalog, &self.waker, bytes_max),
            Sent::Found(search) => search.next(bytes_max),
        }
    }

    fn send(
        &mut self,
        body: &mut Sent,
        socket: BorrowedFd<'_>,
        bytes_left: u64,
    ) -> io::Result<usize> {
        let bytes = match body {
            Sent::Packets(packets) => packets.send(socket, bytes_left),
            Sent::Found(search) => search.send(socket, bytes_left),
        }?;
        self.counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    /// A search of several machines takes the earliest packets first, and those of the others later.
    fn patience_ms(&self, body: &Sent) -> u64 {
        match body {
            Sent::Packets(_) => 0,
            Sent::Found(_) => PATIENCE_MS,
        }
    }

    fn count(&mut self, change: Change) {
        let count = match change {
            Change::Accepted => &self.counts.clients,
            Change::Surplus | Change::Stalled => &self.counts.closed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

const TEXT: &str = "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n";
const JSON: &str = "Content-Type: application/json\r\nCache-Control: no-store\r\n";

impl Common {
    /// A segment: of a growing one all bytes that exist and all that come.
    fn segment(
        &self,
        request: &Request<'_>,
        segment: &Segment,
        range: Option<Range>,
    ) -> Response<Sent> {
        // A closed segment has a length. That of a growing one is unknown, and ranges of it have no
        // meaning.
        let whole = segment.is_closed.then_some(segment.bytes);
        let range = range.filter(|_| whole.is_some());
        let (first, end) = match (whole, range) {
            (Some(bytes), Some(range)) => match request::within(range, bytes) {
                Some(found) => found,
                None => return refusal(416),
            },
            (Some(bytes), None) => (0, bytes),
            (None, _) => (0, u64::MAX),
        };
        let mut headers = head(whole.is_some());
        if let (Some(bytes), Some(_)) = (whole, range) {
            headers += &format!("Content-Range: bytes {first}-{}/{bytes}\r\n", end - 1);
        }
        let status = if range.is_some() { 206 } else { 200 };
        let bytes = whole.map(|_| end - first);
        let begin = |segment: &Segment| Some((Vec::new(), Packets::of(segment, first, end)?));
        self.give(request, segment, status, headers, bytes, begin)
    }

    /// All packets from now on.
    fn live(&self, request: &Request<'_>, segment: &Segment) -> Response<Sent> {
        self.give(request, segment, 200, head(false), None, Packets::live)
    }

    /// Begins a response; `begin` makes the first bytes, and the body.
    fn give(
        &self,
        request: &Request<'_>,
        segment: &Segment,
        status: u16,
        headers: String,
        bytes: Option<u64>,
        begin: impl Fn(&Segment) -> Option<(Vec<u8>, Packets)>,
    ) -> Response<Sent> {
        let (first, rest) = if request.is_head {
            (Vec::new(), None)
        } else {
            // Its memory may have been revoked at this moment, or its file compressed.
            let again = |_| self.catalog.get(segment.number).and_then(|segment| begin(&segment));
            let begun = begin(segment).or_else(|| (0..TRIES).find_map(again));
            let Some((first, packets)) = begun else {
                // It was deleted.
                return refusal(404);
            };
            self.counts.bodies.fetch_add(1, Ordering::Relaxed);
            (first, Some(Sent::Packets(packets)))
        };
        let body = Body::Stream { first, rest, bytes };
        Response { status, headers: Cow::Owned(headers), body, closes: false }
    }
}

impl Common {
    /// A search, in a thread of its own.
    fn find(&self, request: &Request<'_>) -> Response<Sent> {
        let Some(searches) = &self.searches else { return refusal(404) };
        let wanted = match Wanted::read(request.query) {
            Ok(wanted) => wanted,
            Err(Wrong(body)) => {
                let body = Body::Bytes(Cow::Owned(body));
                return Response { status: 400, headers: Cow::Borrowed(JSON), body, closes: false };
            }
        };
        let headers = format!(
            "Content-Type: {}\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n",
            wanted.format.media_type()
        );
        let rest = if request.is_head {
            None
        } else {
            let Some(search) = searches.start(wanted, self.waker.clone()) else {
                return refusal(503);
            };
            self.counts.bodies.fetch_add(1, Ordering::Relaxed);
            Some(Sent::Found(search))
        };
        let body = Body::Stream { first: Vec::new(), rest, bytes: None };
        Response { status: 200, headers: Cow::Owned(headers), body, closes: false }
    }
}

/// The headers of packets.
fn head(is_closed: bool) -> String {
    let mut head = String::from(
        "Content-Type: application/x-pcapng\r\nX-Content-Type-Options: nosniff\r\n\
         Accept-Ranges: bytes\r\nCross-Origin-Resource-Policy: same-origin\r\n",
    );
    head += match is_closed {
        // A closed segment never changes, and its number is never used again. It is for this client
        // only.
        true => "Cache-Control: private, max-age=86400, immutable\r\n",
        false => "Cache-Control: no-store\r\n",
    };
    head
}

fn of_page(page: Page) -> Response<Sent> {
    let body = Body::Bytes(Cow::Owned(page.content.to_vec()));
    Response { status: 200, headers: page.headers, body, closes: false }
}

fn listing(headers: &'static str, text: String) -> Response<Sent> {
    let body = Body::Bytes(Cow::Owned(text.into_bytes()));
    Response { status: 200, headers: Cow::Borrowed(headers), body, closes: false }
}

/// A refusal, with the next step.
fn refusal(status: u16) -> Response<Sent> {
    let next = match status {
        401 => "send the token: Authorization: Bearer TOKEN\n",
        403 => "pages of other sites get no packets\n",
        421 => "this host is not served here; --serve-hosts allows more names\n",
        404 => "there are /segments, /segments/N.pcapng, /live.pcapng and /find?q=QUERY\n",
        405 => "ask with GET or HEAD\n",
        416 => "the segment ends before that\n",
        431 => "the headers are longer than 64 KiB, or too many; shorten the query\n",
        503 => "no packets are stored yet, or too many searches run; retry later\n",
        _ => "ask as HTTP/1.1 has it\n",
    };
    let headers = match status {
        401 => {
            "WWW-Authenticate: Bearer\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\n"
        }
        405 => "Allow: GET, HEAD\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\n",
        _ => "Content-Type: text/plain\r\nCache-Control: no-store\r\n",
    };
    let body = Body::Bytes(Cow::Borrowed(next.as_bytes()));
    Response { status, headers: Cow::Borrowed(headers), body, closes: false }
}

fn list(catalog: &Catalog) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for segment in catalog.list() {
        let state = if segment.is_closed { "closed" } else { "grows" };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "/segments/{:08}.pcapng {} bytes {} packets {state}",
            segment.number, segment.bytes, segment.packets
        );
    }
    text += "/live.pcapng from now on\n";
    text
}

fn json(catalog: &Catalog) -> String {
    let time = |ns: Option<i64>| ns.map_or("null".to_owned(), |ns| ns.to_string());
    let rows: Vec<String> = catalog
        .list()
        .iter()
        .map(|segment| {
            format!(
                "{{\"number\":{},\"path\":\"/segments/{:08}.pcapng\",\"bytes\":{},\"packets\":{},\"first_ns\":{},\
                 \"last_ns\":{},\"is_closed\":{},\"is_compressed\":{},\"disk_bytes\":{}}}",
                segment.number,
                segment.number,
                segment.bytes,
                segment.packets,
                time(segment.first_ns),
                time(segment.last_ns),
                segment.is_closed,
                segment.on_disk().is_some_and(|(_, is_compressed)| is_compressed),
                segment.on_disk().map_or("null".to_owned(), |(bytes, _)| bytes.to_string())
            )
        })
        .collect();
    format!("[{}]\n", rows.join(",\n "))
}
