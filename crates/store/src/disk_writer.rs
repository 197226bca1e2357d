//! The disk writer: the one thread that writes segments to the disk, one after the other.
//!
//! It leases the published bytes, passes them to the kernel, waits until they are written, and
//! sleeps until there are more or [`Options::flush_ms`](crate::Options) have passed. A segment that
//! is sealed and written gets its index and its final name.
//!
//! Before it writes, it checks that the disk has room besides the reserve, and deletes the oldest
//! segments if not. If the disk fails all the same, the rest of that segment is lost: the file is
//! closed as it is, and the next segment is tried after a pause that doubles up to half a minute.
//! The operator gets one message when that begins and one when it ends.
//!
//! Between two writes it gives a segment that the compressor has finished its name, and deletes the
//! uncompressed one: no other thread renames or deletes files of closed segments.
//!
//! The budget is checked before a segment is created, and again when its index is known: the oldest
//! segment is deleted first, with all its files. The age of the oldest segment is checked once a
//! second, also while no packets come.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use larder_io::disk::PAGE_BYTES;
use larder_mem::object::{Phase, Reader, ReaderOptions};

use crate::block::Walker;
use crate::catalog::{Content, Hook, Segment};
use crate::disk::{Disk, is_full};
use crate::files::{self, Kind};
use crate::flow_names::FlowNames;
use crate::flows::Flows;
use crate::growing::{Compressed, Growing, Shared};
use crate::options::{Counts, Options};
use crate::pins::Pins;
use crate::recover::{self, StoredSegments};
use crate::{index, journal};

/// Bytes of one write, at most.
const PIECE_BYTES: u64 = 1 << 20;

/// Space that is freed before a segment is begun, and space that stays free for indexes and
/// journals.
const BEGIN_BYTES: u64 = 1 << 20;
const SPARE_BYTES_MIN: u64 = 64 << 10;
const SPARE_BYTES_MAX: u64 = 4 << 20;

/// Interval at which the age of the oldest segment is checked.
const AGE_CHECK: Duration = Duration::from_secs(1);

/// Longest pause after an error of the disk.
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct DiskWriter {
    shared: Arc<Shared>,
    options: Options,
    disk: Box<dyn Disk>,
    stored: StoredSegments,
    flow_names: FlowNames,
    seed: u64,
    /// The pause after the next error; `None`: the last segment was written.
    pause: Option<Duration>,
    /// The operator was told that segments are deleted because the disk is full.
    is_short: bool,
    pins: Option<Pins>,
    /// When the age of the oldest segment was checked.
    age_checked: Option<SystemTime>,
}

impl DiskWriter {
    pub fn new(
        shared: Arc<Shared>,
        options: Options,
        disk: Box<dyn Disk>,
        stored: StoredSegments,
        pins: Option<Pins>,
    ) -> DiskWriter {
        let (flow_names, seed) = (FlowNames::default(), Flows::seed());
        let disk_writer = DiskWriter {
            shared,
            options,
            disk,
            stored,
            flow_names,
            seed,
            pause: None,
            is_short: false,
            pins,
            age_checked: None,
        };
        disk_writer.note_kept();
        disk_writer
    }

    pub fn run(mut self) {
        // The budget may be smaller than in the last run.
        self.keep_budget(0);
        loop {
            // In this order: a segment that was queued before the end is seen.
            let is_ending = self.shared.is_ending.load(Ordering::Acquire);
            let segment = {
                let queue = self.shared.queue.lock();
                queue.unwrap_or_else(|poison| poison.into_inner()).pop_front()
            };
            match segment {
                Some(segment) => self.take(&segment),
                None if is_ending => return self.take_compressed(),
                None => thread::park_timeout(self.flush_every()),
            }
            self.take_compressed();
            self.keep_age();
        }
    }

    fn flush_every(&self) -> Duration {
        Duration::from_millis(u64::from(self.options.flush_ms.max(1)))
    }

    fn path(&self, number: u64, kind: Kind) -> PathBuf {
        files::path(&self.options.directory, number, kind)
    }

