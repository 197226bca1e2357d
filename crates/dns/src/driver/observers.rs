//! Records messages: counters, dnstap, query log, notes for the page.
//!
//! Each response to a client is recorded once, when it is written, for all transports. Cost without
//! dnstap, query log and page: three checks.

use crate::core::{Client, Now, Source};
use crate::core_tap::CoreTap;
use crate::metrics::Counts;
use crate::page::Notes;
use crate::query_log::QueryLog;

/// The recorders of messages.
pub(super) struct Observers {
    /// Counters that the core does not have.
    pub counts: Counts,
    pub tap: Option<CoreTap>,
    pub log: Option<QueryLog>,
    pub notes: Option<Notes>,
}

impl Observers {
    /// Begins a turn.
    pub fn begin(&mut self, now: Now) {
        if let Some(tap) = &mut self.tap {
            tap.begin(now);
        }
        if let Some(log) = &mut self.log {
            log.begin(now);
        }
        if let Some(notes) = &mut self.notes {
            notes.begin(now);
        }
    }

    /// Sets the source of the responses from now on, and since when their clients wait.
    #[inline]
    pub fn describe(&mut self, source: Source, since_us: Option<u64>) {
        if let Some(log) = &mut self.log {
            log.describe(source, since_us);
        }
        if let Some(notes) = &mut self.notes {
            notes.describe(source, since_us);
        }
    }

    /// Records a query of a client.
    #[inline]
    pub fn query(&mut self, client: &Client, message: &[u8]) {
        if let Some(tap) = &mut self.tap {
            tap.client_query(client, message);
        }
    }

    /// Records a response to a client.
    #[inline]
    pub fn response(&mut self, client: &Client, message: &[u8]) {
        self.counts.answered(message);
        if let Some(tap) = &mut self.tap {
            tap.client_response(client, message);
        }
        if let Some(log) = &mut self.log {
            log.answered(client, message);
        }
        if let Some(notes) = &mut self.notes {
            notes.answered(client, message);
        }
    }

    /// Ends a turn: passes the records to their writers.
    pub fn flush(&mut self) {
        if let Some(tap) = &mut self.tap {
            tap.flush();
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}
