//! Many cores, one result: batches in flight, and who does what to them.
//!
//! ```text
//! step     done by                       order                         may run beside
//! read     whoever holds the source      batch order                   everything
//! decode   any worker                    any                           everything
//! learner     one worker at a time          batch order                   decode, flows of earlier
//! flows    each worker, its own shards   batch order for each worker   everything
//! write    one worker at a time          batch order                   everything
//! ```
//!
//! There are no special threads: every worker does whatever is due, the steps nearest to the output
//! first. One mutex guards the schedule; it is taken a few times a batch, never a packet.
//!
//! Invariants
//! 1. `write_next <= flows_next[w] <= edge_next <= read_next <= write_next + depth`.
//! 2. Flows of batch *k* see names at the log position that the learner's commit of batch *k* gave.
//! 3. A worker waits for input only while no batch is in flight: others may need its shards. A
//!    source that had nothing is asked again when a batch was written.
//! 4. Nothing that a step computes depends on which worker runs it, or when.
//!
//! When the names' delta log is full (a small budget, many answers), the learner *stalls*: every worker
//! finishes the batches before and syncs its reader to the log's end (harmless, by the overlay).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use larder_io::batch::{Batch, Polled, Source};
use larder_wire::capture::Capture;

use crate::decode::{Counts, Decoded, Keying, decode, decode_from};
use crate::learn::NameLearner;
use crate::names::Committed;
use crate::worker::{BatchInput, Output, Worker};
use crate::{Error, Progress};

/// Where finished batches go, in order.
pub trait Sink: Send {
    /// Takes what the workers made of one batch. `batch` is `None` for the flows that were open
    /// when the input ended.
    fn batch(&mut self, work: &Work, outputs: &mut [Output]) -> Result<(), Error>;
}

/// One batch on its way.
#[derive(Default)]
pub struct Work {
    /// Its number.
    pub number: u64,
    /// Its bytes; `None` for a pseudo-batch after the end of the input.
    pub batch: Option<Batch>,
    /// Of a pseudo-batch: open flows whose first packet is before this one end in it.
    pub finish_before: u64,
    /// Its packets.
    pub decoded: Decoded,
    /// Packets before it.
    pub packets_before: u64,
    /// Latest packet time so far, ns.
    pub time_ns: i64,
    /// Time of the input's first packet, ns.
    pub capture_start_ns: i64,
    /// Names as of this batch; set by the learner.
    pub committed: Option<Committed>,
    /// Answers learned in it, where `dns.log` is wanted.
    pub answers: Vec<crate::learn::AnswerLine>,
}

impl Work {
    /// The clock was set by so much before it, ns; 0: it was not.
    fn clock_step_ns(&self) -> i64 {
        self.batch.as_ref().map_or(0, |batch| batch.clock_step_ns)
    }
}

/// Packets whose open flows end in one pseudo-batch: bounds the records that are held at once.
const FINISH_PACKETS: u64 = 1 << 16;

/// What the learner keeps from batch to batch.
struct LearnerState {
    learner: NameLearner,
    packets: u64,
    /// Flows that began before this packet have ended; 0 while there is input.
    finished_before: u64,
    packets_max: Option<u64>,
    time_ns: i64,
    capture_start_ns: Option<i64>,
    previous: Option<Previous>,
    keying: Keying,
    workers: usize,
    input_bytes: u64,
    damaged: Counts,
    damaged_count: u64,
    skipped: std::collections::BTreeMap<&'static str, u64>,
    spare: Decoded,
    /// The batch whose commit stalled.
    stalled: Option<Work>,
}

/// Where the batch before ended.
struct Previous {
    file: u32,
    end: u64,
    reader: Capture,
}

impl Previous {
    /// Where the first record of the batch behind is, and the reader as it comes there; `None` for
    /// a batch of another file.
    fn start_of(&self, batch: &Batch) -> Option<(usize, Capture)> {
        let start = self.end.saturating_sub(batch.base_offset) as usize;
        (self.file == batch.file).then(|| (start, self.reader.clone()))
    }
}

