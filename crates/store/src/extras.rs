//! Addresses of packets besides the ends of their flows: of tunnels, in quoted headers, in ARP, in
//! packets without a flow.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use larder_wire::Addr;

/// The further addresses of packets, in packet order.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// Each address once.
    pub list: Vec<Addr>,
    numbers: HashMap<Addr, u32>,
    /// Number of an address, and place of a packet with it.
    pub packets: Vec<(u32, u32)>,
    /// Addresses of the current packet.
    of_packet: Vec<Addr>,
}

impl Extras {
    /// Takes the addresses that `walk` visits for the packet at `place`, except those of `ends`.
    pub fn take(
        &mut self,
        place: u32,
        ends: Option<[Addr; 2]>,
        walk: impl FnOnce(&mut dyn FnMut(Addr)),
    ) {
        let of_packet = &mut self.of_packet;
        of_packet.clear();
        walk(&mut |addr| {
            let is_end = ends.is_some_and(|ends| ends.contains(&addr));
            // A frame has a few dozen at most.
            if !is_end && !of_packet.contains(&addr) {
                of_packet.push(addr);
            }
        });
        for addr in self.of_packet.drain(..) {
            let next = self.list.len() as u32;
            let number = *self.numbers.entry(addr).or_insert(next);
            if number == next {
                self.list.push(addr);
            }
            self.packets.push((number, place));
        }
    }

    /// The addresses of the packet at `place`.
    pub fn of(&self, place: u32) -> impl Iterator<Item = Addr> {
        let start = self.packets.partition_point(|(_, of)| *of < place);
        let own = self.packets[start..].iter().take_while(move |(_, of)| *of == place);
        own.map(|(number, _)| self.list[*number as usize])
    }

    /// Adds the places of packets with one of these addresses to `out`; some twice.
    pub fn places(&self, wanted: &[RangeInclusive<Addr>], out: &mut Vec<u32>) {
        let is_wanted: Vec<bool> =
            self.list.iter().map(|addr| wanted.iter().any(|range| range.contains(addr))).collect();
        let packets = self.packets.iter().filter(|(number, _)| is_wanted[*number as usize]);
        out.extend(packets.map(|(_, place)| *place));
    }

    /// Addresses in order, each with the places of its packets in order.
    pub fn sorted(&self) -> Vec<(Addr, Vec<u32>)> {
        let mut of_addr: Vec<(Addr, Vec<u32>)> =
            self.list.iter().map(|addr| (*addr, Vec::new())).collect();
        for (number, place) in &self.packets {
            let (_, places) = &mut of_addr[*number as usize];
            // A reassembled datagram may have the same address as the fragment that completed it.
            if places.last() != Some(place) {
                places.push(*place);
            }
        }
        of_addr.sort_unstable_by_key(|(addr, _)| *addr);
        of_addr
    }
}
