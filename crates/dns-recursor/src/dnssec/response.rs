//! Extracts the records of one name from a response, for the library to check.
//!
//! A response may contain more than the query asked for: aliases with their targets, and names and
//! addresses of servers. The library would check all of it together, and would reject a proof of absence
//! for another name. So it gets one name at a time, with only the records and proofs of that name.

use hickory_proto::dnssec::rdata::DNSSECRData;
use hickory_proto::op::{DnsResponse, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinDecodable;

/// The most records of a proof, with signatures. A proof needs at most an SOA and three others.
const PROOF_RECORDS_MAX: usize = 32;

/// The type of a record, or the type that a signature covers.
fn covered(record: &Record) -> RecordType {
    match &record.data {
        RData::DNSSEC(DNSSECRData::RRSIG(signature)) => signature.input().type_covered,
        _ => record.record_type(),
    }
}

fn is_signature(record: &Record) -> bool {
    record.record_type() == RecordType::RRSIG
}

/// The records of a name in a response from a server of `zone`. `None` if there are none. For the
/// query name (`is_whole`) an empty result counts too, if the code is NOERROR, NXDOMAIN or YXDOMAIN.
pub fn part(bytes: &[u8], zone: &Name, query: &Query, is_whole: bool) -> Option<DnsResponse> {
    let mut response = DnsResponse::from_buffer(bytes.to_vec()).ok()?;
    let (name, rtype) = (query.name(), query.query_type());
    let message = &mut *response;
    let code = message.metadata.response_code;
    let is_answer =
        matches!(code, ResponseCode::NoError | ResponseCode::NXDomain | ResponseCode::YXDomain);
    if !is_answer || !zone.zone_of(name) {
        return None;
    }
    let is_of_name = |record: &Record| {
        let of = covered(record);
        if record.name == *name {
            return of == rtype || of == RecordType::CNAME || record.record_type() == rtype;
        }
        of == RecordType::DNAME && record.name.zone_of(name) && zone.zone_of(&record.name)
    };
    message.answers.retain(is_of_name);
    let of_name = || message.answers.iter().filter(|record| record.name == *name);
    let has_data = of_name().any(|record| !is_signature(record) || rtype == RecordType::RRSIG);
    let is_alias = of_name().any(|record| record.record_type() == RecordType::CNAME);
    // A wildcard expansion needs a proof that the name itself does not exist.
    let is_expanded = message.answers.iter().any(|record| match &record.data {
        RData::DNSSEC(DNSSECRData::RRSIG(signature)) => {
            signature.input().num_labels < record.name.num_labels()
        }
        _ => false,
    });
    message.authorities.retain(|record| {
        let is_of_use = match covered(record) {
            RecordType::SOA => !has_data,
            RecordType::NSEC | RecordType::NSEC3 => !has_data || is_expanded,
            _ => false,
        };
        is_of_use && zone.zone_of(&record.name)
    });
    // More records would be no proof, only work.
    message.authorities.truncate(PROOF_RECORDS_MAX);
    message.additionals.clear();
    if is_alias && rtype != RecordType::CNAME {
        // The code applies to the target of the alias.
        message.metadata.response_code = ResponseCode::NoError;
    }
    let is_start =
        |record: &Record| record.record_type() == RecordType::SOA && record.name.zone_of(name);
    let is_about_name = is_whole || has_data || message.authorities.iter().any(is_start);
    is_about_name.then_some(response)
}

/// The security of a delegation, according to a referral.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delegation {
    /// A DS record exists.
    Signed,
    /// A proof says that no DS record exists.
    Unsigned,
}

