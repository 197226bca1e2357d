//! The store: takes batches of packets, and never waits.
//!
//! ```text
//! phase of a segment     here                         the disk writer's thread
//! grows                  append fills and publishes   leases, writes, collects the flows
//! sealed                 full, old, failed, finish    writes the rest
//! closed                 -                            index, rename; the object stays while there is room
//! failed                 seals it and begins another  closes the file as it is; the rest is lost
//! ```
//!
//! Invariants
//! 1. Memory is checked before a batch is begun: the batch is in the segments whole, or counted as
//!    dropped. Only the writer takes from the arena, so free memory stays free until it is used.
//! 2. An event is in the segment's list before the packets of its batch are published, and the disk
//!    writer reads the published length before it takes the list: in the files, events are never
//!    later than their packets.
//!
//! Cost: a copy of the batch and a look at each block's header; see `cargo bench -p larder-store`.

mod pinned;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use larder_mem::object::{Filler, Kind, Notice, ObjectStore, Plan, Post, Room, StoreOptions};

use crate::block::{self, Interface, PACKET_BYTES};
use crate::catalog::{Catalog, Content, Hook, Segment};
use crate::disk::{Disk, Files};
use crate::disk_writer::{DiskWriter, warn_of_space};
use crate::files::{self, Identity};
use crate::flow_event::Batch;
use crate::growing::{Growing, Shared};
use crate::helpers::Helpers;
use crate::journal;
use crate::lock::{Lock, lock};
use crate::options::{BATCH_BYTES_MAX, Counts, Options, StoreError};
use crate::packet_offsets::PacketOffsets;
use crate::pins::Pins;
use crate::privacy::Rewriter;
use crate::{recover, source};

/// The event loop number of fillers of segments; no loop has it.
const LOOP: u32 = 63;

/// Bytes that are appended before the disk writer is woken.
const WAKE_BYTES: u64 = 1 << 20;

/// Memory of a segment besides the blocks of a batch, at most.
const ROOM_BYTES: u64 = 64 << 10;

/// Bytes of events that wait for the disk writer, at most.
const JOURNAL_BYTES_MAX: usize = 32 << 20;

/// Stores packets.
#[derive(Debug)]
pub struct Store {
    options: Options,
    interfaces: Vec<Interface>,
    memory: ObjectStore,
    shared: Arc<Shared>,
    current: Option<Current>,
    next: Identity,
    /// The number of the next packet; 0: any.
    next_packet: u64,
    packet_offsets: PacketOffsets,
    /// Cuts parts out of packets, if the options say so.
    rewriter: Option<Rewriter>,
    /// Bytes of all segments of this run.
    filled: u64,
    thread: Option<JoinHandle<()>>,
    /// The compressor, and the thread that runs hooks.
    helpers: Helpers,
    /// Locked while this process writes here.
    lock: Lock,
}

/// The segment that grows.
#[derive(Debug)]
struct Current {
    segment: Arc<Growing>,
    filler: Filler,
    opened: Instant,
    /// Bytes since the disk writer was woken.
    unwritten: u64,
}

/// Notifies no loop.
struct Silence;

impl Post for Silence {
    fn post(&self, _: Notice) {}
}

/// The destination of a part of a batch.
struct Part {
    /// The part begins a segment, with this header.
    begins: Option<(Identity, Vec<u8>)>,
    packets: Range<usize>,
    /// Position of its first packet.
    position: u64,
}

impl Store {
    /// Opens a folder, closes the segment of a killed writer, and begins to store packets there.
    pub fn open(options: Options, interfaces: &[Interface]) -> Result<Store, StoreError> {
        Store::open_posting(options, interfaces, Arc::new(Silence))
    }

    /// The same; `post` notifies readers of the catalog that are on an event loop (none has number
    /// 63).
    pub fn open_posting(
        options: Options,
        interfaces: &[Interface],
        post: Arc<dyn Post>,
    ) -> Result<Store, StoreError> {
        let files = Files::new(options.access);
        Store::open_on(options, interfaces, post, Box::new(files))
    }

