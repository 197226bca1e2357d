//! Sends queries to the core, and receives its responses: a side query, as encrypted transports
//! use.
//!
//! Bounds: the sender's queue; if it is full, `send` waits. There is one result for each query.
//! Cost: that of [`crate::side_query`].

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::dnstap::Protocol;
use crate::side_query::{SideQuery, SideSender};

/// How long `send` waits before it tries again.
const PAUSE: Duration = Duration::from_micros(200);

/// A query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replayed {
    /// Identifies an open query; its result has the same tag.
    pub tag: u64,
    /// The client.
    pub peer: SocketAddr,
    /// It arrived over a stream: its response is never truncated, and no rate limit applies.
    pub is_stream: bool,
    /// The message.
    pub message: Vec<u8>,
}

/// The result of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The tag of the query.
    pub tag: u64,
    /// The response; `None` if a client would have received no response.
    pub answer: Option<Vec<u8>>,
    /// Time of the response.
    pub at: Instant,
}

/// The core's event loop has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Sends queries to a core.
#[derive(Debug)]
pub(super) struct Replayer {
    sender: SideSender,
    say: Sender<Outcome>,
    received: Receiver<Outcome>,
}

impl Replayer {
    /// Sends to the core of this sender.
    pub fn new(sender: SideSender) -> Replayer {
        let (say, received) = channel();
        Replayer { sender, say, received }
    }

    /// Sends a query, and waits if the core's queue is full; `is_gone` states that the core has
    /// ended.
    pub fn send(&self, replayed: Replayed, is_gone: impl Fn() -> bool) -> Result<(), Gone> {
        let Replayed { tag, peer, is_stream, message } = replayed;
        let say = self.say.clone();
        let protocol = if is_stream { Protocol::Tcp } else { Protocol::Udp };
        let reply = Box::new(move |answer| {
            // The receiver may be gone.
            let _ = say.send(Outcome { tag, answer, at: Instant::now() });
        });
        let mut query = SideQuery { protocol, peer, message, reply };
        while let Err(back) = self.sender.query(query) {
            if is_gone() {
                return Err(Gone);
            }
            query = back;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// The next result within a time; `None` if no result arrives.
    pub fn receive(&self, patience: Duration) -> Option<Outcome> {
        // The other end is also here, so only the time ends the wait.
        self.received.recv_timeout(patience).ok()
    }
}
