//! Sockets to name servers: tokio's, with a port of our choice for tests, waits that end in time, and counters.
//!
//! The library waits five seconds for a server before it asks the next one, as long as larder waits for the whole answer. So
//! no wait is longer here than [`Lines::new`] is told, and a zone with a dead server is found by its other one.
//!
//! Nor does the library ask the next server where one refuses, or says that it failed: it takes that for the answer. But
//! who does not serve a zone that was delegated to him (a lame server) says no more than one that is silent. So such an
//! answer is told as an error of the socket, after which the next is asked.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use hickory_resolver::net::runtime::{
    DnsUdpSocket, RuntimeProvider, Time, TokioHandle, TokioRuntimeProvider, TokioTime,
};
use tokio::net::UdpSocket;

use crate::PORT;

/// The longest wait, milliseconds: what the library calls has no place for it but one for all.
static WAIT_MS_MAX: AtomicU32 = AtomicU32::new(5_000);

/// What all sockets have in common.
#[derive(Debug)]
pub struct Lines {
    /// Stands in the place of [`PORT`].
    port: u16,
    packets: AtomicU64,
    connections: AtomicU64,
}

impl Lines {
    /// Servers have this port, and are waited for so long, milliseconds; the last that is said of waits counts for the
    /// process.
    pub fn new(port: u16, wait_ms: u32) -> Lines {
        WAIT_MS_MAX.store(wait_ms.max(1), Ordering::Relaxed);
        Lines { port, packets: AtomicU64::new(0), connections: AtomicU64::new(0) }
    }

    /// Packets sent, and connections begun.
    pub fn sent(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.connections.load(Ordering::Relaxed))
    }

    /// Where a server really is; and which server that is.
    fn outward(&self, mut server: SocketAddr) -> SocketAddr {
        if server.port() == PORT {
            server.set_port(self.port);
        }
        server
    }

    fn inward(&self, mut from: SocketAddr) -> SocketAddr {
        if from.port() == self.port {
            from.set_port(PORT);
        }
        from
    }
}

/// What the library makes sockets and waits with.
#[derive(Clone)]
pub struct Net {
    tokio: TokioRuntimeProvider,
    lines: Arc<Lines>,
}

impl Net {
    /// Sockets of these lines.
    pub fn new(lines: Arc<Lines>) -> Net {
        Net { tokio: TokioRuntimeProvider::new(), lines }
    }
}

impl RuntimeProvider for Net {
    type Handle = TokioHandle;
    type Timer = Waits;
    type Udp = Packets;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> TokioHandle {
        self.tokio.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        wait: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Self::Tcp>>>> {
        self.lines.connections.fetch_add(1, Ordering::Relaxed);
        self.tokio.connect_tcp(self.lines.outward(server), local, wait.map(shortened))
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        _server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = io::Result<Packets>>>> {
        let lines = self.lines.clone();
        Box::pin(async move {
            let socket = UdpSocket::bind(local).await?;
            Ok(Packets { socket, lines, asked: AtomicU32::new(NOTHING_ASKED) })
        })
    }
}

/// No ID: those have sixteen bits.
const NOTHING_ASKED: u32 = u32::MAX;

/// A socket for packets: the library has one for each question.
pub struct Packets {
    socket: UdpSocket,
    lines: Arc<Lines>,
    /// The ID that was sent last.
    asked: AtomicU32,
}

impl DnsUdpSocket for Packets {
    type Time = Waits;

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let received = DnsUdpSocket::poll_recv_from(&self.socket, cx, room);
        received.map(|received| {
            let (length, from) = received?;
            let asked = self.asked.load(Ordering::Relaxed);
            if room.get(..length).is_some_and(|message| declines(message, asked)) {
                return Err(io::Error::other("the server does not serve this"));
            }
            Ok((length, self.lines.inward(from)))
        })
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        octets: &[u8],
        server: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let sent = DnsUdpSocket::poll_send_to(&self.socket, cx, octets, self.lines.outward(server));
        if sent.is_ready() {
            let id = octets.first_chunk().map(|id| u16::from_be_bytes(*id));
            self.asked.store(id.map_or(NOTHING_ASKED, u32::from), Ordering::Relaxed);
            self.lines.packets.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }
}

/// True for a response with the ID that was asked by, and a code that says nothing of the question: SERVFAIL, NOTIMP or
/// REFUSED. Who forges one must guess port and ID, as for any answer.
fn declines(message: &[u8], asked: u32) -> bool {
    match message {
        [id0, id1, high, low, ..] => {
            u32::from(u16::from_be_bytes([*id0, *id1])) == asked
                && high & 0x80 != 0
                && matches!(low & 15, 2 | 4 | 5)
        }
        _ => false,
    }
}

/// Waits that end in time.
#[derive(Debug, Clone, Copy)]
pub struct Waits;

fn shortened(wait: Duration) -> Duration {
    wait.min(Duration::from_millis(WAIT_MS_MAX.load(Ordering::Relaxed).into()))
}

#[async_trait]
impl Time for Waits {
    async fn delay_for(wait: Duration) {
        TokioTime::delay_for(wait).await;
    }

    async fn timeout<F: 'static + Future + Send>(wait: Duration, it: F) -> io::Result<F::Output> {
        TokioTime::timeout(shortened(wait), it).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library's servers at port 53 are at ours, there and back; other ports are as they are.
    #[test]
    fn ports_are_exchanged() {
        let lines = Lines::new(5_300, 1_500);
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!((lines.outward(at(53)), lines.inward(at(5_300))), (at(5_300), at(53)));
        assert_eq!((lines.outward(at(853)), lines.inward(at(99))), (at(853), at(99)));
    }

    /// Only a response with the right ID declines, and only by a code that says nothing of the question.
    #[test]
    fn who_declines() {
        assert!(declines(&[1, 2, 0x84, 5], 0x0102) && declines(&[1, 2, 0x80, 0x82, 0], 0x0102));
        let others: [&[u8]; 5] =
            [&[1, 3, 0x80, 5], &[1, 2, 0, 5], &[1, 2, 0x80, 3], &[1, 2, 0x80, 0], &[1, 2, 0x80]];
        assert!(others.iter().all(|message| !declines(message, 0x0102)));
        assert!(!declines(&[0xff, 0xff, 0x80, 5], NOTHING_ASKED));
    }
}
