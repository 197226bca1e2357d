//! TCP functions that the standard library lacks: options before `listen`, accepting without a
//! second system call, connecting without waiting. They return the library's own types. Module
//! `transfer` moves bytes straight from memory or a file to a socket, or from it to memory.
//!
//! Nothing blocks: every socket is non-blocking from the start. The caller limits connections,
//! since only it knows their cost.

#[cfg_attr(any(feature = "portable", not(target_os = "linux")), path = "tcp/portable.rs")]
mod system;
mod transfer;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::socket::{
    self, bind, check, connect as connect_socket, expect_kind, get_int, open, set_option,
};

pub use crate::socket::Sharing;
pub use system::send_file;
pub use transfer::{
    peer, read_into, reset_on_close, set_nodelay, shutdown_write, take_error, write, write_gathered,
};

/// Connections that ended before they were accepted, passed over in one call.
const ABORTED_MAX: usize = 64;

/// How to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Whether several sockets may listen on one address. The kernel spreads connections over them.
    pub sharing: Sharing,
    /// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
    pub backlog: u32,
    /// A connection is reported when its first bytes have arrived, or after about this many
    /// seconds. Spares a wake-up in protocols in which the client speaks first. 0: at once, as
    /// always on systems other than Linux.
    pub defer_accept_s: u32,
    /// Clients with a cookie may send bytes with their first packet (RFC 7413); at most this many
    /// wait. Such bytes may arrive twice: only for requests that may be repeated. 0: never, as
    /// always on systems other than Linux.
    pub fast_open: u32,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions { sharing: Sharing::Alone, backlog: 1024, defer_accept_s: 0, fast_open: 0 }
    }
}

/// Listens. Small writes of accepted connections are sent at once (TCP_NODELAY, which they
/// inherit). An address whose last connections still linger may be reused (SO_REUSEADDR); IPv6
/// sockets accept no IPv4.
pub fn listen(address: SocketAddr, options: &ListenOptions) -> io::Result<TcpListener> {
    let int = |value: u32| libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    let socket = open(&address, libc::SOCK_STREAM)?;
    set_option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1)?;
    options.sharing.before_bind(&socket)?;
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1)?;
    system::before_listen(&socket, int(options.defer_accept_s), int(options.fast_open))?;
    bind(&socket, &address)?;
    // SAFETY: takes integers only, one of which is a socket that is open.
    check(unsafe { libc::listen(socket.as_raw_fd(), int(options.backlog)) })?;
    // Only now: with SO_REUSEADDR the kernel lets two sockets bind to one address, and refuses the
    // second when it listens.
    options.sharing.after_bind(&socket)?;
    Ok(TcpListener::from(socket))
}

/// An inherited listening socket (socket activation), made non-blocking. Fails with `InvalidInput`
/// for any other descriptor.
pub fn listener_from_fd(fd: OwnedFd) -> io::Result<TcpListener> {
    expect_kind(&fd, libc::SOCK_STREAM, "TCP")?;
    if get_int(&fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? == 0 {
        let text = "the TCP socket handed over does not listen";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1)?;
    let listener = TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The next connection that waits, non-blocking, and its peer; `None` if there is none. Connections
/// that failed in the queue are skipped.
///
/// An error is a lack of descriptors or memory. The connection stays in the queue and the listener
/// stays ready, so an event loop must stop watching it for a while, or it spins.
pub fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    accept_from(listener)
}

/// Like [`accept`], for a listener with another owner.
pub(crate) fn accept_from(listener: &impl AsFd) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    for _ in 0..ABORTED_MAX {
        match socket::accept(listener) {
            Ok((fd, peer)) => {
                let stream = TcpStream::from(fd);
                // Always decodable; the system call is for listeners of other families.
                let peer = match peer.decode() {
                    Some(peer) => peer,
                    None => stream.peer_addr()?,
                };
                return Ok(Some((stream, peer)));
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    return Err(error);
                }
                // An invalid listener never becomes valid.
                Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EFAULT) => {
                    return Err(error);
                }
                // Interrupted, or an error of the connection before it was accepted: accept(2)
                // names ECONNABORTED, EPROTO, EPERM and the errors of the network.
                _ => {}
            },
        }
    }
    Ok(None)
}

/// How to connect.
#[derive(Debug, Clone, Default)]
pub struct ConnectOptions {
    /// The source address; `None`: the kernel chooses.
    pub local: Option<SocketAddr>,
    /// The first packet carries the first written bytes if the server gave us a cookie before (RFC
    /// 7413). Then [`connect`] only stores the address, and the write connects. Ignored on systems
    /// other than Linux.
    pub fast_open: bool,
}

