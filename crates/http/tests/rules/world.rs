//! What the core sees of the world in a scenario: clients and an origin whose messages lie in queues
//! until a line names them, and a clock that stands still but for `after`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use larder_http::coalescing::{Outcome, Waiter};
use larder_http::core::{
    ClientRequest, Core, Fetch, Incoming, Net, Next, Reading, Reply, Step as Sent, Taken,
};
use larder_http::key::tag;
use larder_http::message::{self, FieldRoom, Limits, RequestHead, Scheme, push_date};
use larder_http::options::Options;
use larder_http::store::Store;
use larder_mem::object::{Notice, Post};

use super::client::{Client, Delivery, PIECE_BYTES, Response, check_fields, owned};
use super::script::{Step, bytes};

/// Notices are not needed: each step looks at everything.
struct Unread;

impl Post for Unread {
    fn post(&self, _notice: Notice) {}
}

/// What cores ask of their event loops.
#[derive(Default)]
struct Wire {
    fetches: VecDeque<Box<Fetch>>,
    outcomes: VecDeque<(u64, Outcome)>,
    connected: HashSet<u64>,
}

impl Net for Wire {
    fn fetch(&mut self, fetch: Box<Fetch>) {
        self.fetches.push_back(fetch);
    }

    fn complete(&mut self, waiter: Waiter, outcome: Outcome) {
        self.outcomes.push_back((waiter.client, outcome));
    }

    fn is_connected(&self, client: u64) -> bool {
        self.connected.contains(&client)
    }
}

/// A request that the origin got.
struct OriginRequest {
    core: usize,
    path: String,
    fetch: Option<Box<Fetch>>,
    incoming: Option<Box<Incoming>>,
    /// Bytes that the core does not take yet.
    held: Vec<u8>,
    has_ended: bool,
}

pub struct World {
    cores: Vec<Core>,
    store: Arc<Store>,
    wire: Wire,
    clients: HashMap<u64, Client>,
    requests: Vec<OriginRequest>,
    aborted: usize,
    now_s: u64,
}

impl World {
    pub fn new(options: &Options) -> Result<World, String> {
        let fault = |error: &dyn std::fmt::Display| error.to_string();
        let store = Store::open(options.memory, options.loops, Arc::new(Unread));
        let store = Arc::new(store.map_err(|error| fault(&error))?);
        let options = Arc::new(options.clone());
        let core = |number| Core::new(number as u32, options.clone(), store.clone());
        let cores: Result<Vec<Core>, _> = (0..options.loops).map(core).collect();
        Ok(World {
            cores: cores.map_err(|error| fault(&error))?,
            store,
            wire: Wire::default(),
            clients: HashMap::new(),
            requests: Vec::new(),
            aborted: 0,
            now_s: 1_000_000_000,
        })
    }

    /// One line of a scenario.
    pub fn step(&mut self, step: &Step) -> Result<(), String> {
        let now_s = self.now_s;
        self.cores.iter_mut().for_each(|core| core.begin(now_s));
        let words: Vec<&str> = step.words.iter().map(String::as_str).collect();
        match words[..] {
            ["client", number, ref rest @ ..] => {
                self.client_step(number.parse().map_err(|_| "no such client")?, rest, step)?;
            }
            ["origin", ref rest @ ..] => self.origin_step(rest, step)?,
            ["the", "fetch", "is", "aborted"] => {
                self.settle();
                self.aborted = self.aborted.checked_sub(1).ok_or("it is not")?;
            }
            ["the", "server", "drains"] => {
                self.cores.iter_mut().for_each(|core| core.is_draining = true);
            }
            ["after", seconds, "s"] => {
                self.now_s += seconds.parse::<u64>().map_err(|_| "no number")?;
            }
            ["purge", name] => self.store.purge_tag(tag(name.as_bytes()), false),
            ["soft", "purge", name] => self.store.purge_tag(tag(name.as_bytes()), true),
            ["nothing", "is", "in", "flight"] => {
                let count = self.store.flights.len() + self.wire.fetches.len();
                (count == 0).then_some(()).ok_or(format!("{count} fetches are"))?;
            }
            _ => return Err(format!("what is {}?", words.join(" "))),
        }
        self.settle();
        self.cores.iter_mut().for_each(Core::finish);
        Ok(())
    }