enum Slot {
    Decoding,
    Decoded(Box<Work>),
    AtEdge,
    Flows { work: Arc<Work>, outputs: Vec<Option<Output>> },
}

struct Schedule {
    slots: VecDeque<Slot>,
    read_next: u64,
    edge_next: u64,
    flows_next: Vec<u64>,
    write_next: u64,
    edge_busy: bool,
    write_busy: bool,
    source_busy: bool,
    source_done: bool,
    /// It had nothing when it was last asked, with batches in flight.
    source_dry: bool,
    /// The last pseudo-batch, which ends every flow that was still open, has passed the learner.
    closed: bool,
    stalled: bool,
    stall_synced: Vec<bool>,
    waiting: usize,
    failed: Option<Error>,
    spare: Vec<Decoded>,
    /// Outputs that were written, for the next batches: their memory is warm.
    spare_outputs: Vec<Output>,
}

enum Task {
    Write(Arc<Work>, Vec<Output>),
    Learn(Box<Work>),
    LearnAgain,
    Flows(Arc<Work>),
    SyncStalled,
    Read,
    Done,
}

impl Schedule {
    fn new(workers: usize) -> Schedule {
        Schedule {
            slots: VecDeque::new(),
            read_next: 0,
            edge_next: 0,
            flows_next: vec![0; workers],
            write_next: 0,
            edge_busy: false,
            write_busy: false,
            source_busy: false,
            source_done: false,
            source_dry: false,
            closed: false,
            stalled: false,
            stall_synced: vec![false; workers],
            waiting: 0,
            failed: None,
            spare: Vec::new(),
            spare_outputs: Vec::new(),
        }
    }

    fn slot(&mut self, number: u64) -> &mut Slot {
        let at = (number - self.write_next) as usize;
        &mut self.slots[at]
    }

    /// The first batch has left.
    fn written(&mut self) {
        self.slots.pop_front();
        self.write_next += 1;
        self.write_busy = false;
        self.source_dry = false;
    }

    /// What worker `me` should do; `None` to wait.
    fn next_task(&mut self, me: usize, depth: u64) -> Option<Task> {
        debug_assert!(self.is_in_order(depth), "invariant 1");
        if self.failed.is_some() {
            return Some(Task::Done);
        }
        if !self.write_busy && self.flows_next.iter().all(|&next| next > self.write_next) {
            let Some(Slot::Flows { work, outputs }) = self.slots.front_mut() else {
                unreachable!("a batch whose flows are done is in step flows");
            };
            let outputs = outputs.iter_mut().map(|output| output.take().unwrap_or_default());
            let task = Task::Write(Arc::clone(work), outputs.collect());
            self.write_busy = true;
            return Some(task);
        }
        if self.stalled {
            let settled = self.flows_next[me] == self.edge_next;
            if settled && !self.stall_synced[me] {
                return Some(Task::SyncStalled);
            }
            if !self.edge_busy && self.stall_synced.iter().all(|&synced| synced) {
                self.edge_busy = true;
                self.stalled = false;
                return Some(Task::LearnAgain);
            }
        } else if !self.edge_busy && self.edge_next < self.read_next {
            let number = self.edge_next;
            let slot = self.slot(number);
            if matches!(slot, Slot::Decoded(_))
                && let Slot::Decoded(work) = std::mem::replace(slot, Slot::AtEdge)
            {
                self.edge_busy = true;
                return Some(Task::Learn(work));
            }
        }
        if self.flows_next[me] < self.edge_next {
            let number = self.flows_next[me];
            if let Slot::Flows { work, .. } = self.slot(number) {
                return Some(Task::Flows(Arc::clone(work)));
            }
        }
        let may_read = !self.source_busy && !self.source_dry && !self.closed;
        if may_read && self.read_next < self.write_next + depth {
            self.source_busy = true;
            return Some(Task::Read);
        }
        if self.closed && self.write_next == self.read_next {
            return Some(Task::Done);
        }
        None
    }
}

