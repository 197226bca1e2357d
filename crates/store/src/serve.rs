//! Kept packets over HTTP: closed segments from their files, the one that grows as it grows, to any number of clients from one
//! thread.
//!
//! ```text
//! GET /                     the segments, a line each
//! GET /segments             the same as JSON
//! GET /segments/N.pcapng    a segment; of one that grows all there is and all that comes, until it is closed
//! GET /live.pcapng          from now on, over the ends of segments: curl -sN …/live.pcapng | wireshark -k -i -
//! ```
//!
//! A client of a segment that grows has a reader of its object: it leases what is published and sends it from there, without a
//! copy, as the disk's thread and all other clients do. Who has sent all waits for the writer to publish; a client that does not
//! read waits for itself alone, and never holds the writer up: when a segment is closed and its memory is wanted for another, it is
//! read on from its file.
//!
//! ```text
//! life of a client    leaves by
//! asks                a whole head; too long or too slow a head, damage
//! is answered         the last octet: asks again, or closed as it wished; no progress for STALL_MS; its end
//! ```
//!
//! Invariants
//! 1. What is cut short is seen as cut: a body whose length is known has it, another is in chunks, and the last chunk is sent when
//!    the segment is closed and whole.
//! 2. A live stream begins and goes on at the beginning of a block.
//!
//! Bounds: [`Options::clients_max`] clients, a head and [`LEASE_BYTES_MAX`] leased octets each. There is no TLS and no password: listen
//! where only those reach who may see the traffic.

mod client;
mod request;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use larder_io::event::{Events, Interest, Poller, Waker as Bell};
use larder_io::tcp::{self, ListenOptions};

use self::client::{Client, Next};
use crate::shelf::Shelf;

/// Octets that a client has leased at most.
pub const LEASE_BYTES_MAX: u64 = 1 << 20;

/// How long a client may make no progress, milliseconds, while there is something to send it or it asks.
const STALL_MS: u64 = 30_000;

/// How long nobody is accepted after the system had no descriptor, and how often stalled clients are looked for, milliseconds.
const PAUSE_MS: u64 = 1_000;

const LISTENER: u64 = 0;
const BELL: u64 = 1;
const CLIENTS: u64 = 2;
const EVENTS_MAX: usize = 256;

/// Where to serve, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The address.
    pub listen: SocketAddr,
    /// Clients at once; others are closed.
    pub clients_max: usize,
}

/// What the server did.
#[derive(Debug, Default)]
pub struct Counts {
    /// Clients that were accepted.
    pub clients: AtomicU64,
    /// Requests that were answered with packets.
    pub bodies: AtomicU64,
    /// Octets of packets that were sent.
    pub bytes: AtomicU64,
    /// Clients that were closed because they made no progress, or there were too many.
    pub closed: AtomicU64,
}

/// The thread. Dropped, it ends, and so do its clients.
pub struct Server {
    address: SocketAddr,
    counts: Arc<Counts>,
    bell: Arc<Ring>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes the thread: something was published, or it is to end.
struct Ring {
    bell: Bell,
    /// It was rung and has not looked yet: once is enough, however many segments' readers are told.
    is_rung: AtomicBool,
    ends: AtomicBool,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            // The counter of an eventfd is full only if nobody looks for ages: it looks then.
            let _ = self.bell.wake();
        }
    }
}

