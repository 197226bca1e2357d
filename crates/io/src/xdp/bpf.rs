//! The kernel's side of a program: a map of sockets, the program in it, and its place at an
//! interface.
//!
//! Each is a descriptor. The kernel's object exists as long as one of them is open, so all of it
//! ends with the process, however it ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::program::Instruction;
use crate::socket::owned;

/// Commands of bpf(2).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_DRV_MODE`: by the driver, before the kernel processes a frame.
const BY_DRIVER: u32 = 1 << 2;

/// Bytes of the verifier's log.
const LOG_BYTES: usize = 1 << 16;

/// Attributes of the commands, as far as they are set; the kernel reads the rest as zeros.
trait Attributes {}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries_max: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    program_type: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

impl Attributes for MapCreate {}
impl Attributes for MapUpdate {}
impl Attributes for ProgramLoad {}
impl Attributes for LinkCreate {}

/// # Safety
/// Addresses in `attributes` are those of memory that the command may read, or write, and that
/// lives through the call.
unsafe fn bpf<A: Attributes>(command: libc::c_int, attributes: &mut A) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads and writes no more bytes than the size given, of which any are a
    // value, and by the contract the pointers in them are valid.
    let returned = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<A>())
    };
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned as libc::c_int) }
}

fn number(fd: &impl AsFd) -> u32 {
    // A descriptor that is open is not negative.
    fd.as_fd().as_raw_fd() as u32
}

/// A map from numbers of queues, below `queues`, to sockets. It is empty.
pub(super) fn create_map(queues: u32) -> io::Result<OwnedFd> {
    let mut attributes =
        MapCreate { map_type: MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, entries_max: queues };
    // SAFETY: no addresses; what it makes is ours.
    unsafe { owned(bpf(MAP_CREATE, &mut attributes)?) }
}

/// Gives a queue its socket, which must be bound to it.
pub(super) fn set_socket(map: &OwnedFd, queue: u32, socket: &impl AsFd) -> io::Result<()> {
    let socket = number(socket);
    let mut attributes = MapUpdate {
        map: number(map),
        padding: 0,
        key: (&raw const queue) as u64,
        value: (&raw const socket) as u64,
        flags: 0,
    };
    // SAFETY: key and value live here, and have the lengths that the map was made with.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes)? };
    Ok(())
}

/// Why a program is not taken.
#[derive(Debug)]
pub(super) struct LoadError {
    /// The kernel's.
    pub error: io::Error,
    /// The verifier's last message, if any.
    pub said: String,
}

/// Gives the kernel a program.
pub(super) fn load(program: &[Instruction]) -> Result<OwnedFd, LoadError> {
    load_with_log(program, None).or_else(|_| {
        // A second time with a log, which costs the verifier time.
        let mut log = vec![0; LOG_BYTES];
        load_with_log(program, Some(&mut log)).map_err(|error| {
            let length = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            let text = String::from_utf8_lossy(&log[..length]);
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            LoadError { error, said: lines[lines.len().saturating_sub(3)..].join(" | ") }
        })
    })
}

fn load_with_log(program: &[Instruction], log: Option<&mut [u8]>) -> io::Result<OwnedFd> {
    let (log_level, log_bytes, log) = match log {
        Some(log) => (1, log.len() as u32, log.as_mut_ptr() as u64),
        None => (0, 0, 0),
    };
    let mut attributes = ProgramLoad {
        program_type: PROG_TYPE_XDP,
        count: u32::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        instructions: program.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        log_level,
        log_bytes,
        log,
        kernel_version: 0,
        flags: 0,
        name: *b"larder_dns\0\0\0\0\0\0",
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: the kernel reads `count` instructions and the license up to its zero, and writes at
    // most `log_bytes` bytes of the log, which has no other user; all live through the call. The
    // result is ours.
    unsafe { owned(bpf(PROG_LOAD, &mut attributes)?) }
}

/// Attaches a program to an interface, by its driver, until the link is closed. Fails with `EBUSY`
/// or `EEXIST` if there is another one, with `EOPNOTSUPP` if the driver does not support it.
pub(super) fn attach(program: &OwnedFd, interface: u32) -> io::Result<OwnedFd> {
    let mut attributes = LinkCreate {
        program: number(program),
        interface,
        attach_type: ATTACH_XDP,
        flags: BY_DRIVER,
    };
    // SAFETY: no addresses; what it makes is ours.
    unsafe { owned(bpf(LINK_CREATE, &mut attributes)?) }
}

/// Runs a program over a frame, and returns its result. For tests.
#[cfg(test)]
pub(super) fn run(program: &OwnedFd, frame: &[u8]) -> io::Result<u32> {
    const PROG_TEST_RUN: libc::c_int = 10;
    #[repr(C)]
    struct TestRun {
        program: u32,
        returned: u32,
        bytes_in: u32,
        bytes_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }
    impl Attributes for TestRun {}
    let mut attributes = TestRun {
        program: number(program),
        returned: u32::MAX,
        bytes_in: frame.len() as u32,
        bytes_out: 0,
        data_in: frame.as_ptr() as u64,
        data_out: 0,
        repeat: 1,
        duration: 0,
    };
    // SAFETY: the kernel reads the frame, which lives through the call.
    unsafe { bpf(PROG_TEST_RUN, &mut attributes)? };
    Ok(attributes.returned)
}
