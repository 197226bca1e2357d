//! TCP to upstreams (RFC 7766): few connections, which are reused, many queries on each, responses
//! in any order.
//!
//! The event loop calls in each turn, and nothing here waits or reads a clock:
//!
//! ```text
//! poller.wait(events, upstream_tcp.wait_ms(now))
//! a token that it owns(): ready(), which calls each(tag, outcome)
//! ask(), cancel(): from within `each` or in any turn
//! expire(), and at the end of the turn flush(): sends the queries of the turn together
//! ```
//!
//! A query that was accepted has exactly one end: a response, a failure, or `cancel`.
//!
//! | a connection | ends after | and then its queries |
//! |---|---|---|
//! | connecting | `connect_ms` | fail |
//! | busy: has queries | `silent_ms` without a response, or if it is lost | are retried once if it ever responded, or fail |
//! | busy | a message that cannot be a response | fail |
//! | idle | `idle_ms`, or if it is lost | |
//!
//! Servers close connections at any time, and middleboxes forget them, so an idle connection may be
//! found dead only by a query. That is why queries are stored until their response. A retry is on a
//! new connection, since another idle one may be dead too (section 6.2.4).
//!
//! A canceled query keeps its ID until its response arrives or the connection ends, so a late
//! response is never taken for another one.
//!
//! Invariants
//! 1. `tags` leads from each tag to the connection and ID of its query, and nowhere else.
//! 2. `routes` has every connection once, under its route.
//! 3. A connection is connecting; or busy if it has queries, canceled ones included; or idle. Each
//!    state has its list in the table.
//! 4. Only `flush` changes the poller's interest in a connection.
//!
//! Bounds: [`Limits`]. In addition, a connection stores its queries, and less than one response and
//! one read. Cost: O(log queries of the connection) for a query and for a response, a copy of each
//! query, and a walk over the connections to its upstream. A turn has one read for each ready
//! connection, and one write for each connection with new queries.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use larder_io::epoll::{Event, Interest, Poller, Watched};
use larder_io::random::Random;
use larder_io::tcp;

use crate::tcp_framing::{
    Frames, Lengths, MESSAGE_BYTES_MAX, READ_BYTES, Received, Unsent, receive,
};
use larder_io::table::{Id, Table};

mod limits;
#[cfg(test)]
mod tests;

pub use limits::{Counters, Failure, Limits, Outcome, Refused};

/// Bytes of a header: a shorter message is not valid.
const HEAD_BYTES: usize = 12;

/// Lengths of messages.
const LENGTHS: Lengths = Lengths { least: HEAD_BYTES, most: MESSAGE_BYTES_MAX };

/// Responses without a query that a connection may have; one more ends it.
const STRAYS_MAX: u32 = 64;

// The lists of the table.
const CONNECTING: usize = 0;
const BUSY: usize = 1;
const IDLE: usize = 2;

/// Both ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Route {
    upstream: SocketAddr,
    local: Option<IpAddr>,
}

#[derive(Debug)]
struct Connection {
    socket: Watched<TcpStream>,
    route: Route,
    is_connected: bool,
    frames: Frames,
    unsent: Unsent,
    /// Queries by their ID on this connection.
    queries: BTreeMap<u16, Query>,
    /// The upstream has responded: it supports TCP.
    has_answered: bool,
    strays: u32,
    /// The poller's interest.
    interest: Interest,
    is_dirty: bool,
}

#[derive(Debug)]
struct Query {
    /// `None` if it was cancelled.
    tag: Option<u64>,
    /// Stored for a retry. Empty if it was canceled.
    message: Vec<u8>,
    /// It was on another connection before.
    is_retry: bool,
}

/// All connections of a core to upstreams. See the module header.
#[derive(Debug)]
pub struct UpstreamTcp {
    limits: Limits,
    table: Table<Connection, 3>,
    routes: HashMap<Route, Vec<Id>>,
    tags: HashMap<u64, (Id, u16)>,
    /// Connections that `flush` has to process, each once.
    dirty: Vec<Id>,
    random: Random,
    counters: Counters,
    /// Buffer of reads; taken out while its responses are processed.
    read_room: Box<[u8]>,
}

impl UpstreamTcp {
    /// No connections yet. `space` is the highest byte of their tokens, and of no others.
    pub fn new(limits: Limits, space: u8) -> UpstreamTcp {
        let limits = limits.within();
        UpstreamTcp {
            table: Table::new(space, limits.connections_max),
            limits,
            routes: HashMap::new(),
            tags: HashMap::new(),
            dirty: Vec::new(),
            random: Random::new(),
            counters: Counters::default(),
            read_room: vec![0; READ_BYTES].into(),
        }
    }

