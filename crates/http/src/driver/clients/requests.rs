//! Requests of a client, and what it gets: from bytes to the core, and from its decisions to the
//! socket.
//!
//! Requests that come together are answered together: short responses go into one buffer and are
//! sent by one call.

use std::net::SocketAddr;

use larder_io::reactor::{Interest, Sending};

use super::super::Driver;
use super::super::delivery::{self, Delivery, Ran};
use super::Client;
use crate::coalescing::Outcome;
use crate::core::{ClientRequest, Reply, Step};
use crate::message::{self, FieldRoom, Limits, Refused, RequestHead};

/// Bytes of responses after which they are sent, however many requests are there.
const GATHERED_BYTES: usize = 64 << 10;

impl Driver {
    /// Answers the requests in `bytes`, as far as they are complete: how many bytes they were.
    pub(in crate::driver) fn requests(&mut self, client: &mut Client, bytes: &[u8]) -> usize {
        let (mut used, mut out) = (0, self.reactor.buffer());
        while used < bytes.len() && self.takes_requests(client) && out.len() < GATHERED_BYTES {
            let rest = &bytes[used..];
            let mut room = FieldRoom::new();
            match message::request(rest, &mut room, &self.core.options.limits) {
                Ok(None) => break,
                Ok(Some(head)) => {
                    used += head.head_bytes;
                    let bytes = &rest[..head.head_bytes];
                    self.request(client, &head, bytes, &mut out);
                    self.note(client, &head, bytes);
                }
                Err(refused) => {
                    used = bytes.len();
                    self.refused(client, refused, &mut out);
                    self.note_refused(client, rest, refused.reason.as_str());
                }
            }
        }
        self.respond(client, out);
        used
    }

    /// Sends bytes of a response, after those before; or in front of the body that follows.
    pub(super) fn respond(&mut self, client: &mut Client, out: Vec<u8>) {
        match &mut client.delivery {
            _ if out.is_empty() => self.reactor.give_back(out),
            Some(delivery) if !client.is_sending => delivery.begin_with(out),
            _ if client.is_sending => client.queued.extend_from_slice(&out),
            _ => {
                if !self.send(client, out) {
                    // It is gone: nothing is to be sent, and nothing is read.
                    client.closes = true;
                    client.exchange = None;
                    client.delivery = None;
                }
            }
        }
    }

    pub(super) fn send(&mut self, client: &mut Client, out: Vec<u8>) -> bool {
        match self.reactor.send(&client.socket, client.token, out) {
            Sending::Done => true,
            Sending::Later => {
                client.is_sending = true;
                true
            }
            Sending::Failed(_) => false,
        }
    }

    fn refused(&mut self, client: &mut Client, refused: Refused, out: &mut Vec<u8>) {
        self.core.counts.refused_requests += 1;
        let text = format!("refused: {}", refused.reason.as_str());
        self.push_error(client, refused.status, &text, out);
    }

    /// Answers with an error of larder itself, and closes.
    pub(in crate::driver) fn refuse(
        &mut self,
        client: &mut Client,
        status: u16,
        text: &str,
    ) -> bool {
        let mut out = self.reactor.buffer();
        self.push_error(client, status, text, &mut out);
        self.respond(client, out);
        self.settle(client)
    }

    fn push_error(&mut self, client: &mut Client, status: u16, text: &str, out: &mut Vec<u8>) {
        self.core.refuse(status, text, out);
        (client.closes, client.lingers) = (true, true);
        client.inbox.clear();
    }

    /// One request, whose headers are these.
    fn request(
        &mut self,
        client: &mut Client,
        head: &RequestHead<'_>,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) {
        let reply = {
            let peer = || client.peer();
            let from = request_of(client, head, bytes, &peer);
            let (core, mut net) = self.split();
            core.request(&mut net, &from, out)
        };
        self.apply(client, reply);
    }

    /// Does with a client what the core decided.
    fn apply(&mut self, client: &mut Client, reply: Reply) {
        client.closes |= reply.closes;
        client.lingers |= reply.lingers;
        match reply.step {
            Step::Sent => {}
            Step::Deliver(content) => client.delivery = Some(Box::new(Delivery::new(*content))),
            Step::Wait(exchange, upload) => {
                client.exchange = Some(exchange);
                client.upload = upload.or(client.upload.take());
                self.waits_for_origin(client, client.upload.is_some());
            }
        }
        self.start_fetches();
    }

    /// An outcome came for a client that waits.
    pub(in crate::driver) fn deliver(&mut self, client: &mut Client, outcome: Outcome) -> bool {
        if let Outcome::Interim(head) = outcome {
            // Clients of HTTP/1.0 do not know interim responses.
            let is_known = client.exchange.as_ref().is_some_and(|it| it.knows_interim);
            if is_known {
                let mut out = self.reactor.buffer();
                out.extend_from_slice(&head);
                self.respond(client, out);
            }
            return true;
        }
        let Some(exchange) = client.exchange.take() else { return true };
        let mut room = FieldRoom::new();
        let head = match message::request(&exchange.head, &mut room, &Limits::READ_BEFORE) {
            Ok(Some(head)) => head,
            // It was read before.
            _ => return false,
        };
        if matches!(outcome, Outcome::Failed(_)) {
            self.drop_upload(client);
        }
        let mut out = self.reactor.buffer();
        let reply = {
            let peer = || client.peer();
            let from = request_of(client, &head, &exchange.head, &peer);
            let (core, mut net) = self.split();
            core.outcome(&mut net, &from, exchange.why, outcome, &mut out)
        };
        self.apply(client, reply);
        self.note(client, &head, &exchange.head);
        self.respond(client, out);
        self.go_on(client)
    }

    /// Sends what there is of a client's body. False: the client is to be closed.
    pub(in crate::driver) fn pump(&mut self, client: &mut Client) -> bool {
        let Some(mut delivery) = client.delivery.take() else { return true };
        let before = self.core.counts.sent_bytes;
        let ran = delivery.run(
            &client.socket,
            self.core.number,
            self.core.options.lease_bytes_max,
            &mut self.core.counts.sent_bytes,
        );
        if self.core.counts.sent_bytes > before {
            self.waits_to_take(client);
        }
        match ran {
            Ran::Complete => {
                self.note_delivered(client, delivery.body_bytes());
                return true;
            }
            Ran::Waits => {
                self.wait_for_more(delivery.object().id(), client.token);
                self.waits_for_origin(client, false);
            }
            Ran::Blocked => {
                let watched = self.reactor.watch(&client.socket, client.token, Interest::WRITE);
                if watched.is_err() {
                    client.is_broken = true;
                    return false;
                }
            }
            Ran::Share => self.again.push(client.token),
            Ran::Failed => {
                self.core.counts.bodies_failed += 1;
                delivery::reset(client);
                client.delivery = Some(delivery);
                return false;
            }
            Ran::Gone => {
                self.core.counts.clients_gone += 1;
                client.delivery = Some(delivery);
                client.is_broken = true;
                return false;
            }
        }
        client.delivery = Some(delivery);
        true
    }
}

/// A client's request, for the core.
fn request_of<'a>(
    client: &Client,
    head: &'a RequestHead<'a>,
    bytes: &'a [u8],
    peer: &'a dyn Fn() -> Option<SocketAddr>,
) -> ClientRequest<'a> {
    ClientRequest {
        head,
        bytes,
        client: client.token,
        scheme: client.scheme(),
        peer,
        closes: client.closes,
        has_upload: client.upload.is_some(),
    }
}
