//! The sample packets of RFC 9001 and RFC 9369, and hellos cut and shuffled as clients do.

use proptest::prelude::*;

use super::header::Version;
use super::*;
use crate::tls::tests::{extension, message, sni};

const SAMPLE_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
const NAME: &[u8] = b"www.example.com";
const PACKET_BYTES: usize = 1200;
const CRYPTO_FRAME: u8 = 6;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A hello as long as those with post-quantum key shares.
fn long_hello() -> Vec<u8> {
    message(&[extension(51, &[0x5a; 1300]), sni(&[(0, NAME)]), extension(57, &[0x39; 300])])
}

fn crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![CRYPTO_FRAME];
    frame.extend_from_slice(&(offset as u32 | 0x8000_0000).to_be_bytes());
    frame.extend_from_slice(&(data.len() as u16 | 0x4000).to_be_bytes());
    frame.extend_from_slice(data);
    frame
}

/// An Initial packet of a client, padded, under the keys that `key_id` gives.
fn initial(key_id: &[u8], destination_id: &[u8], number: u32, frames: &[u8]) -> Vec<u8> {
    let mut payload = frames.to_vec();
    payload.resize(payload.len().max(PACKET_BYTES - 50), 0);
    let mut header = vec![0xc3, 0, 0, 0, 1, destination_id.len() as u8];
    header.extend_from_slice(destination_id);
    header.extend_from_slice(&[2, 0xee, 0xee, 3, 1, 2, 3]);
    header.extend_from_slice(&((4 + payload.len() + 16) as u16 | 0x4000).to_be_bytes());
    let packet_number_at = header.len();
    header.extend_from_slice(&number.to_be_bytes());
    Keys::of_client(Version::V1, key_id).seal(&header, packet_number_at, &payload)
}

fn name<'a>(initial: &'a Initial<'_>) -> Option<&'a [u8]> {
    match initial {
        Initial::Found(hello) => hello.server_name.as_deref(),
        _ => None,
    }
}

/// The keys are those of RFC 9001, A.1, and RFC 9369, A.1.
#[test]
fn keys_of_the_rfcs() {
    for (version, key, iv, header_key) in [
        (
            Version::V1,
            "1f369613dd76d5467730efcbe3b1a22d",
            "fa044b2f42a3fd3b46fb255c",
            "9f50449e04a0e810283a1e9933adedd2",
        ),
        (
            Version::V2,
            "8b1a0bc121284290a29e0971b5cd045d",
            "91f73e2351d8fa91660e909f",
            "45b95e15235d6f45a6b19cbcb0294ba9",
        ),
    ] {
        let keys = Keys::of_client(version, &SAMPLE_ID);
        assert_eq!(keys.parts(), (&hex(key)[..], &hex(iv)[..], &hex(header_key)[..]));
    }
}

