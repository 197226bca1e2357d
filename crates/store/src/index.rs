//! The index of a segment: flows, addresses, names, each sorted, so that a search reads few pages.
//!
//! ```text
//! header      "LARDERI2"; number, position, run, bytes of the segment, packets u64; least and greatest time i64;
//!             eight sections: offset u64, bytes u64; offset of the checksums u64, their bytes u64; CRC-32 of all this u32
//! flows       by (low, high, low port, high port, protocol): low u32, high u32: indexes of addresses;
//!             ports u16 u16; protocol u8, network u24: 0, or a number in `texts` from 1; offset of its postings u32
//!                                                                                                      20 bytes each
//! postings    for each flow: count of packets, then for each place the difference to the one before (varints);
//!             a place is an offset in the segment / 4
//! addresses   sorted: address 16; first flow of which it is the low end u32; offset in `ends` u32          24 bytes each
//! ends        for each address: count of flows of which it is the high end, then differences of their indexes (varints)
//! names       sorted by labels from the right ("com.example.www"), then role, then event: offset of the text u32, its
//!             bytes u16, role u8 (255, under "": see `NAMELESS`), 0; offset of the event u32           12 bytes each
//! texts       the networks of the flows (`Scope::bits` u64 each, sorted), the names so reversed, and the events (see `journal`,
//!             without frames)
//! extras      addresses of packets besides the ends of their flows (see `extras`), sorted: address 16; offset of its
//!             postings in `of extras` u32                                                              20 bytes each
//! of extras   for each of them: count of packets, then their places as in `postings`
//! checksums   CRC-32 of each 4096 bytes from the end of the header on, then of these checksums
//! ```
//!
//! Little-endian. It is written next to its place and renamed, so it is never incomplete. A reader checks
//! the pages that it reads; a wrong one makes the whole index [`Damaged`], and the segment is scanned.
//!
//! "LARDERI1" is the same without the last two sections, and is readable: a search for an address then
//! also reads the packets of the segment.
//!
//! Cost: 3 bytes a packet if flows have many, 51 if each is a flow of its own; made from 729 088 packets
//! (64 MiB) in 11 and 170 ms (`cargo bench -p larder-store`, two cores of a virtual machine).

mod build;
mod read;

pub(crate) use build::build;
pub(crate) use read::{Damaged, Index};

const MAGIC: &[u8; 8] = b"LARDERI2";

/// The beginning of an index without [`EXTRAS`], and its number of sections.
const MAGIC_WITHOUT_EXTRAS: &[u8; 8] = b"LARDERI1";
const SECTIONS_WITHOUT_EXTRAS: usize = 6;

/// Bytes of the header with its checksum.
const HEADER_BYTES: usize = header_bytes(SECTIONS);

const fn header_bytes(sections: usize) -> usize {
    8 + 7 * 8 + sections * 16 + 16 + 4
}

const SECTIONS: usize = 8;
const FLOWS: usize = 0;
const POSTINGS: usize = 1;
const ADDRESSES: usize = 2;
const ENDS: usize = 3;
const NAMES: usize = 4;
const TEXTS: usize = 5;
const EXTRAS: usize = 6;
const OF_EXTRAS: usize = 7;

const FLOW_BYTES: usize = 20;
const ADDRESS_BYTES: usize = 24;
const NAME_BYTES: usize = 12;
const EXTRA_BYTES: usize = 20;

/// In place of a role: the event is the end of a flow whose names may be in another index.
pub(crate) const NAMELESS: u8 = 255;

/// Bytes of a page: each has a checksum.
const PAGE_BYTES: usize = 4096;

