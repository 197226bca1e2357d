//! Options, counts and errors of a store.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_io::access::Access;
use larder_serve::log::Log;

use crate::privacy::Privacy;
use crate::query::Query;

/// Bytes of a segment, at least: room for its header and a packet of a usual length.
pub const SEGMENT_BYTES_MIN: u64 = 4 << 10;

/// Bytes of a segment, at most: places in it have 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Bytes of a batch's blocks, at most.
pub const BATCH_BYTES_MAX: usize = 256 << 20;

/// Options of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder; it is made if it does not exist.
    pub directory: PathBuf,
    /// Bytes of all closed segments with their indexes.
    pub budget_bytes: u64,
    /// A segment of this size is closed. At most a quarter of the budget and of the memory is used.
    pub segment_bytes: u64,
    /// A segment of this age is closed; 0: no limit of age.
    pub segment_ms: u64,
    /// Bytes of memory for segments that grow, and for closed ones while there is room.
    pub memory_bytes: u64,
    /// Time after which appended packets are in the file, ms.
    pub flush_ms: u32,
    /// A segment is on the disk before it counts as closed (`fdatasync`).
    pub sync: bool,
    /// The parts of packets that are not stored.
    pub privacy: Privacy,
    /// Closed segments are compressed.
    pub compress: bool,
    /// The program that runs for each closed segment.
    pub hook: Option<Hook>,
    /// [`Store::finish`](crate::Store::finish) waits until closed segments are compressed and their
    /// hooks have run.
    pub finishes_work: bool,
    /// Space of the disk that stays free: the oldest segments are deleted for it.
    pub reserve: Reserve,
    /// A segment is deleted when its last packet is older than this, by the time of day.
    pub age: Option<Duration>,
    /// Packets that outlive their segment.
    pub pins: Option<PinOptions>,
    /// Mode and group of the files.
    pub access: Access,
    /// Events are of the flows of all networks: VLANs and VNIs do not distinguish flows.
    pub ignores_vlan: bool,
    /// Where the store logs what it finds at the start, and failures of the disk.
    pub log: Log,
}

/// A program that runs for each closed segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its path, or its name in `PATH`. Its arguments are the paths of the segment and of its index.
    pub program: PathBuf,
    /// It is killed after this time.
    pub limit: Duration,
    /// The pause before it is tried again.
    pub pause: Duration,
}

impl Hook {
    /// Defaults: five minutes, and a pause of ten seconds.
    pub fn new(program: impl Into<PathBuf>) -> Hook {
        let (limit, pause) = (Duration::from_secs(300), Duration::from_secs(10));
        Hook { program: program.into(), limit, pause }
    }
}

/// What outlives its segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinOptions {
    /// Packets that match; without times, since they are compared when the segment is deleted.
    pub query: Query,
    /// Bytes of all pinned segments with their indexes; the oldest is deleted first.
    pub budget_bytes: u64,
    /// The first packets of each flow in a segment; `u32::MAX`: all.
    pub packets_of_flow: u32,
}

/// Space of a disk that stays free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the disk.
    Percent(u8),
}

impl Default for Reserve {
    /// All of the disk may be used.
    fn default() -> Reserve {
        Reserve::Bytes(0)
    }
}

impl Reserve {
    /// Bytes of a disk that has `total_bytes`.
    pub fn bytes_of(self, total_bytes: u64) -> u64 {
        match self {
            Reserve::Bytes(bytes) => bytes,
            Reserve::Percent(percent) => total_bytes / 100 * u64::from(percent),
        }
    }
}

impl Options {
    /// Defaults: segments of 64 MiB, 256 MiB of memory, a flush each 100 ms, whole packets.
    pub fn new(directory: impl Into<PathBuf>, budget_bytes: u64) -> Options {
        Options {
            directory: directory.into(),
            budget_bytes,
            segment_bytes: 64 << 20,
            segment_ms: 0,
            memory_bytes: 256 << 20,
            flush_ms: 100,
            sync: false,
            compress: false,
            hook: None,
            finishes_work: false,
            privacy: Privacy::default(),
            reserve: Reserve::default(),
            age: None,
            pins: None,
            access: Access::PRIVATE,
            ignores_vlan: false,
            log: Log::default(),
        }
    }
}

