//! Buffers for responses, used again.
//!
//! Bounds: a limited number of idle buffers, each of at most [`KEPT_BYTES_MAX`]; larger ones are freed.

/// Room that a new buffer has.
const NEW_BYTES: usize = 4 << 10;

/// The largest buffer that is reused.
const KEPT_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct SendBuffers {
    idle: Vec<Vec<u8>>,
    idle_max: usize,
}

impl SendBuffers {
    pub(super) fn new(idle_max: usize) -> SendBuffers {
        SendBuffers { idle: Vec::new(), idle_max }
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

    /// ReceiveBuffers come back empty with their room; too many, too small and too large ones do not.
    #[test]
    fn buffers_come_back() {
        let mut send_buffers = SendBuffers::new(2);
        let mut buffer = send_buffers.take();
        assert!(buffer.is_empty() && buffer.capacity() >= NEW_BYTES);
        buffer.extend([7; 3 * NEW_BYTES]);
        let (place, room) = (buffer.as_ptr(), buffer.capacity());
        send_buffers.give_back(buffer);
        let buffer = send_buffers.take();
        assert_eq!((buffer.as_ptr(), buffer.capacity(), buffer.len()), (place, room, 0));
        send_buffers.give_back(Vec::with_capacity(KEPT_BYTES_MAX * 2));
        send_buffers.give_back(vec![1]);
        assert_eq!(send_buffers.idle.len(), 0);
        for _ in 0..3 {
            send_buffers.give_back(Vec::with_capacity(NEW_BYTES));
        }
        assert_eq!(send_buffers.idle.len(), 2);
    }
}
