//! Reading domain names off the wire (RFC 1035, sections 3.1 and 4.1.4).
//!
//! A name is a run of labels that ends in the root or in a pointer to another run. A reader follows
//! a pointer only to a place strictly before the run with the pointer, and the run found there must
//! end before that place. Every encoder satisfies this and no loop can, and no byte is read twice
//! for one name. That alone would still allow a name of thousands of pointers to pointers, so
//! pointers are counted too.
//!
//! Names come out as [`crate::name`] describes: lower case, labels joined by `.`, an inner dot or
//! backslash escaped.
//!
//! Cost: one pass over the labels; no allocation.

use super::DnsError;

/// Most bytes of a name on the wire, length bytes and root included (RFC 1035, section 3.1).
pub const NAME_WIRE_BYTES_MAX: usize = 255;

/// Most labels of a name, without the root: this fits [`NAME_WIRE_BYTES_MAX`].
pub const LABELS_MAX: usize = 127;

/// Most compression pointers that are followed for one name. A sane encoder needs at most one a
/// label.
pub const POINTERS_MAX: usize = LABELS_MAX;

/// Bytes that a [`NameBuf`] can hold.
const CAPACITY: usize = 512;

const _: () = assert!(
    crate::name::NAME_BYTES_MAX <= CAPACITY && NAME_WIRE_BYTES_MAX * 2 <= CAPACITY,
    "a name of the longest wire form fits with every byte escaped"
);

/// Bytes of a label that are folded at once.
const BLOCK_BYTES: usize = 16;

/// A place for one name in canonical spelling. Reused from name to name; never on the heap.
#[derive(Debug)]
pub struct NameBuf {
    len: usize,
    bytes: [u8; CAPACITY],
}

impl NameBuf {
    /// An empty buffer (which spells the root).
    pub const fn new() -> NameBuf {
        NameBuf { len: 0, bytes: [0; CAPACITY] }
    }

    /// The canonical bytes; empty for the root.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// True when the name is the root.
    #[inline]
    pub fn is_root(&self) -> bool {
        self.len == 0
    }

    /// Clears the name.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends one label in wire form. False if there is no room, which does not happen for a name
    /// of legal length.
    #[inline]
    pub(crate) fn push_label(&mut self, label: &[u8]) -> bool {
        self.push_label_of(label, label.len())
    }

    /// Appends the label that is the first `length` bytes of `source`; the bytes after it are
    /// there for the sake of speed.
    #[inline]
    fn push_label_of(&mut self, source: &[u8], length: usize) -> bool {
        let mut start = self.len;
        if start != 0 {
            match self.bytes.get_mut(start) {
                Some(dot) => *dot = b'.',
                None => return false,
            }
            start += 1;
        }
        // Most labels fit one block. What is written after a label is overwritten by the next one,
        // or stands after the end; a byte there may look special too, and then the slow way is
        // right as well.
        let folded = if length <= BLOCK_BYTES {
            self.fold_block(source, start, 0)
        } else {
            (0..length).step_by(BLOCK_BYTES).all(|done| self.fold_block(source, start, done))
        };
        if folded {
            self.len = start + length;
            return true;
        }
        self.push_bytes(start, &source[..length])
    }

    /// Folds a block of fixed size, which takes a few vector instructions. False where a byte is
    /// special or there is no whole block.
    #[inline(always)]
    fn fold_block(&mut self, source: &[u8], start: usize, done: usize) -> bool {
        let from = source.get(done..).and_then(<[u8]>::first_chunk::<BLOCK_BYTES>);
        let to = self.bytes.get_mut(start + done..).and_then(<[u8]>::first_chunk_mut);
        let (Some(from), Some(to)) = (from, to) else { return false };
        *to = from.map(|byte| byte.to_ascii_lowercase());
        !from.iter().fold(false, |any, &byte| any | is_special(byte))
    }

