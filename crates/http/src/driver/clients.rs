//! Clients: from octets to requests, and from requests to answers or waits.
//!
//! ```text
//! idle -> head -> answered at once -> idle
//!              -> waiting (flight, or a fetch of its own) -> delivering -> idle
//! idle, head, waiting, delivering -> closed
//! ```
//!
//! Requests that come at once are answered at once: answers that are short go into one buffer and leave in one call. What comes while
//! a request is being answered is kept up to the length of a head; then the client is not read.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use larder::mem::object::Object;
use larder_io::reactor::Sending;
use larder_io::table::Id;
use larder_io::tcp;

use super::Driver;
use super::access::{Noted, Told};
use super::delivery::Delivery;
use super::fetch::{Asker, COOKIES, CREDENTIALS, Fetch, Purpose, RENEWAL};
use super::upload::Upload;
use crate::answer::{
    Answer, Asked, Body, Composed, NAME, Said, Trailers, compose, push_body, push_own,
};
use crate::cache_status_header::{CacheStatus, Forward, Handling, push_cache_status};
use crate::cacheability::Life;
use crate::coalescing::{Flight, Join, Outcome, Waiter};
use crate::directives::RequestDirectives;
use crate::field::{has, members};
use crate::freshness::{Decision, decide};
use crate::key::{Key, push_url};
use crate::message::trailers::takes_trailers;
use crate::message::{self, FieldRoom, Framing, Limits, Refused, RequestHead, Scheme, Target};
use crate::record::{Kept, Record};
use crate::sent::Sent;
use crate::store::Found;
use crate::tls_bridge::{CloseState, Handoff};
use crate::{Field, Request};

/// What a client waits for, by list.
pub const CLIENT_LISTS: usize = 6;
const IDLE: usize = 0;
const HEAD: usize = 1;
const WAITING: usize = 2;
const TAKING: usize = 3;
const SENDING_BODY: usize = 4;
const LINGERING: usize = 5;

/// How long what a client still sends is thrown away after an answer that came before, milliseconds: a socket that is closed while
/// octets wait in it resets the connection, and with it the answer that it was to bring.
const LINGER_MS: u64 = 1_000;

/// Octets of answers after which they leave, however many requests are there.
const GATHERED_BYTES: usize = 64 << 10;

/// A connection of a client that is there now.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) socket: OwnedFd,
    pub(super) peer: Option<SocketAddr>,
    pub(super) close_state: Option<CloseState>,
    pub(super) peer_close_state: Option<CloseState>,
    pub(super) speaks_http2: bool,
}

impl From<Handoff> for Arrival {
    fn from(handoff: Handoff) -> Arrival {
        let Handoff { socket, peer, close_state, peer_close_state, speaks_http2 } = handoff;
        let (peer, close_state, peer_close_state) =
            (Some(peer), Some(close_state), Some(peer_close_state));
        Arrival { socket: socket.into(), peer, close_state, peer_close_state, speaks_http2 }
    }
}

/// A connection of a client.
#[derive(Debug)]
pub struct Client {
    pub(super) id: Id,
    pub(super) token: u64,
    pub(super) socket: OwnedFd,
    pub(super) peer: Option<SocketAddr>,
    /// It came over TLS, which somebody else ends, and who is told so how our answers ended.
    pub(super) close_state: Option<CloseState>,
    /// And who says how what it asks ends.
    peer_close_state: Option<CloseState>,
    /// It is one request of HTTP/2 after the other, for the log.
    pub(super) speaks_http2: bool,
    /// Octets that came and were not looked at yet.
    pub(super) inbox: Vec<u8>,
    /// Of these so many were seen to end no head.
    looked_at: usize,
    pub(super) is_paused: bool,
    /// It sends no more.
    pub(super) is_finished: bool,
    /// An answer was broken off.
    pub(super) is_broken: bool,
    /// It is closed when what is being sent has been.
    pub(super) closes: bool,
    /// It may still send, and is to see our answer all the same.
    pub(super) lingers: bool,
    /// We send no more; what comes is thrown away.
    is_shut: bool,
    /// The reactor has octets of ours.
    pub(super) is_sending: bool,
    /// What is to be sent after those.
    queued: Vec<u8>,
    pub(super) exchange: Option<Box<Exchange>>,
    pub(super) delivery: Option<Box<Delivery>>,
    pub(super) upload: Option<Box<Upload>>,
    /// What the log will say of its exchange.
    pub(super) noted: Option<Box<Noted>>,
    /// A proxy has not said yet who it is.
    pub(super) expects_proxy: bool,
    /// Its place among those of its address, where they are counted.
    pub(super) permit: Option<larder_serve::connection_limit::Permit>,
}

