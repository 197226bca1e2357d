//! UDP sockets to one upstream.
//!
//! ```text
//! active   sends queries, until it has sent QUESTIONS_MAX or is a minute old
//! aside    sends nothing, responses may still arrive; closed after LINGER_MS
//! ```
//!
//! To forge a response, an attacker must guess the ID and the port (RFC 5452). There are up to
//! [`ACTIVE_MAX`] active sockets, each at a random port and for a short time. Each turn of the
//! event loop draws one of them for its queries. Resolvers often use a port for each query, but
//! that would cost more than one system call for each query. Instead, guesses are noticed: after
//! some packets that match no query the socket is closed, and its queries are repeated over TCP
//! ([`Core::suspect_socket`](crate::core::Core::suspect_socket)).
//!
//! A socket has a number that no other socket of its core ever has, so a late packet matches no
//! later socket.
//!
//! Bounds: [`ACTIVE_MAX`] active sockets, and as many set aside; the oldest set aside is closed
//! first.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use larder_io::epoll::{Interest, Poller, Watched};
use larder_io::random::Random;
use larder_io::udp::{Ports, SendBatch, UdpOptions, UdpSocket};

use crate::core_tap::UpstreamMessage;
use crate::dnstap::Protocol;

/// Active sockets of an upstream, at most.
pub const ACTIVE_MAX: usize = 16;

/// Queries sent by one socket.
const QUERIES_MAX: u32 = 2_000;

/// How long a socket is active, milliseconds.
const ACTIVE_MS: u64 = 60_000;

/// How long responses are accepted after the last query, milliseconds.
const LINGER_MS: u64 = 10_000;

/// Packets to a socket that match no query, after which an attacker is assumed to guess. Late
/// responses count too.
const STRAYS_MAX: u32 = 64;

/// Messages sent together by default, and bytes of room for each.
const BATCH: usize = 64;
const MESSAGE_BYTES: usize = 320;

/// The source of queries: options of sockets to upstreams.
#[derive(Debug, Clone)]
pub struct QuerySource {
    /// Addresses to send from; the kernel chooses if none is of the upstream's family.
    pub addresses: Vec<IpAddr>,
    /// Ports to send from.
    pub ports: Ports,
    /// Options such as buffer sizes.
    pub options: UdpOptions,
}

impl QuerySource {
    /// The address to send from to an upstream.
    pub fn address_for(&self, upstream: SocketAddr) -> Option<IpAddr> {
        let is_family = |local: &&IpAddr| local.is_ipv4() == upstream.is_ipv4();
        self.addresses.iter().find(is_family).copied()
    }
}

impl Default for QuerySource {
    fn default() -> QuerySource {
        QuerySource {
            addresses: Vec::new(),
            ports: Ports::UNPRIVILEGED,
            options: UdpOptions { receive_buffer_bytes: Some(1 << 20), ..UdpOptions::default() },
        }
    }
}

#[derive(Debug)]
struct Socket {
    socket: Watched<UdpSocket>,
    number: u32,
    opened_ms: u64,
    queries: u32,
    strays: u32,
}

/// The sockets of one upstream.
pub struct UpstreamUdp {
    address: SocketAddr,
    /// First token of its sockets.
    token: u64,
    active: [Option<Socket>; ACTIVE_MAX],
    aside: VecDeque<(u64, Socket)>,
    /// The active socket of this turn.
    current: Option<usize>,
    outgoing: SendBatch,
    refused: u64,
}

impl UpstreamUdp {
    /// Without sockets: they are opened when needed. `token` has zeros in its lower 32 bits.
    pub fn new(address: SocketAddr, token: u64) -> UpstreamUdp {
        UpstreamUdp::of_batches(address, token, BATCH)
    }

    /// Like [`UpstreamUdp::new`], with batches of `messages` messages, allocated at once.
    pub fn of_batches(address: SocketAddr, token: u64, messages: usize) -> UpstreamUdp {
        UpstreamUdp {
            address,
            token,
            active: [const { None }; ACTIVE_MAX],
            aside: VecDeque::new(),
            current: None,
            outgoing: SendBatch::new(messages, MESSAGE_BYTES),
            refused: 0,
        }
    }

    /// The upstream.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Messages that the kernel did not take.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Queues the query that `write` makes, for the socket of this turn. `write` receives the
    /// socket's number and the room. Returns the number.
    pub fn query(
        &mut self,
        now_ms: u64,
        origin: &QuerySource,
        numbers: &mut u32,
        random: &mut Random,
        poller: &Poller,
        write: impl FnOnce(u32, &mut [u8]) -> Option<usize>,
    ) -> io::Result<u32> {
        let at = match self.current {
            Some(at) => at,
            None => self.choose(now_ms, origin, numbers, random, poller)?,
        };
        if self.outgoing.len() == self.outgoing.capacity() {
            self.flush();
        }
        self.current = Some(at);
        let Some(socket) = &mut self.active[at] else { return Err(io::ErrorKind::NotFound.into()) };
        let written = self.outgoing.slot().and_then(|room| write(socket.number, room));
        let Some(length) = written else { return Err(io::ErrorKind::WouldBlock.into()) };
        self.outgoing.commit(length, None);
        socket.queries += 1;
        Ok(socket.number)
    }

