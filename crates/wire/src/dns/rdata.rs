//! The data of records. Each reader takes a record of the type in its name, and returns
//! [`DnsError::RdataMalformed`] if the data contradicts that type.

use super::name::walk_name;
use super::{DnsError, Message, NameBuf, Record, rtype, skip_name};
use crate::Addr;
use crate::read::{slice_at, u16_at};

/// The address of an A record.
#[inline]
pub fn a(message: &Message<'_>, record: &Record) -> Result<Addr, DnsError> {
    let bytes = message.rdata(record).try_into().map_err(|_| DnsError::RdataMalformed)?;
    Ok(Addr::v4(bytes))
}

/// The address of an AAAA record.
#[inline]
pub fn aaaa(message: &Message<'_>, record: &Record) -> Result<Addr, DnsError> {
    let bytes = message.rdata(record).try_into().map_err(|_| DnsError::RdataMalformed)?;
    Ok(Addr::v6(bytes))
}

/// The name of a CNAME, DNAME, PTR or NS record (`skip` 0), or at the end of an MX (`skip` 2) or
/// SRV (`skip` 6) record. It must end where the data ends.
#[inline]
pub fn name(
    message: &Message<'_>,
    record: &Record,
    skip: usize,
    out: &mut NameBuf,
) -> Result<(), DnsError> {
    let offset = name_offset(message, record, skip)?;
    message.read_name(offset, out).map(|_| ())
}

/// The offset of the name that [`name`] reads, after a check that it fills the data.
#[inline]
pub fn name_offset(message: &Message<'_>, record: &Record, skip: usize) -> Result<usize, DnsError> {
    let offset = record.rdata_offset + skip;
    let whole = &message.bytes()[..record.rdata_end().min(message.bytes().len())];
    match skip_name(whole, offset) {
        Ok(end) if end == record.rdata_end() => Ok(offset),
        Ok(_) | Err(DnsError::SectionTruncated) => Err(DnsError::RdataMalformed),
        Err(error) => Err(error),
    }
}

/// The places of names in the data of types that may have compressed ones (RFC 3597, section 4).
/// The data of any other type is plain bytes, which can be moved unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes before the first name.
    pub before: usize,
    /// Names, one after the other.
    pub names: usize,
    /// Bytes after the last name; `None`: any number.
    pub after: Option<usize>,
    /// A sender may compress the names: types of RFC 1035 only.
    pub may_compress: bool,
}

/// The layout of a record's data; `None` for data without names that matter.
pub(super) fn layout(message: &Message<'_>, record: &Record) -> Result<Option<Layout>, DnsError> {
    let (before, names, after, may_compress) = match record.rtype {
        // NS, MD, MF, CNAME, MB, MG, MR, PTR.
        2..=5 | 7..=9 | 12 => (0, 1, Some(0), true),
        rtype::SOA => (0, 2, Some(20), true),
        // MINFO, MX.
        14 => (0, 2, Some(0), true),
        15 => (2, 1, Some(0), true),
        // RP; AFSDB, RT, KX; PX; SRV; DNAME.
        17 => (0, 2, Some(0), false),
        18 | 21 | 36 => (2, 1, Some(0), false),
        26 => (2, 2, Some(0), false),
        33 => (6, 1, Some(0), false),
        39 => (0, 1, Some(0), false),
        // NAPTR: two numbers and three texts.
        35 => (texts_end(message.rdata(record), 4, 3)?, 1, Some(0), false),
        // SIG, RRSIG; NXT, NSEC.
        24 | rtype::RRSIG => (18, 1, None, false),
        30 | rtype::NSEC => (0, 1, None, false),
        _ => return Ok(None),
    };
    Ok(Some(Layout { before, names, after, may_compress }))
}