impl Server {
    /// Serves the segments of `shelf`.
    pub fn start(options: &Options, shelf: Arc<Shelf>) -> io::Result<Server> {
        let listen = ListenOptions::default();
        let listener = tcp::listen(options.listen, &listen).map_err(|error| {
            let next = "name another address, or stop who has it";
            io::Error::new(error.kind(), format!("{}: {error}; {next}", options.listen))
        })?;
        let address = listener.local_addr()?;
        let poller = Poller::new()?;
        let ring = Ring {
            bell: Bell::new()?,
            is_rung: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        };
        let bell = Arc::new(ring);
        poller.add(&listener, LISTENER, Interest::READ)?;
        poller.add(&bell.bell, BELL, Interest::READ)?;
        let counts = Arc::new(Counts::default());
        shelf.watch(Waker::from(Arc::clone(&bell)));
        let desk = Desk {
            poller,
            listener,
            clients: Vec::new(),
            clients_max: options.clients_max.max(1),
            paused_until_ms: None,
            common: Common {
                shelf,
                waker: Waker::from(Arc::clone(&bell)),
                counts: Arc::clone(&counts),
            },
            ring: Arc::clone(&bell),
            started: Instant::now(),
        };
        let thread = thread::Builder::new().name("serve".to_owned()).spawn(move || desk.run())?;
        Ok(Server { address, counts, bell, thread: Some(thread) })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it did so far.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.bell.ends.store(true, Ordering::Release);
        self.bell.wake_by_ref();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What all clients need.
struct Common {
    shelf: Arc<Shelf>,
    waker: Waker,
    counts: Arc<Counts>,
}

struct Desk {
    poller: Poller,
    listener: TcpListener,
    clients: Vec<Option<Client>>,
    clients_max: usize,
    paused_until_ms: Option<u64>,
    common: Common,
    ring: Arc<Ring>,
    started: Instant,
}

impl Desk {
    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn run(mut self) {
        let mut events = Events::new(EVENTS_MAX);
        let mut looked_ms = 0;
        while !self.ring.ends.load(Ordering::Acquire) {
            let is_idle = self.clients.is_empty() && self.paused_until_ms.is_none();
            let wait_ms = (!is_idle).then_some(PAUSE_MS);
            if self.poller.wait(&mut events, wait_ms).is_err() {
                return;
            }
            let now_ms = self.now_ms();
            let mut is_rung = false;
            for event in events.iter() {
                match event.token {
                    LISTENER => self.accept(now_ms),
                    BELL => is_rung = true,
                    token => self.turn((token - CLIENTS) as usize, now_ms),
                }
            }
            if is_rung {
                let _ = self.ring.bell.clear();
                // Before looking: who publishes from here on rings again.
                self.ring.is_rung.store(false, Ordering::Release);
                for slot in 0..self.clients.len() {
                    if let Some(client) = &mut self.clients[slot] {
                        client.leave_doomed(&self.common);
                    }
                    if self.clients[slot].as_ref().is_some_and(Client::waits_for_octets) {
                        self.turn(slot, now_ms);
                    }
                }
            }
            if now_ms >= looked_ms + PAUSE_MS {
                looked_ms = now_ms;
                self.expire(now_ms);
            }
        }
    }

    fn accept(&mut self, now_ms: u64) {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    // No descriptor, most likely: a level-triggered listener would spin.
                    let _ = self.poller.remove(&self.listener);
                    self.paused_until_ms = Some(now_ms + PAUSE_MS);
                    return;
                }
            };
            let free = self.clients.iter().position(Option::is_none);
            let slot = free.unwrap_or(self.clients.len());
            let counts = &self.common.counts;
            if slot >= self.clients_max || socket.set_nonblocking(true).is_err() {
                counts.closed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let _ = tcp::set_nodelay(&socket);
            if self.poller.add(&socket, CLIENTS + slot as u64, Interest::READ).is_err() {
                continue;
            }
            counts.clients.fetch_add(1, Ordering::Relaxed);
            let client = Some(Client::new(socket, now_ms));
            match self.clients.get_mut(slot) {
                Some(place) => *place = client,
                None => self.clients.push(client),
            }
        }
    }

    /// Does for a client what can be done now.
    fn turn(&mut self, slot: usize, now_ms: u64) {
        let Some(place) = self.clients.get_mut(slot) else { return };
        let Some(client) = place else { return };
        let token = CLIENTS + slot as u64;
        let is_kept = match client.turn(&self.common, now_ms) {
            Next::Close => false,
            Next::Wait(interest) if client.interest == interest => true,
            Next::Wait(interest) => {
                client.interest = interest;
                self.poller.modify(&client.socket, token, interest).is_ok()
            }
        };
        if !is_kept {
            *place = None;
            while self.clients.last().is_some_and(Option::is_none) {
                self.clients.pop();
            }
        }
    }

    fn expire(&mut self, now_ms: u64) {
        if self.paused_until_ms.is_some_and(|until_ms| now_ms >= until_ms) {
            self.paused_until_ms = None;
            if self.poller.add(&self.listener, LISTENER, Interest::READ).is_err() {
                self.paused_until_ms = Some(now_ms + PAUSE_MS);
            }
        }
        for place in &mut self.clients {
            let is_stalled = |client: &Client| {
                !client.waits_for_octets() && now_ms >= client.progress_ms + STALL_MS
            };
            if place.as_ref().is_some_and(is_stalled) {
                *place = None;
                self.common.counts.closed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
