//! The forms of a line in the sorters of [`mod@super::run`]: its query, and its answer.

use larder_wire::Addr;

use super::dns_observation::{
    DnsObservation, read_addr, read_bytes, read_name, read_number, read_time, write_addr,
    write_name, write_number,
};
use super::{FlowEnds, Said};
use crate::flow::protocol;
use crate::record::{ConflictGrade, End, NameFlags, NameSource, Naming, UnnamedReason};
use crate::stated::is_resolver_traffic;

/// The ends and the names of a line.
#[derive(Default)]
pub(super) struct Query {
    /// Time, source, destination.
    pub ends: Option<(i64, Addr, Addr)>,
    /// Ports of source and destination.
    pub ports: [u16; 2],
    pub from_responder: bool,
    /// The line is about a lookup: `--unresolved` omits it.
    pub is_lookup: bool,
    pub said: Said,
    pub observation: Option<DnsObservation>,
}

const HAS_SERVER_NAME: u8 = 1;
const IS_QUIC: u8 = 2;
const HAS_HOST: u8 = 4;
const FROM_RESPONDER: u8 = 8;
const IS_LOOKUP: u8 = 16;

impl Query {
    /// A query with its ends only.
    pub fn of(ends: Option<FlowEnds>, from_responder: bool) -> Query {
        let is_lookup = ends.is_some_and(|ends| {
            let (responder, port) = match from_responder {
                true => (ends.source, ends.source_port),
                false => (ends.destination, ends.destination_port),
            };
            is_resolver_traffic(ends.protocol.unwrap_or(protocol::UDP), responder, port)
        });
        let ports = ends.map_or([0; 2], |ends| [ends.source_port, ends.destination_port]);
        let ends = ends.map(|ends| (ends.time_ns, ends.source, ends.destination));
        Query { ends, ports, from_responder, is_lookup, ..Query::default() }
    }

    pub fn time_ns(&self) -> Option<i64> {
        self.ends.map(|(time_ns, ..)| time_ns)
    }

    /// Appends the form for a sorter: line, ends, stated names, and an observation at the end.
    pub fn write(&self, line: u64, out: &mut Vec<u8>) {
        let Some((time_ns, source, destination)) = self.ends else { return };
        out.extend_from_slice(&line.to_le_bytes());
        out.extend_from_slice(&time_ns.to_le_bytes());
        write_addr(source, out);
        write_addr(destination, out);
        self.ports.iter().for_each(|port| out.extend_from_slice(&port.to_le_bytes()));
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        out.push(
            flag(self.said.server_name.is_some(), HAS_SERVER_NAME)
                | flag(self.said.is_quic, IS_QUIC)
                | flag(self.said.http_host.is_some(), HAS_HOST)
                | flag(self.from_responder, FROM_RESPONDER)
                | flag(self.is_lookup, IS_LOOKUP),
        );
        for name in [&self.said.server_name, &self.said.http_host].into_iter().flatten() {
            write_name(name, out);
        }
        if let Some(observation) = &self.observation {
            observation.write(out);
        }
    }

    pub fn read(mut from: &[u8]) -> Option<(u64, Query)> {
        let from = &mut from;
        let line = u64::from_le_bytes(*read_bytes(from, 8)?.first_chunk()?);
        let ends = (read_time(from)?, read_addr(from)?, read_addr(from)?);
        let ports = [read_port(from)?, read_port(from)?];
        let flags = *read_bytes(from, 1)?.first()?;
        let mut said = Said { is_quic: flags & IS_QUIC != 0, ..Said::default() };
        if flags & HAS_SERVER_NAME != 0 {
            said.server_name = Some(read_name(from)?);
        }
        if flags & HAS_HOST != 0 {
            said.http_host = Some(read_name(from)?);
        }
        let observation = if from.is_empty() { None } else { DnsObservation::read(from) };
        let from_responder = flags & FROM_RESPONDER != 0;
        let is_lookup = flags & IS_LOOKUP != 0;
        let ends = Some(ends);
        Some((line, Query { ends, ports, from_responder, is_lookup, said, observation }))
    }
}

fn read_port(from: &mut &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(*read_bytes(from, 2)?.first_chunk()?))
}

/// The names of a line's ends.
pub(super) struct Answer {
    pub source: End,
    pub destination: End,
    /// The line is one of `Unresolved::True`; it is one of `Unresolved::All`.
    pub unresolved: [bool; 2],
}

/// For "no name" and "no reason".
const NONE: u8 = u8::MAX;

/// Every reason, at its number in a sorter.
const REASONS: [UnnamedReason; 6] = [
    UnnamedReason::NoLookupSeen,
    UnnamedReason::BeforeCapture,
    UnnamedReason::EncryptedDnsSuspected,
    UnnamedReason::Evicted,
    UnnamedReason::Local,
    UnnamedReason::LowConfidence,
];

