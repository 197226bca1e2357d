//! The frames that an Initial packet may hold (RFC 9000, sections 12.5 and 19).

use super::header::varint;

const PADDING: u64 = 0x00;
const PING: u64 = 0x01;
const ACK: u64 = 0x02;
const ACK_ECN: u64 = 0x03;
const CRYPTO: u64 = 0x06;
const CONNECTION_CLOSE: u64 = 0x1c;

/// Calls `take` with the offset and the data of each CRYPTO frame, until it returns false. True if
/// all frames could be read and `take` never returned false.
pub(super) fn for_each_crypto(
    mut payload: &[u8],
    mut take: impl FnMut(u64, &[u8]) -> bool,
) -> bool {
    while !payload.is_empty() {
        match next_frame(payload) {
            Some((crypto, rest)) => {
                if let Some((offset, data)) = crypto
                    && !take(offset, data)
                {
                    return false;
                }
                payload = rest;
            }
            None => return false,
        }
    }
    true
}

/// The same for Google's versions, whose CRYPTO frame has another number and whose ACK frame has
/// another form. Reading ends at a frame of another type; true unless `take` returned false.
pub(super) fn for_each_google_crypto(
    mut payload: &[u8],
    mut take: impl FnMut(u64, &[u8]) -> bool,
) -> bool {
    const GOOGLE_PING: u8 = 0x07;
    const GOOGLE_CRYPTO: u8 = 0x08;
    while let Some((&kind, rest)) = payload.split_first() {
        match kind {
            0 => payload = &rest[rest.iter().position(|&byte| byte != 0).unwrap_or(rest.len())..],
            GOOGLE_PING => payload = rest,
            GOOGLE_CRYPTO => {
                let Some(((offset, data), behind)) = crypto(rest) else { return true };
                if !take(offset, data) {
                    return false;
                }
                payload = behind;
            }
            _ => return true,
        }
    }
    true
}

/// A CRYPTO frame behind its type.
fn crypto(rest: &[u8]) -> Option<(Crypto<'_>, &[u8])> {
    let (offset, rest) = varint(rest)?;
    let (length, rest) = varint(rest)?;
    let (data, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some(((offset, data), rest))
}

/// Offset and data of a CRYPTO frame.
type Crypto<'a> = (u64, &'a [u8]);

/// One frame, and the bytes after it. `None` if it does not fit, or must not be in an Initial.
fn next_frame(payload: &[u8]) -> Option<(Option<Crypto<'_>>, &[u8])> {
    let (kind, rest) = varint(payload)?;
    match kind {
        // There are often hundreds of padding bytes.
        PADDING => {
            let padding = rest.iter().position(|&byte| byte != 0).unwrap_or(rest.len());
            Some((None, &rest[padding..]))
        }
        PING => Some((None, rest)),
        ACK | ACK_ECN => {
            // Largest, delay, count of ranges, first range; then a gap and a length each.
            let (_, rest) = varint(rest)?;
            let (_, rest) = varint(rest)?;
            let (ranges, rest) = varint(rest)?;
            let (_, mut rest) = varint(rest)?;
            // Each varint takes a byte at least, so this ends with the payload.
            for _ in 0..ranges {
                (_, rest) = varint(rest)?;
                (_, rest) = varint(rest)?;
            }
            if kind == ACK_ECN {
                for _ in 0..3 {
                    (_, rest) = varint(rest)?;
                }
            }
            Some((None, rest))
        }
        CRYPTO => {
            let (crypto, rest) = crypto(rest)?;
            Some((Some(crypto), rest))
        }
        CONNECTION_CLOSE => {
            // Error code, type of the frame at fault, reason.
            let (_, rest) = varint(rest)?;
            let (_, rest) = varint(rest)?;
            let (length, rest) = varint(rest)?;
            Some((None, rest.get(usize::try_from(length).ok()?..)?))
        }
        _ => None,
    }
}
