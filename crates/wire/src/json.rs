//! Strings of JSON, of any octets.

/// Appends octets as a string. What is not UTF-8 is `\xHH`, of which JSON doubles the backslash.
pub fn write_string(octets: &[u8], out: &mut Vec<u8>) {
    let is_special = |octet: &u8| octet.is_ascii_control() || b"\"\\".contains(octet);
    out.push(b'"');
    for chunk in octets.utf8_chunks() {
        let mut octets = chunk.valid().as_bytes();
        while let Some(at) = octets.iter().position(is_special) {
            out.extend_from_slice(&octets[..at]);
            match octets[at] {
                octet @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', octet]),
                octet => {
                    out.extend_from_slice(b"\\u00");
                    write_hex(octet, out);
                }
            }
            octets = &octets[at + 1..];
        }
        out.extend_from_slice(octets);
        for &octet in chunk.invalid() {
            // The first is a character of the value.
            out.extend_from_slice(b"\\\\x");
            write_hex(octet, out);
        }
    }
    out.push(b'"');
}

/// Appends two digits: `0A`.
pub fn write_hex(octet: u8, out: &mut Vec<u8>) {
    let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value)];
    out.extend_from_slice(&[digit(octet >> 4), digit(octet & 15)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing but what is meant ends a string, and octets that are no text are still told.
    #[test]
    fn strings() {
        let mut out = Vec::new();
        write_string(b"a\"b\\c\r\n\0\x7f\t\xff\xc3\xa4 d", &mut out);
        let expected = "\"a\\\"b\\\\c\\u000D\\u000A\\u0000\\u007F\\u0009\\\\xFF\u{e4} d\"";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