    /// Writes a segment from its beginning to its end.
    fn take(&mut self, segment: &Growing) {
        self.keep_budget(0);
        match self.write(segment).and_then(|flows| self.close(segment, &flows)) {
            Ok(()) => {
                if self.pause.take().is_some() {
                    let line = self.shared.counts.log.info("disk recovered");
                    line.text("directory", self.options.directory.display());
                }
            }
            Err(error) => self.fail(segment, &error),
        }
    }

    /// Writes a segment while it grows; returns its flows.
    fn write(&mut self, segment: &Growing) -> io::Result<Flows> {
        let number = segment.identity.number;
        let (part, journal_path) =
            (self.path(number, Kind::Growing), self.path(number, Kind::Journal));
        self.make_space(self.options.segment_bytes.min(BEGIN_BYTES))?;
        self.disk.begin(&part, &journal_path, &journal::header(&segment.identity))?;
        let options = ReaderOptions { loop_number: 63, lease_bytes_max: u64::MAX };
        // Its memory is revoked only after it is in the file.
        let mut reader =
            segment.object.open(0..u64::MAX, options).map_err(|_| io::ErrorKind::NotFound)?;
        let (mut walker, mut flows) = (Walker::default(), Flows::new(self.seed));
        let mut whole_at = Instant::now();
        loop {
            // The phase, then the published length, then the events: the opposite of the writer's
            // order.
            let is_whole = segment.object.phase() != Phase::Filling;
            let mut published = segment.object.published();
            // The end of the last page is written only when it is due: whole pages cost the least.
            let is_due = is_whole || whole_at.elapsed() >= self.flush_every();
            if is_due {
                whole_at = Instant::now();
            } else {
                published = (published / PAGE_BYTES * PAGE_BYTES).max(reader.position());
            }
            let frames = std::mem::take(&mut segment.state().journal);
            if !frames.is_empty() {
                journal::events(&frames).for_each(|event| self.flow_names.take(event));
                self.disk.append_journal(&frames)?;
            }
            let bytes = published - reader.position();
            if bytes > 0 {
                self.make_space(bytes)?;
                self.hand_over(&mut reader, published, |part| {
                    walker.feed(part, |offset, block| {
                        flows.block(offset, block);
                    });
                });
                self.disk.flush()?;
                Counts::add(&self.shared.counts.bytes_written, bytes);
            }
            if is_whole {
                return Ok(flows);
            }
            self.take_compressed();
            self.keep_age();
            thread::park_timeout(self.flush_every());
        }
    }

    /// Passes the published bytes up to `end` to the disk.
    fn hand_over(&mut self, reader: &mut Reader, end: u64, mut look: impl FnMut(&[u8])) {
        let mut leases = Vec::new();
        while reader.position() < end {
            let _ = reader.lease(&mut leases, PIECE_BYTES.min(end - reader.position()));
            for lease in leases.drain(..) {
                look(lease.as_bytes());
                self.disk.write(lease);
            }
        }
    }

    /// Closes a segment whose bytes are all in the file: index, name, catalog.
    fn close(&mut self, segment: &Growing, flows: &Flows) -> io::Result<()> {
        let number = segment.identity.number;
        self.disk.end(self.options.sync)?;
        let position = segment.identity.position;
        let bytes = segment.object.published();
        if flows.count == 0 && !self.flow_names.has_news() {
            self.delete(number);
            return Ok(());
        }
        let events = self.flow_names.of_segment(position, flows);
        let index_bytes = index::build(&segment.identity, bytes, flows, &events, false);
        let bytes_of_all = bytes + index_bytes.len() as u64;
        self.keep_budget(bytes_of_all);
        self.make_space(index_bytes.len() as u64)?;
        self.disk.save(
            &self.path(number, Kind::Index),
            &self.path(number, Kind::IndexPart),
            &index_bytes,
            self.options.sync,
        )?;
        let closed = self.path(number, Kind::Closed);
        fs::rename(self.path(number, Kind::Growing), &closed)?;
        let _ = fs::remove_file(self.path(number, Kind::Journal));
        self.shared.catalog.change(number, |kept| kept.file = Some(Content::File(closed, bytes)));
        self.forget(segment, flows);
        self.keep(number, bytes_of_all);
        Ok(())
    }

