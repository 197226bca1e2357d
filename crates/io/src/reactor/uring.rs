//! The reactor by io_uring: operations are written to a ring, and one system call a wait submits
//! them all and returns the completions.
//!
//! ```text
//! socket    receiving   idle -> armed -> idle              each receive fills a buffer of the kernel's choice
//!                               armed -> cancelling -> idle
//!           watching    the same, but it ends with the first event
//!           sending     a slot, from send to its completion
//!           close       cancels what is armed, then closes: both in the ring, in order
//! ```
//!
//! The caller's requests for a socket are recorded, and compared with the armed operations right
//! before the wait ([`State::settle`]): pausing and resuming in between costs nothing.
//!
//! A completion names its operation, its descriptor and the generation of that. [`Uring::close`]
//! changes the generation, so late completions find no socket. Sends find their slot, which has
//! their bytes.
//!
//! Needs Linux 6.0: receives that repeat, into buffers from a ring.
//!
//! Invariants
//! 1. The bytes of a send are in its slot, unmoved and unchanged, until its completion.
//! 2. Bytes to receive into are in `receive_buffers` (invariants there).
//! 3. If not all operations can be brought to their end, slots and buffers are leaked (`drop`).
//! 4. Closing goes through the ring, behind every entry that names the descriptor: no other
//!    connection gets its number before the kernel has read those. Listeners are copies of ours.
//! 5. A watch begins when receiving has ended, if it is to end: received bytes are reported first.
//!
//! Bounds: entries of the ring; when it is full they are submitted early. Cost: one system call per
//! wait, and no other; a request is a receive's and a send's completion. Tried without effect:
//! submitting sends early, every 8th to 32nd, so that the peer's core has work sooner.

mod receive_buffers;
mod slots;
mod state;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, opcode, squeue};

use self::receive_buffers::ReceiveBuffers;
use self::state::{Kind, Phase, State, name};
use super::batch::{Batch, Memory};
use super::send_buffers::SendBuffers;
use super::{Options, Sending, Waker, index_of, plain};
use crate::epoll::Interest;

pub(super) use receive_buffers::Region;

/// Most entries of the submission ring; the completion ring has four times as many.
const ENTRIES_MAX: usize = 4096;

/// Longest time that a reactor that is dropped waits for its operations to end.
const END_MAX: Duration = Duration::from_secs(1);

pub(super) struct Uring {
    queue: Queue,
    state: ManuallyDrop<State>,
    events_max: usize,
}

/// The rings.
struct Queue {
    ring: IoUring,
    /// Enabled by the thread that waits first, which alone may use it from then on.
    is_enabled: bool,
    /// Entries that the ring had no room for, in order.
    backlog: VecDeque<squeue::Entry>,
}

impl Queue {
    /// Adds an entry, whose memory is alive until its completion (invariants 1 and 2).
    fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() && self.try_push(&entry) {
            return;
        }
        // The next wait makes the same call, and reports a failure.
        if self.is_enabled && self.ring.submit().is_ok() {
            self.flush();
        }
        if !self.backlog.is_empty() || !self.try_push(&entry) {
            self.backlog.push_back(entry);
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: what the entry points to is alive until its completion, by the contract of
        // `push`.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    fn flush(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.try_push(&entry) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    fn cancel(&mut self, name: u64) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(name)).build();
        self.push_unanswered(entry);
    }

    /// Adds an entry whose success is not reported.
    fn push_unanswered(&mut self, entry: squeue::Entry) {
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        self.push(entry.user_data(name(Kind::Other, 0, 0)));
    }

