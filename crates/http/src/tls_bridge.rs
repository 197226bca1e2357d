//! Connections that are made beside the loops: somebody else ends their encryption, and a loop serves them as any other.
//!
//! ```text
//! client == TLS == a task -- socket pair -- Acceptor::hand_off -> mail -> a loop, for which it is a client's connection
//! a loop: Running::connect -> socket pair -- a task == TLS == origin
//! ```
//!
//! A loop knows plain sockets and nothing of keys. What it is given is one end of a pair of local sockets, whose other end is
//! pumped by whoever runs TLS ([`TlsBridge`]). Octets, their end and the room for them pass through such a pair as through TCP; what
//! does not is *how* it ended, for a local socket knows no reset. So each direction has an [`CloseState`], which both ends share.
//! Who asks and is gone is thus told from who only sends no more, and waits for its answer.
//!
//! Invariant: an ending is whole only where its writer said so before it closed its end. Who reads looks after it has seen the end,
//! so what was broken off, or whose writer is gone, is never taken for complete.
//!
//! Bounds: those of the loops hold for what is let in; the octets between are those of a local socket's buffer.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use larder_serve::figures::Gauge;

use crate::loop_channel::{LoopChannels, Message};
use crate::options::{Options, OriginAddress};

/// How one direction of a connection ended. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct CloseState(Arc<AtomicU8>);

const WHOLE: u8 = 1;
const TAKEN: u8 = 2;

impl CloseState {
    /// All that was to be written was; the end comes next.
    pub fn set_whole(&self) {
        self.0.fetch_or(WHOLE, Ordering::Release);
    }

    /// The end was seen: whether it is a proper one.
    pub fn is_whole(&self) -> bool {
        // Pairs with `set_whole`, which came before the end that was seen.
        self.0.load(Ordering::Acquire) & WHOLE != 0
    }

    /// A loop has a place for the connection. Said before anything of it is read.
    pub(crate) fn set_taken(&self) {
        self.0.fetch_or(TAKEN, Ordering::Release);
    }

    /// The end was seen of what a loop writes: whether it had taken the connection. Where it had not, nothing was done of what was asked.
    pub fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire) & TAKEN != 0
    }
}

/// A client's connection for a loop.
#[derive(Debug)]
pub struct Handoff {
    /// The loop's end.
    pub socket: UnixStream,
    /// Who it is.
    pub peer: SocketAddr,
    /// How what the loop writes ends.
    pub close_state: CloseState,
    /// How what it reads ends. Not whole: the client is gone, and waits for nothing.
    pub peer_close_state: CloseState,
    /// What it asks was said in HTTP/2.
    pub speaks_http2: bool,
}

/// Where connections are handed to loops, one after the other.
#[derive(Debug, Clone)]
pub struct Acceptor {
    channels: LoopChannels,
    loops: usize,
    turn: Arc<AtomicUsize>,
}

impl Acceptor {
    /// To so many loops.
    pub fn new(channels: LoopChannels, loops: usize) -> Acceptor {
        Acceptor { channels, loops: loops.max(1), turn: Arc::default() }
    }

    /// Hands a connection to the loop whose turn it is. One that is not taken is closed, its ending neither whole nor taken.
    pub fn hand_off(&self, handoff: Handoff) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.loops;
        self.channels.post(turn as u32, Message::Handoff(handoff));
    }
}

/// Who makes such connections, to be started with the loops.
pub trait TlsBridge: fmt::Debug + Send + Sync {
    /// Binds its sockets and starts its threads. The error says what is wrong and what to do.
    fn start(&self, acceptor: Acceptor) -> Result<Arc<dyn Running>, String>;

    /// Clients come this way: what comes by the loops' own sockets came in the clear.
    fn has_clients(&self) -> bool;
}

/// The same, at work. Dropped, it ends at once.
pub trait Running: fmt::Debug + Send + Sync {
    /// Lines for the operator: where it serves.
    fn lines(&self) -> Vec<String>;

    /// Reads its files (certificates) anew. A line says how that ended; after an error all is as it was.
    fn reload(&self) -> String;

    /// Other settings are in force: what they say of its connections is for new ones. Those that stand keep what they began with.
    fn follow(&self, options: &Options);

    /// What it counts.
    fn gauges(&self) -> Vec<Gauge>;

    /// Begins a connection to an origin. Once it is there, one octet comes, before all that the origin sends; where it cannot be had the
    /// end comes first. The ending is that of what the origin sends.
    fn connect(&self, origin: &OriginAddress) -> io::Result<(UnixStream, CloseState)>;

    /// Takes no new connections, and goes on with those it has. Does not wait.
    fn drain(&self);

    /// The loops have ended: sends what is left to send, for so long at most.
    fn finish(&self, patience: Duration);
}
