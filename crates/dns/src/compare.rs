//! Compares the responses of two servers, field by field.
//!
//! ```text
//! bytes -> View::read -> a.differences(&b): the fields in which they differ
//!                        a.ttl_differences(&b): seconds, for records that both have
//! ```
//!
//! Differences without a meaning are normalized: the case of names (RFC 4343), the order of records
//! (RFC 2181, section 5), compression, the text of an extended error. Two servers rotate records
//! differently. TTLs are compared separately, since each server received them at another time.
//!
//! `read` makes views of bytes, `print` makes a line of a view. Cost of a comparison: two sorts for
//! a section.

mod print;
mod read;

/// A field in which responses may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Field {
    Opcode,
    Rcode,
    Authoritative,
    Truncated,
    RecursionDesired,
    RecursionAvailable,
    Authentic,
    CheckingDisabled,
    Question,
    Answer,
    Authority,
    Additional,
    Ttl,
    Opt,
    UdpSize,
    Version,
    DnssecOk,
    Reserved,
    Errors,
    Options,
}

impl Field {
    /// Its name for operators.
    pub const fn as_str(self) -> &'static str {
        match self {
            Field::Opcode => "opcode",
            Field::Rcode => "response code",
            Field::Authoritative => "AA",
            Field::Truncated => "TC",
            Field::RecursionDesired => "RD",
            Field::RecursionAvailable => "RA",
            Field::Authentic => "AD",
            Field::CheckingDisabled => "CD",
            Field::Question => "question",
            Field::Answer => "answer",
            Field::Authority => "authority",
            Field::Additional => "additional",
            Field::Ttl => "TTL",
            Field::Opt => "OPT",
            Field::UdpSize => "UDP size",
            Field::Version => "EDNS version",
            Field::DnssecOk => "DO",
            Field::Reserved => "EDNS flags",
            Field::Errors => "extended errors",
            Field::Options => "EDNS options",
        }
    }
}

/// A record. The order is by everything but the TTL, then by the TTL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Owner in wire form and lower case.
    pub owner: Vec<u8>,
    /// Type.
    pub rtype: u16,
    /// Class.
    pub class: u16,
    /// Data, its names uncompressed and in lower case.
    pub data: Vec<u8>,
    /// TTL, seconds.
    pub ttl_s: u32,
}

impl Entry {
    /// Everything but the TTL.
    fn key(&self) -> (&[u8], u16, u16, &[u8]) {
        (&self.owner, self.rtype, self.class, &self.data)
    }

    /// Owner and type.
    pub fn set(&self) -> (&[u8], u16) {
        (&self.owner, self.rtype)
    }
}

/// OPT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptView {
    /// The largest message over UDP that the sender accepts.
    pub udp_bytes: u16,
    /// Version of EDNS.
    pub version: u8,
    /// DO.
    pub dnssec_ok: bool,
    /// Flags that have no meaning yet.
    pub reserved: u16,
    /// INFO-CODEs of extended errors.
    pub errors: Vec<u16>,
    /// Numbers of the other options.
    pub options: Vec<u16>,
}

/// A response.
#[derive(Clone, PartialEq, Eq)]
pub struct View {
    /// Bytes of the message.
    pub bytes: usize,
    /// Operation.
    pub opcode: u8,
    /// Response code, the upper bits of OPT included.
    pub rcode: u16,
    /// AA, TC, RD, RA, AD, CD.
    pub flags: [bool; 6],
    /// Name in wire form as sent, type, class.
    pub question: Option<(Vec<u8>, u16, u16)>,
    /// Answer, authority and additional records except OPT, in their order.
    pub sections: [Vec<Entry>; 3],
    /// OPT.
    pub opt: Option<OptView>,
}

const HEADER_FLAGS: [Field; 6] = [
    Field::Authoritative,
    Field::Truncated,
    Field::RecursionDesired,
    Field::RecursionAvailable,
    Field::Authentic,
    Field::CheckingDisabled,
];

