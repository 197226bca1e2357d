//! Messages of the hierarchy, read and verified by hickory-proto.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hickory_proto::dnssec::rdata::DNSSECRData;
use hickory_proto::dnssec::{PublicKey as _, Verifier as _, rdata};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::{NAME_BYTES_MAX, Signer, nsec};
use crate::dns::hierarchy::{ANY, ROOT};
use crate::dns::query::{self, HEADER_BYTES, OPT};
use crate::dns::stub::{StubOptions, answer};
use crate::net::MESSAGE_BYTES_MAX;

const TOP: Ipv4Addr = Ipv4Addr::new(127, 53, 1, 2);

fn signed() -> StubOptions {
    StubOptions { signer: Some(Arc::new(Signer::new().unwrap())), ..StubOptions::default() }
}

/// A query for the type of a name in the wire's form, with an OPT record that asks for signatures.
fn dnssec_query(name: &[u8], kind: RecordType) -> Vec<u8> {
    let mut bytes = [b"\0\x07\0\0\0\x01\0\0\0\0\0\x01", name].concat();
    bytes.extend(u16::from(kind).to_be_bytes());
    bytes.extend([0, 1]);
    bytes.extend(OPT);
    let flags = bytes.len() - 4;
    bytes[flags] |= 0x80;
    bytes
}

/// The bytes of the answer that a server gives.
fn bytes(options: &StubOptions, server: Ipv4Addr, query: &[u8]) -> Vec<u8> {
    let mut room = [0; MESSAGE_BYTES_MAX];
    let (length, _) = answer(query, Some(server.into()), options, &mut room).unwrap();
    room[..length].to_vec()
}

/// The answer that a server gives.
fn response(options: &StubOptions, server: Ipv4Addr, name: &[u8], kind: RecordType) -> Message {
    let bytes = bytes(options, server, &dnssec_query(name, kind));
    assert!(bytes.len() < 1000, "{}", bytes.len());
    let message = Message::from_vec(&bytes).unwrap();
    assert_eq!(message.metadata.response_code, ResponseCode::NoError);
    assert!(message.edns.as_ref().unwrap().flags().dnssec_ok);
    message
}

/// The records of a type, after their signature by the zone was verified.
fn verified(records: &[Record], kind: RecordType, zone: &Name, key: &rdata::DNSKEY) -> Vec<RData> {
    let set: Vec<&Record> = records.iter().filter(|one| one.record_type() == kind).collect();
    let owner = &set.first().unwrap_or_else(|| panic!("no {kind} in {records:?}")).name;
    let signatures = records.iter().filter_map(|record| match &record.data {
        RData::DNSSEC(DNSSECRData::RRSIG(signature)) => Some((record, signature)),
        _ => None,
    });
    let mut signatures = signatures.filter(|(_, one)| one.input().type_covered == kind);
    let (record, signature) = signatures.next().expect("a signature");
    let input = signature.input();
    assert!(signatures.next().is_none() && record.name == *owner);
    assert_eq!((&input.signer_name, input.num_labels), (zone, owner.num_labels()));
    assert_eq!(input.key_tag, key.calculate_key_tag().unwrap());
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as u32;
    let valid = input.sig_inception.get()..input.sig_expiration.get();
    assert!(valid.contains(&(now_s - 3000)) && valid.contains(&(now_s + 86_400)), "{valid:?}");
    key.verify_rrsig(owner, DNSClass::IN, signature, set.iter().copied()).expect("verifies");
    set.iter().map(|record| record.data.clone()).collect()
}

/// A zone's key, which signs itself.
fn key_of(options: &StubOptions, server: Ipv4Addr, apex: &[u8]) -> rdata::DNSKEY {
    let keys = response(options, server, apex, RecordType::DNSKEY).answers;
    let RData::DNSSEC(DNSSECRData::DNSKEY(key)) = keys[0].data.clone() else { panic!("{keys:?}") };
    verified(&keys, RecordType::DNSKEY, &read(apex), &key);
    assert!(key.zone_key() && key.secure_entry_point());
    key
}