    /// Writes a label byte by byte, with escapes.
    fn push_bytes(&mut self, start: usize, label: &[u8]) -> bool {
        let mut at = start;
        for &byte in label {
            if is_special(byte) {
                let Some(escape) = self.bytes.get_mut(at) else { return false };
                *escape = b'\\';
                at += 1;
            }
            let Some(to) = self.bytes.get_mut(at) else { return false };
            *to = byte.to_ascii_lowercase();
            at += 1;
        }
        self.len = at;
        true
    }

    /// Takes text, in which a dot separates labels: folds case and nothing else, as
    /// [`crate::Name::from_text`] does. False, and nothing done, where there is no room.
    pub(crate) fn push_text(&mut self, text: &[u8]) -> bool {
        let start = self.len;
        let room = self.push_canonical(text);
        self.bytes[start..self.len].make_ascii_lowercase();
        room
    }

    /// Appends bytes that are in canonical spelling already. False, and nothing done, where
    /// there is no room.
    pub(crate) fn push_canonical(&mut self, bytes: &[u8]) -> bool {
        match self.bytes.get_mut(self.len..self.len + bytes.len()) {
            Some(out) => {
                out.copy_from_slice(bytes);
                self.len += bytes.len();
                true
            }
            None => false,
        }
    }
}

/// Bytes that need an escape within a label.
#[inline(always)]
fn is_special(byte: u8) -> bool {
    (byte == b'.') | (byte == b'\\')
}

impl Default for NameBuf {
    fn default() -> NameBuf {
        NameBuf::new()
    }
}

/// The target of the pointer at `offset`, if the pointer is whole.
#[inline]
pub(super) fn pointer_at(message: &[u8], offset: usize) -> Option<usize> {
    let pointer = crate::read::u16_at(message, offset)?;
    (pointer >= 0xc000).then_some(usize::from(pointer & 0x3fff))
}

/// Reads the name at `offset` of a whole message into `out` and returns the offset of the byte
/// after it. On an error `out` holds the labels read so far, which name nothing.
#[inline]
pub fn read_name(message: &[u8], offset: usize, out: &mut NameBuf) -> Result<usize, DnsError> {
    out.clear();
    walk_name(message, offset, |label, length| out.push_label_of(label, length))
}

/// Appends the name at `offset` of a whole message in wire form, uncompressed and with its letters
/// unchanged. Returns the offset of the byte after it. After an error the appended bytes are
/// useless.
pub fn read_wire_name(message: &[u8], offset: usize, out: &mut Vec<u8>) -> Result<usize, DnsError> {
    let end = walk_name(message, offset, |label, length| {
        out.push(length as u8);
        out.extend_from_slice(&label[..length]);
        true
    })?;
    out.push(0);
    Ok(end)
}

/// Walks over the labels of the name at `offset` of a whole message, through its pointers, and
/// returns the offset of the byte after the name where it began. `take` gets the bytes after the
/// length byte, and that length; it returns false if it has no room.
#[inline(always)]
pub(super) fn walk_name(
    message: &[u8],
    offset: usize,
    mut take: impl FnMut(&[u8], usize) -> bool,
) -> Result<usize, DnsError> {
    let mut at = offset;
    // Start of the run of labels being read; the next pointer must lead before it.
    let mut run = offset;
    // Start of the run before, which this one must not touch.
    let mut limit = usize::MAX;
    let mut end = None;
    let mut wire_bytes = 1;
    let mut pointers = 0;
    loop {
        #[cfg(test)]
        steps::count();
        let length = usize::from(*message.get(at).ok_or(DnsError::SectionTruncated)?);
        if at >= limit {
            return Err(DnsError::NameLoop);
        }
        match length {
            0 => return Ok(end.unwrap_or(at + 1)),
            1..=63 => {
                let label = &message[at + 1..];
                if label.len() < length {
                    return Err(DnsError::SectionTruncated);
                }
                wire_bytes += 1 + length;
                if wire_bytes > NAME_WIRE_BYTES_MAX || !take(label, length) {
                    return Err(DnsError::NameTooLong);
                }
                at += 1 + length;
            }
            0xc0.. => {
                let target = pointer_at(message, at).ok_or(DnsError::SectionTruncated)?;
                end = end.or(Some(at + 2));
                pointers += 1;
                check_pointer(target, run, at, pointers)?;
                (limit, run, at) = (run, target, target);
            }
            _ => return Err(DnsError::LabelInvalid),
        }
    }
}