/// Checks the data of a record that may have compressed names against its layout: all of them can
/// be read, and the data has the right length.
pub(super) fn check(message: &Message<'_>, record: &Record) -> Result<(), DnsError> {
    let Some(layout) = layout(message, record)? else { return Ok(()) };
    let mut at = record.rdata_offset + layout.before;
    for _ in 0..layout.names {
        at = walk_name(message.bytes(), at, |_, _| true)?;
    }
    match record.rdata_end().checked_sub(at) {
        Some(rest) if layout.after.is_none_or(|after| after == rest) => Ok(()),
        _ => Err(DnsError::RdataMalformed),
    }
}

/// The end of the last of `count` texts, each after a byte of length, the first at `at`.
fn texts_end(rdata: &[u8], mut at: usize, count: usize) -> Result<usize, DnsError> {
    for _ in 0..count {
        at += 1 + usize::from(*rdata.get(at).ok_or(DnsError::RdataMalformed)?);
    }
    Ok(at)
}

/// A service binding: SVCB or HTTPS (RFC 9460).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Svcb<'a> {
    /// SvcPriority: 0 is alias mode, which has no parameters.
    pub priority: u16,
    /// Offset of TargetName, for [`Message::read_name`].
    pub target_offset: usize,
    /// TargetName is `.`: the owner itself (in alias mode: no such service).
    pub target_is_root: bool,
    ipv4_hints: &'a [[u8; 4]],
    ipv6_hints: &'a [[u8; 16]],
}

impl Svcb<'_> {
    /// The addresses that a client may try before it has looked the target up.
    pub fn hints(&self) -> impl Iterator<Item = Addr> {
        let v4 = self.ipv4_hints.iter().copied().map(Addr::v4);
        v4.chain(self.ipv6_hints.iter().copied().map(Addr::v6))
    }
}

/// SvcParamKeys (RFC 9460, section 14.3.2).
mod key {
    pub const MANDATORY: u16 = 0;
    pub const ALPN: u16 = 1;
    pub const NO_DEFAULT_ALPN: u16 = 2;
    pub const PORT: u16 = 3;
    pub const IPV4HINT: u16 = 4;
    pub const IPV6HINT: u16 = 6;
}

/// Reads an SVCB or HTTPS record, and validates its parameters by RFC 9460: keys in strictly
/// increasing order, known values well formed, mandatory keys present. A client must not use a
/// record that fails this, so it is ignored. Parameters in alias mode are ignored, as section 2.4.2
/// requires.
pub fn svcb<'a>(message: &Message<'a>, record: &Record) -> Result<Svcb<'a>, DnsError> {
    let malformed = DnsError::RdataMalformed;
    let rdata = message.rdata(record);
    let priority = u16_at(rdata, 0).ok_or(malformed)?;
    let target_end = match skip_name(rdata, 2) {
        // Section 2.2: TargetName is not compressed.
        Ok(end) if !has_pointer(rdata, 2, end) => end,
        Ok(_) | Err(DnsError::SectionTruncated) => return Err(malformed),
        Err(error) => return Err(error),
    };
    let mut found = Svcb {
        priority,
        target_offset: record.rdata_offset + 2,
        target_is_root: target_end == 3,
        ipv4_hints: &[],
        ipv6_hints: &[],
    };
    if priority != 0 {
        read_params(&rdata[target_end..], &mut found).ok_or(malformed)?;
    }
    Ok(found)
}

/// True when the name that ends at `end` ends in a pointer; a name's root label is one byte 0,
/// and the second byte of a pointer may be 0 too, so the labels are walked.
fn has_pointer(bytes: &[u8], offset: usize, end: usize) -> bool {
    let mut at = offset;
    while let Some(&length) = bytes.get(at) {
        match length {
            0 => return false,
            1..=63 => at += 1 + usize::from(length),
            _ => break,
        }
    }
    at < end
}