    /// Nothing is left that no line named.
    pub fn end(self) -> Result<(), String> {
        if let Some(fetch) = self.wire.fetches.front() {
            return Err(format!("the origin got {}", first_line(&fetch.request)));
        }
        if self.aborted > 0 {
            return Err("a fetch was aborted".to_owned());
        }
        let is_open = self.requests.iter().any(|request| request.fetch.is_some());
        for (number, client) in &self.clients {
            if client.exchange.is_some() && !is_open {
                return Err(format!("client {number} waits for nothing"));
            }
            let is_unnamed = |it: &&Response| {
                !it.is_named || it.named_bytes < it.body.len() || it.is_complete || it.is_failed
            };
            if let Some(response) = client.responses.iter().find(is_unnamed) {
                return Err(format!("client {number} got {}", response.status));
            }
        }
        self.store.objects.validate().map_err(|error| format!("{error:?}"))
    }

    fn client_step(&mut self, number: u64, words: &[&str], step: &Step) -> Result<(), String> {
        match *words {
            ["requests", method, path] => return self.request(number, method, path, 0, step),
            ["requests", method, path, "on", "loop", at] => {
                let at: usize = at.parse().map_err(|_| "no such loop")?;
                return self.request(number, method, path, at - 1, step);
            }
            _ => {}
        }
        let client = self.clients.get_mut(&number).ok_or("it has not requested anything")?;
        match *words {
            ["stops", "reading"] => client.is_slow = true,
            ["reads", "on"] => client.is_slow = false,
            ["leaves"] => {
                self.wire.connected.remove(&number);
                let client = self.clients.remove(&number).unwrap_or_default();
                if let Some(flight) = client.exchange.and_then(|it| it.flight) {
                    let loop_number = client.core as u32;
                    flight.leave(Waiter { loop_number, client: number });
                }
            }
            ["gets", "the", "end"] => {
                let response = client.responses.pop_front().ok_or("it gets nothing")?;
                let is_named = response.is_complete && response.named_bytes == response.body.len();
                is_named.then_some(()).ok_or("there is more, or will be")?;
            }
            ["is", "cut", "off"] => {
                let response = client.responses.pop_front().ok_or("it gets nothing")?;
                response.is_failed.then_some(()).ok_or("it is not")?;
            }
            ["gets", status] => {
                let response = client.responses.front_mut().ok_or("it gets nothing")?;
                response.check(status, step)?;
                if response.is_complete && response.named_bytes == response.body.len() {
                    client.responses.pop_front();
                }
            }
            ["then", "gets", ref text @ ..] => {
                let response = client.responses.front_mut().ok_or("it gets nothing")?;
                response.check_more(&bytes(&text.join(" ")))?;
            }
            _ => return Err(format!("what is {}?", words.join(" "))),
        }
        Ok(())
    }

    fn request(
        &mut self,
        number: u64,
        method: &str,
        path: &str,
        core: usize,
        step: &Step,
    ) -> Result<(), String> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: example.com\r\n").into_bytes();
        push_fields(&mut head, &step.fields);
        if let Some((_, body)) = &step.content {
            head.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        self.wire.connected.insert(number);
        let client = self.clients.entry(number).or_default();
        client.core = core;
        if client.exchange.is_some() {
            return Err("it waits for a response".to_owned());
        }
        let mut out = Vec::new();
        let reply = {
            let mut room = FieldRoom::new();
            let head_read = read_head(&head, &mut room)?;
            let peer = || Some(peer(number));
            let from = from(number, client, &head_read, &head, &peer);
            self.cores[core].request(&mut self.wire, &from, &mut out)
        };
        let body = step.content.as_ref().map(|(_, body)| &body[..]);
        self.apply(number, reply, &out, body);
        Ok(())
    }

