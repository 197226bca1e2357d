//! What derived code calls, and tuples: parts of fixed and of other lengths, put together and taken
//! apart.
//!
//! ```text
//! part | part | .. | length of the first part without a fixed one | of the next | ..
//! ```
//!
//! The last part has no length: it is what is left. Read from its end, this can be split in one way
//! only. A length below 255 is one byte, another four and a 255 after them.

/// Joins the parts, then the lengths of the open ones, and passes the bytes.
#[doc(hidden)]
#[inline]
pub fn join<R>(parts: &[(&[u8], bool)], with: impl FnOnce(&[u8]) -> R) -> R {
    const STACK_BYTES: usize = 256;
    let bytes: usize = parts.iter().map(|(part, open)| part.len() + 5 * usize::from(*open)).sum();
    if bytes > STACK_BYTES {
        let mut room = vec![0; bytes];
        let len = fill(&mut room, parts);
        return with(&room[..len]);
    }
    let mut room = [0; STACK_BYTES];
    let len = fill(&mut room, parts);
    with(&room[..len])
}

fn fill(room: &mut [u8], parts: &[(&[u8], bool)]) -> usize {
    let mut len = 0;
    let mut push = |bytes: &[u8]| {
        room[len..len + bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
    };
    parts.iter().for_each(|(part, _)| push(part));
    for part in parts.iter().filter(|(_, open)| *open).map(|(part, _)| part) {
        match part.len() {
            short @ ..255 => push(&[short as u8]),
            // A part of 4 GiB would be cut here, and two such keys could be confused. Their values
            // are refused long before, as larger than any slot.
            long => {
                push(&(long as u32).to_le_bytes());
                push(&[255]);
            }
        }
    }
    len
}

/// Takes apart what [`join`] put together, given the fixed length of each part that has one; that of
/// the last does not count. `None` if the bytes are none of that.
#[doc(hidden)]
#[inline]
pub fn split<const N: usize>(mut bytes: &[u8], fixed: [Option<usize>; N]) -> Option<[&[u8]; N]> {
    let mut lengths = [0; N];
    // The lengths are read from the end.
    for at in (0..N.saturating_sub(1)).rev() {
        lengths[at] = part_len(fixed[at], &mut bytes)?;
    }
    let mut parts = [&[][..]; N];
    for (at, part) in parts.iter_mut().enumerate() {
        let len = if at + 1 == N { bytes.len() } else { lengths[at] };
        (*part, bytes) = bytes.split_at_checked(len)?;
    }
    bytes.is_empty().then_some(parts)
}

/// The length of a part: that of its type, or the last one at the end of the bytes, from which it is
/// taken.
fn part_len(fixed: Option<usize>, bytes: &mut &[u8]) -> Option<usize> {
    if fixed.is_some() {
        return fixed;
    }
    let (&last, rest) = bytes.split_last()?;
    *bytes = rest;
    if last < 255 {
        return Some(last.into());
    }
    let (rest, len) = rest.split_last_chunk()?;
    *bytes = rest;
    usize::try_from(u32::from_le_bytes(*len)).ok()
}

/// The fixed length of all parts together, if each has one.
#[doc(hidden)]
pub const fn sum(parts: &[Option<usize>]) -> Option<usize> {
    let (mut bytes, mut at) = (0, 0);
    while at < parts.len() {
        match parts[at] {
            Some(part) => bytes += part,
            None => return None,
        }
        at += 1;
    }
    Some(bytes)
}