/// What a run counted outside the workers.
pub struct Counted {
    /// The learner, with the names as they are at the end.
    pub learner: NameLearner,
    /// Packets.
    pub packets: u64,
    /// Input octets.
    pub input_bytes: u64,
    /// Damage in the captures and packets.
    pub damaged: Counts,
    /// Sound packets that are not ours to read.
    pub skipped: std::collections::BTreeMap<&'static str, u64>,
}

struct Pipeline<'a> {
    schedule: Mutex<Schedule>,
    changed: Condvar,
    source: Mutex<&'a mut Source>,
    learner: Mutex<LearnerState>,
    sink: Mutex<&'a mut dyn Sink>,
    progress: &'a Progress,
    depth: u64,
    workers: usize,
    keying: Keying,
    pins: &'a [usize],
}

/// Batches that may be in flight with so many workers.
pub fn depth(workers: usize) -> u64 {
    if workers == 1 { 2 } else { 3 * workers as u64 + 2 }
}

/// What a run is told beside its parts.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// How flows are told apart.
    pub keying: Keying,
    /// No more packets than these.
    pub packets_max: Option<u64>,
    /// Cores that the workers are bound to, one each.
    pub pins: Vec<usize>,
}

/// Runs the source to its end through `workers`, on as many threads (the caller's is one).
pub fn run(
    source: &mut Source,
    sink: &mut dyn Sink,
    learner: NameLearner,
    workers: &mut [Worker],
    progress: &Progress,
    plan: &Plan,
) -> Result<Counted, Error> {
    let &Plan { keying, packets_max, ref pins } = plan;
    let count = workers.len();
    let pipeline = Pipeline {
        schedule: Mutex::new(Schedule::new(count)),
        changed: Condvar::new(),
        source: Mutex::new(source),
        learner: Mutex::new(LearnerState::new(learner, count, keying, packets_max)),
        sink: Mutex::new(sink),
        progress,
        depth: depth(count),
        workers: count,
        keying,
        pins,
    };
    std::thread::scope(|scope| {
        let mut others = workers.iter_mut().enumerate();
        let first = others.next();
        let threads: Vec<_> = others
            .map(|(me, worker)| {
                let pipeline = &pipeline;
                std::thread::Builder::new()
                    .name(format!("larder-{me}"))
                    .spawn_scoped(scope, move || pipeline.work(me, worker))
            })
            .collect();
        if let Some((me, worker)) = first {
            pipeline.work(me, worker);
        }
        for thread in threads {
            match thread {
                Ok(handle) => {
                    if let Err(panic) = handle.join() {
                        std::panic::resume_unwind(panic);
                    }
                }
                Err(error) => pipeline.fail(Error::Options(format!(
                    "--cores: no thread could be started ({error}); give a smaller number"
                ))),
            }
        }
    });
    let schedule = pipeline.schedule.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = schedule.failed {
        return Err(error);
    }
    let state = pipeline.learner.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Counted {
        learner: state.learner,
        packets: state.packets,
        input_bytes: state.input_bytes,
        damaged: state.damaged,
        skipped: state.skipped,
    })
}

