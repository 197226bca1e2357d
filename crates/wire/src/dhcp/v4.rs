//! DHCP for IPv4 (RFC 2131): a BOOTP frame, a magic cookie, and options.
//!
//! Options fill the tail of the message and, if the *overload* option says so, the fields for the
//! boot file and the server name too. An option too long for one byte of length is split, and its
//! parts are joined in order (RFC 3396), also for names.

use super::{DhcpError, read_text, read_wire};
use crate::Addr;
use crate::dns::NameBuf;
use crate::read::{slice_at, u32_at};

/// Bytes before the magic cookie.
const FIXED_BYTES: usize = 236;

/// The four bytes that distinguish DHCP from plain BOOTP (RFC 2131, section 3).
const MAGIC_COOKIE: [u8; 4] = [99, 130, 83, 99];

/// Most bytes of a hardware address.
const HARDWARE_BYTES_MAX: usize = 16;

/// Most bytes of one option that is put together from parts: more than any name needs.
const OPTION_BYTES_MAX: usize = 512;

/// Option codes (RFC 2132, 4702).
mod option {
    pub const PAD: u8 = 0;
    pub const HOST_NAME: u8 = 12;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const OVERLOAD: u8 = 52;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const CLIENT_FQDN: u8 = 81;
    pub const END: u8 = 255;
}

/// Client FQDN flag E: the name is in DNS encoding, not text (RFC 4702, section 2.1).
const FQDN_FLAG_WIRE: u8 = 0x04;

/// Types of messages, with the values of option 53.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum MessageType {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Decline = 4,
    Ack = 5,
    Nak = 6,
    Release = 7,
    Inform = 8,
}

impl MessageType {
    fn from_byte(byte: u8) -> Option<MessageType> {
        use MessageType::*;
        [Discover, Offer, Request, Decline, Ack, Nak, Release, Inform]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }
}

/// A DHCPv4 message, borrowed. All its options are within their fields.
#[derive(Clone, Copy, Debug)]
pub struct MessageV4<'a> {
    /// A reply of a server (BOOTREPLY); else a request of a client.
    pub is_reply: bool,
    /// The ID that joins a reply to its request.
    pub transaction_id: u32,
    /// The type of the message; `None` for plain BOOTP.
    pub message_type: Option<MessageType>,
    /// The address that the client uses now (`ciaddr`), if any.
    pub client_addr: Option<Addr>,
    /// The address that the server gives (`yiaddr`), if it does.
    pub your_addr: Option<Addr>,
    /// The address that the client requests (option 50).
    pub requested_addr: Option<Addr>,
    hardware: &'a [u8],
    /// The fields with options, in the order in which they are read (RFC 3396, section 5): tail,
    /// boot file, server name. A field without options is empty.
    places: [&'a [u8]; 3],
}

impl<'a> MessageV4<'a> {
    /// Reads a datagram of ports 67 or 68.
    pub fn parse(payload: &'a [u8]) -> Result<MessageV4<'a>, DhcpError> {
        let too_short = DhcpError::TooShort;
        let fixed: &[u8; FIXED_BYTES] = payload.first_chunk().ok_or(too_short)?;
        let cookie = slice_at(payload, FIXED_BYTES, MAGIC_COOKIE.len()).ok_or(too_short)?;
        let hardware_bytes = usize::from(fixed[2]);
        let [op @ 1..=2, ..] = *fixed else { return Err(DhcpError::NotDhcp) };
        if cookie != MAGIC_COOKIE || hardware_bytes > HARDWARE_BYTES_MAX {
            return Err(DhcpError::NotDhcp);
        }
        let mut message = MessageV4 {
            is_reply: op == 2,
            transaction_id: u32_at(fixed, 4).ok_or(too_short)?,
            message_type: None,
            client_addr: addr(&fixed[12..16]),
            your_addr: addr(&fixed[16..20]),
            requested_addr: None,
            hardware: &fixed[28..28 + hardware_bytes],
            places: [&payload[FIXED_BYTES + MAGIC_COOKIE.len()..], &[], &[]],
        };
        message.add_overloaded(fixed)?;
        message.read_options()?;
        Ok(message)
    }

    /// The client's hardware address (`chaddr`), with the length that the message states.
    pub fn hardware_addr(&self) -> &'a [u8] {
        self.hardware
    }

    /// The client's address by this message: from an ACK the assigned one, for an INFORM the one
    /// that it had.
    pub fn bound_addr(&self) -> Option<Addr> {
        match self.message_type {
            Some(MessageType::Ack) => self.your_addr.or(self.client_addr),
            _ => None,
        }
    }

    /// Reads the client's fully qualified name (option 81). False if there is none.
    pub fn client_fqdn(&self, out: &mut NameBuf) -> bool {
        let mut joined = Joined::new();
        match self.join(option::CLIENT_FQDN, &mut joined) {
            // Flags, then two result codes that mean nothing any more.
            Some([flags, _, _, name @ ..]) if flags & FQDN_FLAG_WIRE != 0 => read_wire(name, out),
            Some([_, _, _, name @ ..]) => read_text(name, out),
            _ => false,
        }
    }

