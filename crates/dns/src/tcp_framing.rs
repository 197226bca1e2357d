//! Messages on a stream of bytes, each after its length in two bytes (RFC 1035, section 4.2.2).
//!
//! ```text
//! kernel -> the caller's buffer -> Frames::next(): whole messages are lent from that buffer
//!                               -> Frames::keep(): the rest of a read is stored here
//! message -> Unsent::push() -> Unsent::send(): as much as the kernel takes
//! ```
//!
//! Both hold memory only while they hold bytes: an idle connection has no buffer.
//!
//! Invariants
//! 1. No byte is read or moved more often than a small constant, however the stream was split:
//!    [`Frames`] adds to an incomplete message only the bytes that it lacks, and both discard used
//!    bytes when these are at least half.
//! 2. Memory follows the bytes that arrived, not the length that a message states.
//!
//! Bounds: `Frames` stores less than one message, and the part of a read that its caller did not
//! use. `Unsent` has no limit of its own; its callers check its length first.

use std::io::{self, ErrorKind, Read, Write};

/// Bytes of the length before each message.
const LENGTH_BYTES: usize = 2;

/// Bytes of the longest query over UDP. A longer one is cut, and so malformed. Buffers of batches
/// are walked from end to end all the time, so they are no longer than necessary.
pub(crate) const CLIENT_QUERY_BYTES_MAX: usize = 1_232;

/// The longest message that a length can state.
pub(crate) const MESSAGE_BYTES_MAX: usize = u16::MAX as usize;

/// Bytes read at once: a connection's share of a turn.
pub(crate) const READ_BYTES: usize = 16 << 10;

/// A message's length is outside its limits, so the rest of the stream cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadLength;

/// Lengths that a message may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

/// Bytes of a stream that are not used yet.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// Bytes at the front that were used.
    taken: usize,
}

impl Frames {
    /// The next whole message of the stored bytes and of `fresh`, which follows them and shrinks by
    /// what is used. `None` if the message is incomplete.
    pub(crate) fn next<'a, 'fresh: 'a>(
        &'a mut self,
        fresh: &mut &'fresh [u8],
        lengths: Lengths,
    ) -> Result<Option<&'a [u8]>, BadLength> {
        if self.is_empty() {
            let Some(end) = frame_end(fresh, lengths)? else { return Ok(None) };
            let Some((frame, rest)) = fresh.split_at_checked(end) else { return Ok(None) };
            *fresh = rest;
            return Ok(Some(&frame[LENGTH_BYTES..]));
        }
        // Adds what the stored part lacks: first the length, then the message.
        self.fill(LENGTH_BYTES, fresh);
        let Some(end) = frame_end(&self.bytes[self.taken..], lengths)? else { return Ok(None) };
        self.fill(end, fresh);
        if self.bytes.len() - self.taken < end {
            return Ok(None);
        }
        let message = self.taken + LENGTH_BYTES..self.taken + end;
        self.taken += end;
        Ok(Some(&self.bytes[message]))
    }

    /// Stores the unused part of a read, and discards used bytes.
    pub(crate) fn keep(&mut self, fresh: &[u8]) {
        if self.is_empty() {
            // Assigned, so that an idle connection frees its memory.
            (self.bytes, self.taken) = (fresh.to_vec(), 0);
            return;
        }
        forget(&mut self.bytes, &mut self.taken);
        self.bytes.extend_from_slice(fresh);
    }

    /// True if [`Frames::next`] without fresh bytes returns a message or an error.
    pub(crate) fn has_whole(&self, lengths: Lengths) -> bool {
        let kept = &self.bytes[self.taken..];
        match frame_end(kept, lengths) {
            Ok(end) => end.is_some_and(|end| kept.len() >= end),
            Err(BadLength) => true,
        }
    }

    /// True if no bytes are stored: the stream is between two messages.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Moves bytes from `fresh` until there are `wanted` unused bytes, or `fresh` is empty.
    fn fill(&mut self, wanted: usize, fresh: &mut &[u8]) {
        let lacks = wanted.saturating_sub(self.bytes.len() - self.taken);
        let (used, rest) = fresh.split_at(lacks.min(fresh.len()));
        self.bytes.extend_from_slice(used);
        *fresh = rest;
    }
}

/// Where the first frame ends, which may be past the end of the bytes; `None` if its length is not
/// here yet.
fn frame_end(bytes: &[u8], lengths: Lengths) -> Result<Option<usize>, BadLength> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*length));
    if length < lengths.least || length > lengths.most {
        return Err(BadLength);
    }
    Ok(Some(LENGTH_BYTES + length))
}

/// Discards used bytes if they are at least half, so that each byte is moved once on average.
fn forget(bytes: &mut Vec<u8>, done: &mut usize) {
    if 2 * *done >= bytes.len() {
        bytes.drain(..*done);
        *done = 0;
    }
}

/// Messages that the kernel has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    bytes: Vec<u8>,
    /// Bytes at the front that the kernel has taken.
    sent: usize,
}

impl Unsent {
    /// Adds a message of at most [`MESSAGE_BYTES_MAX`] bytes. Callers never pass a longer one; it
    /// would be cut.
    pub(crate) fn push(&mut self, message: &[u8]) {
        let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
        forget(&mut self.bytes, &mut self.sent);
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(&message[..length.into()]);
    }

