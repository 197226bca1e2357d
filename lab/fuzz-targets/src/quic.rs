//! QUIC: datagrams as they come, and packets that we seal ourselves, since no input guesses a tag:
//! else no byte of a frame would ever be read.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::aes::Aes128;
use aes_gcm::aes::cipher::BlockCipherEncrypt;
use aes_gcm::{AeadCore, Aes128Gcm, Nonce};
use hkdf::Hkdf;
use larder_wire::quic::{Assembler, Initial, looks_like_initial};
use larder_wire::tls::HELLO_BYTES_MAX;
use sha2::Sha256;

use super::Cut;

/// Most packets of one input: each costs two encryptions.
const PACKETS_MAX: usize = 40;

/// Parts of an assembler's life. Each opens with its kind: even, a datagram of the length that two
/// bytes state; odd, frames of the length that two bytes state, which are sealed as a client's
/// Initial packet: with 2 under another connection ID, with 4 together with the next part's packet
/// in one datagram.
pub fn quic(input: &[u8]) {
    let mut cut = Cut(input);
    let mut assembler = Assembler::new();
    let mut datagram = Vec::new();
    let mut all_sealed = true;
    for number in 0..PACKETS_MAX {
        if cut.is_empty() {
            break;
        }
        let kind = cut.u8();
        let len = usize::from(cut.u16() & 0x0fff);
        let bytes = cut.bytes(len);
        all_sealed &= kind & 1 != 0;
        if kind & 1 == 0 {
            datagram.extend_from_slice(bytes);
        } else {
            datagram.extend(seal(kind >> 1 & 1, number as u8, bytes));
        }
        if kind & 4 != 0 && !cut.is_empty() {
            continue;
        }
        let _ = looks_like_initial(&datagram);
        if let Initial::Found(hello) = assembler.push(&datagram) {
            for found in [&hello.server_name, &hello.alpn_first].into_iter().flatten() {
                assert!(found.len() <= HELLO_BYTES_MAX);
                // Padding is the only byte that does not stand in the input.
                let stands = |byte: &u8| *byte == 0 || input.contains(byte);
                assert!(!all_sealed || found.iter().all(stands), "bytes were invented");
            }
            assert!(hello.server_name.as_ref().is_none_or(|name| !name.is_empty()));
        }
        assert!(assembler.held_bytes() <= 2 * HELLO_BYTES_MAX);
        datagram.clear();
    }
}

const SALT_V1: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
    0xcc, 0xbb, 0x7f, 0x0a,
];

/// A client's Initial packet of QUIC version 1 (RFC 9001, section 5) with a packet number of one
/// byte.
fn seal(connection: u8, number: u8, frames: &[u8]) -> Vec<u8> {
    let mut payload = frames.to_vec();
    // Header protection samples sixteen bytes, four behind the number's place.
    payload.resize(payload.len().max(20), 0);
    let destination_id = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, connection];
    let mut packet = vec![0xc0, 0, 0, 0, 1, destination_id.len() as u8];
    packet.extend_from_slice(&destination_id);
    // No source ID, no token; then the length: number, payload and tag.
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(&((1 + payload.len() + 16) as u16 | 0x4000).to_be_bytes());
    let number_at = packet.len();
    packet.push(number);

    let secret: [u8; 32] = expand(&Hkdf::new(Some(&SALT_V1), &destination_id), "client in");
    let client = Hkdf::from_prk(&secret).expect("a secret as long as the hash");
    let key: [u8; 16] = expand(&client, "quic key");
    let mut nonce: [u8; 12] = expand(&client, "quic iv");
    nonce[11] ^= number;
    let nonce: Nonce<<Aes128Gcm as AeadCore>::NonceSize> = nonce.into();
    let tag = Aes128Gcm::new(&key.into())
        .encrypt_inout_detached(&nonce, &packet, payload.as_mut_slice().into())
        .expect("a short payload");
    packet.extend_from_slice(&payload);
    packet.extend_from_slice(&tag);

    let header_key: [u8; 16] = expand(&client, "quic hp");
    let sample: [u8; 16] = packet[number_at + 4..][..16].try_into().expect("a payload to sample");
    let mut mask = sample.into();
    Aes128::new(&header_key.into()).encrypt_block(&mut mask);
    packet[0] ^= mask[0] & 0x0f;
    packet[number_at] ^= mask[1];
    packet
}

/// HKDF-Expand-Label without context (RFC 8446, section 7.1).
fn expand<const BYTES: usize>(secret: &Hkdf<Sha256>, label: &str) -> [u8; BYTES] {
    let label = [b"tls13 ", label.as_bytes()].concat();
    let mut info = vec![0, BYTES as u8, label.len() as u8];
    info.extend_from_slice(&label);
    info.push(0);
    let mut out = [0; BYTES];
    secret.expand(&info, &mut out).expect("shorter than 255 hashes");
    out
}
