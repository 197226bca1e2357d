//! A server with its own certificate, and the core behind it.
//!
//! The first label of a name chooses the core's response:
//!
//! | label | response |
//! |---|---|
//! | `hold` | with the next query, or when released |
//! | `huge` | 60,000 bytes |
//! | `none` | no response |
//! | any other | the question with QR set, and an address with a TTL of 60 s |

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use larder_dns::core::Client;
use larder_dns::dnstap::Protocol;
use larder_dns::metrics::Metric;
use larder_dns::side_query::{Inbox, Running, SideServer, channel};
use larder_dns_tls::{Encrypted, Files, HTTPS_PATH, Limits};
use larder_io::epoll::{Events, Interest, Poller, Waker};
use larder_testkit::dns;
use larder_testkit::tls::Identity;
use larder_testkit::wait::{PATIENCE, until_so, until_so_or};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

pub const NAME: &str = "dns.example";

/// Bytes of the response to `huge`.
pub const HUGE_BYTES: usize = 60_000;

/// Limits of a server with very short timeouts.
pub fn impatient() -> Limits {
    let short = Duration::from_millis(200);
    Limits { handshake: short, idle: short, stall: short, ..Limits::default() }
}

/// A running server.
pub struct World {
    running: Option<Arc<dyn Running>>,
    identity: Identity,
    addresses: Vec<SocketAddr>,
    /// Client and transport of the last query.
    pub last: Arc<Mutex<Option<(IpAddr, Protocol)>>>,
    /// Queries that the core holds.
    held: Arc<AtomicUsize>,
    releases: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    core: Option<JoinHandle<()>>,
}

impl World {
    pub fn start(limits: Limits) -> World {
        let identity = Identity::new(NAME);
        let files = Files { certificates: identity.chain(), key: identity.key() };
        let waker = Arc::new(Waker::new().unwrap());
        let (sender, inbox) = channel(waker.clone(), 1_024);
        let (last, ends) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (held, releases) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let core = thread::spawn({
            let (last, ends) = (last.clone(), ends.clone());
            let (held, releases) = (held.clone(), releases.clone());
            move || play(inbox, &waker, &last, &held, &releases, &ends)
        });
        let any = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        let encrypted = Encrypted {
            tls: any.clone(),
            https: any.clone(),
            https_path: HTTPS_PATH.to_owned(),
            quic: any,
            certificate: files,
            limits,
        };
        let running = encrypted.start(vec![sender]).unwrap();
        let address = |(_, place): &(&str, String)| {
            let word = place.trim_start_matches("https://").trim_end_matches(HTTPS_PATH);
            word.parse().unwrap()
        };
        let addresses = running.listeners().iter().map(address).collect();
        World {
            running: Some(running),
            identity,
            addresses,
            last,
            held,
            releases,
            ends,
            core: Some(core),
        }
    }

    pub fn tls(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn https(&self) -> SocketAddr {
        self.addresses[1]
    }

    pub fn quic(&self) -> SocketAddr {
        self.addresses[2]
    }

    /// A client configuration that trusts the server and offers these protocols.
    pub fn client(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        self.identity.client(alpn)
    }

    /// What is counted, by name and transport.
    pub fn counts(&self) -> HashMap<(String, String), u64> {
        let metrics = self.running.as_ref().map(|running| running.metrics()).unwrap_or_default();
        let label = |label: &Option<(_, String)>| label.as_ref().map(|(_, value)| value.clone());
        let of = |it: &Metric| (it.field().to_owned(), label(&it.label).unwrap_or_default());
        metrics.iter().map(|it| (of(it), it.value as u64)).collect()
    }

    pub fn count(&self, name: &'static str, transport: &str) -> u64 {
        self.counts()[&(name.to_owned(), transport.to_owned())]
    }

    /// Waits until a counter has this value.
    pub fn await_count(&self, name: &'static str, transport: &str, wanted: u64) {
        let stands = || format!("{name} {transport} {wanted}: {:?}", self.counts());
        until_so_or(stands, || self.count(name, transport) == wanted);
    }

    /// Waits until the core holds this number of queries.
    pub fn await_held(&self, wanted: usize) {
        until_so("held questions", || self.held.load(Ordering::Relaxed) == wanted);
    }

    /// Like `await_held`, but does not block the thread.
    pub async fn held(&self, wanted: usize) {
        let held = async {
            while self.held.load(Ordering::Relaxed) != wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, held).await.expect("they are held");
    }

    /// The core soon responds to all queries that it holds.
    pub fn release(&self) {
        self.releases.store(true, Ordering::Relaxed);
    }

    pub fn drain(&mut self) {
        self.running.as_ref().unwrap().drain();
    }

    pub fn finish(&mut self) {
        self.running.take().unwrap().finish();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.running = None;
        self.ends.store(true, Ordering::Relaxed);
        let core = self.core.take().unwrap().join();
        assert!(thread::panicking() || core.is_ok(), "the core");
    }
}

pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).unwrap()
}