    /// Bytes that wait, lengths included.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Passes as many bytes to the kernel as it takes now, and returns their number. After an error
    /// the connection is unusable.
    pub(crate) fn send(&mut self, mut to: impl Write) -> io::Result<usize> {
        let before = self.len();
        while self.len() > 0 {
            match to.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let count = before - self.len();
        if self.len() == 0 {
            *self = Unsent::default();
        }
        Ok(count)
    }
}

/// The outcome of one read.
#[derive(Debug)]
pub(crate) enum Received {
    /// A number of bytes.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The peer sends no more.
    End,
    /// The connection is gone.
    Lost,
}

/// Reads once from a socket that does not block.
pub(crate) fn receive(mut from: impl Read, room: &mut [u8]) -> Received {
    match from.read(room) {
        Ok(0) => Received::End,
        Ok(count) => Received::Bytes(count),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Received::Nothing
        }
        Err(_) => Received::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY: Lengths = Lengths { least: 1, most: MESSAGE_BYTES_MAX };

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let (mut unsent, mut stream) = (Unsent::default(), Vec::new());
        messages.iter().for_each(|message| unsent.push(message));
        assert_eq!(unsent.send(&mut stream).unwrap(), stream.len());
        stream
    }

    /// A writer that accepts the number of bytes that `takes` gives for each call; 0 is a full
    /// buffer.
    struct Narrow<'a> {
        takes: &'a mut dyn Iterator<Item = usize>,
        got: &'a mut Vec<u8>,
    }

    impl Write for Narrow<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.takes.next() {
                None | Some(0) => Err(ErrorKind::WouldBlock.into()),
                Some(most) => {
                    let count = most.min(bytes.len());
                    self.got.extend_from_slice(&bytes[..count]);
                    Ok(count)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let length = prop_oneof![4 => 1usize..40, 2 => 200usize..900, 1 => Just(70_000 / 2)];
        prop::collection::vec((length, any::<u8>()), 0..12)
            .prop_map(|all| all.into_iter().map(|(length, byte)| vec![byte; length]).collect())
    }

    proptest! {
        /// However the bytes are split, and whether the reader pauses or not, the same messages
        /// come out, and no bytes remain.
        #[test]
        fn chopping_changes_nothing(
            messages in messages(),
            cuts in prop::collection::vec(prop_oneof![Just(1usize), 1usize..5, 5usize..20_000], 1..40),
            takes in prop::collection::vec(0usize..6, 1..20),
        ) {
            let stream = framed(&messages);
            let (mut frames, mut got) = (Frames::default(), Vec::new());
            let (mut cuts, mut takes) = (cuts.iter().cycle(), takes.iter().cycle());
            let mut left = &stream[..];
            while !left.is_empty() {
                let (mut fresh, rest) = left.split_at((*cuts.next().unwrap()).min(left.len()));
                left = rest;
                for _ in 0..*takes.next().unwrap() {
                    match frames.next(&mut fresh, ANY).unwrap() {
                        Some(message) => got.push(message.to_vec()),
                        None => break,
                    }
                }
                frames.keep(fresh);
                let came = stream.len() - left.len();
                prop_assert!(frames.bytes.capacity() <= 2 * came.max(8), "invariant 2");
            }
            while frames.has_whole(ANY) {
                got.push(frames.next(&mut &[][..], ANY).unwrap().unwrap().to_vec());
            }
            prop_assert!(frames.is_empty());
            frames.keep(&[]);
            prop_assert_eq!(frames.bytes.capacity(), 0, "a connection at rest has no buffer");
            prop_assert!(got == messages);
        }

        /// A kernel that takes few bytes at a time gets the same bytes as one that takes all, with
        /// messages added between.
        #[test]
        fn narrow_writers_get_all(messages in messages(), takes in prop::collection::vec(0usize..3_000, 1..60)) {
            let (mut unsent, mut got) = (Unsent::default(), Vec::new());
            let mut takes = takes.into_iter();
            for message in &messages {
                unsent.push(message);
                let before = (unsent.len(), got.len());
                let sent = unsent.send(Narrow { takes: &mut takes, got: &mut got }).unwrap();
                prop_assert_eq!(sent, got.len() - before.1);
                prop_assert_eq!(unsent.len(), before.0 - sent);
            }
            unsent.send(&mut got).unwrap();
            prop_assert_eq!(unsent.bytes.capacity(), 0);
            prop_assert!(got == framed(&messages));
        }
    }

    /// A length outside its limits is an error as soon as it is complete, however its bytes arrive.
    #[test]
    fn bad_lengths() {
        let lengths = Lengths { least: 12, most: 512 };
        for (length, is_good) in [(0u16, false), (11, false), (12, true), (512, true), (513, false)]
        {
            let bytes = length.to_be_bytes();
            let expected = if is_good { Ok(None) } else { Err(BadLength) };
            let mut frames = Frames::default();
            assert_eq!(frames.next(&mut &bytes[..], lengths), expected);
            frames.keep(&bytes[..1]);
            assert!(!frames.has_whole(lengths));
            assert_eq!(frames.next(&mut &bytes[1..], lengths), expected);
            assert_eq!(frames.has_whole(lengths), !is_good);
        }
    }

    /// Used bytes are discarded when they are half of the stored ones. So a reader that takes one
    /// message at a time neither moves the rest each time, nor stores everything that ever arrived.
    /// Invariant 1.
    #[test]
    fn taken_bytes_go() {
        let stream = framed(&vec![vec![7; 98]; 100]);
        let mut frames = Frames::default();
        frames.keep(&stream);
        let mut moved = 0;
        for _ in 0..100 {
            assert!(frames.next(&mut &[][..], ANY).unwrap().is_some());
            let before = frames.bytes.len();
            frames.keep(&[]);
            if frames.bytes.len() < before {
                moved += frames.bytes.len();
            }
            assert!(frames.taken * 2 <= stream.len());
        }
        assert!(moved <= stream.len(), "{moved}");
        assert_eq!(frames.bytes.capacity(), 0);
    }
}