/// The response for the DS records of a zone, made from a referral. `None` if the referral has
/// neither records nor proof.
pub fn delegation(zone: &[u8], bytes: &[u8]) -> Option<(Message, Delegation)> {
    let zone = Name::from_bytes(zone).ok()?;
    let referral = Message::from_vec(bytes).ok()?;
    let mut message = Message::response(0, OpCode::Query);
    message.add_query(Query::query(zone.clone(), RecordType::DS));
    for record in referral.authorities {
        match covered(&record) {
            RecordType::DS if record.name == zone => message.answers.push(record),
            RecordType::NSEC if record.name == zone => message.authorities.push(record),
            RecordType::NSEC3 if record.name.base_name().zone_of(&zone) => {
                message.authorities.push(record);
            }
            _ => {}
        }
    }
    let is_signed = |records: &[Record]| records.iter().any(is_signature);
    if is_signed(&message.answers) {
        message.authorities.clear();
        Some((message, Delegation::Signed))
    } else if is_signed(&message.authorities) {
        message.answers.clear();
        Some((message, Delegation::Unsigned))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{name, of_data, signature};
    use super::*;
    use hickory_proto::dnssec::rdata::NSEC;
    use hickory_proto::rr::rdata::{A, CNAME, NS, SOA};

    fn address(of: &str) -> Record {
        of_data(of, RData::A(A::new(192, 0, 2, 1)))
    }

    fn alias(of: &str, target: &str) -> Record {
        of_data(of, RData::CNAME(CNAME(name(target))))
    }

    fn message(code: ResponseCode, answers: &[Record], authorities: &[Record]) -> Vec<u8> {
        let mut message = Message::response(0, OpCode::Query);
        message.add_query(Query::query(name("www.a.test."), RecordType::A));
        message.metadata.response_code = code;
        message.answers = answers.to_vec();
        message.authorities = authorities.to_vec();
        message.to_vec().unwrap()
    }

    /// The record types of a name in a response from a server of a.test, and the code.
    fn part_of(bytes: &[u8], of: &str) -> Option<(ResponseCode, String)> {
        let query = Query::query(name(of), RecordType::A);
        let part = part(bytes, &name("a.test."), &query, of == "www.a.test.")?;
        let all = part.answers.iter().chain(&part.authorities);
        let types: Vec<String> = all.map(|record| record.record_type().to_string()).collect();
        Some((part.metadata.response_code, types.join(" ")))
    }

    /// With aliases, each name gets its own part: its records and the proofs that it needs. Records
    /// of names outside the zone of the server are ignored.
    #[test]
    fn one_name_at_a_time() {
        const OK: ResponseCode = ResponseCode::NoError;
        const DENIED: ResponseCode = ResponseCode::NXDomain;
        let soa = SOA::new(name("ns."), name("admin."), 1, 3_600, 600, 86_400, 60);
        let soa = of_data("a.test.", RData::SOA(soa));
        let ns = of_data("a.test.", RData::NS(NS(name("ns.a.test."))));
        let nsec = NSEC::new_cover_self(name("z.a.test."), [RecordType::A]);
        let nsec = of_data("b.a.test.", RData::DNSSEC(DNSSECRData::NSEC(nsec)));
        let signed = signature("www.a.test.", RecordType::CNAME, 3);
        let mut answers = vec![
            alias("www.a.test.", "x.a.test."),
            signed,
            address("other."),
            address("x.a.test."),
        ];
        let both = message(OK, &answers, &[ns.clone(), nsec.clone()]);
        assert_eq!(part_of(&both, "www.a.test."), Some((OK, "CNAME RRSIG".into())));
        assert_eq!(part_of(&both, "x.a.test."), Some((OK, "A".into())));
        assert_eq!(part_of(&both, "y.a.test."), None);
        assert_eq!(part_of(&both, "other."), None);

        // The target does not exist, which does not affect the alias.
        answers.truncate(2);
        let denied = message(DENIED, &answers, &[soa.clone(), nsec.clone(), ns.clone()]);
        assert_eq!(part_of(&denied, "www.a.test."), Some((OK, "CNAME RRSIG".into())));
        assert_eq!(part_of(&denied, "x.a.test."), Some((DENIED, "SOA NSEC".into())));

        // A wildcard expansion, proven by the absence of the name.
        answers[1] = signature("www.a.test.", RecordType::CNAME, 2);
        let expanded = message(OK, &answers, &[soa, nsec, ns.clone()]);
        assert_eq!(part_of(&expanded, "www.a.test."), Some((OK, "CNAME RRSIG NSEC".into())));

        let nothing = message(OK, &[], &[ns]);
        assert_eq!(part_of(&nothing, "www.a.test."), Some((OK, String::new())));
        assert_eq!(part_of(&message(ResponseCode::ServFail, &[], &[]), "www.a.test."), None);
    }
}
