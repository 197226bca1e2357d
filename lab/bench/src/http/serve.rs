//! A server on one thread, for the origin and for the limits: it waits, reads requests, and lets its user decide
//! what is answered and how it is sent.
//!
//! It is not `larder_serve::http_server`, because nothing here may be slower than what is measured: a request is known
//! by its end and not parsed, one receive reads it, and an answer may wait for a time of its own.
//!
//! life of a connection   what it waits for            leaves by
//! asking                 the rest of a request        the request is whole
//! answering              room in the socket, a time   all is sent: asking; an error, the end: closed
//!
//! Invariants
//! 1. A token is the place of a connection in `peers` and its generation; an event of a connection that is closed
//!    finds none.
//! 2. One request is answered at a time: what comes in the meantime waits in the socket.
//!
//! Bounds: `REQUEST_BYTES_MAX` a connection. Cost of a request that fits: a receive and what the answer takes.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use larder_io::epoll::{Event, Events, Interest, Poller};
use larder_io::tcp::accept;

/// Longest request.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Longest sleep, for the flag that ends it.
const STOP_CHECK_MS: u64 = 10;
const LISTENER: u64 = u64::MAX;
const EVENTS_MAX: usize = 256;

/// Says what is answered.
pub trait Respond {
    /// An answer that is being sent.
    type Answer;

    /// The answer to the request that these bytes are; `None` where it is not whole.
    fn answer(&mut self, request: &[u8]) -> Option<Self::Answer>;

    /// Sends as much as there is room for.
    fn send(&mut self, answer: &mut Self::Answer, stream: &TcpStream) -> io::Result<Sent>;
}

/// How far an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// All of it.
    All,
    /// Until there is room again.
    Full,
    /// Until a time.
    Until(Instant),
}

struct Peer<A> {
    stream: TcpStream,
    generation: u32,
    request: Vec<u8>,
    answer: Option<A>,
    watched: Interest,
}

struct Server<'a, R: Respond> {
    respond: &'a mut R,
    poller: Poller,
    peers: Vec<Option<Peer<R::Answer>>>,
    /// Places in `peers` that are empty.
    free: Vec<usize>,
    generation: u32,
    /// Answers that wait for a time.
    later: Vec<(Instant, u64)>,
    room: Box<[u8]>,
}

/// Serves until it is stopped.
pub fn serve(
    listener: &TcpListener,
    respond: &mut impl Respond,
    stop: &AtomicBool,
) -> io::Result<()> {
    let poller = Poller::new()?;
    poller.add(listener, LISTENER, Interest::READ)?;
    let room = vec![0; REQUEST_BYTES_MAX].into_boxed_slice();
    let (peers, free, later) = (Vec::new(), Vec::new(), Vec::new());
    let mut server = Server { respond, poller, peers, free, generation: 0, later, room };
    let mut events = Events::new(EVENTS_MAX);
    while !stop.load(Ordering::Relaxed) {
        server.poller.wait(&mut events, Some(server.wait_ms()))?;
        for event in events.iter() {
            match event.token {
                LISTENER => server.accept(listener)?,
                _ => server.go_on(event),
            }
        }
        server.what_is_due();
    }
    Ok(())
}

impl<R: Respond> Server<'_, R> {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        while let Some((stream, _)) = accept(listener)? {
            self.generation = self.generation.wrapping_add(1) & (u32::MAX >> 1);
            let place = self.free.pop().unwrap_or_else(|| {
                self.peers.push(None);
                self.peers.len() - 1
            });
            let generation = self.generation;
            self.poller.add(&stream, token(place, generation), Interest::READ)?;
            let (request, watched) = (Vec::new(), Interest::READ);
            self.peers[place] = Some(Peer { stream, generation, request, answer: None, watched });
        }
        Ok(())
    }

    /// Handles what happened to a connection.
    fn go_on(&mut self, event: Event) {
        let (place, generation) = (event.token as u32 as usize, (event.token >> 32) as u32);
        let peer = self.peers.get_mut(place).and_then(Option::as_mut);
        // Of another connection that has its place now (invariant 1).
        let Some(peer) = peer.filter(|peer| peer.generation == generation) else { return };
        if event.closed && peer.watched == Interest::NONE {
            return self.close(place);
        }
        // Nothing is read before the answer is written (invariant 2).
        let done = match peer.answer {
            None => peer.read(&mut *self.respond, &mut self.room),
            Some(_) => Ok(true),
        };
        let done = match done {
            Ok(true) => peer.write(&mut *self.respond),
            Ok(false) => Ok(Sent::All),
            Err(error) => Err(error),
        };
        let watched = match done {
            Ok(Sent::All) => Interest::READ,
            Ok(Sent::Full) => Interest::WRITE,
            Ok(Sent::Until(when)) => {
                self.later.push((when, event.token));
                Interest::NONE
            }
            Err(_) => return self.close(place),
        };
        if peer.watched != watched {
            peer.watched = watched;
            // Fails for a connection that is gone, of which an event comes.
            let _ = self.poller.modify(&peer.stream, event.token, watched);
        }
    }

    /// Closing a socket takes it out of the poller too.
    fn close(&mut self, place: usize) {
        self.peers[place] = None;
        self.free.push(place);
    }

    fn what_is_due(&mut self) {
        if self.later.is_empty() {
            return;
        }
        let now = Instant::now();
        let later = std::mem::take(&mut self.later);
        let (due, later) = later.into_iter().partition(|(when, _)| *when <= now);
        self.later = later;
        for (_, token) in due {
            self.go_on(Event { token, readable: false, writable: true, closed: false });
        }
    }

    fn wait_ms(&self) -> u64 {
        let Some(next) = self.later.iter().map(|(when, _)| *when).min() else {
            return STOP_CHECK_MS;
        };
        let left = next.saturating_duration_since(Instant::now()).as_micros() as u64;
        left.div_ceil(1000).min(STOP_CHECK_MS)
    }
}

impl<A> Peer<A> {
    /// Reads; whether there is an answer now. The end is an error.
    fn read(
        &mut self,
        respond: &mut impl Respond<Answer = A>,
        room: &mut [u8],
    ) -> io::Result<bool> {
        let length = match (&self.stream).read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        if self.request.is_empty() {
            self.answer = respond.answer(&room[..length]);
            if self.answer.is_none() {
                self.request.extend_from_slice(&room[..length]);
            }
        } else {
            self.request.extend_from_slice(&room[..length]);
            self.answer = respond.answer(&self.request);
        }
        if self.answer.is_some() {
            self.request.clear();
        } else if self.request.len() >= REQUEST_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(self.answer.is_some())
    }

    fn write(&mut self, respond: &mut impl Respond<Answer = A>) -> io::Result<Sent> {
        let Some(answer) = &mut self.answer else { return Ok(Sent::All) };
        let sent = respond.send(answer, &self.stream)?;
        if sent == Sent::All {
            self.answer = None;
        }
        Ok(sent)
    }
}

fn token(place: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | place as u64
}

/// Serves on a port of its own while `client` runs, which may panic.
#[cfg(test)]
pub fn while_serving<R: Respond + Send>(
    respond: &mut R,
    client: impl FnOnce(std::net::SocketAddr),
) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = larder_io::tcp::listen(any, &Default::default()).unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&listener, respond, &stop));
        let stops = Stop(&stop);
        client(address);
        drop(stops);
        serving.join().unwrap().unwrap();
    });
}
