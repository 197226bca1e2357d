//! Places of the packets of a segment that match a query.
//!
//! ```text
//! flows that can match     by index: the condition of an `and` with the fewest flows; of an `or` all
//!   -> what the key decides: the whole flow, none of it, or
//!   -> packet by packet      names by position, addresses in other headers by place
//! packets with addresses besides their flow's
//! ```
//!
//! Where a packet without a flow can match (`not port 443`), the segment is read instead: an index
//! has no such packets.
//!
//! A query with times is evaluated once for each part of time ([`Query::parts`]) that the segment
//! has, nearly always one; in each part every comparison is known.
//!
//! Cost: by index, the lists of the flows that can match, and if a condition about an address is
//! joined with others, once those of all flows of a segment in which other headers have it.

use std::io;
use std::sync::atomic::Ordering;

use larder_wire::scope::Scope;

use super::segment::Opened;
use super::spans::{Spans, is_in};
use super::{STOP_PACKETS, Search};
use crate::FlowKey;
use crate::block::PLACE_BYTES;
use crate::flows::Flows;
use crate::index::{Damaged, Index};
use crate::query::{Expression, Term};

/// A place, and the part of time in which its packet matches.
pub(super) type Place = (u32, u8);

/// For each term, the places of packets with its address in a header other than their flow's.
type Extras = Vec<Vec<u32>>;

/// Flows that an address has, as an estimate: the list of them is short.
const FLOWS_OF_HOST: usize = 16;

/// What is known of a packet.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub key: Option<&'a FlowKey>,
    pub position: u64,
    /// The part of time of its time.
    pub part: u8,
}

impl Search<'_, '_> {
    /// True if a packet matches. `has_extra`: whether it has an address of the term with this
    /// number in a header other than its flow's.
    pub fn matches(&self, facts: Facts<'_>, has_extra: &mut dyn FnMut(usize) -> bool) -> bool {
        let Facts { key, position, part } = facts;
        let mut holds = |term: usize| {
            let by_key = self.of_flow(term, key, part);
            Some(by_key.unwrap_or_else(|| match (&self.query.terms[term], key) {
                (asked, Some(key)) if asked.is_of_events() => {
                    is_in(self.spans[term].of(key), key.scope, position)
                }
                _ => has_extra(term),
            }))
        };
        self.query.expression.holds(&mut holds) == Some(true)
    }

    /// Whether a term holds for all packets of a flow, or for packets without one, in a part of
    /// time. `None`: it depends on the packet.
    fn of_flow(&self, term: usize, key: Option<&FlowKey>, part: u8) -> Option<bool> {
        let is_met = |key: &FlowKey| self.query.terms[term].matches_key(key);
        match &self.query.terms[term] {
            asked if asked.is_of_events() => {
                key.is_none_or(|key| self.spans[term].of(key).is_empty()).then_some(false)
            }
            Term::Net(..) => key.is_some_and(is_met).then_some(true),
            Term::After(_) | Term::Before(_) => self.query.holds_in(term, part),
            _ => Some(key.is_some_and(is_met)),
        }
    }

