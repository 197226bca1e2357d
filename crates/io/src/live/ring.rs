//! One socket of AF_PACKET with its ring: blocks of memory that the kernel fills with frames and we
//! empty.
//! ```text
//! the kernel's   it writes frames, and we do not read            until: full, or `retire_ms` old and not empty
//! ours           we copy frames, and the kernel does not write   until: `give_back`
//! ```
//!
//! The owner of blocks changes in order, round and round. If the next block is still ours the
//! kernel drops frames and counts them (it *freezes*); it neither waits nor grows.
//!
//! Invariants
//! 1. The mapping has `block_count` blocks of `block_bytes`, and exists while the ring does.
//! 2. A block whose status has `TP_STATUS_USER` is ours: the kernel writes nothing to it until the
//!    status changes. Only `give_back` changes it, with Release after the last read; it borrows the
//!    ring mutably, so that no slice of the block is left.
//! 3. Only one value takes the blocks of a mapping.
//! 4. Of a block that the kernel owns we read only status and count, each a word that is read at
//!    once.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::block::{Copied, Cursor, Shape, copy, walk};
use super::socket::{RX_RING, SOL_PACKET, set_packet_option};

/// Offsets of a block's status and of its count of frames; `TP_STATUS_USER` in the status.
const STATUS_AT: usize = 8;
const COUNT_AT: usize = 12;
const USER: u32 = 1;
const KERNEL: u32 = 0;

/// In the status: the block's time was over before it was full.
const TIMED_OUT: u32 = 1 << 5;

/// Bytes of a block. A block accepts no more frames once its time is over, so blocks are small.
/// While the capture does not read, a ring of 64 MiB has room for 2,048 times `retire_ms`, or for
/// its number of bytes if that is less.
const BLOCK_BYTES: usize = 32 << 10;

/// Bytes of a block for frames of [`LONG_FROM_BYTES`] and more: enough for the longest that cards
/// and the kernel combine (64 KiB).
const LONG_BLOCK_BYTES: usize = 128 << 10;

/// Frames that are longer have a ring of their own: the kernel would cut them off at the end of a
/// block. A block has room for one frame of this length, the headers before it, and the kernel's
/// alignment of both.
pub(super) const LONG_FROM_BYTES: usize = BLOCK_BYTES - 512;

/// How many bytes of blocks are worth a batch before the time of the block that is being filled is
/// over.
const BATCH_BYTES: usize = 256 << 10;

/// Which frames a ring is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frames {
    /// Frames of at most [`LONG_FROM_BYTES`]; or all, if none can be longer.
    Usual,
    /// The longer ones.
    Long,
}

/// `struct tpacket_req3`.
#[repr(C)]
pub(super) struct Request {
    block_bytes: u32,
    block_count: u32,
    frame_bytes: u32,
    frame_count: u32,
    retire_ms: u32,
    private_bytes: u32,
    features: u32,
}

/// The geometry of a ring of this size, rounded down to whole blocks, two at least: bytes of a
/// block, and number of blocks.
pub(super) fn geometry(ring_bytes: u64, frames: Frames) -> (usize, usize) {
    let ring_bytes = usize::try_from(ring_bytes).unwrap_or(usize::MAX).min(1 << 31);
    let block_bytes = match frames {
        Frames::Usual => BLOCK_BYTES,
        Frames::Long => LONG_BLOCK_BYTES,
    };
    (block_bytes, (ring_bytes / block_bytes).max(2))
}

#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to the value; what is done with it is argued where it is done.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Ring::new`, and no borrow of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A socket's ring. It cannot be cloned, and no other value has `mapping` (invariant 3).
#[derive(Debug)]
pub(super) struct Ring {
    // Unmapped before the socket is closed.
    mapping: Mapping,
    socket: Arc<OwnedFd>,
    block_bytes: usize,
    block_count: usize,
    /// The next block to empty.
    at: usize,
    /// When each block from `at` on was seen to be ours, milliseconds, and whether its time was
    /// over.
    seen: VecDeque<(u64, bool)>,
    /// How many of them had their time over.
    timed_out: usize,
    /// How far `at` was read.
    cursor: Option<Cursor>,
    /// Blocks that contradicted themselves.
    malformed: u64,
}

