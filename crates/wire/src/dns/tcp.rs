//! DNS on a stream: each message after its length in two bytes (RFC 1035, section 4.2.2).

use std::ops::Range;

use super::{DnsError, HEADER_BYTES, Message};

/// Finds the message at the start of a stream. The range is that of the message in `bytes`; its end
/// is the number of consumed bytes. `None` means that the message has not arrived completely.
///
/// [`DnsError::NotDns`] means that this cannot be the length of a message, or not the header of
/// one: the stream carries something else, or the position is in the middle of a message after a
/// hole. The stream cannot be read on; the header is checked as soon as it is there, so that a
/// false length does not make the caller wait for up to 64 KiB.
pub fn next_message(bytes: &[u8]) -> Result<Option<Range<usize>>, DnsError> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<2>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes(*prefix));
    if length < HEADER_BYTES {
        return Err(DnsError::NotDns);
    }
    if rest.len() < HEADER_BYTES {
        return Ok(None);
    }
    let message = Message::parse_captured(&rest[..rest.len().min(length)], length)?;
    let opcode_known = matches!(message.opcode(), 0..=2 | 4..=6);
    // A message without a question is legal in a zone transfer, which is a sequence of messages; no
    // message has more than one question.
    if !opcode_known || message.question_count() > 1 {
        return Err(DnsError::NotDns);
    }
    let range = prefix.len()..prefix.len() + length;
    Ok((bytes.len() >= range.end).then_some(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut out = u16::try_from(message.len()).expect("short").to_be_bytes().to_vec();
        out.extend_from_slice(message);
        out
    }

    /// Two messages in one segment are found one after the other; no prefix is taken for whole.
    #[test]
    fn several_in_a_segment() {
        let mut stream = framed(QUERY);
        stream.extend(framed(QUERY));
        let first = next_message(&stream).expect("sound").expect("whole");
        assert_eq!(&stream[first.clone()], QUERY);
        let rest = &stream[first.end..];
        assert_eq!(next_message(rest), Ok(Some(2..2 + QUERY.len())));
        for cut in 0..rest.len() {
            assert_eq!(next_message(&rest[..cut]), Ok(None), "cut at {cut}");
        }
    }

    /// Bytes that are not DNS are recognized as soon as the length of a header has arrived.
    #[test]
    fn not_dns() {
        assert_eq!(next_message(b"\0\x0b"), Err(DnsError::NotDns), "shorter than a header");
        assert_eq!(next_message(b"GET / HTTP/1.1\r\n"), Err(DnsError::NotDns));
        assert_eq!(
            next_message(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03abc"),
            Err(DnsError::NotDns)
        );
    }
}