    /// Forgets the names of flows that have ended.
    fn forget(&mut self, segment: &Growing, flows: &Flows) {
        let position = segment.identity.position;
        self.flow_names.close(position, position + segment.object.published(), flows);
        let forgotten = std::mem::take(&mut self.flow_names.forgotten);
        Counts::add(&self.shared.counts.flows_forgotten, forgotten);
    }

    fn keep(&mut self, number: u64, bytes: u64) {
        self.stored.segments.push_back((number, bytes));
        Counts::add(&self.shared.counts.segments_closed, 1);
        self.keep_budget(0);
        self.shared.wake_helpers();
    }

    /// Puts a compressed segment into the place of the other, if there is one.
    fn take_compressed(&mut self) {
        let Some(compressed) = *self.shared.compressed() else { return };
        self.place(compressed);
        // Only now: the compressor then looks for the next one, and must not find this one again.
        *self.shared.compressed() = None;
        self.shared.wake_helpers();
    }

    fn place(&mut self, compressed: Compressed) {
        let number = compressed.number;
        let aside = self.path(number, Kind::CompressedPart);
        let stored = self.stored.segments.iter().position(|(stored, _)| *stored == number);
        let Some(stored) = stored else {
            // The budget has deleted it meanwhile.
            let _ = fs::remove_file(aside);
            return;
        };
        let (plain, path) = (self.path(number, Kind::Closed), self.path(number, Kind::Compressed));
        if let Err(error) = fs::rename(&aside, &path) {
            let line = self.shared.counts.log.error("segment not compressed");
            line.text("path", plain.display()).text("error", error);
            Counts::add(&self.shared.counts.compressions_failed, 1);
            let _ = fs::remove_file(aside);
            self.shared.catalog.change(number, |segment| segment.is_final = true);
            return;
        }
        let mut before = 0;
        self.shared.catalog.change(number, |segment| {
            before = segment.on_disk().map_or(0, |(bytes, _)| bytes);
            let file = Content::Compressed(path, compressed.bytes);
            if matches!(segment.content, Content::File(..)) {
                segment.content = file.clone();
            }
            (segment.file, segment.is_final) = (Some(file), true);
        });
        // Last: readers that find no uncompressed file find the other.
        let _ = fs::remove_file(plain);
        if let Some((_, bytes)) = self.stored.segments.get_mut(stored) {
            *bytes = (*bytes + compressed.bytes).saturating_sub(before);
        }
        let counts = &self.shared.counts;
        Counts::add(&counts.segments_compressed, 1);
        Counts::add(&counts.bytes_before_compression, before);
        Counts::add(&counts.bytes_after_compression, compressed.bytes);
        self.note_kept();
    }

