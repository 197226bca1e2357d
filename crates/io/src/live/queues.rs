//! Frames of an interface's queues by AF_XDP, in addition to its rings.
//!
//! With this option the capture takes every frame that the interface receives and that is not
//! longer than [`RECEIVED_BYTES_MAX`](crate::xdp::RECEIVED_BYTES_MAX), before the kernel processes
//! it; the kernel's network does not get it. So the interface must be used for the capture alone.
//! Longer frames, and those that this machine sends, come by the rings.
//!
//! The kernel does not stamp such frames. Their time is that at which some dozens of them were
//! taken together, up to `batch_ms` after they arrived. Frames by rings may be out of order with
//! them by as much as a block waits. VLAN tags that the card strips (`ethtool -K IFACE rxvlan off`
//! disables this) are lost.
//!
//! Bounds: the memory of a queue is `ring_bytes`, 128 MiB at most.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::block::{Link, Shape, append_block};
use super::read_clock;
use crate::xdp::{self, Receiver};

/// Most calls for frames in one pass over a queue, so that all queues have their turn.
const CALLS_MAX: usize = 16;

/// A queue of an interface.
#[derive(Debug)]
pub(super) struct Queue {
    receiver: Receiver,
    shape: Shape,
}

/// Opens all queues of an interface. The error states the reason.
pub(super) fn open(name: &str, shape: Shape, queue_bytes: u64) -> Result<Vec<Queue>, String> {
    if shape.link != Link::Ethernet || shape.has_loopback {
        return Err(format!("{name}: it is no Ethernet interface"));
    }
    let interface = xdp::find(name).map_err(|error| error.to_string())?;
    let queues = xdp::open_all(&interface, queue_bytes).map_err(|error| error.to_string())?;
    Ok(queues.into_iter().map(|queue| Queue { receiver: queue.receiver, shape }).collect())
}

/// Frames that a queue's socket dropped.
pub(super) fn drops(socket: &OwnedFd) -> std::io::Result<u64> {
    xdp::drops(socket)
}

impl Queue {
    /// Number of its interface.
    pub fn interface(&self) -> usize {
        self.shape.interface as usize
    }

    /// Appends the received frames, and returns their number.
    pub fn copy(&mut self, bytes_max: usize, out: &mut Vec<u8>) -> u64 {
        let mut frames = 0;
        for _ in 0..CALLS_MAX {
            if out.len() >= bytes_max || self.receiver.recv() == 0 {
                break;
            }
            let time_ns = read_clock(libc::CLOCK_REALTIME).max(0) as u64;
            for frame in self.receiver.frames() {
                append_block(&self.shape, time_ns, frame.len() as u32, &[], frame, out);
                frames += 1;
            }
        }
        frames
    }

    /// For a caller that waits for frames.
    pub fn fd(&self) -> libc::c_int {
        self.receiver.as_fd().as_raw_fd()
    }

    /// The socket, to read its drop counter.
    pub fn socket(&self) -> std::io::Result<OwnedFd> {
        self.receiver.as_fd().try_clone_to_owned()
    }
}
