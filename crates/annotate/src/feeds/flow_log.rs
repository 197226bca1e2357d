//! A log of flows in either form, Zeek or EVE, read line by line and written again with columns.

use super::dns_observation::DnsObservation;
use super::forms::Query;
use super::input::LogReader;
use super::zeek::Column;
use super::{eve, zeek};

/// The form of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Zeek,
    Eve,
}

/// A log that is read and annotated.
pub(super) enum Reader {
    Zeek(zeek::Log<LogReader>),
    Eve(eve::Log<LogReader>),
}

/// The kind of a line of either log.
#[derive(Clone, Copy)]
pub(super) enum Item {
    Zeek(zeek::Item),
    Eve(eve::Item),
}

impl Reader {
    pub fn new(form: Form, input: LogReader) -> Reader {
        match form {
            Form::Zeek => Reader::Zeek(zeek::Log::new(input)),
            Form::Eve => Reader::Eve(eve::Log::new(input)),
        }
    }

    pub fn advance(&mut self) -> std::io::Result<Option<Item>> {
        Ok(match self {
            Reader::Zeek(log) => log.advance()?.map(Item::Zeek),
            Reader::Eve(log) => log.advance()?.map(Item::Eve),
        })
    }

    pub fn line(&self) -> &[u8] {
        match self {
            Reader::Zeek(log) => log.line(),
            Reader::Eve(log) => log.line(),
        }
    }

    /// True when no whole line is left to read.
    pub fn is_drained(&self) -> bool {
        let bytes = match self {
            Reader::Zeek(log) => log.input(),
            Reader::Eve(log) => log.input(),
        };
        !bytes.buffer().contains(&b'\n')
    }

    pub fn query(&self, item: Item) -> Query {
        match (self, item) {
            (Reader::Zeek(log), Item::Zeek(item)) => {
                Query { said: log.said(item), ..Query::of(log.flow_ends(item), false) }
            }
            (Reader::Eve(log), Item::Eve(_)) => {
                let event = log.event();
                Query {
                    said: event.said.clone(),
                    observation: event.dns.as_ref().and_then(DnsObservation::of_row),
                    ..Query::of(event.ends, event.from_responder)
                }
            }
            _ => Query::default(),
        }
    }

    pub fn write_with(&self, item: Item, columns: &[Column<'_>], out: &mut Vec<u8>) {
        match (self, item) {
            (Reader::Zeek(log), Item::Zeek(item)) => log.write_with(item, columns, out),
            (Reader::Eve(log), Item::Eve(item)) => {
                let keys: Vec<_> =
                    columns.iter().map(|column| (column.name, column.value)).collect();
                log.write_with(item, &keys, out);
            }
            _ => out.extend_from_slice(self.line()),
        }
    }
}

impl Item {
    pub fn is_damaged(self) -> bool {
        matches!(
            self,
            Item::Zeek(zeek::Item::Damaged { first: true })
                | Item::Eve(eve::Item::Damaged { first: true })
        )
    }
}
