//! A load that leaves and comes back by frames: the same rules as `larder_bench::net::load`, without the kernel's network.
//!
//! Closed: a question leaves when an answer has come. An ID is a slot's number and above it how often the slot was used, so that
//! an answer that comes after its question was given up is known as late and is not taken for a wrong one.

use std::net::SocketAddr;
use std::time::Instant;

use larder_bench::net::load::{Load, LoadOptions, Question};
use larder_io::epoll::{Events, Interest, Poller};
use larder_io::xdp;
use larder_wire::udp_frame::{self, FrameAddresses};

use super::Result;

/// A question under way.
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
    ends: FrameAddresses,
}

impl Frames {
    /// Takes an interface, whose other end is the server's, to ask from this address.
    pub fn open(name: &str, from: SocketAddr, server: SocketAddr) -> Result<Frames> {
        let interface = xdp::find(name)?;
        let options =
            xdp::Options { interface: &interface, targets: &[from], frame_bytes_max: 1500 };
        let queues = xdp::open(&options)?;
        let (peer_mac, local_mac) = (neighbour(server)?, interface.mac);
        Ok(Frames {
            queues,
            ends: FrameAddresses { peer: server, local: from, peer_mac, local_mac },
        })
    }

    /// Loads the server.
    pub fn load(
        &mut self,
        options: &LoadOptions,
        mut ask: impl FnMut(u16, &mut [u8]) -> Option<Question>,
        mut check: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<Load> {
        let ends = self.ends;
        let queue = self.queues.first_mut().ok_or("no queue")?;
        let (poller, mut events) = (Poller::new()?, Events::new(1));
        poller.add(&queue.receiver, 0, Interest::READ)?;
        let start = Instant::now();
        let count_from_ns = options.warm_up.as_nanos() as u64;
        let end_ns = count_from_ns + options.measured.as_nanos() as u64;
        let mut found = Load::default();
        let mut slots = (0..options.in_flight_max.min(1 << SLOT_BITS) as u16)
            .map(|id| Slot { since_ns: 0, tag: 0, id })
            .collect::<Vec<Slot>>();
        let mut free: Vec<u16> = (0..slots.len() as u16).collect();
        let (mut now_ns, mut looked_ns) = (0, 0);
        while now_ns < end_ns {
            now_ns = start.elapsed().as_nanos() as u64;
            let received = queue.receiver.recv();
            for octets in queue.receiver.frames() {
                let Ok((_, answer)) = udp_frame::read(octets) else {
                    found.wrong += 1;
                    continue;
                };
                let id = answer.first_chunk().map_or(u16::MAX, |id| u16::from_be_bytes(*id));
                match slots.get_mut(usize::from(id) & ((1 << SLOT_BITS) - 1)) {
                    Some(slot) if slot.since_ns > 0 && slot.id == id && check(slot.tag, answer) => {
                        if now_ns >= count_from_ns {
                            found.answers += 1;
                            found.latency.add(now_ns - slot.since_ns);
                        }
                        slot.since_ns = 0;
                        free.push(id & ((1 << SLOT_BITS) - 1));
                    }
                    Some(slot) if slot.since_ns > 0 && slot.id == id => found.wrong += 1,
                    _ => found.unexpected += 1,
                }
            }
            if now_ns > looked_ns + 100_000_000 {
                looked_ns = now_ns;
                let lost_ns = now_ns.saturating_sub(options.lost_after.as_nanos() as u64);
                for (id, slot) in (0..).zip(&mut slots) {
                    if (1..lost_ns).contains(&slot.since_ns) {
                        found.lost += 1;
                        slot.since_ns = 0;
                        free.push(id);
                    }
                }
            }
            while let Some(&number) = free.last() {
                let slot = &mut slots[usize::from(number)];
                let id = slot.id.wrapping_add(1 << SLOT_BITS);
                let Some(frame) = queue.sender.slot() else { break };
                let Some(asked) = ask(id, &mut frame[ends.headers_bytes()..]) else { break };
                let length = ends.seal(asked.length, frame).ok_or("a question fits")?;
                queue.sender.commit(length);
                free.pop();
                found.asked += 1;
                *slot = Slot { since_ns: now_ns.max(1), tag: asked.tag, id };
            }
            queue.sender.send();
            if received == 0 {
                poller.wait(&mut events, Some(10))?;
            }
        }
        found.seconds = (now_ns - count_from_ns) as f64 / 1e9;
        Ok(found)
    }
}

/// The Ethernet address of a host that was spoken to a moment ago.
fn neighbour(host: SocketAddr) -> Result<[u8; 6]> {
    let table = std::fs::read_to_string("/proc/self/net/arp")?;
    let host = host.ip().to_string();
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(&host));
    let text = row.and_then(|row| row.split_whitespace().nth(3)).ok_or("no neighbour")?;
    let mut mac = [0; 6];
    for (octet, text) in mac.iter_mut().zip(text.split(':')) {
        *octet = u8::from_str_radix(text, 16)?;
    }
    Ok(mac)
}
