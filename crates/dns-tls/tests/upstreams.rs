//! Upstreams over TLS, HTTPS and QUIC: against this crate's own server, and against servers that
//! fail at each point.
//!
//! The test plays the core: it sends queries and waits until they return.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use larder_dns::backend::log::{Format, Level, Log};
use larder_dns::backend::{Backend, Backends};
use larder_dns::core::Client;
use larder_dns::side_query::{Inbox, Running, SideServer, channel};
use larder_dns_tls::upstream::{Encrypted, Target, Trust};
use larder_dns_tls::{Encrypted as Server, Files, HTTPS_PATH, Limits};
use larder_io::epoll::{Events, Interest, Poller, Waker};
use larder_testkit::dns;
use larder_testkit::tls::Identity;
use larder_testkit::wait::{PATIENCE, until_so};
use rustls::{ServerConnection, StreamOwned};

const NAME: &str = "dns.example";
const SCHEMES: [&str; 3] = ["tls", "https", "quic"];

fn trust(identity: &Identity) -> Trust {
    Trust::File(identity.chain())
}

/// This crate's server. Its core echoes queries as responses, except for names that begin with
/// `none`.
struct Echo {
    running: Option<Arc<dyn Running>>,
    addresses: Vec<SocketAddr>,
    ends: Arc<AtomicBool>,
    core: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(identity: &Identity, addresses: Option<Vec<SocketAddr>>) -> Echo {
        let waker = Arc::new(Waker::new().unwrap());
        let (sender, inbox) = channel(waker.clone(), 1_024);
        let at = |place: usize| match &addresses {
            Some(addresses) => vec![addresses[place]],
            None => vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        };
        let server = Server {
            tls: at(0),
            https: at(1),
            https_path: HTTPS_PATH.to_owned(),
            quic: at(2),
            certificate: Files { certificates: identity.chain(), key: identity.key() },
            limits: Limits::default(),
        };
        let running = server.start(vec![sender]).unwrap();
        let address = |(_, place): &(&str, String)| {
            let word = place.trim_start_matches("https://").trim_end_matches(HTTPS_PATH);
            word.parse().unwrap()
        };
        let addresses = running.listeners().iter().map(address).collect();
        let ends = Arc::new(AtomicBool::new(false));
        let core_ends = ends.clone();
        let core = thread::spawn(move || echo(inbox, &waker, &core_ends));
        Echo { running: Some(running), addresses, ends, core: Some(core) }
    }

    fn url(&self, scheme: &str, name: &str) -> String {
        let place = SCHEMES.iter().position(|each| *each == scheme).unwrap();
        format!("{scheme}://{}#{name}", self.addresses[place])
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // The server stops at once, as in a crash.
        self.running = None;
        self.ends.store(true, Ordering::Relaxed);
        let core = self.core.take().unwrap();
        assert!(core.join().is_ok() || thread::panicking());
    }
}

/// Plays the core until the end.
fn echo(mut inbox: Inbox, waker: &Waker, ends: &AtomicBool) {
    let (poller, mut events) = (Poller::new().unwrap(), Events::new(4));
    poller.add(waker, 0, Interest::READ).unwrap();
    let mut taken = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(20)).unwrap();
        waker.clear().unwrap();
        inbox.take(&mut taken);
        for (client, message) in taken.drain(..) {
            let Client::Side { slot, .. } = client else { panic!("{client:?}") };
            if message[13..].starts_with(b"none") {
                inbox.ignore(slot);
                continue;
            }
            inbox.answer(slot, 65_535, |out| Some(answer(&message, out)));
        }
        inbox.flush();
    }
}

/// A response without records.
fn answer(query: &[u8], out: &mut [u8]) -> usize {
    out[..query.len()].copy_from_slice(query);
    out[2] |= 0x80;
    query.len()
}

/// The core's side of an upstream.
struct UpstreamClient {
    backends: Backends,
    upstream: Arc<Encrypted>,
    log: Log,
    poller: Poller,
    waker: Arc<Waker>,
    next: u64,
}

impl UpstreamClient {
    fn new(url: &str, trust: &Trust) -> UpstreamClient {
        let upstream = Encrypted::new(Target::parse(url).unwrap(), trust, None).unwrap();
        let upstream = Arc::new(upstream);
        let log = Log::new("dns", Level::Info, Format::Text);
        upstream.start(&log).unwrap();
        let backend: Arc<dyn Backend> = upstream.clone();
        let waker = Arc::new(Waker::new().unwrap());
        let poller = Poller::new().unwrap();
        poller.add(&*waker, 0, Interest::READ).unwrap();
        let backends = Backends::new(&[backend], 0, 5_000, waker.clone());
        UpstreamClient { backends, upstream, log, poller, waker, next: 0 }
    }

