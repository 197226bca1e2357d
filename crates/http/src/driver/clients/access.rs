//! What is recorded of an exchange, and when it becomes a line of the access log.
//!
//! ```text
//! request -> answered at once                             -> a line
//!         -> recorded: it waits, or its body is delivered -> delivered, or its connection closed -> a line
//! ```
//!
//! The core states what a client got in [`Told`], a few words in memory; everything else is done
//! only where there is a log.
//!
//! A short response has ended when the kernel, or the queue of bytes to send, has it.

use super::super::Driver;
use super::Client;
use crate::access_log::format::{Asked, Exchange};
use crate::core::Told;
use crate::message::{self, FieldRoom, Limits, RequestHead};

/// Bytes of an invalid request in the log.
const BYTES_MAX: usize = 256;

/// An exchange that has not ended.
#[derive(Debug)]
pub struct Noted {
    head: Vec<u8>,
    began_us: u64,
    origin_us: Option<u64>,
    told: Told,
}

impl Driver {
    /// What became of a request for now: a line, or a record until it ends.
    pub(in crate::driver) fn note(
        &mut self,
        client: &mut Client,
        head: &RequestHead<'_>,
        bytes: &[u8],
    ) {
        if self.access_log.is_none() {
            return;
        }
        let now_us = self.now.us;
        let told = std::mem::take(&mut self.core.told);
        let before = client.noted.take();
        let waits = client.exchange.is_some();
        if let Some(exchange) = client.exchange.as_ref().filter(|_| before.is_none()) {
            let told = Told { cache: Some(exchange.why.as_str()), ..Told::default() };
            let noted = Noted { head: bytes.to_vec(), began_us: now_us, origin_us: None, told };
            client.noted = Some(Box::new(noted));
            return;
        }
        let mut noted = match before {
            // The variant was another, or the response was another client's: it waits on.
            Some(noted) if waits => {
                client.noted = Some(noted);
                return;
            }
            Some(mut noted) => {
                noted.origin_us = Some(now_us.saturating_sub(noted.began_us));
                noted.told = Told { cache: told.cache.or(noted.told.cache), ..told };
                noted
            }
            None => {
                let head = Vec::new();
                Box::new(Noted { head, began_us: now_us, origin_us: None, told })
            }
        };
        if client.delivery.is_some() {
            if noted.head.is_empty() {
                noted.head = bytes.to_vec();
            }
            client.noted = Some(noted);
        } else {
            let asked = request_of(client, head);
            self.write_line(client, &noted, asked, head.host, head, None);
        }
    }

    /// A body has been delivered.
    pub(in crate::driver) fn note_delivered(&mut self, client: &mut Client, body_bytes: u64) {
        if let Some(noted) = client.noted.take() {
            self.note_end(client, noted, body_bytes, None);
        }
    }

    /// A request was refused in the midst of its body.
    pub(in crate::driver) fn note_cut(&mut self, client: &mut Client, why: &'static str) {
        if let Some(mut noted) = client.noted.take() {
            noted.told = std::mem::take(&mut self.core.told);
            self.note_end(client, noted, 0, Some(why));
        }
    }

    /// A client's connection is closed; an exchange that has not ended by then was cut.
    pub(in crate::driver) fn note_closed(&mut self, client: &mut Client) {
        if let Some(noted) = client.noted.take() {
            let body_bytes = client.delivery.as_ref().map_or(0, |delivery| delivery.body_bytes());
            self.note_end(client, noted, body_bytes, Some("closed before its end"));
        }
    }

    fn note_end(
        &mut self,
        client: &mut Client,
        mut noted: Box<Noted>,
        body_bytes: u64,
        error: Option<&'static str>,
    ) {
        noted.told.body_bytes += body_bytes;
        let bytes = std::mem::take(&mut noted.head);
        let mut room = FieldRoom::new();
        // It was read before.
        if let Ok(Some(head)) = message::request(&bytes, &mut room, &Limits::READ_BEFORE) {
            let asked = request_of(client, &head);
            self.write_line(client, &noted, asked, head.host, &head, error);
        }
    }

    /// An invalid request.
    pub(in crate::driver) fn note_refused(
        &mut self,
        client: &mut Client,
        bytes: &[u8],
        why: &'static str,
    ) {
        if self.access_log.is_none() {
            return;
        }
        let told = std::mem::take(&mut self.core.told);
        let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = &line[..line.len().min(BYTES_MAX)];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let noted = Noted { head: Vec::new(), began_us: self.now.us, origin_us: None, told };
        self.write_exchange(client, &noted, Asked::Bytes(line), b"", [None, None], Some(why));
    }

    fn write_line(
        &mut self,
        client: &mut Client,
        noted: &Noted,
        asked: Asked<'_>,
        host: &[u8],
        head: &RequestHead<'_>,
        error: Option<&str>,
    ) {
        let first = |name| crate::field::values(head.fields, name).next();
        let said = [first("referer"), first("user-agent")];
        self.write_exchange(client, noted, asked, host, said, error);
    }

    fn write_exchange(
        &mut self,
        client: &mut Client,
        noted: &Noted,
        asked: Asked<'_>,
        host: &[u8],
        [referer, user_agent]: [Option<&[u8]>; 2],
        error: Option<&str>,
    ) {
        let Some(log) = &mut self.access_log else { return };
        let peer = Driver::peer_of(client);
        // It was gone before the kernel was asked for its address.
        let unknown = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
        let Told { status, body_bytes, cache, origin_status } = noted.told;
        let exchange = Exchange {
            client: peer.map_or(unknown, |peer| peer.ip()),
            began_ms: self.clock.unix_us(noted.began_us) / 1_000,
            user: None,
            asked,
            host,
            referer,
            user_agent,
            status,
            body_bytes,
            duration_us: self.clock.us().saturating_sub(noted.began_us),
            cache,
            origin_status,
            origin_us: noted.origin_us,
            error,
        };
        log.record(&exchange, self.now.ms);
    }
}

fn request_of<'a>(client: &Client, head: &RequestHead<'a>) -> Asked<'a> {
    let (method, target) = (head.method, head.target.path());
    let protocol = match head.minor_version {
        _ if client.speaks_http2 => "HTTP/2.0",
        0 => "HTTP/1.0",
        _ => "HTTP/1.1",
    };
    Asked::Request { method, target, protocol }
}