    /// Connections, those that are being made included.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True without connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queries that have not ended.
    pub fn in_flight(&self) -> usize {
        self.tags.len()
    }

    /// Counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether a token belongs to a connection, open or closed since.
    pub fn owns(&self, token: u64) -> bool {
        self.table.owns(token)
    }

    /// Accepts a query for an upstream, from a local address if one is given. The next `flush`
    /// sends it with an ID of its own, on the connection with the fewest queries. `tag` names it
    /// from now on.
    pub fn query(
        &mut self,
        upstream: SocketAddr,
        local: Option<IpAddr>,
        tag: u64,
        message: &[u8],
        poller: &Poller,
        now_ms: u64,
    ) -> Result<(), Refused> {
        if !(LENGTHS.least..=LENGTHS.most).contains(&message.len()) {
            return Err(Refused::BadLength);
        }
        if self.tags.contains_key(&tag) {
            return Err(Refused::TagInUse);
        }
        let route = Route { upstream, local };
        let kept = self.choose(route, message.len());
        let connection = match kept {
            Some(kept) => kept,
            None => self.open(route, poller, now_ms)?,
        };
        let query = Query { tag: Some(tag), message: message.to_vec(), is_retry: false };
        self.put(connection, query, now_ms).map_err(Refused::Machine)?;
        self.counters.queries += 1;
        self.counters.reused += u64::from(kept.is_some());
        Ok(())
    }

    /// The connection of a route with the fewest queries, if it has room for one more.
    fn choose(&self, route: Route, message_bytes: usize) -> Option<Id> {
        let all = self.routes.get(&route)?.iter();
        let roomy = all.filter_map(|&id| Some((self.load(id, message_bytes)?, id)));
        roomy.min_by_key(|&(load, _)| load).map(|(_, id)| id)
    }

    /// Queries of a connection; `None` if it has no room for another.
    fn load(&self, id: Id, message_bytes: usize) -> Option<usize> {
        let connection = self.table.get(id)?;
        let load = connection.queries.len();
        let unsent_bytes = connection.unsent.len() + 2 + message_bytes;
        let is_roomy =
            load < self.limits.in_flight_max && unsent_bytes <= self.limits.unsent_bytes_max;
        is_roomy.then_some(load)
    }

    /// Begins to connect.
    fn open(&mut self, route: Route, poller: &Poller, now_ms: u64) -> Result<Id, Refused> {
        let count = self.routes.get(&route).map_or(0, Vec::len);
        if count >= self.limits.per_upstream_max || !self.make_place() {
            self.counters.refused_full += 1;
            return Err(Refused::Full);
        }
        let local = route.local.map(|local| SocketAddr::new(local, 0));
        let options = tcp::ConnectOptions { local, fast_open: false };
        let connection = Connection {
            socket: tcp::connect(route.upstream, &options)
                .map(Watched::new)
                .map_err(Refused::Machine)?,
            route,
            is_connected: false,
            frames: Frames::default(),
            unsent: Unsent::default(),
            queries: BTreeMap::new(),
            has_answered: false,
            strays: 0,
            interest: Interest::WRITE,
            is_dirty: false,
        };
        let id = self.table.insert(connection, CONNECTING, now_ms).map_err(|_| Refused::Full)?;
        self.routes.entry(route).or_default().push(id);
        self.counters.opened += 1;
        let token = self.table.token(id);
        let watched = self.table.get(id).map(|it| poller.add(&it.socket, token, it.interest));
        if let Some(Err(error)) = watched {
            self.remove(id);
            return Err(Refused::Machine(error));
        }
        Ok(id)
    }

    /// Makes room for a connection, if necessary by closing the one that has been idle for longest;
    /// false if there is none.
    fn make_place(&mut self) -> bool {
        if self.table.len() < self.table.entries_max() {
            return true;
        }
        let idle = self.table.oldest(IDLE).map(|(id, _)| id);
        self.counters.ended_crowded += u64::from(idle.is_some());
        idle.is_some_and(|id| self.remove(id).is_some())
    }

    /// Adds a query to a connection that has room for it.
    fn put(&mut self, id: Id, mut query: Query, now_ms: u64) -> io::Result<()> {
        let mut name = self.random.u16()?;
        let Some(connection) = self.table.get_mut(id) else { return Ok(()) };
        // An ID in use leads to the next free one: there are four times as many as queries.
        while connection.queries.contains_key(&name) {
            name = name.wrapping_add(1);
        }
        query.message[..2].copy_from_slice(&name.to_be_bytes());
        connection.unsent.push(&query.message);
        if let Some(tag) = query.tag {
            self.tags.insert(tag, (id, name));
        }
        connection.queries.insert(name, query);
        if self.table.list_of(id) == Some(IDLE) {
            self.table.wait_in(id, BUSY, now_ms);
        }
        self.mark(id);
        Ok(())
    }

