//! Events as bytes: frames of a journal, and the names of flows in an index.
//!
//! ```text
//! journal    "LARDERJ1", number, position, run of the segment u64, frame..
//! frame      bytes of the event u32, their CRC-32 u32, event
//! event      key: low 16, high 16, low port u16, high port u16, protocol u8; flags u8 (1: its source is the low end,
//!            2: it has a network, 4: it has choices); first u64, end u64 (all ones: none): positions; start i64,
//!            last i64: ns; names u16; by their flags: network u64, choices of destination and source; for each name
//!            role u8, length u16, bytes
//! choice     source of the name u8 (255: there is none), confidence in percent u8, flags of the name u16
//! ```
//!
//! Little-endian. A journal is valid up to the first frame that is cut or does not match its
//! checksum.

use larder_wire::naming::{NameFlags, NameSource};
use larder_wire::scope::Scope;
use larder_wire::{Addr, Name};

use crate::files::Identity;
use crate::flow_event::{Choice, FlowEvent, NameRole};
use crate::{FlowKey, block};

const MAGIC: &[u8; 8] = b"LARDERJ1";

/// Bytes of a journal's header.
pub(crate) const HEADER_BYTES: usize = 32;

/// Bytes of an event without its names.
const EVENT_BYTES: usize = 72;

/// The flag of an event with its network: a u64 after its fixed part ([`Scope::bits`]). Bit 0 is
/// `source_is_low`.
const SCOPED: u8 = 2;

/// The flag of an event with choices: two of four bytes, after the network.
const CHOSEN: u8 = 4;

/// The roles of the names that choices are about.
const CHOSEN_ROLES: [NameRole; 2] = [NameRole::Destination, NameRole::Source];

/// In place of a source: there is no choice.
const NO_CHOICE: u8 = 255;

/// Bytes of an event at most.
const EVENT_BYTES_MAX: u32 = 4 << 20;

/// Names of an event at most.
pub(crate) const NAMES_MAX: usize = 1024;

/// An event with positions of packets instead of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredEvent {
    /// The key without its network.
    pub key: FlowKey,
    /// Its network; `None`: flows of all networks are one, as in versions that did not distinguish
    /// networks.
    pub scope: Option<Scope>,
    /// Position of its first packet.
    pub first: u64,
    /// Packets from this position on do not belong to it.
    pub end: Option<u64>,
    pub start_ns: i64,
    pub last_ns: i64,
    pub source_is_low: bool,
    pub names: Vec<(NameRole, Name)>,
    /// Of destination and source: each is about the first name with its role.
    pub choices: [Option<Choice>; 2],
}

/// The packets of a flow: those of its key and network from `first` on, before `end`; see
/// [`StoredEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowSpan {
    pub key: FlowKey,
    pub scope: Option<Scope>,
    pub first: u64,
    pub end: Option<u64>,
}

impl StoredEvent {
    /// `ignores_vlan`: see [`crate::Options`].
    pub fn of(event: &FlowEvent, first: u64, end: Option<u64>, ignores_vlan: bool) -> StoredEvent {
        StoredEvent {
            key: event.key.unscoped(),
            scope: (!ignores_vlan).then_some(event.key.scope),
            first,
            end,
            start_ns: event.start_ns,
            last_ns: event.last_ns,
            source_is_low: event.source_is_low,
            names: event.names.iter().take(NAMES_MAX).cloned().collect(),
            choices: event.choices,
        }
    }

    pub fn span(&self) -> FlowSpan {
        let StoredEvent { key, scope, first, end, .. } = *self;
        FlowSpan { key, scope, first, end }
    }

    /// True if it is about the flow with this key.
    pub fn is_of(&self, key: &FlowKey) -> bool {
        self.key == key.unscoped() && fits(self.scope, key.scope)
    }

