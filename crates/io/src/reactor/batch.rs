//! The events of a wait, in the order in which they happened, separate from the reactor: a handler
//! that holds an event calls the reactor's operations.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::uring::Region;

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A new connection.
    Accepted {
        /// The listener's.
        token: u64,
        /// The connection, non-blocking.
        socket: OwnedFd,
        /// The peer's address, if known at no cost; the socket has it.
        peer: Option<SocketAddr>,
    },
    /// Received bytes, at least one.
    Received {
        /// The socket's.
        token: u64,
        /// The received bytes.
        bytes: &'a [u8],
    },
    /// The peer sends no more. It may still read.
    Finished {
        /// The socket's.
        token: u64,
    },
    /// The socket may be ready for the watched events.
    Ready {
        /// The socket's.
        token: u64,
        /// Reading gives something: bytes, the end, or an error.
        readable: bool,
        /// Writing does something, if only fail.
        writable: bool,
        /// The peer has finished sending, the connection is closed, or an error waits to be read.
        closed: bool,
    },
    /// The kernel has all sent bytes.
    Sent {
        /// The socket's.
        token: u64,
    },
    /// Receiving, sending or accepting failed, and is over.
    Failed {
        /// The socket's.
        token: u64,
        /// Why.
        error: io::Error,
    },
    /// A thread called the waker.
    Woken,
}

/// A stored event: bytes by their place.
#[derive(Debug)]
pub(super) enum Item {
    Accepted { token: u64, socket: OwnedFd, peer: Option<SocketAddr> },
    Received { token: u64, at: usize, len: usize },
    Finished { token: u64 },
    Ready { token: u64, readable: bool, writable: bool, closed: bool },
    Sent { token: u64 },
    Failed { token: u64, error: io::Error },
    Woken,
}

/// The memory of received bytes.
#[derive(Debug)]
pub(super) enum Memory {
    Owned(Box<[u8]>),
    /// Shared with the kernel.
    #[cfg_attr(
        any(feature = "portable", not(target_os = "linux")),
        expect(dead_code, reason = "only io_uring shares")
    )]
    Shared(Arc<Region>),
}

/// The events of a wait, and their memory.
pub struct Batch {
    pub(super) items: VecDeque<Item>,
    pub(super) memory: Memory,
}

impl Batch {
    pub(super) fn new(memory: Memory) -> Batch {
        Batch { items: VecDeque::new(), memory }
    }

    /// The next event, which is valid until the next call.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Option<Event<'_>> {
        Some(match self.items.pop_front()? {
            Item::Accepted { token, socket, peer } => Event::Accepted { token, socket, peer },
            Item::Received { token, at, len } => {
                let bytes = match &self.memory {
                    Memory::Owned(memory) => &memory[at..at + len],
                    // SAFETY: the kernel named this buffer, and has it again only after a wait that
                    // borrows the batch, with which no event is left (invariant 2 of `uring::receive_buffers`).
                    Memory::Shared(region) => unsafe { region.bytes(at, len) },
                };
                Event::Received { token, bytes }
            }
            Item::Finished { token } => Event::Finished { token },
            Item::Ready { token, readable, writable, closed } => {
                Event::Ready { token, readable, writable, closed }
            }
            Item::Sent { token } => Event::Sent { token },
            Item::Failed { token, error } => Event::Failed { token, error },
            Item::Woken => Event::Woken,
        })
    }

    /// Memory to receive into.
    ///
    /// # Panics
    /// If the batch is one of io_uring.
    pub(super) fn own_memory(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Owned(memory) => memory,
            Memory::Shared(_) => panic!("a batch serves the reactor that it was made with"),
        }
    }

    /// Events not walked yet.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether all events were walked.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.items).finish()
    }
}
