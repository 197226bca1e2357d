//! A task: a name that is sought, and how far that has come.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use larder_io::timer::TimerId;
use larder_wire::dns::rtype;

/// A question on its way to a server.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    pub way: Way,
    pub server: IpAddr,
    pub sent_us: u64,
    pub has_edns: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Socket and ID.
    Packet(u32, u16),
    /// By its tag.
    Stream(u64),
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
    pub until_ms: u64,
    /// Where in the name the zone that is asked begins, and the name that it is asked for.
    pub zone_at: usize,
    pub asked_at: usize,
    pub steps: u8,
    /// Servers of the zone that were asked.
    pub tried: Vec<IpAddr>,
    pub is_second_round: bool,
    /// Servers of the zone whose addresses were sought.
    pub sought: Vec<Box<[u8]>>,
    pub attempt: Option<Attempt>,
    /// It asks for a name above its own, and others may wait for what is said.
    pub leads: bool,
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
pub const NOWHERE: usize = usize::MAX;

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
            until_ms: 0,
            zone_at: NOWHERE,
            asked_at: 0,
            steps: 0,
            tried: Vec::new(),
            is_second_round: false,
            sought: Vec::new(),
            attempt: None,
            leads: false,
            due_ms: 0,
            timer: None,
            question: Vec::new(),
            aliases: Vec::new(),
            record_count: 0,
            alias_count: 0,
        }
    }

    pub fn asked(&self) -> &[u8] {
        &self.name[self.asked_at..]
    }

    pub fn zone(&self) -> &[u8] {
        &self.name[self.zone_at..]
    }

    pub fn asks_for_all(&self) -> bool {
        self.asked_at == 0
    }

    /// The type that is asked for: what it really is, those above need not know.
    pub fn asked_type(&self) -> u16 {
        if self.asks_for_all() { self.rtype } else { rtype::A }
    }

    /// What it asked for a name above its own is over: who waited for that goes on.
    pub fn let_others_go_on(
        &mut self,
        asked_above: &mut HashMap<Box<[u8]>, Vec<u64>>,
        ready: &mut Vec<u64>,
    ) {
        if std::mem::take(&mut self.leads) {
            ready.extend(asked_above.remove(self.asked()).unwrap_or_default());
        }
    }

    /// Turns to another zone, or to another name.
    pub fn turn_to(&mut self, zone_at: usize) {
        self.zone_at = zone_at;
        self.tried.clear();
        self.sought.clear();
        (self.is_second_round, self.steps) = (false, 0);
    }
}
