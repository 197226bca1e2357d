//! Messages on a stream of octets: each with its length in two octets before it (RFC 1035, section
//! 4.2.2).
//!
//! ```text
//! kernel -> the caller's scratch -> Frames::next(): whole messages are lent from the scratch itself
//!                                -> Frames::keep(): the rest of a read waits here for more
//! message -> Unsent::push() -> Unsent::send(): as much as the kernel takes
//! ```
//!
//! Both hold octets only while there is something to hold: a connection at rest costs no buffer.
//!
//! Invariants
//! 1. No octet is looked at or moved more often than a small constant, however the stream was
//!    chopped: [`Frames`] adds to the first message that is not whole only what it lacks, and both
//!    throw away what is behind them when that is at least half.
//! 2. Memory follows what came, not what a length promises.
//!
//! Bounds: `Frames` keeps less than one message and what its caller keeps of one read; `Unsent` has
//! no limit of its own, its callers ask for its length first.

use std::io::{self, ErrorKind, Read, Write};

/// Octets of the length before each message.
const LENGTH_BYTES: usize = 2;

/// Octets of the longest question over UDP: what is longer is cut, and so malformed. Buffers of
/// batches are walked from end to end all the time, so they are no longer than they need be.
pub(crate) const QUESTION_BYTES_MAX: usize = 1_232;

/// The longest message that a length can tell.
pub(crate) const MESSAGE_BYTES_MAX: usize = u16::MAX as usize;

/// Octets that are read at once: a connection's share of a turn of the loop.
pub(crate) const READ_BYTES: usize = 16 << 10;

/// A message's length is outside of what is allowed; where the next one begins is not worth
/// knowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadLength;

/// Lengths that a message may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

/// What came of a stream and was not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    octets: Vec<u8>,
    /// Octets at the front that were taken.
    taken: usize,
}

impl Frames {
    /// The next whole message of what is kept and of `fresh`, which comes after it and loses what
    /// is used. `None` where more must come first.
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
        // What the kept part lacks is added: the length first, then what it asks for.
        self.fill(LENGTH_BYTES, fresh);
        let Some(end) = frame_end(&self.octets[self.taken..], lengths)? else { return Ok(None) };
        self.fill(end, fresh);
        if self.octets.len() - self.taken < end {
            return Ok(None);
        }
        let message = self.taken + LENGTH_BYTES..self.taken + end;
        self.taken += end;
        Ok(Some(&self.octets[message]))
    }

    /// Keeps what was not used of a read, and lets go of what was taken.
    pub(crate) fn keep(&mut self, fresh: &[u8]) {
        if self.is_empty() {
            // Assigned, so that memory of a connection at rest is given back.
            (self.octets, self.taken) = (fresh.to_vec(), 0);
            return;
        }
        forget(&mut self.octets, &mut self.taken);
        self.octets.extend_from_slice(fresh);
    }

    /// True where a call of [`Frames::next`] without fresh octets has something to tell.
    pub(crate) fn has_whole(&self, lengths: Lengths) -> bool {
        let kept = &self.octets[self.taken..];
        match frame_end(kept, lengths) {
            Ok(end) => end.is_some_and(|end| kept.len() >= end),
            Err(BadLength) => true,
        }
    }

    /// True where nothing is kept: the stream stands between two messages.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.octets.len()
    }

    /// Takes from `fresh` until there are `wanted` octets that were not taken, or `fresh` ends.
    fn fill(&mut self, wanted: usize, fresh: &mut &[u8]) {
        let lacks = wanted.saturating_sub(self.octets.len() - self.taken);
        let (used, rest) = fresh.split_at(lacks.min(fresh.len()));
        self.octets.extend_from_slice(used);
        *fresh = rest;
    }
}

/// Where the frame ends that `octets` begin with, which may be past their end; `None` where its
/// length is not here yet.
fn frame_end(octets: &[u8], lengths: Lengths) -> Result<Option<usize>, BadLength> {
    let Some(length) = octets.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*length));
    if length < lengths.least || length > lengths.most {
        return Err(BadLength);
    }
    Ok(Some(LENGTH_BYTES + length))
}

/// Throws away the octets that are done with, where they are at least half: so each octet is moved
/// once on average.
fn forget(octets: &mut Vec<u8>, done: &mut usize) {
    if 2 * *done >= octets.len() {
        octets.drain(..*done);
        *done = 0;
    }
}