impl Ring {
    /// Gives a socket a ring, before it is bound: so nothing is lost or seen that is not in the
    /// ring.
    pub fn new(
        socket: Arc<OwnedFd>,
        (ring_bytes, frames): (u64, Frames),
        retire_ms: u32,
    ) -> io::Result<Ring> {
        let (block_bytes, block_count) = geometry(ring_bytes, frames);
        let frame_bytes = 2048;
        let request = Request {
            block_bytes: block_bytes as u32,
            block_count: block_count as u32,
            frame_bytes,
            frame_count: (block_bytes / frame_bytes as usize * block_count) as u32,
            retire_ms: retire_ms.max(1),
            private_bytes: 0,
            features: 0,
        };
        set_packet_option(&socket, SOL_PACKET, RX_RING, &request)?;
        let bytes = block_bytes * block_count;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = socket.as_raw_fd();
        // SAFETY: a new mapping at an address that the kernel chooses; it shares blocks with the
        // kernel, which keeps to the rules of the file's head.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0) };
        let start = match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => start,
            _ => return Err(io::Error::last_os_error()),
        };
        let mapping = Mapping { start, bytes };
        let seen = VecDeque::with_capacity(block_count);
        Ok(Ring {
            mapping,
            socket,
            block_bytes,
            block_count,
            at: 0,
            seen,
            timed_out: 0,
            cursor: None,
            malformed: 0,
        })
    }

    /// Its socket.
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// Blocks that contradicted themselves since the last call.
    pub fn take_malformed(&mut self) -> u64 {
        std::mem::take(&mut self.malformed)
    }

    /// Looks for blocks that have become ours.
    pub fn discover(&mut self, now_ms: u64) {
        while self.seen.len() < self.block_count {
            let next = (self.at + self.seen.len()) % self.block_count;
            // Pairs with the kernel's barrier before it hands a block over: what it wrote is there.
            let status = self.word(next, STATUS_AT).load(Ordering::Acquire);
            if status & USER == 0 {
                return;
            }
            let is_timed_out = status & TIMED_OUT != 0;
            self.timed_out += usize::from(is_timed_out);
            self.seen.push_back((now_ms, is_timed_out));
        }
    }

    /// Whether the discovered frames are worth a batch: the time of a block was over, so that more
    /// would only wait; or they are many; or they waited for `batch_ms`; or some were delivered
    /// already.
    pub fn is_ripe(&self, now_ms: u64, batch_ms: u64) -> bool {
        let Some((seen_ms, _)) = self.seen.front() else { return false };
        self.timed_out > 0
            || self.seen.len() * self.block_bytes >= BATCH_BYTES
            || now_ms >= seen_ms + batch_ms
            || self.cursor.is_some()
    }

    /// When the block that is being emptied was seen to be ours, milliseconds; `None`: no block is
    /// ours.
    pub fn seen_ms(&self) -> Option<u64> {
        self.seen.front().map(|(seen_ms, _)| *seen_ms)
    }

    /// Whether the kernel has written frames into the next block, while no block is ours.
    pub fn has_unfinished(&self) -> bool {
        // It counts frames when they are written, from 0 (see `give_back`).
        self.seen.is_empty() && self.word(self.at, COUNT_AT).load(Ordering::Acquire) > 0
    }

    /// Whether most blocks wait, so that the kernel may soon have none.
    pub fn is_crowded(&self) -> bool {
        self.seen.len() * 2 > self.block_count
    }

    /// The stamp of the next frame in the discovered blocks, nanoseconds. Gives back blocks without
    /// further frames.
    pub fn head_ns(&mut self) -> Option<u64> {
        while !self.seen.is_empty() {
            let block = self.block();
            let cursor = self.cursor.unwrap_or_else(|| Cursor::begin(block));
            let time_ns = cursor.time_ns(block);
            self.cursor = Some(cursor);
            match time_ns {
                Some(time_ns) => return Some(time_ns),
                None => self.give_back(),
            }
        }
        None
    }

    /// Appends frames of the block that is being emptied, as [`copy`] does; the block is given back
    /// with its last one.
    pub fn copy(
        &mut self,
        shape: &Shape,
        until_ns: u64,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Copied {
        if self.seen.is_empty() {
            return Copied::default();
        }
        let block = self.block();
        let mut cursor = self.cursor.unwrap_or_else(|| Cursor::begin(block));
        let copied = copy(block, &mut cursor, shape, until_ns, bytes_max, out);
        let is_done = cursor.time_ns(block).is_none();
        self.cursor = Some(cursor);
        self.malformed += u64::from(copied.is_malformed);
        if is_done {
            self.give_back();
        }
        copied
    }

    /// Visits the frames of all blocks discovered, and gives these back. Frames and their bytes.
    pub fn walk(&mut self) -> (u64, u64) {
        let mut sum = (0, 0);
        while !self.seen.is_empty() {
            let block = self.block();
            let mut cursor = Cursor::begin(block);
            let (frames, bytes) = walk(block, &mut cursor);
            self.cursor = Some(cursor);
            sum = (sum.0 + frames, sum.1 + bytes);
            self.give_back();
        }
        sum
    }

    /// The block at `at`, which was discovered and not given back.
    fn block(&self) -> &[u8] {
        assert!(!self.seen.is_empty(), "the block is ours");
        let start = self.at * self.block_bytes;
        // SAFETY: within the mapping (invariant 1), ours, and so not written while it is borrowed
        // (invariant 2).
        unsafe {
            std::slice::from_raw_parts(self.mapping.start.add(start).as_ptr(), self.block_bytes)
        }
    }

    /// A word of a block's descriptor.
    fn word(&self, number: usize, at: usize) -> &AtomicU32 {
        assert!(number < self.block_count && at <= COUNT_AT);
        // SAFETY: within the mapping (invariant 1), a multiple of 4; shared with the kernel
        // (invariant 4), which uses it as an atomic too. Slices of our blocks are only read, and
        // the kernel does not write to these (invariant 2).
        unsafe { self.mapping.start.add(number * self.block_bytes + at).cast().as_ref() }
    }

    /// Gives the block at `at` back to the kernel.
    fn give_back(&mut self) {
        let given = self.seen.pop_front();
        assert!(given.is_some(), "the block is ours");
        self.timed_out -= usize::from(given.is_some_and(|(_, is_timed_out)| is_timed_out));
        // The block ended before it had the stated number of packets.
        let is_cut = self.cursor.take().is_some_and(|cursor| cursor.left() > 0);
        self.malformed += u64::from(is_cut);
        // The block is empty until the kernel begins with it.
        self.word(self.at, COUNT_AT).store(0, Ordering::Relaxed);
        // Pairs with the kernel's reads of the status: we have done with the block.
        self.word(self.at, STATUS_AT).store(KERNEL, Ordering::Release);
        self.at = (self.at + 1) % self.block_count;
    }
}