/// Plays the core until the end.
fn play(
    mut inbox: Inbox,
    waker: &Waker,
    last: &Mutex<Option<(IpAddr, Protocol)>>,
    holds: &AtomicUsize,
    releases: &AtomicBool,
    ends: &AtomicBool,
) {
    let (poller, mut events) = (Poller::new().unwrap(), Events::new(4));
    poller.add(waker, 0, Interest::READ).unwrap();
    let (mut taken, mut held) = (Vec::new(), Vec::new());
    while !ends.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(20)).unwrap();
        waker.clear().unwrap();
        inbox.take(&mut taken);
        for (client, message) in taken.drain(..) {
            let Client::Side { slot, peer, protocol } = client else { panic!("{client:?}") };
            *last.lock().unwrap() = Some((peer.ip(), protocol));
            let label = message.get(13..17).unwrap_or_default().to_vec();
            match &label[..] {
                b"hold" => held.push((slot, message)),
                b"none" => inbox.ignore(slot),
                _ => {
                    let length = if label == b"huge" { HUGE_BYTES } else { 0 };
                    inbox.answer(slot, 65_535, |out| Some(write_answer(&message, length, out)));
                    answer_held(&mut inbox, &mut held);
                }
            }
        }
        if releases.swap(false, Ordering::Relaxed) {
            answer_held(&mut inbox, &mut held);
        }
        holds.store(held.len(), Ordering::Relaxed);
        inbox.flush();
    }
}

fn answer_held(inbox: &mut Inbox, held: &mut Vec<(u64, Vec<u8>)>) {
    for (slot, message) in held.drain(..) {
        inbox.answer(slot, 65_535, |out| Some(write_answer(&message, 0, out)));
    }
}

/// The response to a query, padded to a length.
fn write_answer(query: &[u8], length: usize, out: &mut [u8]) -> usize {
    let end = dns::question_end(query).unwrap();
    let mut answer = dns::answer(query, &[[192, 0, 2, 1]], 60);
    // Appends the query's OPT record.
    answer[11] = query[11];
    answer.extend_from_slice(&query[end..]);
    answer.resize(answer.len().max(length), 0);
    out[..answer.len()].copy_from_slice(&answer);
    answer.len()
}

/// A query for `<label>.example`, with an OPT record that has these options.
pub fn query(id: u16, label: &str, options: &[u8]) -> Vec<u8> {
    dns::query_with(id, format!("{label}.example"), dns::A, options)
}

/// A padding option of 5 bytes.
pub const PADDING: &[u8] = b"\0\x0c\0\x05\0\0\0\0\0";

/// True if a response matches a query.
pub fn answers(query: &[u8], answer: &[u8]) -> bool {
    let end = dns::question_end(query).unwrap();
    answer.len() > end
        && answer[..2] == query[..2]
        && answer[2] & 0x80 != 0
        && answer[12..end] == query[12..end]
}