impl Client {
    /// Nothing is asked, and nothing of an answer is left.
    fn is_done(&self) -> bool {
        self.exchange.is_none()
            && self.delivery.is_none()
            && !self.is_sending
            && self.queued.is_empty()
    }

    /// Where it is.
    fn address(&self) -> Option<IpAddr> {
        let peer = self.peer.or_else(|| super::origins::peer_of(&self.socket));
        peer.map(|peer| peer.ip())
    }

    /// What it asks by.
    pub(super) fn scheme(&self) -> Scheme {
        if self.close_state.is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// All answers were sent; unless one was broken off, in which case nobody is told so any more.
    fn end_whole(&self) {
        if let Some(close_state) = self.close_state.as_ref().filter(|_| !self.is_broken) {
            close_state.set_whole();
        }
    }
}

/// A request that has no answer yet.
#[derive(Debug)]
pub struct Exchange {
    /// Its head, as it came.
    head: Vec<u8>,
    /// Whom it waits with.
    flight: Option<Arc<Flight>>,
    /// It is of HTTP/1.1.
    knows_interim: bool,
    /// How it came to be asked, for `Cache-Status`.
    pub(super) why: Forward,
}

/// What is to be done for a request, once what was found is no longer looked at.
enum Step {
    /// It has its answer.
    Answered(Composed),
    /// It has a head, and its body is there.
    Deliver(Composed, Arc<Object>),
    /// It is answered with what is stale, which is asked about meanwhile.
    Renew(Composed, Option<Arc<Object>>, Key, Vec<u8>),
    /// The origin is asked, for all who want the same.
    Ask(Key, Forward, Option<Vec<u8>>),
    /// The origin is asked for this client; what comes may be kept, or not.
    Pass(Forward, bool),
    /// It wants what is kept, and nothing is.
    Unsatisfiable,
}

impl Driver {
    pub(super) fn accept(&mut self, arrival: Arrival) {
        let Arrival { socket, peer, close_state, peer_close_state, speaks_http2 } = arrival;
        self.counts.connections += 1;
        // Whoever ended its TLS has said who it is.
        let expects_proxy = self.options.expects_proxy && close_state.is_none();
        // While we drain, what somebody else decrypted comes in with a request that has to be read first.
        let has_request = self.is_draining && close_state.is_some();
        let list = if expects_proxy || has_request { HEAD } else { IDLE };
        let Ok(id) = self.clients.insert(None, list, self.now.ms) else {
            self.counts.refused_full += 1;
            return;
        };
        let token = self.clients.token(id);
        if self.reactor.receive(&socket, token).is_err() {
            self.clients.remove(id);
            self.counts.accept_failures += 1;
            return;
        }
        let mut client = Client {
            id,
            token,
            socket,
            peer,
            close_state,
            peer_close_state,
            speaks_http2,
            inbox: Vec::new(),
            looked_at: 0,
            is_paused: false,
            is_finished: false,
            is_broken: false,
            closes: false,
            lingers: false,
            is_shut: false,
            is_sending: false,
            queued: Vec::new(),
            exchange: None,
            delivery: None,
            upload: None,
            noted: None,
            expects_proxy,
            permit: None,
        };
        // Those over TLS were counted before, and a client of HTTP/2 has one for each of its requests.
        if client.close_state.is_none() && !expects_proxy && !self.admit(&mut client) {
            return self.close_client(id, client);
        }
        if let Some(place) = self.clients.get_mut(id) {
            *place = Some(Box::new(client));
        }
    }

    pub(super) fn client_waits_ms(&self) -> [u64; CLIENT_LISTS] {
        let patience = &self.options.patience;
        let idle_ms = match self.is_draining {
            true => patience.idle_ms.min(patience.drain_idle_ms),
            false => patience.idle_ms,
        };
        [idle_ms, patience.head_ms, u64::MAX, patience.client_ms, patience.client_ms, LINGER_MS]
    }

    fn wait_in(&mut self, client: &Client, list: usize) {
        self.clients.wait_in(client.id, list, self.now.ms);
    }

    pub(super) fn waits_to_take(&mut self, client: &Client) {
        self.wait_in(client, TAKING);
    }

    /// Waits for an answer; `sends`: and for more of the client's body.
    pub(super) fn waits_for_origin(&mut self, client: &Client, sends: bool) {
        // One that takes an answer already has its time for that.
        if client.delivery.is_none() {
            self.wait_in(client, if sends { SENDING_BODY } else { WAITING });
        }
    }

