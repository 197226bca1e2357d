//! A socket of one queue: frames are received and sent in memory that it shares with the kernel.
//!
//! ```text
//! frames in     with the kernel --> received, and read --> with the kernel
//! frames out    free, or being written --> queued, with the kernel --> free
//! ```
//!
//! The two halves of a socket, [`Receiver`] and [`Sender`], have frames of their own.
//!
//! Invariants
//! 1. Frame n lies at `n * FRAME_BYTES` of the memory. Up to `received_bytes` they are the
//!    receiver's, the rest, [`FRAMES`], the sender's.
//! 2. A frame is in one place at a time: with the kernel, from when a ring shows it until another
//!    gives it back, or with us. The kernel touches only what it has, and we only what it has not.
//! 3. What the kernel gives back is looked at before it is used: a place outside of the half's own
//!    is dropped.
//!
//! Bounds: the memory, 8 MiB a queue unless more is configured, is allocated once, and locked (it
//! counts against `RLIMIT_MEMLOCK`). If received frames are not taken, the kernel drops more
//! frames, and counts them; if the kernel does not send, there is no slot, and the caller drops.
//!
//! Cost: no system call to receive; to send, none where the driver reads our memory by itself and
//! is awake, else one for 32 frames, or for all of them since Linux 6.17.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use super::interface::Interface;
use super::ring::{Mapping, Taker, Writer};
use super::{Attachment, Step, XdpError, unless_busy};
use crate::socket::{check, get_int, owned, set_option};

/// Bytes of a frame's place in the memory.
pub(super) const FRAME_BYTES: usize = 2048;

/// Bytes before a frame that the kernel reserves.
const HEADROOM_BYTES: usize = 256;

/// Bytes of the longest frame that can be received.
pub const RECEIVED_BYTES_MAX: usize = FRAME_BYTES - HEADROOM_BYTES;

/// Bytes of the longest frame that can be sent.
pub const SENT_BYTES_MAX: usize = FRAME_BYTES;

/// Frames that the sender has, and entries of its rings; those of the receiver where a reader is
/// quick.
pub(super) const FRAMES: usize = 2048;

/// Most frames of a receiver.
pub(super) const RECEIVED_FRAMES_MAX: usize = 1 << 16;

/// Frames received together.
pub const BATCH: usize = 64;

/// The most calls to send all queued frames, if the kernel takes 32 frames in each.
const SEND_CALLS_MAX: usize = FRAMES / 32;

/// Frames that the kernel may send in one call: `XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17.
const SEND_BUDGET: libc::c_int = 9;

/// Bytes that may be on their way, as the kernel counts them.
const SEND_BUFFER_BYTES: libc::c_int = 8 << 20;

/// Shared by both halves, until both are dropped.
#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    memory: Mapping,
    /// Bytes of the receiver's part.
    received_bytes: usize,
}

/// The receiving half. When all receivers of its interface are dropped, the kernel has all frames
/// again.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    ring: Taker<libc::xdp_desc>,
    fill: Writer<u64>,
    /// Frames that are ours: where they begin and how long they are.
    batch: Vec<(usize, usize)>,
    pub(super) attachment: Option<Arc<Attachment>>,
}

/// Sends frames.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    ring: Writer<libc::xdp_desc>,
    done: Taker<u64>,
    /// Frames that are ours.
    free: Vec<u64>,
    is_queued: bool,
}

/// A socket that is bound to a queue.
pub(super) struct Bound {
    pub receiver: Receiver,
    pub sender: Sender,
    /// Whether the driver reads and writes our memory itself.
    pub is_zero_copy: bool,
}

/// Opens a socket for a queue of an interface, whose receiver has a number of frames that is a
/// power of two.
pub(super) fn open(interface: &Interface, queue: u32, frames: usize) -> Result<Bound, XdpError> {
    assert!(frames.is_power_of_two() && frames <= RECEIVED_FRAMES_MAX);
    let failed = |step| move |error| XdpError::new(step, &interface.name, error);
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes integers only; what it makes is ours.
    let fd = unsafe { owned(libc::socket(libc::AF_XDP, kind, 0)) }.map_err(failed(Step::Socket))?;
    let received_bytes = frames * FRAME_BYTES;
    let memory = Mapping::anonymous(received_bytes + FRAMES * FRAME_BYTES);
    let memory = memory.map_err(failed(Step::Memory))?;
    register(&fd, &memory).map_err(failed(Step::Memory))?;
    let shared = Arc::new(Shared { fd, memory, received_bytes });
    let (receiver, sender) = halves(shared.clone()).map_err(failed(Step::Rings))?;
    unless_busy(|| bind(&shared.fd, interface.index, queue))
        .map_err(failed(Step::Bind { queue }))?;
    let options = get_int(&shared.fd, libc::SOL_XDP, libc::XDP_OPTIONS).unwrap_or(0);
    let is_zero_copy = options as u32 & libc::XDP_OPTIONS_ZEROCOPY != 0;
    Ok(Bound { receiver, sender, is_zero_copy })
}

