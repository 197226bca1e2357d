//! Composes the response message from the results of validation.
//!
//! | result | response |
//! |---|---|
//! | records, all proven | NOERROR, AD (RFC 4035, section 3.2.3) |
//! | records, or their absence, in an unsigned zone | NOERROR or NXDOMAIN |
//! | absence, proven | NOERROR or NXDOMAIN with SOA and proof, AD |
//! | absence or a wildcard, proven except for an NSEC3 opt-out span | as above, without AD (RFC 5155, section 9.2) |
//! | a name that a DNAME makes too long | YXDOMAIN with the DNAME; without it SERVFAIL |
//! | forged, expired or missing signatures | SERVFAIL and the reason (RFC 8914); with CD, the records |
//! | no reachable server, or only failures | SERVFAIL, 22 |
//! | more look-ups than allowed | SERVFAIL, 0 |
//!
//! The authority section has only proofs: SOA, NSEC, NSEC3, and their signatures.

use std::time::{SystemTime, UNIX_EPOCH};

use hickory_net::{DnsError, NetError};
use hickory_proto::dnssec::Proof;
use hickory_proto::dnssec::rdata::{DNSSECRData, NSEC3, RRSIG};
use hickory_proto::op::{DnsResponse, Edns, Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RData, Record, RecordType};

// Extended errors (RFC 8914, section 4).

/// A reason without a number of its own.
pub const OTHER: u16 = 0;
const DNSSEC_BOGUS: u16 = 6;
const SIGNATURE_EXPIRED: u16 = 7;
const SIGNATURE_NOT_YET_VALID: u16 = 8;
const RRSIGS_MISSING: u16 = 10;
/// No server had a response.
pub const NO_REACHABLE_AUTHORITY: u16 = 22;

/// The code of the option that carries them.
const EXTENDED_ERROR: u16 = 15;

/// The response to `query`.
pub fn compose(query: &Message, found: Result<Found, u16>) -> Message {
    let mut message =
        Message::new(query.metadata.id, MessageType::Response, query.metadata.op_code);
    message.metadata.recursion_desired = query.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.checking_disabled = query.metadata.checking_disabled;
    message.queries = query.queries.clone();
    let is_checked = !query.metadata.checking_disabled;
    let found = found.and_then(|found| {
        if is_checked && found.is_bogus { Err(found.bogus_reason()) } else { Ok(found) }
    });
    let error = match found {
        Ok(found) => {
            message.metadata.response_code = found.code;
            message.metadata.authentic_data = found.is_secure();
            message.answers = found.answers;
            message.authorities = found.proofs;
            None
        }
        Err(error) => {
            message.metadata.response_code = ResponseCode::ServFail;
            Some(error)
        }
    };
    if let Some(theirs) = &query.edns {
        let mut edns = Edns::new();
        edns.set_max_payload(theirs.max_payload());
        edns.set_dnssec_ok(theirs.flags().dnssec_ok);
        if let Some(error) = error {
            let option = EdnsOption::Unknown(EXTENDED_ERROR, error.to_be_bytes().to_vec());
            edns.options_mut().insert(option);
        }
        message.edns = Some(edns);
    }
    message
}

/// The validated records or proofs of absence, for each name of a chain of aliases.
#[derive(Debug, Default)]
pub struct Found {
    /// The response code for the last name.
    code: ResponseCode,
    answers: Vec<Record>,
    proofs: Vec<Record>,
    /// A record is forged, expired or unsigned.
    is_bogus: bool,
    /// Some absence is unproven: in an unsigned zone, or in an opt-out span.
    is_unproven: bool,
}

impl Found {
    /// Adds the checked response for a name. The error is an extended one.
    pub fn add(&mut self, name: &Name, outcome: Result<DnsResponse, NetError>) -> Result<(), u16> {
        let (response, absence) = match outcome {
            Ok(response) => (response, Proof::Secure),
            Err(NetError::Dns(DnsError::Nsec { response, proof, .. })) => (*response, proof),
            Err(_) => return Err(NO_REACHABLE_AUTHORITY),
        };
        let mut message = response.into_message();
        self.code = message.metadata.response_code;
        if self.code == ResponseCode::YXDomain && !message.answers.iter().any(is_dname) {
            return Err(NO_REACHABLE_AUTHORITY);
        }
        let mut all = message.answers.iter().chain(&message.authorities);
        self.is_bogus |= match absence {
            Proof::Secure => {
                all.any(|record| has_own_proof(record) && record.proof == Proof::Bogus)
            }
            other => other != Proof::Insecure,
        };
        self.is_unproven |= absence != Proof::Secure || has_opt_out_span(&message, name);
        self.answers.append(&mut message.answers);
        self.proofs.append(&mut message.authorities);
        Ok(())
    }

