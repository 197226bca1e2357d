//! Names in wire form, uncompressed and in lower case: which name is within which.

pub use larder_dns::key::is_within;

/// The name without its first label; `None` for the root and for an invalid name.
pub fn parent(name: &[u8]) -> Option<&[u8]> {
    let (&length, _) = name.split_first()?;
    if length == 0 { None } else { name.get(1 + usize::from(length)..) }
}

/// A name and all its ancestors; the root is last.
pub fn and_above(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |name| parent(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole labels count, and a name is within itself and within the root.
    #[test]
    fn whole_labels() {
        let name = b"\x03www\x07example\x03com\0";
        let above: Vec<&[u8]> = and_above(name).collect();
        assert_eq!(above, [&name[..], b"\x07example\x03com\0", b"\x03com\0", b"\0"]);
        assert!(above.iter().all(|zone| is_within(name, zone)));
        assert!(!is_within(b"\x03com\0", b"\x07example\x03com\0"));
        assert!(!is_within(b"\x08xexample\x03com\0", b"\x07example\x03com\0"));
        assert!(!is_within(b"", b"\0") && parent(b"\x05x").is_none() && parent(b"\0").is_none());
    }
}