    /// Places of the matching packets of a segment, in order.
    pub fn places(&self, opened: &mut Opened, is_scan: bool, seed: u64) -> io::Result<Vec<Place>> {
        if !self.wants_time_of(&opened.index) && !is_scan {
            return Ok(Vec::new());
        }
        let parts = self.query.parts(opened.index.times_ns);
        let mut is_walked = is_scan
            || parts.clone().any(|part| self.matches_without_flow(part))
            || !opened.index.has_extras && self.query.nets().next().is_some();
        if is_walked {
            opened.walk(seed)?;
        }
        let mut found = Vec::new();
        for part in parts {
            let by_index = match is_walked {
                true => None,
                false => self.places_by_index(&opened.index, part).ok(),
            };
            if by_index.is_none() && !is_walked {
                opened.look_through(seed)?;
                is_walked = true;
            }
            let mut places = match (by_index, &opened.flows) {
                (Some(places), _) => places,
                (None, Some(flows)) => {
                    self.places_by_scan(opened.index.identity.position, flows, part)
                }
                (None, None) => Vec::new(),
            };
            places.sort_unstable();
            places.dedup();
            found.extend(places.into_iter().map(|place| (place, part)));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// False: no packet of the segment has a time in range.
    fn wants_time_of(&self, index: &Index) -> bool {
        let (least, greatest) = index.times_ns;
        let (from, to) = (self.options.from_ns, self.options.to_ns);
        from.is_none_or(|from| greatest >= from) && to.is_none_or(|to| to > least)
    }

    /// True if packets match that have neither a flow nor an address that is looked for.
    fn matches_without_flow(&self, part: u8) -> bool {
        let facts = Facts { key: None, position: 0, part };
        self.matches(facts, &mut |_| false)
    }

    fn places_by_scan(&self, position: u64, flows: &Flows, part: u8) -> Vec<u32> {
        let extras: Extras = self.extras_of(|range| {
            let mut places = Vec::new();
            flows.extras.places(&[range], &mut places);
            places
        });
        let mut places = Vec::new();
        let mut take = |key: Option<&FlowKey>, place: u32| {
            if self.matches_at(key, position, place, part, &extras) {
                places.push(place);
            }
        };
        for (at, (flow, place)) in flows.packets.iter().enumerate() {
            if at % STOP_PACKETS == 0 && self.is_unwanted.load(Ordering::Acquire) {
                break;
            }
            take(Some(&flows.list[*flow as usize].key), *place);
        }
        flows.without_flow.iter().for_each(|place| take(None, *place));
        places
    }

    fn matches_at(
        &self,
        key: Option<&FlowKey>,
        position: u64,
        place: u32,
        part: u8,
        extras: &Extras,
    ) -> bool {
        let position = position + u64::from(place) * PLACE_BYTES;
        let mut has_extra = |term: usize| extras[term].binary_search(&place).is_ok();
        self.matches(Facts { key, position, part }, &mut has_extra)
    }

    /// For each term its places, sorted.
    fn extras_of(
        &self,
        mut of_range: impl FnMut(std::ops::RangeInclusive<larder_wire::Addr>) -> Vec<u32>,
    ) -> Extras {
        let mut extras: Extras = vec![Vec::new(); self.query.terms.len()];
        for (term, range) in self.query.nets() {
            // A network may have two ranges.
            extras[term].append(&mut of_range(range));
            extras[term].sort_unstable();
        }
        extras
    }

    fn places_by_index(&self, index: &Index, part: u8) -> Result<Vec<u32>, Damaged> {
        let position = index.identity.position;
        let mut is_damaged = false;
        let extras = self.extras_of(|range| {
            let mut places = Vec::new();
            is_damaged |= index.with_extra(*range.start(), *range.end(), &mut places).is_err();
            places
        });
        if is_damaged {
            return Err(Damaged);
        }
        let mut flows = Vec::new();
        self.flows_of(&self.query.expression, index, &mut flows)?;
        flows.sort_unstable();
        flows.dedup();
        let (mut places, mut of_flow) = (Vec::new(), Vec::new());
        for flow in flows {
            let key = index.key(flow as usize)?;
            let mut by_key = |term: usize| {
                let known = self.of_flow(term, Some(&key), part);
                let has_none =
                    || extras[term].is_empty() && matches!(self.query.terms[term], Term::Net(..));
                known.or_else(|| has_none().then_some(false))
            };
            match self.query.expression.holds(&mut by_key) {
                Some(false) => {}
                Some(true) => index.places(flow as usize, &mut places)?,
                None => {
                    of_flow.clear();
                    index.places(flow as usize, &mut of_flow)?;
                    of_flow.retain(|place| {
                        self.matches_at(Some(&key), position, *place, part, &extras)
                    });
                    places.extend_from_slice(&of_flow);
                }
            }
        }
        self.add_with_extras(index, part, &extras, &mut places)?;
        Ok(places)
    }

    /// Adds the matching packets among those that have an address in a header other than their
    /// flow's.
    fn add_with_extras(
        &self,
        index: &Index,
        part: u8,
        extras: &Extras,
        places: &mut Vec<u32>,
    ) -> Result<(), Damaged> {
        let mut rest: Vec<u32> = extras.iter().flatten().copied().collect();
        rest.sort_unstable();
        rest.dedup();
        // Most queries are decided by the address alone.
        rest.retain(|place| {
            let mut known = |term: usize| match &self.query.terms[term] {
                Term::Net(..) => extras[term].binary_search(place).ok().map(|_| true),
                _ => self.query.holds_in(term, part),
            };
            let holds = self.query.expression.holds(&mut known);
            if holds == Some(true) {
                places.push(*place);
            }
            holds.is_none()
        });
        if rest.is_empty() {
            return Ok(());
        }
        let position = index.identity.position;
        let mut has_flow = vec![false; rest.len()];
        let mut of_flow = Vec::new();
        for flow in 0..index.flows() {
            of_flow.clear();
            index.places(flow, &mut of_flow)?;
            let mut key = None;
            for place in &of_flow {
                let Ok(at) = rest.binary_search(place) else { continue };
                has_flow[at] = true;
                let key = match &key {
                    Some(key) => key,
                    None => key.insert(index.key(flow)?),
                };
                if self.matches_at(Some(key), position, *place, part, extras) {
                    places.push(*place);
                }
            }
        }
        let without = rest.iter().zip(&has_flow).filter(|(_, has_flow)| !**has_flow);
        let matching = without
            .map(|(place, _)| *place)
            .filter(|place| self.matches_at(None, position, *place, part, extras));
        places.extend(matching);
        Ok(())
    }

    /// Flows of an index of which packets can match, about how many.
    fn estimate(&self, expression: &Expression, index: &Index) -> usize {
        let all = index.flows();
        let of_term = |term: usize| match &self.query.terms[term] {
            asked if asked.is_of_events() => self.spans[term].keys(),
            Term::Net(first, last) if first == last => FLOWS_OF_HOST,
            Term::Net(..) => all / 2,
            Term::Flow([one, other], _) if one.addr.or(other.addr).is_some() => FLOWS_OF_HOST,
            _ => all,
        };
        let flows = match expression {
            Expression::Term(term) => of_term(*term),
            Expression::All(parts) => {
                parts.iter().map(|part| self.estimate(part, index)).min().unwrap_or(all)
            }
            Expression::Any(parts) => parts
                .iter()
                .fold(0, |sum: usize, part| sum.saturating_add(self.estimate(part, index))),
            Expression::Not(_) => all,
        };
        flows.min(all)
    }

    /// Adds the flows of which packets can match to `out`, apart from those in which only other
    /// headers do; some twice.
    fn flows_of(
        &self,
        expression: &Expression,
        index: &Index,
        out: &mut Vec<u32>,
    ) -> Result<(), Damaged> {
        let all = 0..index.flows() as u32;
        match expression {
            Expression::All(parts) => {
                let fewest = parts.iter().min_by_key(|part| self.estimate(part, index));
                fewest.map_or(Ok(()), |part| self.flows_of(part, index, out))
            }
            Expression::Any(parts) => {
                parts.iter().try_for_each(|part| self.flows_of(part, index, out))
            }
            Expression::Not(_) => {
                out.extend(all);
                Ok(())
            }
            Expression::Term(term) => match &self.query.terms[*term] {
                asked if asked.is_of_events() => named(&self.spans[*term], index, out),
                Term::Net(first, last) => index.with_address(*first, *last, out),
                Term::Flow([one, other], _) => match one.addr.or(other.addr) {
                    Some(addr) => index.with_address(addr, addr, out),
                    None => {
                        out.extend(all);
                        Ok(())
                    }
                },
                _ => {
                    out.extend(all);
                    Ok(())
                }
            },
        }
    }
}

/// Adds the flows of an index that have spans to `out`.
fn named(spans: &Spans, index: &Index, out: &mut Vec<u32>) -> Result<(), Damaged> {
    // The shorter list is looked up in the other.
    if spans.keys() < index.flows() {
        let position = index.identity.position;
        let end = position + index.bytes;
        for (key, of_key) in spans.iter() {
            if of_key.iter().any(|span| span.first < end && span.end > position) {
                let found: Vec<(usize, Scope)> = index.find(key)?;
                out.extend(found.into_iter().map(|(flow, _)| flow as u32));
            }
        }
    } else {
        for flow in 0..index.flows() {
            if !spans.of(&index.key(flow)?).is_empty() {
                out.push(flow as u32);
            }
        }
    }
    Ok(())
}