/// The client's Initial of RFC 9001, A.2, and the same of RFC 9369, A.2: sealing it gives the
/// bytes printed there, and the assembler reads its name.
#[test]
fn packets_of_the_rfcs() {
    let frame = hex("060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868
         04fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578
         616d706c652e636f6dff01000100000a00080006001d00170018001000070005
         04616c706e000500050100000000003300260024001d00209370b2c9caa47fba
         baf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b000302030400
         0d0010000e0403050306030203080408050806002d00020101001c0002400100
         3900320408ffffffffffffffff05048000ffff07048000ffff08011001048000
         75300901100f088394c8f03e51570806048000ffff");
    let mut payload = frame;
    payload.resize(1162, 0);
    for (version, header, start, end) in [
        (
            Version::V1,
            "c300000001088394c8f03e5157080000449e00000002",
            "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11d242b123dc9b",
            "e221af44860018ab0856972e194cd934",
        ),
        (
            Version::V2,
            "d36b3343cf088394c8f03e5157080000449e00000002",
            "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485dd04de806071",
            "",
        ),
    ] {
        let packet = Keys::of_client(version, &SAMPLE_ID).seal(&hex(header), 18, &payload);
        assert!(packet.starts_with(&hex(start)));
        assert!(packet.ends_with(&hex(end)));
        assert!(looks_like_initial(&packet));
        let mut assembler = Assembler::new();
        match assembler.push(&packet) {
            Initial::Found(hello) => {
                assert_eq!(hello.server_name.as_deref(), Some(&b"example.com"[..]));
                assert_eq!(hello.alpn_first.as_deref(), Some(&b"alpn"[..]));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Salts of the drafts differ: a packet of draft 29 opens under its own number, and only there.
#[test]
fn drafts() {
    let frames = crypto(0, &message(&[sni(&[(0, NAME)])]));
    let mut header = hex("c3 ff00001d 08 8394c8f03e515708 00 00");
    let packet_number_at = header.len() + 2;
    header.extend_from_slice(&((4 + frames.len() as u16 + 16) | 0x4000).to_be_bytes());
    header.extend_from_slice(&[0, 0, 0, 1]);
    let keys = Keys::of_client(Version::Draft29, &SAMPLE_ID);
    let packet = keys.seal(&header, packet_number_at, &frames);
    assert_eq!(name(&Assembler::new().push(&packet)), Some(NAME));
    let mut other = packet;
    other[1..5].copy_from_slice(&[0, 0, 0, 1]);
    assert_eq!(Assembler::new().push(&other), Initial::Undecryptable);
    other[1..5].copy_from_slice(&[0xff, 0, 0, 0x15]);
    assert_eq!(Assembler::new().push(&other), Initial::NotQuic);
}

/// A packet of the kind that [`initial`] makes, in another version.
fn initial_of(version: Version, number: [u8; 4], frames: &[u8]) -> Vec<u8> {
    let mut header = [&[0xc3][..], &number, &[8], &SAMPLE_ID, &[0, 0]].concat();
    let mut payload = frames.to_vec();
    payload.resize(payload.len().max(PACKET_BYTES - 50), 0);
    header.extend_from_slice(&((4 + payload.len() + 16) as u16 | 0x4000).to_be_bytes());
    let packet_number_at = header.len();
    header.extend_from_slice(&[0, 0, 0, 1]);
    Keys::of_client(version, &SAMPLE_ID).seal(&header, packet_number_at, &payload)
}

/// A hello of Google QUIC with some values around the name.
fn google_hello(name: &[u8]) -> Vec<u8> {
    let values: [(&[u8; 4], &[u8]); 4] =
        [(b"PAD\0", &[b'-'; 300]), (b"SNI\0", name), (b"VER\0", b"Q050"), (b"CCS\0", &[7; 16])];
    let mut message = b"CHLO\x04\0\0\0".to_vec();
    let mut end = 0u32;
    for (tag, value) in values {
        end += value.len() as u32;
        message.extend_from_slice(tag);
        message.extend_from_slice(&end.to_le_bytes());
    }
    message.extend(values.iter().flat_map(|(_, value)| value.iter()));
    message
}

fn google_crypto(offset: usize, data: &[u8]) -> Vec<u8> {
    let mut frame = crypto(offset, data);
    frame[0] = 8;
    frame
}

/// Every number of a version is read with its keys: drafts 22 to 34, mvfst, Google's with TLS,
/// whose frames differ, and Q050, whose hello differs. The keys of one open nothing of another.
#[test]
fn versions() {
    let hello = message(&[sni(&[(0, NAME)])]);
    let ietf = crypto(0, &hello);
    let google =
        [&[7][..], &google_crypto(20, &hello[20..]), &google_crypto(0, &hello[..20])].concat();
    let q050 = google_crypto(0, &google_hello(NAME));
    let draft = |number: u8| [0xff, 0, 0, number];
    let mut all = vec![
        (Version::V1, [0, 0, 0, 1], &ietf),
        (Version::Draft22, draft(22), &ietf),
        (Version::Draft22, [0xfa, 0xce, 0xb0, 1], &ietf),
        (Version::Draft23, [0xfa, 0xce, 0xb0, 2], &ietf),
        (Version::Draft23, [0xfa, 0xce, 0xb0, 0x0e], &ietf),
        (Version::T051, *b"T051", &google),
        (Version::T050, *b"T050", &google),
        (Version::Q050, *b"Q050", &q050),
    ];
    all.extend((23..=28).map(|number| (Version::Draft23, draft(number), &ietf)));
    all.extend((29..=32).map(|number| (Version::Draft29, draft(number), &ietf)));
    all.extend((33..=34).map(|number| (Version::V1, draft(number), &ietf)));
    for &(version, number, frames) in &all {
        let packet = initial_of(version, number, frames);
        assert!(may_begin(&packet) && looks_like_initial(&packet), "{number:x?}");
        assert_eq!(name(&Assembler::new().push(&packet)), Some(NAME), "{number:x?}");
        for &(other, other_number, _) in &all {
            let mut packet = packet.clone();
            packet[1..5].copy_from_slice(&other_number);
            let is_same = number == other_number;
            assert_eq!(name(&Assembler::new().push(&packet)).is_some(), is_same, "{other:?}");
        }
    }
}

/// A 0-RTT packet before the Initial, in front of it in its datagram or behind it, hides no name;
/// nor does a version that only makes the server negotiate.
#[test]
fn early_data() {
    let initial = initial(&SAMPLE_ID, &SAMPLE_ID, 0, &crypto(0, &message(&[sni(&[(0, NAME)])])));
    let mut early = initial_of(Version::V1, [0, 0, 0, 1], &[1]);
    early[0] = 0xd3;
    // It has no token.
    early.remove(15);
    assert!(may_begin(&early) && !looks_like_initial(&early));
    let mut assembler = Assembler::new();
    assert_eq!(assembler.push(&early), Initial::NotQuic);
    assert_eq!(name(&assembler.push(&initial)), Some(NAME));
    for datagram in [[&early[..], &initial].concat(), [&initial[..], &early].concat()] {
        assert!(may_begin(&datagram));
        assert_eq!(name(&Assembler::new().push(&datagram)), Some(NAME));
    }
    let mut greased = initial.clone();
    greased[1..5].copy_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a]);
    assert!(may_begin(&greased));
    let mut assembler = Assembler::new();
    assert_eq!(assembler.push(&greased), Initial::NotQuic);
    assert_eq!(name(&assembler.push(&initial)), Some(NAME));
    assert!(!may_begin(b"") && !may_begin(&[0x43; 40]) && !may_begin(&[0xe3, 0, 0, 0, 1]));
}

/// Google QUIC in the clear, with each length of a packet number and with the long header of Q046;
/// every cut of it names nothing, or the same.
#[test]
fn google_in_the_clear() {
    let hello = google_hello(NAME);
    let frame = [&[0xa0, 1][..], &(hello.len() as u16).to_be_bytes(), &hello].concat();
    let hash = [0x5a; 12];
    let mut all =
        vec![[&[0xc3][..], b"Q046\x50", &SAMPLE_ID, &[0, 0, 0, 1], &hash, &frame].concat()];
    for (flags, number_bytes) in [(0x09, 1), (0x19, 2), (0x29, 4), (0x39, 6), (0x0d, 1)] {
        let number = vec![1; number_bytes];
        all.push([&[flags][..], &SAMPLE_ID, b"Q043", &number, &hash, &frame].concat());
    }
    for datagram in &all {
        assert!(may_begin(datagram));
        assert_eq!(name(&Assembler::new().push(datagram)), Some(NAME));
        for len in 0..datagram.len() {
            let mut assembler = Assembler::new();
            let cut = assembler.push(&datagram[..len]);
            assert!(name(&cut).is_none_or(|name| name == NAME));
        }
    }
    let mut other = all[1].clone();
    other[9] = b'X';
    assert!(!may_begin(&other));
}

proptest! {
    /// Any bytes after the start of a hello end in a result, and a name is a part of them.
    #[test]
    fn google_hellos_of_any_bytes(count in 0u16..200, bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let message = [b"CHLO", &count.to_le_bytes()[..], &[0, 0], &bytes].concat();
        if let Initial::Found(hello) = google::hello(&message)
            && let Some(name) = hello.server_name
        {
            prop_assert!(message.windows(name.len()).any(|window| window == &*name));
        }
        let datagram = [&[0x09][..], &SAMPLE_ID, b"Q043\x01", &[0; 12], &message].concat();
        let mut assembler = Assembler::new();
        let _ = assembler.push(&datagram);
    }
}

/// Later packets carry the ID that the server chose, and open with the keys of the first.
#[test]
fn changed_connection_id() {
    let hello = long_hello();
    let mut assembler = Assembler::new();
    let first = initial(&SAMPLE_ID, &SAMPLE_ID, 0, &crypto(0, &hello[..1000]));
    let server = initial(b"other keys", &[0xee, 0xee], 0, &[1]);
    let second = initial(&SAMPLE_ID, b"chosen by server", 1, &crypto(1000, &hello[1000..]));
    assert_eq!(assembler.push(&first), Initial::NeedMore);
    assert_eq!(assembler.push(&server), Initial::Undecryptable);
    assert_eq!(name(&assembler.push(&second)), Some(NAME));
    assert_eq!(Assembler::new().push(&second), Initial::Undecryptable);
}

/// After a Retry the client begins again, under keys of the ID that the Retry gave.
#[test]
fn retry() {
    let hello = long_hello();
    let mut assembler = Assembler::new();
    let before = initial(&SAMPLE_ID, &SAMPLE_ID, 0, &crypto(0, &[0x77; 900]));
    assert_eq!(assembler.push(&before), Initial::Malformed, "no hello begins like that");
    let mut assembler = Assembler::new();
    let before = initial(&SAMPLE_ID, &SAMPLE_ID, 0, &crypto(40, &[0x77; 1000]));
    assert_eq!(assembler.push(&before), Initial::NeedMore);
    let first = initial(b"retried!", b"retried!", 1, &crypto(0, &hello[..1000]));
    let second = initial(b"retried!", b"retried!", 2, &crypto(1000, &hello[1000..]));
    assert_eq!(assembler.push(&second), Initial::NeedMore);
    assert_eq!(name(&assembler.push(&first)), Some(NAME));
}

/// Headers with wrong lengths, and packets that are no Initial, are recognized without a key.
#[test]
fn headers() {
    let packet = initial(&SAMPLE_ID, &SAMPLE_ID, 0, &[1]);
    assert!(looks_like_initial(&packet));
    for len in 0..packet.len() {
        assert!(!looks_like_initial(&packet[..len]), "cut to {len} bytes");
        assert_eq!(Assembler::new().push(&packet[..len]), Initial::NotQuic);
    }
    let changed = |at: usize, byte: u8| {
        let mut packet = packet.clone();
        packet[at] = byte;
        packet
    };
    for (what, other) in [
        ("short header", changed(0, 0x43)),
        ("no fixed bit", changed(0, 0x83)),
        ("0-RTT", changed(0, 0xd3)),
        ("Handshake", changed(0, 0xe3)),
        ("Retry", changed(0, 0xf3)),
        ("Version Negotiation", changed(4, 0)),
        ("unknown version", changed(1, 0x52)),
        ("longer connection ID than there are", changed(5, 21)),
    ] {
        assert!(!looks_like_initial(&other), "{what}");
        assert_eq!(Assembler::new().push(&other), Initial::NotQuic, "{what}");
    }
    // A connection ID of 21 bytes, where all lengths fit.
    let mut long_id = hex("c3 00000001 15");
    long_id.extend_from_slice(&[0; 21]);
    long_id.extend(hex("00 00 14"));
    long_id.extend_from_slice(&[0; 20]);
    assert!(!looks_like_initial(&long_id));
    // Less behind the header than its protection needs.
    let mut short = hex("c3 00000001 08 8394c8f03e515708 00 00 13");
    short.extend_from_slice(&[0; 19]);
    assert!(!looks_like_initial(&short));
}

/// Two Initials and a Handshake packet in one datagram are all read.
#[test]
fn coalesced() {
    let hello = long_hello();
    let mut datagram = hex("e0 00000001 01aa 00 14");
    datagram.extend_from_slice(&[0; 20]);
    datagram.extend(initial(&SAMPLE_ID, &SAMPLE_ID, 1, &crypto(1000, &hello[1000..])));
    datagram.extend(initial(&SAMPLE_ID, &SAMPLE_ID, 0, &crypto(0, &hello[..1000])));
    assert_eq!(name(&Assembler::new().push(&datagram)), Some(NAME));
}

/// All frames that an Initial may hold are passed over; others, frames that do not fit, and
/// offsets beyond the limit are refused.
#[test]
fn frames() {
    let hello = message(&[sni(&[(0, NAME)])]);
    let push = |frames: &[u8]| {
        name(&Assembler::new().push(&initial(&SAMPLE_ID, &SAMPLE_ID, 0, frames)))
            .map(<[u8]>::to_vec)
    };
    let before = hex("00 01 00 02 05 00 01 02 00 01 03 05 00 00 01 07 08 09 1c 4000 06 02 6f6b");
    assert_eq!(push(&[&before[..], &crypto(0, &hello)].concat()).as_deref(), Some(NAME));
    for bad in ["04 00", "02 05 00 7fff", "06 7fff", "06 ffffffffffffffff 01 00", "1c 00 00 7fff"] {
        let frames = [&crypto(0, &hello)[..], &hex(bad)].concat();
        let mut payload = vec![1; 1100 - frames.len()];
        payload.extend_from_slice(&frames);
        // No padding behind, so that the last frame does not fit.
        payload.resize(PACKET_BYTES - 50 + hex(bad).len(), 1);
        let at = payload.len() - hex(bad).len();
        payload[at..].copy_from_slice(&hex(bad));
        assert_eq!(push(&payload), None, "{bad}");
    }
}

/// The assembler gives up on a flow that never completes, whatever the flow sends.
#[test]
fn endless_initials() {
    let mut assembler = Assembler::new();
    for number in 0..u32::from(INITIALS_MAX) {
        let packet = initial(&SAMPLE_ID, &SAMPLE_ID, number, &[1]);
        assert_eq!(assembler.push(&packet), Initial::NeedMore);
    }
    let packet = initial(&SAMPLE_ID, &SAMPLE_ID, 99, &crypto(0, &long_hello()));
    assert_eq!(assembler.push(&packet), Initial::Malformed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However the hello is cut into frames, shuffled, repeated and spread over datagrams, the name
    /// is found with the last missing frame and not before.
    #[test]
    fn shuffled_frames(
        cuts in prop::collection::btree_set(1usize..1700, 1..40),
        order in Just((0..40usize).collect::<Vec<_>>()).prop_shuffle(),
        per_packet in 2usize..12,
    ) {
        let hello = long_hello();
        let mut bounds: Vec<usize> = cuts.into_iter().filter(|&cut| cut < hello.len()).collect();
        bounds.insert(0, 0);
        bounds.push(hello.len());
        let count = bounds.len() - 1;
        let pieces: Vec<usize> = order.into_iter().filter(|&piece| piece < count).collect();
        let mut assembler = Assembler::new();
        let mut sent = 0;
        for (number, packet) in pieces.chunks(per_packet).enumerate() {
            let mut frames = Vec::new();
            for &piece in packet {
                frames.extend(crypto(bounds[piece], &hello[bounds[piece]..bounds[piece + 1]]));
                frames.extend([1, 0, 0]);
            }
            sent += packet.len();
            let datagram = initial(&SAMPLE_ID, &SAMPLE_ID, number as u32, &frames);
            let answer = assembler.push(&datagram);
            if sent < count {
                prop_assert_eq!(answer, Initial::NeedMore);
            } else {
                prop_assert_eq!(name(&answer), Some(NAME));
            }
        }
        prop_assert_eq!(sent, count);
    }

    /// A packet with any byte changed names nothing.
    #[test]
    fn altered_packets(at in any::<prop::sample::Index>(), change in 1u8..) {
        let mut packet = initial(&SAMPLE_ID, &SAMPLE_ID, 0, &crypto(0, &message(&[sni(&[(0, NAME)])])));
        let at = at.index(packet.len());
        packet[at] ^= change;
        let mut assembler = Assembler::new();
        prop_assert!(!matches!(assembler.push(&packet), Initial::Found(_)));
    }

    /// Payloads that open and are random inside, and random datagrams, never panic.
    #[test]
    fn random_payloads(payload in prop::collection::vec(any::<u8>(), 0..600), first in 0xc0u8..) {
        let packet = initial(&SAMPLE_ID, &SAMPLE_ID, 0, &payload);
        Assembler::new().push(&packet);
        let mut raw = vec![first, 0, 0, 0, 1];
        raw.extend_from_slice(&payload);
        looks_like_initial(&raw);
        Assembler::new().push(&raw);
    }
}
