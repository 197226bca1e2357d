//! The socket that clients connect to.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;

use larder_io::tcp::{self, ListenOptions};

use crate::control::SocketFile;
use crate::nonblocking::retry;

/// A listener that does not block.
#[derive(Debug)]
pub enum Listener {
    /// At an address.
    Tcp(TcpListener),
    /// At a path, and its file, which is removed at the end.
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// Listens at an address. An error ends with `next`, which states what to do.
    pub fn tcp(address: SocketAddr, options: &ListenOptions, next: &str) -> io::Result<Listener> {
        let listener = tcp::listen(address, options);
        listener
            .map(Listener::Tcp)
            .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}; {next}")))
    }

    /// The listener's address; an error for a Unix socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr(),
            Listener::Unix(..) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    /// The next client that waits, as a non-blocking socket, and the address of this machine to
    /// which it connected. Over TCP that address is always there: it can decide which requests are
    /// allowed.
    pub(super) fn accept(&self) -> io::Result<Option<(OwnedFd, Option<IpAddr>)>> {
        match self {
            Listener::Tcp(listener) => {
                let Some((socket, _)) = tcp::accept(listener)? else { return Ok(None) };
                let local = socket.local_addr()?.ip();
                Ok(Some((socket.into(), Some(local))))
            }
            Listener::Unix(listener, _) => {
                let Some((socket, _)) = retry(|| listener.accept())? else { return Ok(None) };
                socket.set_nonblocking(true)?;
                Ok(Some((socket.into(), None)))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}