/// Walks the parameters; `None` if they are malformed.
fn read_params<'a>(params: &'a [u8], found: &mut Svcb<'a>) -> Option<()> {
    let mut rest = params;
    let mut key_last = None;
    let mut mandatory: &[u8] = &[];
    while !rest.is_empty() {
        let key = u16_at(rest, 0)?;
        let length = usize::from(u16_at(rest, 2)?);
        let value = slice_at(rest, 4, length)?;
        rest = &rest[4 + length..];
        if key_last.is_some_and(|last| key <= last) {
            return None;
        }
        key_last = Some(key);
        let sound = match key {
            key::MANDATORY => {
                mandatory = value;
                !value.is_empty() && value.len() % 2 == 0
            }
            key::ALPN => alpn_is_sound(value),
            key::NO_DEFAULT_ALPN => value.is_empty(),
            key::PORT => value.len() == 2,
            key::IPV4HINT => {
                let (hints, rest) = value.as_chunks();
                found.ipv4_hints = hints;
                !hints.is_empty() && rest.is_empty()
            }
            key::IPV6HINT => {
                let (hints, rest) = value.as_chunks();
                found.ipv6_hints = hints;
                !hints.is_empty() && rest.is_empty()
            }
            _ => true,
        };
        if !sound {
            return None;
        }
    }
    mandatory_are_present(mandatory, params).then_some(())
}

/// A list of non-empty protocol names, each after its length, filling the value.
fn alpn_is_sound(value: &[u8]) -> bool {
    let mut rest = value;
    while let [length, after @ ..] = rest {
        match after.get(usize::from(*length)..) {
            Some(next) if *length != 0 => rest = next,
            _ => return false,
        }
    }
    !value.is_empty()
}