    /// The target of an alias at a name, unless it has records of the type.
    pub fn alias(&self, name: &Name, rtype: RecordType) -> Option<Name> {
        let of_name = || self.answers.iter().filter(|record| record.name == *name);
        if of_name().any(|record| record.record_type() == rtype) {
            return None;
        }
        of_name().find_map(|record| match &record.data {
            RData::CNAME(target) => Some(target.0.clone()),
            _ => None,
        })
    }

    /// The records with a proof state of their own.
    fn with_own_proof(&self) -> impl Iterator<Item = &Record> {
        self.answers.iter().chain(&self.proofs).filter(|record| has_own_proof(record))
    }

    /// True if a record is bogus.
    pub fn is_bogus(&self) -> bool {
        self.is_bogus
    }

    /// True if there are records and all are proven.
    fn is_secure(&self) -> bool {
        let mut records = self.with_own_proof().peekable();
        !self.is_unproven
            && records.peek().is_some()
            && records.all(|record| record.proof == Proof::Secure)
    }

    /// The reason, if the records show it. Otherwise it lies in the keys above.
    fn bogus_reason(&self) -> u16 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = since.map_or(0, |since| since.as_secs() as u32);
        let bogus = |record: &&Record| record.proof == Proof::Bogus;
        let mut reason = None;
        for record in self.with_own_proof().filter(bogus) {
            let mut signatures = self.signatures(record).peekable();
            let of_record = match signatures.peek() {
                None => RRSIGS_MISSING,
                Some(_) => signatures.map(|each| time_error(each, now_s)).max().unwrap_or_default(),
            };
            // A specific reason has priority.
            reason = reason.max(Some(of_record));
        }
        reason.unwrap_or(DNSSEC_BOGUS)
    }

    fn signatures<'a>(&'a self, of: &'a Record) -> impl Iterator<Item = &'a RRSIG> {
        let all = self.answers.iter().chain(&self.proofs);
        all.filter_map(move |record| match &record.data {
            RData::DNSSEC(DNSSECRData::RRSIG(signature))
                if record.name == of.name && signature.input().type_covered == of.record_type() =>
            {
                Some(signature)
            }
            _ => None,
        })
    }
}

/// True if the proof has NSEC3 records with opt-out, and none of them is that of the name itself.
/// An unsigned zone may then lie in the covered span.
fn has_opt_out_span(message: &Message, name: &Name) -> bool {
    let spans = message.authorities.iter().filter_map(|record| match &record.data {
        RData::DNSSEC(DNSSECRData::NSEC3(span)) if span.opt_out() => Some((record, span)),
        _ => None,
    });
    let mut spans = spans.peekable();
    let is_own = |(record, span): (&Record, &NSEC3)| {
        let hash = span.hash_algorithm().hash(span.salt(), name, span.iterations());
        let owner = record.name.iter().next().unwrap_or_default();
        hash.is_ok_and(|hash| base32hex(hash.as_ref()).eq_ignore_ascii_case(owner))
    };
    let is_denied = message.metadata.response_code == ResponseCode::NXDomain;
    spans.peek().is_some() && (is_denied || !spans.any(is_own))
}

/// Why a signature may be invalid, by its times alone (RFC 4034, section 3.1.5: serial number
/// arithmetic).
fn time_error(signature: &RRSIG, now_s: u32) -> u16 {
    let input = signature.input();
    let is_past = |then: u32| (now_s.wrapping_sub(then) as i32) > 0;
    match () {
        () if is_past(input.sig_expiration.get()) => SIGNATURE_EXPIRED,
        () if !is_past(input.sig_inception.get()) => SIGNATURE_NOT_YET_VALID,
        () => DNSSEC_BOGUS,
    }
}