    /// Adds a later event of the same flow.
    pub fn add(&mut self, later: &StoredEvent) {
        self.end = match (self.end, later.end) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.start_ns = self.start_ns.min(later.start_ns);
        self.last_ns = self.last_ns.max(later.last_ns);
        for name in &later.names {
            if self.names.len() < NAMES_MAX && !self.names.contains(name) {
                self.names.push(name.clone());
            }
        }
        for (at, choice) in later.choices.into_iter().enumerate() {
            if let (Some(choice), Some(name)) = (choice, later.first(CHOSEN_ROLES[at])) {
                self.choices[at] = Some(choice);
                let chosen = (CHOSEN_ROLES[at], name.clone());
                self.names.retain(|name| *name != chosen);
                self.names.truncate(NAMES_MAX - 1);
                self.names.insert(0, chosen);
            }
        }
    }

    /// The names that were chosen for destination and source, and what the log says about them.
    pub fn chosen(&self) -> [Option<(&Name, Choice)>; 2] {
        [0, 1].map(|at| self.first(CHOSEN_ROLES[at]).zip(self.choices[at]))
    }

    fn first(&self, role: NameRole) -> Option<&Name> {
        self.names.iter().find(|(of, _)| *of == role).map(|(_, name)| name)
    }
}

/// True if an event of a network, or of all, applies to a flow of this one.
pub(crate) fn fits(scope: Option<Scope>, of_flow: Scope) -> bool {
    scope.is_none_or(|scope| scope == of_flow)
}

/// The header of a journal.
pub(crate) fn header(identity: &Identity) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    for word in [identity.number, identity.position, identity.run] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out
}

/// The segment of a journal.
pub(crate) fn identity(journal: &[u8]) -> Option<Identity> {
    let (words, _) = journal.strip_prefix(MAGIC)?.get(..24)?.as_chunks::<8>();
    let &[number, position, run] = words.first_chunk()?;
    let [number, position, run] = [number, position, run].map(u64::from_le_bytes);
    Identity::claimed(number, position, run)
}

/// The frames of a journal, if it belongs to this segment.
fn frames<'a>(journal: &'a [u8], identity: &Identity) -> Option<&'a [u8]> {
    journal.strip_prefix(&header(identity)[..])
}

/// Visits the valid events of a segment's journal. False: events are lost, if the segment has
/// packets. The journal is missing, of another segment, or has bytes that are no frame. A last frame
/// that is cut is what a kill leaves.
pub(crate) fn read(
    journal: Option<&[u8]>,
    identity: &Identity,
    mut visit: impl FnMut(StoredEvent),
) -> bool {
    let Some(mut rest) = journal.and_then(|journal| frames(journal, identity)) else {
        return false;
    };
    while let Some((event, used)) = next(rest) {
        visit(event);
        rest = &rest[used..];
    }
    match block::word(rest, 0) {
        Some(len) => len <= EVENT_BYTES_MAX && rest.len() < 8 + len as usize,
        None => true,
    }
}

/// Appends a frame.
pub(crate) fn put(out: &mut Vec<u8>, event: &StoredEvent) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    put_event(out, event);
    let crc = crc32fast::hash(&out[start + 8..]);
    let len = (out.len() - start - 8) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// The event of the frame at the start of `frames`, and the frame's length. `None`: no valid frame.
pub(crate) fn next(frames: &[u8]) -> Option<(StoredEvent, usize)> {
    let (len, crc) = (block::word(frames, 0)?, block::word(frames, 4)?);
    let len = (len <= EVENT_BYTES_MAX).then_some(len as usize)?;
    let bytes = frames.get(8..8 + len)?;
    if crc32fast::hash(bytes) != crc {
        return None;
    }
    let (event, used) = event(bytes)?;
    (used == len).then_some((event, 8 + len))
}

/// All valid events from the start of `frames` on.
pub(crate) fn events(mut frames: &[u8]) -> impl Iterator<Item = StoredEvent> {
    std::iter::from_fn(move || {
        let (event, used) = next(frames)?;
        frames = &frames[used..];
        Some(event)
    })
}

