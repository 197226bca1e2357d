//! Many connections that ask for one resource again and again, each as soon as it has it.
//!
//! life of a connection   leaves by
//! opened                 its request is sent
//! waiting                a complete response: requests again; a fault: counted, opened again
//!
//! The thread that measures controls the load by a [`Pace`]: all is checked from the beginning, and counted while the
//! pace states that.
//!
//! Invariants
//! 1. Every response is one of the asked length, or a fault.
//!
//! The first responses of some connections are compared byte by byte, as many as [`Pace::new`]
//! allows.
//!
//! Bounds: a request in flight a connection; `FAULTS_MAX` faults in a row end the load. Cost of a short response: a
//! receive, a send, and a share of a wait.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use larder_io::epoll::{Events, Interest, Poller};
use larder_serve::histogram::Histogram;

use super::body::Resource;
use super::exchange::{Exchange, Fault, Room};
use crate::clock::ThreadTime;

/// Faults without a response in between that are enough.
const FAULTS_MAX: u64 = 1000;
/// Longest that opening a connection takes.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longest sleep, so that the pace is seen.
const WAIT_MS: u64 = 5;
const EVENTS_MAX: usize = 512;

/// A request and its server.
#[derive(Debug, Clone)]
pub struct Target {
    /// Whom.
    pub address: SocketAddr,
    /// What comes.
    pub resource: Resource,
    /// The path by which it is asked for.
    pub path: String,
    /// Header lines of the request, next to those that every request has, each with its end.
    pub fields: &'static str,
}

impl Target {
    /// A resource by its own path.
    pub fn of(address: SocketAddr, resource: Resource) -> Target {
        Target { address, resource, path: resource.path(), fields: "" }
    }

    /// The request.
    pub fn request(&self) -> Vec<u8> {
        let Target { path, fields, .. } = self;
        format!("GET {path} HTTP/1.1\r\nHost: bench\r\n{fields}\r\n").into_bytes()
    }

    /// Requests it once and takes the whole answer, compared byte by byte; the error states what came instead.
    pub fn request_once(&self, longest: Duration) -> Result<(), String> {
        let words = |error: io::Error| error.to_string();
        let mut stream = TcpStream::connect_timeout(&self.address, CONNECT_MAX).map_err(words)?;
        stream.set_read_timeout(Some(longest)).map_err(words)?;
        stream.write_all(&self.request()).map_err(words)?;
        let mut exchange = Exchange::new(self.resource.body(), self.resource.bytes);
        exchange.checks = true;
        exchange.begin();
        let (begun, mut room) = (Instant::now(), Room::new());
        while begun.elapsed() < longest {
            match exchange.receive(&stream, &mut room) {
                Ok(took) if took.is_done => return Ok(()),
                Ok(_) => {}
                Err(fault) => return Err(fault.to_string()),
            }
        }
        Err("no answer".to_owned())
    }

    /// Opens a connection that does not block.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }
}

/// Controls the load on all threads.
#[derive(Debug)]
pub struct Pace {
    step: AtomicU8,
    compared_bytes: u64,
    unchecked: AtomicUsize,
    unopened: AtomicUsize,
}

const WARM: u8 = 0;
const COUNT: u8 = 1;
const END: u8 = 2;

impl Pace {
    /// For this many threads, each of which compares the first responses of so many connections that they are no more
    /// than `compared_bytes` in all.
    pub fn new(threads: usize, compared_bytes: u64) -> Pace {
        let (unchecked, unopened) = (AtomicUsize::new(0), AtomicUsize::new(threads));
        Pace { step: AtomicU8::new(WARM), compared_bytes, unchecked, unopened }
    }

    /// Whether all connections are open, and the first responses are compared.
    pub fn is_checked(&self) -> bool {
        self.unopened.load(Ordering::Acquire) == 0 && self.unchecked.load(Ordering::Acquire) == 0
    }

    /// From now on it counts.
    pub fn count(&self) {
        self.step.store(COUNT, Ordering::Relaxed);
    }

    /// Enough.
    pub fn end(&self) {
        self.step.store(END, Ordering::Relaxed);
    }

    /// Whether it is enough, or no server responds.
    pub fn is_ended(&self) -> bool {
        self.step.load(Ordering::Relaxed) == END
    }
}

/// What came of a load.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// Complete responses that were counted.
    pub responses: u64,
    /// Bytes of bodies that were counted.
    pub bytes: u64,
    /// From request to the last byte, of those counted.
    pub latency: Histogram,
    /// Nanoseconds that the clients ran while it counted.
    pub ran_ns: f64,
    /// Bytes of bodies in all the time.
    pub all_bytes: u64,
    /// Responses with a wrong status, length, bytes or form, in all the time. More than none is no result but a
    /// fault.
    pub wrong: u64,
    /// Connections that ended before they should, and requests without a connection, in all the time.
    pub failed: u64,
    /// The first fault.
    pub first_fault: Option<String>,
}

impl Load {
    /// Adds what came of a load on another thread at the same time.
    pub fn merge(&mut self, other: &Load) {
        self.responses += other.responses;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        self.ran_ns += other.ran_ns;
        self.all_bytes += other.all_bytes;
        self.wrong += other.wrong;
        self.failed += other.failed;
        self.first_fault = self.first_fault.take().or_else(|| other.first_fault.clone());
    }