    /// The same on another disk: for tests of slow or full ones.
    #[doc(hidden)]
    pub fn open_on(
        mut options: Options,
        interfaces: &[Interface],
        post: Arc<dyn Post>,
        mut disk: Box<dyn Disk>,
    ) -> Result<Store, StoreError> {
        options.limit(interfaces.len())?;
        let directory = options.directory.clone();
        let access = options.access;
        access.make_folder(&directory).map_err(StoreError::at(&directory))?;
        // A folder that others made, and may use as well, keeps its mode.
        if source::is_store(&directory).map_err(StoreError::at(&directory))? {
            access.apply(&directory).map_err(StoreError::at(&directory))?;
        }
        let (lock, numbered) = lock(&options)?;
        let log = options.log.clone();
        let catalog = Arc::new(Catalog::new(&options.directory, log.clone()));
        let counts = Arc::new(Counts { log, ..Counts::default() });
        let mut stored = recover::recover(&directory, access, &catalog, &counts)
            .map_err(StoreError::at(&directory))?;
        stored.next_number = stored.next_number.max(numbered);
        warn_of_space(&options, &stored, &mut *disk, &counts);
        let memory = ObjectStore::new(StoreOptions::of(options.memory_bytes), post)
            .map_err(StoreError::Memory)?;
        let shared = Arc::new(Shared::new(catalog, counts));
        let next = Identity { number: stored.next_number, position: stored.end, run: stored.end };
        let pins = Pins::new(&options, pinned::open_pinned);
        let disk_writer = DiskWriter::new(shared.clone(), options.clone(), disk, stored, pins);
        let thread = thread::Builder::new()
            .name("store".into())
            .spawn(move || disk_writer.run())
            .map_err(StoreError::at(&directory))?;
        let helpers = Helpers::start(&shared, &options, thread.thread())
            .map_err(StoreError::at(&directory))?;
        let mut interfaces = interfaces.to_vec();
        let snap_bytes = options.privacy.snap_bytes;
        for interface in interfaces.iter_mut().filter(|_| snap_bytes > 0) {
            interface.snap_bytes = match interface.snap_bytes {
                0 => snap_bytes,
                bytes => bytes.min(snap_bytes),
            };
        }
        Ok(Store {
            rewriter: Rewriter::new(&options.privacy, &interfaces),
            interfaces,
            memory,
            shared,
            current: None,
            next,
            next_packet: 0,
            packet_offsets: PacketOffsets::new(next.position),
            filled: 0,
            thread: Some(thread),
            helpers,
            lock,
            options,
        })
    }

    /// Stores a batch. Packets without memory are dropped, which is no error: see [`Counts`].
    pub fn append(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        self.check(batch)?;
        self.next_packet = batch.first_packet + batch.offsets.len() as u64;
        self.roll_if_due();
        let Some(mut rewriter) = self.rewriter.take() else {
            self.keep(batch, batch.offsets.len() as u64, None);
            return Ok(());
        };
        rewriter.rewrite(batch);
        let (blocks, offsets) =
            (std::mem::take(&mut rewriter.blocks), std::mem::take(&mut rewriter.offsets));
        let batch = Batch { blocks: &blocks, offsets: &offsets, ..*batch };
        let packets = offsets.len() as u64 - rewriter.unsampled;
        Counts::add(&self.shared.counts.packets_unsampled, rewriter.unsampled);
        self.keep(&batch, packets, Some(&mut rewriter));
        (rewriter.blocks, rewriter.offsets) = (blocks, offsets);
        self.rewriter = Some(rewriter);
        Ok(())
    }

