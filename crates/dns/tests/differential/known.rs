//! Intended differences: larder and unbound read an RFC differently, or one of them does more.
//!
//! A row excuses only its fields, and only if it applies. Any other difference fails the test, and
//! so does a row that a long run does not use.

use super::answer::rtype;
use super::queries::{ClientQuery, RA, TC};
use super::shape::{Flag, Shape};
use super::view::Field::{self, *};
use super::view::{Entry, View};

/// A query and its responses.
pub struct Case<'a> {
    pub query: &'a ClientQuery,
    pub ours: &'a View,
    pub theirs: &'a View,
    /// Another client sent the same query at the same time.
    pub is_queried_at_once: bool,
}

impl Case<'_> {
    fn shape(&self) -> Shape {
        self.query.shape()
    }

    fn has(&self, flag: Flag) -> bool {
        self.shape().has(flag)
    }
}

/// An intended difference in these fields, if it applies.
pub struct Known {
    pub name: &'static str,
    /// `None`: all fields.
    fields: Option<&'static [Field]>,
    pub applies: fn(&Case<'_>) -> bool,
    pub why: &'static str,
}

impl Known {
    /// True for a field that the row excuses if it applies.
    pub fn excuses(&self, field: Field) -> bool {
        self.fields.is_none_or(|fields| fields.contains(&field))
    }
}

/// Differences that a run may not meet: they depend on which of several events comes first.
pub const RARE: [&str; 2] = ["cut for another client", "TTL of the CNAME that a DNAME makes"];

const FORMERR: u16 = 1;
const SERVFAIL: u16 = 2;
const NOTIMP: u16 = 4;
const REFUSED: u16 = 5;
const BADVERS: u16 = 16;

/// All rows.
pub const KNOWN: &[Known] = &[
    Known {
        name: "other operations",
        fields: None,
        applies: |case| {
            let ours = case.ours;
            let is_empty = ours.question.is_none() && ours.opt.is_none();
            case.query.opcode != 0 && ours.rcode == NOTIMP && is_empty
        },
        why: "NOTIMP and no sections (RFC 8906, section 8.1.4); unbound repeats the question",
    },
    Known {
        name: "TC in a question",
        fields: None,
        applies: |case| case.query.has(0, TC) && case.theirs.rcode == FORMERR,
        why: "a bit without a meaning in questions is passed over; unbound says FORMERR",
    },
    Known {
        name: "other classes",
        fields: None,
        applies: |case| case.query.qclass != 1 && matches!(case.ours.rcode, REFUSED | BADVERS),
        why: "larder serves IN alone and refuses (EDE 21); unbound asks its upstream, or tells of itself",
    },
    Known {
        name: "types for queries",
        fields: Some(&[Rcode, Answer, Authority, Additional, Truncated, Ttl, Errors]),
        applies: |case| {
            let qtype = case.query.qtype;
            matches!(qtype, 0 | 41 | 128..=254)
                && matches!(case.ours.rcode, FORMERR | NOTIMP | REFUSED | BADVERS)
        },
        why: "NOTIMP, for nothing can be looked up (RFC 6895, section 3.1); unbound says FORMERR or asks",
    },
    Known {
        name: "ANY",
        fields: Some(&[Rcode, Answer, Authority, Additional, Ttl, Truncated, Errors]),
        applies: |case| {
            let is_hinfo = case.ours.answers().iter().all(|entry| entry.rtype == rtype::HINFO);
            case.query.qtype == rtype::ANY && case.ours.answers().len() == 1 && is_hinfo
        },
        why: "one HINFO record (RFC 8482, section 4.2); unbound asks its upstream unless told to deny-any",
    },
    Known {
        name: "refusals begun from the question",
        fields: Some(&[
            RecursionAvailable,
            Authentic,
            Authoritative,
            UdpSize,
            Version,
            DnssecOk,
            Reserved,
            Options,
        ]),
        applies: |case| {
            let is_refusal = matches!(case.theirs.rcode, FORMERR | NOTIMP | REFUSED);
            let has_its_ra = case.theirs.flags[3] == case.query.has(1, RA);
            is_refusal && has_its_ra
        },
        why: "RA is what the server does, AD what it earned (RFC 6840, section 5.8), OPT is its own \
              (RFC 6891, section 6.1.1); unbound sends back the question's own header and OPT",
    },
    Known {
        name: "reasons of failures",
        fields: Some(&[Errors]),
        applies: |case| {
            case.ours.rcode != 0 && case.theirs.opt.as_ref().is_none_or(|opt| opt.errors.is_empty())
        },
        why: "larder says why (RFC 8914): 13 for a failure that it remembers, 20 and 21 where it refuses, what \
              the upstream gave, or 0",
    },
    Known {
        name: "MINIMUM beyond 2^31",
        fields: Some(&[Ttl]),
        applies: |case| case.shape().minimum_s >> 31 == 1 && !case.ours.authorities().is_empty(),
        why: "is 0 (RFC 2181, section 8); unbound takes the SOA's TTL instead",
    },
    Known {
        name: "TTL beyond 2^31",
        fields: Some(&[Ttl]),
        applies: |case| case.shape().ttl_s >> 31 == 1,
        why: "is as long as larder allows (RFC 8767, section 4); unbound takes it for 0 (RFC 2181, section 8)",
    },
    Known {
        name: "records twice",
        fields: Some(&[Answer, Truncated, Authority, Additional]),
        applies: |case| case.has(Flag::Twice),
        why: "larder sends what the upstream did; unbound drops the second (RFC 2181, section 5)",
    },
    Known {
        name: "DNAME twice",
        fields: Some(&[Rcode, Answer, Authority, Additional, Truncated, Ttl]),
        applies: |case| {
            let has_two = case.has(Flag::Twice) && case.has(Flag::Dname);
            has_two && case.theirs.rcode == SERVFAIL && case.ours.rcode != SERVFAIL
        },
        why: "larder follows it; unbound, which meets the CNAME twice after it, fails",
    },
    Known {
        name: "DNAME asked for below one",
        fields: Some(&[Authority, Additional]),
        applies: |case| {
            let is_below = case.has(Flag::Dname) && case.query.qtype == rtype::DNAME;
            is_below && !case.ours.authorities().is_empty()
        },
        why: "what is asked for is that of the name at the end, which has none: the SOA says so (RFC 2308, section 2.2); \
              unbound takes the DNAME on the way for the answer",
    },
    Known {
        name: "cut where names are not compressed",
        fields: Some(&[Truncated, Answer, Authority, Additional, Ttl]),
        applies: |case| {
            let is_long = case.has(Flag::Uncompressed) || case.has(Flag::MixedCase);
            let has_less = case.ours.sections[2].len() < case.theirs.sections[2].len();
            is_long && (case.ours.is_truncated() || has_less)
        },
        why: "larder sends the upstream's octets, unbound writes them anew, and more fits",
    },
    Known {
        name: "proof of a wildcard",
        fields: Some(&[Authority, Truncated]),
        applies: |case| case.has(Flag::Wildcard) && case.query.dnssec_ok(),
        why: "where authority has a proof larder keeps all of it; unbound keeps the proof",
    },
    Known {
        name: "what is left after a cut",
        fields: Some(&[Answer, Authority, Ttl]),
        applies: |case| {
            let is_signed = case.has(Flag::Signed) && case.query.dnssec_ok();
            let is_cut = case.ours.is_truncated() && case.theirs.is_truncated();
            is_cut && (is_signed || case.has(Flag::Reversed))
        },
        why: "larder keeps what fits, in the upstream's order, and TC says that signatures may be missing (RFC 4035, \
              section 3.1.1); unbound cuts a set with its signature, and authority as a whole",
    },
    Known {
        name: "TTL of the CNAME that a DNAME makes",
        fields: Some(&[Ttl]),
        applies: |case| case.has(Flag::Dname) && case.theirs.answers().iter().any(is_made),
        why: "is the DNAME's (RFC 6672, section 3.1); unbound makes it anew with 0",
    },
    Known {
        name: "cut for another client",
        fields: Some(&[Truncated, Answer, Authority, Additional, Ttl]),
        applies: |case| {
            let is_cut = case.theirs.is_truncated() && !case.ours.is_truncated();
            case.is_queried_at_once && is_cut
        },
        why: "each client has what fits (RFC 6891, section 6.2.3); unbound sends all who wait for an answer what \
              it cut for the first of them",
    },
];

/// True for an alias that must not be cached.
fn is_made(entry: &Entry) -> bool {
    entry.rtype == rtype::CNAME && entry.ttl_s == 0
}
