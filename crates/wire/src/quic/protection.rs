//! The keys of Initial packets, and the decryption of these packets (RFC 9001, section 5; RFC 9369,
//! section 3.3).

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::aes::Aes128;
use aes_gcm::aes::cipher::BlockCipherEncrypt;
use aes_gcm::{Aes128Gcm, Nonce, Tag};
use hkdf::Hkdf;
use sha2::Sha256;

use super::header::Version;

/// Salts of HKDF-Extract, which each version changes on purpose.
const SALT_V1: [u8; 20] = [
    0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad,
    0xcc, 0xbb, 0x7f, 0x0a,
];
const SALT_V2: [u8; 20] = [
    0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26, 0x9d, 0xcb,
    0xf9, 0xbd, 0x2e, 0xd9,
];
const SALT_DRAFT_29: [u8; 20] = [
    0xaf, 0xbf, 0xec, 0x28, 0x99, 0x93, 0xd2, 0x4c, 0x9e, 0x97, 0x86, 0xf1, 0x9c, 0x61, 0x11, 0xe0,
    0x43, 0x90, 0xa8, 0x99,
];
/// Of drafts 23 to 28, of draft 22, and of Google's versions T051, T050 and Q050.
const SALT_DRAFT_23: [u8; 20] = [
    0xc3, 0xee, 0xf7, 0x12, 0xc7, 0x2e, 0xbb, 0x5a, 0x11, 0xa7, 0xd2, 0x43, 0x2b, 0xb4, 0x63, 0x65,
    0xbe, 0xf9, 0xf5, 0x02,
];
const SALT_DRAFT_22: [u8; 20] = [
    0x7f, 0xbc, 0xdb, 0x0e, 0x7c, 0x66, 0xbb, 0xe9, 0x19, 0x3a, 0x96, 0xcd, 0x21, 0x51, 0x9e, 0xbd,
    0x7a, 0x02, 0x64, 0x4a,
];
const SALT_T051: [u8; 20] = [
    0x7a, 0x4e, 0xde, 0xf4, 0xe7, 0xcc, 0xee, 0x5f, 0xa4, 0x50, 0x6c, 0x19, 0x12, 0x4f, 0xc8, 0xcc,
    0xda, 0x6e, 0x03, 0x3d,
];
const SALT_T050: [u8; 20] = [
    0x7f, 0xf5, 0x79, 0xe5, 0xac, 0xd0, 0x72, 0x91, 0x55, 0x80, 0x30, 0x4c, 0x43, 0xa2, 0x36, 0x7c,
    0x60, 0x48, 0x83, 0x10,
];
const SALT_Q050: [u8; 20] = [
    0x50, 0x45, 0x74, 0xef, 0xd0, 0x66, 0xfe, 0x2f, 0x9d, 0x94, 0x5c, 0xfc, 0xdb, 0xd3, 0xa7, 0xf0,
    0xd3, 0xb5, 0x6b, 0x45,
];

const TAG_BYTES: usize = 16;

/// Keys of one side's Initial packets.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Keys {
    key: [u8; 16],
    iv: [u8; 12],
    header_key: [u8; 16],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

/// A packet without its protection.
pub(super) struct Opened {
    /// Header and payload, without the tag.
    pub(super) packet: Vec<u8>,
    /// Offset of the payload.
    pub(super) payload_at: usize,
}

impl Keys {
    /// The client's keys, from the connection ID of its first Initial.
    pub(super) fn of_client(version: Version, destination_id: &[u8]) -> Keys {
        let salt = match version {
            Version::V1 => &SALT_V1,
            Version::V2 => &SALT_V2,
            Version::Draft29 => &SALT_DRAFT_29,
            Version::Draft23 => &SALT_DRAFT_23,
            Version::Draft22 => &SALT_DRAFT_22,
            Version::T051 => &SALT_T051,
            Version::T050 => &SALT_T050,
            Version::Q050 => &SALT_Q050,
        };
        let (key_label, iv_label, header_label) = match version {
            Version::V2 => ("quicv2 key", "quicv2 iv", "quicv2 hp"),
            _ => ("quic key", "quic iv", "quic hp"),
        };
        let initial = Hkdf::<Sha256>::new(Some(salt), destination_id);
        let secret: [u8; 32] = expand_label(&initial, "client in");
        let client = Hkdf::from_prk(&secret).expect("a secret as long as the hash");
        Keys {
            key: expand_label(&client, key_label),
            iv: expand_label(&client, iv_label),
            header_key: expand_label(&client, header_label),
        }
    }

