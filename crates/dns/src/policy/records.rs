//! Local records by name: chains in one array, their data in one vector of bytes.
//!
//! A chain is named by the number of its first record. Sets follow RFC 2181 (section 5) and RFC
//! 1034 (section 3.6.2): no record twice, one TTL for all of a type, nothing next to an alias.
//!
//! Bounds: [`CHAIN_BYTES_MAX`] bytes of records for a name. So every response fits a message, and a
//! name that a file repeats a million times does not cost quadratic time.

use larder_wire::dns::rtype;

use super::names::Full;

/// The chain without records.
pub const EMPTY: u32 = u32::MAX;

/// Bytes that the records of a name take in a message, at most. With its question and a chain of
/// aliases that is below 2^14, so pointers reach all names, and below the 2^16 of a message.
pub const CHAIN_BYTES_MAX: usize = 8 << 10;

/// Bytes of a record in a message without its data: pointer to its owner, type, class, TTL, length.
const RECORD_BYTES: usize = 12;

/// Why a record was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// More than [`CHAIN_BYTES_MAX`].
    TooMany,
    /// An alias next to other records.
    Alias,
    /// All records take more than 4 GiB.
    Full,
}

impl From<Full> for Rejection {
    fn from(_: Full) -> Rejection {
        Rejection::Full
    }
}

impl std::fmt::Display for Rejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Rejection::TooMany => "the records of this name take more than 8 KiB",
            Rejection::Alias => "a name with a CNAME record can have no other record",
            Rejection::Full => "all records take more than 4 GiB",
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Record {
    next: u32,
    at: u32,
    ttl_s: u32,
    rtype: u16,
    len: u16,
}

/// A record without its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Its type.
    pub rtype: u16,
    /// Its TTL, seconds.
    pub ttl_s: u32,
    /// Its data, names in it uncompressed.
    pub data: &'a [u8],
}

/// Records of many names.
#[derive(Debug, Clone, Default)]
pub struct Records {
    records: Vec<Record>,
    bytes: Vec<u8>,
}

impl Records {
    /// Appends a record to a chain ([`EMPTY`]: a new one), and returns the chain's number.
    pub fn add(&mut self, chain: u32, record: RecordRef<'_>) -> Result<u32, Rejection> {
        let (mut last, mut ttl_s) = (EMPTY, record.ttl_s);
        let mut bytes = RECORD_BYTES + record.data.len();
        let mut at = chain;
        while at != EMPTY {
            let there = self.record(at);
            if there.rtype == record.rtype {
                if there.data == record.data {
                    return Ok(chain);
                }
                ttl_s = there.ttl_s;
            }
            if there.rtype == rtype::CNAME || record.rtype == rtype::CNAME {
                return Err(Rejection::Alias);
            }
            bytes += RECORD_BYTES + there.data.len();
            last = at;
            at = self.records[at as usize].next;
        }
        if bytes > CHAIN_BYTES_MAX {
            return Err(Rejection::TooMany);
        }
        let number = u32::try_from(self.records.len()).map_err(|_| Rejection::Full)?;
        let at = u32::try_from(self.bytes.len()).map_err(|_| Rejection::Full)?;
        // The upper half of numbers is left to callers that store other values.
        if number > u32::MAX / 2 {
            return Err(Rejection::Full);
        }
        // It fits, since it is below the limit of a chain.
        let len = record.data.len() as u16;
        self.records.push(Record { next: EMPTY, at, ttl_s, rtype: record.rtype, len });
        self.bytes.extend_from_slice(record.data);
        if last == EMPTY {
            return Ok(number);
        }
        self.records[last as usize].next = number;
        Ok(chain)
    }

    /// The records of a chain, in order of their addition.
    pub fn chain(&self, chain: u32) -> impl Iterator<Item = RecordRef<'_>> {
        let mut at = chain;
        std::iter::from_fn(move || {
            let next = self.records.get(at as usize)?.next;
            Some(self.record(std::mem::replace(&mut at, next)))
        })
    }

    fn record(&self, number: u32) -> RecordRef<'_> {
        let Record { at, ttl_s, rtype, len, .. } = self.records[number as usize];
        let data = &self.bytes[at as usize..at as usize + usize::from(len)];
        RecordRef { rtype, ttl_s, data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rtype: u16, ttl_s: u32, data: &[u8]) -> RecordRef<'_> {
        RecordRef { rtype, ttl_s, data }
    }

    /// Chains that grow in turn stay apart and in order, without duplicates and with one TTL for a
    /// type.
    #[test]
    fn chains() {
        let mut records = Records::default();
        let one = records.add(EMPTY, record(rtype::A, 60, b"1111")).unwrap();
        let two = records.add(EMPTY, record(rtype::MX, 7, b"mx")).unwrap();
        assert_eq!(records.add(one, record(rtype::A, 99, b"2222")), Ok(one));
        assert_eq!(records.add(two, record(rtype::A, 99, b"3333")), Ok(two));
        assert_eq!(records.add(one, record(rtype::A, 5, b"1111")), Ok(one));
        let all: Vec<_> = records.chain(one).collect();
        assert_eq!(all, [record(rtype::A, 60, b"1111"), record(rtype::A, 60, b"2222")]);
        assert_eq!(records.chain(two).count(), 2);
        assert_eq!(records.chain(EMPTY).count(), 0);
    }

    /// An alias excludes other records, whichever was added first. A name has at most 8 KiB of
    /// records.
    #[test]
    fn rejections() {
        let mut records = Records::default();
        let alias = records.add(EMPTY, record(rtype::CNAME, 1, b"\x01a\0")).unwrap();
        let other = records.add(EMPTY, record(rtype::A, 1, b"1111")).unwrap();
        assert_eq!(records.add(alias, record(rtype::A, 1, b"1111")), Err(Rejection::Alias));
        assert_eq!(records.add(other, record(rtype::CNAME, 1, b"\0")), Err(Rejection::Alias));
        assert_eq!(records.add(alias, record(rtype::CNAME, 1, b"\x01b\0")), Err(Rejection::Alias));
        let large = vec![0; CHAIN_BYTES_MAX];
        assert_eq!(records.add(EMPTY, record(99, 1, &large)), Err(Rejection::TooMany));
        let taken = (0_u32..9_999)
            .take_while(|n| records.add(other, record(rtype::A, 1, &n.to_be_bytes())).is_ok())
            .count();
        assert_eq!(taken, CHAIN_BYTES_MAX / 16 - 1);
    }
}