/// A name with its labels from the right: all names below a domain are neighbors. Dots within
/// labels keep their backslash, so no two names become the same.
pub(crate) fn reversed(name: &[u8]) -> Vec<u8> {
    let mut labels = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < name.len() {
        match name[at] {
            b'\\' => at += 1,
            b'.' => {
                labels.push(&name[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    labels.push(&name[start..]);
    labels.reverse();
    labels.join(&b'.')
}

#[cfg(test)]
mod tests {
    use larder_wire::capture::write;
    use larder_wire::{Addr, Name};
    use proptest::prelude::*;

    use super::*;
    use crate::FlowKey;
    use crate::files::Identity;
    use crate::flow_event::NameRole;
    use crate::flows::Flows;
    use crate::journal::StoredEvent;

    /// UDP flows among a few hosts, each of which has a name.
    fn some(packets: u32) -> (Flows, Vec<u8>) {
        let mut file = Vec::new();
        write::interface(&mut file, 101, 0);
        let mut flows = Flows::new(1);
        flows.block(0, &file);
        for number in 0..packets {
            let mut frame = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0];
            frame.extend_from_slice(&[(number % 7) as u8, 10, 0, 1, (number % 11) as u8]);
            frame.extend_from_slice(&[0, 53, 0, (number % 3) as u8, 0, 8, 0, 0]);
            let offset = file.len();
            write::packet(&mut file, 0, i64::from(number), &frame, 28);
            flows.block(offset as u64, &file[offset..]);
        }
        let identity = Identity { number: 1, position: 100, run: 0 };
        let events: Vec<StoredEvent> = flows
            .list
            .iter()
            .enumerate()
            .map(|(at, flow)| StoredEvent {
                key: flow.key.unscoped(),
                scope: Some(flow.key.scope),
                first: 100,
                end: None,
                start_ns: 0,
                last_ns: 0,
                source_is_low: true,
                names: vec![(
                    NameRole::Destination,
                    Name::from_canonical(format!("host{}.example", at % 50).as_bytes()),
                )],
                choices: [None; 2],
            })
            .collect();
        let bytes = build(&identity, file.len() as u64, &flows, &events, false);
        (flows, bytes)
    }

    type Answers = (Vec<FlowKey>, Vec<Vec<u32>>, Vec<u32>, Vec<StoredEvent>);

    /// All results of an index.
    fn answers(index: &Index) -> Result<Answers, Damaged> {
        let mut places = Vec::new();
        let keys: Vec<FlowKey> =
            (0..index.flows()).map(|flow| index.key(flow)).collect::<Result<_, _>>()?;
        for (flow, key) in keys.iter().enumerate() {
            let mut own = Vec::new();
            index.places(flow, &mut own)?;
            places.push(own);
            if !index.find(&key.unscoped())?.contains(&(flow, key.scope)) {
                return Err(Damaged);
            }
        }
        let mut flows = Vec::new();
        for host in 0..12 {
            let (first, last) = (Addr::v4([10, 0, 0, host]), Addr::v4([10, 0, 1, host]));
            index.with_address(first, last, &mut flows)?;
        }
        Ok((keys, places, flows, index.events()?))
    }

    /// Corrects both checksums after other bytes were changed.
    fn forge(bytes: &mut [u8]) {
        let long = |bytes: &[u8], at: usize| {
            bytes[at..].first_chunk().map_or(0, |long| u64::from_le_bytes(*long)) as usize
        };
        let at = 64 + 16 * SECTIONS;
        let (start, len) = (long(bytes, at), long(bytes, at + 8));
        let end = start.saturating_add(len);
        if start >= HEADER_BYTES && end <= bytes.len() && len >= 4 {
            for (page, at) in (start..end - 4).step_by(4).enumerate() {
                let from = HEADER_BYTES + page * PAGE_BYTES;
                let Some(body) = bytes.get(from..(from + PAGE_BYTES).min(start)) else { break };
                let crc = crc32fast::hash(body);
                bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
            }
            let crc = crc32fast::hash(&bytes[start..end - 4]);
            bytes[end - 4..end].copy_from_slice(&crc.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// An index returns the flows' data: keys in order, each with its places; addresses with all
    /// their flows.
    #[test]
    fn answers_are_those_of_the_flows() {
        let (flows, bytes) = some(2000);
        let index = Index::made(bytes).unwrap();
        let (keys, places, _, events) = answers(&index).unwrap();
        assert_eq!((keys.len(), events.len()), (flows.list.len(), flows.list.len()));
        for (key, places) in keys.iter().zip(&places) {
            let number = flows.find(key).unwrap();
            let own = flows.packets.iter().filter(|(flow, _)| *flow == number);
            assert!(own.map(|(_, place)| place).eq(places));
        }
        for host in 0..8 {
            let addr = Addr::v4([10, 0, 0, host]);
            let mut found = Vec::new();
            index.with_address(addr, addr, &mut found).unwrap();
            found.sort_unstable();
            let expected = (0..keys.len() as u32).filter(|flow| {
                [keys[*flow as usize].low, keys[*flow as usize].high].contains(&addr)
            });
            assert!(expected.eq(found));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
        /// A wrong byte, or a missing end, is detected before it is used; if the checksums were
        /// corrected, nothing panics.
        #[test]
        fn damage_is_found(at: prop::sample::Index, flip in 1u8.., cut in 0usize..3, is_forged: bool) {
            let (_, bytes) = some(300);
            let right = answers(&Index::made(bytes.clone()).unwrap()).unwrap();
            let mut wrong = bytes;
            let at = at.index(wrong.len());
            wrong[at] ^= flip;
            wrong.truncate(wrong.len() - cut * 40);
            if is_forged {
                forge(&mut wrong);
                let _ = Index::made(wrong).and_then(|index| answers(&index));
            } else if let Ok(found) = Index::made(wrong).and_then(|index| answers(&index)) {
                prop_assert_eq!(found, right);
            }
        }
    }

    /// Labels are reversed, escaped dots stay within their labels, and twice reversed is unchanged.
    #[test]
    fn labels_are_reversed() {
        for (name, expected) in [
            (&b"www.example.com"[..], &b"com.example.www"[..]),
            (b"com", b"com"),
            (b"", b""),
            (br"a\.b.c", br"c.a\.b"),
            (br"a\\.b", br"b.a\\"),
            (b"..x", b"x.."),
        ] {
            assert_eq!(reversed(name), expected);
            assert_eq!(reversed(expected), name);
        }
    }
}
