//! Messages that proptest generates and hickory encodes, with compression.

use hickory_proto::op::{Message as Theirs, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::svcb::{Alpn, IpHint, SVCB, SvcParamKey, SvcParamValue};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, HTTPS, MX, NS, PTR, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use larder_wire::dns::answers::{Extract, extract, extract_mdns};
use larder_wire::dns::{Message, NameBuf, tcp};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::{model, view};

/// Few labels, so that names repeat and compress; some of them are hostile.
fn label() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop_oneof![Just("a"), Just("b"), Just("WWW"), Just("example"), Just("test")]
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(prop_oneof![Just(b'.'), Just(b'\\'), Just(0), any::<u8>()], 1..6),
        1 => vec(any::<u8>(), 60..=63),
    ]
}

pub fn name() -> impl Strategy<Value = Name> {
    let plain =
        vec(label(), 0..5).prop_filter_map("too long", |labels| Name::from_labels(labels).ok());
    let reverse = (0u8..3).prop_map(|last| {
        Name::from_ascii(format!("{last}.2.0.192.in-addr.arpa.")).expect("a name")
    });
    prop_oneof![9 => plain, 1 => reverse]
}

fn service() -> impl Strategy<Value = SVCB> {
    (0u16..3, name(), vec(any::<[u8; 4]>(), 0..3), vec(any::<[u8; 16]>(), 0..3), any::<bool>())
        .prop_map(|(priority, target, v4, v6, alpn)| {
            let mut params = Vec::new();
            if alpn {
                let alpn = Alpn(vec!["h2".to_owned(), "h3".to_owned()]);
                params.push((SvcParamKey::Alpn, SvcParamValue::Alpn(alpn)));
            }
            if !v4.is_empty() {
                let hint = IpHint(v4.into_iter().map(|bytes| A(bytes.into())).collect());
                params.push((SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(hint)));
            }
            if !v6.is_empty() {
                let hint = IpHint(v6.into_iter().map(|bytes| AAAA(bytes.into())).collect());
                params.push((SvcParamKey::Ipv6Hint, SvcParamValue::Ipv6Hint(hint)));
            }
            SVCB::new(priority, target, params)
        })
}

fn data() -> impl Strategy<Value = RData> {
    prop_oneof![
        3 => any::<[u8; 4]>().prop_map(|bytes| RData::A(A(bytes.into()))),
        2 => any::<[u8; 16]>().prop_map(|bytes| RData::AAAA(AAAA(bytes.into()))),
        4 => name().prop_map(|name| RData::CNAME(CNAME(name))),
        1 => name().prop_map(|name| RData::PTR(PTR(name))),
        1 => name().prop_map(|name| RData::NS(NS(name))),
        1 => (any::<u16>(), name()).prop_map(|(preference, name)| RData::MX(MX::new(preference, name))),
        1 => (any::<[u16; 3]>(), name()).prop_map(|([a, b, c], name)| RData::SRV(SRV::new(a, b, c, name))),
        1 => service().prop_map(RData::SVCB),
        1 => service().prop_map(|svcb| RData::HTTPS(HTTPS(svcb))),
        1 => "[a-z]{1,20}".prop_map(|text| RData::TXT(TXT::new(vec![text]))),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    (name(), any::<u32>(), data()).prop_map(|(name, ttl, data)| Record::from_rdata(name, ttl, data))
}

prop_compose! {
    pub fn message()(
        id in any::<u16>(),
        is_response in prop::bool::weighted(0.9),
        failed in prop::bool::weighted(0.1),
        (truncated, recursion_desired) in any::<(bool, bool)>(),
        question in (name(), prop_oneof![Just(1u16), Just(28), Just(65), Just(12)]),
        answers in vec(record(), 0..8),
        authorities in vec(record(), 0..3),
        additionals in vec(record(), 0..3),
        // The first records form a chain; then all records are rotated by some positions.
        chained in 0usize..6,
        turned in 0usize..8,
    ) -> Theirs {
        let kind = if is_response { MessageType::Response } else { MessageType::Query };
        let mut message = Theirs::new(id, kind, OpCode::Query);
        if failed {
            message.metadata.response_code = ResponseCode::NXDomain;
        }
        message.metadata.truncation = truncated;
        message.metadata.recursion_desired = recursion_desired;
        let mut answers = answers;
        let mut owner = question.0.clone();
        for record in answers.iter_mut().take(chained) {
            record.name = owner.clone();
            if let RData::CNAME(target) = &record.data {
                owner = target.0.clone();
            }
        }
        let turned = turned % answers.len().max(1);
        answers.rotate_left(turned);
        message.add_query(Query::query(question.0, RecordType::from(question.1)));
        message.add_answers(answers);
        message.add_authorities(authorities);
        message.add_additionals(additionals);
        message
    }
}

/// Every name in a message: all that a reader may find in it.
fn names_in(view: &view::View) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = view.question.iter().map(|question| question.0.clone()).collect();
    for (owner, _, _, _, data) in view.sections.iter().flatten() {
        names.push(owner.clone());
        if let view::Data::Name(_, name) | view::Data::Service(_, name, _) = data {
            names.push(name.clone());
        }
    }
    names
}

