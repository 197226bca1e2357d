//! What is recorded of an exchange, and when it becomes a line of the access log, and a note for the page.
//!
//! ```text
//! request -> answered at once                             -> a line
//!         -> recorded: it waits, or its body is delivered -> delivered, or its connection closed -> a line
//! ```
//!
//! The core states what a client got in [`ResponseSummary`], a few words in memory; everything else is done
//! only where there is a log, or for an exchange that is noted for the page.
//!
//! A short response has ended when the kernel, or the queue of bytes to send, has it.

use super::super::base::Base;
use super::Client;
use crate::access_log::format::{Exchange, RequestLine};
use crate::core::ResponseSummary;
use crate::message::{self, FieldRoom, Limits, RequestHead};

/// Bytes of an invalid request in the log.
const BYTES_MAX: usize = 256;

/// An exchange that has not ended.
#[derive(Debug)]
pub struct Noted {
    head: Vec<u8>,
    began_us: u64,
    origin_us: Option<u64>,
    summary: ResponseSummary,
    /// The exchanges that the page's note stands for; 0: the page has none.
    weight: u32,
}

impl Client {
    /// What became of a request for now: a line, or a record until it ends.
    pub(super) fn note(&mut self, base: &mut Base, head: &RequestHead<'_>, bytes: &[u8]) {
        let waits = self.exchange.is_some();
        // An exchange that waited is here for the second time, and is not drawn again.
        let was_drawn = self.noted.is_some() || std::mem::take(&mut self.is_unnoted);
        let weight = if was_drawn { 0 } else { base.draw() };
        if base.access_log.is_none() && weight == 0 && self.noted.is_none() {
            self.is_unnoted = waits;
            return;
        }
        let now_us = base.now.us;
        let summary = std::mem::take(&mut base.core.summary);
        let before = self.noted.take();
        if let Some(exchange) = self.exchange.as_ref().filter(|_| before.is_none()) {
            let summary = ResponseSummary {
                cache: Some(exchange.why.as_str()),
                ..ResponseSummary::default()
            };
            let head = bytes.to_vec();
            let noted = Noted { head, began_us: now_us, origin_us: None, summary, weight };
            self.noted = Some(Box::new(noted));
            return;
        }
        let mut noted = match before {
            // The variant was another, or the response was another client's: it waits on.
            Some(noted) if waits => {
                self.noted = Some(noted);
                return;
            }
            Some(mut noted) => {
                noted.origin_us = Some(now_us.saturating_sub(noted.began_us));
                noted.summary =
                    ResponseSummary { cache: summary.cache.or(noted.summary.cache), ..summary };
                noted
            }
            None => {
                let head = Vec::new();
                Box::new(Noted { head, began_us: now_us, origin_us: None, summary, weight })
            }
        };
        if self.delivery.is_some() {
            if noted.head.is_empty() {
                noted.head = bytes.to_vec();
            }
            self.noted = Some(noted);
        } else {
            let request_line = request_of(self, head);
            self.write_line(base, &noted, request_line, head.host, head, None);
        }
    }

    /// A body has been delivered.
    pub(super) fn note_delivered(&mut self, base: &mut Base, body_bytes: u64) {
        if let Some(noted) = self.noted.take() {
            self.note_end(base, noted, body_bytes, None);
        }
    }

    /// A request was refused in the midst of its body.
    pub(super) fn note_cut(&mut self, base: &mut Base, why: &'static str) {
        if let Some(mut noted) = self.noted.take() {
            noted.summary = std::mem::take(&mut base.core.summary);
            self.note_end(base, noted, 0, Some(why));
        }
    }

    /// A client's connection is closed; an exchange that has not ended by then was cut.
    pub(super) fn note_closed(&mut self, base: &mut Base) {
        if let Some(noted) = self.noted.take() {
            let body_bytes = self.delivery.as_ref().map_or(0, |delivery| delivery.body_bytes());
            self.note_end(base, noted, body_bytes, Some("closed before its end"));
        }
    }

    fn note_end(
        &mut self,
        base: &mut Base,
        mut noted: Box<Noted>,
        body_bytes: u64,
        error: Option<&'static str>,
    ) {
        noted.summary.body_bytes += body_bytes;
        let bytes = std::mem::take(&mut noted.head);
        let mut room = FieldRoom::new();
        // It was read before.
        if let Ok(Some(head)) = message::request(&bytes, &mut room, &Limits::READ_BEFORE) {
            let request_line = request_of(self, &head);
            self.write_line(base, &noted, request_line, head.host, &head, error);
        }
    }

    /// An invalid request.
    pub(super) fn note_refused(&mut self, base: &mut Base, bytes: &[u8], why: &'static str) {
        let weight = base.draw();
        if base.access_log.is_none() && weight == 0 {
            return;
        }
        let summary = std::mem::take(&mut base.core.summary);
        let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = &line[..line.len().min(BYTES_MAX)];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (head, began_us) = (Vec::new(), base.now.us);
        let noted = Noted { head, began_us, origin_us: None, summary, weight };
        self.write_exchange(base, &noted, RequestLine::Bytes(line), b"", [None, None], Some(why));
    }

    fn write_line(
        &mut self,
        base: &mut Base,
        noted: &Noted,
        request_line: RequestLine<'_>,
        host: &[u8],
        head: &RequestHead<'_>,
        error: Option<&str>,
    ) {
        let first = |name| crate::field::values(head.fields, name).next();
        let said = [first("referer"), first("user-agent")];
        self.write_exchange(base, noted, request_line, host, said, error);
    }

    fn write_exchange(
        &mut self,
        base: &mut Base,
        noted: &Noted,
        request_line: RequestLine<'_>,
        host: &[u8],
        [referer, user_agent]: [Option<&[u8]>; 2],
        error: Option<&str>,
    ) {
        let peer = self.known_peer();
        // It was gone before the kernel was asked for its address.
        let unknown = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
        let ResponseSummary { status, body_bytes, cache, origin_status } = noted.summary;
        let exchange = Exchange {
            client: peer.map_or(unknown, |peer| peer.ip()),
            began_ms: base.clock.unix_us(noted.began_us) / 1_000,
            user: None,
            request_line,
            host,
            referer,
            user_agent,
            status,
            body_bytes,
            duration_us: base.clock.us().saturating_sub(noted.began_us),
            cache,
            origin_status,
            origin_us: noted.origin_us,
            error,
        };
        if let Some(log) = &mut base.access_log {
            log.record(&exchange, base.now.ms);
        }
        if let Some(notes) = base.notes.as_mut().filter(|_| noted.weight > 0) {
            notes.record(&exchange, noted.weight);
        }
    }
}

fn request_of<'a>(client: &Client, head: &RequestHead<'a>) -> RequestLine<'a> {
    let (method, target) = (head.method, head.target.path());
    let protocol = match head.minor_version {
        _ if client.speaks_http2 => "HTTP/2.0",
        0 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    RequestLine::Request { method, target, protocol }
}
