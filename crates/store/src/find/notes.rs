//! The flows of a segment that a query about names asks for, read by a thread of its own while the
//! search adds those of the segment before to the spans.
//!
//! Bounds: [`READ_AHEAD`] segments, each with some thousand flows of 80 bytes.

use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use super::segment::Opened;
use super::{FindOptions, Finder};
use crate::flow_event::Choice;
use crate::index::{Damaged, Index, NAMELESS, reversed};
use crate::journal::{FlowSpan, Head, StoredEvent};
use crate::options::StoreError;
use crate::query::{Query, Term};

/// Segments that are read ahead.
pub(super) const READ_AHEAD: usize = 4;

/// What a search looks for.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub query: &'a Query,
    pub options: FindOptions,
    /// Without the index.
    pub is_scan: bool,
}

/// What was read of a segment.
pub(super) struct OfSegment {
    pub number: u64,
    pub notes: Notes,
    pub opened: Opened,
}

impl Finder {
    /// Reads these segments, those that still exist, until an error, the end, or the search's.
    pub(super) fn read_notes(
        &self,
        numbers: &[u64],
        asked: Asked<'_>,
        sender: &SyncSender<Result<OfSegment, StoreError>>,
    ) {
        for number in numbers {
            if self.is_unwanted.load(Ordering::Acquire) {
                break;
            }
            let Some(segment) = self.notes_of(*number, asked).transpose() else { continue };
            let is_last = segment.is_err();
            if sender.send(segment).is_err() || is_last {
                break;
            }
        }
    }

    fn notes_of(&self, number: u64, asked: Asked<'_>) -> Result<Option<OfSegment>, StoreError> {
        let Some(mut opened) = self.open_segment(number)? else { return Ok(None) };
        let notes = match Notes::read(&opened.index, asked) {
            Ok(notes) => notes,
            Err(Damaged) => {
                opened.look_through(self.seed).map_err(StoreError::at(&opened.path))?;
                // What was made just now is sound.
                Notes::read(&opened.index, asked).unwrap_or_default()
            }
        };
        Ok(Some(OfSegment { number, notes, opened }))
    }
}

/// The flows of an index that match.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Flows that meet a condition about names, and its number.
    pub named: Vec<(usize, FlowSpan)>,
    /// Flows that have ended; their names may be in another index.
    pub ends: Vec<FlowSpan>,
}

impl Notes {
    /// Those of an index.
    pub fn read(index: &Index, asked: Asked<'_>) -> Result<Notes, Damaged> {
        let mut notes = Notes::default();
        notes.add(index, asked)?;
        Ok(notes)
    }

    fn add(&mut self, index: &Index, asked: Asked<'_>) -> Result<(), Damaged> {
        let Asked { query, options, is_scan } = asked;
        if is_scan {
            for event in index.events()? {
                if event.end.is_some() {
                    self.ends.push(event.span());
                }
                let terms = terms_of(&event, query, options);
                self.named.extend(terms.map(|term| (term, event.span())));
            }
            return Ok(());
        }
        index.names(b"", |name| {
            if name.text.is_empty() && name.role == NAMELESS {
                self.ends.push(index.head(name.event)?.span);
            }
            Ok(name.text.is_empty())
        })?;
        if query.choices().next().is_some() {
            for head in index.heads()? {
                let Head { span, choices, .. } = head?;
                let met = query.choices().filter(|(_, term)| has_choice(&choices, term));
                self.named.extend(met.map(|(term, _)| (term, span)));
            }
        }
        for (term, pattern) in query.names() {
            let (prefix, is_exact) = pattern.prefix();
            let mut is_match = is_exact;
            index.names(&prefix, |name| {
                if is_exact && name.text != prefix {
                    return Ok(false);
                }
                if name.is_new && !is_exact {
                    is_match = pattern.matches(&reversed(name.text));
                }
                if is_match && name.role != NAMELESS && options.wants_role(name.role) {
                    self.named.push((term, index.head(name.event)?.span));
                }
                Ok(true)
            })?;
        }
        Ok(())
    }
}

fn has_choice(choices: &[Option<Choice>; 2], term: &Term) -> bool {
    choices.iter().flatten().any(|choice| term.matches_choice(choice))
}

/// Numbers of the terms that the event meets.
pub(super) fn terms_of<'a>(
    event: &'a StoredEvent,
    query: &'a Query,
    options: FindOptions,
) -> impl Iterator<Item = usize> + 'a {
    let named = query.names().filter(move |(_, pattern)| {
        let mut names = event.names.iter();
        names
            .any(|(role, name)| options.wants_role(*role as u8) && pattern.matches(name.as_bytes()))
    });
    let chosen = query.choices().filter(|(_, term)| has_choice(&event.choices, term));
    named.map(|(term, _)| term).chain(chosen.map(|(term, _)| term))
}
