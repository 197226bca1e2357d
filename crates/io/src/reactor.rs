//! The event loop of a core that serves many TCP connections by few system calls.
//!
//! ```text
//! new -> (reactor, batch)
//! wait(batch) -> walk batch.next(): each event is handled by calling the reactor -> wait(batch) ...
//!
//! socket    listen ------> Accepted ...                                    until unlisten
//!           receive -----> Received ... Finished | Failed                  until pause; receive resumes
//!           watch -------> Ready                                           once
//!           send --------> Done | Later ... Sent | Failed                  one at a time
//!           close                                                          whatever is under way
//! ```
//!
//! | file | duty |
//! |---|---|
//! | `epoll` | reports readiness, on other systems than Linux by poll; each read and write is a system call |
//! | `uring` | one call submits operations and returns completions, into memory of `uring::receive_buffers` |
//! | `batch` | the events of a wait |
//! | `send_buffers` | buffers for responses |
//!
//! # Rules
//!
//! 1. A socket has one token from its first operation until [`Reactor::close`], which is the only
//!    way to close it: otherwise another connection could get the descriptor's number, and the
//!    operations would apply to it.
//! 2. After [`Reactor::close`] no later wait reports the token. The current batch may: tokens need
//!    a generation, so that the caller recognizes those events and drops them.
//! 3. [`Reactor::pause`] and [`Reactor::unwatch`] stop future events. Bytes that were received by
//!    then, and an [`Event::Ready`] that is on its way, still arrive.
//! 4. To read a socket directly, pause it first, then watch it, and read when it is ready: bytes
//!    that had been received before arrive before that event.
//! 5. [`Event::Failed`] and [`Event::Finished`] end receiving; a failed listener has stopped
//!    listening (no descriptors or memory): listen again a moment later.
//!
//! Invariants
//! 1. Bytes of an event are in memory that the batch owns until the next wait, whatever the caller
//!    does with the reactor meanwhile.
//!
//! Bounds: events a wait, receive buffers, idle buffers for sending and their capacity. State of a
//! socket is some bytes in a table by descriptor, so as many as there may be descriptors.

mod batch;
mod epoll;
mod send_buffers;
#[cfg(test)]
mod tests;
#[cfg_attr(any(feature = "portable", not(target_os = "linux")), path = "reactor/no_uring.rs")]
mod uring;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use crate::epoll::Interest;
pub use batch::{Batch, Event};
use epoll::Epoll;
use send_buffers::SendBuffers;
use uring::Uring;

/// Connections taken from one listener a wait.
const ACCEPTED_MAX: usize = 64;

/// Which way to talk to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// io_uring where the kernel has it and allows it, else epoll.
    #[default]
    Auto,
    /// io_uring, or an error that states why it is not available.
    Uring,
    /// epoll, or what the system has in its place.
    Epoll,
}

/// Which way was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// io_uring: operations and their results are in memory shared with the kernel.
    Uring,
    /// epoll, or poll: the kernel reports ready sockets, and each read and write is a system call.
    Epoll,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Uring => "io_uring",
            Backend::Epoll => crate::epoll::NAME,
        })
    }
}

/// How to build a reactor.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which way to talk to the kernel.
    pub choice: Choice,
    /// Most events a wait, and most idle buffers for sending.
    pub events_max: usize,
    /// Bytes of one receive.
    pub receive_bytes: usize,
    /// Received chunks of that size that a wait has room for. Further ones come with the next wait.
    pub buffers: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { choice: Choice::Auto, events_max: 512, receive_bytes: 16 << 10, buffers: 256 }
    }
}

impl Options {
    /// Valid values: at least one event and buffer, and at most as many buffers as io_uring can
    /// count.
    fn clamped(&self) -> Options {
        Options {
            choice: self.choice,
            events_max: self.events_max.clamp(1, 1 << 15),
            receive_bytes: self.receive_bytes.clamp(64, 1 << 20),
            buffers: self.buffers.clamp(1, 1 << 15),
        }
    }
}

/// The result of a send.
#[derive(Debug)]
#[must_use]
pub enum Sending {
    /// The kernel has all of it.
    Done,
    /// [`Event::Sent`] comes when the kernel has all of it, or [`Event::Failed`].
    Later,
    /// The connection is closed.
    Failed(io::Error),
}