impl Options {
    /// Brings the sizes within their limits, for a store with this number of interfaces.
    pub(crate) fn limit(&mut self, interfaces: usize) -> Result<(), StoreError> {
        if interfaces == 0 || interfaces > 1 << 16 {
            return Err(StoreError::Options("a store has 1 to 65536 interfaces"));
        }
        if self.budget_bytes < 4 * SEGMENT_BYTES_MIN {
            return Err(StoreError::Options("a store has 16 KiB at least"));
        }
        self.memory_bytes = self.memory_bytes.max(4 << 20);
        self.segment_bytes = self
            .segment_bytes
            .min(self.budget_bytes / 4)
            .min(self.memory_bytes / 4)
            .clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        Ok(())
    }
}

/// Errors of a store.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process writes into this folder. Stop it, or choose another folder.
    Locked(PathBuf),
    /// The folder or a file in it cannot be read or written. See the source: permissions, a full disk.
    Io(PathBuf, io::Error),
    /// No packets are stored in this folder.
    NoStore(PathBuf),
    /// There is no memory for segments. Use less.
    Memory(io::Error),
    /// The batch contradicts itself, by a mistake of the caller; nothing of it was stored.
    Batch(&'static str),
    /// Impossible options.
    Options(&'static str),
}

impl StoreError {
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let path = path.to_owned();
        move |error| StoreError::Io(path, error)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Locked(path) => {
                write!(
                    f,
                    "{}: another process keeps packets here; stop it or choose another folder",
                    path.display()
                )
            }
            StoreError::NoStore(path) => {
                write!(f, "{}: no packets are stored here", path.display())
            }
            StoreError::Io(path, error) => write!(f, "{}: {error}", path.display()),
            StoreError::Memory(error) => {
                write!(f, "no memory for segments: {error}; give the store less")
            }
            StoreError::Batch(what) => write!(f, "a batch of packets is malformed: {what}"),
            StoreError::Options(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Io(_, error) | StoreError::Memory(error) => Some(error),
            _ => None,
        }
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the store was opened. Each only grows, but `bytes_kept`.
        #[derive(Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: AtomicU64,)*
            pub(crate) log: Log,
        }

        impl Counts {
            /// Name and value of each, in the order of their definition.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counts! {
    /// Packets that were appended.
    packets,
    /// Bytes of their blocks, as stored.
    bytes,
    /// Packets that were left out by sampling.
    packets_unsampled,
    /// Packets without memory: the disk is too slow.
    packets_dropped,
    /// Bytes of their blocks.
    bytes_dropped,
    /// Packets that were appended, and lost because a file could not be written.
    packets_lost,
    /// Bytes of their segments that were lost.
    bytes_lost,
    /// Flow events that were stored.
    flow_events,
    /// Flow events without memory.
    flow_events_dropped,
    /// Named flows that are not carried over into the next segment, because there are too many.
    flows_forgotten,
    /// Bytes of segments that were written to files.
    bytes_written,
    /// Closed segments.
    segments_closed,
    /// Segments that were deleted to keep the budget, the reserve or the age.
    segments_deleted,
    /// Packets that were pinned before their segment was deleted.
    packets_pinned,
    /// Packets that were to be pinned, and were deleted because the disk failed; of a segment that
    /// could not be searched, all.
    packets_not_pinned,
    /// Bytes of closed segments with their indexes, now.
    bytes_kept,
    /// Errors of the disk.
    disk_errors,
    /// Segments that were compressed.
    segments_compressed,
    /// Bytes of them before.
    bytes_before_compression,
    /// Bytes of their files.
    bytes_after_compression,
    /// Segments that could not be compressed.
    compressions_failed,
    /// Runs of the hook that succeeded.
    hooks_run,
    /// Runs of the hook that failed, or were killed.
    hooks_failed,
    /// Segments that were deleted before their hook succeeded.
    hooks_missed,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, value: u64) {
        count.fetch_add(value, Ordering::Relaxed);
    }
}
