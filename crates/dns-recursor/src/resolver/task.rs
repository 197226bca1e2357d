//! The state of a task: the name to resolve and the progress so far.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use larder_io::timer::TimerId;
use larder_wire::dns::rtype;

/// A query in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub key: QueryKey,
    pub server: IpAddr,
    pub sent_us: u64,
    pub has_edns: bool,
}

impl Attempt {
    pub fn is_stream(&self) -> bool {
        matches!(self.key, QueryKey::Tcp(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKey {
    /// Number of the socket, and ID.
    Udp(u32, u16),
    /// Tag.
    Tcp(u64),
}

#[derive(Debug)]
pub enum Purpose<C> {
    /// A client query, with its message.
    Client { client: C, message: Box<[u8]> },
    /// The address of a server, for the tasks that wait for it.
    Address { waiting: Vec<u64> },
}

#[derive(Debug)]
pub struct Task<C> {
    pub purpose: Purpose<C>,
    /// The name to resolve, in lower case: first that of the query, then the target of aliases.
    pub name: Vec<u8>,
    pub rtype: u16,
    pub dnssec_ok: bool,
    pub checking_disabled: bool,
    pub depth: u8,
    pub packets_left: Rc<Cell<u32>>,
    /// If false, an alias out of the zone ends the task.
    pub follows_aliases: bool,
    pub until_ms: u64,
    /// Offset of the current zone in the name, when its delegation expires, and the offset of the
    /// query name.
    pub zone_at: usize,
    pub zone_until_ms: u64,
    /// The task is in the count of its zone.
    pub is_counted_in_zone: bool,
    pub qname_at: usize,
    pub steps: u8,
    /// Servers tried in this round.
    pub tried: Vec<IpAddr>,
    /// Completed rounds: all servers were tried.
    pub rounds: u8,
    /// Servers with an address task, and the type.
    pub address_lookups: Vec<(Box<[u8]>, u16)>,
    /// The task has waited the full time for addresses and may retry known servers.
    pub has_waited: bool,
    /// Servers that seem not to support EDNS.
    pub without_edns: Vec<IpAddr>,
    pub attempt: Option<Attempt>,
    /// Timed-out queries with the same question, which still accept a response.
    pub late: Vec<Attempt>,
    /// This task sent a shortened name, and others may wait for the response.
    pub leads_minimized: bool,
    pub due_ms: u64,
    pub timer: Option<TimerId>,
    /// The question section as sent.
    pub question: Vec<u8>,
    /// Records of the aliases so far.
    pub aliases: Vec<u8>,
    pub record_count: u16,
    pub alias_count: u16,
}

/// The offset of no zone.
pub const NO_ZONE: usize = usize::MAX;

impl<C> Task<C> {
    /// A task without a name, a client or time.
    pub fn new() -> Task<C> {
        Task {
            purpose: Purpose::Address { waiting: Vec::new() },
            name: Vec::new(),
            rtype: rtype::A,
            dnssec_ok: false,
            checking_disabled: false,
            depth: 0,
            packets_left: Rc::new(Cell::new(0)),
            follows_aliases: true,
            until_ms: 0,
            zone_at: NO_ZONE,
            zone_until_ms: 0,
            is_counted_in_zone: false,
            qname_at: 0,
            steps: 0,
            tried: Vec::new(),
            rounds: 0,
            address_lookups: Vec::new(),
            has_waited: false,
            without_edns: Vec::new(),
            attempt: None,
            late: Vec::new(),
            leads_minimized: false,
            due_ms: 0,
            timer: None,
            question: Vec::new(),
            aliases: Vec::new(),
            record_count: 0,
            alias_count: 0,
        }
    }

    pub fn qname(&self) -> &[u8] {
        &self.name[self.qname_at..]
    }

    pub fn zone(&self) -> &[u8] {
        &self.name[self.zone_at..]
    }

    pub fn is_full_name(&self) -> bool {
        self.qname_at == 0
    }

    /// The query type. A shortened name has type A, so servers above do not see the real type.
    pub fn qtype(&self) -> u16 {
        if self.is_full_name() { self.rtype } else { rtype::A }
    }

    /// Wakes the tasks that wait for the response to a shortened name.
    pub fn wake_followers(
        &mut self,
        minimized: &mut HashMap<Box<[u8]>, Vec<u64>>,
        ready: &mut Vec<u64>,
    ) {
        if std::mem::take(&mut self.leads_minimized) {
            ready.extend(minimized.remove(self.qname()).unwrap_or_default());
        }
    }

    /// The query in flight with this key.
    pub fn attempt_of(&self, key: QueryKey) -> Option<Attempt> {
        self.attempt.iter().chain(&self.late).find(|attempt| attempt.key == key).copied()
    }

    /// Resets the state for another zone or name.
    pub fn enter(&mut self, zone_at: usize, until_ms: u64) {
        (self.zone_at, self.zone_until_ms) = (zone_at, until_ms);
        self.tried.clear();
        self.address_lookups.clear();
        (self.rounds, self.steps) = (0, 0);
        self.has_waited = false;
        self.without_edns.clear();
    }
}