    /// Draws the socket of this turn, and opens it if necessary.
    fn choose(
        &mut self,
        now_ms: u64,
        origin: &QuerySource,
        numbers: &mut u32,
        random: &mut Random,
        poller: &Poller,
    ) -> io::Result<usize> {
        let at = random.below(ACTIVE_MAX as u32)? as usize;
        let is_worn = self.active[at].as_ref().is_some_and(|socket| {
            socket.queries >= QUERIES_MAX || now_ms >= socket.opened_ms + ACTIVE_MS
        });
        if is_worn {
            self.set_aside(at, now_ms);
        }
        if self.active[at].is_none() {
            let local = origin.address_for(self.address);
            let socket =
                UdpSocket::connect(self.address, local, origin.ports, random, &origin.options)?;
            *numbers = numbers.wrapping_add(1);
            poller.add(socket.as_std(), self.token | u64::from(*numbers), Interest::READ)?;
            self.active[at] = Some(Socket {
                socket: Watched::new(socket),
                number: *numbers,
                opened_ms: now_ms,
                queries: 0,
                strays: 0,
            });
        }
        Ok(at)
    }

    fn set_aside(&mut self, at: usize, now_ms: u64) {
        if let Some(socket) = self.active[at].take() {
            if self.aside.len() == ACTIVE_MAX {
                self.aside.pop_front();
            }
            self.aside.push_back((now_ms + LINGER_MS, socket));
        }
    }

    /// Sends the queued messages; the next query draws a socket again. Messages for which the
    /// kernel has no room are dropped, and their queries time out.
    pub fn flush(&mut self) {
        let Some(socket) = self.current.take().and_then(|at| self.active[at].as_ref()) else {
            return;
        };
        let sent = self.outgoing.send(&socket.socket);
        self.refused += sent.failed as u64 + self.outgoing.len() as u64;
        self.outgoing.clear();
    }

    /// The socket of this number, if it is still open.
    pub fn socket(&self, number: u32) -> Option<&UdpSocket> {
        let active = self.active.iter().flatten();
        let mut all = active.chain(self.aside.iter().map(|(_, socket)| socket));
        all.find(|socket| socket.number == number).map(|socket| &*socket.socket)
    }

    /// A message that was sent or received by a socket.
    pub fn message<'a>(&self, number: u32, message: &'a [u8]) -> UpstreamMessage<'a> {
        let local = self.socket(number).and_then(|socket| socket.local_address().ok());
        UpstreamMessage { protocol: Protocol::Udp, local, upstream: self.address, message }
    }

    /// Counts a packet that matches no query. True if these were too many: the socket is closed,
    /// and its queries are to be repeated over TCP. Sockets that were set aside count too:
    /// responses may still arrive there, and so may guesses.
    pub fn stray(&mut self, number: u32) -> bool {
        let aside = self.aside.iter_mut().position(|(_, socket)| {
            let is_meant = socket.number == number;
            socket.strays += u32::from(is_meant);
            is_meant && socket.strays >= STRAYS_MAX
        });
        if let Some(at) = aside {
            self.aside.remove(at);
            return true;
        }
        for place in &mut self.active {
            if let Some(socket) = place.as_mut().filter(|socket| socket.number == number) {
                socket.strays += 1;
                if socket.strays < STRAYS_MAX {
                    return false;
                }
                *place = None;
                if self.current.is_some_and(|at| self.active[at].is_none()) {
                    self.current = None;
                    self.outgoing.clear();
                }
                return true;
            }
        }
        false
    }

    /// Closes sockets that were set aside long enough ago.
    pub fn tick(&mut self, now_ms: u64) {
        while self.aside.front().is_some_and(|(until_ms, _)| now_ms >= *until_ms) {
            self.aside.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guesses are counted at active sockets and at sockets set aside. After STRAYS_MAX guesses the
    /// socket is closed, once.
    #[test]
    fn guesses_close_a_socket() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (poller, mut random) = (Poller::new().unwrap(), Random::new());
        let mut pool = UpstreamUdp::new(server.local_addr().unwrap(), 0);
        let mut numbers = 0;
        for is_aside in [false, true] {
            let sent = pool.query(
                1,
                &QuerySource::default(),
                &mut numbers,
                &mut random,
                &poller,
                |_, _| Some(12),
            );
            let number = sent.unwrap();
            pool.flush();
            if is_aside {
                (0..ACTIVE_MAX).for_each(|at| pool.set_aside(at, 1));
            }
            assert!((1..STRAYS_MAX).all(|_| !pool.stray(number)) && pool.socket(number).is_some());
            assert!(pool.stray(number) && pool.socket(number).is_none(), "aside: {is_aside}");
            assert!(!pool.stray(number));
        }
    }
}
