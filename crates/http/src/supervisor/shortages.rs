//! Connections that failed because of a limit: one log line for many of them.

use larder_serve::log::Log;

use crate::counts::Counts;

/// How often the counters are read, and how often a line is logged at most, milliseconds.
const LOOK_MS: u64 = 1_000;
const REPORT_MS: u64 = 10_000;

/// The numbers that were logged last, and when to look next.
#[derive(Debug, Default)]
pub(super) struct Shortages {
    look_ms: u64,
    report_ms: u64,
    shortages: u64,
    refused: u64,
}

impl Shortages {
    /// Logs new failures.
    pub fn look(&mut self, now_ms: u64, counts: impl FnOnce() -> Counts, log: &Log) {
        if now_ms < self.look_ms.max(self.report_ms) {
            return;
        }
        self.look_ms = now_ms + LOOK_MS;
        let Counts { shortages, refused_full, .. } = counts();
        let new = (shortages - self.shortages, refused_full - self.refused);
        match new {
            (0, 0) => return,
            (0, refused) => {
                let hint = "raise --clients-max, or lower --idle-timeout";
                log.warn("clients refused").number("count", refused).text("hint", hint);
            }
            (short, _) => {
                let reason = "no more open files, memory or ports";
                let hint = "raise the limit of open files (ulimit -Hn, LimitNOFILE=), or lower --clients-max";
                let line = log.warn("connections failed").number("count", short);
                line.text("reason", reason).text("hint", hint);
            }
        }
        (self.shortages, self.refused) = (shortages, refused_full);
        self.report_ms = now_ms + REPORT_MS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_serve::log::{Format, Level};

    /// Each kind is logged with its number, and no failure twice. A flood gives a line every ten
    /// seconds.
    #[test]
    fn reported_seldom() {
        let mut shortages = Shortages::default();
        let counts = |shortages, refused_full| {
            move || Counts { shortages, refused_full, ..Counts::default() }
        };
        let log = Log::new("http", Level::Info, Format::Text);
        let mut look = |now_ms, short, refused| {
            shortages.look(now_ms, counts(short, refused), &log);
            log.take()
        };
        assert!(look(0, 0, 0).is_empty());
        assert!(look(500, 3, 0).is_empty(), "it looks once a second");
        let lines = look(1_000, 3, 2);
        assert!(lines[0].starts_with("warn http: connections failed count=3 "), "{lines:?}");
        assert!(look(2_000, 9, 9).is_empty());
        let lines = look(11_000, 3, 7);
        assert!(lines[0].starts_with("warn http: clients refused count=5 "), "{lines:?}");
        assert!(look(30_000, 3, 7).is_empty());
    }
}