    /// A client's patience is over, or ours.
    pub(super) fn client_overdue(&mut self, client: &mut Client, list: usize) -> bool {
        match list {
            LINGERING => {}
            IDLE => self.counts.closed_idle += 1,
            HEAD if client.expects_proxy => self.counts.closed_slow += 1,
            HEAD if !client.is_sending => {
                self.counts.closed_slow += 1;
                let begun = std::mem::take(&mut client.inbox);
                let is_open = self.refuse(client, 408, "the request did not come in time");
                self.note_refused(client, &begun, "timeout");
                return is_open;
            }
            _ => {
                self.counts.closed_slow += 1;
                super::delivery::reset(client);
            }
        }
        false
    }

    /// The server ends. A client without a request may be sending one: it has a moment for it, and is answered with
    /// `Connection: close`.
    pub(super) fn drain_client(&mut self, client: &mut Client) -> bool {
        if client.is_done() && client.inbox.is_empty() {
            self.wait_in(client, IDLE);
        }
        true
    }

    pub(super) fn client_failed(&mut self, _client: &mut Client) -> bool {
        false
    }

    pub(super) fn close_client(&mut self, id: Id, mut client: Client) {
        self.note_closed(&mut client);
        client.permit = None;
        self.clients.remove(id);
        self.drop_upload(&mut client);
        if client.is_done() {
            client.end_whole();
        }
        let Client { socket, token, exchange, delivery, .. } = client;
        if let Some(exchange) = exchange {
            self.leave(exchange.flight, token);
        }
        // Its reader tells the one at the other end.
        drop(delivery);
        self.reactor.close(socket, token);
    }

    /// Octets of a client.
    pub(super) fn receive(&mut self, client: &mut Client, octets: &[u8]) -> bool {
        if client.expects_proxy {
            return self.hear_proxy(client, octets);
        }
        if client.is_shut {
            return true;
        }
        let is_ready = client.inbox.is_empty() && self.takes_requests(client);
        if is_ready {
            let used = self.requests(client, octets);
            client.inbox.extend_from_slice(&octets[used.min(octets.len())..]);
        } else {
            client.inbox.extend_from_slice(octets);
        }
        self.go_on(client)
    }

    /// True where the next request may be looked at.
    fn takes_requests(&self, client: &Client) -> bool {
        client.exchange.is_none()
            && client.delivery.is_none()
            && client.upload.is_none()
            && !client.closes
            && client.queued.is_empty()
    }

    pub(super) fn finished(&mut self, client: &mut Client) -> bool {
        client.is_finished = true;
        // Over TCP nobody knows: who sends no more may wait for its answer.
        let is_there = client.peer_close_state.as_ref().is_none_or(CloseState::is_whole);
        is_there && !client.expects_proxy && self.go_on(client)
    }

    /// The kernel has all that was sent.
    pub(super) fn sent(&mut self, client: &mut Client) -> bool {
        client.is_sending = false;
        if !client.queued.is_empty() {
            let queued = std::mem::take(&mut client.queued);
            if !self.send(client, queued) {
                return false;
            }
        }
        self.go_on(client)
    }

    /// Whatever there is to do for a client: its body, its answer, its next requests. False: it is to be closed.
    pub(super) fn go_on(&mut self, client: &mut Client) -> bool {
        if client.upload.is_some() && !self.take_upload(client) {
            return false;
        }
        if client.delivery.is_some() && !client.is_sending && !self.pump(client) {
            return false;
        }
        while self.takes_requests(client) && !client.inbox.is_empty() {
            if !message::may_end_head(&client.inbox, client.looked_at)
                && client.inbox.len() < self.options.limits.head_bytes_max
            {
                client.looked_at = client.inbox.len();
                break;
            }
            let inbox = std::mem::take(&mut client.inbox);
            client.looked_at = 0;
            let used = self.requests(client, &inbox).min(inbox.len());
            let rest = [&inbox[used..], &client.inbox[..]].concat();
            client.inbox = rest;
            if used == 0 {
                client.looked_at = client.inbox.len();
                break;
            }
            if client.upload.is_some() && !self.take_upload(client) {
                return false;
            }
            if client.delivery.is_some() && !client.is_sending && !self.pump(client) {
                return false;
            }
        }
        self.settle(client)
    }

    /// Ends sending, and waits for the client to end too; false: there is nothing to wait for.
    fn linger(&mut self, client: &mut Client) -> bool {
        if !client.lingers || client.is_finished {
            return false;
        }
        if !client.is_shut {
            client.is_shut = true;
            client.inbox.clear();
            self.drop_upload(client);
            self.wait_in(client, LINGERING);
            client.end_whole();
            if tcp::shutdown_write(&client.socket).is_err() {
                return false;
            }
        }
        if client.is_paused {
            client.is_paused = false;
            return self.reactor.receive(&client.socket, client.token).is_ok();
        }
        true
    }