    /// Handles an error of the disk: the bytes in the file stay, as a segment of its own.
    fn fail(&mut self, segment: &Growing, error: &io::Error) {
        let number = segment.identity.number;
        let _ = self.disk.end(false);
        let Options { directory, access, .. } = &self.options;
        let (closed, result) =
            recover::close_part(directory, *access, &segment.identity, &self.flow_names, self.seed);
        let counts = &self.shared.counts;
        Counts::add(&counts.disk_errors, 1);
        let frames = {
            // The writer counts the packets after this.
            let mut state = segment.state();
            state.is_failed = true;
            Counts::add(&counts.packets_lost, state.packets.saturating_sub(closed.packets));
            Counts::add(&counts.bytes_lost, state.bytes.saturating_sub(closed.bytes));
            std::mem::take(&mut state.journal)
        };
        journal::events(&frames).for_each(|event| self.flow_names.take(event));
        self.forget(segment, &Flows::new(self.seed));
        // A segment that could not be closed stays as it is, and the next start tries again.
        match closed.bytes_of_all == 0 && result.is_ok() {
            true => self.delete(number),
            false => {
                self.shared.catalog.change(number, |kept| {
                    kept.content = Content::File(closed.path.clone(), closed.bytes);
                    match result {
                        Ok(()) => kept.file = Some(kept.content.clone()),
                        Err(_) => (kept.is_final, kept.hook) = (true, Hook::Failed),
                    }
                    kept.bytes = closed.bytes;
                    kept.packets = closed.packets;
                    kept.last_ns = closed.last_ns;
                    kept.is_closed = true;
                });
                // Readers continue from the file: slow ones hold no memory.
                segment.object.revoke();
                self.shared.catalog.tell();
                self.keep(number, closed.bytes_of_all);
            }
        }
        let has_deleted = is_full(error) && self.delete_oldest(self.options.segment_bytes);
        if self.pause.is_none() {
            let line = self.shared.counts.log.error("disk failed, packets are dropped");
            let path = self.path(number, Kind::Growing);
            line.text("path", path.display()).text("error", error);
        }
        let pause = self.pause.unwrap_or(10 * self.flush_every()).min(PAUSE_MAX);
        // After older packets were deleted for new ones there is nothing to wait for.
        if has_deleted {
            self.pause = Some(pause);
            return;
        }
        self.pause = Some(pause * 2);
        self.keep_budget(0);
        let until = Instant::now() + pause;
        while !self.shared.is_ending.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }

    /// Deletes the oldest segments until `bytes` more are within the budget.
    fn keep_budget(&mut self, bytes: u64) {
        let mut sum: u64 = self.stored.segments.iter().map(|(_, bytes)| bytes).sum();
        while sum + bytes > self.options.budget_bytes {
            let Some((number, gone)) = self.stored.segments.pop_front() else { break };
            sum -= gone;
            self.retire(number);
        }
        self.note_kept();
    }

    /// Deletes the oldest segments whose last packets are too old, by the time of day.
    fn keep_age(&mut self) {
        let Some(age) = self.options.age else { return };
        let now = self.disk.now();
        // It is due also after the clock was set back.
        let since_check = self.age_checked.and_then(|checked| now.duration_since(checked).ok());
        if since_check.is_some_and(|since| since < AGE_CHECK) {
            return;
        }
        self.age_checked = Some(now);
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let oldest_ns = now.saturating_sub(age).as_nanos();
        let mut has_deleted = false;
        loop {
            let catalog = &self.shared.catalog;
            // A clock may have been wrong: no packet is later than the end of its segment.
            let closed_ns = |number: u64| {
                let about = fs::metadata(self.path(number, Kind::Index)).ok()?;
                let since = about.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
                i64::try_from(since.as_nanos()).ok()
            };
            let last_ns = |number: u64| {
                let last_ns = catalog.get(number)?.last_ns?;
                Some(closed_ns(number).map_or(last_ns, |closed_ns| closed_ns.min(last_ns)))
            };
            // A segment without packets is deleted with the next one that has some.
            let mut stored = self.stored.segments.iter().enumerate();
            let first = stored.find_map(|(at, (number, _))| Some((at, last_ns(*number)?)));
            let is_old = |last_ns: i64| u128::try_from(last_ns).unwrap_or(0) < oldest_ns;
            let Some((at, _)) = first.filter(|(_, last_ns)| is_old(*last_ns)) else { break };
            let gone: Vec<(u64, u64)> = self.stored.segments.drain(..=at).collect();
            for (number, _) in gone {
                self.retire(number);
            }
            has_deleted = true;
        }
        if has_deleted {
            self.note_kept();
        }
    }

