//! Expected differences between two servers, each with its reason.
//!
//! A row excuses its fields and no others, and only if it applies; the rest is reported as a
//! difference.

use larder_wire::dns::edns::rcode;
use larder_wire::dns::{class, rtype};

use crate::compare::Field::{self, *};
use crate::compare::{Entry, View};

/// A query, and both responses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    pub qtype: u16,
    pub qclass: u16,
    pub recursion_desired: bool,
    pub ours: &'a View,
    pub theirs: &'a View,
}

/// A difference that is expected in these fields, if it applies.
pub(super) struct Known {
    pub name: &'static str,
    pub why: &'static str,
    fields: &'static [Field],
    applies: fn(&Case<'_>) -> bool,
}

/// All fields except for the header's opcode and the question.
const CONTENT: &[Field] = &[
    Rcode,
    Authoritative,
    Truncated,
    RecursionAvailable,
    Authentic,
    Answer,
    Authority,
    Additional,
    Errors,
];

/// All rows.
pub(super) const KNOWN: [Known; 7] = [
    Known {
        name: "records beside the answer",
        why: "what nobody asked for may be left out; larder does unless told --minimal=false",
        fields: &[Authority, Additional],
        applies: |case| {
            let has_part = |at: usize| {
                let (ours, theirs) = (&case.ours.sections[at], &case.theirs.sections[at]);
                is_part(ours, theirs) || is_part(theirs, ours)
            };
            has_part(1) && has_part(2)
        },
    },
    Known {
        name: "what OPT says",
        why: "sizes, cookies, padding and reasons are between two neighbours (RFC 6891, section 6.1.1)",
        fields: &[UdpSize, Options, Errors],
        applies: |_| true,
    },
    Known {
        name: "validated (AD)",
        why: "larder says it only where its upstream does and is believed: --trust-ad",
        fields: &[Authentic],
        applies: |case| case.theirs.flags[4] && !case.ours.flags[4],
    },
    Known {
        name: "cut at another size (TC)",
        why: "servers have their own limit over UDP; see --udp-size",
        fields: &[Truncated, Answer, Authority, Additional],
        applies: |case| case.ours.is_truncated() != case.theirs.is_truncated(),
    },
    Known {
        name: "ANY",
        why: "larder answers with one HINFO record (RFC 8482, section 4.2)",
        fields: CONTENT,
        applies: |case| case.qtype == rtype::ANY,
    },
    Known {
        name: "recursion not desired",
        why: "what is in the cache is others' business: larder refuses",
        fields: CONTENT,
        applies: |case| !case.recursion_desired && case.ours.rcode == rcode::REFUSED,
    },
    Known {
        name: "questions about the server itself",
        why: "class CHAOS is the server's own; see --version-text and --id-text",
        fields: CONTENT,
        applies: |case| case.qclass != class::IN,
    },
];

/// True if the other has each record of one, with any TTL.
fn is_part(one: &[Entry], other: &[Entry]) -> bool {
    let sorted = |entries: &[Entry]| {
        let mut keys: Vec<_> = entries
            .iter()
            .map(|it| (it.owner.clone(), it.rtype, it.class, it.data.clone()))
            .collect();
        keys.sort_unstable();
        keys
    };
    let (one, other) = (sorted(one), sorted(other));
    one.iter().all(|key| other.binary_search(key).is_ok())
}

/// Removes expected differences from `fields`, and passes the numbers of their rows to `note`.
pub(super) fn excuse(case: &Case<'_>, fields: &mut Vec<Field>, mut note: impl FnMut(usize)) {
    for (at, known) in KNOWN.iter().enumerate() {
        if fields.iter().any(|field| known.fields.contains(field)) && (known.applies)(case) {
            fields.retain(|field| !known.fields.contains(field));
            note(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let flags = [false, false, true, true, false, false];
        let sections = [vec![entry(1)], vec![entry(2)], Vec::new()];
        View { bytes: 100, opcode: 0, rcode: 0, flags, question: None, sections, opt: None }
    }

    fn entry(last: u8) -> Entry {
        Entry { owner: vec![0], rtype: 1, class: 1, data: vec![192, 0, 2, last], ttl_s: 60 }
    }

    fn left(change: impl FnOnce(&mut View), qtype: u16) -> (Vec<Field>, Vec<&'static str>) {
        let (ours, mut theirs) = (view(), view());
        change(&mut theirs);
        let mut fields = ours.differences(&theirs);
        assert!(!fields.is_empty());
        let case = Case { qtype, qclass: 1, recursion_desired: true, ours: &ours, theirs: &theirs };
        let mut rows = Vec::new();
        excuse(&case, &mut fields, |at| rows.push(KNOWN[at].name));
        (fields, rows)
    }

    /// Each row excuses its own differences, and no others.
    #[test]
    fn rows_excuse_their_own() {
        let more = left(|theirs| theirs.sections[1].push(entry(9)), 1);
        assert_eq!(more, (vec![], vec!["records beside the answer"]));
        let other = left(|theirs| theirs.sections[1] = vec![entry(9)], 1);
        assert_eq!(other, (vec![Authority], vec![]));
        let answer = left(|theirs| theirs.sections[0] = vec![entry(9)], 1);
        assert_eq!(answer, (vec![Answer], vec![]));
        assert_eq!(left(|theirs| theirs.flags[4] = true, 1).1, ["validated (AD)"]);
        let cut = |theirs: &mut View| {
            theirs.flags[1] = true;
            theirs.sections[0].clear();
        };
        assert_eq!(left(cut, 1), (vec![], vec!["cut at another size (TC)"]));
        assert_eq!(left(|theirs| theirs.rcode = 3, 1), (vec![Rcode], vec![]));
        assert_eq!(left(|theirs| theirs.rcode = 3, 255), (vec![], vec!["ANY"]));
    }
}