const SECTIONS: [Field; 3] = [Field::Answer, Field::Authority, Field::Additional];

impl View {
    /// TC.
    pub fn is_truncated(&self) -> bool {
        self.flags[1]
    }

    /// The answer section.
    pub fn answers(&self) -> &[Entry] {
        &self.sections[0]
    }

    /// The authority section.
    pub fn authorities(&self) -> &[Entry] {
        &self.sections[1]
    }

    /// The fields in which two responses differ, in order; never [`Field::Ttl`].
    pub fn differences(&self, other: &View) -> Vec<Field> {
        let mut fields = Vec::new();
        let mut note = |is_equal: bool, field| {
            if !is_equal {
                fields.push(field);
            }
        };
        note(self.opcode == other.opcode, Field::Opcode);
        note(self.rcode == other.rcode, Field::Rcode);
        for (at, field) in HEADER_FLAGS.into_iter().enumerate() {
            note(self.flags[at] == other.flags[at], field);
        }
        note(self.question == other.question, Field::Question);
        for (at, field) in SECTIONS.into_iter().enumerate() {
            let (ours, theirs) = (sorted(&self.sections[at]), sorted(&other.sections[at]));
            let keys = |entries: &[&Entry]| {
                entries.iter().map(|e| e.key()).eq(theirs.iter().map(|e| e.key()))
            };
            note(keys(&ours), field);
        }
        note(self.opt.is_some() == other.opt.is_some(), Field::Opt);
        if let (Some(ours), Some(theirs)) = (&self.opt, &other.opt) {
            note(ours.udp_bytes == theirs.udp_bytes, Field::UdpSize);
            note(ours.version == theirs.version, Field::Version);
            note(ours.dnssec_ok == theirs.dnssec_ok, Field::DnssecOk);
            note(ours.reserved == theirs.reserved, Field::Reserved);
            note(ours.errors == theirs.errors, Field::Errors);
            note(ours.options == theirs.options, Field::Options);
        }
        fields
    }

    /// Differences of TTLs, seconds, for each record that both have in the same section.
    pub fn ttl_differences(&self, other: &View) -> Vec<i64> {
        let mut differences = Vec::new();
        for (ours, theirs) in self.sections.iter().zip(&other.sections) {
            let (ours, theirs) = (sorted(ours), sorted(theirs));
            let mut rest = theirs.iter().peekable();
            for ours in ours {
                while rest.next_if(|theirs| theirs.key() < ours.key()).is_some() {}
                if let Some(theirs) = rest.next_if(|theirs| theirs.key() == ours.key()) {
                    differences.push(i64::from(ours.ttl_s) - i64::from(theirs.ttl_s));
                }
            }
        }
        differences
    }

    /// True if both have records of the same owners and types in the answer section, with any data.
    pub fn has_same_sets(&self, other: &View) -> bool {
        let sets = |view: &View| {
            let mut sets: Vec<(Vec<u8>, u16)> =
                view.answers().iter().map(|entry| (entry.owner.clone(), entry.rtype)).collect();
            sets.sort_unstable();
            sets.dedup();
            sets
        };
        sets(self) == sets(other)
    }
}

