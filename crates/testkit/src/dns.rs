//! DNS messages byte by byte, clients, and servers that respond by a closure.
//!
//! This module lays out messages by hand, and uses neither larder nor a library: tests compare
//! those with one another.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::wait::PATIENCE;

/// The record type of an IPv4 address.
pub const A: u16 = 1;

/// A name in wire format, from labels separated by dots.
pub fn wire_name(name: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.as_ref().split(|&byte| byte == b'.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).expect("a label"));
        out.extend_from_slice(label);
    }
    out.push(0);
    out
}

/// A message's header with these flags and record counts.
pub fn head(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    [id, flags].into_iter().chain(counts).flat_map(u16::to_be_bytes).collect()
}

/// A query of class IN with RD.
pub fn query(id: u16, name: impl AsRef<[u8]>, rtype: u16) -> Vec<u8> {
    let end = [rtype, 1].map(u16::to_be_bytes).concat();
    [head(id, 0x0100, [1, 0, 0, 0]), wire_name(name), end].concat()
}

/// Like [`query`], with an OPT record with these options.
pub fn query_with(id: u16, name: impl AsRef<[u8]>, rtype: u16, options: &[u8]) -> Vec<u8> {
    let mut query = query(id, name, rtype);
    query[11] = 1;
    query.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0");
    query.extend_from_slice(&(options.len() as u16).to_be_bytes());
    query.extend_from_slice(options);
    query
}

/// The end of a message's question; `None` if there is none.
pub fn question_end(message: &[u8]) -> Option<usize> {
    let mut at = 12;
    while *message.get(at)? > 0 {
        at += 1 + usize::from(message[at]);
    }
    (at + 5 <= message.len()).then_some(at + 5)
}

/// The response to a query, with one record for each of these addresses. It has no OPT record.
pub fn answer(query: &[u8], addresses: &[[u8; 4]], ttl_s: u32) -> Vec<u8> {
    let end = question_end(query).expect("a question");
    let id = u16::from_be_bytes([query[0], query[1]]);
    let mut answer = head(id, 0x8180, [1, addresses.len() as u16, 0, 0]);
    answer.extend_from_slice(&query[12..end]);
    for address in addresses {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        answer.extend_from_slice(&ttl_s.to_be_bytes());
        answer.extend_from_slice(&[0, 4]);
        answer.extend_from_slice(address);
    }
    answer
}

/// A message with its length before it, as over TCP.
pub fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// The next message of a stream, without its length.
pub fn read_framed(stream: &mut (impl Read + ?Sized)) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// A UDP socket connected to a server. A read times out after one second.
pub fn client(server: SocketAddr) -> UdpSocket {
    let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let client = UdpSocket::bind((any, 0)).expect("a socket");
    client.connect(server).expect("an address");
    client.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
    client
}

/// Sends a query over UDP from a new port, and repeats it every second, as clients do.
pub fn exchange(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let client = client(server);
    let mut room = [0; 4_096];
    for _ in 0..PATIENCE.as_secs() {
        client.send(query).expect("sent");
        if let Ok(length) = client.recv(&mut room) {
            return room[..length].to_vec();
        }
    }
    panic!("no answer of {server} to {}", query.escape_ascii());
}

/// Sends a query over a TCP connection of its own.
pub fn exchange_tcp(server: SocketAddr, query: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    stream.write_all(&framed(query)).expect("sent");
    read_framed(&mut stream).expect("an answer")
}

/// The most attempts to find a port that is free for UDP and TCP.
const PORTS: usize = 64;

/// A UDP socket and a TCP listener at the same port of the loopback.
pub fn bind_both() -> (UdpSocket, TcpListener) {
    let draw = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback");
        Some((UdpSocket::bind(listener.local_addr().expect("bound")).ok()?, listener))
    };
    (0..PORTS).find_map(|_| draw()).expect("a port that is free for both UDP and TCP")
}

/// The transport of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// The response to a message.
type Rule = dyn Fn(&[u8], Transport) -> Option<Vec<u8>> + Send + Sync;

/// A server on the loopback, over UDP and TCP, that responds by a closure; it ends when dropped.
#[derive(Debug)]
pub struct Server {
    /// The address at which it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    queries: AtomicU64,
    ends: AtomicBool,
}

impl Server {
    /// Starts a server. It sends no response to a query for which `answer` returns `None`.
    pub fn start(
        answer: impl Fn(&[u8], Transport) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Server {
        let (socket, listener) = bind_both();
        let address = listener.local_addr().expect("bound");
        let (shared, rule): (_, Arc<Rule>) = (Arc::new(Shared::default()), Arc::new(answer));
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
        let (of_packets, of_streams) = ((shared.clone(), rule.clone()), (shared.clone(), rule));
        let threads = vec![
            thread::spawn(move || packets(&socket, &of_packets.0, &*of_packets.1)),
            thread::spawn(move || streams(&listener, &of_streams.0, &of_streams.1)),
        ];
        Server { address, shared, threads }
    }

    /// Starts a server that gives each name this address, with a TTL of one hour.
    pub fn of_address(address: [u8; 4]) -> Server {
        Server::start(move |query, _| Some(answer(query, &[address], 3_600)))
    }

    /// The number of queries so far.
    pub fn queries(&self) -> u64 {
        self.shared.queries.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // One more connection wakes the listener.
        let _ = TcpStream::connect(self.address);
        for thread in self.threads.drain(..) {
            // The panic was printed already.
            drop(thread.join());
        }
    }
}

fn packets(socket: &UdpSocket, shared: &Shared, rule: &Rule) {
    let mut room = [0; 4_096];
    while !shared.ends.load(Ordering::Relaxed) {
        let Ok((length, peer)) = socket.recv_from(&mut room) else { continue };
        shared.queries.fetch_add(1, Ordering::Relaxed);
        if let Some(answer) = rule(&room[..length], Transport::Udp) {
            // A client that cannot be reached repeats its query.
            drop(socket.send_to(&answer, peer));
        }
    }
}

fn streams(listener: &TcpListener, shared: &Arc<Shared>, rule: &Arc<Rule>) {
    for stream in listener.incoming().flatten() {
        if shared.ends.load(Ordering::Relaxed) {
            return;
        }
        let (shared, rule) = (shared.clone(), rule.clone());
        // The thread ends with the connection.
        thread::spawn(move || drop(stream_of(stream, &shared, &*rule)));
    }
}

fn stream_of(mut stream: TcpStream, shared: &Shared, rule: &Rule) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    loop {
        let query = read_framed(&mut stream)?;
        shared.queries.fetch_add(1, Ordering::Relaxed);
        let Some(answer) = rule(&query, Transport::Tcp) else { return Ok(()) };
        stream.write_all(&framed(&answer))?;
    }
}