/// Many sockets, and their operations. It may be made in one thread and used in another. From the
/// first [`Reactor::wait`] on it stays in that thread, where it is dropped too. In another thread
/// waits fail, and a drop leaks the memory that the kernel may still use.
#[derive(Debug)]
pub struct Reactor {
    engine: Engine,
    fallback: Option<String>,
    send_buffers: SendBuffers,
    waker: Waker,
}

#[derive(Debug)]
enum Engine {
    Uring(Box<Uring>),
    Epoll(Epoll),
}

impl Reactor {
    /// A reactor without sockets, and the batch for its waits. Fails if the kernel does not support
    /// the choice, or there are no descriptors.
    pub fn new(options: &Options) -> io::Result<(Reactor, Batch)> {
        let options = options.clamped();
        let (waker, send_buffers) = (Waker::new()?, SendBuffers::new(options.events_max));
        let mut fallback = None;
        if options.choice != Choice::Epoll {
            match Uring::new(&options, &waker) {
                Ok((uring, batch)) => {
                    let engine = Engine::Uring(Box::new(uring));
                    return Ok((Reactor { engine, fallback, send_buffers, waker }, batch));
                }
                Err(error) if options.choice == Choice::Uring => return Err(error),
                Err(error) => fallback = Some(error.to_string()),
            }
        }
        let (epoll, batch) = Epoll::new(&options, &waker.0.event)?;
        Ok((Reactor { engine: Engine::Epoll(epoll), fallback, send_buffers, waker }, batch))
    }

    /// Which way it talks to the kernel.
    pub fn backend(&self) -> Backend {
        match self.engine {
            Engine::Uring(_) => Backend::Uring,
            Engine::Epoll(_) => Backend::Epoll,
        }
    }

    /// Why it is not io_uring, if the choice was automatic.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Connections come as [`Event::Accepted`] until [`Reactor::unlisten`], which must come before
    /// the listener is closed. It becomes non-blocking.
    pub fn listen(&mut self, listener: &TcpListener, token: u64) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        match &mut self.engine {
            Engine::Uring(uring) => uring.listen(listener, token),
            Engine::Epoll(epoll) => epoll.listen(listener, token),
        }
    }

    /// Accepts no more connections; some that were accepted may still come. The address is free
    /// once the listener is closed and the next wait has begun.
    pub fn unlisten(&mut self, listener: &TcpListener, token: u64) {
        match &mut self.engine {
            Engine::Uring(uring) => uring.unlisten(listener, token),
            Engine::Epoll(epoll) => epoll.unlisten(listener, token),
        }
    }

    /// The peer's bytes arrive as [`Event::Received`], until the end or [`Reactor::pause`]. A
    /// connection on which nothing arrives uses no buffer. Has no effect on a socket that receives
    /// already.
    pub fn receive(&mut self, socket: &impl AsFd, token: u64) -> io::Result<()> {
        match &mut self.engine {
            Engine::Uring(uring) => uring.receive(socket.as_fd(), token),
            Engine::Epoll(epoll) => epoll.receive(socket.as_fd(), token),
        }
    }

    /// Receives no more, so that the peer is held back, until [`Reactor::receive`]. Pausing and
    /// resuming within the walk of one batch costs no system call.
    pub fn pause(&mut self, socket: &impl AsFd, token: u64) {
        match &mut self.engine {
            Engine::Uring(uring) => uring.pause(socket.as_fd(), token),
            Engine::Epoll(epoll) => epoll.pause(socket.as_fd(), token),
        }
    }

    /// [`Event::Ready`] comes once when the socket is ready for `interest`: for connections that
    /// are being made, for reading straight into the final memory, for [`crate::tcp::send_file`]. A
    /// second call before that replaces the interest. The socket may not be ready any more when the
    /// event is handled.
    pub fn watch(&mut self, socket: &impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        match &mut self.engine {
            Engine::Uring(uring) => uring.watch(socket.as_fd(), token, interest),
            Engine::Epoll(epoll) => epoll.watch(socket.as_fd(), token, interest),
        }
    }

    /// Watches no more.
    pub fn unwatch(&mut self, socket: &impl AsFd, token: u64) {
        match &mut self.engine {
            Engine::Uring(uring) => uring.unwatch(socket.as_fd(), token),
            Engine::Epoll(epoll) => epoll.unwatch(socket.as_fd(), token),
        }
    }

    /// An empty buffer for a response. [`Reactor::send`] and [`Reactor::give_back`] return it.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.send_buffers.take()
    }

    /// Takes back an unused buffer.
    pub fn give_back(&mut self, buffer: Vec<u8>) {
        self.send_buffers.give_back(buffer);
    }

    /// Sends all of it. This is independent of receiving.
    ///
    /// # Panics
    /// If an earlier send of this socket is still under way.
    pub fn send(&mut self, socket: &impl AsFd, token: u64, bytes: Vec<u8>) -> Sending {
        if bytes.is_empty() {
            self.send_buffers.give_back(bytes);
            return Sending::Done;
        }
        match &mut self.engine {
            Engine::Uring(uring) => uring.send(socket.as_fd(), token, bytes),
            Engine::Epoll(epoll) => {
                epoll.send(socket.as_fd(), token, bytes, &mut self.send_buffers)
            }
        }
    }

    /// Ends the operations under way on the socket, and closes it. Bytes of a send that the kernel
    /// does not have yet are lost.
    pub fn close(&mut self, socket: OwnedFd, token: u64) {
        match &mut self.engine {
            Engine::Uring(uring) => uring.close(socket, token),
            Engine::Epoll(epoll) => epoll.close(socket, token, &mut self.send_buffers),
        }
    }

    /// A waker that ends a wait from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits until an event comes or `timeout` has passed (`None`: no limit; rounded up to
    /// milliseconds), and returns the number of events. A signal ends it early, with no events.
    /// Events of the last wait that were not walked are returned at once, and nothing else is done.
    ///
    /// # Panics
    /// If the batch belongs to another reactor.
    pub fn wait(&mut self, batch: &mut Batch, timeout: Option<Duration>) -> io::Result<usize> {
        if !batch.is_empty() {
            return Ok(batch.len());
        }
        match &mut self.engine {
            Engine::Uring(uring) => uring.wait(batch, timeout, &mut self.send_buffers),
            Engine::Epoll(epoll) => epoll.wait(batch, timeout, &mut self.send_buffers, &self.waker),
        }
    }
}

