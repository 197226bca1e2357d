//! The upstream of both servers: what `answer.rs` says, over UDP and TCP.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::answer::Asked;

/// How long a thread waits before it looks whether it is over.
const LOOK: Duration = Duration::from_millis(50);

/// How long a connection may be silent.
const IDLE: Duration = Duration::from_millis(500);

/// Attempts to find a port that is free for UDP and TCP.
const PORTS: usize = 64;

/// What was asked.
#[derive(Debug, Default)]
pub struct Counts {
    /// Questions over UDP.
    pub packets: AtomicU64,
    /// Questions over TCP.
    pub streams: AtomicU64,
}

/// A running upstream; ends when dropped.
pub struct Upstream {
    pub address: SocketAddr,
    pub counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Upstream {
    /// Starts it.
    pub fn start() -> Upstream {
        let (listener, socket) = bind();
        let address = socket.local_addr().expect("a bound socket has an address");
        let (counts, stop) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
        socket.set_read_timeout(Some(LOOK)).expect("a timeout");
        listener.set_nonblocking(true).expect("a listener that does not wait");
        let (udp_counts, udp_stop) = (counts.clone(), stop.clone());
        let udp = move || packets(&socket, &udp_counts, &udp_stop);
        let (tcp_counts, tcp_stop) = (counts.clone(), stop.clone());
        let tcp = move || connections(&listener, &tcp_counts, &tcp_stop);
        let threads = vec![std::thread::spawn(udp), std::thread::spawn(tcp)];
        Upstream { address, counts, stop, threads }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // What it panicked with was printed.
            drop(thread.join());
        }
    }
}

/// One port of both protocols.
fn bind() -> (TcpListener, UdpSocket) {
    for _ in 0..PORTS {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        if let Ok(socket) = UdpSocket::bind(address) {
            return (listener, socket);
        }
    }
    panic!("no port is free for both UDP and TCP");
}

fn packets(socket: &UdpSocket, counts: &Counts, stop: &AtomicBool) {
    let mut octets = [0; 4_096];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, peer)) = socket.recv_from(&mut octets) else { continue };
        let Some(asked) = Asked::read(&octets[..length]) else { continue };
        counts.packets.fetch_add(1, Ordering::Relaxed);
        let mut answer = asked.answer();
        if asked.is_truncated() || answer.len() > asked.udp_bytes_max() {
            answer = asked.truncated();
        }
        // Who cannot be reached asks again.
        drop(socket.send_to(&answer, peer));
    }
}

fn connections(listener: &TcpListener, counts: &Arc<Counts>, stop: &Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let counts = counts.clone();
                std::thread::spawn(move || drop(connection(stream, &counts)));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Answers until the other side ends or is silent for [`IDLE`].
fn connection(mut stream: TcpStream, counts: &Counts) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut message)?;
        let Some(asked) = Asked::read(&message) else { return Ok(()) };
        counts.streams.fetch_add(1, Ordering::Relaxed);
        let answer = asked.answer();
        stream.write_all(&[&(answer.len() as u16).to_be_bytes()[..], &answer].concat())?;
    }
}
