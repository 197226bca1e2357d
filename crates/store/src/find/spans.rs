//! Spans: the positions between which packets of a key belong to flows with a name.

use std::collections::HashMap;

use larder_wire::scope::Scope;

use crate::FlowKey;
use crate::flow_names::key_bytes;
use crate::journal::{StoredEvent, fits};

/// The positions in which packets of a key belong to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub first: u64,
    pub end: u64,
    /// The network of the flow; `None`: all networks.
    scope: Option<Scope>,
    /// The greatest end of the spans up to this one.
    end_max: u64,
}

/// Spans of flows with one of the names, by key; those of a key by their beginnings. A client that
/// uses a port again and again makes many spans of one key: no operation reads each of them.
#[derive(Debug, Default)]
pub(super) struct Spans(pub HashMap<[u8; 37], (FlowKey, Vec<Span>)>);

impl Spans {
    /// Ends all spans at the beginning of a run.
    pub fn end_run(&mut self, position: u64) {
        let spans = self.0.values_mut().flat_map(|(_, spans)| spans);
        spans.for_each(|span| {
            span.end = span.end.min(position);
            span.end_max = span.end_max.min(position);
        });
    }

    /// Adds an event of a run that ends at `run_end`.
    pub fn add(&mut self, event: &StoredEvent, run_end: u64) {
        let end = event.end.unwrap_or(run_end).min(run_end);
        let (_, spans) =
            self.0.entry(key_bytes(&event.key)).or_insert_with(|| (event.key, Vec::new()));
        let at = match place_of(spans, event.first) {
            Ok(at) => {
                spans[at].end = spans[at].end.min(end);
                at
            }
            Err(at) => {
                let StoredEvent { first, scope, .. } = *event;
                spans.insert(at, Span { first, end, scope, end_max: end });
                at
            }
        };
        settle(spans, at);
    }

    /// Applies an event that only has the end of a flow.
    pub fn limit(&mut self, event: &StoredEvent) {
        if let Some((_, spans)) = self.0.get_mut(&key_bytes(&event.key))
            && let Ok(at) = place_of(spans, event.first)
            && let Some(end) = event.end
        {
            spans[at].end = spans[at].end.min(end);
            settle(spans, at);
        }
    }

    /// The span of the flow of an event.
    pub fn of_event(&self, event: &StoredEvent) -> Option<Span> {
        let spans = self.of(&event.key);
        place_of(spans, event.first).ok().map(|at| spans[at])
    }

    pub fn of(&self, key: &FlowKey) -> &[Span] {
        self.0.get(&key_bytes(key)).map_or(&[], |(_, spans)| spans)
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