    /// What a client waits for now, and whether it is read; false: nothing.
    fn settle(&mut self, client: &mut Client) -> bool {
        let is_done = client.is_done();
        if is_done && (client.closes || client.is_finished) {
            return self.linger(client);
        }
        if is_done {
            let list = if client.inbox.is_empty() { IDLE } else { HEAD };
            // A head has one time in all, however its octets come.
            if self.clients.list_of(client.id) != Some(list) || list == IDLE {
                self.wait_in(client, list);
            }
        } else if client.is_sending && client.delivery.is_none() && client.exchange.is_none() {
            self.wait_in(client, TAKING);
        }
        let is_full = client.inbox.len() >= self.options.limits.head_bytes_max;
        if is_full && !client.is_paused {
            client.is_paused = true;
            self.reactor.pause(&client.socket, client.token);
        } else if !is_full && client.is_paused && !client.is_finished {
            client.is_paused = false;
            return self.reactor.receive(&client.socket, client.token).is_ok();
        }
        true
    }

    /// Answers the requests in `octets`, as far as they can be now: how many octets they were.
    fn requests(&mut self, client: &mut Client, octets: &[u8]) -> usize {
        let (mut used, mut out) = (0, self.reactor.buffer());
        while used < octets.len() && self.takes_requests(client) && out.len() < GATHERED_BYTES {
            let rest = &octets[used..];
            let mut room = FieldRoom::new();
            match message::request(rest, &mut room, &self.options.limits) {
                Ok(None) => break,
                Ok(Some(head)) => {
                    used += head.head_bytes;
                    let octets = &rest[..head.head_bytes];
                    self.request(client, &head, octets, &mut out);
                    self.note(client, &head, octets);
                }
                Err(refused) => {
                    used = octets.len();
                    self.refused(client, refused, &mut out);
                    self.note_refused(client, rest, refused.reason.as_str());
                }
            }
        }
        self.respond(client, out);
        used
    }

    /// Octets of an answer, after those before; or in front of the body that follows.
    fn respond(&mut self, client: &mut Client, out: Vec<u8>) {
        match &mut client.delivery {
            _ if out.is_empty() => self.reactor.give_back(out),
            Some(delivery) if !client.is_sending => delivery.begin_with(out),
            _ if client.is_sending => client.queued.extend_from_slice(&out),
            _ => {
                if !self.send(client, out) {
                    // It is gone: there is nothing to be sent, and nothing is read.
                    client.closes = true;
                    client.exchange = None;
                    client.delivery = None;
                }
            }
        }
    }

    fn send(&mut self, client: &mut Client, out: Vec<u8>) -> bool {
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
        self.counts.refused_requests += 1;
        let text = format!("refused: {}", refused.reason.as_str());
        self.push_error(client, refused.status, &text, out);
    }

    /// Answers with an error of ours, and closes.
    pub(super) fn refuse(&mut self, client: &mut Client, status: u16, text: &str) -> bool {
        let mut out = self.reactor.buffer();
        self.push_error(client, status, text, &mut out);
        self.respond(client, out);
        self.settle(client)
    }

    fn push_error(&mut self, client: &mut Client, status: u16, text: &str, out: &mut Vec<u8>) {
        let request = Request { method: "GET", fields: &[] };
        let asked = Asked { request, minor_version: 1, keeps_alive: false };
        let said = Said { age_s: None, cache_status: b"", heeds_conditions: false };
        push_own(out, status, text, &asked, &said, self.now.wall_s);
        self.told = Told { status, body_bytes: text.len() as u64 + 1, ..Told::default() };
        (client.closes, client.lingers) = (true, true);
        client.inbox.clear();
    }

    /// One request.
    fn request(
        &mut self,
        client: &mut Client,
        head: &RequestHead<'_>,
        octets: &[u8],
        out: &mut Vec<u8>,
    ) {
        self.counts.requests += 1;
        if matches!(head.target, Target::Authority(_)) {
            client.closes = true;
            return self.own(client, head, 501, "this server is no tunnel", out);
        }
        let asked = asked(head, self.is_draining);
        if !asked.keeps_alive {
            client.closes = true;
        }
        if wants_other_protocol(head.fields) {
            let text = "this server does not switch protocols: Upgrade is not supported";
            return self.own(client, head, 501, text, out);
        }
        if head.method == "PURGE" {
            return self.purge(client, head, out);
        }
        let is_looked_up = matches!(head.method, "GET" | "HEAD") && head.framing == Framing::None;
        let step = match is_looked_up {
            true => self.look_up(client, head, &asked, out),
            // With content it is no plain request for the URL, whatever its method.
            false => Step::Pass(Forward::Method, head.framing == Framing::None),
        };
        match step {
            Step::Answered(composed) => {
                self.counts.hits += 1;
                client.closes |= composed.closes;
            }
            Step::Deliver(composed, object) => {
                self.counts.hits += 1;
                self.begin(client, composed, object, false, None);
            }
            Step::Renew(composed, object, key, stale) => {
                self.counts.hits_stale += 1;
                client.closes |= composed.closes;
                if let Some(object) = object {
                    self.begin(client, composed, object, false, None);
                }
                self.renew(client, head, octets, key, stale);
            }
            Step::Ask(key, why, stale) => {
                self.ask(client, head, octets, key, why, stale, out);
            }
            Step::Pass(why, may_keep) => self.pass(client, head, octets, why, may_keep, out),
            Step::Unsatisfiable => {
                self.own(client, head, 504, "nothing is kept that may be used", out);
            }
        }
    }