    /// Deletes the oldest segments until the disk has room for `bytes` more, besides the reserve.
    /// An error: it has not, and no segment is left. If the space is unknown, the next write tells.
    fn make_space(&mut self, bytes: u64) -> io::Result<()> {
        let Ok(space) = self.disk.space(&self.options.directory) else { return Ok(()) };
        let reserve = self.options.reserve.bytes_of(space.total_bytes);
        let spare = (self.options.segment_bytes / 8).clamp(SPARE_BYTES_MIN, SPARE_BYTES_MAX);
        // Pinned packets need room before their segment is deleted; else older pinned ones are deleted
        // for it.
        let copy = if self.pins.is_some() { self.options.segment_bytes + 2 * spare } else { 0 };
        let wanted = reserve.saturating_add(bytes).saturating_add(spare + copy);
        // Counts deleted bytes, not free space: some file systems free it later.
        let lacking = wanted.saturating_sub(space.free_bytes);
        if lacking == 0 || self.delete_oldest(lacking) || space.free_bytes >= reserve + bytes {
            return Ok(());
        }
        let text = match reserve {
            0 => return Ok(()),
            _ => {
                "less space is free than is to stay free, and there are no older packets to delete"
            }
        };
        Err(io::Error::new(io::ErrorKind::StorageFull, text))
    }

    /// Deletes the oldest segments, at least `bytes` of them if there are; false when there was
    /// none.
    fn delete_oldest(&mut self, bytes: u64) -> bool {
        let mut deleted = 0;
        while deleted < bytes
            && let Some((number, gone)) = self.stored.segments.pop_front()
        {
            deleted += gone;
            self.retire(number);
        }
        self.note_kept();
        if deleted > 0 && !std::mem::replace(&mut self.is_short, true) {
            let line = self.shared.counts.log.warn("disk full, the oldest packets are deleted");
            line.text("directory", self.options.directory.display())
                .number("budget_bytes", self.options.budget_bytes);
        }
        deleted > 0
    }

    fn note_kept(&self) {
        let sum = self.stored.segments.iter().map(|(_, bytes)| bytes).sum();
        self.shared.counts.bytes_kept.store(sum, Ordering::Relaxed);
    }

    /// Deletes a closed segment after its pinned packets were copied.
    fn retire(&mut self, number: u64) {
        if let Some(pins) = &mut self.pins {
            let counts = &self.shared.counts;
            match pins.take(number) {
                Ok(pinned) => {
                    Counts::add(&counts.packets_pinned, pinned.packets);
                    Counts::add(&counts.packets_not_pinned, pinned.failed);
                }
                Err(error) => {
                    let segment = self.shared.catalog.get(number);
                    let packets = segment.map_or(0, |segment| segment.packets);
                    Counts::add(&counts.packets_not_pinned, packets);
                    let line = counts.log.error("packets not pinned");
                    line.number("segment", number).text("error", error);
                }
            }
        }
        self.delete(number);
        Counts::add(&self.shared.counts.segments_deleted, 1);
    }

    fn delete(&mut self, number: u64) {
        for (kind, _) in files::SUFFIXES {
            let _ = fs::remove_file(self.path(number, kind));
        }
        let segment = self.shared.catalog.remove(number);
        let is_missed = |segment: &Segment| {
            segment.file.is_some() && matches!(segment.hook, Hook::Waiting | Hook::Failed)
        };
        if self.options.hook.is_some() && segment.as_ref().is_some_and(is_missed) {
            Counts::add(&self.shared.counts.hooks_missed, 1);
            let line = self.shared.counts.log.warn("segment deleted before its hook succeeded");
            line.number("segment", number);
        }
    }
}

/// Reports a budget that exceeds the space of the disk.
pub(crate) fn warn_of_space(
    options: &Options,
    stored: &StoredSegments,
    disk: &mut dyn Disk,
    counts: &Counts,
) {
    let Ok(space) = disk.space(&options.directory) else { return };
    let own: u64 = stored.segments.iter().map(|(_, bytes)| bytes).sum();
    let reserve = options.reserve.bytes_of(space.total_bytes);
    let room = (space.free_bytes + own).saturating_sub(reserve);
    let wanted = options.budget_bytes.saturating_add(options.segment_bytes);
    if wanted > room {
        let line = counts.log.warn("budget exceeds the disk");
        line.text("directory", options.directory.display())
            .number("budget_bytes", options.budget_bytes)
            .number("free_bytes", space.free_bytes)
            .number("stored_bytes", own)
            .number("reserve_bytes", reserve)
            .text("hint", "the oldest packets are deleted when the disk is full");
    }
}
