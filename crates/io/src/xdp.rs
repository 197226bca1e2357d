//! AF_XDP: frames of a network interface, taken before the kernel processes them.
//!
//! ```text
//! open(options) --> a map, a socket for each queue, a program that gives them their frames     all or nothing
//! Receiver::recv, frames     Sender::slot, commit, send        a pair for each queue, used by one thread
//! all receivers dropped --> the program is detached, and the kernel has all frames again
//! ```
//!
//! | file | duty |
//! |---|---|
//! | `interface` | what must be known of an interface |
//! | `program` | the instructions that choose frames |
//! | `bpf` | programs, maps and their places, by bpf(2) |
//! | `ring`, `socket` | frames in memory shared with the kernel |
//!
//! It uses no C library, and no file in the BPF file system: all objects are descriptors, and end
//! with the process, however it ends.
//!
//! Needs Linux 5.9, a driver with native XDP (nearly all cards of servers; virtio, veth), and
//! `CAP_NET_ADMIN`, `CAP_BPF` and `CAP_NET_RAW`. Queues that an interface gets later are the
//! kernel's until the next start.

mod bpf;
mod interface;
mod program;
mod ring;
mod socket;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use interface::{Interface, QUEUES_MAX, local_addresses};
pub use program::TARGETS_MAX;
use program::{Action, Filter, Instruction, assemble, assemble_all};
pub use socket::{BATCH, RECEIVED_BYTES_MAX, Receiver, SENT_BYTES_MAX, Sender, drops};
use socket::{FRAME_BYTES, FRAMES, RECEIVED_FRAMES_MAX};

/// The frames to receive.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// The interface that receives the frames.
    pub interface: &'a Interface,
    /// UDP to these addresses and ports, at most [`TARGETS_MAX`]. A wildcard address matches only
    /// itself, which no packet has: list each address.
    pub targets: &'a [SocketAddr],
    /// Bytes of the longest frame; longer ones are the kernel's. At most [`RECEIVED_BYTES_MAX`].
    pub frame_bytes_max: usize,
}

/// A queue that is served.
#[derive(Debug)]
pub struct Queue {
    /// Its number.
    pub number: u32,
    /// Receives its frames.
    pub receiver: Receiver,
    /// Sends frames.
    pub sender: Sender,
    /// Whether the driver reads and writes our memory itself; otherwise the kernel copies each
    /// frame.
    pub is_zero_copy: bool,
}

/// How long to wait for queues in use: the kernel releases them some milliseconds after their
/// socket was closed, and a server that restarts should not fail because of its own old sockets.
const BUSY_MAX: Duration = Duration::from_secs(1);
const BUSY_POLL: Duration = Duration::from_millis(10);

/// Tries something until it is no longer in use, for a bounded time.
fn unless_busy<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < BUSY_MAX =>
            {
                std::thread::sleep(BUSY_POLL);
            }
            result => return result,
        }
    }
}

/// Keeps the program attached.
#[derive(Debug)]
struct Attachment {
    _link: OwnedFd,
}

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Find,
    Targets,
    Map,
    Program,
    Socket,
    Memory,
    Rings,
    Bind { queue: u32 },
    Attach,
}

/// Why XDP is not available. The text states what is missing and what to do; ordinary sockets serve
/// the same.
#[derive(Debug)]
pub struct XdpError {
    step: Step,
    interface: String,
    error: io::Error,
    said: String,
}

impl XdpError {
    fn new(step: Step, interface: &str, error: io::Error) -> XdpError {
        XdpError { step, interface: interface.to_owned(), error, said: String::new() }
    }

