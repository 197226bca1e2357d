//! Queries of clients that wait for both responses: the resolver's, from the copy, and larder's.
//!
//! ```text
//! query seen -> open, and sent to the core --the resolver's response--> --larder's response--> closed: a pair
//!                    |                      the two in either order
//!                    | one missing after the time limit: lost, and counted by server
//! ```
//!
//! A query is identified by its client, transport, ID, and name, type and class. The same seen
//! again while it is open (a client's retry, or a packet that was captured twice) changes nothing.
//!
//! Bounds: [`OPEN_MAX`] queries, [`HELD_BYTES_MAX`] bytes of responses, [`UPSTREAM_QUERIES_MAX`]
//! queries of the resolver to its upstreams. Without room a query is skipped and counted. Cost: a
//! few hash lookups and allocations for a query.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use larder_wire::dns::query::{KeyBuf, Query};
use larder_wire::dns::{Message, read_wire_name};

use super::copy::Seen;
use super::replay::{Outcome, Replayed};

/// Queries that are open at one time.
pub(super) const OPEN_MAX: usize = 16_384;

/// Bytes of responses that wait for the other response.
pub(super) const HELD_BYTES_MAX: usize = 64 << 20;

/// Queries to upstreams that are stored, and for how long in the copy's time.
const UPSTREAM_QUERIES_MAX: usize = 65_536;
const UPSTREAM_QUERIES_NS: i64 = 30_000_000_000;

/// Time limit of a response in the copy's time: clients give up before.
pub(super) const THEIR_WAIT_NS: i64 = 10_000_000_000;

/// Identifies a query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    client: SocketAddr,
    id: u16,
    is_stream: bool,
    /// Name in wire form and lower case, type, class.
    question: Box<[u8]>,
}

/// State of an open query.
#[derive(Debug)]
struct Open {
    key: Key,
    seen_ns: i64,
    sent: Instant,
    recursion_desired: bool,
    is_counted: bool,
    theirs: Option<Theirs>,
    ours: Option<Ours>,
}

/// The resolver's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Theirs {
    pub bytes: Box<[u8]>,
    /// From query to response, if the times make sense.
    pub took_ns: Option<u64>,
    /// The resolver queried an upstream for the same name, type and class meanwhile.
    pub has_queried: bool,
}

/// Larder's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ours {
    /// `None`: a client would have received no response.
    pub bytes: Option<Vec<u8>>,
    pub took: Duration,
}

/// A query with both responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    /// Name in wire form and lower case, type, class.
    pub question: Box<[u8]>,
    pub recursion_desired: bool,
    /// It is counted: it arrived after the warm-up.
    pub is_counted: bool,
    pub theirs: Theirs,
    pub ours: Ours,
}

/// The result of adding a client's query.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// Send it to the core.
    Send(Replayed),
    /// It is open already.
    Repeated,
    /// It is not a valid query.
    Malformed,
    /// There is no room.
    Full,
}

/// Number of missing responses, by server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lost {
    pub theirs: u64,
    pub ours: u64,
}

/// All open queries.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    open: HashMap<u64, Open>,
    tags: HashMap<Key, u64>,
    /// Open queries, and some that have ended, in order.
    order: VecDeque<u64>,
    last_tag: u64,
    held_bytes: usize,
    /// Queries that wait for larder's response.
    in_flight: usize,
    /// When the resolver last sent or received this query.
    upstream: HashMap<Box<[u8]>, i64>,
    upstream_order: VecDeque<(i64, Box<[u8]>)>,
}