impl Answer {
    /// Appends the form for a sorter: for each end the source of its name (or the reason for none),
    /// flags, age, names.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.unresolved.map(u8::from));
        for end in [&self.source, &self.destination] {
            let reason = end.unnamed_reason.and_then(|why| REASONS.iter().position(|r| *r == why));
            out.push(reason.map_or(NONE, |reason| reason as u8));
            let Some(naming) = &end.naming else {
                out.push(NONE);
                continue;
            };
            out.push(naming.source as u8);
            out.extend_from_slice(&naming.flags.bits().to_le_bytes());
            out.push(naming.conflict_grade.map_or(NONE, |grade| grade as u8));
            out.extend_from_slice(&naming.age_ms.to_le_bytes());
            out.push(naming.confidence);
            write_number(end.candidates.len() as u32, out);
            for name in &end.candidates {
                write_name(name, out);
            }
        }
    }

    pub fn read(mut from: &[u8]) -> Option<Answer> {
        let from = &mut from;
        let unresolved = read_bytes(from, 2)?.first_chunk::<2>()?.map(|byte| byte != 0);
        Some(Answer { source: read_end(from)?, destination: read_end(from)?, unresolved })
    }
}

fn read_end(from: &mut &[u8]) -> Option<End> {
    let mut end = End::of(Addr::UNSPECIFIED);
    let [reason, source] = *read_bytes(from, 2)?.first_chunk()?;
    end.unnamed_reason = REASONS.get(usize::from(reason)).copied();
    if source == NONE {
        return Some(end);
    }
    let flags = u16::from_le_bytes(*read_bytes(from, 2)?.first_chunk()?);
    let grade = *read_bytes(from, 1)?.first()?;
    let age_ms = u64::from_le_bytes(*read_bytes(from, 8)?.first_chunk()?);
    let confidence = *read_bytes(from, 1)?.first()?;
    for _ in 0..read_number(from)? {
        end.candidates.push(read_name(from)?);
    }
    end.naming = Some(Naming {
        // The chosen name is the first candidate.
        name: end.candidates.first()?.clone(),
        source: *NameSource::ALL.get(usize::from(source))?,
        age_ms,
        flags: NameFlags::from_bits(flags),
        confidence,
        conflict_grade: ConflictGrade::ALL.get(usize::from(grade)).copied(),
    });
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_wire::Name;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Name> {
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|name| Name::from_canonical(&name))
    }

    proptest! {
        /// The forms for a sorter are read back, and other bytes do not panic the readers.
        #[test]
        fn sorted_forms_read_back(
            line: u64,
            time_ns: i64,
            addr: [u8; 16],
            ports: [u16; 2],
            server_name in proptest::option::of(name()),
            http_host in proptest::option::of(name()),
            candidates in proptest::collection::vec(name(), 0..6),
            flags: [bool; 2],
            name_flags: u16,
            grade in 0..=ConflictGrade::ALL.len(),
            source in 0..NameSource::ALL.len(),
            reason in 0..REASONS.len(),
            age_ms: u64,
            confidence: u8,
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let query = Query {
                ends: Some((time_ns, Addr(addr), Addr::UNSPECIFIED)),
                ports,
                from_responder: flags[0],
                is_lookup: flags[1],
                said: Said { server_name, is_quic: flags[1], http_host },
                observation: None,
            };
            let mut out = Vec::new();
            query.write(line, &mut out);
            let (read_line, read) = Query::read(&out).expect("a query");
            prop_assert_eq!((read_line, read.ends, read.said), (line, query.ends, query.said));
            prop_assert_eq!(read.ports, ports);
            prop_assert_eq!((read.from_responder, read.is_lookup), (flags[0], flags[1]));
            prop_assert_eq!(read.observation, None);

            let mut end = End::of(Addr::UNSPECIFIED);
            match candidates.first() {
                None => end.unnamed_reason = Some(REASONS[reason]),
                Some(name) => {
                    end.naming = Some(Naming {
                        name: name.clone(),
                        source: NameSource::ALL[source],
                        age_ms,
                        flags: NameFlags::from_bits(name_flags),
                        confidence,
                        conflict_grade: ConflictGrade::ALL.get(grade).copied(),
                    });
                }
            }
            end.candidates = candidates;
            let source = End::of(Addr::UNSPECIFIED);
            let answer = Answer { source, destination: end, unresolved: flags };
            let mut out = Vec::new();
            answer.write(&mut out);
            let read = Answer::read(&out).expect("an answer");
            prop_assert_eq!(read.unresolved, answer.unresolved);
            prop_assert_eq!(read.source, answer.source);
            prop_assert_eq!(read.destination, answer.destination);
            let _ = (Query::read(&noise), Answer::read(&noise));
        }
    }

    /// The number of a source or a grade in a sorter is its index in the list of all.
    #[test]
    fn sources_are_at_their_numbers() {
        for (place, grade) in ConflictGrade::ALL.into_iter().enumerate() {
            assert_eq!(grade as usize, place);
        }
        for (place, source) in NameSource::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, place);
        }
    }
}