/// Begins to connect. When the stream becomes writable, `take_error` returns `None` if it has
/// connected. Small writes are sent at once. Errors here are of this machine, or of a network that
/// the kernel knows to be unreachable.
pub fn connect(peer: SocketAddr, options: &ConnectOptions) -> io::Result<TcpStream> {
    let socket = open(&peer, libc::SOCK_STREAM)?;
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1)?;
    system::before_connect(&socket, options)?;
    if let Some(local) = &options.local {
        bind(&socket, local)?;
    }
    match connect_socket(&socket, &peer) {
        Ok(()) => {}
        // After an interrupt the kernel still connects.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {}
        Err(error) => return Err(error),
    }
    Ok(TcpStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{loopbacks, readable, stays_silent, writable};
    use std::io::{Read, Write};

    /// A connection is begun, accepted, and carries bytes both ways, on each family; nothing
    /// blocks on the way.
    #[test]
    fn there_and_back() {
        for address in loopbacks("tcp::there_and_back") {
            let listener = listen(address, &ListenOptions::default()).unwrap();
            let at = listener.local_addr().unwrap();
            assert!(accept(&listener).unwrap().is_none());
            let mut client = connect(at, &ConnectOptions::default()).unwrap();
            assert!(readable(&listener));
            let (mut server, peer) = accept(&listener).unwrap().unwrap();
            assert!(accept(&listener).unwrap().is_none());
            assert!(writable(&client));
            assert!(client.take_error().unwrap().is_none());
            assert_eq!(peer, client.local_addr().unwrap());
            assert!(server.nodelay().unwrap() && client.nodelay().unwrap());
            let mut byte = [0];
            assert_eq!(server.read(&mut byte).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            assert_eq!(client.read(&mut byte).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            client.write_all(b"?").unwrap();
            assert!(readable(&server));
            server.read_exact(&mut byte).unwrap();
            server.write_all(b"!").unwrap();
            assert!(readable(&client));
            client.read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"!");
        }
    }

    /// If no program listens, the stream becomes writable and has an error.
    #[test]
    fn refused_is_reported() {
        let closed = listen("127.0.0.77:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let address = closed.local_addr().unwrap();
        drop(closed);
        let options =
            ConnectOptions { local: Some("127.0.0.5:0".parse().unwrap()), ..Default::default() };
        match connect(address, &options) {
            Ok(stream) => {
                assert!(writable(&stream));
                let error = stream.take_error().unwrap().unwrap();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
        }
    }

    /// The client sends from the requested address.
    #[test]
    fn local_addresses_are_chosen() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let options =
            ConnectOptions { local: Some("127.0.0.5:0".parse().unwrap()), ..Default::default() };
        let _client = connect(listener.local_addr().unwrap(), &options).unwrap();
        assert!(readable(&listener));
        let (_, peer) = accept(&listener).unwrap().unwrap();
        assert_eq!(peer.ip().to_string(), "127.0.0.5");
    }

    /// A listener that takes an address first is refused if another has the address, also one that
    /// shares. Later ones that join are not.
    #[test]
    fn an_address_is_taken_once() {
        let of = |sharing| ListenOptions { sharing, ..Default::default() };
        for first in [Sharing::Alone, Sharing::First, Sharing::Join] {
            let one = listen("127.0.0.1:0".parse().unwrap(), &of(first)).unwrap();
            let at = one.local_addr().unwrap();
            for second in [Sharing::Alone, Sharing::First] {
                let error = listen(at, &of(second)).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{first:?} {second:?}");
            }
            assert_eq!(
                listen(at, &of(Sharing::Join)).is_ok(),
                first != Sharing::Alone,
                "{first:?}"
            );
        }
        // Of several threads that take an address at once, one gets it at most: the kernel may
        // refuse all.
        let released = listen("127.0.0.1:0".parse().unwrap(), &of(Sharing::Alone)).unwrap();
        let at = released.local_addr().unwrap();
        drop(released);
        let mut was_taken = false;
        for _ in 0..50 {
            let barrier = &std::sync::Barrier::new(4);
            let taken: Vec<_> = std::thread::scope(|scope| {
                let begin = || {
                    barrier.wait();
                    listen(at, &of(Sharing::First))
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let count = taken.iter().filter(|taken| taken.is_ok()).count();
            assert!(count <= 1, "{taken:?}");
            was_taken |= count == 1;
        }
        assert!(was_taken);
    }

    /// Listeners share an address when the first allows it, each connection reaches one of them,
    /// and deferred ones only with their first bytes.
    #[test]
    fn listeners_share() {
        let options = ListenOptions { sharing: Sharing::First, ..Default::default() };
        let one = listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let address = one.local_addr().unwrap();
        assert!(listen(address, &ListenOptions::default()).is_err());
        let options = ListenOptions { sharing: Sharing::Join, ..Default::default() };
        let two = listen(address, &options).unwrap();
        let clients: Vec<TcpStream> =
            (0..64).map(|_| connect(address, &ConnectOptions::default()).unwrap()).collect();
        assert!(clients.iter().all(writable));
        let mut counts = [0, 0];
        for _ in 0..1000 {
            for (listener, count) in [&one, &two].into_iter().zip(&mut counts) {
                while accept(listener).unwrap().is_some() {
                    *count += 1;
                }
            }
            if counts[0] + counts[1] == clients.len() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(counts[0] + counts[1], clients.len());
        // Each of 64 falls on one side with even odds: one side empty is 2^-63.
        assert!(counts[0] > 0 && counts[1] > 0, "{counts:?}");
    }

    /// With deferred accepting a silent client is not reported; its first byte is.
    #[test]
    #[cfg_attr(any(feature = "portable", not(target_os = "linux")), ignore = "needs Linux")]
    fn silent_clients_wait() {
        let options = ListenOptions { defer_accept_s: 30, ..Default::default() };
        let listener = listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let at = listener.local_addr().unwrap();
        let mut client = connect(at, &ConnectOptions::default()).unwrap();
        assert!(writable(&client));
        assert!(stays_silent(&listener));
        client.write_all(b"?").unwrap();
        assert!(readable(&listener));
        assert!(accept(&listener).unwrap().is_some());
    }

    /// Inherited sockets are accepted if they listen, and refused with a reason if not.
    #[test]
    fn handed_over() {
        let blocking = TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = listener_from_fd(OwnedFd::from(blocking)).unwrap();
        assert!(accept(&listener).unwrap().is_none());
        let client = connect(listener.local_addr().unwrap(), &ConnectOptions::default()).unwrap();
        let error = listener_from_fd(OwnedFd::from(client)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(listener_from_fd(OwnedFd::from(udp)).unwrap_err().to_string().contains("no TCP"));
    }
}