proptest! {
    /// larder reads what hickory writes as hickory does: header, question, every record.
    #[test]
    fn same_reading(message in message()) {
        let bytes = message.to_vec().expect("a message that fits");
        let again = Theirs::from_vec(&bytes).expect("hickory reads what it wrote");
        prop_assert_eq!(view::ours(&bytes), Ok(view::theirs(&again)));
    }

    /// A response teaches what the simple model expects.
    #[test]
    fn same_teaching(message in message()) {
        let bytes = message.to_vec().expect("a message that fits");
        let view = view::theirs(&Theirs::from_vec(&bytes).expect("hickory reads what it wrote"));
        prop_assert!(model::within_bounds(&view));
        prop_assert_eq!(model::ours(&bytes), model::expected(&view));
    }

    /// Each prefix teaches a part of what the complete message does: aliases and addresses of its
    /// complete records, and nothing else. Invariant 2 of `dns`.
    #[test]
    fn prefixes(message in message()) {
        let bytes = message.to_vec().expect("a message that fits");
        let whole = view::theirs(&Theirs::from_vec(&bytes).expect("hickory reads what it wrote"));
        let mut out = Extract::new();
        for cut in 0..bytes.len() {
            let Ok(message) = Message::parse_captured(&bytes[..cut], bytes.len()) else { continue };
            let records = message.answers().flatten().count();
            let _ = extract(&message, &mut out);
            let mut part = whole.clone();
            part.sections[0].truncate(records);
            let expected = model::expected(&part);
            let addresses: Vec<_> = out.addresses().map(|a| (a.owner.to_vec(), a.ttl_s)).collect();
            let aliases: Vec<_> = out.aliases().map(|a| a.target.to_vec()).collect();
            if out.qname().is_some() {
                let theirs = expected.addresses.into_iter().map(|a| (a.0, a.2));
                prop_assert_eq!(addresses, theirs.collect::<Vec<_>>(), "cut at {}", cut);
                let theirs = expected.aliases.into_iter().map(|a| a.1);
                prop_assert_eq!(aliases, theirs.collect::<Vec<_>>(), "cut at {}", cut);
            } else {
                prop_assert!(addresses.is_empty() && aliases.is_empty());
            }
        }
    }

    /// A changed header (flags, counts) may lose names but never adds one: each name found is in
    /// the original message. (A change within a name gives another name, of course.)
    #[test]
    fn mutations_invent_nothing(message in message(), at in 2usize..12, to in any::<u8>()) {
        let mut bytes = message.to_vec().expect("a message that fits");
        let whole = view::theirs(&Theirs::from_vec(&bytes).expect("hickory reads what it wrote"));
        let known = names_in(&whole);
        bytes[at] = to;
        let Ok(message) = Message::parse(&bytes) else { return Ok(()) };
        let mut out = Extract::new();
        for read in [extract, extract_mdns] {
            let _ = read(&message, &mut out);
            let found = out
                .addresses()
                .map(|a| a.owner)
                .chain(out.aliases().flat_map(|a| [a.owner, a.target]))
                .chain(out.reverses().map(|r| r.name));
            for name in found {
                prop_assert!(known.iter().any(|known| known == name), "{}", name.escape_ascii());
            }
        }
    }

    /// If both accept a message with bytes changed anywhere, both read the same. hickory may reject
    /// more: it checks data of types that larder skips.
    #[test]
    fn mutations_read_alike(message in message(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let mut bytes = message.to_vec().expect("a message that fits");
        for (index, to) in changes {
            let at = index.index(bytes.len());
            bytes[at] = to;
        }
        if let (Ok(theirs), Ok(ours)) = (Theirs::from_vec(&bytes), view::ours(&bytes)) {
            prop_assert_eq!(ours, view::theirs(&theirs));
        }
    }

    /// No bytes make any reader panic, alone or after a valid header.
    #[test]
    fn any_bytes(mut bytes in vec(any::<u8>(), 0..300), framed in any::<bool>()) {
        if framed && bytes.len() >= 12 {
            bytes[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 9, 0, 1, 0, 1]);
        }
        let _ = view::ours(&bytes);
        let _ = tcp::next_message(&bytes);
        if let Ok(message) = Message::parse(&bytes) {
            let _ = message.looks_like_query();
            let mut out = Extract::new();
            let _ = extract(&message, &mut out);
            let _ = extract_mdns(&message, &mut out);
            let mut name = NameBuf::new();
            for offset in 0..bytes.len() {
                let _ = message.read_name(offset, &mut name);
            }
        }
    }
}
