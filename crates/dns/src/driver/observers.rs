//! Who learns of the messages that go by: the counts, the tap, the query log.
//!
//! Each answer to a client is noted once, when it is written, whatever carries it. Cost where
//! nobody wants to know but the counts: two looks at whether somebody does.

use crate::core::{Client, Now};
use crate::core_tap::CoreTap;
use crate::metrics::Counts;
use crate::query_log::QueryLog;

/// What is noted of messages.
pub(super) struct Observers {
    /// What the core does not see.
    pub counts: Counts,
    pub tap: Option<CoreTap>,
    pub log: Option<QueryLog>,
}

impl Observers {
    /// A turn begins.
    pub fn begin(&mut self, now: Now) {
        if let Some(tap) = &mut self.tap {
            tap.begin(now);
        }
        if let Some(log) = &mut self.log {
            log.begin(now);
        }
    }

    /// A client asked.
    #[inline]
    pub fn asked(&mut self, client: &Client, message: &[u8]) {
        if let Some(tap) = &mut self.tap {
            tap.asked(client, message);
        }
    }

    /// A client is answered.
    #[inline]
    pub fn answered(&mut self, client: &Client, message: &[u8]) {
        self.counts.answered(message);
        if let Some(tap) = &mut self.tap {
            tap.answered(client, message);
        }
        if let Some(log) = &mut self.log {
            log.answered(client, message);
        }
    }

    /// A turn ends: what was noted is handed over.
    pub fn flush(&mut self) {
        if let Some(tap) = &mut self.tap {
            tap.flush();
        }
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }
}