/// Appends an event without a frame.
pub(crate) fn put_event(out: &mut Vec<u8>, event: &StoredEvent) {
    out.extend_from_slice(&event.key.low.0);
    out.extend_from_slice(&event.key.high.0);
    out.extend_from_slice(&event.key.low_port.to_le_bytes());
    out.extend_from_slice(&event.key.high_port.to_le_bytes());
    let has_choices = event.choices.iter().any(Option::is_some);
    let flags = u8::from(event.source_is_low)
        | if event.scope.is_some() { SCOPED } else { 0 }
        | if has_choices { CHOSEN } else { 0 };
    out.extend_from_slice(&[event.key.protocol, flags]);
    out.extend_from_slice(&event.first.to_le_bytes());
    out.extend_from_slice(&event.end.unwrap_or(u64::MAX).to_le_bytes());
    out.extend_from_slice(&event.start_ns.to_le_bytes());
    out.extend_from_slice(&event.last_ns.to_le_bytes());
    let names = &event.names[..event.names.len().min(NAMES_MAX)];
    out.extend_from_slice(&(names.len() as u16).to_le_bytes());
    if let Some(scope) = event.scope {
        out.extend_from_slice(&scope.bits().to_le_bytes());
    }
    for choice in event.choices.iter().filter(|_| has_choices) {
        let (source, confidence, flags) = match choice {
            Some(Choice { source, flags, confidence }) => {
                (*source as u8, *confidence, flags.bits())
            }
            None => (NO_CHOICE, 0, 0),
        };
        let [low, high] = flags.to_le_bytes();
        out.extend_from_slice(&[source, confidence, low, high]);
    }
    for (role, name) in names {
        let bytes = name.as_bytes();
        let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
        out.push(*role as u8);
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(bytes);
    }
}

/// An event without its names, which are most of the work of reading one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub span: FlowSpan,
    pub choices: [Option<Choice>; 2],
    /// Offset of its names.
    names: usize,
}

/// Bytes of a head at most.
pub(crate) const HEAD_BYTES_MAX: usize = EVENT_BYTES + 16;

/// The head of an event.
pub(crate) fn head(bytes: &[u8]) -> Option<Head> {
    let head: &[u8; EVENT_BYTES] = bytes.first_chunk()?;
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let mut at = EVENT_BYTES;
    let mut scope = None;
    if head[37] & SCOPED != 0 {
        scope = Some(Scope::from_bits(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))?);
        at += 8;
    }
    let mut choices = [None; 2];
    if head[37] & CHOSEN != 0 {
        for choice in &mut choices {
            *choice = choice_of(*bytes.get(at..)?.first_chunk()?)?;
            at += 4;
        }
    }
    let key = FlowKey {
        low: Addr(*head.first_chunk()?),
        high: Addr(*head[16..].first_chunk()?),
        low_port: half(32),
        high_port: half(34),
        protocol: head[36],
        scope: Scope::NONE,
    };
    let end = long(head, 46)?;
    let end = (end != u64::MAX).then_some(end);
    Some(Head { span: FlowSpan { key, scope, first: long(head, 38)?, end }, choices, names: at })
}

