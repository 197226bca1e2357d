//! Many cores, one result: batches in flight, and the steps that workers run on them.
//!
//! ```text
//! step     done by                         order                         may run at the same time
//! read     the worker with the source      batch order                   everything
//! decode   any worker                      any                           everything
//! learn    one worker at a time            batch order                   decode, flows of earlier
//! flows    each worker, its own shards     batch order for each worker   everything
//! write    one worker at a time            batch order                   everything
//! ```
//!
//! No thread has a fixed role: every worker runs the step that is due, and prefers the steps nearest to
//! the output. One mutex guards the schedule; it is taken a few times a batch, never a packet.
//!
//! Invariants
//! 1. `write_next <= flows_next[w] <= learn_next <= read_next <= write_next + depth`.
//! 2. Flows of batch *k* see names at the log position that the learner's commit of batch *k* gave.
//! 3. A worker waits for input only while no batch is in flight: others may need its shards. A source
//!    that had nothing is polled again after a batch was written.
//! 4. No result of a step depends on which worker runs it, or when.
//!
//! When the names' delta log is full (a small budget, many responses), the learner *stalls*: every
//! worker finishes the batches before and syncs its reader to the log's end (harmless, by the overlay).

mod learning;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use larder_io::batch::{Batch, Polled, Source};
use larder_wire::capture::{Capture, Record};

use crate::decode::{Counts, Decoded, Keying, decode, decode_from};
use crate::learn::NameLearner;
use crate::names::Committed;
use crate::options::Times;
use crate::worker::{BatchInput, Output, Worker};
use crate::{Error, Progress};
use learning::LearnerState;
use schedule::{Schedule, Slot, Task};

/// Takes finished batches, in order.
pub trait Sink: Send {
    /// Takes the workers' outputs of one batch. `work.batch` is `None` for the flows that were open when
    /// the input ended.
    fn batch(&mut self, work: &Work, outputs: &mut [Output]) -> Result<(), Error>;
}

/// One batch in flight.
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
    /// The log begins after the records that this packet ended. 0: at the start; the greatest: not yet.
    pub logged_after: u64,
    /// The next cut of records at its start, ns; the greatest: none.
    pub cut_ns: i64,
    /// Names as of this batch; set by the learner.
    pub committed: Option<Committed>,
    /// Answers learned in it, where `dns.log` is wanted.
    pub answers: Vec<crate::learn::AnswerLine>,
}

impl Work {
    /// The packets of its batch, each with the offset of its record.
    pub(crate) fn packets(&self) -> impl Iterator<Item = (usize, Record<'_>)> {
        let parts = self.batch.as_ref().zip(self.decoded.reader_before.clone());
        let records = parts.into_iter().flat_map(|(batch, reader)| {
            reader.records(&batch.bytes, self.decoded.start..batch.limit, batch.at_end)
        });
        let sound = records.filter_map(|(offset, record)| Some((offset, record.ok()?)));
        sound.take(self.decoded.packets as usize)
    }

    /// The step of the clock before it, ns; 0: none.
    fn clock_step_ns(&self) -> i64 {
        self.batch.as_ref().map_or(0, |batch| batch.clock_step_ns)
    }
}

/// Counts of a run outside the workers.
pub struct Counted {
    /// The learner, with the names as they are at the end.
    pub learner: NameLearner,
    /// Packets.
    pub packets: u64,
    /// Those of them that were read for names only.
    pub for_names: u64,
    /// Input bytes.
    pub input_bytes: u64,
    /// Times of the packets.
    pub times: Option<Times>,
    /// Damage in the captures and packets.
    pub damaged: Counts,
    /// Sound packets of protocols that larder does not read.
    pub skipped: BTreeMap<&'static str, u64>,
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
    cut_every_ns: i64,
    pins: &'a [usize],
}

/// Batches that may be in flight.
pub fn depth(workers: usize) -> u64 {
    if workers == 1 { 2 } else { 3 * workers as u64 + 2 }
}