    /// Looks for what is kept, and puts it in `out` where it may be used.
    fn look_up(
        &mut self,
        client: &Client,
        head: &RequestHead<'_>,
        asked: &Asked<'_>,
        out: &mut Vec<u8>,
    ) -> Step {
        self.url.clear();
        push_url(&mut self.url, client.scheme(), head.host, head.target.path());
        let directives = RequestDirectives::heeded(head.fields, &self.options.rules);
        let now = self.now;
        let address = || client.address();
        let sent = Sent::new(head, self.said_scheme(client), true, &address);
        let (key, kept, is_purged) = match self.handle.find(&self.url, &sent, now.seconds()) {
            Found::Kept { key, kept, is_purged } => (key, kept, is_purged),
            _ if directives.only_if_cached => return Step::Unsatisfiable,
            Found::Unshared => return Step::Pass(Forward::Bypass, true),
            Found::TooLong => return Step::Pass(Forward::Bypass, false),
            // Its answer would be nobody else's, so nobody waits for it.
            Found::Nothing { .. } if directives.no_store => {
                return Step::Pass(Forward::Bypass, true);
            }
            Found::Nothing { key, .. } if self.asks_alone(&key, head) => {
                return Step::Pass(Forward::Bypass, true);
            }
            Found::Nothing { key, is_variant } => {
                let why = if is_variant { Forward::VaryMiss } else { Forward::UriMiss };
                return Step::Ask(key, why, None);
            }
        };
        let decision = match decide(&kept.life, &directives, now.wall_s) {
            Decision::Serve { .. } | Decision::ServeAndValidate { .. } if is_purged => {
                Decision::Validate
            }
            decision => decision,
        };
        let object = match kept.body_id {
            None => None,
            Some(id) => match self.store.bodies.get(id) {
                Some(object) => Some(object),
                None if directives.only_if_cached => return Step::Unsatisfiable,
                None => return Step::Ask(key, Forward::UriMiss, None),
            },
        };
        let (age_s, renews) = match decision {
            Decision::Serve { age_s } => (age_s, false),
            Decision::ServeAndValidate { age_s } => (age_s, true),
            Decision::Validate
                if directives.no_store
                    || self.asks_alone(&key, head)
                    || self.handle.is_unshared_for(&key, RENEWAL, now.seconds()) =>
            {
                return Step::Pass(Forward::Stale, true);
            }
            Decision::Validate => {
                return Step::Ask(key, Forward::Stale, Some(kept.octets.to_vec()));
            }
            Decision::Unsatisfiable => return Step::Unsatisfiable,
        };
        if self.options.says_status {
            push_hit(&mut self.note, &kept, now.wall_s);
        } else {
            self.note.clear();
        }
        let said = Said { age_s: Some(age_s), cache_status: &self.note, heeds_conditions: true };
        let composed = compose(out, &kept, asked, &said, kept.body_bytes);
        let head_end = out.len();
        if object.is_none() {
            push_body(out, &composed.body, kept.body);
        }
        self.told = Told {
            status: composed.status,
            body_bytes: (out.len() - head_end) as u64,
            cache: Some(if renews { "hit-stale" } else { "hit" }),
            origin_status: None,
        };
        let object = object.filter(|_| composed.body != Body::None);
        // What could not be kept would only keep others from renewing it.
        let may_renew = !directives.no_store
            && (!has(head.fields, CREDENTIALS) || is_for_all(&kept.life))
            && !self.asks_alone(&key, head);
        match (renews && may_renew && !self.store.flights.has(&key), object) {
            (true, object) => Step::Renew(composed, object, key, kept.octets.to_vec()),
            (false, Some(object)) => Step::Deliver(composed, object),
            (false, None) => Step::Answered(composed),
        }
    }