impl Pipeline<'_> {
    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: Error) {
        self.lock().failed.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Changes the schedule and wakes whoever waits for that.
    fn update<T>(&self, change: impl FnOnce(&mut Schedule) -> T) -> T {
        let mut schedule = self.lock();
        let result = change(&mut schedule);
        if schedule.waiting > 0 {
            self.changed.notify_all();
        }
        result
    }

    fn work(&self, me: usize, worker: &mut Worker) {
        if let Some(&core) = self.pins.get(me)
            && let Err(error) = larder_io::cores::pin_to_core(core)
        {
            let why = format!("--pin: core {core}: {error}; name cores that this process may use");
            self.fail(Error::Options(why));
        }
        loop {
            let task = {
                let mut schedule = self.lock();
                loop {
                    if let Some(task) = schedule.next_task(me, self.depth) {
                        break task;
                    }
                    schedule.waiting += 1;
                    schedule = self.changed.wait(schedule).unwrap_or_else(PoisonError::into_inner);
                    schedule.waiting -= 1;
                }
            };
            let result = match task {
                Task::Done => {
                    self.changed.notify_all();
                    return;
                }
                Task::Read => self.read(),
                Task::Learn(work) => self.learner(Some(*work)),
                Task::LearnAgain => self.learner(None),
                Task::Flows(work) => {
                    self.flows(me, worker, work);
                    Ok(())
                }
                Task::SyncStalled => {
                    worker.reader.sync();
                    self.update(|schedule| schedule.stall_synced[me] = true);
                    Ok(())
                }
                Task::Write(work, outputs) => self.write(work, outputs),
            };
            if let Err(error) = result {
                self.fail(error);
            }
        }
    }

    /// Takes a batch from the source and decodes it.
    fn read(&self) -> Result<(), Error> {
        self.progress.turns.fetch_add(1, Ordering::Relaxed);
        // Told to stop, the source still gives what it has received from a pipe.
        let (is_done, others_wait) = {
            let schedule = self.lock();
            (schedule.source_done, schedule.read_next > schedule.write_next)
        };
        let batch = if is_done {
            None
        } else {
            let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
            let polled = match others_wait {
                true => source.poll_batch_now(&self.progress.stop),
                false => source.poll_batch(&self.progress.stop),
            };
            match polled {
                Polled::Batch(batch) => Some(*batch),
                Polled::End => None,
                Polled::Later => {
                    // Nobody but this worker may do the flows of its shards: they must not wait
                    // for a silent pipe.
                    self.update(|schedule| {
                        schedule.source_busy = false;
                        schedule.source_dry = schedule.read_next > schedule.write_next;
                    });
                    return Ok(());
                }
            }
        };
        if batch.is_none() {
            self.progress.is_finishing.store(true, Ordering::Release);
        }
        let (number, mut decoded) = self.update(|schedule| {
            let number = schedule.read_next;
            schedule.read_next += 1;
            schedule.slots.push_back(Slot::Decoding);
            schedule.source_busy = false;
            schedule.source_done |= batch.is_none();
            (number, schedule.spare.pop().unwrap_or_default())
        });
        match &batch {
            Some(batch) => match self.known_start(batch, number) {
                Some((start, reader)) => {
                    let (start, decoded) = (Some(start), &mut decoded);
                    decode_from(batch, start, reader, u32::MAX, self.workers, self.keying, decoded);
                }
                None => decode(batch, self.workers, self.keying, &mut decoded),
            },
            None => decoded.clear(self.workers),
        }
        let work = Box::new(Work { number, batch, decoded, ..Work::default() });
        self.update(|schedule| *schedule.slot(number) = Slot::Decoded(work));
        Ok(())
    }

    /// Where the first record of a batch must be that says nothing of it, if the learner is done with
    /// the batch before: always with one worker, which then need not search for it.
    fn known_start(&self, batch: &Batch, number: u64) -> Option<(usize, Capture)> {
        let settled = batch.start.is_none() && self.lock().edge_next == number;
        let state = self.learner.try_lock().ok().filter(|_| settled)?;
        state.previous.as_ref().and_then(|previous| previous.start_of(batch))
    }

    /// Runs the learner over a decoded batch, or goes on with the one that stalled.
    fn learner(&self, work: Option<Work>) -> Result<(), Error> {
        let mut state = self.learner.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = work.is_some();
        let Some(mut work) = work.or_else(|| state.stalled.take()) else { return Ok(()) };
        let mut enough = false;
        if fresh {
            enough = state.take(&mut work);
        }
        let closed = state.finished_before > state.packets;
        if let Some(error) = state.learner.failed.take() {
            return Err(error);
        }
        match state.learner.names.commit()? {
            None => {
                state.stalled = Some(work);
                drop(state);
                self.update(|schedule| {
                    schedule.edge_busy = false;
                    schedule.stalled = true;
                    schedule.stall_synced.fill(false);
                    schedule.source_done |= enough;
                });
            }
            Some(committed) => {
                work.committed = Some(committed);
                self.progress.packets.store(state.packets, Ordering::Relaxed);
                self.progress.input_bytes.store(state.input_bytes, Ordering::Relaxed);
                let totals = &self.progress.live_stats.totals;
                totals.answers.store(state.learner.answers, Ordering::Relaxed);
                let (known, evicted) = state.learner.names.counts();
                totals.names_known.store(known, Ordering::Relaxed);
                totals.names_evicted.store(evicted, Ordering::Relaxed);
                totals.damaged.store(state.damaged_count, Ordering::Relaxed);
                totals.read_ns.store(state.time_ns, Ordering::Relaxed);
                drop(state);
                let workers = self.workers;
                self.update(|schedule| {
                    schedule.edge_busy = false;
                    schedule.source_done |= enough;
                    schedule.closed |= closed;
                    let outputs = (0..workers).map(|_| None).collect();
                    let number = schedule.edge_next;
                    *schedule.slot(number) = Slot::Flows { work: Arc::new(work), outputs };
                    schedule.edge_next += 1;
                });
            }
        }
        Ok(())
    }

    fn flows(&self, me: usize, worker: &mut Worker, work: Arc<Work>) {
        let mut output = self.lock().spare_outputs.pop().unwrap_or_default();
        if let Some(committed) = &work.committed {
            worker.reader.sync_to(committed.position);
            let input = BatchInput {
                packets_before: work.packets_before,
                packets: work.decoded.packets,
                time_ns: work.time_ns,
                capture_start_ns: work.capture_start_ns,
                bytes: work.batch.as_ref().map_or(&[], |batch| &batch.bytes),
                held: &work.decoded.held,
                joined: &work.decoded.joined,
                committed,
                finish_before: work.finish_before,
                clock_step_ns: work.clock_step_ns(),
            };
            match &work.batch {
                Some(_) => {
                    let live_stats = &self.progress.live_stats;
                    worker.batch(&work.decoded.lanes[me], &input, &mut output);
                    worker.tell(&work.decoded.lanes[me], input.time_ns, live_stats);
                }
                None => worker.finish(&work.decoded.lanes[me], &input, &mut output),
            }
        }
        drop(work);
        self.update(|schedule| {
            let number = schedule.flows_next[me];
            if let Slot::Flows { outputs, .. } = schedule.slot(number) {
                outputs[me] = Some(output);
            }
            schedule.flows_next[me] += 1;
            let slowest = schedule.flows_next.iter().min().copied().unwrap_or(0);
            let behind = schedule.edge_next - slowest;
            self.progress.live_stats.totals.batches_behind.store(behind, Ordering::Relaxed);
        });
    }

    fn write(&self, work: Arc<Work>, mut outputs: Vec<Output>) -> Result<(), Error> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).batch(&work, &mut outputs)?;
        outputs.iter_mut().for_each(Output::clear);
        self.progress.live_stats.totals.written_ns.store(work.time_ns, Ordering::Relaxed);
        self.update(|schedule| {
            schedule.written();
            if schedule.spare_outputs.len() < self.depth as usize * self.workers {
                schedule.spare_outputs.append(&mut outputs);
            }
        });
        // Every worker is done with it, so its buffers may serve again.
        if let Some(work) = Arc::into_inner(work) {
            let mut schedule = self.lock();
            if schedule.spare.len() < self.depth as usize {
                schedule.spare.push(work.decoded);
            }
        }
        Ok(())
    }
}