    /// Reads the client's host name (option 12). False if there is none.
    pub fn host_name(&self, out: &mut NameBuf) -> bool {
        let mut joined = Joined::new();
        self.join(option::HOST_NAME, &mut joined).is_some_and(|name| read_text(name, out))
    }

    /// Option 52: the boot file (1), the server name (2) or both (3) hold options. It is valid in
    /// the tail only.
    fn add_overloaded(&mut self, fixed: &'a [u8; FIXED_BYTES]) -> Result<(), DhcpError> {
        for option in Options(self.places[0]) {
            match option? {
                (option::OVERLOAD, &[overload @ 1..=3]) => {
                    if overload & 1 != 0 {
                        self.places[1] = &fixed[108..236];
                    }
                    if overload & 2 != 0 {
                        self.places[2] = &fixed[44..108];
                    }
                }
                (option::OVERLOAD, _) => return Err(DhcpError::OptionMalformed),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the message type and the requested address, and checks that all options are within
    /// their fields.
    fn read_options(&mut self) -> Result<(), DhcpError> {
        for place in self.places {
            for option in Options(place) {
                match option? {
                    (option::MESSAGE_TYPE, value) => {
                        let &[byte] = value else { return Err(DhcpError::OptionMalformed) };
                        let kind = MessageType::from_byte(byte).ok_or(DhcpError::NotDhcp)?;
                        self.message_type = Some(kind);
                    }
                    (option::REQUESTED_ADDRESS, value) => {
                        if value.len() != 4 {
                            return Err(DhcpError::OptionMalformed);
                        }
                        self.requested_addr = addr(value);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The value of an option, joined from its parts; `None` if it is absent.
    fn join<'b>(&self, code: u8, joined: &'b mut Joined) -> Option<&'b [u8]> {
        let mut present = false;
        for place in self.places {
            for (found, value) in Options(place).flatten() {
                if found == code {
                    present = true;
                    joined.push(value)?;
                }
            }
        }
        present.then_some(&joined.bytes[..joined.len])
    }
}

/// An IPv4 address except 0.0.0.0, which means "none" here.
fn addr(bytes: &[u8]) -> Option<Addr> {
    let bytes: [u8; 4] = bytes.try_into().ok()?;
    (bytes != [0; 4]).then_some(Addr::v4(bytes))
}

/// The parts of one option.
struct Joined {
    len: usize,
    bytes: [u8; OPTION_BYTES_MAX],
}

impl Joined {
    fn new() -> Joined {
        Joined { len: 0, bytes: [0; OPTION_BYTES_MAX] }
    }

    fn push(&mut self, part: &[u8]) -> Option<()> {
        self.bytes.get_mut(self.len..self.len + part.len())?.copy_from_slice(part);
        self.len += part.len();
        Some(())
    }
}

/// The options of one field: code and value. Ends at the end option, or without one at the end of
/// the field. An error is the last item.
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = Result<(u8, &'a [u8]), DhcpError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [option::PAD, rest @ ..] = self.0 {
            self.0 = rest;
        }
        let (code, after) = match self.0 {
            [] | [option::END, ..] => return None,
            [code, after @ ..] => (*code, after),
        };
        self.0 = &[];
        let Some((length, after)) = after.split_first() else {
            return Some(Err(DhcpError::OptionTruncated));
        };
        let Some((value, rest)) = after.split_at_checked(usize::from(*length)) else {
            return Some(Err(DhcpError::OptionTruncated));
        };
        self.0 = rest;
        Some(Ok((code, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(op: u8, options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_BYTES];
        bytes[..8].copy_from_slice(&[op, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef]);
        bytes[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        bytes.extend(MAGIC_COOKIE);
        bytes.extend(options);
        bytes
    }

    fn names(message: &MessageV4<'_>) -> (Option<String>, Option<String>) {
        let mut out = NameBuf::new();
        let text = |out: &NameBuf| out.as_bytes().escape_ascii().to_string();
        let host = message.host_name(&mut out).then(|| text(&out));
        (host, message.client_fqdn(&mut out).then(|| text(&out)))
    }

    /// A request has names and the requested address.
    #[test]
    fn request() {
        let bytes = message(
            1,
            b"\x35\x01\x03\0\x32\x04\xc0\0\x02\x07\x0c\x05My-PC\x51\x0a\0\0\0PC.test\xff\x0c\x09",
        );
        let parsed = MessageV4::parse(&bytes).expect("sound");
        assert_eq!(parsed.message_type, Some(MessageType::Request));
        assert_eq!(parsed.transaction_id, 0xdead_beef);
        assert_eq!(parsed.hardware_addr(), [2, 0, 0, 0, 0, 7]);
        assert_eq!(parsed.requested_addr, Some(Addr::v4([192, 0, 2, 7])));
        assert_eq!((parsed.is_reply, parsed.bound_addr(), parsed.your_addr), (false, None, None));
        assert_eq!(names(&parsed), (Some("my-pc".to_owned()), Some("pc.test".to_owned())));
    }

    /// An ACK binds the address that it gives, or the one that the client had.
    #[test]
    fn acknowledgement() {
        let mut bytes = message(2, b"\x35\x01\x05\xff");
        bytes[12..16].copy_from_slice(&[192, 0, 2, 8]);
        let bound = |bytes: &[u8]| MessageV4::parse(bytes).expect("sound").bound_addr();
        assert_eq!(bound(&bytes), Some(Addr::v4([192, 0, 2, 8])));
        bytes[16..20].copy_from_slice(&[192, 0, 2, 9]);
        assert_eq!(bound(&bytes), Some(Addr::v4([192, 0, 2, 9])));
        bytes[FIXED_BYTES + 6] = MessageType::Offer as u8;
        assert_eq!(bound(&bytes), None, "an offer is not yet taken");
    }

    /// FQDN in DNS encoding, whole and partial.
    #[test]
    fn fqdn_in_dns_encoding() {
        let read =
            |options: &[u8]| names(&MessageV4::parse(&message(1, options)).expect("sound")).1;
        assert_eq!(read(b"\x51\x0c\x04\0\0\x02PC\x04test\0").as_deref(), Some("pc.test"));
        assert_eq!(read(b"\x51\x06\x04\0\0\x02PC").as_deref(), Some("pc"));
        assert_eq!(read(b"\x51\x06\x04\0\0\x03PC"), None);
        assert_eq!(read(b"\x51\x02\x04\0"), None);
    }

    /// Options in the overloaded fields are read, and parts of one option are put together in the
    /// order of the places.
    #[test]
    fn overload_and_parts() {
        let mut bytes = message(1, b"\x34\x01\x03\x0c\x02ab\xff");
        bytes[108..113].copy_from_slice(b"\x0c\x02cd\xff");
        bytes[44..51].copy_from_slice(b"\x35\x01\x03\x0c\x01e\xff");
        let parsed = MessageV4::parse(&bytes).expect("sound");
        assert_eq!(names(&parsed).0.as_deref(), Some("abcde"));
        assert_eq!(parsed.message_type, Some(MessageType::Request));
        bytes[FIXED_BYTES + 6] = 1;
        let parsed = MessageV4::parse(&bytes).expect("sound");
        assert_eq!(names(&parsed).0.as_deref(), Some("abcd"), "the server name holds no options");
    }

    /// Each kind of damage is named.
    #[test]
    fn damage() {
        let read = |bytes: &[u8]| MessageV4::parse(bytes).map(|_| ()).expect_err("damaged");
        assert_eq!(read(&message(1, b"")[..239]), DhcpError::TooShort);
        assert_eq!(read(&message(3, b"")), DhcpError::NotDhcp);
        let mut cookie = message(1, b"");
        cookie[FIXED_BYTES] = 0;
        assert_eq!(read(&cookie), DhcpError::NotDhcp);
        let mut hardware = message(1, b"");
        hardware[2] = 17;
        assert_eq!(read(&hardware), DhcpError::NotDhcp);
        assert_eq!(read(&message(1, b"\x0c\x05abc")), DhcpError::OptionTruncated);
        assert_eq!(read(&message(1, b"\x0c")), DhcpError::OptionTruncated);
        assert_eq!(read(&message(1, b"\x35\x02\x03\x03")), DhcpError::OptionMalformed);
        assert_eq!(read(&message(1, b"\x32\x03\xc0\0\x02")), DhcpError::OptionMalformed);
        assert_eq!(read(&message(1, b"\x34\x01\x07")), DhcpError::OptionMalformed);
        assert_eq!(read(&message(1, b"\x35\x01\x63")), DhcpError::NotDhcp);
        assert!(MessageV4::parse(&message(1, b"")).is_ok(), "BOOTP has no options");
    }

    proptest! {
        /// No options make it panic, and each read name is legal in length.
        #[test]
        fn any_options(options in proptest::collection::vec(any::<u8>(), 0..600), tail in any::<bool>()) {
            let mut bytes = message(1, if tail { &options } else { b"\x34\x01\x03\xff" });
            let fields = options.len().min(192);
            if !tail {
                bytes[44..44 + fields].copy_from_slice(&options[..fields]);
            }
            if let Ok(parsed) = MessageV4::parse(&bytes) {
                let (host, fqdn) = names(&parsed);
                assert!(host.is_none_or(|name| !name.is_empty()));
                assert!(fqdn.is_none_or(|name| !name.is_empty()));
            }
        }
    }
}
