//! Spans: the positions between which packets of a key belong to flows with a name.

use std::collections::BTreeSet;

use larder_wire::scope::Scope;

use crate::FlowKey;
use crate::journal::{FlowSpan, StoredEvent, fits};
use crate::table::Table;

/// The positions in which packets of a key belong to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub first: u64,
    pub end: u64,
    /// The run of the flow. After a kill, the next one may begin before its last flows did.
    run: u64,
    /// The network of the flow; `None`: all networks.
    scope: Option<Scope>,
    /// The greatest end of the spans up to this one.
    end_max: u64,
}

/// Spans of flows with one of the names, by key without its network; those of a key by their
/// beginnings. A client that uses a port again and again makes many spans of one key: no operation
/// reads each of them.
#[derive(Debug)]
pub(super) struct Spans {
    list: Vec<(FlowKey, OfKey)>,
    /// Indexes in `list`, by key.
    table: Table,
    seed: u64,
}

/// Nearly all keys have one span, which needs no memory of its own.
#[derive(Debug)]
enum OfKey {
    One(Span),
    Many(Vec<Span>),
}

impl OfKey {
    fn as_slice(&self) -> &[Span] {
        match self {
            OfKey::One(span) => std::slice::from_ref(span),
            OfKey::Many(spans) => spans,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Span] {
        match self {
            OfKey::One(span) => std::slice::from_mut(span),
            OfKey::Many(spans) => spans,
        }
    }

    fn insert(&mut self, at: usize, span: Span) {
        if let OfKey::One(one) = *self {
            *self = OfKey::Many(vec![one]);
        }
        if let OfKey::Many(spans) = self {
            spans.insert(at, span);
        }
    }
}

impl Spans {
    /// `seed`: see [`Flows::new`](crate::flows::Flows::new).
    pub fn new(seed: u64) -> Spans {
        Spans { list: Vec::new(), table: Table::default(), seed }
    }

    /// How many keys have spans.
    pub fn keys(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&FlowKey, &[Span])> {
        self.list.iter().map(|(key, spans)| (key, spans.as_slice()))
    }

    /// Ends all spans at the beginning of a run.
    pub fn end_run(&mut self, position: u64) {
        for span in self.list.iter_mut().flat_map(|(_, spans)| spans.as_mut_slice()) {
            span.end = span.end.min(position);
            span.end_max = span.end_max.min(position);
        }
    }

    /// Ends each span at the beginning of the next run: flows do not last over two.
    pub fn end_runs(&mut self, runs: &BTreeSet<u64>) {
        for (_, spans) in &mut self.list {
            let mut end_max = 0;
            for span in spans.as_mut_slice() {
                let run_end = runs.range(span.run.saturating_add(1)..).next();
                span.end = run_end.map_or(span.end, |run_end| span.end.min(*run_end));
                end_max = span.end.max(end_max);
                span.end_max = end_max;
            }
        }
    }

    /// Adds the span of a flow of a run.
    pub fn add(&mut self, flow: FlowSpan, run: u64) {
        let FlowSpan { key, scope, first, end } = flow;
        let end = end.unwrap_or(u64::MAX);
        let span = Span { first, end, run, scope, end_max: end };
        let key = key.unscoped();
        let is_it = |number: u32| self.list[number as usize].0 == key;
        let hash_of = |number: u32| self.list[number as usize].0.hash(self.seed);
        let number =
            self.table.find_or_add(key.hash(self.seed), self.list.len(), is_it, hash_of) as usize;
        let Some((_, spans)) = self.list.get_mut(number) else {
            self.list.push((key, OfKey::One(span)));
            return;
        };
        let at = match place_of(spans.as_slice(), first) {
            Ok(at) => {
                let known = &mut spans.as_mut_slice()[at];
                match known.run == run {
                    true => known.end = known.end.min(end),
                    // Its packets were lost in a kill, and their positions used again.
                    false if known.run < run => *known = span,
                    false => {}
                }
                at
            }
            Err(at) => {
                spans.insert(at, span);
                at
            }
        };
        settle(spans.as_mut_slice(), at);
    }

