//! Buffers to write answers to, used again.
//!
//! Bounds: so many idle ones, each of at most [`KEPT_BYTES_MAX`]; larger ones are freed.

/// Room that a new buffer has.
const NEW_BYTES: usize = 4 << 10;

/// Largest buffer that is kept.
const KEPT_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Pool {
    idle: Vec<Vec<u8>>,
    idle_max: usize,
}

impl Pool {
    pub(super) fn new(idle_max: usize) -> Pool {
        Pool { idle: Vec::new(), idle_max }
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        self.idle.pop().unwrap_or_else(|| Vec::with_capacity(NEW_BYTES))
    }

    pub(super) fn give_back(&mut self, mut buffer: Vec<u8>) {
        let is_kept = (NEW_BYTES..=KEPT_BYTES_MAX).contains(&buffer.capacity());
        if is_kept && self.idle.len() < self.idle_max {
            buffer.clear();
            self.idle.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers come back empty with their room; too many, too small and too large ones do not.
    #[test]
    fn buffers_come_back() {
        let mut pool = Pool::new(2);
        let mut buffer = pool.take();
        assert!(buffer.is_empty() && buffer.capacity() >= NEW_BYTES);
        buffer.extend([7; 3 * NEW_BYTES]);
        let (place, room) = (buffer.as_ptr(), buffer.capacity());
        pool.give_back(buffer);
        let buffer = pool.take();
        assert_eq!((buffer.as_ptr(), buffer.capacity(), buffer.len()), (place, room, 0));
        pool.give_back(Vec::with_capacity(KEPT_BYTES_MAX * 2));
        pool.give_back(vec![1]);
        assert_eq!(pool.idle.len(), 0);
        for _ in 0..3 {
            pool.give_back(Vec::with_capacity(NEW_BYTES));
        }
        assert_eq!(pool.idle.len(), 2);
    }
}