    /// Submits the added entries, and waits for one completion if `is_waiting`.
    fn enter(&mut self, is_waiting: bool, timeout: Option<Duration>) -> io::Result<()> {
        if !self.is_enabled {
            self.ring.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        self.flush();
        let count = self.ring.submission().len() as u32;
        let time = timeout.map(Timespec::from);
        let arguments = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: as many entries as the ring holds, and arguments that live through the call.
        let entered = unsafe {
            let (submitter, wanted) = (self.ring.submitter(), u32::from(is_waiting));
            submitter.enter(count, wanted, flags.bits(), Some(&arguments))
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Time passed; a signal; there are completions to be taken first, or no memory now.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }
}

impl Uring {
    /// Rings and buffers, or an error with the reason.
    pub(super) fn new(options: &Options, waker: &Waker) -> io::Result<(Uring, Batch)> {
        let ring = build(options.events_max).map_err(explain)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(explain)?;
        // Added in 6.0, as the features that we need, which cannot be probed.
        if !probe.is_supported(opcode::SendZc::CODE) {
            return Err(too_old());
        }
        // SAFETY: `Uring::drop` drops them after the last operation that uses them (invariant 4 of
        // `receive_buffers`).
        let buffers =
            unsafe { ReceiveBuffers::register(&ring, options.buffers, options.receive_bytes) };
        let buffers = buffers.map_err(explain)?;
        let batch = Batch::new(Memory::Shared(Arc::clone(buffers.region())));
        let queue = Queue { ring, is_enabled: false, backlog: VecDeque::new() };
        let state = ManuallyDrop::new(State::new(buffers, waker.clone()));
        Ok((Uring { queue, state, events_max: options.events_max }, batch))
    }

    pub(super) fn listen(&mut self, listener: &TcpListener, token: u64) -> io::Result<()> {
        self.state.listen(listener.as_fd().try_clone_to_owned()?, token);
        Ok(())
    }

    pub(super) fn unlisten(&mut self, _: &TcpListener, token: u64) {
        if let Some(slot) = self.state.unlisten(token) {
            self.queue.cancel(name(Kind::Accept, slot, 0));
        }
    }

    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.state.change(fd, token, |socket| socket.should_receive = true);
        Ok(())
    }

    pub(super) fn pause(&mut self, fd: BorrowedFd<'_>, token: u64) {
        self.state.change(fd, token, |socket| socket.should_receive = false);
    }

    pub(super) fn watch(
        &mut self,
        fd: BorrowedFd<'_>,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        self.state.change(fd, token, |socket| socket.watched = Some(plain(interest)));
        Ok(())
    }

    pub(super) fn unwatch(&mut self, fd: BorrowedFd<'_>, token: u64) {
        self.state.change(fd, token, |socket| socket.watched = None);
    }

    pub(super) fn send(&mut self, fd: BorrowedFd<'_>, token: u64, bytes: Vec<u8>) -> Sending {
        let slot = self.state.begin_send(fd, token, bytes);
        self.state.push_send(slot, &mut self.queue);
        Sending::Later
    }

    pub(super) fn close(&mut self, fd: OwnedFd, token: u64) {
        let (index, socket) = (index_of(&fd), self.state.known(fd.as_fd(), token));
        if socket.receiving == Phase::Armed {
            self.queue.cancel(name(Kind::Receive, index, socket.generation));
        }
        if socket.watching == Phase::Armed {
            self.queue.cancel(name(Kind::Watch, index, socket.generation));
        }
        if let Some(slot) = socket.sending {
            self.queue.cancel(name(Kind::Send, slot, 0));
        }
        self.state.forget(index);
        let fd = Fd(fd.into_raw_fd());
        self.queue.push_unanswered(opcode::Close::new(fd).build());
    }

    pub(super) fn wait(
        &mut self,
        batch: &mut Batch,
        timeout: Option<Duration>,
        send_buffers: &mut SendBuffers,
    ) -> io::Result<usize> {
        let is_ours = match &batch.memory {
            Memory::Shared(region) => Arc::ptr_eq(region, self.state.buffers.region()),
            Memory::Owned(_) => false,
        };
        assert!(is_ours, "a batch serves the reactor that it was made with");
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        loop {
            // The batch is empty and borrowed, so no event can name a buffer.
            self.state.buffers.give_taken();
            self.state.settle(&mut self.queue);
            let is_waiting =
                left != Some(Duration::ZERO) && self.queue.ring.completion().is_empty();
            self.queue.enter(is_waiting, left)?;
            let is_any = self.take_completions(batch, send_buffers);
            if !is_any || !batch.is_empty() || left == Some(Duration::ZERO) {
                return Ok(batch.len());
            }
            // The completions were internal.
            left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        }
    }

    /// Moves completions to the batch, as far as it has room; true if there were any.
    fn take_completions(&mut self, batch: &mut Batch, send_buffers: &mut SendBuffers) -> bool {
        let mut is_any = false;
        let mut completions = self.queue.ring.completion();
        while batch.len() < self.events_max
            && let Some(completion) = completions.next()
        {
            is_any = true;
            self.state.complete(&completion, batch, send_buffers);
        }
        is_any
    }

    /// Brings all operations to their end; whether it could.
    fn end(&mut self) -> bool {
        let everything = CancelBuilder::any().all();
        self.queue.push_unanswered(opcode::AsyncCancel2::new(everything).build());
        let mut send_buffers = SendBuffers::new(0);
        let start = Instant::now();
        loop {
            let left = END_MAX.saturating_sub(start.elapsed());
            let is_waiting = self.state.under_way > 0 && self.queue.ring.completion().is_empty();
            if self.queue.enter(is_waiting, Some(left)).is_err() {
                return false;
            }
            let region = Arc::clone(self.state.buffers.region());
            // Late completions are dropped, with their connections.
            self.take_completions(&mut Batch::new(Memory::Shared(region)), &mut send_buffers);
            if self.state.under_way == 0 && self.queue.backlog.is_empty() {
                return true;
            }
            if left.is_zero() {
                return false;
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // Else all of it is leaked (invariant 3).
        if self.end() {
            // SAFETY: once, and nothing is used after it but the rings, of which no operation is
            // under way: the kernel has no more use for slots and buffers.
            unsafe { ManuallyDrop::drop(&mut self.state) };
        }
    }
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring").field("state", &*self.state).finish_non_exhaustive()
    }
}

/// Rings for one thread. Completions are made when the thread requests them (6.1), or else at its
/// next system call. The thread that waits enables the rings.
fn build(events_max: usize) -> io::Result<IoUring> {
    let entries = events_max.next_power_of_two().clamp(64, ENTRIES_MAX) as u32;
    let builder = || {
        let mut builder = IoUring::builder();
        builder.setup_submit_all().setup_cqsize(entries * 4).setup_r_disabled();
        builder
    };
    match builder().setup_single_issuer().setup_defer_taskrun().build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            builder().setup_coop_taskrun().build(entries)
        }
        result => result,
    }
}

/// Why there is no io_uring, in words.
fn explain(error: io::Error) -> io::Error {
    let text = match error.raw_os_error() {
        Some(libc::ENOSYS) => "the kernel has no io_uring".to_owned(),
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here (kernel.io_uring_disabled, or the container's seccomp filter)"
                .to_owned()
        }
        Some(libc::EINVAL) => return too_old(),
        Some(libc::ENOMEM) => "io_uring may not lock enough memory (RLIMIT_MEMLOCK)".to_owned(),
        _ => format!("io_uring: {error}"),
    };
    io::Error::new(error.kind(), text)
}

fn too_old() -> io::Error {
    let text = "the kernel's io_uring is older than Linux 6.0";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// A descriptor as entries name it.
fn raw(fd: &impl AsRawFd) -> Fd {
    Fd(fd.as_raw_fd())
}