    /// Sends queries for these labels at once; returns the responses in the same order.
    fn query(&mut self, labels: &[&str], wait_ms: u32) -> Vec<Option<Vec<u8>>> {
        let first = self.next;
        for label in labels {
            assert!(self.backends.query(0, self.next, &query(label), wait_ms));
            self.next += 1;
        }
        let mut came = vec![None; labels.len()];
        let (begun, mut missing) = (Instant::now(), labels.len());
        let mut events = Events::new(4);
        while missing > 0 {
            assert!(begun.elapsed() < PATIENCE, "a query does not come back");
            self.poller.wait(&mut events, Some(1_000)).unwrap();
            self.waker.clear().unwrap();
            while let Some((tag, bytes)) = self.backends.take() {
                came[(tag - first) as usize] = bytes;
                missing -= 1;
            }
        }
        came
    }

    /// True if a query gets a response.
    fn is_answered(&mut self, label: &str) -> bool {
        let bytes = self.query(&[label], 30_000).remove(0);
        bytes.is_some_and(|bytes| fits(label, &bytes))
    }

    /// Repeats a query until it gets a response.
    fn await_answer(&mut self, label: &str) {
        until_so(label, || self.is_answered(label));
    }

    fn count(&self, name: &str) -> u64 {
        let metrics = self.upstream.metrics();
        metrics.iter().find(|metric| metric.field() == name).unwrap().value as u64
    }
}

impl Drop for UpstreamClient {
    fn drop(&mut self) {
        self.upstream.stop();
    }
}

/// A query for `<label>.example`, with an OPT record that is last.
fn query(label: &str) -> Vec<u8> {
    dns::query_with(0, format!("{label}.example"), dns::A, b"")
}

/// True if a response repeats the question.
fn fits(label: &str, bytes: &[u8]) -> bool {
    let query = query(label);
    // The OPT record differs because it was padded.
    bytes[2] & 0x80 != 0 && bytes[12..].starts_with(&query[12..query.len() - 11])
}

/// Over each transport, many queries on one connection get their own responses, padded in transit.
/// A query without a response does not affect others.
#[test]
fn each_transport() {
    let identity = Identity::new(NAME);
    let server = Echo::start(&identity, None);
    for scheme in SCHEMES {
        let mut client = UpstreamClient::new(&server.url(scheme, NAME), &trust(&identity));
        let labels: Vec<String> = (0..1_000).map(|number| format!("n{number}")).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        for (label, bytes) in labels.iter().zip(client.query(&labels, 30_000)) {
            let bytes = bytes.unwrap();
            assert!(fits(label, &bytes), "{scheme} {label}");
            assert_eq!(bytes.len(), 468, "the question was padded, and so its answer");
        }
        assert_eq!(client.count("upstream_connections"), 1, "{scheme}");
        let both = client.query(&["none", "some"], 1_000);
        assert!(both[0].is_none() && both[1].is_some());
        assert!(client.log.take().is_empty());
    }
}

/// A server that does not prove its name, or whose certificate no trusted authority signed, gets no
/// queries. larder reports that once, and counts it.
#[test]
fn who_does_not_prove_it() {
    let (identity, other) = (Identity::new(NAME), Identity::new(NAME));
    let server = Echo::start(&identity, None);
    for scheme in SCHEMES {
        for (name, trusted) in [("other.example", trust(&identity)), (NAME, trust(&other))] {
            let mut client = UpstreamClient::new(&server.url(scheme, name), &trusted);
            assert!(!client.is_answered("some"));
            let lines = client.log.take();
            assert!(lines[0].starts_with("warn dns: upstream not authenticated "), "{lines:?}");
            assert!(lines.len() == 1 && lines[0].contains(&format!(" name={name} ")), "{lines:?}");
            assert_eq!(client.count("upstream_unproven"), 1);
            assert_eq!(client.count("upstream_connections"), 0);
            assert!(client.log.take().is_empty());
        }
        // The certificate is also valid for its address.
        let url = server.url(scheme, "127.0.0.1");
        assert!(UpstreamClient::new(&url, &trust(&identity)).is_answered("some"));
    }
}

/// A server that stops and starts again gets queries again; larder logs both events.
#[test]
fn comes_back() {
    let identity = Identity::new(NAME);
    for scheme in SCHEMES {
        let server = Echo::start(&identity, None);
        let (addresses, url) = (server.addresses.clone(), server.url(scheme, NAME));
        let mut client = UpstreamClient::new(&url, &trust(&identity));
        assert!(client.is_answered("before"));
        drop(server);
        if scheme != "quic" {
            // Over QUIC silence is no error, so only the time limit applies.
            assert!(!client.is_answered("meanwhile"));
            assert!(client.log.take()[0].starts_with("warn dns: upstream down "));
        }
        let _server = Echo::start(&identity, Some(addresses));
        if scheme == "quic" {
            // After three queries without a response the connection is considered dead.
            for _ in 0..3 {
                client.query(&["lost"], 100);
            }
        }
        client.await_answer("after");
        if scheme != "quic" {
            assert!(client.log.take()[0].starts_with("info dns: upstream up "));
        }
    }
}