impl Pairs {
    /// Queries that wait for larder's response.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Adds a client's query.
    pub fn query(&mut self, seen: &Seen<'_>, now: Instant, is_counted: bool) -> Noted {
        let mut name = KeyBuf::new();
        let Ok(query) = Query::read(seen.message, &mut name) else { return Noted::Malformed };
        let key = Key {
            client: seen.client,
            id: query.id,
            is_stream: seen.is_stream,
            question: name.as_bytes().into(),
        };
        if self.tags.contains_key(&key) {
            return Noted::Repeated;
        }
        if self.open.len() >= OPEN_MAX || self.held_bytes >= HELD_BYTES_MAX {
            return Noted::Full;
        }
        self.last_tag += 1;
        let tag = self.last_tag;
        self.tags.insert(key.clone(), tag);
        let open = Open {
            key,
            seen_ns: seen.at_ns,
            sent: now,
            recursion_desired: query.recursion_desired,
            is_counted,
            theirs: None,
            ours: None,
        };
        self.open.insert(tag, open);
        self.order.push_back(tag);
        self.in_flight += 1;
        let message = seen.message.to_vec();
        Noted::Send(Replayed { tag, peer: seen.client, is_stream: seen.is_stream, message })
    }

    /// Adds the resolver's response. An error if it matches no open query.
    pub fn response(&mut self, seen: &Seen<'_>) -> Result<Option<Pair>, ()> {
        let question = question_of(seen.message).ok_or(())?;
        let id = u16::from_be_bytes(*seen.message.first_chunk().ok_or(())?);
        let key = Key { client: seen.client, id, is_stream: seen.is_stream, question };
        let tag = *self.tags.get(&key).ok_or(())?;
        let open = self.open.get_mut(&tag).ok_or(())?;
        if open.theirs.is_some() {
            return Err(());
        }
        // If a record has both times, they are of one clock.
        let query_ns = seen.query_ns.unwrap_or(open.seen_ns);
        let took_ns = seen.at_ns.checked_sub(query_ns).and_then(|took| u64::try_from(took).ok());
        let last = self.upstream.get(&key.question);
        let has_queried = last.is_some_and(|last_ns| *last_ns >= query_ns.min(open.seen_ns));
        self.held_bytes += seen.message.len();
        open.theirs = Some(Theirs { bytes: seen.message.into(), took_ns, has_queried });
        Ok(self.close_if_whole(tag))
    }

    /// Records a message between the resolver and its upstreams.
    pub fn upstream(&mut self, seen: &Seen<'_>) {
        let Some(question) = question_of(seen.message) else { return };
        while let Some((at_ns, _)) = self.upstream_order.front()
            && (self.upstream_order.len() >= UPSTREAM_QUERIES_MAX
                || seen.at_ns.saturating_sub(*at_ns) > UPSTREAM_QUERIES_NS)
        {
            let Some((at_ns, old)) = self.upstream_order.pop_front() else { break };
            if self.upstream.get(&old).is_some_and(|last_ns| *last_ns <= at_ns) {
                self.upstream.remove(&old);
            }
        }
        self.upstream_order.push_back((seen.at_ns, question.clone()));
        let last_ns = self.upstream.entry(question).or_insert(seen.at_ns);
        *last_ns = seen.at_ns.max(*last_ns);
    }

    /// Adds larder's response, and returns the pair if it is complete. `None` also if the query is
    /// no longer open.
    pub fn outcome(&mut self, outcome: Outcome) -> Option<Pair> {
        let open = self.open.get_mut(&outcome.tag)?;
        if open.ours.is_some() {
            return None;
        }
        let took = outcome.at.saturating_duration_since(open.sent);
        self.held_bytes += outcome.answer.as_ref().map_or(0, Vec::len);
        self.in_flight -= 1;
        open.ours = Some(Ours { bytes: outcome.answer, took });
        self.close_if_whole(outcome.tag)
    }

    /// Ends queries that have waited too long: for the resolver in the copy's time, for larder in
    /// real time. If `copy_ns` is `None`, the copy has ended.
    pub fn expire(&mut self, copy_ns: Option<i64>, now: Instant, our_wait: Duration) -> Lost {
        let mut lost = Lost::default();
        while let Some(tag) = self.order.front() {
            let tag = *tag;
            if let Some(open) = self.open.get(&tag) {
                let has_waited =
                    |copy_ns: i64| copy_ns.saturating_sub(open.seen_ns) > THEIR_WAIT_NS;
                let theirs = open.theirs.is_none() && copy_ns.is_none_or(has_waited);
                let ours =
                    open.ours.is_none() && now.saturating_duration_since(open.sent) > our_wait;
                if !theirs && !ours {
                    return lost;
                }
                if open.is_counted {
                    lost.theirs += u64::from(theirs);
                    lost.ours += u64::from(!theirs);
                }
                self.close(tag);
            }
            self.order.pop_front();
        }
        lost
    }

