//! What the recursor found, as the message that larder renders.
//!
//! | found | told |
//! |---|---|
//! | records, all proven | NOERROR, AD (RFC 4035, section 3.2.3) |
//! | records, or their absence, where nothing is signed | NOERROR or NXDOMAIN |
//! | absence, proven | NOERROR or NXDOMAIN with SOA and proof, AD |
//! | absence or a wildcard, proven but for a span of NSEC3 with opt-out | as above, without AD (RFC 5155, section 9.2) |
//! | a name that a DNAME makes too long | YXDOMAIN with the DNAME; without it SERVFAIL |
//! | anything forged, expired or unsigned where signatures must be | SERVFAIL and why (RFC 8914); to who says CD, as it is |
//! | nobody to ask, or only failures | SERVFAIL, 22 |
//! | more than one question may cost | SERVFAIL, 0 |
//!
//! Of other sections only what proves something is told: SOA, NSEC, NSEC3, and their signatures. Name servers and their
//! addresses answer nothing that was asked.

use std::time::{SystemTime, UNIX_EPOCH};

use hickory_proto::dnssec::Proof;
use hickory_proto::dnssec::rdata::{DNSSECRData, NSEC3, RRSIG};
use hickory_proto::op::{Edns, Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::recursor::RecursorError;

/// The type of records that lead a whole branch elsewhere.
const DNAME: u16 = 39;

/// Extended errors (RFC 8914, section 4).
const OTHER: u16 = 0;
const DNSSEC_BOGUS: u16 = 6;
const SIGNATURE_EXPIRED: u16 = 7;
const SIGNATURE_NOT_YET_VALID: u16 = 8;
const RRSIGS_MISSING: u16 = 10;
const NO_REACHABLE_AUTHORITY: u16 = 22;

/// Aliases of one answer, at most: a longer chain is told as it came.
const ALIASES_MAX: usize = 32;

/// The number of the option that carries them.
const EXTENDED_ERROR: u16 = 15;

/// A message that answers `asked`.
pub fn compose(asked: &Message, found: Result<Message, RecursorError>) -> Message {
    let mut message =
        Message::new(asked.metadata.id, MessageType::Response, asked.metadata.op_code);
    message.metadata.recursion_desired = asked.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.checking_disabled = asked.metadata.checking_disabled;
    message.queries = asked.queries.clone();
    let told = match found {
        Ok(found) => Told::of_message(found),
        Err(error) => Told::of_error(error),
    };
    let told = told.and_then(|told| {
        let is_checked = !asked.metadata.checking_disabled;
        if is_checked && told.is_bogus() { Err(told.why_bogus()) } else { Ok(told) }
    });
    let error = match told {
        Ok(told) => {
            message.metadata.response_code = told.code;
            let name = asked.queries.first().map(|query| query.name());
            let is_whole = !name.is_some_and(|name| told.leaves_room_for(name));
            message.metadata.authentic_data = told.is_secure() && is_whole;
            message.answers = name.map_or_else(Vec::new, |name| in_order(told.answers, name));
            message.authorities = told.proofs;
            None
        }
        Err(error) => {
            message.metadata.response_code = ResponseCode::ServFail;
            Some(error)
        }
    };
    if let Some(theirs) = &asked.edns {
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

/// What is told where something was found, or its absence.
struct Told {
    code: ResponseCode,
    answers: Vec<Record>,
    proofs: Vec<Record>,
    /// What the library says of an absence as a whole; of records it speaks one by one.
    absence: Option<Proof>,
}

impl Told {
    fn of_message(mut found: Message) -> Result<Told, u16> {
        let code = found.metadata.response_code;
        let absence = None;
        match code {
            ResponseCode::YXDomain if !found.answers.iter().any(is_dname) => {
                Err(NO_REACHABLE_AUTHORITY)
            }
            ResponseCode::NoError | ResponseCode::NXDomain | ResponseCode::YXDomain => {
                let mut proofs = std::mem::take(&mut found.authorities);
                proofs.retain(is_proof);
                Ok(Told { code, answers: std::mem::take(&mut found.answers), proofs, absence })
            }
            _ => Err(NO_REACHABLE_AUTHORITY),
        }
    }

    fn of_error(error: RecursorError) -> Result<Told, u16> {
        match error {
            RecursorError::Negative(data) => {
                // Where all that a server said was about other zones, nothing was said of this one.
                if !data.is_no_records_found() {
                    return Err(NO_REACHABLE_AUTHORITY);
                }
                let is_denied = data.is_nx_domain();
                let code = if is_denied { ResponseCode::NXDomain } else { ResponseCode::NoError };
                let soa = data.soa.map(|soa| soa.into_record_of_rdata());
                Ok(Told::of_absence(code, soa, data.authorities.as_deref(), None))
            }
            RecursorError::Net(NetError::Dns(DnsError::NoRecordsFound(none))) => {
                let soa = none.soa.map(|soa| soa.into_record_of_rdata());
                let (code, proofs) = (none.response_code, none.authorities.as_deref());
                Ok(Told::of_absence(code, soa, proofs, None))
            }
            RecursorError::Net(NetError::Dns(DnsError::Nsec { response, proof, .. })) => {
                let mut told = Told::of_message(response.into_message())?;
                told.absence = Some(proof);
                Ok(told)
            }
            RecursorError::Net(_) | RecursorError::Io(_) | RecursorError::Timeout => {
                Err(NO_REACHABLE_AUTHORITY)
            }
            RecursorError::Message(_) | RecursorError::Msg(_) | RecursorError::ForwardNS(_) => {
                Err(NO_REACHABLE_AUTHORITY)
            }
            _ => Err(OTHER),
        }
    }

    fn of_absence(
        code: ResponseCode,
        soa: Option<Record>,
        authorities: Option<&[Record]>,
        absence: Option<Proof>,
    ) -> Told {
        let others = authorities.unwrap_or_default().iter();
        let others =
            others.filter(|record| is_proof(record) && record.record_type() != RecordType::SOA);
        let proofs = soa.into_iter().chain(others.cloned()).collect();
        Told { code, answers: Vec::new(), proofs, absence }
    }

    /// What has a proof of its own: signatures are proofs of others.
    fn judged(&self) -> impl Iterator<Item = &Record> {
        let all = self.answers.iter().chain(&self.proofs);
        all.filter(|record| record.record_type() != RecordType::RRSIG)
    }

    fn is_bogus(&self) -> bool {
        match self.absence {
            Some(Proof::Insecure) => false,
            Some(proof) if proof != Proof::Secure => true,
            _ => self.judged().any(|record| record.proof == Proof::Bogus),
        }
    }

    /// True where everything is proven, and there is something.
    fn is_secure(&self) -> bool {
        let mut judged = self.judged().peekable();
        let is_whole = !matches!(self.absence, Some(proof) if proof != Proof::Secure);
        is_whole && judged.peek().is_some() && judged.all(|record| record.proof == Proof::Secure)
    }

    /// True where the proof has NSEC3 records with opt-out, and none of them is that of the name itself: a zone without
    /// signatures may lie in the span that one of them covers.
    fn leaves_room_for(&self, name: &Name) -> bool {
        let spans = self.proofs.iter().filter_map(|record| match &record.data {
            RData::DNSSEC(DNSSECRData::NSEC3(span)) if span.opt_out() => Some((record, span)),
            _ => None,
        });
        let mut spans = spans.peekable();
        // Behind aliases it is another name whose absence is proven.
        let last = self.answers.iter().rev().find_map(|record| match &record.data {
            RData::CNAME(target) => Some(&target.0),
            _ => None,
        });
        let name = last.unwrap_or(name);
        let is_own = |(record, span): (&Record, &NSEC3)| {
            let hash = span.hash_algorithm().hash(span.salt(), name, span.iterations());
            let owner = record.name.iter().next().unwrap_or_default();
            hash.is_ok_and(|hash| base32hex(hash.as_ref()).eq_ignore_ascii_case(owner))
        };
        let is_denied = self.code == ResponseCode::NXDomain;
        spans.peek().is_some() && (is_denied || !spans.any(is_own))
    }

    /// The reason, as far as it can be seen in what was found: otherwise it lies in the keys above.
    fn why_bogus(&self) -> u16 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = since.map_or(0, |since| since.as_secs() as u32);
        let bogus = |record: &&Record| record.proof == Proof::Bogus;
        let mut reason = None;
        for record in self.judged().filter(bogus) {
            let mut signatures = self.signatures(record).peekable();
            let of_record = match signatures.peek() {
                None => RRSIGS_MISSING,
                Some(_) => signatures.map(|each| why_not(each, now_s)).max().unwrap_or_default(),
            };
            // What can be named is told before what cannot.
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

/// Why a signature may not hold, by its times alone (RFC 4034, section 3.1.5: in arithmetic of serial numbers).
fn why_not(signature: &RRSIG, now_s: u32) -> u16 {
    let input = signature.input();
    let is_past = |then: u32| (now_s.wrapping_sub(then) as i32) > 0;
    match () {
        () if is_past(input.sig_expiration.get()) => SIGNATURE_EXPIRED,
        () if !is_past(input.sig_inception.get()) => SIGNATURE_NOT_YET_VALID,
        () => DNSSEC_BOGUS,
    }
}

/// Octets as the label of an NSEC3 record's owner (RFC 4648, section 7, without padding).
fn base32hex(octets: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(octets.len().div_ceil(5) * 8);
    for group in octets.chunks(5) {
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
    u16::from(record.record_type()) == DNAME
}

/// True for records that say or prove what is not there.
fn is_proof(record: &Record) -> bool {
    match &record.data {
        RData::SOA(_) | RData::DNSSEC(DNSSECRData::NSEC(_) | DNSSECRData::NSEC3(_)) => true,
        RData::DNSSEC(DNSSECRData::RRSIG(signature)) => matches!(
            signature.input().type_covered,
            RecordType::SOA | RecordType::NSEC | RecordType::NSEC3
        ),
        _ => false,
    }
}

/// Aliases before what they lead to: the library validates sets in no order.
fn in_order(mut answers: Vec<Record>, name: &Name) -> Vec<Record> {
    if !answers.iter().any(|record| record.record_type() == RecordType::CNAME) {
        return answers;
    }
    let mut names = vec![name.clone()];
    while let Some(last) = names.last().filter(|_| names.len() <= ALIASES_MAX) {
        let next = answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *last => Some(target.0.clone()),
            _ => None,
        });
        match next.filter(|next| !names.contains(next)) {
            Some(next) => names.push(next),
            None => break,
        }
    }
    let rank =
        |record: &Record| names.iter().position(|name| record.name == *name).unwrap_or(names.len());
    answers.sort_by_key(rank);
    answers
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
        for (octets, text) in [("", ""), ("f", "co"), ("foob", "cpnmuog"), ("foobar", "cpnmuoj1e8")]
        {
            assert_eq!(base32hex(octets.as_bytes()), text.as_bytes());
        }
    }

    fn span(of: &[u8], opt_out: bool) -> Record {
        let data = NSEC3::new(Nsec3HashAlgorithm::SHA1, opt_out, 0, Vec::new(), vec![9; 20], []);
        let owner = Name::from_ascii("test.").unwrap().prepend_label(of).unwrap();
        let mut record = Record::from_rdata(owner, 60, RData::DNSSEC(DNSSECRData::NSEC3(data)));
        record.proof = Proof::Secure;
        record
    }

    /// What is told of "www.sub.test." where this is the proof, all of it secure.
    fn is_secure(code: ResponseCode, answers: Vec<Record>, proofs: Vec<Record>) -> bool {
        let name = Name::from_ascii("www.sub.test.").unwrap();
        let mut asked = Message::new(1, MessageType::Query, OpCode::Query);
        asked.add_query(Query::query(name, RecordType::A));
        let mut found = Message::new(1, MessageType::Response, OpCode::Query);
        found.metadata.response_code = code;
        found.answers = answers;
        found.authorities = proofs;
        compose(&asked, Ok(found)).metadata.authentic_data
    }

    /// A proof that leaves room for zones without signatures has no AD: not for a name that does not exist, nor for a
    /// wildcard's or a missing set of records where the span of the name is only covered; the span that is the name's own
    /// proves what it says.
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
    fn too_long_by_nothing() {
        let mut found = Message::new(1, MessageType::Response, OpCode::Query);
        found.metadata.response_code = ResponseCode::YXDomain;
        let asked = Message::new(1, MessageType::Query, OpCode::Query);
        let told = compose(&asked, Ok(found));
        assert_eq!(told.metadata.response_code, ResponseCode::ServFail);
    }
}