/// A scripted TLS server. It calls `each` with the number and the stream of each connection, before
/// the handshake.
fn played(
    identity: &Identity,
    mut each: impl FnMut(usize, StreamOwned<ServerConnection, TcpStream>) + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tls://{}#{NAME}", listener.local_addr().unwrap());
    let config = identity.server(&["dot"]);
    // The thread ends with the process.
    thread::spawn(move || {
        for (number, socket) in listener.incoming().map_while(Result::ok).enumerate() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            each(number, StreamOwned::new(connection, socket));
        }
    });
    url
}

fn receive(stream: &mut impl Read) -> Option<Vec<u8>> {
    dns::read_framed(stream).ok()
}

fn send(stream: &mut impl Write, message: &[u8]) {
    // The client may have closed the connection.
    let _ = stream.write_all(&dns::framed(message)).and_then(|()| stream.flush());
}

fn answered(mut query: Vec<u8>) -> Vec<u8> {
    query[2] |= 0x80;
    query
}

/// Responses reach their queries in reverse order, also with responses to no query between them.
#[test]
fn answers_out_of_order() {
    const COUNT: usize = 50;
    let identity = Identity::new(NAME);
    let url = played(&identity, |_, mut stream| {
        let mut queries: Vec<_> = (0..COUNT).map_while(|_| receive(&mut stream)).collect();
        while let Some(query) = queries.pop() {
            let mut foreign = answered(query.clone());
            foreign[0] ^= 0x80;
            send(&mut stream, &foreign);
            send(&mut stream, &answered(query));
        }
    });
    let mut client = UpstreamClient::new(&url, &trust(&identity));
    let labels: Vec<String> = (0..COUNT).map(|number| format!("n{number}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    for (label, bytes) in labels.iter().zip(client.query(&labels, 30_000)) {
        assert!(fits(label, &bytes.unwrap()));
    }
}

/// larder replaces a connection that the server closes during a query, after it had served others,
/// and repeats the query. It does not try again for the same query if the server closes the new
/// connection at once.
#[test]
fn closed_under_a_query() {
    let identity = Identity::new(NAME);
    let url = played(&identity, |_, mut stream| {
        // The server sends one response on a connection, and reads the second query without a
        // response.
        if let Some(query) = receive(&mut stream) {
            send(&mut stream, &answered(query));
        }
        receive(&mut stream);
    });
    let mut client = UpstreamClient::new(&url, &trust(&identity));
    for label in ["one", "two", "three"] {
        assert!(client.query(&[label], 30_000)[0].is_some(), "{label}");
    }
    assert_eq!(
        (client.count("upstream_connections"), client.count("upstream_connections_lost")),
        (3, 2)
    );
}

/// A server that ends at any point of a connection's lifetime fails the query. So does one that
/// sends bytes that are not TLS, not a message, or a part of one. No query waits for ever.
#[test]
fn ends_at_each_point() {
    let identity = Identity::new(NAME);
    type Act = fn(usize, StreamOwned<ServerConnection, TcpStream>);
    let acts: [Act; 6] = [
        |_, stream| drop(stream),
        |_, mut stream| drop(stream.sock.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        |_, mut stream| drop(stream.flush()),
        |_, mut stream| drop(receive(&mut stream)),
        |_, mut stream| {
            receive(&mut stream);
            drop(stream.write_all(&[0xff, 0xff, 0, 1, 0x81]).and_then(|()| stream.flush()));
        },
        |_, mut stream| {
            receive(&mut stream);
            send(&mut stream, b"short");
        },
    ];
    for (at, act) in acts.into_iter().enumerate() {
        let mut client = UpstreamClient::new(&played(&identity, act), &trust(&identity));
        assert!(client.query(&["some"], 30_000)[0].is_none(), "act {at}");
    }
}

/// A server that accepts connections and sends nothing, before or after the handshake, delays a
/// query no longer than its time limit. After several such queries larder opens a new connection.
#[test]
fn says_nothing() {
    let identity = Identity::new(NAME);
    let mut kept = Vec::new();
    let url = played(&identity, move |number, mut stream| {
        if number > 0 {
            while let Some(query) = receive(&mut stream) {
                send(&mut stream, &answered(query));
            }
        } else {
            let _ = stream.flush();
            kept.push(thread::spawn(move || while receive(&mut stream).is_some() {}));
        }
    });
    let mut client = UpstreamClient::new(&url, &trust(&identity));
    // On a slow machine the handshake may take long; it continues after the query's time limit.
    while client.count("upstream_connections") == 0 {
        assert!(client.query(&["some"], 50)[0].is_none());
    }
    while client.count("upstream_connections") == 1 {
        client.query(&["some"], 50);
    }
    client.await_answer("again");
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("quic://{}#{NAME}", silent.local_addr().unwrap());
    assert!(UpstreamClient::new(&url, &trust(&identity)).query(&["some"], 50)[0].is_none());
}
