//! Names, types, classes and response codes as operators write them.
//!
//! Names have the syntax of master files (RFC 1035, section 5.1): labels joined by dots, a dot at
//! the end, `\.` and `\\` for these bytes, `\DDD` for bytes that are not printable ASCII. Types,
//! classes and codes without a mnemonic are `TYPE65280`, `CLASS42` (RFC 3597) and `RCODE42`, so all
//! can be written and read back.
//!
//! Invariant: [`name_to_wire`] reads back the text that `push_name` writes for a valid name. The
//! text is ASCII without spaces, quotes and control characters, so a log line stays one line.
//!
//! Bounds: a name has 255 bytes on the wire, and four times that many as text. Cost: one pass.
//! Nothing here is on the path of a response.

use std::fmt::Write;

use crate::name::WireName;

/// The mnemonics of types that caches have.
const TYPES: [(u16, &str); 37] = [
    (1, "A"),
    (2, "NS"),
    (5, "CNAME"),
    (6, "SOA"),
    (12, "PTR"),
    (13, "HINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (24, "SIG"),
    (25, "KEY"),
    (28, "AAAA"),
    (29, "LOC"),
    (33, "SRV"),
    (35, "NAPTR"),
    (37, "CERT"),
    (39, "DNAME"),
    (41, "OPT"),
    (43, "DS"),
    (44, "SSHFP"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (53, "SMIMEA"),
    (61, "OPENPGPKEY"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (99, "SPF"),
    (251, "IXFR"),
    (252, "AXFR"),
    (255, "ANY"),
    (256, "URI"),
    (257, "CAA"),
];

const CLASSES: [(u16, &str); 5] = [(1, "IN"), (3, "CH"), (4, "HS"), (254, "NONE"), (255, "ANY")];

const RCODES: [(u16, &str); 14] = [
    (0, "NOERROR"),
    (1, "FORMERR"),
    (2, "SERVFAIL"),
    (3, "NXDOMAIN"),
    (4, "NOTIMP"),
    (5, "REFUSED"),
    (6, "YXDOMAIN"),
    (7, "YXRRSET"),
    (8, "NXRRSET"),
    (9, "NOTAUTH"),
    (10, "NOTZONE"),
    (16, "BADVERS"),
    (17, "BADKEY"),
    (23, "BADCOOKIE"),
];

/// Appends a name given in wire form, not compressed. It ignores bytes after the root, and a label
/// that is longer than the rest.
pub fn push_name(out: &mut String, wire: &[u8]) {
    let mut rest = wire;
    let mut is_root = true;
    while let Some((&length, after)) = rest.split_first()
        && length != 0
        && let Some((label, after)) = after.split_at_checked(usize::from(length))
    {
        for &byte in label {
            push_byte(out, byte);
        }
        out.push('.');
        (rest, is_root) = (after, false);
    }
    if is_root {
        out.push('.');
    }
}

/// One byte of a label. A quote is written as a number, for formats in which quotes have a meaning.
fn push_byte(out: &mut String, byte: u8) {
    match byte {
        b'.' | b'\\' => {
            out.push('\\');
            out.push(char::from(byte));
        }
        b'"' | b'(' | b')' | b';' | b'@' | b'$' => push_number(out, byte),
        0x21..=0x7e => out.push(char::from(byte)),
        _ => push_number(out, byte),
    }
}

fn push_number(out: &mut String, byte: u8) {
    out.push('\\');
    for digit in [byte / 100, byte / 10 % 10, byte % 10] {
        out.push(char::from(b'0' + digit));
    }
}

/// Parses a name to wire form in lower case. The dot at its end may be missing; `.` is the root.
/// `None` for empty labels, labels above 63 bytes, names above 255 bytes, and an incomplete escape.
pub fn name_to_wire(text: &str) -> Option<Vec<u8>> {
    WireName::read(text.as_bytes()).ok().map(|name| name.as_bytes().to_vec())
}

/// Appends a type's mnemonic, or `TYPE` and its number.
pub fn push_type(out: &mut String, number: u16) {
    push_word(out, &TYPES, "TYPE", number);
}

/// Appends a class's mnemonic, or `CLASS` and its number.
pub fn push_class(out: &mut String, number: u16) {
    push_word(out, &CLASSES, "CLASS", number);
}

/// Appends a response code's mnemonic, or `RCODE` and its number.
pub fn push_rcode(out: &mut String, number: u16) {
    push_word(out, &RCODES, "RCODE", number);
}

/// The number of a type, from its mnemonic in any case or from `TYPE` with a number.
pub fn type_number(text: &str) -> Option<u16> {
    word_number(text, &TYPES, "TYPE")
}

/// The number of a class, from its mnemonic in any case or from `CLASS` with a number.
pub fn class_number(text: &str) -> Option<u16> {
    word_number(text, &CLASSES, "CLASS")
}

fn push_word(out: &mut String, table: &[(u16, &str)], prefix: &str, number: u16) {
    match table.iter().find(|row| row.0 == number) {
        Some((_, word)) => out.push_str(word),
        None => {
            // Writing to a string does not fail.
            let _ = write!(out, "{prefix}{number}");
        }
    }
}

fn word_number(text: &str, table: &[(u16, &str)], prefix: &str) -> Option<u16> {
    if let Some((number, _)) = table.iter().find(|(_, word)| word.eq_ignore_ascii_case(text)) {
        return Some(*number);
    }
    let (head, digits) = text.split_at_checked(prefix.len())?;
    let is_number = head.eq_ignore_ascii_case(prefix) && digits.bytes().all(|d| d.is_ascii_digit());
    if is_number { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::dns::NAME_WIRE_BYTES_MAX;
    use proptest::prelude::*;

    fn text(wire: &[u8]) -> String {
        let mut out = String::new();
        push_name(&mut out, wire);
        out
    }

    /// Names of any bytes are written as in master files; a damaged name ends early.
    #[test]
    fn names_are_written() {
        for (wire, expected) in [
            (&b"\0"[..], "."),
            (b"\x03www\x07example\0", "www.example."),
            (b"\x03WWW\0rest", "WWW."),
            (b"\x04a.b\\\0", "a\\.b\\\\."),
            (b"\x03a \n\0", "a\\032\\010."),
            (b"\x02\"\xff\0", "\\034\\255."),
            (b"\x01a\x09short", "a."),
            (b"", "."),
        ] {
            assert_eq!(text(wire), expected, "{wire:?}");
        }
    }

    /// Names are read with and without the dot at their end, with both kinds of escapes, into lower
    /// case. Other texts are refused.
    #[test]
    fn names_are_read() {
        for (text, expected) in [
            (".", &b"\0"[..]),
            ("www.Example", b"\x03www\x07example\0"),
            ("www.example.", b"\x03www\x07example\0"),
            ("a\\.b.c", b"\x03a.b\x01c\0"),
            ("\\065b", b"\x02ab\0"),
        ] {
            assert_eq!(name_to_wire(text).as_deref(), Some(expected), "{text}");
        }
        let (long_label, long_name) = ("a".repeat(64), "a.".repeat(128));
        for text in [
            "",
            "..",
            ".a",
            "a..b",
            "a..",
            "\\",
            "\\1",
            "\\12",
            "\\1x2",
            "\\256",
            &long_label,
            &long_name,
        ] {
            assert_eq!(name_to_wire(text), None, "{text}");
        }
        assert_eq!(name_to_wire(&"a.".repeat(127)).map(|wire| wire.len()), Some(255));
    }

    /// Numbers have their usual mnemonics. Numbers without a mnemonic can still be written and
    /// read.
    #[test]
    fn numbers_have_words() {
        let mut out = String::new();
        push_type(&mut out, 65);
        push_class(&mut out, 42);
        push_rcode(&mut out, 3);
        push_rcode(&mut out, 4000);
        assert_eq!(out, "HTTPSCLASS42NXDOMAINRCODE4000");
        assert_eq!((type_number("aaaa"), type_number("type65535")), (Some(28), Some(65535)));
        assert_eq!((class_number("IN"), class_number("CLASS42")), (Some(1), Some(42)));
        for text in ["TYPE65536", "TYPE", "TYPE+1", "", "WHAT", "é"] {
            assert_eq!(type_number(text), None, "{text}");
        }
    }

    proptest! {
        /// The invariant: text of one printable word gives back a name of any bytes in lower case.
        #[test]
        fn names_come_back(labels in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 1..=20), 0..=10,
        )) {
            let mut wire = Vec::new();
            for label in &labels {
                wire.push(label.len() as u8);
                wire.extend_from_slice(label);
            }
            wire.push(0);
            let text = text(&wire);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"'));
            // Lengths are below the codes of letters.
            prop_assert_eq!(name_to_wire(&text), Some(wire.to_ascii_lowercase()));
        }

        /// No text makes the reader panic or return an invalid name.
        #[test]
        fn any_text_is_read(text in "[a\\\\.0-9é]{0,20}") {
            if let Some(wire) = name_to_wire(&text) {
                prop_assert!(wire.len() <= NAME_WIRE_BYTES_MAX && wire.ends_with(&[0]));
            }
        }
    }
}