    /// Removes the protection of one packet; `None` if it was not sealed with these keys.
    pub(super) fn open(&self, packet: &[u8], packet_number_at: usize) -> Option<Opened> {
        let mut packet = packet.to_vec();
        let mask = self.header_mask(&packet, packet_number_at)?;
        packet[0] ^= mask[0] & 0x0f;
        let payload_at = packet_number_at + 1 + usize::from(packet[0] & 3);
        let tag_at = packet.len().checked_sub(TAG_BYTES)?;
        let (header, body) = packet.split_at_mut_checked(payload_at)?;
        xor(&mut header[packet_number_at..], &mask[1..]);
        let (body, tag) = body.split_at_mut_checked(tag_at.checked_sub(payload_at)?)?;
        let tag: [u8; TAG_BYTES] = (*tag).try_into().ok()?;
        // The first packets of a connection: their numbers are sent in full.
        let nonce = self.nonce(&header[packet_number_at..]);
        Aes128Gcm::new(&self.key.into())
            .decrypt_inout_detached(&nonce, header, body.into(), &Tag::from(tag))
            .ok()?;
        packet.truncate(tag_at);
        Some(Opened { packet, payload_at })
    }

    /// AES of a sample of the ciphertext (RFC 9001, section 5.4.3).
    fn header_mask(&self, packet: &[u8], packet_number_at: usize) -> Option<[u8; 5]> {
        let sample: [u8; 16] = *packet.get(packet_number_at + 4..)?.first_chunk()?;
        let mut block = sample.into();
        Aes128::new(&self.header_key.into()).encrypt_block(&mut block);
        block.first_chunk().copied()
    }

    fn nonce(&self, packet_number: &[u8]) -> Nonce<<Aes128Gcm as aes_gcm::AeadCore>::NonceSize> {
        let mut nonce = self.iv;
        let from = nonce.len() - packet_number.len();
        xor(&mut nonce[from..], packet_number);
        nonce.into()
    }
}

fn xor(bytes: &mut [u8], mask: &[u8]) {
    bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}

/// HKDF-Expand-Label without context (RFC 8446, section 7.1).
fn expand_label<const BYTES: usize>(secret: &Hkdf<Sha256>, label: &str) -> [u8; BYTES] {
    const PREFIX: &str = "tls13 ";
    let length = (BYTES as u16).to_be_bytes();
    let label_bytes = [(PREFIX.len() + label.len()) as u8];
    let mut out = [0; BYTES];
    secret
        .expand_multi_info(
            &[&length, &label_bytes, PREFIX.as_bytes(), label.as_bytes(), &[0]],
            &mut out,
        )
        .expect("shorter than 255 hashes");
    out
}

#[cfg(test)]
impl Keys {
    pub(super) fn parts(&self) -> (&[u8], &[u8], &[u8]) {
        (&self.key, &self.iv, &self.header_key)
    }

    /// Seals a packet as a client does: `header` ends with the packet number.
    pub(super) fn seal(&self, header: &[u8], packet_number_at: usize, payload: &[u8]) -> Vec<u8> {
        let mut body = payload.to_vec();
        let nonce = self.nonce(&header[packet_number_at..]);
        let tag = Aes128Gcm::new(&self.key.into())
            .encrypt_inout_detached(&nonce, header, body.as_mut_slice().into())
            .expect("a short payload");
        let mut packet = [header, &body, &tag].concat();
        let mask = self.header_mask(&packet, packet_number_at).expect("a payload to sample");
        packet[0] ^= mask[0] & 0x0f;
        xor(&mut packet[packet_number_at..header.len()], &mask[1..]);
        packet
    }
}