/// Whether DS records stand for a zone's key.
fn vouch(sets: &[RData], zone: &Name, key: &rdata::DNSKEY) -> bool {
    let covers = |data: &RData| match data {
        RData::DNSSEC(DNSSECRData::DS(ds)) => {
            let tag = key.calculate_key_tag().unwrap();
            ds.covers(zone, key).unwrap()
                && (ds.key_tag(), ds.algorithm()) == (tag, key.algorithm())
        }
        _ => false,
    };
    !sets.is_empty() && sets.iter().all(covers)
}

fn read(name: &[u8]) -> Name {
    use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};
    Name::read(&mut BinDecoder::new(name)).unwrap()
}

/// The name of a number in the wire's form, the starts of its zones, its domain's second server and its tag.
fn name(number: u64) -> (Vec<u8>, [usize; 3], Ipv4Addr, u64) {
    let mut room = [0; 100];
    let query = query::write(7, number, false, &mut room);
    let name = room[HEADER_BYTES..query.length - 4].to_vec();
    let domain = query::domain_start(&name).unwrap();
    let top = name[..name.len() - 1].iter().rposition(|byte| *byte < b'-').unwrap();
    let referral = bytes(&StubOptions::default(), TOP, &room[..query.length]);
    let server = Ipv4Addr::from(*referral.last_chunk::<4>().unwrap());
    let root = name.len() - 1;
    (name, [root, top, domain], server, query.tag)
}

/// From the key that is trusted to the address of a name, each zone vouches for the next one's key, both where it
/// refers and where it is asked to, and all that must be signed is.
#[test]
fn trust_goes_from_the_root_to_addresses() {
    let options = signed();
    let anchor = options.signer.as_ref().unwrap().anchor();
    let root_key = key_of(&options, ROOT, &[0]);
    let trusted = STANDARD.decode(anchor.strip_prefix("257 3 13 ").unwrap()).unwrap();
    assert_eq!(root_key.public_key().public_bytes(), trusted);
    for number in 0..50 {
        let (name, [root, top, domain], server, tag) = name(number);
        let mut key = root_key.clone();
        for (zone, at, child, child_at) in [(root, ROOT, top, TOP), (top, TOP, domain, server)] {
            let (zone, child) = (read(&name[zone..]), &name[child..]);
            let child_key = key_of(&options, child_at, child);
            let referral = response(&options, at, &name, RecordType::A);
            assert!(!referral.metadata.authoritative && referral.answers.is_empty());
            let sets = verified(&referral.authorities, RecordType::DS, &zone, &key);
            assert!(vouch(&sets, &read(child), &child_key));
            assert_eq!(referral.additionals.len(), 2);
            let ds_response = response(&options, at, child, RecordType::DS);
            assert!(ds_response.metadata.authoritative);
            assert_eq!(verified(&ds_response.answers, RecordType::DS, &zone, &key), sets);
            let servers = response(&options, child_at, child, RecordType::NS).answers;
            verified(&servers, RecordType::NS, &read(child), &child_key);
            key = child_key;
        }
        let answers = response(&options, server, &name, RecordType::A).answers;
        let found = verified(&answers, RecordType::A, &read(&name[domain..]), &key);
        let [_, b, c, d] = query::address(tag);
        assert_eq!(found, [RData::A(Ipv4Addr::new(10, b, c, d).into())]);
    }
    let servers = response(&options, ROOT, &[0], RecordType::NS).answers;
    verified(&servers, RecordType::NS, &Name::root(), &root_key);
}