fn sorted(entries: &[Entry]) -> Vec<&Entry> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::dns::DnsError;
    use proptest::prelude::*;

    /// `www.example.` with an alias, two addresses, an SOA and OPT; names compressed.
    fn message(ttl_s: u8, is_other_way_round: bool) -> Vec<u8> {
        let mut out = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 3, 0, 1, 0, 1];
        out.extend_from_slice(b"\x03wWw\x07example\0\0\x01\0\x01");
        out.extend_from_slice(b"\xc0\x0c\0\x05\0\x01\0\0\0");
        out.extend_from_slice(&[ttl_s, 0, 4, 1, b'A', 0xc0, 16]);
        let mut addresses = [1, 2];
        if is_other_way_round {
            addresses.reverse();
        }
        for last in addresses {
            out.extend_from_slice(b"\x01a\xc0\x10\0\x01\0\x01\0\0\0");
            out.extend_from_slice(&[ttl_s, 0, 4, 192, 0, 2, last]);
        }
        out.extend_from_slice(b"\xc0\x10\0\x06\0\x01\0\0\0\x3c\0\x1a\xc0\x10\x01h\xc0\x10");
        out.extend_from_slice(&[0; 20]);
        out.extend_from_slice(b"\0\0\x29\x04\xd0\x01\0\x80\0\0\x0a\0\x0f\0\x02\0\x03\0\x08\0\0");
        out
    }

    /// Every field is read. Names in data are uncompressed and in lower case; the question stays as
    /// sent.
    #[test]
    fn fields_are_read() {
        let view = View::read(&message(60, false)).unwrap();
        assert_eq!((view.opcode, view.rcode), (0, 16));
        assert_eq!(view.flags, [false, false, true, true, false, false]);
        assert_eq!(view.question, Some((b"\x03wWw\x07example\0".to_vec(), 1, 1)));
        let alias = &view.answers()[0];
        assert_eq!(alias.data, b"\x01a\x07example\0");
        assert_eq!(alias.owner, b"\x03www\x07example\0");
        let soa = &view.authorities()[0];
        assert_eq!(soa.data, [&b"\x07example\0\x01h\x07example\0"[..], &[0; 20]].concat());
        let opt = view.opt.as_ref().unwrap();
        assert_eq!((opt.udp_bytes, opt.dnssec_ok, opt.version), (1_232, true, 0));
        assert_eq!((&opt.errors[..], &opt.options[..]), (&[3][..], &[8][..]));
        let text = format!("{view:?}");
        let expected = "BADVERS RD RA, ";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("3 answer: www.example. 60 CNAME a.example. | a.example. 60 A 192.0.2.1")
        );
        assert!(text.contains("EDNS 0 UDP 1232 DO errors [3] options [8]"), "{text}");
    }

    /// The order of records and their TTLs are not a difference. Any other difference has its
    /// field.
    #[test]
    fn what_differs_is_named() {
        let ours = View::read(&message(60, false)).unwrap();
        let theirs = View::read(&message(45, true)).unwrap();
        assert_eq!(ours.differences(&theirs), []);
        assert_eq!(ours.ttl_differences(&theirs), [15, 15, 15, 0]);
        let mut other = theirs.clone();
        other.sections[0][2].data[3] = 9;
        assert_eq!(ours.differences(&other), [Field::Answer]);
        assert!(ours.has_same_sets(&other));
        assert_eq!(ours.ttl_differences(&other), [15, 15, 0]);
        other.sections[0].pop();
        other.sections[0].pop();
        assert!(!ours.has_same_sets(&other));
        other = theirs;
        other.rcode = 3;
        other.flags[4] = true;
        other.opt.as_mut().unwrap().udp_bytes = 512;
        assert_eq!(ours.differences(&other), [Field::Rcode, Field::Authentic, Field::UdpSize]);
    }

    /// A query or a truncated message is an error.
    #[test]
    fn others_are_errors() {
        let whole = message(60, false);
        let mut query = whole.clone();
        query[2] &= 0x7f;
        assert_eq!(View::read(&query), Err(DnsError::NotDns));
        for end in 0..whole.len() {
            assert!(View::read(&whole[..end]).is_err(), "{end}");
        }
    }

    proptest! {
        /// No bytes make the reader panic, and a response does not differ from itself.
        #[test]
        fn noise_never_panics(
            at in 0..100_usize,
            noise in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut bytes = message(60, false);
            let end = (at + noise.len()).min(bytes.len());
            bytes.splice(at..end, noise);
            if let Ok(view) = View::read(&bytes) {
                prop_assert_eq!(view.differences(&view), []);
                prop_assert!(view.ttl_differences(&view).iter().all(|difference| *difference == 0));
                let text = format!("{view:?}");
                prop_assert!(text.is_ascii());
            }
        }
    }
}
