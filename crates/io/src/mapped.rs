//! A file mapped into memory, read-only, that other programs may truncate while larder reads it.
//!
//! Access to a mapped page that the file no longer has raises SIGBUS, which ends the process. A
//! handler maps a page of zeros there instead and marks the mapping; the reader then finds damage
//! at the end of the file, and reports it. A failing disk looks the same and is handled the same.
//!
//! ```text
//! state of a slot    start     written by
//! free               0         `Mapped::drop`, after the last borrow
//! claimed            1         `claim` (compare and swap)
//! live               address   `claim`, after `end` and `torn_at`
//! ```
//!
//! Invariants
//! 1. While a `Mapped` lives its slot is live, and `start..end` is a mapping made by it.
//! 2. The handler maps only whole pages inside a live slot: it never touches foreign memory.
//! 3. The slot is freed before the pages are, so no slot ever describes unmapped memory.
//!
//! # Safety of mapping
//!
//! `Mapped::bytes` is a `&[u8]`, whose bytes must not change. A program that writes to the file
//! changes them, also while they are borrowed. So [`Mapped::new`] is `unsafe`, and
//! [`Mapped::read_only`] maps only files that this program cannot write by the handle that it
//! passes. Writes of other programs cannot be prevented without a copy of the whole file. Two rules
//! limit them to damage: each parser checks a length where it reads and uses it, and keeps nothing
//! of what it has checked for a second read; and a page that is lost reads as zeros and is
//! reported.
//!
//! Bounds: [`MAPPINGS_MAX`] at once; past that mapping fails and the caller reads instead.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

#[cfg(target_os = "linux")]
use libc::__errno_location as errno_location;
#[cfg(not(target_os = "linux"))]
use libc::__error as errno_location;

/// Most files mapped at once.
pub const MAPPINGS_MAX: usize = 1024;

/// A reader releases pages behind it in units of this size: each release is a system call that
/// interrupts every core.
pub(crate) const RELEASE_BYTES: usize = 16 << 20;

/// A file in memory.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    len: usize,
    slot: &'static Slot,
}

// SAFETY: the memory is read-only for everyone in this process, and lives until `drop`, which
// owns the value.
unsafe impl Send for Mapped {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Mapped {}

#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// The lowest address that was lost; `usize::MAX` while none was.
    torn_at: AtomicUsize,
}

const CLAIMED: usize = 1;

static SLOTS: [Slot; MAPPINGS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        torn_at: AtomicUsize::new(usize::MAX),
    }
}; MAPPINGS_MAX];

/// The handler before ours. It is leaked, since a signal may come at any time.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

impl Mapped {
    /// Maps the first `len` bytes of `file`, which must be open for reading alone. The file may be
    /// closed afterwards, and may be truncated meanwhile ([`Mapped::torn_at`]). Writes of other
    /// programs to the file are visible. Fails if the handle can write, the kernel cannot map the
    /// file or too many files are mapped: read it instead.
    pub fn read_only(file: &File, len: usize) -> io::Result<Mapped> {
        // SAFETY: takes integers only, one of which is a descriptor that is open while it is
        // borrowed.
        let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        if flags < 0 {
            return Err(io::Error::last_os_error());
        }
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            let why = "a file that is open for writing is not mapped; read it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // SAFETY: this program does not write by this handle or a copy of it. The module's header
        // says how programs with handles of their own are handled.
        unsafe { Mapped::new(file, len) }
    }

