//! Log lines about searches that could not read the whole store: a client requests as often as it
//! likes, so that a line every [`EVERY`] has the number of those that were left out before it.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_serve::log::Log;

/// The time between two lines.
const EVERY: Duration = Duration::from_secs(10);

/// The log of all searches of a server.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    log: Log,
    last: Arc<Mutex<Last>>,
}

#[derive(Debug, Default)]
struct Last {
    at: Option<Instant>,
    omitted: u64,
}

impl Reports {
    pub fn new(log: Log) -> Reports {
        Reports { log, last: Arc::default() }
    }

    /// The store could not be read, and the client's response was aborted.
    pub fn failed(&self, error: &dyn Display) {
        if let Some(omitted) = self.begin(Instant::now()) {
            let line = self.log.error("search failed").text("error", error);
            drop(line.maybe("omitted", omitted));
        }
    }

    /// A part of the store could not be read, which the response says, too.
    pub fn lacks(&self, what: &str) {
        if let Some(omitted) = self.begin(Instant::now()) {
            let line = self.log.warn("search incomplete").text("reason", what);
            drop(line.maybe("omitted", omitted));
        }
    }

    /// `None`: it is too early for a line. Otherwise how many were left out, if any.
    fn begin(&self, now: Instant) -> Option<Option<u64>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.at.is_some_and(|at| now.saturating_duration_since(at) < EVERY) {
            last.omitted += 1;
            return None;
        }
        let omitted = std::mem::take(&mut last.omitted);
        last.at = Some(now);
        Some((omitted > 0).then_some(omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flood gives a line every ten seconds, and each line has the number of those before it.
    #[test]
    fn reports_are_bounded() {
        let (reports, start) = (Reports::default(), Instant::now());
        let at_s = |seconds: u64| reports.begin(start + Duration::from_secs(seconds));
        assert_eq!([at_s(0), at_s(1), at_s(9)], [Some(None), None, None]);
        assert_eq!([at_s(10), at_s(19), at_s(40)], [Some(Some(2)), None, Some(Some(1))]);
        assert_eq!(at_s(50), Some(None));
    }
}