/// Registers the memory with the kernel.
fn register(fd: &OwnedFd, memory: &Mapping) -> io::Result<()> {
    // SAFETY: all zeros is a valid value.
    let mut region: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
    region.addr = memory.start().as_ptr() as u64;
    region.len = memory.bytes() as u64;
    region.chunk_size = FRAME_BYTES as u32;
    set_option(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, &region)
}

/// Makes the rings, and gives the receiver's frames to the kernel.
fn halves(shared: Arc<Shared>) -> io::Result<(Receiver, Sender)> {
    let fd = &shared.fd;
    let received_frames = shared.received_bytes / FRAME_BYTES;
    for (ring, entries) in [
        (libc::XDP_UMEM_FILL_RING, received_frames),
        (libc::XDP_UMEM_COMPLETION_RING, FRAMES),
        (libc::XDP_RX_RING, received_frames),
        (libc::XDP_TX_RING, FRAMES),
    ] {
        set_option(fd, libc::SOL_XDP, ring, &(entries as libc::c_int))?;
    }
    // Neither must be: the default buffer holds some hundred frames, and kernels before 6.17 have
    // no budget.
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES);
    let _ = set_option(fd, libc::SOL_XDP, SEND_BUDGET, &(FRAMES as libc::c_int));
    let places = places(fd)?;
    let (count, received_count) = (FRAMES as u32, received_frames as u32);
    let fill_at = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
    let done_at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
    let mut fill = Writer::map(fd, fill_at, &places.fr, received_count)?;
    let done = Taker::map(fd, done_at, &places.cr, count)?;
    let received = Taker::map(fd, libc::XDP_PGOFF_RX_RING, &places.rx, received_count)?;
    let queue = Writer::map(fd, libc::XDP_PGOFF_TX_RING, &places.tx, count)?;
    let place = |frame: usize| (frame * FRAME_BYTES) as u64;
    for frame in 0..received_frames {
        fill.push(place(frame));
    }
    fill.show();
    let free = (received_frames..received_frames + FRAMES).map(place).collect();
    let batch = Vec::with_capacity(BATCH);
    Ok((
        Receiver { shared: shared.clone(), ring: received, fill, batch, attachment: None },
        Sender { shared, ring: queue, done, free, is_queued: false },
    ))
}

/// The kernel's offsets in the rings.
fn places(fd: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all zeros is a valid value.
    let mut places: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&places) as libc::socklen_t;
    let into = (&raw mut places).cast();
    // SAFETY: the kernel writes at most `length` bytes into a value that has as many, and any
    // bytes are one.
    check(unsafe {
        let fd = fd.as_raw_fd();
        libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, into, &raw mut length)
    })?;
    // Kernels before 5.4 have no flags, and write less.
    if length as usize == size_of_val(&places) {
        Ok(places)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Binds to a queue. The kernel shares the memory with the driver if it can, and copies if not.
fn bind(fd: &OwnedFd, interface: u32, queue: u32) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as _,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of an address that has as many.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(())
}

impl Receiver {
    /// Receives waiting frames, [`BATCH`] at most, and returns their number. Replaces those of the
    /// call before.
    #[inline]
    pub fn recv(&mut self) -> usize {
        for (start, _) in self.batch.drain(..) {
            // There is room: the ring has as many entries as the half has frames. The kernel finds
            // the beginning of a frame from any address in it.
            self.fill.push(start as u64);
        }
        self.fill.show();
        while self.batch.len() < BATCH {
            let Some(entry) = self.ring.pop() else { break };
            let (start, length) = (entry.addr as usize, entry.len as usize);
            let end = start.checked_add(length);
            // Invariant 3.
            if end.is_some_and(|end| end <= self.shared.received_bytes) {
                self.batch.push((start, length));
            }
        }
        self.ring.free();
        if self.fill.wants_call() {
            let fd = self.shared.fd.as_raw_fd();
            // SAFETY: receives nothing: a call with no room only wakes the driver, which had no
            // frames.
            unsafe {
                libc::recvfrom(
                    fd,
                    ptr::null_mut(),
                    0,
                    libc::MSG_DONTWAIT,
                    ptr::null_mut(),
                    ptr::null_mut(),
                )
            };
        }
        self.batch.len()
    }