    /// True where it is known that what such a request gets is its own: it does not wait for others, nor others for it.
    fn asks_alone(&self, key: &Key, head: &RequestHead<'_>) -> bool {
        let is_noted = |kind: &str| {
            has(head.fields, kind) && self.handle.is_unshared_for(key, kind, self.now.seconds())
        };
        is_noted(CREDENTIALS) || is_noted(COOKIES)
    }

    /// The scheme that origins are told for a client, if they are.
    fn said_scheme(&self, client: &Client) -> Option<Scheme> {
        let says_scheme = self.options.tls_bridge.as_ref().is_some_and(|it| it.has_clients());
        says_scheme.then(|| client.scheme())
    }

    /// Begins to deliver a body after a head that is in the client's answer.
    fn begin(
        &mut self,
        client: &mut Client,
        composed: Composed,
        object: Arc<Object>,
        is_private: bool,
        trailers: Option<Arc<Trailers>>,
    ) {
        client.closes |= composed.closes;
        if composed.body != Body::None {
            let delivery = Delivery::new(object, composed.body, is_private, trailers);
            client.delivery = Some(Box::new(delivery));
        }
    }

    /// An answer of ours.
    pub(super) fn own(
        &mut self,
        client: &mut Client,
        head: &RequestHead<'_>,
        status: u16,
        text: &str,
        out: &mut Vec<u8>,
    ) {
        let asked = asked(head, client.closes || head.framing != Framing::None);
        client.closes |= !asked.keeps_alive;
        // Its body is not read.
        client.lingers |= head.framing != Framing::None;
        let said = Said { age_s: None, cache_status: b"", heeds_conditions: false };
        push_own(out, status, text, &asked, &said, self.now.wall_s);
        let body_bytes = if head.method == "HEAD" { 0 } else { text.len() as u64 + 1 };
        self.told = Told { status, body_bytes, ..Told::default() };
    }

    /// Asks about what is stale, for nobody in particular.
    fn renew(
        &mut self,
        client: &Client,
        head: &RequestHead<'_>,
        octets: &[u8],
        key: Key,
        stale: Vec<u8>,
    ) {
        if let Join::Leads(flight) = self.store.flights.join(&key, None) {
            let purpose = Purpose::Shared { flight, stale: Some(stale), leader: None };
            let fetch = self.fetch_of(client, head, octets, purpose, None);
            self.start(fetch);
        }
    }

    /// Asks the origin, or waits with who has asked.
    #[expect(clippy::too_many_arguments, reason = "one place calls it, with what a look-up found")]
    fn ask(
        &mut self,
        client: &mut Client,
        head: &RequestHead<'_>,
        octets: &[u8],
        key: Key,
        why: Forward,
        stale: Option<Vec<u8>>,
        out: &mut Vec<u8>,
    ) {
        let waiter = Waiter { loop_number: self.number, client: client.token };
        match self.store.flights.join(&key, Some(waiter)) {
            Join::Leads(flight) if self.is_outdated(client, head) => {
                self.wait_with(client, head, octets, Some(flight.clone()), why);
                self.store.flights.close(&flight);
                self.complete_flight(&flight, &Outcome::Again);
            }
            Join::Leads(flight) => {
                self.counts.misses += 1;
                self.wait_with(client, head, octets, Some(flight.clone()), why);
                let purpose = Purpose::Shared { flight, stale, leader: Some(client.token) };
                let fetch = self.fetch_of(client, head, octets, purpose, None);
                self.start(fetch);
            }
            Join::Waits(flight) => {
                self.counts.collapsed += 1;
                self.wait_with(client, head, octets, Some(flight), why);
            }
            Join::Completed(outcome) => {
                self.counts.collapsed += 1;
                self.wait_with(client, head, octets, None, why);
                self.outcomes.push_back((client.token, self.still_good(client, head, outcome)));
            }
            Join::Full => self.pass(client, head, octets, why, true, out),
        }
    }

    /// True where what a look-up just found is not so any more. Who leads a flight has to look again: another one that led may have
    /// kept its answer, and closed its flight, between the look and the boarding.
    fn is_outdated(&mut self, client: &Client, head: &RequestHead<'_>) -> bool {
        let now = self.now.seconds();
        let address = || client.address();
        let sent = Sent::new(head, self.said_scheme(client), true, &address);
        let is_known = |found: Found<'_>| match found {
            Found::Kept { key, kept, .. } => Some((key, kept.serial)),
            Found::Nothing { key, .. } => Some((key, 0)),
            Found::Unshared | Found::TooLong => None,
        };
        let before = is_known(self.handle.find(&self.url, &sent, now));
        self.handle.sync(&self.store);
        before != is_known(self.handle.find(&self.url, &sent, now))
    }

