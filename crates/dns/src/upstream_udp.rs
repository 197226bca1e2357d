//! UDP sockets to one upstream.
//!
//! ```text
//! active   questions go out by it, until it has sent QUESTIONS_MAX or is a minute old
//! aside    nothing goes out, answers may still come; closed after LINGER_MS
//! ```
//!
//! Who wants to forge an answer must guess the ID and the port (RFC 5452). There are up to
//! [`ACTIVE_MAX`] active sockets, each at a random port, and none for long; which of them the
//! questions of a turn of the loop go out by is drawn anew each turn. One port a question, as
//! resolvers have it, would be a system call a question and more; what is lost in ports to guess is
//! made up for by noticing guesses: after a few packets that fit nothing the socket is given up,
//! and its questions are asked by a stream ([`Core::suspect`](crate::core::Core::suspect)).
//!
//! A socket has a number that no other of its core ever has: what came late for one that is closed
//! is nobody's.
//!
//! Bounds: [`ACTIVE_MAX`] active sockets and as many aside; the oldest of those is closed first.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use larder_io::epoll::{Interest, Poller};
use larder_io::random::Random;
use larder_io::udp::{Ports, SendBatch, UdpOptions, UdpSocket};

use crate::core_tap::UpstreamMessage;
use crate::dnstap::Protocol;

/// Active sockets of an upstream, at most.
pub const ACTIVE_MAX: usize = 16;

/// Questions sent by one socket.
const QUESTIONS_MAX: u32 = 2_000;

/// How long a socket is active, milliseconds.
const ACTIVE_MS: u64 = 60_000;

/// How long answers are waited for after the last question, milliseconds.
const LINGER_MS: u64 = 10_000;

/// Packets to a socket that fit no question, after which somebody is taken to guess. Late answers
/// are among them.
const STRAYS_MAX: u32 = 64;

/// Messages that go out together, unless told otherwise, and room for each.
const BATCH: usize = 64;
const MESSAGE_BYTES: usize = 320;

/// How sockets are made: what all of a core's have in common.
#[derive(Debug, Clone)]
pub struct QuerySource {
    /// The address to send from; the kernel's choice where there is none of the upstream's family.
    pub addresses: Vec<IpAddr>,
    /// The ports to send from.
    pub ports: Ports,
    /// Buffers and the like.
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
    socket: UdpSocket,
    number: u32,
    opened_ms: u64,
    asked: u32,
    strays: u32,
}

/// The sockets of one upstream.
pub struct UpstreamUdp {
    address: SocketAddr,
    /// What the tokens of its sockets begin with.
    token: u64,
    active: [Option<Socket>; ACTIVE_MAX],
    aside: VecDeque<(u64, Socket)>,
    /// Which of the active ones is sent by, this turn.
    current: Option<usize>,
    outgoing: SendBatch,
    refused: u64,
}

impl UpstreamUdp {
    /// Without sockets: they are opened as they are needed. `token` has zeros in its lower 32 bits.
    pub fn new(address: SocketAddr, token: u64) -> UpstreamUdp {
        UpstreamUdp::of_batches(address, token, BATCH)
    }

    /// As [`UpstreamUdp::new`]; so many messages go out together, for which there is room at once.
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

    /// Queues the message that `write` makes, which is given its socket's number and room, by the
    /// socket of this turn; the number is returned.
    pub fn ask(
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
        socket.asked += 1;
        Ok(socket.number)
    }

    /// Draws a place and sees to it that a socket is there that may be sent by.
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
            socket.asked >= QUESTIONS_MAX || now_ms >= socket.opened_ms + ACTIVE_MS
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
            self.active[at] =
                Some(Socket { socket, number: *numbers, opened_ms: now_ms, asked: 0, strays: 0 });
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

    /// Sends what is queued, and lets the next question draw a socket anew. What the kernel has no
    /// room for is dropped: it is asked again in time.
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
        all.find(|socket| socket.number == number).map(|socket| &socket.socket)
    }

    /// A message that went or came by the socket of this number, for whoever is told of it.
    pub fn exchange<'a>(&self, number: u32, message: &'a [u8]) -> UpstreamMessage<'a> {
        let local = self.socket(number).and_then(|socket| socket.local_address().ok());
        UpstreamMessage { protocol: Protocol::Udp, local, upstream: self.address, message }
    }

    /// A packet came by a socket and fits nothing. True where these were too many: the socket is
    /// closed, and what was asked by it is to be asked another way. A socket that was set aside is
    /// counted for too: answers may still come by it, and so may guesses.
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

    /// Closes what was set aside and is waited for no longer.
    pub fn tick(&mut self, now_ms: u64) {
        while self.aside.front().is_some_and(|(until_ms, _)| now_ms >= *until_ms) {
            self.aside.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guesses are counted at a socket that is asked by and at one that was set aside: after so
    /// many it is closed, once.
    #[test]
    fn guesses_close_a_socket() {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (poller, mut random) = (Poller::new().unwrap(), Random::new());
        let mut pool = UpstreamUdp::new(server.local_addr().unwrap(), 0);
        let mut numbers = 0;
        for is_aside in [false, true] {
            let asked =
                pool.ask(1, &QuerySource::default(), &mut numbers, &mut random, &poller, |_, _| {
                    Some(12)
                });
            let number = asked.unwrap();
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