    fn close_if_whole(&mut self, tag: u64) -> Option<Pair> {
        let open = self.open.get(&tag)?;
        if open.theirs.is_none() || open.ours.is_none() {
            return None;
        }
        let open = self.close(tag)?;
        // Queries that end out of order stay in `order`: not many more of them than open ones.
        if self.order.len() > 2 * self.open.len() + 64 {
            let open = &self.open;
            self.order.retain(|tag| open.contains_key(tag));
        }
        Some(Pair {
            question: open.key.question,
            recursion_desired: open.recursion_desired,
            is_counted: open.is_counted,
            theirs: open.theirs?,
            ours: open.ours?,
        })
    }

    fn close(&mut self, tag: u64) -> Option<Open> {
        let open = self.open.remove(&tag)?;
        self.tags.remove(&open.key);
        let theirs = open.theirs.as_ref().map_or(0, |theirs| theirs.bytes.len());
        let ours = open.ours.as_ref().and_then(|ours| ours.bytes.as_ref()).map_or(0, Vec::len);
        self.held_bytes -= theirs + ours;
        self.in_flight -= usize::from(open.ours.is_none());
        Some(open)
    }
}

/// Name in wire form and lower case, type and class of the question in a message.
fn question_of(bytes: &[u8]) -> Option<Box<[u8]>> {
    let question = Message::parse(bytes).ok()?.question().ok()??;
    let mut out = Vec::new();
    read_wire_name(bytes, question.name_offset, &mut out).ok()?;
    out.make_ascii_lowercase();
    out.extend_from_slice(&question.qtype.to_be_bytes());
    out.extend_from_slice(&question.qclass.to_be_bytes());
    Some(out.into())
}