    /// Maps the first `len` bytes of `file`. The file may be closed afterwards, and may be
    /// truncated meanwhile. Fails if the kernel cannot map it or too many files are mapped: read it
    /// instead.
    ///
    /// # Safety
    /// While the result exists, this program writes to none of the bytes that are borrowed from it.
    pub unsafe fn new(file: &File, len: usize) -> io::Result<Mapped> {
        install_handler()?;
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let slot = claim().ok_or_else(|| io::Error::other("too many mapped files"))?;
        // SAFETY: a new private mapping at an address that the kernel chooses aliases nothing.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        let start = match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => start,
            _ => {
                let error = io::Error::last_os_error();
                slot.start.store(0, Ordering::Release);
                return Err(error);
            }
        };
        slot.torn_at.store(usize::MAX, Ordering::Relaxed);
        slot.end.store(start.as_ptr() as usize + len, Ordering::Relaxed);
        // Pairs with the Acquire load in `on_sigbus`.
        slot.start.store(start.as_ptr() as usize, Ordering::Release);
        let mapped = Mapped { start, len, slot };
        mapped.advise(0..len, libc::MADV_SEQUENTIAL);
        Ok(mapped)
    }

    /// The file's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: by invariant 1 the range is mapped and readable while `self` lives; a page that
        // the file lost reads as zeros by way of the handler.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The lowest offset at which the file was shorter, or its disk failed, while it was read.
    pub fn torn_at(&self) -> Option<usize> {
        self.slot
            .torn_at
            .load(Ordering::Relaxed)
            .checked_sub(self.start.as_ptr() as usize)
            .filter(|offset| *offset < self.len)
    }

    /// Tells the kernel that the pages that lie wholly in `range` are not needed; it maps them
    /// again when they are read again. Keeps the resident size constant.
    pub fn release(&self, range: Range<usize>) {
        self.advise(range, libc::MADV_DONTNEED);
    }

    fn advise(&self, range: Range<usize>, advice: libc::c_int) {
        let page = PAGE_BYTES.load(Ordering::Relaxed);
        let start = range.start.next_multiple_of(page);
        let end = if range.end >= self.len { self.len } else { range.end / page * page };
        if start >= end {
            return;
        }
        // SAFETY: `start..end` lies inside our mapping (`end <= len`), which is private and never
        // written, so both kinds of advice leave its contents as the file has them. A failure is
        // no more than advice not taken.
        unsafe {
            libc::madvise(self.start.as_ptr().add(start).cast(), end - start, advice);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // Before the pages are unmapped: invariant 3.
        self.slot.start.store(0, Ordering::Release);
        // SAFETY: the range is the mapping that `new` made, and no borrow of it can live.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.len);
        }
    }
}

/// Takes a free slot.
fn claim() -> Option<&'static Slot> {
    SLOTS.iter().find(|slot| {
        slot.start.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Installs our handler before the current one, once in a process.
fn install_handler() -> io::Result<()> {
    static ONCE: Once = Once::new();
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    ONCE.call_once(|| {
        // SAFETY: asks the kernel for a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        PAGE_BYTES.store(usize::try_from(page).unwrap_or(4096), Ordering::Relaxed);
        // SAFETY: all zeros is a valid `sigaction`: default action, empty mask, no flags.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let previous = Box::into_raw(Box::new(action));
        action.sa_sigaction = on_sigbus as *const () as usize;
        // On the alternate stack where there is one: the standard library's handler, to which we
        // pass faults that are not ours, wants to run there.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: `previous` and `action` are valid; the handler restricts itself to what is safe
        // in a signal. The previous action is stored before ours can run.
        let installed = unsafe {
            libc::sigaction(libc::SIGBUS, ptr::null(), previous) == 0 && {
                PREVIOUS.store(previous, Ordering::Release);
                libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) == 0
            }
        };
        INSTALLED.store(installed, Ordering::Relaxed);
    });
    match INSTALLED.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err(io::Error::other("no handler for SIGBUS")),
    }
}

/// Runs on the thread that touched a lost page. Uses atomics and system calls only.
extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid `info` to a handler installed with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let hit = SLOTS.iter().find(|slot| {
        // Pairs with the Release stores in `new` and `drop`; read twice, in case the slot
        // changed hands between start and end.
        let start = slot.start.load(Ordering::Acquire);
        let end = slot.end.load(Ordering::Acquire);
        start > CLAIMED
            && (start..end).contains(&address)
            && slot.start.load(Ordering::Acquire) == start
    });
    match hit {
        Some(slot) if map_zeros(address) => {
            slot.torn_at.fetch_min(page_of(address), Ordering::Relaxed);
        }
        _ => pass_on(signal, info, context),
    }
}

/// The start of the page of `address`.
fn page_of(address: usize) -> usize {
    address & !(PAGE_BYTES.load(Ordering::Relaxed) - 1)
}

/// Puts a page of zeros over the page of `address`, which lies in a live slot (invariant 2).
fn map_zeros(address: usize) -> bool {
    // SAFETY: the page belongs to a live slot, so by invariant 1 to a mapping of ours (mappings
    // begin and end at page edges), and the faulting thread borrows it, so it is not being
    // unmapped. `errno` is put back: the interrupted code may be about to read it.
    unsafe {
        let errno = errno_location();
        let saved = *errno;
        let mapped = libc::mmap(
            page_of(address) as *mut libc::c_void,
            PAGE_BYTES.load(Ordering::Relaxed),
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        );
        *errno = saved;
        mapped != libc::MAP_FAILED
    }
}

