//! A load by frames: the same rules as `larder_bench::net::load`, without the kernel's network.
//!
//! Closed: a query is sent when a response has come. An ID is a slot's number and above it how often the slot was
//! used, so that a response to a query that was given up is recognized as late and is not taken for a wrong one.

use std::net::SocketAddr;
use std::time::Instant;

use larder_bench::net::load::{Load, LoadOptions, Query};
use larder_io::epoll::{Events, Interest, Poller};
use larder_io::xdp;
use larder_wire::udp_frame::{self, FrameAddresses};

use super::Result;

/// A query in flight.
#[derive(Clone, Copy)]
struct Slot {
    since_ns: u64,
    tag: u64,
    id: u16,
}

/// Bits of an ID that are the slot's number.
const SLOT_BITS: u32 = 10;

/// An interface to ask by.
pub struct Frames {
    queues: Vec<xdp::Queue>,
    addresses: FrameAddresses,
}

impl Frames {
    /// Takes an interface, whose other end is the server's, to ask from this address.
    pub fn open(name: &str, from: SocketAddr, server: SocketAddr) -> Result<Frames> {
        let interface = xdp::find(name)?;
        let options =
            xdp::Options { interface: &interface, targets: &[from], frame_bytes_max: 1500 };
        let queues = xdp::open(&options)?;
        let (peer_mac, local_mac) = (neighbor(server)?, interface.mac);
        Ok(Frames {
            queues,
            addresses: FrameAddresses { peer: server, local: from, peer_mac, local_mac },
        })
    }

    /// Loads the server.
    pub fn load(
        &mut self,
        options: &LoadOptions,
        mut write_query: impl FnMut(u16, &mut [u8]) -> Option<Query>,
        mut check: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<Load> {
        let addresses = self.addresses;
        let queue = self.queues.first_mut().ok_or("no queue")?;
        let (poller, mut events) = (Poller::new()?, Events::new(1));
        poller.add(&queue.receiver, 0, Interest::READ)?;
        let start = Instant::now();
        let count_from_ns = options.warm_up.as_nanos() as u64;
        let end_ns = count_from_ns + options.measured.as_nanos() as u64;
        let mut slots = Slots::new(options.in_flight_max.min(1 << SLOT_BITS) as u16, count_from_ns);
        let (mut now_ns, mut looked_ns) = (0, 0);
        while now_ns < end_ns {
            now_ns = start.elapsed().as_nanos() as u64;
            let received = queue.receiver.recv();
            for bytes in queue.receiver.frames() {
                match udp_frame::read(bytes) {
                    Ok((_, answer)) => slots.take(answer, now_ns, &mut check),
                    Err(_) => slots.found.wrong += 1,
                }
            }
            if now_ns > looked_ns + 100_000_000 {
                looked_ns = now_ns;
                slots.give_up(now_ns.saturating_sub(options.lost_after.as_nanos() as u64));
            }
            while let Some((number, id)) = slots.next() {
                let Some(frame) = queue.sender.slot() else { break };
                let Some(query) = write_query(id, &mut frame[addresses.headers_bytes()..]) else {
                    break;
                };
                let length = addresses.seal(query.length, frame).ok_or("a question fits")?;
                queue.sender.commit(length);
                slots.begin(number, Slot { since_ns: now_ns.max(1), tag: query.tag, id });
            }
            queue.sender.send();
            if received == 0 {
                poller.wait(&mut events, Some(10))?;
            }
        }
        slots.found.seconds = (now_ns - count_from_ns) as f64 / 1e9;
        Ok(slots.found)
    }
}

/// Queries in flight, and the counts so far.
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// From when on responses count.
    count_from_ns: u64,
    found: Load,
}

impl Slots {
    fn new(count: u16, count_from_ns: u64) -> Slots {
        let slots = (0..count).map(|id| Slot { since_ns: 0, tag: 0, id }).collect();
        Slots { slots, free: (0..count).collect(), count_from_ns, found: Load::default() }
    }

    /// A response: of a query in flight, late, or wrong.
    fn take(&mut self, answer: &[u8], now_ns: u64, check: &mut impl FnMut(u64, &[u8]) -> bool) {
        let id = answer.first_chunk().map_or(u16::MAX, |id| u16::from_be_bytes(*id));
        let number = id & ((1 << SLOT_BITS) - 1);
        match self.slots.get_mut(usize::from(number)) {
            Some(slot) if slot.since_ns > 0 && slot.id == id && check(slot.tag, answer) => {
                if now_ns >= self.count_from_ns {
                    self.found.answers += 1;
                    self.found.latency.add(now_ns - slot.since_ns);
                }
                slot.since_ns = 0;
                self.free.push(number);
            }
            Some(slot) if slot.since_ns > 0 && slot.id == id => self.found.wrong += 1,
            _ => self.found.unexpected += 1,
        }
    }

    /// Gives up queries sent before `lost_ns`.
    fn give_up(&mut self, lost_ns: u64) {
        for (id, slot) in (0..).zip(&mut self.slots) {
            if (1..lost_ns).contains(&slot.since_ns) {
                self.found.lost += 1;
                slot.since_ns = 0;
                self.free.push(id);
            }
        }
    }

    /// The number of a free slot, and the ID of its next query.
    fn next(&self) -> Option<(u16, u16)> {
        let &number = self.free.last()?;
        Some((number, self.slots[usize::from(number)].id.wrapping_add(1 << SLOT_BITS)))
    }

    /// The query of the next slot was sent.
    fn begin(&mut self, number: u16, slot: Slot) {
        self.free.pop();
        self.found.sent += 1;
        self.slots[usize::from(number)] = slot;
    }
}

/// The Ethernet address of a host that was spoken to a moment ago.
fn neighbor(host: SocketAddr) -> Result<[u8; 6]> {
    let table = std::fs::read_to_string("/proc/self/net/arp")?;
    let host = host.ip().to_string();
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(&host));
    let text = row.and_then(|row| row.split_whitespace().nth(3)).ok_or("no neighbor")?;
    let mut mac = [0; 6];
    for (byte, text) in mac.iter_mut().zip(text.split(':')) {
        *byte = u8::from_str_radix(text, 16)?;
    }
    Ok(mac)
}
