//! EDNS (RFC 6891): reads the OPT record of a query, and writes the one of a response.
//!
//! OPT is hop by hop (section 6.1.1): it is never forwarded or cached. A query has one at most, its
//! owner is the root, and its version is 0; options of an unknown version have an unknown form, so
//! it is refused before they are read.
//!
//! Cost: one walk over the additional records, one over the options.

use super::{rtype, skip_name};
use crate::read::{u16_at, u32_at};

/// Bytes of an OPT record without options.
pub const OPT_BYTES: usize = 11;

/// Largest response over UDP to a client without EDNS (RFC 1035, section 4.2.1).
pub const UDP_BYTES_PLAIN: u16 = 512;

/// Response codes by number; from 16 on they need EDNS.
#[allow(missing_docs)]
pub mod rcode {
    pub const NOERROR: u16 = 0;
    pub const FORMERR: u16 = 1;
    pub const SERVFAIL: u16 = 2;
    pub const NXDOMAIN: u16 = 3;
    pub const NOTIMP: u16 = 4;
    pub const REFUSED: u16 = 5;
    pub const BADVERS: u16 = 16;
    pub const BADCOOKIE: u16 = 23;
}

/// Options of EDNS by number, those that larder reads or writes.
#[allow(missing_docs)]
pub mod option {
    pub const CLIENT_SUBNET: u16 = 8;
    pub const COOKIE: u16 = 10;
    pub const EXTENDED_ERROR: u16 = 15;
}

/// The content of a query's OPT record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns<'a> {
    /// The client's UDP size, as sent: less than 512 means 512.
    pub udp_bytes: u16,
    /// DO: records of DNSSEC are wanted (RFC 3225).
    pub dnssec_ok: bool,
    /// The options, well formed.
    options: &'a [u8],
}

impl<'a> Edns<'a> {
    /// The content of the first option with this number.
    #[inline]
    pub fn option(&self, number: u16) -> Option<&'a [u8]> {
        Options(self.options).find(|&(each, _)| each == number).map(|(_, content)| content)
    }
}

/// Number and content of options in turn; ends at the first that is not whole.
pub(super) struct Options<'a>(pub &'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let number = u16_at(self.0, 0)?;
        let end = 4 + usize::from(u16_at(self.0, 2)?);
        let content = self.0.get(4..end)?;
        self.0 = &self.0[end..];
        Some((number, content))
    }
}

/// Why the additional records of a query were not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EdnsError {
    /// A record or an option is not whole, or there is more than one OPT. True: an OPT was met.
    Malformed(bool),
    /// A version other than 0. True: with the bit that is DO in version 0.
    Version(bool),
}

/// DO, in the TTL field of OPT.
const DNSSEC_OK: u32 = 0x8000;

/// Finds the OPT record among the `count` additional records of a query, which begin at `at`.
pub(super) fn find(
    message: &[u8],
    mut at: usize,
    count: u16,
) -> Result<Option<Edns<'_>>, EdnsError> {
    let mut found = None;
    for _ in 0..count {
        let owner = at;
        let malformed = EdnsError::Malformed(found.is_some());
        at = skip_name(message, at).map_err(|_| malformed)?;
        let record_type = u16_at(message, at).ok_or(malformed)?;
        let udp_bytes = u16_at(message, at + 2).ok_or(malformed)?;
        let flags = u32_at(message, at + 4).ok_or(malformed)?;
        let data_bytes = usize::from(u16_at(message, at + 8).ok_or(malformed)?);
        let options = message.get(at + 10..at + 10 + data_bytes).ok_or(malformed)?;
        at += 10 + data_bytes;
        if record_type != rtype::OPT {
            continue;
        }
        if message[owner] != 0 || found.is_some() {
            return Err(EdnsError::Malformed(true));
        }
        if flags >> 16 & 0xff != 0 {
            return Err(EdnsError::Version(flags & DNSSEC_OK != 0));
        }
        let mut rest = Options(options);
        while rest.next().is_some() {}
        if !rest.0.is_empty() {
            return Err(EdnsError::Malformed(true));
        }
        found = Some(Edns { udp_bytes, dnssec_ok: flags & DNSSEC_OK != 0, options });
    }
    Ok(found)
}

/// The OPT record of a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opt<'a> {
    /// The largest message over UDP that we take, bytes.
    pub udp_bytes: u16,
    /// DO, as the query had it (RFC 3225, section 3).
    pub dnssec_ok: bool,
    /// The response code; its upper bits are here.
    pub rcode: u16,
    /// Options in wire form.
    pub options: &'a [u8],
}

impl Opt<'_> {
    /// Bytes that it takes.
    #[inline]
    pub fn bytes(&self) -> usize {
        OPT_BYTES + self.options.len()
    }

    /// Writes it at `at` and returns its end; `None` if it does not fit.
    #[inline]
    pub fn write(&self, out: &mut [u8], at: usize) -> Option<usize> {
        let [udp_high, udp_low] = self.udp_bytes.to_be_bytes();
        let [len_high, len_low] = u16::try_from(self.options.len()).ok()?.to_be_bytes();
        let [type_high, type_low] = rtype::OPT.to_be_bytes();
        let rcode_high = (self.rcode >> 4) as u8;
        let flags = u8::from(self.dnssec_ok) << 7;
        let fixed: [u8; OPT_BYTES] =
            [0, type_high, type_low, udp_high, udp_low, rcode_high, 0, flags, 0, len_high, len_low];
        let out = out.get_mut(at..at + self.bytes())?;
        out[..OPT_BYTES].copy_from_slice(&fixed);
        out[OPT_BYTES..].copy_from_slice(self.options);
        Some(at + self.bytes())
    }
}

/// The response code for the header: a client without EDNS has no room for the upper bits, and gets
/// SERVFAIL.
#[inline]
pub(super) fn header_rcode(rcode: u16, has_edns: bool) -> u8 {
    let seen = if has_edns || rcode < 16 { rcode } else { self::rcode::SERVFAIL };
    (seen & 15) as u8
}
