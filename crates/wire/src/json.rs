//! Strings of JSON, of any bytes.

/// Appends bytes as a string. A byte that is not UTF-8 is written as `\xHH`, of which JSON doubles
/// the backslash.
pub fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    let is_special = |byte: &u8| byte.is_ascii_control() || b"\"\\".contains(byte);
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        let mut bytes = chunk.valid().as_bytes();
        while let Some(at) = bytes.iter().position(is_special) {
            out.extend_from_slice(&bytes[..at]);
            match bytes[at] {
                byte @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', byte]),
                byte => {
                    out.extend_from_slice(b"\\u00");
                    write_hex(byte, out);
                }
            }
            bytes = &bytes[at + 1..];
        }
        out.extend_from_slice(bytes);
        for &byte in chunk.invalid() {
            // The first is a character of the value.
            out.extend_from_slice(b"\\\\x");
            write_hex(byte, out);
        }
    }
    out.push(b'"');
}

/// Appends two digits: `0A`.
pub fn write_hex(byte: u8, out: &mut Vec<u8>) {
    let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value)];
    out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the closing quote ends a string, and bytes that are not text are still written.
    #[test]
    fn strings() {
        let mut out = Vec::new();
        write_string(b"a\"b\\c\r\n\0\x7f\t\xff\xc3\xa4 d", &mut out);
        let expected = "\"a\\\"b\\\\c\\u000D\\u000A\\u0000\\u007F\\u0009\\\\xFF\u{e4} d\"";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