    /// What to do about it.
    fn next(&self) -> &'static str {
        let code = self.error.raw_os_error().unwrap_or(0);
        match (self.step, code) {
            (Step::Find, _) if self.error.kind() == io::ErrorKind::NotFound => {
                "there is no such interface: see 'ip link'"
            }
            (Step::Find, _) if self.error.kind() == io::ErrorKind::InvalidInput => {
                "it is no Ethernet interface"
            }
            (Step::Targets, _) => {
                "there are more addresses than a program can have: listen at fewer"
            }
            (_, libc::EPERM | libc::EACCES) => {
                "it needs root, or CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW"
            }
            (Step::Socket, libc::EAFNOSUPPORT) => "the kernel is built without CONFIG_XDP_SOCKETS",
            (Step::Map | Step::Program, libc::ENOSYS) => {
                "the kernel is built without CONFIG_BPF_SYSCALL"
            }
            (Step::Memory, libc::ENOBUFS | libc::ENOMEM) => {
                "memory for each queue must stay in memory: raise the limit (ulimit -l), or give CAP_IPC_LOCK"
            }
            (Step::Bind { .. }, libc::EBUSY) => "another program has a socket at this queue",
            (Step::Attach, libc::EBUSY | libc::EEXIST) => {
                "another program is there already: 'ip link show' names it, 'ip link set IFACE xdp off' removes it"
            }
            (Step::Attach, libc::EOPNOTSUPP) => "its driver has no native XDP",
            (Step::Attach, libc::EINVAL | libc::ENOSPC | libc::ERANGE) => {
                "its driver refuses: often an MTU above 3,500, or too few queues; 'dmesg' may tell"
            }
            _ => "it wants Linux 5.9 or later, and a driver with native XDP",
        }
    }
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.step {
            Step::Find => "the interface cannot be used",
            Step::Targets => "no program can be made",
            Step::Map => "the kernel makes no map of sockets",
            Step::Program => "the kernel does not take the program",
            Step::Socket => "there is no socket of AF_XDP",
            Step::Memory => "the kernel does not take the memory for frames",
            Step::Rings => "the kernel makes no rings",
            Step::Bind { queue } => return self.end(f, &format!("queue {queue} cannot be had")),
            Step::Attach => "the program cannot be put at the interface",
        };
        self.end(f, what)
    }
}

impl XdpError {
    fn end(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        write!(f, "{}: {what}: {}; {}", self.interface, self.error, self.next())?;
        if self.said.is_empty() { Ok(()) } else { write!(f, " (the verifier: {})", self.said) }
    }
}

impl std::error::Error for XdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Finds an interface by its name.
pub fn find(name: &str) -> Result<Interface, XdpError> {
    Interface::find(name).map_err(|error| XdpError::new(Step::Find, name, error))
}

/// Opens a socket for each queue of an interface and directs matching frames to it. From then on
/// ordinary sockets do not receive them. Opens all queues, or returns an error and opens none.
pub fn open(options: &Options<'_>) -> Result<Vec<Queue>, XdpError> {
    let filter = Filter {
        mac: options.interface.mac,
        targets: options.targets,
        frame_bytes_max: options.frame_bytes_max.min(RECEIVED_BYTES_MAX) as u16,
        without_socket: Action::Pass,
    };
    open_with(options.interface, FRAMES, |map| assemble(&filter, map))
}

/// Like [`open`], for every frame that the interface receives and that is no longer than
/// [`RECEIVED_BYTES_MAX`]: the kernel's network has only the longer ones while a receiver exists.
/// For interfaces that carry only captured traffic. Each queue has `queue_bytes` of memory for
/// frames, rounded down to a power of two, between 4 MiB and 128.
pub fn open_all(interface: &Interface, queue_bytes: u64) -> Result<Vec<Queue>, XdpError> {
    let frames = usize::try_from(queue_bytes).unwrap_or(usize::MAX) / FRAME_BYTES;
    let frames = 1 << frames.clamp(FRAMES, RECEIVED_FRAMES_MAX).ilog2();
    open_with(interface, frames, |map| assemble_all(RECEIVED_BYTES_MAX as u16, Action::Pass, map))
}

fn open_with(
    interface: &Interface,
    frames: usize,
    assemble: impl Fn(&OwnedFd) -> Option<Vec<Instruction>>,
) -> Result<Vec<Queue>, XdpError> {
    let failed = |step| move |error| XdpError::new(step, &interface.name, error);
    let map = bpf::create_map(interface.queues).map_err(failed(Step::Map))?;
    let program =
        assemble(&map).ok_or_else(|| failed(Step::Targets)(io::ErrorKind::InvalidInput.into()))?;
    let program = bpf::load(&program).map_err(|bpf::LoadError { error, said }| XdpError {
        said,
        ..failed(Step::Program)(error)
    })?;
    let mut queues = Vec::new();
    for number in 0..interface.queues {
        let socket::Bound { receiver, sender, is_zero_copy } =
            socket::open(interface, number, frames)?;
        bpf::set_socket(&map, number, &receiver).map_err(failed(Step::Bind { queue: number }))?;
        queues.push(Queue { number, receiver, sender, is_zero_copy });
    }
    // Last: from here on frames arrive.
    let link =
        unless_busy(|| bpf::attach(&program, interface.index)).map_err(failed(Step::Attach))?;
    let attachment = Arc::new(Attachment { _link: link });
    for queue in &mut queues {
        queue.receiver.attachment = Some(Arc::clone(&attachment));
    }
    Ok(queues)
}
