//! Finds the next DNS message in a TCP stream after a hole.
//!
//! DNS over TCP puts a two-byte length before each message (RFC 1035, section 4.2.2). When bytes
//! are missing, the place of the next length is unknown. Senders usually begin a segment with a
//! length, so the first offset tried is 0; then each following one is, up to [`SCAN_BYTES_MAX`].
//!
//! A place found is *plausible*, not proven: a parser must still accept it. So the test is strict:
//! a question that ends inside the message, counts that fit the length, flags in use, and, if there
//! are bytes after the message, that they begin a message as well.

use crate::read::{slice_at, u8_at, u16_at};

/// Offsets beyond this are not tried. A hole is followed by a segment start soon, or by the next
/// hole.
const SCAN_BYTES_MAX: usize = 2048;

const HEADER_BYTES: usize = 12;

/// A question of the root: one byte of name, type, class.
const QUESTION_BYTES_MIN: usize = 5;

/// A record of the root without data: name, type, class, TTL, length.
const RECORD_BYTES_MIN: usize = 11;

/// The offset in `bytes` (the first bytes after a hole) at which a DNS message with its two-byte
/// length plausibly begins.
pub fn dns_resync(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().min(SCAN_BYTES_MAX);
    (0..last).find(|&offset| begins_message(&bytes[offset..]))
}

fn begins_message(framed: &[u8]) -> bool {
    let Some(length) = u16_at(framed, 0).map(usize::from) else { return false };
    let message = &framed[2..framed.len().min(2 + length)];
    if !is_plausible_header(message, length) || !holds_question(message, length) {
        return false;
    }
    // The next header must be plausible as well, if enough of it is here.
    let after = framed.get(2 + length..).unwrap_or_default();
    match (u16_at(after, 0), after.get(2..)) {
        (Some(length), Some(next)) if next.len() >= HEADER_BYTES => {
            is_plausible_header(next, usize::from(length))
        }
        _ => true,
    }
}

/// Judges the twelve bytes of a header (RFC 1035, section 4.1.1) for a message of `length`.
fn is_plausible_header(message: &[u8], length: usize) -> bool {
    let Some(flags) = u16_at(message, 2) else { return false };
    let count = |offset| u16_at(message, offset).map(usize::from);
    let (Some(questions), Some(answers), Some(authorities), Some(additionals)) =
        (count(4), count(6), count(8), count(10))
    else {
        return false;
    };
    let is_response = flags & 0x8000 != 0;
    let opcode = (flags >> 11) & 15;
    let rcode = flags & 15;
    let records = answers + authorities + additionals;
    // Opcodes 0, 4 and 5 are those in use over TCP: query, notify, update (RFC 6895). The Z bit
    // is zero. A query has rcode 0.
    matches!(opcode, 0 | 4 | 5)
        && flags & 0x0040 == 0
        && rcode <= 11
        && (is_response || rcode == 0)
        && questions == 1
        && HEADER_BYTES + QUESTION_BYTES_MIN + records * RECORD_BYTES_MIN <= length
}

/// True if the question's name, uncompressed as the first name of a message always is, ends with a
/// type and a class in use, all inside `length`. Also true if `message` is cut before that can be
/// decided.
fn holds_question(message: &[u8], length: usize) -> bool {
    let mut offset = HEADER_BYTES;
    loop {
        match u8_at(message, offset) {
            Some(0) => break,
            Some(label @ 1..=63) => offset += 1 + usize::from(label),
            Some(_) => return false,
            None => return message.len() < length,
        }
        if offset - HEADER_BYTES >= 255 {
            return false;
        }
    }
    match slice_at(message, offset + 1, 4) {
        // Classes IN, CH, HS, NONE and ANY.
        Some(&[type_high, type_low, class_high, class_low]) => {
            (type_high, type_low) != (0, 0)
                && class_high == 0
                && matches!(class_low, 1 | 3 | 4 | 254 | 255)
        }
        _ => message.len() < length && offset + 5 <= length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &[u8]) -> Vec<u8> {
        let mut message = vec![0, 0, 0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split(|&byte| byte == b'.') {
            message.push(label.len() as u8);
            message.extend_from_slice(label);
        }
        message.extend_from_slice(&[0, 0, 1, 0, 1]);
        let length = message.len() as u16 - 2;
        message[..2].copy_from_slice(&length.to_be_bytes());
        message
    }

    /// A message is found at the start, and after the tail of another one; garbage and the middle
    /// of a message give nothing.
    #[test]
    fn next_message_is_found() {
        let first = query(b"www.example.com");
        let second = query(b"mail.example.org");
        assert_eq!(dns_resync(&first), Some(0));
        assert_eq!(dns_resync(&first[..20]), Some(0), "a message cut by the segment's end");
        let both = [&first[..], &second[..]].concat();
        for cut in 1..first.len() {
            assert_eq!(dns_resync(&both[cut..]), Some(first.len() - cut), "cut at {cut}");
        }
        for cut in 1..first.len() {
            assert_eq!(dns_resync(&first[cut..]), None, "cut at {cut}");
        }
        assert_eq!(dns_resync(&[0; 5000]), None);
        assert_eq!(dns_resync(&[0xff; 5000]), None);
        assert_eq!(dns_resync(b""), None);
    }

    /// Flags and classes that are not in use, and names without end, are no messages.
    #[test]
    fn implausible_messages() {
        let sound = query(b"www.example.com");
        let last = sound.len() - 1;
        for (at, byte) in [(4, 0x31), (5, 1), (5, 0x40), (7, 2), (9, 9), (last, 7), (last - 1, 1)] {
            let mut message = sound.clone();
            message[at] = byte;
            assert_eq!(dns_resync(&message), None, "byte {at} is {byte}");
        }
        let labels = ["label"; 43].join(".");
        assert_eq!(dns_resync(&query(labels.as_bytes())[..200]), Some(0));
        assert_eq!(dns_resync(&query(labels.as_bytes())), None, "259 bytes of name");
    }

    /// A message that is not followed by a message is not accepted.
    #[test]
    fn the_follower_counts() {
        let mut bytes = query(b"www.example.com");
        bytes.extend_from_slice(&[0xee; 40]);
        assert_eq!(dns_resync(&bytes), None);
    }
}
