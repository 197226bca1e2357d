//! DHCP for IPv6 (RFC 8415): a type, a transaction ID, and options that contain options.
//!
//! A relay puts the message of a client whole into an option of its own message, and this may nest;
//! [`MessageV6::parse`] descends to the innermost.

use super::{DhcpError, read_wire};
use crate::Addr;
use crate::dns::NameBuf;
use crate::read::slice_at;

/// Most relays between client and server (RFC 8415, section 7.6: HOP_COUNT_LIMIT).
pub const RELAYS_MAX: usize = 8;

/// Bytes before the options: type and transaction ID.
const CLIENT_FIXED_BYTES: usize = 4;

/// Bytes before the options of a relay's message: type, hop count, link and peer address.
const RELAY_FIXED_BYTES: usize = 34;

/// Option codes.
mod option {
    pub const CLIENT_ID: u16 = 1;
    pub const IA_NA: u16 = 3;
    pub const IA_TA: u16 = 4;
    pub const IA_ADDR: u16 = 5;
    pub const RELAY_MESSAGE: u16 = 9;
    pub const CLIENT_FQDN: u16 = 39;
}

/// Bytes of IA_NA before its options: IAID, T1, T2. IA_TA has the IAID alone.
const IA_NA_FIXED_BYTES: usize = 12;
const IA_TA_FIXED_BYTES: usize = 4;

/// Bytes of IA_ADDR before its options: address, preferred and valid lifetime.
const IA_ADDR_FIXED_BYTES: usize = 24;

/// Message types that larder distinguishes (RFC 8415, section 7.3).
#[allow(missing_docs)]
pub mod message_type {
    pub const REPLY: u8 = 7;
    pub const RELAY_FORWARD: u8 = 12;
    pub const RELAY_REPLY: u8 = 13;
}

/// An address of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub addr: Addr,
    /// How long it may be used, seconds; 0 takes it away, `u32::MAX` means for ever.
    pub valid_s: u32,
}

/// A DHCPv6 message of a client or server, borrowed, without the messages of relays around it. Its
/// options are within it.
#[derive(Clone, Copy, Debug)]
pub struct MessageV6<'a> {
    /// The type of the message; see [`message_type`].
    pub message_type: u8,
    /// The 24-bit ID that joins a reply to its request.
    pub transaction_id: u32,
    /// Relays that the message was taken out of.
    pub relays: usize,
    options: &'a [u8],
}

impl<'a> MessageV6<'a> {
    /// Reads a datagram of ports 546 or 547.
    pub fn parse(payload: &'a [u8]) -> Result<MessageV6<'a>, DhcpError> {
        let mut message = payload;
        for relays in 0..=RELAYS_MAX {
            match message {
                [] => return Err(DhcpError::TooShort),
                [message_type::RELAY_FORWARD | message_type::RELAY_REPLY, ..] => {
                    message = relayed(message)?;
                }
                [1..=11, ..] => return MessageV6::parse_inner(message, relays),
                _ => return Err(DhcpError::NotDhcp),
            }
        }
        Err(DhcpError::TooManyRelays)
    }

    fn parse_inner(message: &'a [u8], relays: usize) -> Result<MessageV6<'a>, DhcpError> {
        let &[message_type, a, b, c] = message.first_chunk().ok_or(DhcpError::TooShort)?;
        let transaction_id = u32::from_be_bytes([0, a, b, c]);
        let options = &message[CLIENT_FIXED_BYTES..];
        for option in Options(options) {
            let (code, value) = option?;
            check_nested(code, value)?;
        }
        Ok(MessageV6 { message_type, transaction_id, relays, options })
    }

    /// The client's DUID (option 1), which stays the same for the life of the host.
    pub fn client_id(&self) -> Option<&'a [u8]> {
        self.find(option::CLIENT_ID).filter(|duid| !duid.is_empty())
    }

    /// Reads the client's name (option 39). False if there is none.
    pub fn client_fqdn(&self, out: &mut NameBuf) -> bool {
        match self.find(option::CLIENT_FQDN) {
            Some([_flags, name @ ..]) => read_wire(name, out),
            _ => false,
        }
    }

    /// The addresses in the identity associations: given in a REPLY, wished for in a REQUEST.
    pub fn leases(&self) -> impl Iterator<Item = Lease> + 'a {
        Options(self.options)
            .flatten()
            .filter_map(|(code, value)| value.get(association_fixed_bytes(code)?..))
            .flat_map(|inner| Options(inner).flatten())
            .filter_map(|(code, value)| lease(code, value))
    }

