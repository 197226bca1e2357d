//! The cache of keys and delegations: responses for DNSKEY, DS and NS.
//!
//! Delegations come from the referrals that the resolver follows, so they cost no extra query. The
//! library asks without proof whether a name has a zone cut, so a referral is as good as a response of
//! the zone.

use hickory_proto::op::{DnsResponse, Message, OpCode, Query};
use hickory_proto::rr::rdata::NS;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinEncodable;

use super::response::{Delegation, delegation};
use crate::names::and_above;
use crate::recent::Recent;

/// The most cached responses.
const RESPONSES_MAX: usize = 20_000;

/// The most bytes of a cached response. A longer one is looked up each time.
const BYTES_MAX: usize = 4_096;

/// The minimum and maximum lifetime of a looked-up response, seconds.
pub const CACHED_S: (u32, u32) = (5, 3_600);

/// The lifetime of entries behind a bogus response, milliseconds: they may have been damaged in
/// transit.
const DISTRUSTED_MS: u64 = 30_000;

/// A name and a type, in wire form and lower case.
pub type Key = Box<[u8]>;

struct Entry {
    until_ms: u64,
    bytes: Box<[u8]>,
    /// If it came from a referral.
    delegation: Option<Delegation>,
}

/// See the header of the file.
pub struct KeyCache(Recent<Key, Entry>);

impl KeyCache {
    /// An empty cache.
    pub fn new() -> KeyCache {
        KeyCache(Recent::new(RESPONSES_MAX))
    }

    fn get(&mut self, key: &[u8], now_ms: u64) -> Option<&mut Entry> {
        self.0.get(key).filter(|entry| entry.until_ms > now_ms)
    }

    /// The cached response to a query. Its TTLs are the rest of its lifetime.
    pub fn response(&mut self, query: &Query, now_ms: u64) -> Option<DnsResponse> {
        if let Some(entry) = self.get(&key_of(query), now_ms) {
            let mut response = DnsResponse::from_buffer(entry.bytes.to_vec()).ok()?;
            limit(&mut response, entry.until_ms - now_ms);
            return Some(response);
        }
        if query.query_type() == RecordType::NS { self.cut(query, now_ms) } else { None }
    }

    /// Whether a name has a zone cut, according to a referral: to that zone, or to an unsigned zone
    /// above. All names below an unsigned zone are unsigned, in any zone.
    fn cut(&mut self, query: &Query, now_ms: u64) -> Option<DnsResponse> {
        let name = wire(query.name());
        let found = and_above(&name).find_map(|above| {
            let entry = self.get(&key(above, RecordType::DS), now_ms)?;
            Some((above.len() == name.len(), entry.delegation?))
        });
        let (is_cut, delegation) = found?;
        if !is_cut && delegation == Delegation::Signed {
            return None;
        }
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(query.clone());
        if is_cut {
            // The names of the servers do not matter.
            let data = RData::NS(NS(Name::root()));
            message.add_answer(Record::from_rdata(query.name().clone(), 0, data));
        }
        DnsResponse::from_message(message).ok()
    }

    /// Caches a looked-up response, no longer than the delegation to its zone. Returns it with the
    /// rest of its lifetime as TTL.
    pub fn learn(&mut self, query: &Query, mut response: DnsResponse, now_ms: u64) -> DnsResponse {
        let ttls = response.answers.iter().chain(&response.authorities).map(|record| record.ttl);
        let (least, most) = CACHED_S;
        let cached_s = ttls.min().unwrap_or(0).clamp(least, most);
        let mut until_ms = now_ms + u64::from(cached_s) * 1_000;
        let name = wire(query.name());
        let mut above = and_above(&name).skip((query.query_type() == RecordType::DS).into());
        let above_ms =
            above.find_map(|above| Some(self.get(&key(above, RecordType::DS), now_ms)?.until_ms));
        // Invariant 1 of `dnssec`.
        until_ms = until_ms.min(above_ms.unwrap_or(u64::MAX));
        limit(&mut response, until_ms - now_ms);
        self.insert(key_of(query), &response, until_ms, None);
        response
    }

    /// Caches the delegation of a referral until this time.
    pub fn learn_referral(&mut self, zone: &[u8], bytes: &[u8], until_ms: u64) {
        if let Some((message, delegation)) = delegation(zone, bytes) {
            self.insert(key(zone, RecordType::DS), &message, until_ms, Some(delegation));
        }
    }

    fn insert(
        &mut self,
        key: Key,
        message: &Message,
        until_ms: u64,
        delegation: Option<Delegation>,
    ) {
        if let Some(bytes) = message.to_vec().ok().filter(|bytes| bytes.len() <= BYTES_MAX) {
            self.0.insert(key, Entry { until_ms, bytes: bytes.into(), delegation });
        }
    }

