//! Requests of a client, and what it gets: from bytes to the core, and from its decisions to the
//! socket.
//!
//! Requests that come together are answered together: short responses go into one buffer and are
//! sent by one call.

use std::net::SocketAddr;

use larder_io::reactor::{Interest, Sending};

use super::super::base::Base;
use super::super::delivery::{Delivery, Ran};
use super::{Client, Clients, TAKING};
use crate::coalescing::Outcome;
use crate::core::{ClientRequest, Reply, Step};
use crate::message::{self, FieldRoom, Limits, Refused, RequestHead};

/// Bytes of responses after which they are sent, however many requests are there.
const GATHERED_BYTES: usize = 64 << 10;

impl Clients {
    /// Answers the requests in `bytes`, as far as they are complete: how many bytes they were.
    pub(super) fn requests(&mut self, base: &mut Base, client: &mut Client, bytes: &[u8]) -> usize {
        let (mut used, mut out) = (0, base.reactor.buffer());
        while used < bytes.len() && client.takes_requests() && out.len() < GATHERED_BYTES {
            let rest = &bytes[used..];
            let mut room = FieldRoom::new();
            match message::request(rest, &mut room, &base.core.options.limits) {
                Ok(None) => break,
                Ok(Some(head)) => {
                    used += head.head_bytes;
                    let bytes = &rest[..head.head_bytes];
                    self.request(base, client, &head, bytes, &mut out);
                    client.note(base, &head, bytes);
                }
                Err(refused) => {
                    used = bytes.len();
                    client.refused(base, refused, &mut out);
                    client.note_refused(base, rest, refused.reason.as_str());
                }
            }
        }
        client.respond(base, out);
        used
    }

    /// Answers with an error of larder itself, and closes.
    pub(super) fn refuse(
        &mut self,
        base: &mut Base,
        client: &mut Client,
        status: u16,
        text: &str,
    ) -> bool {
        let mut out = base.reactor.buffer();
        client.push_error(base, status, text, &mut out);
        client.respond(base, out);
        self.settle(base, client)
    }

    /// One request, whose headers are these.
    fn request(
        &mut self,
        base: &mut Base,
        client: &mut Client,
        head: &RequestHead<'_>,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) {
        let reply = {
            let peer = || client.peer();
            let from = request_of(client, head, bytes, &peer);
            let (core, mut net) = base.split(self);
            core.request(&mut net, &from, out)
        };
        self.apply(base, client, reply);
    }

    /// Does with a client what the core decided.
    fn apply(&mut self, base: &mut Base, client: &mut Client, reply: Reply) {
        client.closes |= reply.closes;
        client.lingers |= reply.lingers;
        match reply.step {
            Step::Sent => {}
            Step::Deliver(content) => client.delivery = Some(Box::new(Delivery::new(*content))),
            Step::Wait(exchange, upload) => {
                client.exchange = Some(exchange);
                client.upload = upload.or(client.upload.take());
                self.waits_for_origin(base, client, client.upload.is_some());
            }
        }
    }

    /// An outcome came for a client that waits.
    pub(super) fn deliver(
        &mut self,
        base: &mut Base,
        client: &mut Client,
        outcome: Outcome,
    ) -> bool {
        if let Outcome::Interim(head) = outcome {
            // Clients of HTTP/1.0 do not know interim responses.
            let is_known = client.exchange.as_ref().is_some_and(|it| it.knows_interim);
            if is_known {
                let mut out = base.reactor.buffer();
                out.extend_from_slice(&head);
                client.respond(base, out);
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
            client.drop_upload(base);
        }
        let mut out = base.reactor.buffer();
        let reply = {
            let peer = || client.peer();
            let from = request_of(client, &head, &exchange.head, &peer);
            let (core, mut net) = base.split(self);
            core.outcome(&mut net, &from, exchange.why, outcome, &mut out)
        };
        self.apply(base, client, reply);
        client.note(base, &head, &exchange.head);
        client.respond(base, out);
        self.go_on(base, client)
    }

    /// Sends what there is of a client's body. False: the client is to be closed.
    pub(super) fn pump(&mut self, base: &mut Base, client: &mut Client) -> bool {
        let Some(mut delivery) = client.delivery.take() else { return true };
        let before = base.core.counts.sent_bytes;
        let ran = delivery.run(
            &client.socket,
            base.core.number,
            base.core.options.lease_bytes_max,
            &mut base.core.counts.sent_bytes,
        );
        if base.core.counts.sent_bytes > before {
            self.wait_in(base, client, TAKING);
        }
        match ran {
            Ran::Complete => {
                client.note_delivered(base, delivery.body_bytes());
                return true;
            }
            Ran::Waits => {
                base.deliveries.wait_for_more(delivery.object().id(), client.token);
                self.waits_for_origin(base, client, false);
            }
            Ran::Blocked => {
                let watched = base.reactor.watch(&client.socket, client.token, Interest::WRITE);
                if watched.is_err() {
                    client.is_broken = true;
                    return false;
                }
            }
            Ran::Share => base.deliveries.run_again(client.token),
            Ran::Failed => {
                base.core.counts.bodies_failed += 1;
                client.reset();
                client.delivery = Some(delivery);
                return false;
            }
            Ran::Gone => {
                base.core.counts.clients_gone += 1;
                client.delivery = Some(delivery);
                client.is_broken = true;
                return false;
            }
        }
        client.delivery = Some(delivery);
        true
    }
}

impl Client {
    /// Sends bytes of a response, after those before; or in front of the body that follows.
    pub(super) fn respond(&mut self, base: &mut Base, out: Vec<u8>) {
        match &mut self.delivery {
            _ if out.is_empty() => base.reactor.give_back(out),
            Some(delivery) if !self.is_sending => delivery.begin_with(out),
            _ if self.is_sending => self.queued.extend_from_slice(&out),
            _ => {
                if !self.send(base, out) {
                    // It is gone: nothing is to be sent, and nothing is read.
                    self.closes = true;
                    self.exchange = None;
                    self.delivery = None;
                }
            }
        }
    }

    pub(super) fn send(&mut self, base: &mut Base, out: Vec<u8>) -> bool {
        match base.reactor.send(&self.socket, self.token, out) {
            Sending::Done => true,
            Sending::Later => {
                self.is_sending = true;
                true
            }
            Sending::Failed(_) => false,
        }
    }

    fn refused(&mut self, base: &mut Base, refused: Refused, out: &mut Vec<u8>) {
        base.core.counts.refused_requests += 1;
        let text = format!("refused: {}", refused.reason.as_str());
        self.push_error(base, refused.status, &text, out);
    }

    fn push_error(&mut self, base: &mut Base, status: u16, text: &str, out: &mut Vec<u8>) {
        base.core.refuse(status, text, out);
        (self.closes, self.lingers) = (true, true);
        self.inbox.clear();
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