    /// The value of the first option with this code.
    fn find(&self, code: u16) -> Option<&'a [u8]> {
        Options(self.options).flatten().find(|&(found, _)| found == code).map(|(_, value)| value)
    }
}

/// The message in a relay's message.
fn relayed(message: &[u8]) -> Result<&[u8], DhcpError> {
    let options = message.get(RELAY_FIXED_BYTES..).ok_or(DhcpError::TooShort)?;
    for option in Options(options) {
        if let (option::RELAY_MESSAGE, inner) = option? {
            return Ok(inner);
        }
    }
    Err(DhcpError::OptionMalformed)
}

/// Bytes before the options of an identity association; `None` for other options.
fn association_fixed_bytes(code: u16) -> Option<usize> {
    match code {
        option::IA_NA => Some(IA_NA_FIXED_BYTES),
        option::IA_TA => Some(IA_TA_FIXED_BYTES),
        _ => None,
    }
}

/// Checks that the options inside an identity association are within it.
fn check_nested(code: u16, value: &[u8]) -> Result<(), DhcpError> {
    let Some(fixed_bytes) = association_fixed_bytes(code) else { return Ok(()) };
    let inner = value.get(fixed_bytes..).ok_or(DhcpError::OptionMalformed)?;
    for option in Options(inner) {
        let (code, value) = option?;
        if code == option::IA_ADDR && value.len() < IA_ADDR_FIXED_BYTES {
            return Err(DhcpError::OptionMalformed);
        }
    }
    Ok(())
}

fn lease(code: u16, value: &[u8]) -> Option<Lease> {
    if code != option::IA_ADDR {
        return None;
    }
    let bytes: &[u8; 16] = value.first_chunk()?;
    let valid_s = crate::read::u32_at(value, IA_ADDR_FIXED_BYTES - 4)?;
    Some(Lease { addr: Addr::v6(*bytes), valid_s })
}

