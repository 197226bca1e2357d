//! Queries and rendered responses. larder reads what hickory writes, stores it, and writes it for
//! another client; hickory reads the result.

use hickory_proto::op::{Edns, Message as Theirs, MessageType, OpCode, Query as TheirQuery};
use hickory_proto::rr::{Name, RecordType};
use larder_wire::dns::edns::OPT_BYTES;
use larder_wire::dns::query::{KeyBuf, Query, Refusal};
use larder_wire::dns::rendered::{Kind, QueryInfo, Renderer, Reply, Rules, Unfit, write};
use larder_wire::dns::rtype;
use proptest::prelude::*;

use crate::generated::{message, name};
use crate::view::{self, Data, Entry, View, canonical};

/// No TTL is changed, except those with the top bit set.
const AS_THEY_ARE: Rules = Rules {
    ttl_min_s: 0,
    ttl_max_s: u32::MAX,
    negative_ttl_max_s: u32::MAX,
    failure_ttl_s: 5,
    believes_ad: true,
    is_minimal: false,
};

/// The properties of a client's query.
#[derive(Debug, Clone)]
struct Client {
    id: u16,
    recursion_desired: bool,
    authentic_data: bool,
    checking_disabled: bool,
    /// UDP payload size, and DO.
    edns: Option<(u16, bool)>,
    /// Bits of letters of the name whose case is flipped.
    case: u64,
}

prop_compose! {
    fn client()(
        id in any::<u16>(),
        (recursion_desired, authentic_data, checking_disabled) in any::<(bool, bool, bool)>(),
        // hickory writes 512 instead of smaller sizes.
        edns in prop::option::of((512u16.., any::<bool>())),
        case in any::<u64>(),
    ) -> Client {
        Client { id, recursion_desired, authentic_data, checking_disabled, edns, case }
    }
}

impl Client {
    /// Its query, encoded by hickory.
    fn query_bytes(&self, name: &Name, rtype: u16) -> Vec<u8> {
        let mut query = Theirs::new(self.id, MessageType::Query, OpCode::Query);
        query.metadata.recursion_desired = self.recursion_desired;
        query.metadata.authentic_data = self.authentic_data;
        query.metadata.checking_disabled = self.checking_disabled;
        query.add_query(TheirQuery::query(name.clone(), RecordType::from(rtype)));
        if let Some((udp_bytes, dnssec_ok)) = self.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(udp_bytes);
            edns.set_dnssec_ok(dnssec_ok);
            query.set_edns(edns);
        }
        let mut bytes = query.to_vec().expect("a query that fits");
        let mut at = 12;
        while bytes[at] != 0 {
            let end = at + 1 + usize::from(bytes[at]);
            for (place, byte) in bytes[..end].iter_mut().enumerate().skip(at + 1) {
                if byte.is_ascii_alphabetic() && self.case >> (place % 64) & 1 == 1 {
                    *byte ^= 0x20;
                }
            }
            at = end;
        }
        bytes
    }
}

/// The names of the chain from the queried one on, found by repeated scans of the answers. `None`
/// if they form a loop.
fn chain(view: &View) -> Option<Vec<Vec<u8>>> {
    let (first_name, ..) = view.question.clone().expect("a question");
    let mut chain = vec![first_name];
    loop {
        let len_before = chain.len();
        for (owner, rtype, .., data) in &view.sections[0] {
            if let (rtype::CNAME, Data::Name(_, target)) = (*rtype, data)
                && chain.last() == Some(owner)
            {
                if chain.contains(target) {
                    return None;
                }
                chain.push(target.clone());
            }
        }
        if chain.len() == len_before {
            return Some(chain);
        }
    }
}