/// Messages that the kernel has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    octets: Vec<u8>,
    /// Octets at the front that the kernel has taken.
    sent: usize,
}

impl Unsent {
    /// Adds a message of at most [`MESSAGE_BYTES_MAX`] octets; a longer one is cut, which callers
    /// rule out.
    pub(crate) fn push(&mut self, message: &[u8]) {
        let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
        forget(&mut self.octets, &mut self.sent);
        self.octets.extend_from_slice(&length.to_be_bytes());
        self.octets.extend_from_slice(&message[..length.into()]);
    }

    /// Octets that wait, lengths included.
    pub(crate) fn len(&self) -> usize {
        self.octets.len() - self.sent
    }

    /// Gives the kernel as much as it takes now: how many octets those were. An error is the
    /// connection's end.
    pub(crate) fn send(&mut self, mut to: impl Write) -> io::Result<usize> {
        let before = self.len();
        while self.len() > 0 {
            match to.write(&self.octets[self.sent..]) {
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

/// What one read of a connection brought.
#[derive(Debug)]
pub(crate) enum Received {
    /// So many octets.
    Octets(usize),
    /// Nothing now.
    Nothing,
    /// The peer will send no more.
    End,
    /// The connection is gone.
    Lost,
}

/// Reads once from a socket that does not block.
pub(crate) fn receive(mut from: impl Read, room: &mut [u8]) -> Received {
    match from.read(room) {
        Ok(0) => Received::End,
        Ok(count) => Received::Octets(count),
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

    /// A writer that takes what `takes` says, a call each; 0 is a full buffer.
    struct Narrow<'a> {
        takes: &'a mut dyn Iterator<Item = usize>,
        got: &'a mut Vec<u8>,
    }

    impl Write for Narrow<'_> {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            match self.takes.next() {
                None | Some(0) => Err(ErrorKind::WouldBlock.into()),
                Some(most) => {
                    let count = most.min(octets.len());
                    self.got.extend_from_slice(&octets[..count]);
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
            .prop_map(|all| all.into_iter().map(|(length, octet)| vec![octet; length]).collect())
    }

    proptest! {
        /// However the octets are chopped, and whether the taker stops now and then or not, the
        /// same messages come out, and nothing is left.
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
                prop_assert!(frames.octets.capacity() <= 2 * came.max(8), "invariant 2");
            }
            while frames.has_whole(ANY) {
                got.push(frames.next(&mut &[][..], ANY).unwrap().unwrap().to_vec());
            }
            prop_assert!(frames.is_empty());
            frames.keep(&[]);
            prop_assert_eq!(frames.octets.capacity(), 0, "a connection at rest has no buffer");
            prop_assert!(got == messages);
        }

        /// A kernel that takes little at a time gets the same octets as one that takes all,
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
            prop_assert_eq!(unsent.octets.capacity(), 0);
            prop_assert!(got == framed(&messages));
        }
    }

    /// Lengths outside of the limits are told as soon as they are there, wherever they came from.
    #[test]
    fn bad_lengths() {
        let lengths = Lengths { least: 12, most: 512 };
        for (length, is_good) in [(0u16, false), (11, false), (12, true), (512, true), (513, false)]
        {
            let octets = length.to_be_bytes();
            let expected = if is_good { Ok(None) } else { Err(BadLength) };
            let mut frames = Frames::default();
            assert_eq!(frames.next(&mut &octets[..], lengths), expected);
            frames.keep(&octets[..1]);
            assert!(!frames.has_whole(lengths));
            assert_eq!(frames.next(&mut &octets[1..], lengths), expected);
            assert_eq!(frames.has_whole(lengths), !is_good);
        }
    }

    /// What was taken is let go of when it is half of what is kept: a taker that takes one message
    /// at a time does not make the rest move each time, nor keeps all that ever came. Invariant 1.
    #[test]
    fn taken_octets_go() {
        let stream = framed(&vec![vec![7; 98]; 100]);
        let mut frames = Frames::default();
        frames.keep(&stream);
        let mut moved = 0;
        for _ in 0..100 {
            assert!(frames.next(&mut &[][..], ANY).unwrap().is_some());
            let before = frames.octets.len();
            frames.keep(&[]);
            if frames.octets.len() < before {
                moved += frames.octets.len();
            }
            assert!(frames.taken * 2 <= stream.len());
        }
        assert!(moved <= stream.len(), "{moved}");
        assert_eq!(frames.octets.capacity(), 0);
    }
}