    /// The frames of the last call.
    #[inline]
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let memory = self.shared.memory.start();
        self.batch.iter().map(move |&(start, length)| {
            // SAFETY: inside the receiver's half of the memory, as `recv` saw; the frame is ours
            // until the next `recv` (invariant 2), which wants `self` alone.
            unsafe { std::slice::from_raw_parts(memory.add(start).as_ptr(), length) }
        })
    }

    /// Frames that the kernel dropped because they were not taken.
    pub fn drops(&self) -> io::Result<u64> {
        drops(self)
    }
}

/// Like [`Receiver::drops`], by a receiver's socket.
pub fn drops(socket: &impl AsFd) -> io::Result<u64> {
    // SAFETY: all zeros is a valid value.
    let mut counts: libc::xdp_statistics = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&counts) as libc::socklen_t;
    let into = (&raw mut counts).cast();
    // SAFETY: the kernel writes at most `length` bytes into a value that has as many, and any
    // bytes are one.
    check(unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_STATISTICS, into, &raw mut length)
    })?;
    Ok(counts.rx_dropped + counts.rx_ring_full)
}

impl AsFd for Receiver {
    /// Readable while frames wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }
}

impl Sender {
    /// Room for the next frame, [`SENT_BYTES_MAX`] bytes with old content; `None` if all frames are
    /// in flight: call [`Sender::send`], and drop the frame if there is still none. Nothing is
    /// queued until [`Sender::commit`].
    #[inline]
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        if self.free.is_empty() {
            self.reclaim();
        }
        let start = usize::try_from(*self.free.last()?).ok()?;
        // SAFETY: free frames are in the sender's half (invariant 1; `reclaim` checks), are ours
        // (invariant 2), and each is borrowed once, since the slice borrows `self`.
        Some(unsafe {
            let start = self.shared.memory.start().add(start);
            std::slice::from_raw_parts_mut(start.as_ptr(), SENT_BYTES_MAX)
        })
    }

    /// Queues the first `length` bytes of the room that [`Sender::slot`] gave.
    ///
    /// # Panics
    /// When there was no such slot, or `length` is past its end.
    #[inline]
    pub fn commit(&mut self, length: usize) {
        assert!(length <= SENT_BYTES_MAX, "a frame fits its slot");
        let addr = self.free.pop().expect("a slot was given");
        // There is room: the ring has as many entries as the half has frames.
        self.ring.push(libc::xdp_desc { addr, len: length as u32, options: 0 });
        self.is_queued = true;
    }

    /// Sends the queued frames. Those that the kernel has no room for stay queued until the next
    /// call, or until the socket is waited for.
    pub fn send(&mut self) {
        if !self.is_queued {
            return;
        }
        self.ring.show();
        let mut calls = 0;
        while self.ring.wants_call() && calls < SEND_CALLS_MAX {
            let untaken = self.ring.untaken();
            if untaken == 0 {
                break;
            }
            let fd = self.shared.fd.as_raw_fd();
            // SAFETY: sends nothing but what is in the ring, which the kernel reads as the ring's
            // rules say.
            let sent =
                unsafe { libc::sendto(fd, ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
            calls += 1;
            // EAGAIN: there is more to do, or no room.
            if sent < 0 && self.ring.untaken() == untaken {
                break;
            }
        }
        self.is_queued = self.ring.untaken() > 0;
        self.reclaim();
    }

    /// Takes back the frames that were sent.
    fn reclaim(&mut self) {
        let own = self.shared.received_bytes as u64..self.shared.memory.bytes() as u64;
        while let Some(start) = self.done.pop() {
            // Invariant 3.
            if own.contains(&start) && start.is_multiple_of(FRAME_BYTES as u64) {
                self.free.push(start);
            }
        }
        self.done.free();
    }
}