/// An event, and its length.
pub(crate) fn event(bytes: &[u8]) -> Option<(StoredEvent, usize)> {
    let Head { span: FlowSpan { key, scope, first, end }, choices, names: mut at } = head(bytes)?;
    let mut names = Vec::new();
    for _ in 0..u16::from_le_bytes(*bytes.get(70..)?.first_chunk()?) {
        let &[role, low, high] = bytes.get(at..)?.first_chunk()?;
        let len = usize::from(u16::from_le_bytes([low, high]));
        names.push((role_of(role)?, Name::from_canonical(bytes.get(at + 3..at + 3 + len)?)));
        at += 3 + len;
    }
    let event = StoredEvent {
        key,
        scope,
        source_is_low: bytes.get(37)? & 1 != 0,
        first,
        end,
        start_ns: long(bytes, 54)? as i64,
        last_ns: long(bytes, 62)? as i64,
        names,
        choices,
    };
    Some((event, at))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// A choice or that there is none; `None`: neither.
#[allow(clippy::option_option)]
fn choice_of([source, confidence, low, high]: [u8; 4]) -> Option<Option<Choice>> {
    if source == NO_CHOICE {
        return Some(None);
    }
    let source = *NameSource::ALL.get(usize::from(source))?;
    let flags = NameFlags::from_bits(u16::from_le_bytes([low, high]));
    Some(Some(Choice { source, flags, confidence }))
}

fn role_of(role: u8) -> Option<NameRole> {
    Some(match role {
        0 => NameRole::Destination,
        1 => NameRole::Source,
        2 => NameRole::Candidate,
        3 => NameRole::Lookup,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some(seed: u64, names: Vec<Vec<u8>>) -> StoredEvent {
        let roles =
            [NameRole::Destination, NameRole::Source, NameRole::Candidate, NameRole::Lookup];
        StoredEvent {
            key: FlowKey {
                low: Addr::v4([192, 0, 2, seed as u8]),
                high: Addr([seed as u8; 16]),
                low_port: seed as u16,
                high_port: 53,
                protocol: 17,
                scope: Scope::NONE,
            },
            scope: (seed % 5 != 4).then_some(Scope::NONE.tagged(seed as u16 % 3)),
            first: seed,
            end: (seed.is_multiple_of(2)).then_some(seed + 9),
            start_ns: -(seed as i64),
            last_ns: seed as i64,
            source_is_low: seed.is_multiple_of(3),
            names: names
                .iter()
                .enumerate()
                .map(|(at, name)| (roles[at % 4], Name::from_canonical(name)))
                .collect(),
            choices: [seed % 7, seed % 3].map(|some| {
                (some > 1).then_some(Choice {
                    source: NameSource::ALL[some as usize],
                    flags: NameFlags::from_bits(seed as u16),
                    confidence: (seed % 100) as u8,
                })
            }),
        }
    }

    proptest! {
        /// A journal that is cut anywhere has the events before the cut, unchanged; one with a
        /// wrong byte, those before it.
        #[test]
        fn valid_up_to_the_damage(
            events in prop::collection::vec(
                (0u64..1000, prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5)),
                0..6,
            ),
            cut in any::<prop::sample::Index>(),
        ) {
            let events: Vec<_> = events.into_iter().map(|(seed, names)| some(seed, names)).collect();
            let (mut out, mut ends) = (Vec::new(), Vec::new());
            for event in &events {
                put(&mut out, event);
                ends.push(out.len());
            }
            prop_assert!(super::events(&out).eq(events.iter().cloned()));
            if out.is_empty() { return Ok(()) }
            let cut = cut.index(out.len());
            let whole = ends.iter().filter(|end| **end <= cut).count();
            prop_assert!(super::events(&out[..cut]).eq(events[..whole].iter().cloned()));
            let identity = Identity { number: 1, position: 2, run: 0 };
            let judged = |frames: &[u8]| {
                let journal = [&header(&identity), frames].concat();
                !read(Some(&journal), &identity, drop)
            };
            prop_assert!(!judged(&out) && !judged(&out[..cut]), "a kill cuts");
            out[cut] ^= 0x10;
            let found: Vec<_> = super::events(&out).collect();
            prop_assert_eq!(&found[..], &events[..whole]);
            // A greater length is like a cut, if the bytes end before.
            let is_length = cut - ends[..whole].last().copied().unwrap_or(0) < 4;
            prop_assert!(judged(&out) || is_length);
            let other = Identity { number: 2, ..identity };
            prop_assert!(!read(None, &identity, drop) && !read(Some(b""), &identity, drop));
            prop_assert!(!read(Some(&header(&identity)), &other, drop));
        }
    }
}
