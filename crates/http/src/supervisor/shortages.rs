//! Connections that were not made for want of room: the operator is told, and not once for each.

use crate::counts::Counts;

/// How often the counters are looked at, and how often a line is written at most, milliseconds.
const LOOK_MS: u64 = 1_000;
const TELL_MS: u64 = 10_000;

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Shortages {
    look_ms: u64,
    tell_ms: u64,
    shortages: u64,
    refused: u64,
}

impl Shortages {
    /// A line where there is something new.
    pub fn news(&mut self, now_ms: u64, counts: impl FnOnce() -> Counts) -> Option<String> {
        if now_ms < self.look_ms.max(self.tell_ms) {
            return None;
        }
        self.look_ms = now_ms + LOOK_MS;
        let Counts { shortages, refused_full, .. } = counts();
        let new = (shortages - self.shortages, refused_full - self.refused);
        let text = match new {
            (0, 0) => return None,
            (0, refused) => format!(
                "connections of clients refused, too many are open: {refused}; raise --clients-max, or lower --idle-timeout"
            ),
            (short, _) => format!(
                "connections not made, no more open files, memory or ports: {short}; raise the limit of open files (ulimit -Hn, \
                 LimitNOFILE=), or lower --clients-max"
            ),
        };
        (self.shortages, self.refused) = (shortages, refused_full);
        self.tell_ms = now_ms + TELL_MS;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind is told with its number, nothing is told twice, and a flood gives a line each ten seconds.
    #[test]
    fn told_seldom() {
        let mut shortages = Shortages::default();
        let counts = |shortages, refused_full| {
            move || Counts { shortages, refused_full, ..Counts::default() }
        };
        assert_eq!(shortages.news(0, counts(0, 0)), None);
        assert_eq!(shortages.news(500, counts(3, 0)), None, "it looks once a second");
        let line = shortages.news(1_000, counts(3, 2)).unwrap();
        assert!(line.contains("no more open files") && line.contains(": 3;"), "{line}");
        assert_eq!(shortages.news(2_000, counts(9, 9)), None);
        let line = shortages.news(11_000, counts(3, 7)).unwrap();
        assert!(line.contains("too many are open: 5;"), "{line}");
        assert_eq!(shortages.news(30_000, counts(3, 7)), None);
    }
}
