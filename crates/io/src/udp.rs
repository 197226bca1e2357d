//! UDP for servers and clients: sockets, and batches of messages.
//!
//! | what | for |
//! |---|---|
//! | [`UdpSocket::bind`] | a server's socket: shared by cores, responds from the address of the query |
//! | [`UdpSocket::connect`] | an upstream's socket: an unpredictable port, ICMP errors visible |
//! | [`RecvBatch`] | many messages received by one system call |
//! | [`SendBatch`] | many messages sent by one system call, also if some of them fail |
//!
//! Linux has such calls (`system`); elsewhere each message is a system call (`portable`), and of
//! sockets that share an address perhaps only one receives.
//!
//! All sockets are non-blocking. An IPv6 socket receives no IPv4: a server for both binds two, and
//! no address appears in two forms.
//!
//! A server bound to the wildcard address must respond from the address that the query came to, or
//! the client drops the response. The kernel reports that address with each message (`IP_PKTINFO`,
//! RFC 3542), a [`Route`] stores it with the peer's address, and a response sent along the route
//! has it as its source. A socket bound to one address does not need this.

mod batch;
mod options;
#[cfg_attr(any(feature = "portable", not(target_os = "linux")), path = "udp/portable.rs")]
mod system;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::random::Random;
use crate::socket::{bind, expect_kind, get_int, open};

pub use crate::socket::Sharing;
pub use batch::{MESSAGES_MAX, Message, RecvBatch, SendBatch, Sent};
pub use options::{Fragments, Ports, UdpOptions};

/// Ports tried before [`UdpSocket::connect`] fails.
const PORT_TRIES: usize = 64;

/// A UDP socket. It is used through `&self`, by one thread at a time to keep responses apart.
#[derive(Debug)]
pub struct UdpSocket {
    socket: std::net::UdpSocket,
    /// Whether the kernel reports the destination of each message.
    reports_local: bool,
}

/// The source and destination of a message; a response is sent along it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Route {
    /// The sender.
    pub peer: SocketAddr,
    /// Our end; `None` if the socket has only one address.
    pub local: Option<Local>,
}

/// Our end of a [`Route`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Local {
    /// The destination address of the message; for IPv4 broadcasts the address to respond from.
    pub address: IpAddr,
    /// The interface that received it.
    pub interface: u32,
}

impl UdpSocket {
    /// A server's socket at `address`. If that is the wildcard address, each message has its
    /// destination address.
    pub fn bind(address: SocketAddr, options: &UdpOptions) -> io::Result<UdpSocket> {
        let socket = open(&address, libc::SOCK_DGRAM)?;
        options.sharing.before_bind(&socket)?;
        let reports_local = address.ip().is_unspecified();
        system::apply(&socket, address.is_ipv4(), reports_local, options)?;
        bind(&socket, &address)?;
        options.sharing.after_bind(&socket)?;
        Ok(UdpSocket { socket: socket.into(), reports_local })
    }

    /// An inherited bound socket (socket activation). Fails with `InvalidInput` for any other
    /// descriptor.
    pub fn from_fd(fd: OwnedFd, options: &UdpOptions) -> io::Result<UdpSocket> {
        expect_kind(&fd, libc::SOCK_DGRAM, "UDP")?;
        let socket = std::net::UdpSocket::from(fd);
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let reports_local = address.ip().is_unspecified();
        system::apply(&socket, address.is_ipv4(), reports_local, options)?;
        Ok(UdpSocket { socket, reports_local })
    }

    /// A socket that exchanges messages with `peer` only, from a port of `ports` drawn at random
    /// (RFC 5452, section 9.2), and from `local` where the kernel is not to choose the address.
    ///
    /// The kernel drops what other hosts send to it, and reports when the peer's host refuses: a
    /// send or a receive then fails once with `ConnectionRefused`. Fails with `AddrInUse` if dozens
    /// of random ports were in use. `options.sharing` is ignored: the port is this socket's alone.
    pub fn connect(
        peer: SocketAddr,
        local: Option<IpAddr>,
        ports: Ports,
        random: &mut Random,
        options: &UdpOptions,
    ) -> io::Result<UdpSocket> {
        let wildcard: IpAddr = match peer {
            SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        let address = local.unwrap_or(wildcard);
        let socket = open(&peer, libc::SOCK_DGRAM)?;
        system::apply(&socket, peer.is_ipv4(), false, options)?;
        let mut tries = 0;
        loop {
            tries += 1;
            match bind(&socket, &SocketAddr::new(address, ports.draw(random)?)) {
                // 13: ports below 1,024, which this process may not use, may be in the range.
                Err(error)
                    if tries < PORT_TRIES
                        && matches!(
                            error.kind(),
                            io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
                        ) => {}
                result => break result?,
            }
        }
        let socket = std::net::UdpSocket::from(socket);
        socket.connect(peer)?;
        Ok(UdpSocket { socket, reports_local: false })
    }

    /// Our address.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The socket as the standard library has it: for single messages, which one plain `send` or
    /// `recv` carries cheaper than a batch of one.
    pub fn as_std(&self) -> &std::net::UdpSocket {
        &self.socket
    }

    /// Messages that the kernel has dropped since the socket was made, because they were not
    /// received fast enough; wraps after 2^32. One system call, for the caller to make when the
    /// number is needed: reported with each message (`SO_RXQ_OVFL`) it would cost on each, and be
    /// silent just when no message arrives any more. Only Linux counts for each socket: elsewhere
    /// the error is `Unsupported`.
    pub fn drops(&self) -> io::Result<u32> {
        system::drops(&self.socket)
    }

    /// Bytes of receive and send buffer that the kernel grants, as it counts them: twice the
    /// request (socket(7)), or less if `net.core.rmem_max` and `wmem_max` are lower.
    pub fn buffer_bytes(&self) -> io::Result<(usize, usize)> {
        let read = |name| get_int(&self.socket, libc::SOL_SOCKET, name);
        Ok((read(libc::SO_RCVBUF)? as usize, read(libc::SO_SNDBUF)? as usize))
    }

    /// Steers each message to the socket of the core that its packet was handled on: for sockets
    /// that share an address, where the i-th that was bound belongs to a thread on `cores[i]`.
    /// Packets handled on other cores are spread by the core's number. Called once, on any of the
    /// sockets, after all are bound. Needs Linux.
    ///
    /// On an error the kernel continues as before: it spreads by a hash of addresses and ports,
    /// which is correct, and even when clients are many, but moves packets between cores.
    pub fn steer_by_core(&self, cores: &[usize]) -> io::Result<()> {
        system::steer_by_core(&self.socket, cores).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "the kernel does not steer messages by core ({error}); it spreads them by \
                     address and port instead"
                ),
            )
        })
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
