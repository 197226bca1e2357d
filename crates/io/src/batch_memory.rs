//! The memory of batches: a bound on how many exist, and buffers that are used again.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::mapped::Mapped;
use crate::stream::STOP_CHECK;

/// The bytes of a batch: part of a mapped file, or a buffer that is used again.
#[derive(Debug)]
pub struct Bytes {
    pub(crate) content: BytesContent,
    memory: Arc<BatchMemory>,
}

#[derive(Debug)]
pub(crate) enum BytesContent {
    Mapped { mapped: Arc<Mapped>, from: usize },
    Owned(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.content {
            BytesContent::Mapped { mapped, from } => mapped.bytes().get(*from..).unwrap_or(&[]),
            BytesContent::Owned(bytes) => bytes,
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let buffer = match &mut self.content {
            BytesContent::Mapped { .. } => None,
            BytesContent::Owned(bytes) => Some(std::mem::take(bytes)),
        };
        self.memory.give_back(buffer);
    }
}

/// Counts the batches in flight, and reuses their buffers.
#[derive(Debug)]
pub(crate) struct BatchMemory {
    state: Mutex<MemoryState>,
    given_back: Condvar,
    pub(crate) in_flight_max: usize,
    /// Buffers that grew larger than this (by a search after damage) are freed.
    keep_bytes_max: usize,
}

#[derive(Debug, Default)]
struct MemoryState {
    in_flight: usize,
    free: Vec<Vec<u8>>,
}

impl BatchMemory {
    pub(crate) fn new(in_flight_max: usize, keep_bytes_max: usize) -> Arc<BatchMemory> {
        let (state, given_back) = (Mutex::default(), Condvar::new());
        Arc::new(BatchMemory { state, given_back, in_flight_max, keep_bytes_max })
    }

    /// Counts one more batch, still without bytes; waits while there are too many. `None`: `stop`
    /// was set.
    pub(crate) fn take(self: &Arc<BatchMemory>, stop: &AtomicBool) -> Option<Bytes> {
        let mut state = lock(&self.state);
        while state.in_flight >= self.in_flight_max {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let wait = self.given_back.wait_timeout(state, STOP_CHECK);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.in_flight += 1;
        Some(Bytes { content: BytesContent::Owned(Vec::new()), memory: Arc::clone(self) })
    }

    /// Like [`BatchMemory::take`], for a caller with other work: waits [`STOP_CHECK`] at most, and
    /// ignores `stop`.
    pub(crate) fn take_soon(self: &Arc<BatchMemory>) -> Option<Bytes> {
        let mut state = lock(&self.state);
        if state.in_flight >= self.in_flight_max {
            let wait = self.given_back.wait_timeout(state, STOP_CHECK);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
            if state.in_flight >= self.in_flight_max {
                return None;
            }
        }
        state.in_flight += 1;
        Some(Bytes { content: BytesContent::Owned(Vec::new()), memory: Arc::clone(self) })
    }

    /// An empty buffer, a used one if there is one.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        lock(&self.state).free.pop().unwrap_or_default()
    }

    fn give_back(&self, buffer: Option<Vec<u8>>) {
        let mut state = lock(&self.state);
        state.in_flight -= 1;
        let keep = |buffer: &Vec<u8>| (1..=self.keep_bytes_max).contains(&buffer.capacity());
        if let Some(mut buffer) = buffer.filter(keep) {
            buffer.clear();
            state.free.push(buffer);
        }
        drop(state);
        self.given_back.notify_one();
    }
}

/// Locks; a panic elsewhere left plain counts and lists, which are valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
