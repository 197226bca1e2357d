//! Connections that other threads encrypt: an event loop serves them like plain ones.
//!
//! ```text
//! client == TLS == a task -- socket pair -- Acceptor::hand_off -> an event loop, for which it is a client's connection
//! an event loop: Running::connect -> socket pair -- a task == TLS == origin
//! ```
//!
//! An event loop uses plain sockets and has no keys. It gets one end of a socket pair; a thread
//! that runs TLS ([`TlsBridge`]) copies bytes from and to the other end. Bytes, their end and flow
//! control pass through the pair as through TCP. How a connection ended does not: a local socket
//! has no reset. So each direction has a [`CloseState`] that both ends share. It distinguishes a
//! client that has disconnected from one that sends no more and waits for its response.
//!
//! Invariant: a close state is whole only where the writer set it before it closed its end. The
//! reader looks at it after it has read the end. So larder never treats an aborted response, or one
//! whose writer has ended, as complete.
//!
//! Bounds: the limits of the event loops; between, the buffer of a local socket.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use larder_serve::metrics::Metric;

use crate::connection::{ClientLimits, OriginAddress};
use crate::handoff::{CloseState, Handoff};
use crate::loop_channel::{LoopChannels, Message};

/// Hands connections to the event loops in rotation.
#[derive(Debug, Clone)]
pub struct Acceptor {
    channels: LoopChannels,
    loops: usize,
    turn: Arc<AtomicUsize>,
}

impl Acceptor {
    /// To this many event loops.
    pub fn new(channels: LoopChannels, loops: usize) -> Acceptor {
        Acceptor { channels, loops: loops.max(1), turn: Arc::default() }
    }

    /// Hands a connection to the next event loop. If no event loop takes it, it is closed, and its
    /// close state is neither whole nor taken.
    pub fn hand_off(&self, handoff: Handoff) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.loops;
        self.channels.post(turn as u32, Message::Handoff(handoff));
    }
}

/// Makes such connections; the server starts it together with the event loops.
pub trait TlsBridge: fmt::Debug + Send + Sync {
    /// Binds its sockets and starts its threads. The error states what is wrong and what to do.
    fn start(&self, acceptor: Acceptor) -> Result<Arc<dyn Running>, String>;

    /// True if it accepts clients. Those on the event loops' own sockets use no encryption.
    fn has_clients(&self) -> bool;
}

/// A started [`TlsBridge`]. Dropped, it ends at once.
pub trait Running: fmt::Debug + Send + Sync {
    /// Its listeners: each transport and its address.
    fn listeners(&self) -> Vec<(&'static str, String)>;

    /// Reads its certificate files again. The returned line states the result; after an error
    /// nothing has changed.
    fn reload(&self) -> String;

    /// New settings are in force: they apply to new connections.
    fn follow(&self, limits: &ClientLimits);

    /// Its counters.
    fn metrics(&self) -> Vec<Metric>;

    /// Starts a connection to an origin. When it is made, one byte comes before all that the origin
    /// sends; if it fails, the end comes first. The close state is for the origin's bytes.
    fn connect(&self, origin: &OriginAddress) -> io::Result<(UnixStream, CloseState)>;

    /// Accepts no new connections, and continues to serve the others. Does not wait.
    fn drain(&self);

    /// The event loops have ended: sends the remaining bytes, for at most this long.
    fn finish(&self, patience: Duration);
}
