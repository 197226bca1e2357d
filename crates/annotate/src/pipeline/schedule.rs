//! The schedule: the steps of the batches in flight, and the next task of a worker.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Work;
use crate::Error;
use crate::decode::Decoded;
use crate::worker::Output;

/// The step of a batch in flight.
pub(super) enum Slot {
    Decoding,
    Decoded(Box<Work>),
    Learning,
    Flows { work: Arc<Work>, outputs: Vec<Option<Output>> },
}

/// The next batch of each step, and the steps that run now.
#[derive(Default)]
pub(super) struct Schedule {
    pub slots: VecDeque<Slot>,
    pub read_next: u64,
    pub learn_next: u64,
    pub flows_next: Vec<u64>,
    pub write_next: u64,
    pub learner_busy: bool,
    pub write_busy: bool,
    pub source_busy: bool,
    pub source_done: bool,
    /// The source had nothing at the last poll, with batches in flight.
    pub source_dry: bool,
    /// The learner is done with the last pseudo-batch, which ends all open flows.
    pub closed: bool,
    pub stalled: bool,
    pub stall_synced: Vec<bool>,
    pub waiting: usize,
    pub failed: Option<Error>,
    pub spare: Vec<Decoded>,
    /// Outputs that were written, for the next batches: their memory is warm.
    pub spare_outputs: Vec<Output>,
}

pub(super) enum Task {
    Write(Arc<Work>, Vec<Output>),
    Learn(Box<Work>),
    LearnAgain,
    Flows(Arc<Work>),
    SyncStalled,
    Read,
    Done,
}

impl Schedule {
    pub fn new(workers: usize) -> Schedule {
        let (flows_next, stall_synced) = (vec![0; workers], vec![false; workers]);
        Schedule { flows_next, stall_synced, ..Schedule::default() }
    }

    /// Invariant 1 of `pipeline`.
    fn is_in_order(&self, depth: u64) -> bool {
        self.flows_next.iter().all(|next| (self.write_next..=self.learn_next).contains(next))
            && self.learn_next <= self.read_next
            && self.read_next <= self.write_next + depth
    }

    pub fn slot(&mut self, number: u64) -> &mut Slot {
        let at = (number - self.write_next) as usize;
        &mut self.slots[at]
    }

    /// Removes the first batch, which was written.
    pub fn written(&mut self) {
        self.slots.pop_front();
        self.write_next += 1;
        self.write_busy = false;
        self.source_dry = false;
    }

    /// The next task of worker `me`; `None`: it waits.
    pub fn next_task(&mut self, me: usize, depth: u64) -> Option<Task> {
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
            let settled = self.flows_next[me] == self.learn_next;
            if settled && !self.stall_synced[me] {
                return Some(Task::SyncStalled);
            }
            if !self.learner_busy && self.stall_synced.iter().all(|&synced| synced) {
                self.learner_busy = true;
                self.stalled = false;
                return Some(Task::LearnAgain);
            }
        } else if !self.learner_busy && self.learn_next < self.read_next {
            let number = self.learn_next;
            let slot = self.slot(number);
            if matches!(slot, Slot::Decoded(_))
                && let Slot::Decoded(work) = std::mem::replace(slot, Slot::Learning)
            {
                self.learner_busy = true;
                return Some(Task::Learn(work));
            }
        }
        if self.flows_next[me] < self.learn_next {
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