    /// Counts a fault.
    pub fn fault(&mut self, fault: &Fault) {
        match fault {
            Fault::Closed(_) => self.failed += 1,
            _ => self.wrong += 1,
        }
        if self.first_fault.is_none() {
            self.first_fault = Some(fault.to_string());
        }
    }
}

struct Client {
    stream: TcpStream,
    exchange: Exchange,
    sent_at: Instant,
}

/// Asks from the calling thread, on `connections` connections, until the pace ends.
pub fn load(target: &Target, connections: usize, pace: &Pace) -> io::Result<Load> {
    let (poller, mut events) = (Poller::new()?, Events::new(EVENTS_MAX));
    let (request, mut room) = (target.request(), Room::new());
    let most = pace.compared_bytes / target.resource.bytes.max(1);
    let checked = connections.min(usize::try_from(most).unwrap_or(usize::MAX));
    pace.unchecked.fetch_add(checked, Ordering::Release);
    let mut clients = Vec::with_capacity(connections);
    for token in 0..connections {
        let mut exchange = Exchange::new(target.resource.body(), target.resource.bytes);
        exchange.checks = token < checked;
        let mut client = Client { stream: target.connect()?, exchange, sent_at: Instant::now() };
        client.send(&request)?;
        poller.add(&client.stream, token as u64, Interest::READ)?;
        clients.push(client);
    }
    pace.unopened.fetch_sub(1, Ordering::Release);
    let mut found = Load::default();
    let mut faults_in_a_row = 0;
    let mut time = None;
    while !pace.is_ended() {
        if time.is_none() && pace.step.load(Ordering::Relaxed) == COUNT {
            time = Some(ThreadTime::start());
        }
        poller.wait(&mut events, Some(WAIT_MS))?;
        for event in events.iter() {
            let Some(client) = clients.get_mut(event.token as usize) else { continue };
            let (took, fault) = match client.exchange.receive(&client.stream, &mut room) {
                Ok(took) => (took, None),
                Err(fault) => (Default::default(), Some(fault)),
            };
            let counts = pace.step.load(Ordering::Relaxed) == COUNT;
            found.all_bytes += took.bytes;
            found.bytes += if counts { took.bytes } else { 0 };
            let has_failed = fault.is_some();
            if let Some(fault) = fault {
                found.fault(&fault);
                faults_in_a_row += 1;
                if faults_in_a_row > FAULTS_MAX {
                    pace.end();
                    return Ok(found);
                }
            }
            if took.is_done {
                faults_in_a_row = 0;
                if counts {
                    found.responses += 1;
                    found.latency.add(client.sent_at.elapsed().as_nanos() as u64);
                }
                if std::mem::take(&mut client.exchange.checks) {
                    pace.unchecked.fetch_sub(1, Ordering::Release);
                }
            }
            let goes_on = took.is_done && !client.exchange.closes && client.send(&request).is_ok();
            if has_failed || (took.is_done && !goes_on) {
                let opened = client.open(target, &request);
                let added =
                    opened.and_then(|()| poller.add(&client.stream, event.token, Interest::READ));
                if let Err(error) = added {
                    // The server is gone.
                    found.fault(&Fault::Closed(error));
                    pace.end();
                    return Ok(found);
                }
            }
        }
    }
    found.ran_ns = time.map_or(0.0, |time| time.elapsed_ns());
    Ok(found)
}

impl Client {
    /// Sends the request; it is short, and there is room.
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.exchange.begin();
        self.sent_at = Instant::now();
        self.stream.write_all(request)
    }

    /// Begins again on another connection.
    fn open(&mut self, target: &Target, request: &[u8]) -> io::Result<()> {
        self.stream = target.connect()?;
        self.send(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::origin::Origin;
    use crate::http::serve::while_serving;

    /// What the origin gives is right and counted, for short and for long bodies; what it has not is a fault.
    /// Invariant 1.
    #[test]
    fn the_origin_is_loaded() {
        let mut origin = Origin::default();
        let requests = origin.requests.clone();
        while_serving(&mut origin, |address| {
            for path in ["/size/100", "/size/2000000", "/nothing"] {
                let resource = Resource::of_path(path);
                let target = Target {
                    path: path.to_owned(),
                    ..Target::of(address, resource.unwrap_or(Resource::of_path("/size/1").unwrap()))
                };
                let pace = Pace::new(1, 1 << 30);
                let found = std::thread::scope(|scope| {
                    let loading = scope.spawn(|| load(&target, 3, &pace).unwrap());
                    while resource.is_some() && !pace.is_checked() {
                        std::thread::yield_now();
                    }
                    let before = requests.of(path).count;
                    pace.count();
                    while resource.is_some() && requests.of(path).count < before + 20 {
                        std::thread::yield_now();
                    }
                    if resource.is_some() {
                        pace.end();
                    }
                    loading.join().unwrap()
                });
                match resource {
                    Some(resource) => {
                        assert!(found.responses >= 10 && found.wrong == 0 && found.failed == 0);
                        assert!(found.bytes >= found.responses.saturating_sub(3) * resource.bytes);
                        assert_eq!(found.latency.count(), found.responses);
                        assert!(found.all_bytes >= found.bytes + 3 * resource.bytes);
                    }
                    None => {
                        assert!(found.wrong > FAULTS_MAX && found.responses == 0);
                        assert_eq!(found.first_fault.as_deref(), Some("status 404"));
                    }
                }
            }
        });
    }
}
