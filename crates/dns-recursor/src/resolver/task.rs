//! A task: a name that is sought, and how far that has come.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use larder_io::timer::TimerId;
use larder_wire::dns::rtype;

/// A question on its way to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub key: QueryKey,
    pub server: IpAddr,
    pub sent_us: u64,
    pub has_edns: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKey {
    /// Socket and ID.
    Udp(u32, u16),
    /// By its tag.
    Tcp(u64),
}

/// What a task is for.
#[derive(Debug)]
pub enum Purpose<C> {
    /// Somebody asked, by this message.
    Client { client: C, message: Box<[u8]> },
    /// These tasks need an address of a server.
    Address { waiting: Vec<u64> },
}

#[derive(Debug)]
pub struct Task<C> {
    pub purpose: Purpose<C>,
    /// What is sought: at first what was asked for, then where aliases led to. In lower case.
    pub name: Vec<u8>,
    pub rtype: u16,
    pub dnssec_ok: bool,
    pub checking_disabled: bool,
    pub depth: u8,
    pub packets_left: Rc<Cell<u32>>,
    /// Aliases out of the zone that is asked are no end.
    pub follows_aliases: bool,
    pub until_ms: u64,
    /// Where in the name the zone that is asked begins, how long that is known, and the name that it is asked for.
    pub zone_at: usize,
    pub zone_until_ms: u64,
    /// It counts among the tasks of its zone.
    pub is_counted_in_zone: bool,
    pub qname_at: usize,
    pub steps: u8,
    /// Servers of the zone that were asked.
    pub tried: Vec<IpAddr>,
    /// How often all servers of the zone were asked.
    pub rounds: u8,
    /// Servers of the zone whose addresses were sought, and of which type.
    pub address_lookups: Vec<(Box<[u8]>, u16)>,
    /// It has waited for such addresses as long as it may while there are servers to ask once more.
    pub has_waited: bool,
    /// Servers that do not understand EDNS, as it seems.
    pub without_edns: Vec<IpAddr>,
    pub attempt: Option<Attempt>,
    /// The same question on its way to servers that are not waited for any longer, but may still answer.
    pub late: Vec<Attempt>,
    /// It asks for a name above its own, and others may wait for what is said.
    pub leads_minimized: bool,
    pub due_ms: u64,
    pub timer: Option<TimerId>,
    /// The question as it was sent.
    pub question: Vec<u8>,
    /// Records of the aliases so far.
    pub aliases: Vec<u8>,
    pub record_count: u16,
    pub alias_count: u16,
}

/// No place in a name.
pub const NO_ZONE: usize = usize::MAX;

impl<C> Task<C> {
    /// Nobody's, for nothing, over at once.
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

    /// The type that is asked for: what it really is, those above need not know.
    pub fn qtype(&self) -> u16 {
        if self.is_full_name() { self.rtype } else { rtype::A }
    }

    /// What it asked for a name above its own is over: who waited for that goes on.
    pub fn wake_followers(
        &mut self,
        minimized: &mut HashMap<Box<[u8]>, Vec<u64>>,
        ready: &mut Vec<u64>,
    ) {
        if std::mem::take(&mut self.leads_minimized) {
            ready.extend(minimized.remove(self.qname()).unwrap_or_default());
        }
    }

    /// The question on its way that goes by this way.
    pub fn attempt_of(&self, key: QueryKey) -> Option<Attempt> {
        self.attempt.iter().chain(&self.late).find(|attempt| attempt.key == key).copied()
    }

    /// Turns to another zone, or to another name.
    pub fn enter(&mut self, zone_at: usize, until_ms: u64) {
        (self.zone_at, self.zone_until_ms) = (zone_at, until_ms);
        self.tried.clear();
        self.address_lookups.clear();
        (self.rounds, self.steps) = (0, 0);
        self.has_waited = false;
        self.without_edns.clear();
    }
}