/// Checks invariant 1 of `dns` for a pointer at `at`, in the run that began at `run`.
#[inline]
fn check_pointer(target: usize, run: usize, at: usize, pointers: usize) -> Result<(), DnsError> {
    if target < super::HEADER_BYTES {
        Err(DnsError::PointerIntoHeader)
    } else if target > at {
        Err(DnsError::PointerForward)
    } else if target >= run || pointers > POINTERS_MAX {
        Err(DnsError::NameLoop)
    } else {
        Ok(())
    }
}

/// Finds the byte after the name at `offset` without following pointers.
#[inline]
pub fn skip_name(message: &[u8], offset: usize) -> Result<usize, DnsError> {
    let mut at = offset;
    loop {
        #[cfg(test)]
        steps::count();
        let length = *message.get(at).ok_or(DnsError::SectionTruncated)?;
        match length {
            0 => return Ok(at + 1),
            1..=63 => at += 1 + usize::from(length),
            0xc0.. if at + 2 <= message.len() => return Ok(at + 2),
            0xc0.. => return Err(DnsError::SectionTruncated),
            _ => return Err(DnsError::LabelInvalid),
        }
        if at - offset >= NAME_WIRE_BYTES_MAX {
            return Err(DnsError::NameTooLong);
        }
    }
}

/// Counts the turns of the loops above, so that tests can prove their bound.
#[cfg(test)]
pub(super) mod steps {
    use std::cell::Cell;

    thread_local!(static STEPS: Cell<u64> = const { Cell::new(0) });

    pub fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Runs `work` and returns the number of its turns.
    pub fn of(work: impl FnOnce()) -> u64 {
        let before = STEPS.get();
        work();
        STEPS.get() - before
    }
}

#[cfg(test)]
mod tests {
    use super::super::HEADER_BYTES;
    use super::*;

    /// Reads at `offset` of a header of zeros followed by `body`; offsets count from the header.
    fn read(body: &[u8], offset: usize) -> Result<(Vec<u8>, usize), DnsError> {
        let mut message = vec![0; HEADER_BYTES];
        message.extend_from_slice(body);
        let mut name = NameBuf::new();
        let end = read_name(&message, offset, &mut name)?;
        assert_eq!(skip_name(&message, offset), Ok(end), "skipping agrees with reading");
        Ok((name.as_bytes().to_vec(), end))
    }

    /// Plain, compressed and root names are read in canonical spelling with the right end.
    #[test]
    fn spelling_and_end() {
        let body = b"\x03WwW\x07Example\x03com\x00\x04mail\xc0\x10\x00\x03a.b\x01\\\x00";
        assert_eq!(read(body, 12), Ok((b"www.example.com".to_vec(), 29)));
        assert_eq!(read(body, 29), Ok((b"mail.example.com".to_vec(), 36)));
        assert_eq!(read(body, 36), Ok((Vec::new(), 37)));
        assert_eq!(read(body, 37), Ok((br"a\.b.\\".to_vec(), 44)));
    }