    /// Does with a client what a core decided.
    fn apply(&mut self, number: u64, reply: Reply, out: &[u8], body: Option<&[u8]>) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        match reply.step {
            Sent::Wait(exchange, upload) => {
                client.exchange = Some(*exchange);
                if let (Some(mut upload), Some(body)) = (upload, body) {
                    let mut filler = upload.filler.take().unwrap();
                    assert_eq!(upload.remaining.take(body, &mut filler).1, Taken::Complete);
                    filler.seal();
                }
            }
            Sent::Sent => {
                let mut response = Response::read(out);
                response.is_complete = true;
                client.responses.push_back(response);
            }
            Sent::Deliver(content) => {
                client.responses.push_back(Response::read(out));
                client.delivery = Some(Delivery::new(*content));
            }
        }
    }

    fn origin_step(&mut self, words: &[&str], step: &Step) -> Result<(), String> {
        let (words, path) = match *words {
            [ref rest @ .., "to", path] => (rest, Some(path)),
            ref rest => (rest, None),
        };
        if let ["gets", method, path] = *words {
            return self.origin_gets(method, path, step);
        }
        let is_it = |request: &&mut OriginRequest| request.is_of(path);
        let request = self.requests.iter_mut().rev().find(is_it).ok_or("it got no such request")?;
        match *words {
            ["answers", status] => {
                let mut bytes = format!("HTTP/1.1 {status} It\r\n").into_bytes();
                if !step.fields.iter().any(|(name, _)| name == "Date") {
                    bytes.extend_from_slice(b"Date: ");
                    push_date(&mut bytes, self.now_s);
                    bytes.extend_from_slice(b"\r\n");
                }
                push_fields(&mut bytes, &step.fields);
                match &step.content {
                    Some((word, text)) if word == "chunk" => {
                        bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                        push_chunk(&mut bytes, text);
                    }
                    content => {
                        let text = content.as_ref().map_or(&b""[..], |(_, text)| text);
                        let line = format!("Content-Length: {}\r\n\r\n", text.len());
                        bytes.extend_from_slice(line.as_bytes());
                        bytes.extend_from_slice(text);
                    }
                }
                if status == "304" {
                    bytes.truncate(bytes.len() - b"Content-Length: 0\r\n\r\n".len());
                    bytes.extend_from_slice(b"\r\n");
                }
                self.answer(path.map(str::to_owned), &bytes)?;
            }
            ["sends", ref text @ ..] => push_chunk(&mut request.held, &bytes(&text.join(" "))),
            ["ends"] => request.held.extend_from_slice(b"0\r\n\r\n"),
            ["breaks", "off"] => request.has_ended = true,
            ["is", "held", "up"] => {
                let is_held = request.incoming.is_some() && !request.held.is_empty();
                is_held.then_some(()).ok_or("all that it sent was taken")?;
            }
            ["fails", status] => {
                let fetch = request.fetch.take().ok_or("it has answered")?;
                let status = status.parse().map_err(|_| "no status")?;
                self.cores[request.core].failed(&mut self.wire, &fetch, status);
            }
            _ => return Err(format!("what is {}?", words.join(" "))),
        }
        Ok(())
    }

    fn origin_gets(&mut self, method: &str, path: &str, step: &Step) -> Result<(), String> {
        let fetch = self.wire.fetches.pop_front().ok_or("it gets nothing")?;
        let mut room = FieldRoom::new();
        let head = read_head(&fetch.request, &mut room)?;
        if (head.method, head.target.path()) != (method, path.as_bytes()) {
            return Err(format!("it gets {}", first_line(&fetch.request)));
        }
        let fields: Vec<_> = head.fields.iter().map(owned).collect();
        check_fields(&fields, step)?;
        let core = self.core_of(&fetch);
        let path = path.to_owned();
        let (incoming, held, has_ended) = (None, Vec::new(), false);
        self.requests.push(OriginRequest {
            core,
            path,
            fetch: Some(fetch),
            incoming,
            held,
            has_ended,
        });
        Ok(())
    }

    /// The event loop of the client that started a fetch.
    fn core_of(&self, fetch: &Fetch) -> usize {
        use larder_http::core::Purpose;
        let client = match &fetch.purpose {
            Purpose::Private { client, .. } => Some(*client),
            Purpose::Shared { leader, .. } => *leader,
        };
        client.and_then(|client| self.clients.get(&client)).map_or(0, |client| client.core)
    }

    fn answer(&mut self, path: Option<String>, bytes: &[u8]) -> Result<(), String> {
        let is_it = |request: &&mut OriginRequest| request.is_of(path.as_deref());
        let request = self.requests.iter_mut().rev().find(is_it).ok_or("it got no such request")?;
        let mut fetch = request.fetch.take().ok_or("it has answered")?;
        let mut room = FieldRoom::new();
        let head = message::response(bytes, &mut room, &fetch.method.clone(), &Limits::default());
        let head = head.map_err(|error| format!("{error:?}"))?.ok_or("no whole response")?;
        let rest = &bytes[head.head_bytes..];
        let core = &mut self.cores[request.core];
        match core.response(&mut self.wire, &mut fetch, &head, rest) {
            (Next::Body(incoming), used) => {
                request.held = rest[used..].to_vec();
                (request.incoming, request.fetch) = (Some(incoming), Some(fetch));
            }
            (Next::Again, _) => self.wire.fetches.push_back(fetch),
            (Next::Done | Next::Unwanted, _) => {}
        }
        Ok(())
    }

    /// Does all that can be done without another step.
    fn settle(&mut self) {
        loop {
            let mut is_at_rest = true;
            while let Some((number, outcome)) = self.wire.outcomes.pop_front() {
                is_at_rest = false;
                self.outcome(number, outcome);
            }
            for request in &mut self.requests {
                let (is_moved, is_aborted) = request.receive(&mut self.cores[request.core]);
                self.aborted += usize::from(is_aborted);
                is_at_rest &= !is_moved;
            }
            for client in self.clients.values_mut() {
                is_at_rest &= !client.receive();
            }
            if is_at_rest {
                return;
            }
        }
    }

    fn outcome(&mut self, number: u64, outcome: Outcome) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Some(exchange) = client.exchange.take() else { return };
        let mut out = Vec::new();
        let reply = {
            let mut room = FieldRoom::new();
            let head = read_head(&exchange.head, &mut room).unwrap();
            let peer = || Some(peer(number));
            let from = from(number, client, &head, &exchange.head, &peer);
            let core = &mut self.cores[client.core];
            core.outcome(&mut self.wire, &from, exchange.why, outcome, &mut out)
        };
        self.apply(number, reply, &out, None);
    }
}