    /// Stores the `packets` of a batch that are left; the others have no bytes.
    fn keep(&mut self, batch: &Batch<'_>, packets: u64, mut rewriter: Option<&mut Rewriter>) {
        let end = |index: usize| {
            batch.offsets.get(index).map_or(batch.blocks.len(), |offset| *offset as usize)
        };
        let parts = match batch.blocks.is_empty() {
            true => Vec::new(),
            false => self.plan(batch.offsets.len(), end),
        };
        if !self.make_room(batch.blocks.len() as u64, &parts) {
            let counts = &self.shared.counts;
            Counts::add(&counts.packets_dropped, packets);
            Counts::add(&counts.bytes_dropped, batch.blocks.len() as u64);
            return self.take_events(batch, rewriter);
        }
        // The positions of packets are known before the packets are published: events come first
        // (invariant 2).
        for part in &parts {
            let first = part.packets.start;
            let base = batch.offsets[first];
            let offsets = batch.offsets[part.packets.clone()].iter().map(|at| at - base).collect();
            let position_end = part.position + (end(part.packets.end) - end(first)) as u64;
            let number = batch.first_packet + first as u64;
            self.packet_offsets.push(number, part.position, offsets, position_end);
        }
        if parts.is_empty() {
            return self.take_events(batch, rewriter);
        }
        for (index, part) in parts.into_iter().enumerate() {
            if let Some((identity, header)) = part.begins {
                self.roll();
                self.begin(identity, &header);
            }
            if index == 0 {
                self.take_events(batch, rewriter.take());
            }
            let count = part.packets.clone().filter(|at| end(*at) < end(at + 1)).count();
            self.fill(&batch.blocks[end(part.packets.start)..end(part.packets.end)], count);
        }
    }

    /// Waits until there is memory for a batch of `bytes`: for files, which can wait; a network
    /// cannot. False when the disk has made no progress for `patience`; the batch is then dropped.
    pub fn wait_for_room(&self, bytes: u64, patience: Duration) -> bool {
        // Each of the possible segments has a header and a last page.
        let segments = 2 + bytes / self.options.segment_bytes.max(1);
        let wanted = bytes + segments * ROOM_BYTES;
        let counts = &self.shared.counts;
        let done = || {
            let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
            (load(&counts.bytes_written), load(&counts.bytes_lost), load(&counts.segments_closed))
        };
        let (mut before, mut since) = (done(), Instant::now());
        while self.memory.stats().free_bytes < wanted {
            if self.shared.catalog.let_go() {
                continue;
            }
            self.wake();
            thread::sleep(Duration::from_millis(1));
            let now = done();
            if now != before {
                (before, since) = (now, Instant::now());
            } else if since.elapsed() >= patience {
                return false;
            }
        }
        true
    }