/// Each key of the mandatory list is among the parameters, in increasing order, and is not the list
/// itself (section 8). Both lists are sorted, so that one walk over both is enough.
fn mandatory_are_present(mandatory: &[u8], params: &[u8]) -> bool {
    let (keys, _) = mandatory.as_chunks::<2>();
    let mut rest = params;
    let mut last = key::MANDATORY;
    for &key in keys {
        let key = u16::from_be_bytes(key);
        if key <= last {
            return false;
        }
        last = key;
        loop {
            let (Some(present), Some(length)) = (u16_at(rest, 0), u16_at(rest, 2)) else {
                return false;
            };
            rest = rest.get(4 + usize::from(length)..).unwrap_or(&[]);
            if present == key {
                break;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response whose one answer, owned by the root, has this data.
    fn one_record(rtype: u16, rdata: &[u8]) -> Vec<u8> {
        let mut bytes = b"\0\0\x80\0\0\0\0\x01\0\0\0\0\0".to_vec();
        bytes.extend_from_slice(&rtype.to_be_bytes());
        bytes.extend_from_slice(b"\0\x01\0\0\0\x3c");
        bytes.extend_from_slice(&u16::try_from(rdata.len()).expect("short").to_be_bytes());
        bytes.extend_from_slice(rdata);
        bytes
    }

    fn with_record<T>(rtype: u16, rdata: &[u8], f: impl FnOnce(&Message<'_>, &Record) -> T) -> T {
        let bytes = one_record(rtype, rdata);
        let message = Message::parse(&bytes).expect("a header");
        let record = message.answers().next().expect("one").expect("sound");
        f(&message, &record)
    }

    /// Addresses have exactly their bytes.
    #[test]
    fn addresses() {
        assert_eq!(with_record(rtype::A, &[192, 0, 2, 1], a), Ok(Addr::v4([192, 0, 2, 1])));
        assert_eq!(with_record(rtype::A, &[192, 0, 2], a), Err(DnsError::RdataMalformed));
        assert_eq!(with_record(rtype::A, &[0; 5], a), Err(DnsError::RdataMalformed));
        assert_eq!(with_record(rtype::AAAA, &[7; 16], aaaa), Ok(Addr::v6([7; 16])));
        assert_eq!(with_record(rtype::AAAA, &[7; 15], aaaa), Err(DnsError::RdataMalformed));
    }

    /// A name in data must fill the data, neither more nor less.
    #[test]
    fn names_fill_their_data() {
        let read = |rdata: &[u8], skip| {
            with_record(rtype::CNAME, rdata, |message, record| {
                let mut out = NameBuf::new();
                name(message, record, skip, &mut out).map(|()| out.as_bytes().to_vec())
            })
        };
        assert_eq!(read(b"\x01A\0", 0), Ok(b"a".to_vec()));
        assert_eq!(read(b"\0\x05\x01A\0", 2), Ok(b"a".to_vec()));
        for bad in [&b"\x01A\0\0"[..], b"\x01A", b"\x05A", b"", b"\xc0"] {
            assert_eq!(read(bad, 0), Err(DnsError::RdataMalformed), "{bad:?}");
        }
        assert_eq!(read(b"\x01", 6), Err(DnsError::RdataMalformed));
    }

    type Seen = Result<(u16, bool, Vec<String>), DnsError>;

    fn read_svcb(rdata: &[u8]) -> Seen {
        with_record(rtype::HTTPS, rdata, |message, record| {
            let svcb = svcb(message, record)?;
            let hints = svcb.hints().map(|addr| addr.to_string()).collect();
            Ok((svcb.priority, svcb.target_is_root, hints))
        })
    }

    /// Hints of both families are read; parameters of alias mode are ignored.
    #[test]
    fn service_bindings() {
        let mut rdata =
            b"\0\x01\0\0\x01\0\x03\x02h2\0\x04\0\x08\xc0\0\x02\x01\xc0\0\x02\x02".to_vec();
        rdata.extend_from_slice(b"\0\x06\0\x10\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01");
        let hints = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(str::to_owned).to_vec();
        assert_eq!(read_svcb(&rdata), Ok((1, true, hints)));
        assert_eq!(read_svcb(b"\0\0\x01a\0\0\x04\0\x01x"), Ok((0, false, vec![])));
        let mandatory = b"\0\x01\0\0\0\0\x02\0\x04\0\x04\0\x04\xc0\0\x02\x01";
        assert_eq!(read_svcb(mandatory), Ok((1, true, vec!["192.0.2.1".to_owned()])));
    }

    /// A record that RFC 9460 calls malformed is rejected whole.
    #[test]
    fn malformed_service_bindings() {
        for (bad, why) in [
            (&b""[..], "empty"),
            (b"\0\x01", "no target"),
            (b"\0\x01\x01a", "cut target"),
            (b"\0\x01\xc0\x0c", "compressed target"),
            (b"\0\x01\0\0\x04\0\x03\xc0\0\x02", "a hint of three bytes"),
            (b"\0\x01\0\0\x04\0\0", "no hint at all"),
            (b"\0\x01\0\0\x06\0\x04\xc0\0\x02\x01", "an IPv6 hint of four bytes"),
            (b"\0\x01\0\0\x04\0\x05\xc0\0\x02\x01", "a value past the end"),
            (b"\0\x01\0\0\x04\0", "a cut length"),
            (b"\0\x01\0\0\x03\0\x02\0\x50\0\x03\0\x02\0\x50", "a key twice"),
            (b"\0\x01\0\0\x03\0\x02\0\x50\0\x02\0\0", "keys out of order"),
            (b"\0\x01\0\0\x03\0\x01\x50", "a port of one byte"),
            (b"\0\x01\0\0\x01\0\0", "no protocol"),
            (b"\0\x01\0\0\x01\0\x02\x00\x00", "an empty protocol"),
            (b"\0\x01\0\0\x01\0\x02\x03h", "a cut protocol"),
            (b"\0\x01\0\0\x02\0\x01a", "a value where none belongs"),
            (b"\0\x01\0\0\0\0\x02\0\x04", "a mandatory key that is absent"),
            (b"\0\x01\0\0\0\0\x02\0\0", "the list names itself"),
            (b"\0\x01\0\0\0\0\x01\0", "half a key"),
        ] {
            assert_eq!(read_svcb(bad), Err(DnsError::RdataMalformed), "{why}");
        }
    }
}
