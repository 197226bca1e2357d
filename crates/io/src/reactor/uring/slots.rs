//! Slots of sends and listeners. A slot names their operation, and is reserved until that operation
//! has ended, whatever happens to the connection.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use io_uring::opcode;
use io_uring::types::Fd;

use super::super::batch::{Batch, Item};
use super::super::index_of;
use super::super::send_buffers::SendBuffers;
use super::state::{Kind, State, name};
use super::{Queue, raw};

/// Most bytes that one operation sends: below the kernel's own limit.
const SENT_BYTES_MAX: usize = 1 << 30;

/// A send under way.
#[derive(Debug)]
pub(super) struct Outgoing {
    index: usize,
    generation: u32,
    bytes: Vec<u8>,
    sent: usize,
}

#[derive(Debug)]
pub(super) struct Listener {
    /// A copy of ours, so that the caller's may be closed (invariant 4).
    socket: OwnedFd,
    token: u64,
    should_accept: bool,
}

impl State {
    /// Stores bytes to send, and returns their slot.
    pub(super) fn begin_send(&mut self, fd: BorrowedFd<'_>, token: u64, bytes: Vec<u8>) -> usize {
        let slot = self.sends_free.pop().unwrap_or_else(|| {
            self.sends.push(None);
            self.sends.len() - 1
        });
        let socket = self.known(fd, token);
        assert!(socket.sending.is_none(), "one send of a socket at a time");
        socket.sending = Some(slot);
        let (index, generation) = (index_of(&fd), socket.generation);
        self.sends[slot] = Some(Outgoing { index, generation, bytes, sent: 0 });
        slot
    }

    /// Sends the rest of a slot.
    pub(super) fn push_send(&mut self, slot: usize, queue: &mut Queue) {
        let Some(outgoing) = &self.sends[slot] else { return };
        let left = &outgoing.bytes[outgoing.sent..];
        let count = left.len().min(SENT_BYTES_MAX) as u32;
        // With MSG_WAITALL the kernel itself continues after a partial write.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = opcode::Send::new(Fd(outgoing.index as i32), left.as_ptr(), count).flags(flags);
        queue.push(entry.build().user_data(name(Kind::Send, slot, 0)));
        self.under_way += 1;
    }

    /// Continues a send that was cut short, unless its connection has been closed.
    pub(super) fn settle_send(&mut self, slot: usize, queue: &mut Queue) {
        let Some(outgoing) = &self.sends[slot] else { return };
        let (index, generation) = (outgoing.index, outgoing.generation);
        if self.living(index, generation).is_some() {
            self.push_send(slot, queue);
        } else {
            self.sends[slot] = None;
            self.sends_free.push(slot);
        }
    }

    pub(super) fn complete_send(
        &mut self,
        slot: usize,
        result: io::Result<u32>,
        batch: &mut Batch,
        send_buffers: &mut SendBuffers,
    ) {
        let Some(mut outgoing) = self.sends[slot].take() else { return };
        let socket = self
            .sockets
            .get_mut(outgoing.index)
            .filter(|of| of.generation == outgoing.generation && of.is_known);
        if let Some(socket) = socket {
            let token = socket.token;
            let item = match result {
                Ok(0) => Item::Failed { token, error: io::ErrorKind::WriteZero.into() },
                Ok(count) => {
                    outgoing.sent += count as usize;
                    if outgoing.sent < outgoing.bytes.len() {
                        self.sends[slot] = Some(outgoing);
                        return self.sends_again.push(slot);
                    }
                    Item::Sent { token }
                }
                Err(error) if is_passing(&error) => {
                    self.sends[slot] = Some(outgoing);
                    return self.sends_again.push(slot);
                }
                Err(error) => Item::Failed { token, error },
            };
            socket.sending = None;
            batch.items.push_back(item);
        }
        self.sends_free.push(slot);
        send_buffers.give_back(outgoing.bytes);
    }

    pub(super) fn listen(&mut self, socket: OwnedFd, token: u64) {
        let listener = Some(Listener { socket, token, should_accept: true });
        let slot = match self.listeners.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.listeners.push(None);
                self.listeners.len() - 1
            }
        };
        self.listeners[slot] = listener;
        self.accept_again.push(slot);
    }

    /// The slot whose accepting must be cancelled.
    pub(super) fn unlisten(&mut self, token: u64) -> Option<usize> {
        let is_meant = |of: &Listener| of.token == token && of.should_accept;
        let slot = self.listeners.iter().position(|of| of.as_ref().is_some_and(is_meant))?;
        self.listeners[slot].as_mut()?.should_accept = false;
        Some(slot)
    }

    pub(super) fn settle_listener(&mut self, slot: usize, queue: &mut Queue) {
        let Some(listener) = &self.listeners[slot] else { return };
        if !listener.should_accept {
            self.listeners[slot] = None;
            return;
        }
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let entry = opcode::AcceptMulti::new(raw(&listener.socket)).flags(flags).build();
        queue.push(entry.user_data(name(Kind::Accept, slot, 0)));
        self.under_way += 1;
    }

    pub(super) fn complete_accept(
        &mut self,
        slot: usize,
        result: io::Result<u32>,
        is_over: bool,
        batch: &mut Batch,
    ) {
        // SAFETY: the kernel has just made this descriptor for us.
        let socket = result.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) });
        let Some(listener) = &mut self.listeners[slot] else { return };
        let token = listener.token;
        match socket {
            Ok(socket) => batch.items.push_back(Item::Accepted { token, socket, peer: None }),
            Err(error) if listener.should_accept && is_lack(&error) => {
                listener.should_accept = false;
                batch.items.push_back(Item::Failed { token, error });
            }
            // Cancelled, or an error of a connection before it was accepted.
            Err(_) => {}
        }
        if is_over {
            self.accept_again.push(slot);
        }
    }
}

/// Whether the same call may succeed at once.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}

/// Whether accepting again at once would fail again: no descriptors or memory, or not a listener.
fn is_lack(error: &io::Error) -> bool {
    use libc::{EBADF, EFAULT, EINVAL, EMFILE, ENFILE, ENOBUFS, ENOMEM, ENOTSOCK, EOPNOTSUPP};
    let lacks = [EMFILE, ENFILE, ENOBUFS, ENOMEM, EBADF, EINVAL, ENOTSOCK, EFAULT, EOPNOTSUPP];
    error.raw_os_error().is_some_and(|error| lacks.contains(&error))
}