    /// Shortens the lifetime of all keys and delegations of a name whose response is bogus.
    pub fn distrust(&mut self, name: &Name, now_ms: u64) {
        for above in and_above(&wire(name)) {
            for rtype in [RecordType::DS, RecordType::DNSKEY] {
                if let Some(entry) = self.get(&key(above, rtype), now_ms) {
                    entry.until_ms = entry.until_ms.min(now_ms + DISTRUSTED_MS);
                }
            }
        }
    }
}

/// Limits each TTL to the rest of the lifetime.
fn limit(response: &mut Message, left_ms: u64) {
    let ttl_s = u32::try_from(left_ms / 1_000).unwrap_or(u32::MAX);
    for record in response.answers.iter_mut().chain(&mut response.authorities) {
        record.ttl = record.ttl.min(ttl_s);
    }
}

/// A name in wire form and lower case.
pub fn wire(name: &Name) -> Vec<u8> {
    // A name from a message always fits.
    name.to_lowercase().to_bytes().unwrap_or_default()
}

fn key(name: &[u8], rtype: RecordType) -> Key {
    [name, &u16::from(rtype).to_be_bytes()].concat().into()
}

/// The cache key of a query.
pub fn key_of(query: &Query) -> Key {
    key(&wire(query.name()), query.query_type())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{name, of_data, signature};
    use super::*;
    use hickory_proto::dnssec::rdata::{DNSSECRData, DS};
    use hickory_proto::dnssec::{Algorithm, DigestType};
    use hickory_proto::rr::rdata::A;

    fn query(of: &str, rtype: RecordType) -> Query {
        Query::query(name(of), rtype)
    }

    /// A referral to a signed zone.
    fn referral(zone: &str) -> Vec<u8> {
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(query("www.a.test.", RecordType::A));
        let ds = DS::new(1, Algorithm::ED25519, DigestType::SHA256, vec![7; 32]);
        message.add_authority(of_data(zone, RData::DNSSEC(DNSSECRData::DS(ds))));
        message.add_authority(signature(zone, RecordType::DS, 2));
        message.to_vec().unwrap()
    }

    /// Keys with a TTL of a day expire with the delegation to their zone, and their TTL is the rest
    /// of that time. Invariant 1 of `dnssec`.
    #[test]
    fn no_key_outlives_its_delegation() {
        let mut cache = KeyCache::new();
        cache.learn_referral(b"\x01a\x04test\0", &referral("a.test."), 60_000);
        let keys = query("a.test.", RecordType::DNSKEY);
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(keys.clone());
        message.add_answer(of_data("a.test.", RData::A(A::new(192, 0, 2, 1))));
        let response = DnsResponse::from_message(message).unwrap();
        assert_eq!(cache.learn(&keys, response, 20_000).answers[0].ttl, 40);
        assert_eq!(cache.response(&keys, 50_000).unwrap().answers[0].ttl, 10);
        let delegation = query("a.test.", RecordType::DS);
        assert_eq!(cache.response(&delegation, 50_000).unwrap().answers.len(), 2);
        for query in [keys, delegation] {
            assert!(cache.response(&query, 60_000).is_none(), "{query}");
        }
    }

    /// Zone cuts come from referrals. There are none below an unsigned zone; below a signed one a
    /// query is necessary.
    #[test]
    fn where_zones_begin() {
        let mut cache = KeyCache::new();
        cache.learn_referral(b"\x01a\x04test\0", &referral("a.test."), 60_000);
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(query("www.b.test.", RecordType::A));
        message.add_authority(signature("b.test.", RecordType::NSEC, 2));
        cache.learn_referral(b"\x01b\x04test\0", &message.to_vec().unwrap(), 60_000);
        let mut is_cut = |of: &str| {
            let response = cache.response(&query(of, RecordType::NS), 0)?;
            Some(!response.answers.is_empty())
        };
        assert_eq!(is_cut("a.test."), Some(true));
        assert_eq!(is_cut("www.a.test."), None);
        assert_eq!(is_cut("b.test."), Some(true));
        assert_eq!(is_cut("x.www.b.test."), Some(false));
        assert_eq!(is_cut("test."), None);
    }

    /// After a bogus response only the entries of its name expire early.
    #[test]
    fn distrust() {
        let mut cache = KeyCache::new();
        for (wire, text) in [(b"\x01a\x04test\0", "a.test."), (b"\x01b\x04test\0", "b.test.")] {
            cache.learn_referral(wire, &referral(text), 600_000);
        }
        cache.distrust(&name("www.a.test."), 1_000);
        let is_cached = |cache: &mut KeyCache, of: &str, now_ms| {
            cache.response(&query(of, RecordType::DS), now_ms).is_some()
        };
        assert!(
            is_cached(&mut cache, "a.test.", 30_000) && !is_cached(&mut cache, "a.test.", 31_000)
        );
        assert!(is_cached(&mut cache, "b.test.", 31_000));
    }
}