    /// What has landed a while ago may be given to who comes now, if it is fresh; else he asks for himself.
    fn still_good(&self, client: &Client, head: &RequestHead<'_>, outcome: Outcome) -> Outcome {
        let Outcome::Answer(answer) = &outcome else { return Outcome::Alone };
        if !self.is_for(answer, client, head) {
            return Outcome::Alone;
        }
        let Some(Record::Response(kept)) = Record::read(&answer.record) else {
            return Outcome::Alone;
        };
        let directives = RequestDirectives::heeded(head.fields, &self.options.rules);
        match decide(&kept.life, &directives, self.now.wall_s) {
            Decision::Serve { .. } => outcome,
            _ => Outcome::Alone,
        }
    }

    fn wait_with(
        &mut self,
        client: &mut Client,
        head: &RequestHead<'_>,
        octets: &[u8],
        flight: Option<Arc<Flight>>,
        why: Forward,
    ) {
        let knows_interim = head.minor_version > 0;
        let exchange = Exchange { head: octets.to_vec(), flight, knows_interim, why };
        client.exchange = Some(Box::new(exchange));
        self.waits_for_origin(client, client.upload.is_some());
    }

    /// Asks the origin for this client alone, with its body, if it has one.
    fn pass(
        &mut self,
        client: &mut Client,
        head: &RequestHead<'_>,
        octets: &[u8],
        why: Forward,
        may_keep: bool,
        out: &mut Vec<u8>,
    ) {
        if let Framing::Length(bytes) = head.framing
            && bytes > self.options.body_bytes_max
        {
            self.counts.bodies_too_long += 1;
            return self.own(client, head, 413, "the body is too long", out);
        }
        self.counts.passed += 1;
        let (upload, body) = match head.framing {
            Framing::None | Framing::UntilClose | Framing::Length(0) => (None, None),
            framing => {
                let (upload, reader) = self.upload_of(framing);
                (Some(Box::new(upload)), Some(reader))
            }
        };
        client.upload = upload;
        if head.expects_continue && client.upload.is_some() {
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.wait_with(client, head, octets, None, why);
        let purpose = Purpose::Private { client: client.token, may_keep };
        let fetch = self.fetch_of(client, head, octets, purpose, body);
        self.start(fetch);
    }

    fn fetch_of(
        &mut self,
        client: &Client,
        head: &RequestHead<'_>,
        octets: &[u8],
        purpose: Purpose,
        upload: Option<Delivery>,
    ) -> Box<Fetch> {
        let peer = client.peer.or_else(|| super::origins::peer_of(&client.socket));
        let says_scheme = self.said_scheme(client).is_some();
        let asker = Asker { peer, scheme: client.scheme(), says_scheme };
        let (asked_s, store) = (self.now.wall_s, &self.store);
        Box::new(Fetch::new(head, octets, purpose, upload, asker, asked_s, store))
    }

    /// True where an answer is of the variant that a request wants.
    fn is_for(&self, answer: &Answer, client: &Client, head: &RequestHead<'_>) -> bool {
        let address = || client.address();
        let sent = Sent::new(head, self.said_scheme(client), true, &address);
        answer.vary.iter().all(|it| sent.value(&it.name) == it.value)
    }

    /// An answer came for a client that waits.
    pub(super) fn deliver(&mut self, client: &mut Client, outcome: Outcome) -> bool {
        if let Outcome::Interim(head) = outcome {
            // Clients of HTTP/1.0 do not know such.
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
            // It was one before.
            _ => return false,
        };
        let mut out = self.reactor.buffer();
        match outcome {
            Outcome::Answer(answer) => {
                if self.is_for(&answer, client, &head) {
                    self.give(client, &head, &answer, exchange.why, &mut out);
                } else {
                    // Another variant; which one it is can be told now.
                    self.handle.sync(&self.store);
                    self.request(client, &head, &exchange.head, &mut out);
                }
            }
            // What made that answer one client's own is not in this request.
            Outcome::Own if !has(head.fields, CREDENTIALS) && !has(head.fields, COOKIES) => {
                self.handle.sync(&self.store);
                self.request(client, &head, &exchange.head, &mut out);
            }
            Outcome::Again => {
                self.handle.sync(&self.store);
                self.request(client, &head, &exchange.head, &mut out);
            }
            Outcome::Alone | Outcome::Own => {
                self.pass(client, &head, &exchange.head, Forward::Bypass, true, &mut out);
            }
            Outcome::Interim(_) => {}
            Outcome::Failed(status) => {
                let text = match status {
                    503 => {
                        "too many requests wait for the origin, or there are too many connections"
                    }
                    504 => "the origin did not answer in time",
                    _ => "the origin cannot be reached, or gave no proper answer",
                };
                self.drop_upload(client);
                self.own(client, &head, status, text, &mut out);
            }
        }
        self.note(client, &head, &exchange.head);
        self.respond(client, out);
        self.go_on(client)
    }

    /// Gives a client an answer that came.
    fn give(
        &mut self,
        client: &mut Client,
        head: &RequestHead<'_>,
        answer: &Answer,
        why: Forward,
        out: &mut Vec<u8>,
    ) {
        let Some(Record::Response(kept)) = Record::read(&answer.record) else { return };
        self.note.clear();
        if self.options.says_status {
            push_forwarded(&mut self.note, why, answer, &kept);
        }
        let age_s = (!answer.is_private).then(|| kept.life.age_s(self.now.wall_s));
        // What just came from an origin that said no age has none.
        let age_s = age_s.filter(|&age_s| age_s > 0 || answer.object.is_none());
        let said = Said { age_s, cache_status: &self.note, heeds_conditions: !answer.is_private };
        // A body that is still sent must be read to its end, or the connection is of no more use.
        client.lingers |= client.upload.is_some();
        let asked = asked(head, self.is_draining || client.upload.is_some());
        let sealed_bytes = answer
            .object
            .as_ref()
            .and_then(|object| super::delivery::sealed(object))
            .filter(|_| !answer.part.as_ref().is_some_and(|part| part.goes_on()));
        // Nothing comes after a body whose length was said before.
        let trails = takes_trailers(head.fields)
            && head.minor_version > 0
            && answer.may_have_trailers()
            && !has(head.fields, "range");
        let body_bytes = kept.body_bytes.or(sealed_bytes.filter(|_| !trails));
        let trailers = answer.trailers.clone().filter(|_| trails);
        let composed = compose(out, &kept, &asked, &said, body_bytes);
        client.closes |= composed.closes;
        let (status, head_end) = (composed.status, out.len());
        match &answer.object {
            Some(object) => {
                self.begin(client, composed, object.clone(), answer.is_private, trailers);
                if let (Some(delivery), Some(part)) = (&mut client.delivery, &answer.part) {
                    delivery.goes_on_with(part.clone());
                }
            }
            None => push_body(out, &composed.body, kept.body),
        }
        let body_bytes = (out.len() - head_end) as u64;
        let origin_status = answer.origin_status;
        self.told = Told { status, body_bytes, cache: Some(why.as_str()), origin_status };
    }
}

/// True where a client wants to go on in another protocol, such as WebSocket. One that offers HTTP/2 is served by HTTP/1.1 as well.
fn wants_other_protocol(fields: &[Field<'_>]) -> bool {
    let mut options = members(fields, "connection");
    let mut protocols = members(fields, "upgrade").peekable();
    options.any(|it| it.eq_ignore_ascii_case(b"upgrade"))
        && protocols.peek().is_some()
        && !protocols.any(|it| it.eq_ignore_ascii_case(b"h2c"))
}

/// True where a response says that it may be given to all, whoever asked for it with credentials (RFC 9111, section 3.5).
fn is_for_all(life: &Life) -> bool {
    let said = &life.directives;
    said.is_public || said.s_maxage_s.is_some() || said.must_revalidate
}

fn asked<'a>(head: &RequestHead<'a>, closes: bool) -> Asked<'a> {
    let request = Request { method: head.method, fields: head.fields };
    Asked { request, minor_version: head.minor_version, keeps_alive: head.keeps_alive && !closes }
}

/// `Cache-Status` of a hit.
fn push_hit(note: &mut Vec<u8>, kept: &Kept<'_>, now_s: u64) {
    let life = &kept.life;
    let ttl_s = match life.stale_s(now_s) {
        0 => life.fresh_s(now_s) as i64,
        stale_s => -(stale_s as i64),
    };
    note.clear();
    let (outcome, detail) = (Handling::Hit, detail(life));
    let status = CacheStatus { outcome, ttl_s: Some(ttl_s), key: None, detail };
    push_cache_status(note, NAME, &status);
}

/// `Cache-Status` of what the origin gave.
fn push_forwarded(note: &mut Vec<u8>, why: Forward, answer: &Answer, kept: &Kept<'_>) {
    let outcome = Handling::Forwarded {
        why,
        status: answer.origin_status,
        is_stored: !answer.is_private,
        is_collapsed: false,
    };
    let status = CacheStatus { outcome, ttl_s: None, key: None, detail: detail(&kept.life) };
    push_cache_status(note, NAME, &status);
}

/// What there is to say of how long it is fresh, where the response did not.
fn detail(life: &Life) -> Option<&'static str> {
    life.is_by_rule.then_some("keep-status")
}