/// A sequence of options: code and value. An error is the last item.
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u16, &'a [u8]), DhcpError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.0);
        let Some(&[code_high, code_low, length_high, length_low]) = bytes.first_chunk() else {
            return Some(Err(DhcpError::OptionTruncated));
        };
        let length = usize::from(u16::from_be_bytes([length_high, length_low]));
        let Some(value) = slice_at(bytes, 4, length) else {
            return Some(Err(DhcpError::OptionTruncated));
        };
        self.0 = &bytes[4 + length..];
        Some(Ok((u16::from_be_bytes([code_high, code_low]), value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn option(code: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len()).expect("short");
        [&code.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
    }

    const ADDR: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

    fn association() -> Vec<u8> {
        let lifetimes = [0, 0, 0, 60, 0, 0, 0, 120];
        let inner = option(option::IA_ADDR, &[&ADDR[..], &lifetimes].concat());
        option(option::IA_NA, &[&[0; 12][..], &inner].concat())
    }

    fn reply() -> Vec<u8> {
        let mut bytes = vec![message_type::REPLY, 1, 2, 3];
        bytes.extend(option(option::CLIENT_ID, b"\0\x03\0\x01\x02\0\0\0\0\x07"));
        bytes.extend(association());
        bytes.extend(option(option::CLIENT_FQDN, b"\x01\x02PC\x04test\0"));
        bytes
    }

    fn relay(inner: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; RELAY_FIXED_BYTES];
        bytes[0] = message_type::RELAY_REPLY;
        bytes.extend(option(option::RELAY_MESSAGE, inner));
        bytes
    }

    fn contents(message: &MessageV6<'_>) -> (Option<String>, Vec<(String, u32)>) {
        let mut out = NameBuf::new();
        let name = message.client_fqdn(&mut out).then(|| out.as_bytes().escape_ascii().to_string());
        let leases = message.leases().map(|lease| (lease.addr.to_string(), lease.valid_s));
        (name, leases.collect())
    }

    /// Reads name, address and the keys that join messages, also through relays.
    #[test]
    fn replies() {
        let mut bytes = reply();
        for relays in 0..=RELAYS_MAX {
            let parsed = MessageV6::parse(&bytes).expect("sound");
            assert_eq!(parsed.relays, relays);
            assert_eq!(parsed.message_type, message_type::REPLY);
            assert_eq!(parsed.transaction_id, 0x01_0203);
            assert_eq!(parsed.client_id().map(<[u8]>::len), Some(10));
            let leases = vec![("2001:db8::7".to_owned(), 120)];
            assert_eq!(contents(&parsed), (Some("pc.test".to_owned()), leases));
            bytes = relay(&bytes);
        }
        let error = MessageV6::parse(&bytes).expect_err("one relay too many");
        assert_eq!(error, DhcpError::TooManyRelays);
    }

    /// Each kind of damage is named, and every prefix is one of them or ends between options.
    #[test]
    fn damage() {
        let read = |bytes: &[u8]| MessageV6::parse(bytes).map(|_| ()).expect_err("damaged");
        assert_eq!(read(b""), DhcpError::TooShort);
        assert_eq!(read(b"\x07\0\0"), DhcpError::TooShort);
        assert_eq!(read(b"\x63\0\0\0"), DhcpError::NotDhcp);
        assert_eq!(read(b"\x07\0\0\0\0\x27\0"), DhcpError::OptionTruncated);
        assert_eq!(read(b"\x07\0\0\0\0\x27\0\x05ab"), DhcpError::OptionTruncated);
        assert_eq!(read(b"\x07\0\0\0\0\x03\0\x01a"), DhcpError::OptionMalformed);
        assert_eq!(read(&[message_type::RELAY_FORWARD; 33]), DhcpError::TooShort);
        assert_eq!(read(&relay(b"")[..RELAY_FIXED_BYTES]), DhcpError::OptionMalformed);
        let mut short = reply();
        let inner = CLIENT_FIXED_BYTES + 14 + 4 + IA_NA_FIXED_BYTES;
        short[inner + 3] = 23;
        assert_eq!(read(&short), DhcpError::OptionMalformed, "an address without its lifetime");
        let whole = reply();
        let sound = (4..whole.len()).filter(|&cut| MessageV6::parse(&whole[..cut]).is_ok()).count();
        assert_eq!(sound, 3, "before each of the three options");
    }

    proptest! {
        /// No bytes make it panic, and every lease read was there as sixteen bytes.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..14) {
            let bytes = [&[kind, 0, 0, 0][..], &bytes].concat();
            if let Ok(parsed) = MessageV6::parse(&bytes) {
                for lease in parsed.leases() {
                    assert!(bytes.windows(16).any(|window| window == lease.addr.0));
                }
                contents(&parsed);
            }
        }

        /// One changed byte never panics, and never makes a name of other length than its parts.
        #[test]
        fn one_byte_changed(at in 0usize..71, to in any::<u8>()) {
            let mut bytes = reply();
            prop_assume!(at < bytes.len());
            bytes[at] = to;
            if let Ok(parsed) = MessageV6::parse(&bytes) {
                assert!(contents(&parsed).0.is_none_or(|name| !name.is_empty()));
            }
        }
    }
}