/// Ends a reactor's wait with [`Event::Woken`], from any thread.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    event: crate::epoll::Waker,
    /// Whether a call is pending.
    is_called: AtomicBool,
}

impl Waker {
    fn new() -> io::Result<Waker> {
        let event = crate::epoll::Waker::new()?;
        Ok(Waker(Arc::new(Shared { event, is_called: AtomicBool::new(false) })))
    }

    /// Wakes the reactor. All calls before it handles them are one event, and one system call. The
    /// handler of that event sees everything stored before the call.
    pub fn wake(&self) {
        // Release: pairs with the swap of `take_calls`, also where an earlier call's event serves this
        // one.
        if !self.0.is_called.swap(true, Ordering::AcqRel) {
            // It can only be full, and then it is readable.
            let _ = self.0.event.wake();
        }
    }

    /// Takes the pending calls, and returns whether there were any. A later call makes an event
    /// again.
    fn take_calls(&self) -> bool {
        self.0.is_called.swap(false, Ordering::AcqRel)
    }
}

/// Reading, writing, both or neither; nothing of how often.
fn plain(interest: Interest) -> Interest {
    match (interest.covers(Interest::READ), interest.covers(Interest::WRITE)) {
        (true, true) => Interest::BOTH,
        (true, false) => Interest::READ,
        (false, true) => Interest::WRITE,
        (false, false) => Interest::NONE,
    }
}

/// Whether an event is one that was watched for. A peer that only finished sending does not make
/// its socket ready for writing, and must not be reported repeatedly.
fn is_ready(watched: Interest, event: &crate::epoll::Event) -> bool {
    let is_failed = event.closed && event.writable;
    (watched.covers(Interest::READ) && (event.readable || event.closed))
        || (watched.covers(Interest::WRITE) && event.writable)
        || is_failed
}

/// The place of a descriptor in a table.
fn index_of(fd: &impl AsRawFd) -> usize {
    usize::try_from(fd.as_raw_fd()).expect("a descriptor that is open is not negative")
}
