//! A connection that another thread encrypts, as it passes to an event loop; and how its directions end.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// How one direction of a connection ended. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct CloseState(Arc<AtomicU8>);

const WHOLE: u8 = 1;
const TAKEN: u8 = 2;

impl CloseState {
    /// All bytes were written; the end comes next.
    pub fn set_whole(&self) {
        self.0.fetch_or(WHOLE, Ordering::Release);
    }

    /// The reader has read the end: whether the writer had written everything.
    pub fn is_whole(&self) -> bool {
        // Pairs with `set_whole`, which came before the end.
        self.0.load(Ordering::Acquire) & WHOLE != 0
    }

    /// An event loop took the connection. The caller sets this before it reads any of it.
    pub(crate) fn set_taken(&self) {
        self.0.fetch_or(TAKEN, Ordering::Release);
    }

    /// The reader has read the end of a response: whether an event loop had taken the connection.
    /// If not, the request had no effect.
    pub fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire) & TAKEN != 0
    }
}

/// A client's connection for an event loop.
#[derive(Debug)]
pub struct Handoff {
    /// The event loop's end.
    pub socket: UnixStream,
    /// The client's address.
    pub peer: SocketAddr,
    /// How the event loop's responses end.
    pub close_state: CloseState,
    /// How the client's requests end. Not whole: the client has disconnected, and waits for
    /// nothing.
    pub peer_close_state: CloseState,
    /// The client uses HTTP/2.
    pub speaks_http2: bool,
}
