//! Bounds-checked big-endian reads. `None` means that the bytes end before the value does.

/// Reads one byte at `offset`.
#[inline(always)]
pub fn u8_at(bytes: &[u8], offset: usize) -> Option<u8> {
    bytes.get(offset).copied()
}

/// Reads a big-endian (network order) 16-bit value at `offset`.
#[inline(always)]
pub fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let raw = bytes.get(offset..)?.first_chunk()?;
    Some(u16::from_be_bytes(*raw))
}

/// Reads a big-endian 32-bit value at `offset`.
#[inline(always)]
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let raw = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_be_bytes(*raw))
}

/// Borrows `len` bytes at `offset`.
#[inline(always)]
pub fn slice_at(bytes: &[u8], offset: usize, len: usize) -> Option<&[u8]> {
    bytes.get(offset..)?.get(..len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read that would pass the end is `None`, also where the offset itself is past it.
    #[test]
    fn ends_are_respected() {
        let bytes = [1, 2, 3, 4];
        assert_eq!(u16_at(&bytes, 2), Some(0x0304));
        assert_eq!(u16_at(&bytes, 3), None);
        assert_eq!(u32_at(&bytes, 0), Some(0x0102_0304));
        assert_eq!(u32_at(&bytes, usize::MAX), None);
        assert_eq!(slice_at(&bytes, 4, 0), Some(&[][..]));
        assert_eq!(slice_at(&bytes, 1, usize::MAX), None);
    }
}
