//! Fragments: every one is accounted once, what comes out whole is what went in, and memory stays
//! within its limit.

use std::collections::{HashMap, HashSet};

use larder_wire::Addr;
use larder_wire::fragment::{Held, Outcome, Push, Reassembler};
use larder_wire::packet::{Fragment, Packet};

use super::packet::outer;
use super::{Cut, byte_of};

/// Small, so that datagrams are dropped (buffer full).
const LIMIT_BYTES: usize = 24 << 10;

/// Seven bytes a fragment: flags (1 IPv6, 2 more follow, 4 bytes that contradict, 8 cut by the
/// capture, 16 minutes pass), which datagram, offset in units of eight (2), length in units of eight,
/// length beyond that, milliseconds since the one before.
pub fn fragment(input: &[u8]) {
    let mut input = Cut(input);
    let mut reassembler = Reassembler::new(LIMIT_BYTES);
    let mut model = Model::default();
    let mut now_ns = 0_i64;
    let mut number = 0;
    while !input.is_empty() {
        let flags = input.u8();
        let datagram = u32::from(input.u8() % 16);
        let offset = (input.u16() & 0x1fff) << 3;
        let len = u32::from(input.u8()) * 8 + u32::from(input.u8() % 9);
        now_ns += i64::from(input.u8()) * 1_000_000;
        if flags & 16 != 0 {
            now_ns += 31_000_000_000;
        }
        let contradicts = flags & 4 != 0;
        let data: Vec<u8> = (0..len)
            .map(|at| byte_of(datagram, u32::from(offset) + at) ^ u8::from(contradicts))
            .collect();
        let captured = if flags & 8 != 0 { data.len() / 2 } else { data.len() };
        let packet = packet(flags, datagram, offset, len, captured as u32);
        if contradicts {
            model.contradicted.insert((packet.src, packet.ip_version));
        }
        number += 1;
        let push = reassembler.push(&packet, &data[..captured], number, now_ns);
        model.account(number, &push, &reassembler);
        assert!(reassembler.used_bytes() <= LIMIT_BYTES, "invariant 3 of `wire::fragment`");
        if let Outcome::Complete { outer, payload } = push.outcome {
            model.check_whole(datagram, &outer, &payload);
        }
    }
    reassembler.finish();
    for orphan in reassembler.orphans() {
        model.take(&orphan.held);
    }
    assert!(model.held.is_empty(), "fragments without an account: {:?}", model.held);
    assert_eq!(reassembler.used_bytes(), 0);
}

#[derive(Default)]
struct Model {
    /// Numbers of fragments that wait for their ports.
    held: HashSet<u64>,
    /// Datagrams that ever got bytes that contradict.
    contradicted: HashSet<(Addr, u8)>,
    /// The ports of each datagram's sender.
    ports: HashMap<Addr, (u16, u16)>,
}

impl Model {
    fn account(&mut self, number: u64, push: &Push, reassembler: &Reassembler) {
        if push.ports.is_none() {
            self.held.insert(number);
        }
        for held in &push.released {
            assert!(push.ports.is_some(), "released without ports");
            self.take(held);
        }
        for orphan in reassembler.orphans() {
            self.take(&orphan.held);
        }
    }

    fn take(&mut self, held: &Held) {
        assert!(
            self.held.remove(&held.number),
            "invariant 1 of `wire::fragment`: {held:?} is accounted twice"
        );
    }

    fn check_whole(&mut self, datagram: u32, outer: &Packet, payload: &[u8]) {
        assert_eq!(outer.ip_bytes as usize, payload.len() + 20);
        let may_differ = self.contradicted.contains(&(outer.src, outer.ip_version));
        for (place, &byte) in payload.iter().enumerate() {
            let wrong = byte ^ byte_of(datagram, place as u32);
            assert!(wrong == 0 || (may_differ && wrong == 1), "byte {place} is another's");
        }
        let ports = (outer.src_port, outer.dst_port);
        assert_eq!(*self.ports.entry(outer.src).or_insert(ports), ports);
    }
}

fn packet(flags: u8, datagram: u32, offset: u16, len: u32, captured: u32) -> Packet {
    let v6 = flags & 1 != 0;
    // Two senders for each ID, so that IDs alone do not identify datagrams.
    let sender = (datagram & 1) as u8;
    let src = if v6 {
        Addr::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, sender])
    } else {
        Addr::v4([192, 0, 2, sender])
    };
    Packet {
        src,
        dst: src,
        src_port: u16::from(sender) + 7,
        dst_port: 53,
        ip_bytes: 20 + len,
        payload_len: captured,
        fragment: Some(Fragment {
            id: datagram >> 1,
            offset,
            more: flags & 2 != 0,
            data_offset: 0,
            data_len: captured,
            data_bytes: len,
        }),
        ..outer(flags, 17, len)
    }
}