/// Settings of a run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// How flows are distinguished.
    pub keying: Keying,
    /// Packets to read at most.
    pub packets_max: Option<u64>,
    /// When the capture began; without it, at the first packet. ns since 1970 UTC.
    pub capture_began_ns: Option<i64>,
    /// Records are cut at multiples of this time, ns; 0: never.
    pub cut_every_ns: i64,
    /// The records from this cut on are logged.
    pub from_ns: Option<i64>,
    /// The records up to this cut are logged, and nothing more is read.
    pub to_ns: Option<i64>,
    /// Cores that the workers are bound to, one each.
    pub pins: Vec<usize>,
}

/// Runs the source to its end through `workers`, each on a thread (the first on the caller's).
pub fn run(
    source: &mut Source,
    sink: &mut dyn Sink,
    learner: NameLearner,
    workers: &mut [Worker],
    progress: &Progress,
    plan: &Plan,
) -> Result<Counted, Error> {
    let &Plan { keying, cut_every_ns, ref pins, .. } = plan;
    let count = workers.len();
    let learner = LearnerState::new(learner, count, plan);
    let pipeline = Pipeline {
        schedule: Mutex::new(Schedule::new(count)),
        changed: Condvar::new(),
        source: Mutex::new(source),
        learner: Mutex::new(learner),
        sink: Mutex::new(sink),
        progress,
        depth: depth(count),
        workers: count,
        keying,
        cut_every_ns,
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
    let times = state.times();
    Ok(Counted {
        learner: state.learner,
        packets: state.packets,
        for_names: state.for_names,
        input_bytes: state.input_bytes,
        times,
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

    /// Changes the schedule and wakes the workers that wait for a change.
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
                Task::Learn(work) => self.learn(Some(*work)),
                Task::LearnAgain => self.learn(None),
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
        // After a stop the source still gives the bytes that it has received from a pipe.
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
                    // Only this worker may do the flows of its shards: they must not wait for a silent
                    // pipe.
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

    /// The start of the first record of a batch, if the learner is done with the previous batch. With one
    /// worker that is always so, and the worker need not search.
    fn known_start(&self, batch: &Batch, number: u64) -> Option<(usize, Capture)> {
        let settled = batch.start.is_none() && self.lock().learn_next == number;
        let state = self.learner.try_lock().ok().filter(|_| settled)?;
        state.previous.as_ref().and_then(|previous| previous.start_of(batch))
    }

    /// Runs the learner over a decoded batch, or commits the one that stalled.
    fn learn(&self, work: Option<Work>) -> Result<(), Error> {
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
                    schedule.learner_busy = false;
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
                    schedule.learner_busy = false;
                    schedule.source_done |= enough;
                    schedule.closed |= closed;
                    let outputs = (0..workers).map(|_| None).collect();
                    let number = schedule.learn_next;
                    *schedule.slot(number) = Slot::Flows { work: Arc::new(work), outputs };
                    schedule.learn_next += 1;
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
                capture_start_ns: work.capture_start_ns,
                bytes: work.batch.as_ref().map_or(&[], |batch| &batch.bytes),
                held: &work.decoded.held,
                joined: &work.decoded.joined,
                committed,
                ticks: &work.decoded.ticks,
                finish_before: work.finish_before,
                logged_after: work.logged_after,
                cut_ns: work.cut_ns,
                cut_every_ns: self.cut_every_ns,
                clock_step_ns: work.clock_step_ns(),
            };
            match &work.batch {
                Some(_) => {
                    let live_stats = &self.progress.live_stats;
                    worker.batch(&work.decoded.lanes[me], &input, &mut output);
                    worker.report(&work.decoded.lanes[me], work.time_ns, live_stats);
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
            let behind = schedule.learn_next - slowest;
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
        // Every worker is done with it, so its buffers are used again.
        if let Some(work) = Arc::into_inner(work) {
            let mut schedule = self.lock();
            if schedule.spare.len() < self.depth as usize {
                schedule.spare.push(work.decoded);
            }
        }
        Ok(())
    }
}
