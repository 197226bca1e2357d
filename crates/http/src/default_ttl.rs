//! An operator's rules, by status, for the lifetime of responses that state none.
//!
//! ```text
//! 404 for 10 s, 5xx for 1 s; status -> the rule that names it alone, else the one of its class, else none
//! ```
//!
//! Rules apply to responses that state nothing about caching (`Cache-Control`, `Expires`) and could
//! be stored if they did. A class of statuses excludes those about a request and not about its
//! object: with `4xx`, one client's oversized headers must not become every client's 431. For some
//! statuses no rule is accepted ([`NEVER`]).
//!
//! Bounds: a rule for each status and each class. Cost: a walk over the rules, for responses that
//! state nothing.

use std::str::FromStr;

/// Parts, updates, and statuses that depend on credentials or conditions of one request: no rule is
/// accepted for them.
pub const NEVER: [u16; 6] = [206, 304, 401, 407, 412, 416];

/// Statuses about a request, its length, form or time: only a rule that names the status applies.
const OF_REQUESTS: [u16; 14] =
    [400, 408, 411, 413, 414, 415, 417, 421, 422, 425, 426, 428, 429, 431];

/// A status, or a class of statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Statuses {
    first: u16,
    last: u16,
}

/// Why a word is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadStatuses {
    /// It is neither a status of a final response, as 404, nor a class, as 5xx.
    Form,
    /// It is one of [`NEVER`].
    Never,
}

impl std::fmt::Display for BadStatuses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BadStatuses::Form => "neither a status (200 to 599) nor a hundred of them (2xx to 5xx)",
            BadStatuses::Never => "a response with this status is for one request alone",
        })
    }
}

impl std::error::Error for BadStatuses {}

impl FromStr for Statuses {
    type Err = BadStatuses;

    /// `404`, or `4xx`.
    fn from_str(word: &str) -> Result<Statuses, BadStatuses> {
        let [hundred @ b'2'..=b'5', rest @ ..] = word.as_bytes() else {
            return Err(BadStatuses::Form);
        };
        let first = u16::from(hundred - b'0') * 100;
        match rest {
            b"xx" | b"XX" => Ok(Statuses { first, last: first + 99 }),
            [b'0'..=b'9', b'0'..=b'9'] => {
                let status = word.parse().map_err(|_| BadStatuses::Form)?;
                if NEVER.contains(&status) {
                    return Err(BadStatuses::Never);
                }
                Ok(Statuses { first: status, last: status })
            }
            _ => Err(BadStatuses::Form),
        }
    }
}

impl Statuses {
    fn is_one(self) -> bool {
        self.first == self.last
    }

    fn has(self, status: u16) -> bool {
        let is_left_out =
            NEVER.contains(&status) || !self.is_one() && OF_REQUESTS.contains(&status);
        (self.first..=self.last).contains(&status) && !is_left_out
    }
}

/// The rules of an operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusRules(Vec<(Statuses, u64)>);

impl StatusRules {
    /// Adds a rule: such responses are fresh for this many seconds. It replaces an earlier one for
    /// the same statuses.
    pub fn add(&mut self, statuses: Statuses, fresh_s: u64) {
        self.0.retain(|(it, _)| *it != statuses);
        self.0.push((statuses, fresh_s));
    }

    /// How long a response with this status is fresh, seconds, where a rule states it.
    pub fn fresh_s(&self, status: u16) -> Option<u64> {
        let named =
            |is_one: bool| self.0.iter().find(|(it, _)| it.is_one() == is_one && it.has(status));
        named(true).or_else(|| named(false)).map(|(_, fresh_s)| *fresh_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(all: &[(&str, u64)]) -> StatusRules {
        let mut rules = StatusRules::default();
        all.iter().for_each(|(word, fresh_s)| rules.add(word.parse().unwrap(), *fresh_s));
        rules
    }

    /// The rule that names a status comes before that of its class, in any order, and the last of
    /// two for the same statuses counts.
    #[test]
    fn narrower_first() {
        for rules in [
            rules(&[("404", 10), ("4xx", 2), ("5XX", 1)]),
            rules(&[("5xx", 1), ("404", 7), ("4xx", 2), ("404", 10)]),
        ] {
            let all = [404, 403, 410, 500, 599, 200, 302].map(|status| rules.fresh_s(status));
            assert_eq!(all, [Some(10), Some(2), Some(2), Some(1), Some(1), None, None]);
        }
        assert_eq!(StatusRules::default().fresh_s(404), None);
    }

    /// A class excludes statuses about a request. A named status is stored, unless no rule is
    /// accepted for it.
    #[test]
    fn left_out() {
        let all = rules(&[("2xx", 1), ("3xx", 1), ("4xx", 1), ("5xx", 1)]);
        for status in NEVER.iter().chain(&OF_REQUESTS) {
            assert_eq!(all.fresh_s(*status), None, "{status}");
        }
        for status in NEVER {
            assert_eq!(status.to_string().parse::<Statuses>(), Err(BadStatuses::Never));
        }
        assert_eq!(rules(&[("429", 5)]).fresh_s(429), Some(5));
    }

    /// An invalid word is refused.
    #[test]
    fn words() {
        for word in [
            "", "4", "40", "4x", "4xX", "xx", "1xx", "6xx", "100", "600", "0404", "+404", "4040",
            "40 ",
        ] {
            assert_eq!(word.parse::<Statuses>(), Err(BadStatuses::Form), "{word:?}");
        }
    }
}
