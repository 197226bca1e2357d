//! Questions to the core, and what it says of them: a sender of the core, as encrypted transports
//! have one.
//!
//! Bounds: the sender's queue; where that is full the asker waits. What is told is bounded by what
//! was asked: once a question. Cost: that of [`crate::side_query`].

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::dnstap::Protocol;
use crate::side_query::{SideQuery, SideSender};

/// How long the asker waits before it tries again.
const PAUSE: Duration = Duration::from_micros(200);

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    /// What tells it from others that are open; the answer has it too.
    pub tag: u64,
    /// The client that it is for.
    pub peer: SocketAddr,
    /// It came by a stream: its answer is never cut short, and no rate limits it.
    pub is_stream: bool,
    /// The message.
    pub message: Vec<u8>,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// The question's.
    pub tag: u64,
    /// The answer; `None` where a client would have got none.
    pub answer: Option<Vec<u8>>,
    /// When.
    pub at: Instant,
}

/// The core's loop has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Who asks.
#[derive(Debug)]
pub(super) struct Asker {
    sender: SideSender,
    say: Sender<Told>,
    heard: Receiver<Told>,
}

impl Asker {
    /// Asks at a sender.
    pub fn new(sender: SideSender) -> Asker {
        let (say, heard) = channel();
        Asker { sender, say, heard }
    }

    /// Asks, and waits for the core where it has much to do; `is_gone` says that there is none to
    /// wait for.
    pub fn ask(&self, asked: Asked, is_gone: impl Fn() -> bool) -> Result<(), Gone> {
        let Asked { tag, peer, is_stream, message } = asked;
        let say = self.say.clone();
        let protocol = if is_stream { Protocol::Tcp } else { Protocol::Udp };
        let reply = Box::new(move |answer| {
            // Who asked may have gone.
            let _ = say.send(Told { tag, answer, at: Instant::now() });
        });
        let mut query = SideQuery { protocol, peer, message, reply };
        while let Err(back) = self.sender.ask(query) {
            if is_gone() {
                return Err(Gone);
            }
            query = back;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// The next that was told, waited for so long. `None`: nothing was.
    pub fn told(&self, patience: Duration) -> Option<Told> {
        // The other end is held here as well, so that time alone ends the wait.
        self.heard.recv_timeout(patience).ok()
    }
}