    /// The segments, for readers in this process.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.shared.catalog
    }

    /// All counts.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.shared.counts
    }

    /// The options in force: sizes are within their limits.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Closes the last segment, and waits until all is on disk. Errors of the disk are in
    /// [`Store::counts`].
    pub fn finish(mut self) -> Result<(), StoreError> {
        if self.options.finishes_work {
            self.roll();
            self.helpers.finish_work(&self.shared.catalog, self.thread.as_ref());
        }
        match self.end() {
            true => Ok(()),
            false => Err(StoreError::Io(
                self.options.directory.clone(),
                std::io::Error::other("the thread that writes has failed"),
            )),
        }
    }

    fn end(&mut self) -> bool {
        self.roll();
        // First those that need the disk writer.
        self.helpers.end(&self.shared);
        self.shared.is_ending.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return true };
        thread.thread().unpark();
        thread.join().is_ok()
    }

    /// Refuses a batch that would make an unreadable file.
    fn check(&self, batch: &Batch<'_>) -> Result<(), StoreError> {
        let wrong = |what| Err(StoreError::Batch(what));
        if batch.blocks.len() > BATCH_BYTES_MAX {
            return wrong("it is too large");
        }
        if self.next_packet != 0 && batch.first_packet != self.next_packet {
            return wrong("it does not go on where the one before ended");
        }
        if batch.first_packet == 0 {
            return wrong("packets are numbered from 1");
        }
        let mut at = 0;
        for (index, offset) in batch.offsets.iter().enumerate() {
            let end =
                batch.offsets.get(index + 1).map_or(batch.blocks.len(), |next| *next as usize);
            let Some(found) = batch.blocks.get(at..end).filter(|_| *offset as usize == at) else {
                return wrong("offsets and blocks do not fit");
            };
            if block::block_len(found) != Ok(Some(found.len())) {
                return wrong("a block is not whole");
            }
            match block::packet(found) {
                None => return wrong("a block is no packet"),
                Some(packet) if packet.interface as usize >= self.interfaces.len() => {
                    return wrong("a packet of an interface that nobody has named");
                }
                Some(_) => at = end,
            }
        }
        if at != batch.blocks.len() {
            return wrong("bytes that are no packets");
        }
        Ok(())
    }

    /// Cuts a batch into parts that fit into segments.
    fn plan(&self, packets: usize, end: impl Fn(usize) -> usize) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut first = 0;
        let mut next = self.next;
        let mut used = self.current.as_ref().map(|current| current.filler.written());
        let mut position =
            self.current.as_ref().map_or(0, |current| current.segment.identity.position)
                + used.unwrap_or(0);
        let mut is_empty =
            self.current.as_ref().is_none_or(|current| current.segment.state().packets == 0);
        while first < packets {
            let mut begins = None;
            let bytes = match used {
                Some(bytes) => bytes,
                None => {
                    next.position = next.position.max(position);
                    let header = next.header(&self.interfaces);
                    let bytes = header.len() as u64;
                    position = next.position + bytes;
                    begins = Some((next, header));
                    next.number += 1;
                    is_empty = true;
                    bytes
                }
            };
            let room = self.options.segment_bytes.saturating_sub(bytes);
            let fits = |last: usize| (end(last) - end(first)) as u64 <= room;
            let mut last = last_where(first, packets, fits);
            if last == first && is_empty {
                last += 1;
            }
            if last > first {
                let bytes_new = (end(last) - end(first)) as u64;
                parts.push(Part { begins, packets: first..last, position });
                position += bytes_new;
            }
            first = last;
            // The rest goes into another segment.
            used = None;
        }
        parts
    }

    /// Makes room for these bytes and headers; false when there is none (1).
    fn make_room(&self, bytes: u64, parts: &[Part]) -> bool {
        let headers: usize =
            parts.iter().filter_map(|part| Some(part.begins.as_ref()?.1.len())).sum();
        // A segment's last page is not shared.
        let wanted = bytes + headers as u64 + 8192 * (parts.len() as u64 + 1);
        loop {
            if self.memory.stats().free_bytes >= wanted {
                return true;
            }
            if !self.shared.catalog.let_go() {
                return false;
            }
        }
    }

    fn begin(&mut self, identity: Identity, header: &[u8]) {
        // Frees a segment ahead of need: a client that still leases one returns it soon, not at
        // once.
        while self.memory.stats().free_bytes < self.options.segment_bytes
            && self.shared.catalog.let_go()
        {}
        let plan = Plan { loop_number: LOOP, bytes: None, kind: Kind::Stored };
        let filler = self.memory.create(plan);
        let segment = Arc::new(Growing {
            identity,
            object: filler.object().clone(),
            state: Mutex::default(),
        });
        self.shared.catalog.put(Segment {
            number: identity.number,
            first_position: identity.position,
            first_ns: None,
            last_ns: None,
            packets: 0,
            bytes: 0,
            is_closed: false,
            header: header.into(),
            content: Content::Memory(filler.object().clone()),
            file: None,
            is_final: false,
            hook: Hook::Waiting,
        });
        self.lock_queue().push_back(segment.clone());
        // Written before a client can ask for the segment, so that no other segment ever gets this
        // number.
        if let Err(error) = self.lock.note_number(identity.number + 1) {
            let path = files::lock(&self.options.directory);
            let line = self.shared.counts.log.error("lock file not written");
            line.text("path", path.display()).text("error", error);
        }
        self.next = Identity { number: identity.number + 1, ..identity };
        let current = Current { segment, filler, opened: Instant::now(), unwritten: 0 };
        self.current = Some(current);
        self.fill(header, 0);
    }

    fn lock_queue(&self) -> MutexGuard<'_, VecDeque<Arc<Growing>>> {
        self.shared.queue.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Adds blocks to the segment that grows, which has room for them.
    fn fill(&mut self, mut blocks: &[u8], packets: usize) {
        let current = self.current.as_mut().expect("a part goes into a segment that was begun");
        let (bytes, times) = (blocks.len() as u64, block::times(blocks, packets));
        self.filled += bytes;
        {
            let mut state = current.segment.state();
            state.packets += packets as u64;
            state.bytes += bytes;
            if state.is_failed {
                Counts::add(&self.shared.counts.packets_lost, packets as u64);
                Counts::add(&self.shared.counts.bytes_lost, bytes);
            }
        }
        while !blocks.is_empty() {
            let Room::Memory(room) = current.filler.room(blocks.len()) else {
                unreachable!("invariant 1: there was room for all of it");
            };
            let (now, later) = blocks.split_at(room.len().min(blocks.len()));
            room[..now.len()].copy_from_slice(now);
            current.filler.wrote(now.len());
            blocks = later;
        }
        current.filler.publish_now();
        let identity = current.segment.identity;
        self.next.position = identity.position + current.filler.written();
        self.shared.catalog.change(identity.number, |segment| {
            segment.packets += packets as u64;
            segment.bytes += bytes;
            if let Some((first_ns, last_ns)) = times {
                segment.first_ns.get_or_insert(first_ns);
                segment.last_ns = segment.last_ns.max(Some(last_ns));
            }
        });
        if packets > 0 {
            Counts::add(&self.shared.counts.packets, packets as u64);
            Counts::add(&self.shared.counts.bytes, bytes);
        }
        current.unwritten += bytes;
        if current.unwritten >= WAKE_BYTES {
            current.unwritten = 0;
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Adds the batch's events to the list of the segment that grows, with positions instead of
    /// numbers. If no segment grows, one is begun: flows end, and get late names, also without
    /// packets.
    fn take_events(&mut self, batch: &Batch<'_>, mut rewriter: Option<&mut Rewriter>) {
        if batch.events.is_empty() {
            return;
        }
        if self.current.is_none() {
            let header = self.next.header(&self.interfaces);
            if self.make_room(header.len() as u64, &[]) {
                self.begin(self.next, &header);
            }
        }
        let mut frames = Vec::new();
        for event in batch.events {
            let first = self.packet_offsets.name(event.first_packet);
            let end = event.end_packet.map(|number| self.packet_offsets.position(number));
            if end.is_some() {
                self.packet_offsets.forget(event.first_packet);
            }
            let mut event = journal::StoredEvent::of(event, first, end, self.options.ignores_vlan);
            if let Some(rewriter) = &mut rewriter {
                rewriter.event(&mut event);
            }
            journal::put(&mut frames, &event);
        }
        let counts = &self.shared.counts;
        let taken = self.current.as_ref().is_some_and(|current| {
            let mut state = current.segment.state();
            let has_room = state.journal.len() + frames.len() <= JOURNAL_BYTES_MAX;
            if has_room {
                state.journal.extend_from_slice(&frames);
            }
            has_room
        });
        let count = if taken { &counts.flow_events } else { &counts.flow_events_dropped };
        Counts::add(count, batch.events.len() as u64);
    }

    fn roll_if_due(&mut self) {
        let Some(current) = &self.current else { return };
        let age = Duration::from_millis(self.options.segment_ms);
        let is_old = !age.is_zero() && current.opened.elapsed() >= age;
        if is_old || current.segment.state().is_failed {
            self.roll();
        }
    }

    /// Ends the segment that grows.
    fn roll(&mut self) {
        let Some(current) = self.current.take() else { return };
        let identity = current.segment.identity;
        current.filler.seal();
        self.shared.catalog.change(identity.number, |segment| segment.is_closed = true);
        self.wake();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.end();
    }
}

/// The greatest of `first..=last` for which `fits` is true; it is true up to some value.
fn last_where(first: usize, last: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (first, last);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

/// Bytes of a packet's block with a frame of this length.
pub fn block_bytes(frame_bytes: usize) -> usize {
    PACKET_BYTES + frame_bytes.next_multiple_of(4)
}