/// The answers that belong to the question, ordered by the position of their owner in the chain.
fn belonging(view: &View, chain: &[Vec<u8>]) -> Vec<Entry> {
    let (_, qtype, _) = view.question.clone().expect("a question");
    let mut found: Vec<(usize, Entry)> = Vec::new();
    for entry in &view.sections[0] {
        let (owner, rtype, .., data) = entry;
        let Some(rank) = chain.iter().position(|name| name == owner) else { continue };
        let leads_on = match data {
            Data::Name(_, target) => *rtype == rtype::CNAME && chain.get(rank + 1) == Some(target),
            _ => false,
        };
        if leads_on || *rtype == qtype && rank + 1 == chain.len() {
            found.push((rank, entry.clone()));
        }
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, entry)| entry).collect()
}

/// The expected response for `client` after `age_s` seconds, from hickory's reading of the
/// original.
fn aged(view: &View, client: &Client, age_s: u32) -> View {
    let mut view = view.clone();
    view.id = client.id;
    view.recursion_desired = client.recursion_desired;
    for (.., ttl, _) in view.sections.iter_mut().flatten() {
        *ttl = ttl.saturating_sub(age_s);
    }
    view
}

proptest! {
    /// larder reads a query as hickory wrote it, and the key does not depend on the case of the
    /// name.
    #[test]
    fn queries_are_read(name in name(), rtype in any::<u16>(), client in client()) {
        let bytes = client.query_bytes(&name, rtype);
        let mut key = KeyBuf::new();
        let query = Query::read(&bytes, &mut key).expect("a good query");
        prop_assert_eq!(query.id, client.id);
        prop_assert_eq!(query.recursion_desired, client.recursion_desired);
        prop_assert_eq!(query.authentic_data, client.authentic_data);
        prop_assert_eq!(query.checking_disabled, client.checking_disabled);
        prop_assert_eq!((query.qtype, query.qclass), (rtype, 1));
        prop_assert_eq!(query.edns.map(|edns| (edns.udp_bytes, edns.dnssec_ok)), client.edns);
        let mut lower = KeyBuf::new();
        let plain = Client { case: 0, ..client };
        Query::read(&plain.query_bytes(&name.to_lowercase(), rtype), &mut lower).expect("a good query");
        prop_assert_eq!(key.as_bytes(), lower.as_bytes());
        let theirs = Theirs::from_vec(&bytes).expect("hickory reads what it wrote");
        prop_assert_eq!(canonical(theirs.queries[0].name()), canonical(&name));
    }

    /// No bytes make a reader panic; a rejection repeats at most the bytes of the input.
    #[test]
    fn any_bytes_as_a_query(
        name in name(),
        client in client(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = client.query_bytes(&name, 1);
        for (index, to) in changes {
            let at = index.index(bytes.len());
            bytes[at] = to;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        match Query::read(&bytes, &mut KeyBuf::new()) {
            Ok(query) => prop_assert!(bytes.windows(query.question().len()).any(|at| at == query.question())),
            Err(refused) => {
                prop_assert!(refused.repeated_bytes <= bytes.len());
                let is_silent = refused.refusal == Refusal::Silence;
                prop_assert_eq!(is_silent, bytes.len() < 12 || bytes[2] & 0x80 != 0);
            }
        }
    }

    /// A stored response is written for each client as it was received, without records that do not
    /// belong to the question. It has the client's ID, flags and case, records as hickory reads
    /// them in the original, and TTLs reduced by the age. A response whose aliases form a loop is
    /// rejected.
    #[test]
    fn responses_survive(
        answer in message(),
        (first, second) in (client(), client()),
        age_s in 0u32..100_000,
        is_minimal in any::<bool>(),
    ) {
        let mut answer = answer;
        answer.metadata.message_type = MessageType::Response;
        answer.metadata.truncation = false;
        let bytes = answer.to_vec().expect("a message that fits");
        let theirs = view::theirs(&Theirs::from_vec(&bytes).expect("hickory reads what it wrote"));
        let queried = answer.queries[0].clone();
        let rtype = u16::from(queried.query_type());
        let mut key = KeyBuf::new();
        Query::read(&first.query_bytes(queried.name(), rtype), &mut key).expect("a good query");
        let mut renderer = Renderer::new();
        let info = QueryInfo { question: key.as_bytes(), is_case_random: false, dnssec_ok: true };
        let rules = Rules { is_minimal, ..AS_THEY_ARE };
        let outcome = renderer.render(&bytes, &info, 1000, &rules);
        let Some(chain) = chain(&theirs) else {
            prop_assert_eq!(outcome, Err(Unfit::AliasChain));
            return Ok(());
        };
        let facts = outcome.map_err(|unfit| TestCaseError::fail(format!("{unfit:?}")))?;
        let mut expected = theirs.clone();
        expected.sections[0] = belonging(&theirs, &chain);
        let left_out = theirs.sections[0].len() - expected.sections[0].len();
        prop_assert_eq!(usize::from(facts.unrelated), left_out);
        prop_assert_eq!(usize::from(facts.aliases), chain.len() - 1);
        let has_data = expected.sections[0].iter().any(|entry| entry.1 == rtype);
        let kind = match (theirs.rcode, has_data) {
            (0, true) => Kind::Data,
            (0, false) => Kind::Inconclusive,
            _ => Kind::NoName,
        };
        prop_assert_eq!(facts.kind, kind);
        if is_minimal && kind == Kind::Data {
            expected.sections[1].clear();
            expected.sections[2].clear();
        }
        let least_s = expected.sections.iter().flatten().map(|entry| entry.3).min();
        prop_assert_eq!(facts.ttl_s, if kind == Kind::Data { least_s.unwrap_or(0) } else { 0 });

        for client in [&first, &second] {
            let query_bytes = client.query_bytes(queried.name(), rtype);
            let query = Query::read(&query_bytes, &mut key).expect("a good query");
            let reply = Reply {
                now_s: 1000 + age_s,
                bytes_max: 65_535,
                udp_bytes: 1232,
                stale_ttl_s: 0,
                options: &[],
            };
            let mut out = vec![0xff; 65_535];
            let len = write(renderer.stored(), &query, &reply, &mut out).expect("room");
            let out = &out[..len];
            let read = Theirs::from_vec(out).expect("hickory reads what we wrote");
            prop_assert_eq!(view::theirs(&read), aged(&expected, client, age_s));
            prop_assert_eq!(&out[12..12 + query.question().len()], query.question());
            prop_assert_eq!(read.metadata.checking_disabled, client.checking_disabled);
            prop_assert!(read.metadata.recursion_available && !read.metadata.authoritative);
            let edns = read.edns.as_ref().map(|edns| (edns.max_payload(), edns.flags().dnssec_ok));
            prop_assert_eq!(edns, client.edns.map(|(_, dnssec_ok)| (1232, dnssec_ok)));

            // The same with less space: complete record sets from the beginning, and TC if more
            // than additional ones are missing.
            let whole = view::theirs(&read);
            let opt_bytes = client.edns.map_or(0, |_| OPT_BYTES);
            for bytes_max in (12 + query.question().len()..len).step_by(7) {
                let mut out = vec![0xff; 65_535];
                let reply = Reply { bytes_max, ..reply };
                let Some(len) = write(renderer.stored(), &query, &reply, &mut out) else {
                    prop_assert!(bytes_max < 12 + query.question().len() + opt_bytes);
                    continue;
                };
                prop_assert!(len <= bytes_max);
                let part = view::theirs(&Theirs::from_vec(&out[..len]).expect("hickory reads it"));
                let all = whole.sections.concat();
                let left = part.sections.concat();
                prop_assert_eq!(&left[..], &all[..left.len()]);
                let is_referral =
                    whole.sections[0].is_empty() && whole.sections[1].iter().any(|entry| entry.1 == rtype::NS);
                let is_missing = part.sections[..2] != whole.sections[..2]
                    || is_referral && part.sections != whole.sections;
                prop_assert_eq!(part.truncated, is_missing);
                let section = (0..3).find(|&at| part.sections[at].len() < whole.sections[at].len());
                if let Some(section) = section {
                    let at = part.sections[section].len();
                    let set = |at: usize| {
                        let (owner, rtype, class, ..) = &whole.sections[section][at];
                        (owner.clone(), *rtype, *class)
                    };
                    prop_assert!(at == 0 || set(at - 1) != set(at), "a set is cut");
                }
            }
        }
    }

    /// Bytes of a response are changed anywhere: nothing panics. A response that is still rendered
    /// is written for any client within its limit, and can be read completely. Invariants 1 and 2
    /// of `rendered`.
    #[test]
    fn damaged_responses(
        answer in message(),
        client in client(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        bytes_max in 280usize..2000,
        dnssec_ok in any::<bool>(),
    ) {
        let mut answer = answer;
        answer.metadata.message_type = MessageType::Response;
        let mut bytes = answer.to_vec().expect("a message that fits");
        let queried = answer.queries[0].clone();
        let query_bytes = client.query_bytes(queried.name(), u16::from(queried.query_type()));
        let query = Query::read(&query_bytes, &mut KeyBuf::new()).expect("a good query");
        let question_end = 12 + query.question().len();
        for (index, to) in changes {
            let at = 2 + index.index(bytes.len() - 2);
            // The question stays unchanged, or few responses would be rendered.
            if !(4..question_end).contains(&at) || (6..12).contains(&at) {
                bytes[at] = to;
            }
        }
        let info = QueryInfo { question: query.question(), is_case_random: false, dnssec_ok };
        let mut renderer = Renderer::new();
        let Ok(facts) = renderer.render(&bytes, &info, 1000, &Rules::default()) else {
            prop_assert!(renderer.stored().is_empty());
            return Ok(());
        };
        let reply = Reply { now_s: 1005, bytes_max, udp_bytes: 1232, stale_ttl_s: 0, options: &[] };
        let mut out = [0xee; 65_535];
        let room = if bytes_max < question_end + OPT_BYTES { 65_535 } else { bytes_max };
        let reply = Reply { bytes_max: room, ..reply };
        let len = write(renderer.stored(), &query, &reply, &mut out).expect("room");
        prop_assert!(len <= room && out[len..].iter().all(|&byte| byte == 0xee));
        let whole = view::ours_without_data(&out[..len]);
        prop_assert!(whole.is_ok(), "{facts:?} {whole:?}");
    }

    /// A stored response may be damaged: nothing panics, nothing is read outside of it, and nothing
    /// is written past the buffer. Invariant 1 of `rendered`.
    #[test]
    fn damaged_store(
        answer in message(),
        client in client(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        bytes_max in 0usize..700,
    ) {
        let mut answer = answer;
        answer.metadata.message_type = MessageType::Response;
        answer.metadata.truncation = false;
        let queried = answer.queries[0].clone();
        let query_bytes = client.query_bytes(queried.name(), u16::from(queried.query_type()));
        let query = Query::read(&query_bytes, &mut KeyBuf::new()).expect("a good query");
        let info = QueryInfo { question: query.question(), is_case_random: false, dnssec_ok: true };
        let mut renderer = Renderer::new();
        let bytes = answer.to_vec().expect("a message that fits");
        let _ = renderer.render(&bytes, &info, 1000, &AS_THEY_ARE);
        let mut stored = renderer.stored().to_vec();
        for (index, to) in changes {
            if !stored.is_empty() {
                let at = index.index(stored.len());
                stored[at] = to;
            }
        }
        stored.truncate(cut.index(2 * stored.len() + 1));
        let reply = Reply { now_s: 7, bytes_max, udp_bytes: 1232, stale_ttl_s: 30, options: &[] };
        let mut out = [0xee; 600];
        let len = write(&stored, &query, &reply, &mut out).unwrap_or(0);
        prop_assert!(len <= bytes_max.min(600));
        if len > 0 {
            prop_assert!(out[len..].iter().all(|&byte| byte == 0xee));
            prop_assert_eq!(&out[12..12 + query.question().len()], query.question());
        }
    }
}
