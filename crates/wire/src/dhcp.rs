//! DHCP: the name that a host sends to its server, and the address that it gets.
//!
//! Name and address are often in different messages (a client's REQUEST, the server's ACK), so
//! these readers return the content of each message, with the keys that join them: the transaction
//! ID and the client's hardware address or DUID. The caller joins them.
//!
//! | | carries | RFC |
//! |---|---|---|
//! | [`v4`] | UDP ports 67 and 68 | 2131, 2132, 3396 (long options), 4702 (client FQDN) |
//! | [`v6`] | UDP ports 546 and 547 | 8415, 4704 (client FQDN) |
//!
//! Names go into a caller's [`NameBuf`] in canonical spelling. A host name is often one label
//! without a domain.
//!
//! Bounds: each accessor walks the options once; relays nest at most [`v6::RELAYS_MAX`] deep. No
//! allocation.

use std::fmt;

use crate::dns::NameBuf;
use crate::name::NAME_BYTES_MAX;

pub mod v4;
pub mod v6;

/// A kind of damage in a DHCP message. The caller counts it and drops the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DhcpError {
    /// The message ends before its fixed part does.
    TooShort,
    /// Not DHCP: the operation, the magic cookie or the message type is invalid.
    NotDhcp,
    /// An option runs past the end of its field.
    OptionTruncated,
    /// An option's length contradicts its kind.
    OptionMalformed,
    /// More relays than are allowed between client and server.
    TooManyRelays,
}

impl DhcpError {
    /// The spelling in counters and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            DhcpError::TooShort => "dhcp_too_short",
            DhcpError::NotDhcp => "dhcp_not_dhcp",
            DhcpError::OptionTruncated => "dhcp_option_truncated",
            DhcpError::OptionMalformed => "dhcp_option_malformed",
            DhcpError::TooManyRelays => "dhcp_too_many_relays",
        }
    }
}

impl fmt::Display for DhcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for DhcpError {}

/// Reads a name given as text, as [`crate::Name::from_text`] does; some clients end it with NUL.
/// False if it is empty, has a NUL inside, or is longer than a name may be: an option in several
/// parts (RFC 3396) has room for that.
fn read_text(text: &[u8], out: &mut NameBuf) -> bool {
    let end = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let text = text[..end].strip_suffix(b".").unwrap_or(&text[..end]);
    out.clear();
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.contains(&0) && out.push_text(text)
}

/// Reads a name in DNS encoding without compression. A partial name, which the server completes,
/// has no root label at its end (RFC 4702, section 2.3.1; RFC 4704, section 4.2). False if it is
/// empty or malformed.
fn read_wire(wire: &[u8], out: &mut NameBuf) -> bool {
    out.clear();
    let mut rest = wire;
    while let [length @ 1..=63, after @ ..] = rest {
        let Some((label, next)) = after.split_at_checked(usize::from(*length)) else {
            return false;
        };
        if !out.push_label(label) {
            return false;
        }
        rest = next;
    }
    matches!(rest, [] | [0]) && !out.is_root() && wire.len() <= crate::dns::NAME_WIRE_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(f: fn(&[u8], &mut NameBuf) -> bool, bytes: &[u8]) -> Option<String> {
        let mut out = NameBuf::new();
        f(bytes, &mut out).then(|| out.as_bytes().escape_ascii().to_string())
    }

    /// Text loses its case, one trailing dot and trailing NULs; empty text is no name.
    #[test]
    fn text() {
        assert_eq!(read(read_text, b"My-PC").as_deref(), Some("my-pc"));
        assert_eq!(read(read_text, b"pc.Example.\0\0").as_deref(), Some("pc.example"));
        for none in [&b""[..], b".", b"\0", b"a\0b", &[b'a'; NAME_BYTES_MAX + 1]] {
            assert_eq!(read(read_text, none), None);
        }
        assert!(read(read_text, &[b'a'; NAME_BYTES_MAX]).is_some());
    }

    /// Whole and partial names are read; pointers and cut labels are not.
    #[test]
    fn wire() {
        assert_eq!(read(read_wire, b"\x02PC\x04test\0").as_deref(), Some("pc.test"));
        assert_eq!(read(read_wire, b"\x02PC").as_deref(), Some("pc"));
        for none in [&b""[..], b"\0", b"\x03PC", b"\xc0\x0c", b"\x02PC\0\x01", b"\x02PC\0\0"] {
            assert_eq!(read(read_wire, none), None, "{none:?}");
        }
        assert_eq!(read(read_wire, &b"\x01a".repeat(128)), None);
    }
}
