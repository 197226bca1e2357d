//! Sends frames by an interface as fast as possible, for measurements. larder sends no frames in
//! normal operation.
//!
//! Invariant: the headers point to the row of vectors, and those to the frames' bytes; neither is
//! changed, moved, or dropped while the value lives.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::block::Link;
use super::{LiveError, no_such, socket};
use crate::socket::check;

const QDISC_BYPASS: libc::c_int = 20;

/// Frames a system call.
const BATCH: usize = 64;

/// Sends a row of frames round and round.
pub struct FrameSender {
    socket: OwnedFd,
    headers: Box<[libc::mmsghdr]>,
    _vectors: Box<[libc::iovec]>,
    frames: Vec<Vec<u8>>,
    at: usize,
}

// SAFETY: what the pointers point to belongs to the value.
unsafe impl Send for FrameSender {}

/// Frames and bytes sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl FrameSender {
    /// Opens an interface for frames, which begin with its link layer's header. It receives
    /// nothing.
    pub fn open(interface: &str, frames: Vec<Vec<u8>>) -> Result<FrameSender, LiveError> {
        let failed = |what| move |error| LiveError::Kernel { what, error };
        let socket = socket::open(Link::Ethernet)?;
        let found = socket::find(&socket, interface)?.ok_or_else(|| no_such(interface))?;
        socket::bind(&socket, found.index, 0).map_err(failed("the interface cannot be had"))?;
        // Without it a queue is passed that would only cost time.
        let _ = socket::set_packet_option(&socket, socket::SOL_PACKET, QDISC_BYPASS, &1i32);
        let mut vectors: Box<[libc::iovec]> = frames
            .iter()
            .map(|frame| libc::iovec {
                iov_base: frame.as_ptr().cast_mut().cast(),
                iov_len: frame.len(),
            })
            .collect();
        let headers = vectors
            .iter_mut()
            .map(|vector| {
                // SAFETY: all zeros is a valid header: no address, no control data.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Ok(FrameSender { socket, headers, _vectors: vectors, frames, at: 0 })
    }

    /// Sends the next frames of the row, some dozens. It sends none if the interface has no room
    /// now.
    pub fn send(&mut self) -> io::Result<Sent> {
        let count = BATCH.min(self.headers.len() - self.at);
        // SAFETY: as many headers as are counted, whose vectors and bytes are there by the
        // invariant; the kernel reads the bytes, and writes lengths into the headers.
        let sent = unsafe {
            let headers = self.headers[self.at..].as_mut_ptr();
            check(libc::sendmmsg(self.socket.as_raw_fd(), headers, count as u32, 0))
        };
        let sent = match sent {
            Ok(sent) => sent as usize,
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR) => 0,
                _ => return Err(error),
            },
        };
        let lengths = self.frames[self.at..self.at + sent].iter().map(|frame| frame.len() as u64);
        let sent = Sent { frames: sent as u64, bytes: lengths.sum() };
        self.at = (self.at + sent.frames as usize) % self.frames.len().max(1);
        Ok(sent)
    }
}