    /// Each kind of bad pointer and label has its own error, and none of them loops. Invariant 1 of
    /// `dns`.
    #[test]
    fn bad_names() {
        assert_eq!(read(b"\xc0\x0c", 12), Err(DnsError::NameLoop), "a pointer to itself");
        assert_eq!(read(b"\x01a\xc0\x0c", 12), Err(DnsError::NameLoop), "a name within itself");
        assert_eq!(read(b"\xc0\x0e\xc0\x0c", 12), Err(DnsError::PointerForward));
        assert_eq!(read(b"\xc0\x0e\xc0\x0c", 14), Err(DnsError::PointerForward), "two in a ring");
        assert_eq!(
            read(b"\x01a\xc0\x0e\xc0\x0c", 16),
            Err(DnsError::NameLoop),
            "a ring further on"
        );
        assert_eq!(read(b"\xc0\x00", 12), Err(DnsError::PointerIntoHeader));
        assert_eq!(read(b"\x03abc\xc0\x0e\0", 16), Err(DnsError::LabelInvalid), "into a label");
        assert_eq!(read(b"\x03\x01\x03c\xc0\x0e\0\0", 16), Err(DnsError::NameLoop), "over itself");
        assert_eq!(read(b"\x40", 12), Err(DnsError::LabelInvalid));
        assert_eq!(read(b"\x80", 12), Err(DnsError::LabelInvalid));
        assert_eq!(read(b"\x05abc", 12), Err(DnsError::SectionTruncated));
        assert_eq!(read(b"\x01a", 12), Err(DnsError::SectionTruncated));
        assert_eq!(read(b"\xc0", 12), Err(DnsError::SectionTruncated));
        assert_eq!(read(b"", 12), Err(DnsError::SectionTruncated));
        assert_eq!(read(b"", usize::MAX), Err(DnsError::SectionTruncated));
    }

    /// 127 labels are a name, 128 are not; nor are 256 bytes through a pointer, nor a thousand.
    #[test]
    fn lengths() {
        let mut longest = b"\x01a".repeat(127);
        longest.push(0);
        let (name, end) = read(&longest, 12).expect("255 bytes are legal");
        assert_eq!((name.len(), end), (253, 12 + 255));

        for labels in [128, 1000] {
            let mut body = b"\x01a".repeat(labels);
            body.push(0);
            assert_eq!(read(&body, 12), Err(DnsError::NameTooLong));
        }
        let mut prefixed = longest.clone();
        prefixed.extend_from_slice(b"\x01b\xc0\x0c");
        assert_eq!(read(&prefixed, 12 + 255), Err(DnsError::NameTooLong));
    }

    /// The longest name fits the buffer also when every byte needs an escape.
    #[test]
    fn all_escaped() {
        let mut body = Vec::new();
        for length in [63, 63, 63, 61] {
            body.push(length);
            body.extend(std::iter::repeat_n(b'.', usize::from(length)));
        }
        body.push(0);
        let (name, _) = read(&body, 12).expect("255 bytes are legal");
        assert_eq!(name.len(), 250 * 2 + 3);
        assert!(name.len() <= crate::name::NAME_BYTES_MAX);
    }

    /// Labels of every length fold in the same way, in the middle of a message and at its end,
    /// where no whole block is left to read.
    #[test]
    fn blocks() {
        for length in 1..=63u8 {
            let label: Vec<u8> = (0..length).map(|index| b'A' + index % 26).collect();
            let mut body = vec![length];
            body.extend_from_slice(&label);
            body.push(0);
            let folded = label.to_ascii_lowercase();
            let end = HEADER_BYTES + body.len();
            assert_eq!(read(&body, HEADER_BYTES), Ok((folded.clone(), end)), "{length} at the end");
            body.extend_from_slice(&[b'.'; 64]);
            assert_eq!(
                read(&body, HEADER_BYTES),
                Ok((folded.clone(), end)),
                "{length} before dots"
            );
            let mut buffer = NameBuf::new();
            assert!(buffer.push_label(&label) && buffer.push_label(&label));
            assert_eq!(buffer.as_bytes(), [&folded[..], &folded].join(&b'.'));
        }
    }

    /// A chain of pointers to pointers ends with an error after a fixed number of steps. Invariant
    /// 1 of `dns`.
    #[test]
    fn pointer_ladder() {
        let mut body = vec![0, 0];
        for rung in 0..8000u16 {
            body.extend_from_slice(&(0xc000 | (12 + rung * 2)).to_be_bytes());
        }
        assert_eq!(read(&body, 12 + 2 * POINTERS_MAX), Ok((Vec::new(), 14 + 2 * POINTERS_MAX)));
        let taken = steps::of(|| {
            assert_eq!(read(&body, 12 + 2 * 8000), Err(DnsError::NameLoop));
        });
        assert!(taken <= 1 + POINTERS_MAX as u64, "{taken} steps");
    }
}
