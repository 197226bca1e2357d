//! Connections to event loops: socket pairs of which an event loop has the other end.
//!
//! ```text
//! made -> its first bytes written -> handed off -> a request and its response -> idle -> the next
//!                                                                             -> closed
//! ```
//!
//! The first bytes are there before the event loop gets the connection. So a draining event loop
//! finds a request, not an idle client.
//!
//! Bounds: [`LOCAL_BYTES`] each way in the kernel; [`IDLE_MAX`] idle ones for one HTTP/2
//! connection. larder notices only at the next use that an event loop has closed one of those.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Mutex, PoisonError};

use bytes::BytesMut;
use larder_http::handoff::{CloseState, Handoff};
use larder_http::tls_bridge::Acceptor;
use tokio::net::UnixStream;

/// Buffer of a local socket. The kernel counts its overhead too, so it doubles this number.
pub(crate) const LOCAL_BYTES: usize = 64 << 10;

/// Idle connections of one client's connection.
const IDLE_MAX: usize = 16;

/// A connection to an event loop.
#[derive(Debug)]
pub(crate) struct LoopConnection {
    pub(crate) stream: UnixStream,
    /// How the event loop's responses end.
    pub(crate) close_state: CloseState,
    /// How the requests end. It is not whole unless set, so an event loop does not wait for a
    /// client that has disconnected.
    pub(crate) peer_close_state: CloseState,
    /// Bytes that were read and not used.
    pub(crate) inbox: BytesMut,
    /// Bytes of the request that were written already.
    pub(crate) written: usize,
    /// It was used before, and may have been closed since.
    pub(crate) is_reused: bool,
}

/// The two ends of a local connection, which do not block and have small buffers.
pub(crate) fn pair() -> io::Result<(StdUnixStream, StdUnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    for end in [&ours, &theirs] {
        end.set_nonblocking(true)?;
        rustix::net::sockopt::set_socket_send_buffer_size(end, LOCAL_BYTES)?;
    }
    Ok((ours, theirs))
}

impl LoopConnection {
    /// A new connection with these first bytes, or some of them: those of an HTTP/1.1 client, or an
    /// HTTP/2 request.
    pub(crate) fn connect(
        acceptor: &Acceptor,
        peer: SocketAddr,
        speaks_http2: bool,
        bytes: &[u8],
    ) -> io::Result<LoopConnection> {
        let (ours, socket) = pair()?;
        let stream = UnixStream::from_std(ours)?;
        let (close_state, peer_close_state) = (CloseState::default(), CloseState::default());
        let connection = LoopConnection {
            written: write_some(&stream, bytes)?,
            stream,
            close_state: close_state.clone(),
            peer_close_state: peer_close_state.clone(),
            inbox: BytesMut::new(),
            is_reused: false,
        };
        acceptor.hand_off(Handoff { socket, peer, close_state, peer_close_state, speaks_http2 });
        Ok(connection)
    }

    /// Sends a request on an open connection; `None`: it is closed.
    fn reuse(mut self, bytes: &[u8]) -> Option<LoopConnection> {
        // No bytes may be there to read, not even an end.
        match self.stream.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return None,
        }
        self.written = write_some(&self.stream, bytes).ok()?;
        self.is_reused = true;
        Some(self)
    }
}

/// Writes as many bytes as fit into the buffer.
fn write_some(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return Ok(0);
    }
    match stream.try_write(bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

/// Connections to event loops of one client's connection.
#[derive(Debug)]
pub(crate) struct Pool {
    acceptor: Acceptor,
    peer: SocketAddr,
    idle: Mutex<Vec<LoopConnection>>,
}

impl Pool {
    pub(crate) fn new(acceptor: Acceptor, peer: SocketAddr) -> Pool {
        Pool { acceptor, peer, idle: Mutex::default() }
    }

    /// A connection with these first bytes, or some of them; an idle one, if `may_reuse` and there
    /// is one.
    pub(crate) fn request(&self, bytes: &[u8], may_reuse: bool) -> io::Result<LoopConnection> {
        let take = || if may_reuse { self.idle().pop() } else { None };
        while let Some(connection) = take() {
            if let Some(connection) = connection.reuse(bytes) {
                return Ok(connection);
            }
        }
        LoopConnection::connect(&self.acceptor, self.peer, true, bytes)
    }

    /// Its response was read completely, so it may be used again.
    pub(crate) fn give_back(&self, connection: LoopConnection) {
        let mut idle = self.idle();
        if connection.inbox.is_empty() && idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<LoopConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