impl LearnerState {
    fn new(
        learner: NameLearner,
        workers: usize,
        keying: Keying,
        packets_max: Option<u64>,
    ) -> LearnerState {
        LearnerState {
            learner,
            packets: 0,
            finished_before: 0,
            packets_max,
            time_ns: i64::MIN,
            capture_start_ns: None,
            previous: None,
            keying,
            workers,
            input_bytes: 0,
            damaged: Counts::new(),
            damaged_count: 0,
            skipped: Default::default(),
            spare: Decoded::default(),
            stalled: None,
        }
    }

    /// Checks where the batch's records began, then lets the learner learn. True when no more input
    /// is wanted.
    fn take(&mut self, work: &mut Work) -> bool {
        let Some(batch) = &work.batch else {
            work.packets_before = self.packets;
            work.time_ns = self.time_ns;
            work.capture_start_ns = self.capture_start_ns.unwrap_or(0);
            if self.finished_before == 0 {
                self.learner.finish(&mut work.decoded);
            }
            let last = self.packets + 1;
            self.finished_before = last.min(self.finished_before + FINISH_PACKETS);
            work.finish_before = self.finished_before;
            return false;
        };
        // A worker that began in the middle of a file guessed where its first record is. The end
        // of the batch before says where it must be: a wrong guess costs time, never truth.
        let base = batch.base_offset;
        if let (None, Some(previous)) = (batch.start, self.previous.take())
            && let Some((expected, reader)) = previous.start_of(batch)
            && work.decoded.start != expected
        {
            std::mem::swap(&mut self.spare, &mut work.decoded);
            let (start, decoded) = (Some(expected), &mut work.decoded);
            decode_from(batch, start, reader, u32::MAX, self.workers, self.keying, decoded);
        }
        self.previous = work.decoded.reader.clone().map(|reader| Previous {
            file: batch.file,
            end: base + work.decoded.end as u64,
            reader,
        });
        let decoded = &mut work.decoded;
        let mut enough = false;
        if let Some(packets_max) = self.packets_max {
            let left = packets_max.saturating_sub(self.packets);
            if left == 0 {
                // Read ahead of the last packet wanted: as though it had not been read.
                decoded.clear(self.workers);
            } else if u64::from(decoded.packets) > left
                && let Some(reader) = decoded.reader_before.clone()
            {
                // Once a run: again, and no further, so that no later packet's time or damage counts.
                let start = Some(decoded.start);
                let last = left as u32;
                decode_from(batch, start, reader, last, self.workers, self.keying, decoded);
            }
            enough = u64::from(decoded.packets) >= left;
        }
        work.packets_before = self.packets;
        self.packets += u64::from(decoded.packets);
        if self.capture_start_ns.is_none() {
            self.capture_start_ns = decoded.first_ns;
        }
        // After the clock was set the time goes on from there.
        let is_set = batch.clock_step_ns != 0 && decoded.packets > 0;
        self.time_ns = if is_set { decoded.latest_ns } else { self.time_ns.max(decoded.latest_ns) };
        if let Some(silent_at_ns) = batch.silent_at_ns {
            let is_set = batch.clock_step_ns != 0;
            self.time_ns = if is_set { silent_at_ns } else { self.time_ns.max(silent_at_ns) };
        }
        work.time_ns = self.time_ns;
        work.capture_start_ns = self.capture_start_ns.unwrap_or(0);
        if decoded.reader.is_some() {
            self.input_bytes = self.input_bytes.max(base + decoded.end as u64);
        }
        for (kind, found) in &decoded.damaged {
            let entry =
                self.damaged.entry(kind).or_insert(crate::decode::Count { count: 0, ..*found });
            entry.count += found.count;
            self.damaged_count += found.count;
        }
        for (kind, found) in &decoded.skipped {
            *self.skipped.entry(kind).or_default() += found;
        }
        self.learner.batch(decoded, &batch.bytes, work.packets_before, batch.file, base);
        if let Some(log) = &mut self.learner.log {
            work.answers = std::mem::take(log);
        }
        enough
    }
}

mod order;
#[cfg(test)]
mod tests;