    /// Applies the end of a flow of a run, if it has spans.
    pub fn limit(&mut self, flow: FlowSpan, run: u64) {
        if let Some(end) = flow.end
            && let Some(number) = self.number_of(&flow.key)
            && let (_, spans) = &mut self.list[number]
            && let Ok(at) = place_of(spans.as_slice(), flow.first)
        {
            let spans = spans.as_mut_slice();
            if spans[at].run == run {
                spans[at].end = spans[at].end.min(end);
                settle(spans, at);
            }
        }
    }

    /// The span of the flow of an event.
    pub fn of_event(&self, event: &StoredEvent) -> Option<Span> {
        let spans = self.of(&event.key);
        place_of(spans, event.first).ok().map(|at| spans[at])
    }

    pub fn of(&self, key: &FlowKey) -> &[Span] {
        self.number_of(key).map_or(&[], |number| self.list[number].1.as_slice())
    }

    fn number_of(&self, key: &FlowKey) -> Option<usize> {
        let key = key.unscoped();
        let is_it = |number: u32| self.list[number as usize].0 == key;
        self.table.find(key.hash(self.seed), is_it).map(|number| number as usize)
    }
}

/// The index of the span that begins at `first`, or its place if there is none.
fn place_of(spans: &[Span], first: u64) -> Result<usize, usize> {
    spans.binary_search_by_key(&first, |span| span.first)
}

/// Updates `end_max` from `at` on, after a change.
fn settle(spans: &mut [Span], at: usize) {
    let (before, rest) = spans.split_at_mut(at);
    let mut end_max = before.last().map_or(0, |span| span.end_max);
    for (index, span) in rest.iter_mut().enumerate() {
        end_max = end_max.max(span.end);
        if std::mem::replace(&mut span.end_max, end_max) == end_max && index > 0 {
            break;
        }
    }
}

/// True when the packet at `position`, of a flow of this network, is in one of the spans.
pub(super) fn is_in(spans: &[Span], scope: Scope, position: u64) -> bool {
    let begun = spans.partition_point(|span| span.first <= position);
    let mut spans = spans[..begun].iter().rev().take_while(|span| span.end_max > position);
    spans.any(|span| span.end > position && fits(span.scope, scope))
}

#[cfg(test)]
mod tests {
    use larder_wire::Addr;

    use super::*;

    /// A span ends with its flow or with its run. Packets of a run that was killed may be lost, and
    /// the next run's have their positions: then a span is that of the later run.
    #[test]
    fn spans_end_with_their_runs() {
        let (low, high) = (Addr::v4([10, 0, 0, 1]), Addr::v4([10, 0, 0, 2]));
        let (low_port, high_port, protocol) = (1, 2, 17);
        let key = FlowKey { low, high, low_port, high_port, protocol, scope: Scope::NONE };
        let flow = |first, end| FlowSpan { key, scope: None, first, end };
        let runs = BTreeSet::from([0, 100]);
        let ends = |spans: &Spans| -> Vec<(u64, u64)> {
            spans.of(&key).iter().map(|span| (span.first, span.end)).collect()
        };
        let later = [(flow(110, Some(150)), 100), (flow(130, None), 100)];
        let lost = [(flow(110, Some(115)), 0), (flow(10, None), 0), (flow(20, Some(30)), 0)];
        for flows in [[later, [lost[0], lost[1]]], [[lost[0], lost[1]], later]] {
            let mut spans = Spans::new(1);
            flows.concat().into_iter().for_each(|(flow, run)| spans.add(flow, run));
            spans.add(lost[2].0, lost[2].1);
            spans.end_runs(&runs);
            let all = [(10, 100), (20, 30), (110, 150), (130, u64::MAX)];
            assert_eq!(ends(&spans), all);
            spans.limit(flow(130, Some(140)), 0);
            assert_eq!(ends(&spans), all, "an end in another run");
            spans.limit(flow(130, Some(140)), 100);
            assert_eq!(ends(&spans)[3], (130, 140));
            let is_its = |position| is_in(spans.of(&key), Scope::NONE, position);
            assert_eq!(
                [5, 25, 50, 100, 120, 145, 150].map(is_its),
                [false, true, true, false, true, true, false]
            );
        }
    }
}
