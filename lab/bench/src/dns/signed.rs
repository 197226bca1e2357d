//! What makes the zones of [`super::hierarchy`] signed ones (RFC 4034, 4035).
//!
//! All zones have the one key of a run, which signs keys and data alike. Signatures are made when they are asked for:
//! each is for one domain, and a resolver that caches asks for it once, so keeping them would not help.
//! What is not there is denied by one record that covers nothing but the name that was asked for (RFC 4470), and
//! lists what the name has; there is no name without any, so none has to be denied.
//!
//! Cost: 15 microseconds a signature, on the core of the upstream and not on that of the contestant. Of the domains a
//! resolver asks for three: of its DS, its DNSKEY, and of an address.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use super::key::{ALGORITHM, Key};

/// Types of records (IANA, Resource Record TYPEs).
pub const SOA: u8 = 6;
/// A digest of a zone's key, in the zone above.
pub const DS: u8 = 43;
/// A signature.
pub const RRSIG: u8 = 46;
/// The types that a name has, and the name after it.
pub const NSEC: u8 = 47;
/// A key.
pub const DNSKEY: u8 = 48;

/// Longest name with which a signed answer has less than 1,000 bytes; those of [`super::query`] have 51 at most.
pub const NAME_BYTES_MAX: usize = 128;

/// A zone's key that signs keys too, protocol 3 (RFC 4034, section 2.1).
const DNSKEY_HEAD: [u8; 4] = [1, 1, 3, ALGORITHM];
/// SHA-256 (RFC 4509).
const DIGEST_TYPE: u8 = 2;
/// How long signatures have been valid: clocks differ.
const VALID_BEFORE_S: u64 = 3600;
/// How long signatures are valid: longer than anybody measures.
const VALID_AFTER_S: u64 = 7 * 86_400;

/// The key of all zones, and from when until when its signatures are valid.
pub struct Signer {
    key: Key,
    dnskey: Vec<u8>,
    tag: u16,
    inception_s: u32,
    expiration_s: u32,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl Signer {
    /// A new key, whose signatures are valid now. The error states what this build or the system lacks.
    pub fn new() -> Result<Signer, String> {
        let key = Key::new()?;
        let dnskey = [&DNSKEY_HEAD, key.public()].concat();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Ok(Signer {
            key,
            tag: key_tag(&dnskey),
            dnskey,
            // Seconds of 32 bits go around (RFC 4034, section 3.1.5).
            inception_s: now_s.wrapping_sub(VALID_BEFORE_S) as u32,
            expiration_s: now_s.wrapping_add(VALID_AFTER_S) as u32,
        })
    }

    /// The key that the root is trusted by: the data of its DNSKEY record, as text.
    pub fn anchor(&self) -> String {
        format!("257 3 {ALGORITHM} {}", self.key.text())
    }

    /// The data of every zone's DNSKEY record.
    pub fn dnskey(&self) -> &[u8] {
        &self.dnskey
    }

    /// The data of a zone's DS record.
    pub fn ds(&self, zone: &[u8]) -> Vec<u8> {
        let digest = self.key.digest(&[zone, &self.dnskey].concat());
        [&self.tag.to_be_bytes()[..], &[ALGORITHM, DIGEST_TYPE], &digest].concat()
    }

    /// The data of the RRSIG record of a zone's records of one owner and type. Names are in lower case, and `data` is
    /// in the order of RFC 4034, section 6.3.
    pub fn rrsig(
        &self,
        zone: &[u8],
        owner: &[u8],
        kind: u8,
        ttl_s: u32,
        data: &[&[u8]],
    ) -> Vec<u8> {
        let mut head = vec![0, kind, ALGORITHM, labels(owner)];
        for word in [ttl_s, self.expiration_s, self.inception_s] {
            head.extend(word.to_be_bytes());
        }
        head.extend(self.tag.to_be_bytes());
        head.extend(zone);
        let mut signed = head.clone();
        for data in data {
            signed.extend(owner);
            signed.extend([0, kind, 0, 1]);
            signed.extend(ttl_s.to_be_bytes());
            signed.extend((data.len() as u16).to_be_bytes());
            signed.extend(*data);
        }
        head.extend(self.key.sign(&signed));
        head
    }
}

/// The data of a zone's SOA record. `ttl_s` is how long it may be kept that something is not there.
pub fn soa(server: &[u8], ttl_s: u32) -> Vec<u8> {
    let mut data = [server, &[0]].concat();
    // Serial, refresh, retry, expiry: for secondaries, of which there are none.
    for word in [1, 3600, 600, 86_400, ttl_s] {
        data.extend(u32::to_be_bytes(word));
    }
    data
}

/// The data of the NSEC record that lists which types below 56 a name has, and that nothing is between it and the first
/// name that could follow it.
pub fn nsec(name: &[u8], types: &[u8]) -> Vec<u8> {
    let mut bits = [0; 7];
    for kind in types {
        bits[usize::from(kind / 8)] |= 0x80 >> (kind % 8);
    }
    // No zeros at the end (RFC 4034, section 4.1.2).
    let length = bits.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    [&[1, 0], name, &[0, length as u8], &bits[..length]].concat()
}

/// The number of a key (RFC 4034, appendix B).
fn key_tag(dnskey: &[u8]) -> u16 {
    let words = dnskey
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or_default()));
    let sum: u32 = words.sum();
    (sum + (sum >> 16)) as u16
}

/// Labels of a name, without the root's.
fn labels(name: &[u8]) -> u8 {
    let (mut labels, mut at) = (0, 0);
    while let Some(&length) = name.get(at).filter(|length| **length > 0) {
        labels += 1;
        at += 1 + usize::from(length);
    }
    labels
}

#[cfg(all(test, feature = "signed"))]
mod tests;