impl OriginRequest {
    /// It is in flight, and for this path, if one is named.
    fn is_of(&self, path: Option<&str>) -> bool {
        self.fetch.is_some() && path.is_none_or(|path| self.path == path)
    }

    /// Gives the core what the origin sent of a body: whether anything changed, and whether the
    /// fetch was aborted.
    fn receive(&mut self, core: &mut Core) -> (bool, bool) {
        let mut is_moved = false;
        while let (Some(mut incoming), Some(fetch)) = (self.incoming.take(), &self.fetch) {
            let reading = core.before_reading(fetch, &mut incoming);
            if reading == Reading::Abort {
                core.end_flight(fetch);
                self.fetch = None;
                return (true, true);
            }
            if reading == Reading::Wait || self.held.is_empty() && !self.has_ended {
                self.incoming = Some(incoming);
                break;
            }
            if self.held.is_empty() {
                core.broken(*incoming);
                core.end_flight(fetch);
                self.fetch = None;
                return (true, false);
            }
            let piece = &self.held[..self.held.len().min(PIECE_BYTES)];
            let (used, taken) = incoming.remaining.take(piece, &mut incoming.filler);
            self.held.drain(..used);
            core.after_reading(fetch, &mut incoming);
            is_moved |= used > 0;
            match taken {
                Taken::Complete => {
                    core.completed(fetch, *incoming);
                    self.fetch = None;
                    return (true, false);
                }
                Taken::NoRoom => {
                    incoming.filler.publish_now();
                    core.make_room();
                    self.incoming = Some(incoming);
                    break;
                }
                Taken::More | Taken::Broken => self.incoming = Some(incoming),
            }
        }
        (is_moved, false)
    }
}

fn push_fields(out: &mut Vec<u8>, fields: &[(String, String)]) {
    for (name, value) in fields {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
}

fn push_chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned()
}

fn read_head<'a>(bytes: &'a [u8], room: &'a mut FieldRoom<'a>) -> Result<RequestHead<'a>, String> {
    let head = message::request(bytes, room, &Limits::READ_BEFORE);
    head.map_err(|error| format!("{error:?}"))?.ok_or("no whole request".to_owned())
}

/// A client by its number: at 198.51.100.N.
fn peer(number: u64) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, number as u8], 40_000))
}

fn from<'a>(
    number: u64,
    client: &Client,
    head: &'a RequestHead<'a>,
    bytes: &'a [u8],
    peer: &'a dyn Fn() -> Option<SocketAddr>,
) -> ClientRequest<'a> {
    let (client, has_upload) = (number, client.has_upload);
    ClientRequest { head, bytes, client, scheme: Scheme::Http, peer, closes: false, has_upload }
}