/// The label of an NSEC3 owner name (RFC 4648, section 7, without padding).
fn base32hex(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(5) * 8);
    for group in bytes.chunks(5) {
        let mut bits = [0; 8];
        bits[3..3 + group.len()].copy_from_slice(group);
        let bits = u64::from_be_bytes(bits);
        let digits = (group.len() * 8).div_ceil(5);
        let digit = |at: usize| bits >> (35 - 5 * at) & 31;
        text.extend((0..digits).map(|at| b"0123456789abcdefghijklmnopqrstuv"[digit(at) as usize]));
    }
    text
}

fn is_dname(record: &Record) -> bool {
    record.record_type() == RecordType::DNAME
}

/// False for signatures: they are proofs of other records.
fn has_own_proof(record: &Record) -> bool {
    record.record_type() != RecordType::RRSIG
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::dnssec::Nsec3HashAlgorithm;
    use hickory_proto::op::{OpCode, Query};
    use hickory_proto::rr::rdata::A;

    /// The test vectors of RFC 4648, section 10, without padding.
    #[test]
    fn labels_of_hashes() {
        for (bytes, text) in [("", ""), ("f", "co"), ("foob", "cpnmuog"), ("foobar", "cpnmuoj1e8")]
        {
            assert_eq!(base32hex(bytes.as_bytes()), text.as_bytes());
        }
    }

    fn span(of: &[u8], opt_out: bool) -> Record {
        let data = NSEC3::new(Nsec3HashAlgorithm::SHA1, opt_out, 0, Vec::new(), vec![9; 20], []);
        let owner = Name::from_ascii("test.").unwrap().prepend_label(of).unwrap();
        let mut record = Record::from_rdata(owner, 60, RData::DNSSEC(DNSSECRData::NSEC3(data)));
        record.proof = Proof::Secure;
        record
    }

    /// The response for "www.sub.test." with these records, all of them secure.
    fn composed(code: ResponseCode, answers: Vec<Record>, proofs: Vec<Record>) -> Message {
        let name = Name::from_ascii("www.sub.test.").unwrap();
        let mut query = Message::new(1, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(name.clone(), RecordType::A));
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        message.metadata.response_code = code;
        message.answers = answers;
        message.authorities = proofs;
        let mut found = Found::default();
        let added = found.add(&name, Ok(DnsResponse::from_message(message).unwrap()));
        compose(&query, added.map(|()| found))
    }

    fn is_secure(code: ResponseCode, answers: Vec<Record>, proofs: Vec<Record>) -> bool {
        composed(code, answers, proofs).metadata.authentic_data
    }

    /// A proof with an opt-out span has no AD if the span only covers the name. This applies to
    /// NXDOMAIN, to wildcards and to NODATA. The NSEC3 record of the name itself is a proof.
    #[test]
    fn opt_out_has_no_ad() {
        let name = Name::from_ascii("www.sub.test.").unwrap();
        let hash = Nsec3HashAlgorithm::SHA1.hash(&[], &name, 0).unwrap();
        let own = base32hex(hash.as_ref());
        let other = base32hex(&[3; 20]);
        let nothing =
            |code, of: &[u8], opt_out| is_secure(code, Vec::new(), vec![span(of, opt_out)]);
        assert!(nothing(ResponseCode::NXDomain, &other, false));
        assert!(!nothing(ResponseCode::NXDomain, &other, true));
        assert!(!nothing(ResponseCode::NXDomain, &own, true));
        assert!(nothing(ResponseCode::NoError, &own, true));
        assert!(!nothing(ResponseCode::NoError, &other, true));
        let mut address = Record::from_rdata(name, 60, RData::A(A::new(192, 0, 2, 1)));
        address.proof = Proof::Secure;
        let wildcard = |opt_out| {
            is_secure(ResponseCode::NoError, vec![address.clone()], vec![span(&other, opt_out)])
        };
        assert!(wildcard(false) && !wildcard(true));
    }

    /// YXDOMAIN without a DNAME is a failure.
    #[test]
    fn yxdomain_without_dname() {
        let composed = composed(ResponseCode::YXDomain, Vec::new(), Vec::new());
        assert_eq!(composed.metadata.response_code, ResponseCode::ServFail);
    }
}
