//! Who learns of the messages that go by: the counts, the trace, the query log.
//!
//! Each answer to a client is noted once, when it is written, whatever carries it. Cost where nobody wants to know but the
//! counts: two looks at whether somebody does.

use crate::core::{Client, Now};
use crate::metrics::Counts;
use crate::query_log::QueryLog;
use crate::trace::Trace;

/// What is noted of messages.
pub(super) struct Notes {
    /// What the core does not see.
    pub counts: Counts,
    pub trace: Option<Trace>,
    pub log: Option<QueryLog>,
}

impl Notes {
    /// A turn begins.
    pub fn begin(&mut self, now: Now) {
        if let Some(trace) = &mut self.trace {
            trace.begin(now);
        }
        if let Some(log) = &mut self.log {
            log.begin(now);
        }
    }

    /// A client asked.
    #[inline]
    pub fn asked(&mut self, client: &Client, message: &[u8]) {
        if let Some(trace) = &mut self.trace {
            trace.asked(client, message);
        }
    }

    /// A client is answered.
    #[inline]
    pub fn answered(&mut self, client: &Client, message: &[u8]) {
        self.counts.answered(message);
        if let Some(trace) = &mut self.trace {
            trace.answered(client, message);
        }
        if let Some(log) = &mut self.log {
            log.answered(client, message);
        }
    }

    /// A turn ends: what was noted is handed over.
    pub fn flush(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.flush();
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}