/// Gives a fault that is not ours to the handler that was there before.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.load(Ordering::Acquire);
    // SAFETY: `PREVIOUS` is stored before the handler is installed and never freed. Its handler
    // has the signature that its own flags state. With the default action (and a fault can't be
    // ignored) that action is put back, and takes effect when the instruction faults again.
    unsafe {
        match (*previous).sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &action, ptr::null_mut());
                if (*info).si_code <= 0 {
                    // Sent by a process, not by a fault: nothing would bring it again.
                    libc::raise(signal);
                }
            }
            handler if (*previous).sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => {
                std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file that shrinks under its mapping reads as zeros after its end, is marked, and the
    /// process continues. Other mappings are not marked, and released pages can be read again.
    #[test]
    fn a_file_may_shrink_under_us() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7u8; 64 << 10]).unwrap();
        // SAFETY: the file is cut short below, and nothing else.
        let map = |len| unsafe { Mapped::new(&file, len) }.unwrap();
        let (mapped, other) = (map(64 << 10), map(4096));
        assert!(mapped.bytes().iter().all(|byte| *byte == 7));
        mapped.release(4096..32 << 10);
        assert_eq!(mapped.bytes()[9000], 7);
        file.set_len(8192).unwrap();
        assert_eq!(mapped.bytes()[8191], 7);
        assert_eq!(mapped.torn_at(), None);
        assert!(mapped.bytes()[8192..].iter().all(|byte| *byte == 0));
        assert_eq!((mapped.torn_at(), other.torn_at()), (Some(8192), None));
    }

    /// A fault in memory that is not mapped here still ends the process as it should: a child maps
    /// a file by other means, next to one of ours, and touches a page that the file lost. Invariant
    /// 2.
    #[test]
    fn foreign_faults_stay_fatal() {
        use std::os::unix::process::ExitStatusExt;
        const CHILD: &str = "LARDER_TEST_FOREIGN_FAULT";
        if std::env::var_os(CHILD).is_none() {
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "mapped::tests::foreign_faults_stay_fatal"])
                .env(CHILD, "1")
                .output()
                .unwrap()
                .status;
            assert_eq!(status.signal(), Some(libc::SIGBUS));
            return;
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        // SAFETY: the file is cut short below, and nothing else.
        let ours = unsafe { Mapped::new(&file, 8192) }.unwrap();
        // SAFETY: a new mapping, read within its length; that it faults is the point.
        unsafe {
            let (prot, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
            let foreign = libc::mmap(ptr::null_mut(), 8192, prot, flags, file.as_raw_fd(), 0);
            assert_ne!(foreign, libc::MAP_FAILED);
            file.set_len(0).unwrap();
            assert_eq!(ours.bytes()[5000], 0);
            ptr::read_volatile(foreign.cast::<u8>());
        }
        unreachable!("the fault above is fatal");
    }

    /// Nothing can be mapped of an empty file.
    #[test]
    fn an_empty_file_is_not_mapped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Mapped::read_only(&file.reopen().unwrap(), 0).is_err());
        assert!(Mapped::read_only(&File::open(file.path()).unwrap(), 0).is_err());
    }

    /// A file that this program has open for writing or appending is not mapped, so it cannot
    /// change behind a slice. Through another handle, for reading alone, it is mapped, and a real
    /// truncation reads as zeros and is reported.
    #[test]
    fn what_can_be_written_is_not_mapped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 8192]).unwrap();
        let mut options = [File::options(), File::options()];
        options[0].write(true);
        options[1].append(true);
        for options in options.iter_mut().map(|options| options.read(true)) {
            let error = Mapped::read_only(&options.open(file.path()).unwrap(), 8192).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let mapped = Mapped::read_only(&File::open(file.path()).unwrap(), 8192).unwrap();
        assert_eq!((mapped.bytes(), mapped.torn_at()), (&[7; 8192][..], None));
        file.as_file().set_len(4096).unwrap();
        assert_eq!((mapped.bytes()[4095], mapped.bytes()[4096]), (7, 0));
        assert_eq!(mapped.torn_at(), Some(4096));
    }
}
