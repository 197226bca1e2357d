//! Sockets to name servers: tokio's, with a port of our choice for tests, waits that end in time, and counters.
//!
//! The library waits five seconds for a server before it asks the next one, as long as larder waits for the whole answer. So
//! no wait is longer here than [`Lines::new`] is told, and a zone with a dead server is found by its other one.

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
        Box::pin(async move { Ok(Packets { socket: UdpSocket::bind(local).await?, lines }) })
    }
}

/// A socket for packets.
pub struct Packets {
    socket: UdpSocket,
    lines: Arc<Lines>,
}

impl DnsUdpSocket for Packets {
    type Time = Waits;

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let received = DnsUdpSocket::poll_recv_from(&self.socket, cx, room);
        received.map_ok(|(length, from)| (length, self.lines.inward(from)))
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        octets: &[u8],
        server: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let sent = DnsUdpSocket::poll_send_to(&self.socket, cx, octets, self.lines.outward(server));
        if sent.is_ready() {
            self.lines.packets.fetch_add(1, Ordering::Relaxed);
        }
        sent
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
}