#[cfg(test)]
mod tests {
    use super::super::copy::Kind;
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    fn message(id: u16, name: &str, is_response: bool) -> Vec<u8> {
        let mut out = id.to_be_bytes().to_vec();
        out.extend_from_slice(&[1 | u8::from(is_response) << 7, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\0\0\x01\0\x01");
        out
    }

    fn seen(kind: Kind, at_ns: i64, message: &[u8]) -> Seen<'_> {
        let client = "192.0.2.7:4242".parse().unwrap();
        Seen { kind, client, is_stream: false, at_ns, query_ns: None, message }
    }

    fn outcome(tag: u64, at: Instant) -> Outcome {
        Outcome { tag, answer: Some(vec![1; 40]), at }
    }

    fn add_query(pairs: &mut Pairs, id: u16, at_ns: i64, now: Instant) -> u64 {
        let bytes = message(id, "Www", false);
        match pairs.query(&seen(Kind::ClientQuery, at_ns, &bytes), now, true) {
            Noted::Send(query) => query.tag,
            other => panic!("{other:?}"),
        }
    }

    /// Responses match in either order, and in any letter case of the name. A second response
    /// matches nothing.
    #[test]
    fn answers_meet() {
        let (mut pairs, now) = (Pairs::default(), Instant::now());
        let took = Duration::from_millis(3);
        for is_ours_first in [true, false] {
            let tag = add_query(&mut pairs, 7, 0, now);
            let again = message(7, "www", false);
            let again = pairs.query(&seen(Kind::ClientQuery, 1, &again), now, true);
            assert_eq!(again, Noted::Repeated);
            let response = message(7, "wWW", true);
            let response = seen(Kind::ClientResponse, 2_000_000, &response);
            let pair = if is_ours_first {
                assert_eq!(pairs.outcome(outcome(tag, now + took)), None);
                pairs.response(&response).unwrap()
            } else {
                assert_eq!(pairs.response(&response), Ok(None));
                assert_eq!(pairs.response(&response), Err(()));
                pairs.outcome(outcome(tag, now + took))
            };
            let pair = pair.unwrap();
            assert_eq!(&pair.question[..], b"\x03www\0\0\x01\0\x01");
            assert_eq!((pair.theirs.took_ns, pair.ours.took), (Some(2_000_000), took));
            assert_eq!(pairs.outcome(outcome(tag, now)), None);
            assert_eq!(pairs.response(&response), Err(()));
        }
        assert_eq!((pairs.in_flight(), pairs.held_bytes, pairs.open.len()), (0, 0, 0));
    }

    /// If the resolver queried an upstream meanwhile, it had no cached response. If it queried
    /// before, it had one.
    #[test]
    fn what_was_queried_upstream_was_not_known() {
        let (mut pairs, now) = (Pairs::default(), Instant::now());
        let (bytes, response) = (message(9, "www", false), message(7, "www", true));
        for (upstream_ns, has_queried) in [(10, false), (SECOND_NS + 10, true), (SECOND_NS, true)] {
            let mut pairs_now = Pairs::default();
            std::mem::swap(&mut pairs, &mut pairs_now);
            let kind = Kind::Upstream { is_query: true };
            pairs.upstream(&seen(kind, upstream_ns, &bytes));
            let tag = add_query(&mut pairs, 7, SECOND_NS, now);
            pairs.outcome(outcome(tag, now));
            let seen = seen(Kind::ClientResponse, 2 * SECOND_NS, &response);
            let pair = pairs.response(&seen).unwrap().unwrap();
            assert_eq!(pair.theirs.has_queried, has_queried, "{upstream_ns}");
        }
    }

    /// A missing response is noticed for either server, each in its own time, and memory is freed.
    #[test]
    fn nobody_waits_for_ever() {
        let (mut pairs, now) = (Pairs::default(), Instant::now());
        let wait = Duration::from_secs(5);
        let without_theirs = add_query(&mut pairs, 1, 0, now);
        let without_ours = message(2, "www", true);
        add_query(&mut pairs, 2, 0, now);
        pairs.outcome(outcome(without_theirs, now));
        pairs.response(&seen(Kind::ClientResponse, 1, &without_ours)).unwrap();
        assert_eq!(pairs.expire(Some(THEIR_WAIT_NS), now + wait, wait), Lost::default());
        let lost = pairs.expire(Some(THEIR_WAIT_NS + 1), now + wait, wait);
        assert_eq!(lost, Lost { theirs: 1, ours: 0 });
        let lost = pairs.expire(Some(0), now + wait * 2, wait);
        assert_eq!(lost, Lost { theirs: 0, ours: 1 });
        add_query(&mut pairs, 3, 0, now);
        assert_eq!(pairs.expire(None, now, wait), Lost { theirs: 1, ours: 0 });
        assert_eq!((pairs.in_flight(), pairs.held_bytes, pairs.order.len()), (0, 0, 0));
    }

    /// Open queries, and stored queries to upstreams, are bounded.
    #[test]
    fn nothing_grows_for_ever() {
        let (mut pairs, now) = (Pairs::default(), Instant::now());
        for id in 0..OPEN_MAX as u16 {
            add_query(&mut pairs, id, 0, now);
        }
        let bytes = message(u16::MAX, "www", false);
        let one_more = seen(Kind::ClientQuery, 0, &bytes);
        assert_eq!(pairs.query(&one_more, now, true), Noted::Full);
        for at in 0..UPSTREAM_QUERIES_MAX as i64 + 10 {
            let bytes = message(1, &format!("n{at}"), false);
            pairs.upstream(&seen(Kind::Upstream { is_query: true }, at, &bytes));
        }
        assert_eq!(pairs.upstream.len(), UPSTREAM_QUERIES_MAX);
        assert_eq!(pairs.upstream_order.len(), UPSTREAM_QUERIES_MAX);
        pairs.upstream(&seen(Kind::Upstream { is_query: true }, 60 * SECOND_NS, &bytes));
        assert_eq!((pairs.upstream.len(), pairs.upstream_order.len()), (1, 1));
        for cut in 0..bytes.len() {
            let cut = seen(Kind::ClientQuery, 0, &bytes[..cut]);
            assert_eq!(pairs.query(&cut, now, true), Noted::Malformed);
        }
    }
}