/// Where a name has nothing of a type, a record says so, with all that it has, which can be had, and a beginning of
/// what it does not; both it and the zone's SOA are signed.
#[test]
fn what_is_not_there_is_denied() {
    let options = signed();
    let (name, [root, top, domain], server, _) = name(3);
    let own = [b"\x03ns1", &name[domain..]].concat();
    let top_own = [b"\x03ns2", &name[top..]].concat();
    let all = [RecordType::A, RecordType::NS, RecordType::SOA, RecordType::DNSKEY];
    for (at, zone, name, has) in [
        (ROOT, &name[root..], &name[root..], &all[1..]),
        (ROOT, &name[root..], &b"\x03ns1\x04root\0"[..], &all[..1]),
        (TOP, &name[top..], &name[top..], &all[1..]),
        (TOP, &name[top..], &top_own, &all[..1]),
        (TOP, b"\x02uk\0", b"\x02co\x02uk\0", &[]),
        (server, &name[domain..], &name[domain..], &all[..]),
        (server, &name[domain..], &own, &all[..1]),
    ] {
        let key = key_of(&options, at, zone);
        let zone = read(zone);
        for kind in all.into_iter().chain([RecordType::AAAA, RecordType::DS, RecordType::TXT]) {
            let message = response(&options, at, name, kind);
            assert!(message.metadata.authoritative);
            if has.contains(&kind) {
                verified(&message.answers, kind, &zone, &key);
                continue;
            }
            assert!(message.answers.is_empty(), "{kind} {message:?}");
            verified(&message.authorities, RecordType::SOA, &zone, &key);
            let denied = verified(&message.authorities, RecordType::NSEC, &zone, &key);
            let [RData::DNSSEC(DNSSECRData::NSEC(nsec))] = &denied[..] else { panic!() };
            let mut types: Vec<RecordType> = has.to_vec();
            types.extend([RecordType::RRSIG, RecordType::NSEC]);
            types.sort_by_key(|kind| u16::from(*kind));
            assert_eq!(nsec.type_bit_maps().collect::<Vec<_>>(), types);
            let next = [b"\x01\0", name].concat();
            assert_eq!(nsec.next_domain_name(), &read(&next));
            let owner = message.authorities.iter().find(|one| one.data == denied[0]).unwrap();
            assert_eq!(owner.name, read(name));
        }
    }
}

/// Types are bits, and there are no more bytes of them than there must be.
#[test]
fn types_are_bits() {
    assert_eq!(nsec(b"\x01a\0", &[1, 46, 47]), b"\x01\0\x01a\0\0\x06\x40\0\0\0\0\x03");
    assert_eq!(nsec(b"\0", &[48, 2]), b"\x01\0\0\0\x07\x20\0\0\0\0\0\x80");
}

/// Who does not ask for signatures gets what there is without a signer, byte for byte; so do names that are too long.
/// No message does harm, cut anywhere or with any bit changed.
#[test]
fn signatures_are_sent_on_request() {
    let (with, without) = (signed(), StubOptions::default());
    let (name, _, server, _) = name(11);
    let long = [&[&b"\x3f"[..], &[b'a'; 63]].concat().repeat(3)[..], b"\x03net\0"].concat();
    assert!(long.len() > NAME_BYTES_MAX);
    for at in [ROOT, TOP, server, ANY] {
        for kind in [RecordType::A, RecordType::DNSKEY, RecordType::DS, RecordType::NSEC] {
            let query = dnssec_query(&name, kind);
            let mut plain = query.clone();
            let flags = plain.len() - 4;
            plain[flags] &= !0x80;
            assert_eq!(bytes(&with, at, &plain), bytes(&without, at, &plain));
            let long_query = dnssec_query(&long, kind);
            assert_eq!(bytes(&with, at, &long_query), bytes(&without, at, &long_query));
            let mut room = [0; MESSAGE_BYTES_MAX];
            for bit in 0..query.len() * 8 {
                let mut changed = query.clone();
                changed[bit / 8] ^= 0x80 >> (bit % 8);
                let _ = answer(&changed, Some(at.into()), &with, &mut room);
                let cut = answer(&query[..bit / 8], Some(at.into()), &with, &mut room);
                assert_eq!(cut.is_none(), bit / 8 < query.len() - OPT.len(), "{}", bit / 8);
            }
        }
    }
    let names = bytes(&with, ANY, &dnssec_query(&name, RecordType::A));
    assert_eq!(Message::from_vec(&names).unwrap().answers.len(), 1);
}