    /// Ends the query with this tag without an outcome; false if there is none.
    pub fn cancel(&mut self, tag: u64) -> bool {
        let Some((id, name)) = self.tags.remove(&tag) else { return false };
        let connection = self.table.get_mut(id);
        if let Some(query) = connection.and_then(|it| it.queries.get_mut(&name)) {
            (query.tag, query.message) = (None, Vec::new());
        }
        true
    }

    /// Reads once from a ready connection, and passes outcomes to `each`. Events of closed
    /// connections, and of other tokens, are ignored. Called from within `each`, it does nothing,
    /// and the poller reports the event again.
    pub fn ready(
        &mut self,
        event: Event,
        poller: &Poller,
        now_ms: u64,
        mut each: impl FnMut(&mut UpstreamTcp, u64, Outcome<'_>),
    ) {
        let Some(id) = self.table.id_of(event.token) else { return };
        let mut room = std::mem::take(&mut self.read_room);
        if room.is_empty() {
            return;
        }
        let end = self.go_on(id, event, &mut room, now_ms, &mut each);
        if let Err(failure) = end {
            self.fail(id, failure, poller, now_ms, &mut each);
        }
        self.read_room = room;
        self.mark(id);
    }

    /// Processes an event; an error ends the connection.
    fn go_on(
        &mut self,
        id: Id,
        event: Event,
        room: &mut [u8],
        now_ms: u64,
        each: &mut impl FnMut(&mut UpstreamTcp, u64, Outcome<'_>),
    ) -> Result<(), Failure> {
        let Some(connection) = self.table.get_mut(id) else { return Ok(()) };
        if !connection.is_connected {
            if !event.writable {
                return Ok(());
            }
            if !matches!(connection.socket.take_error(), Ok(None)) {
                return Err(Failure::NotConnected);
            }
            connection.is_connected = true;
            let list = if connection.queries.is_empty() { IDLE } else { BUSY };
            self.table.wait_in(id, list, now_ms);
            return Ok(());
        }
        if !event.readable {
            return Ok(());
        }
        match receive(&*connection.socket, room) {
            Received::Bytes(count) => {
                self.counters.bytes_in += count as u64;
                self.hand_out(id, &room[..count], now_ms, each)
            }
            Received::Nothing => Ok(()),
            Received::End | Received::Lost => Err(Failure::Lost),
        }
    }

    /// Passes on the responses in the stored bytes and in `fresh`.
    fn hand_out(
        &mut self,
        id: Id,
        mut fresh: &[u8],
        now_ms: u64,
        each: &mut impl FnMut(&mut UpstreamTcp, u64, Outcome<'_>),
    ) -> Result<(), Failure> {
        let Some(connection) = self.table.get_mut(id) else { return Ok(()) };
        let mut frames = std::mem::take(&mut connection.frames);
        while let Some(message) = frames.next(&mut fresh, LENGTHS).map_err(|_| Failure::Broken)? {
            // Looked up each time: a query of `each` may have replaced it.
            let Some(connection) = self.table.get_mut(id) else { return Ok(()) };
            let name = u16::from_be_bytes([message[0], message[1]]);
            let Some(query) = connection.queries.remove(&name) else {
                self.counters.strays += 1;
                connection.strays += 1;
                if connection.strays > STRAYS_MAX {
                    return Err(Failure::Broken);
                }
                continue;
            };
            connection.has_answered = true;
            let list = if connection.queries.is_empty() { IDLE } else { BUSY };
            self.table.wait_in(id, list, now_ms);
            let Some(tag) = query.tag else {
                self.counters.late += 1;
                continue;
            };
            self.tags.remove(&tag);
            self.counters.answered += 1;
            each(self, tag, Outcome::Answer(message));
        }
        if let Some(connection) = self.table.get_mut(id) {
            frames.keep(fresh);
            connection.frames = frames;
        }
        Ok(())
    }

    /// Ends an unusable connection: its queries fail, or are retried once.
    fn fail(
        &mut self,
        id: Id,
        failure: Failure,
        poller: &Poller,
        now_ms: u64,
        each: &mut impl FnMut(&mut UpstreamTcp, u64, Outcome<'_>),
    ) {
        let Some(connection) = self.remove(id) else { return };
        if connection.queries.is_empty() && failure == Failure::Lost {
            self.counters.ended_idle += 1;
            return;
        }
        self.counters.ended[failure as usize] += 1;
        let retries = connection.has_answered && matches!(failure, Failure::Lost | Failure::Silent);
        let mut fresh = None;
        let mut failed = Vec::new();
        for query in connection.queries.into_values() {
            let Some(tag) = query.tag else { continue };
            self.tags.remove(&tag);
            if retries && !query.is_retry {
                let length = query.message.len();
                let place = fresh
                    .get_or_insert_with(|| self.open(connection.route, poller, now_ms).ok())
                    .filter(|&new| self.load(new, length).is_some());
                let again = Query { is_retry: true, ..query };
                if place.is_some_and(|new| self.put(new, again, now_ms).is_ok()) {
                    self.counters.retried += 1;
                    continue;
                }
            }
            failed.push(tag);
        }
        // Called when the state is consistent, since `each` may send queries.
        for tag in failed {
            self.counters.failed += 1;
            each(self, tag, Outcome::Failed(failure));
        }
    }

    /// Ends a turn: sends its queries, and updates the poller. Call it between the last event of a
    /// wait and the next wait.
    pub fn flush(
        &mut self,
        poller: &Poller,
        now_ms: u64,
        mut each: impl FnMut(&mut UpstreamTcp, u64, Outcome<'_>),
    ) {
        // This ends: a connection is processed again only for queries. Queries of failed
        // connections move to connections that are not established yet, or are retried once.
        while let Some(id) = self.dirty.pop() {
            let token = self.table.token(id);
            let Some(connection) = self.table.get_mut(id) else { continue };
            connection.is_dirty = false;
            if !connection.is_connected {
                continue;
            }
            let sent = connection.unsent.send(&*connection.socket);
            let is_stuck = connection.unsent.len() > 0;
            let interest = if is_stuck { Interest::BOTH } else { Interest::READ };
            // Nothing else calls `modify` (invariant 4).
            let registered = if interest == connection.interest {
                Ok(())
            } else {
                connection.interest = interest;
                poller.modify(&connection.socket, token, interest)
            };
            self.counters.bytes_out += *sent.as_ref().unwrap_or(&0) as u64;
            if sent.is_err() || registered.is_err() {
                self.fail(id, Failure::Lost, poller, now_ms, &mut each);
            }
        }
    }

    /// Closes the connections whose time is up. Their queries may go to new ones, so `flush`
    /// follows.
    pub fn expire(
        &mut self,
        poller: &Poller,
        now_ms: u64,
        mut each: impl FnMut(&mut UpstreamTcp, u64, Outcome<'_>),
    ) {
        // This ends: a connection that `each` begins here is not overdue at once.
        while let Some((id, list)) = self.table.overdue(self.waits_ms(), now_ms) {
            match list {
                CONNECTING => self.fail(id, Failure::NotConnected, poller, now_ms, &mut each),
                BUSY => self.fail(id, Failure::Silent, poller, now_ms, &mut each),
                _ => {
                    self.counters.ended_unused += 1;
                    self.remove(id);
                }
            }
        }
    }

    /// Milliseconds after which [`UpstreamTcp::expire`] has something to do; `None` without
    /// connections.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        self.table.wait_ms(self.waits_ms(), now_ms)
    }

    fn waits_ms(&self) -> [u64; 3] {
        [self.limits.connect_ms, self.limits.silent_ms, self.limits.idle_ms]
    }

    fn mark(&mut self, id: Id) {
        if let Some(connection) = self.table.get_mut(id).filter(|it| !it.is_dirty) {
            connection.is_dirty = true;
            self.dirty.push(id);
        }
    }

    /// Removes a connection from table and routes.
    fn remove(&mut self, id: Id) -> Option<Connection> {
        let connection = self.table.remove(id)?;
        if let Some(all) = self.routes.get_mut(&connection.route) {
            all.retain(|&other| other != id);
            if all.is_empty() {
                self.routes.remove(&connection.route);
            }
        }
        Some(connection)
    }

    /// Checks the invariants; for tests.
    #[cfg(test)]
    fn validate(&self) {
        self.table.validate();
        let (mut tagged, mut routed) = (0, 0);
        for id in self.table.ids() {
            let connection = self.table.get(id).unwrap();
            for (name, query) in &connection.queries {
                let Some(tag) = query.tag else { continue };
                assert_eq!(self.tags.get(&tag), Some(&(id, *name)), "invariant 1");
                tagged += 1;
            }
            let list = match (connection.is_connected, connection.queries.is_empty()) {
                (false, _) => CONNECTING,
                (true, false) => BUSY,
                (true, true) => IDLE,
            };
            assert_eq!(self.table.list_of(id), Some(list), "invariant 3");
            let all = &self.routes[&connection.route];
            assert_eq!(all.iter().filter(|&&other| other == id).count(), 1, "invariant 2");
            routed += 1;
            assert!(connection.queries.len() <= self.limits.in_flight_max);
        }
        assert_eq!(tagged, self.tags.len(), "invariant 1");
        assert_eq!(routed, self.routes.values().map(Vec::len).sum::<usize>(), "invariant 2");
    }
}
