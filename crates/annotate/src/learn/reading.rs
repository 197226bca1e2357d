//! A DNS message read ahead of its turn.
//!
//! What a message says depends on its octets alone, so it is read before the messages in front of
//! it have acted; what it does (`NameLearner::heed`) comes in packet order. Between the two, the memory
//! that it will touch is on its way.
//!
//! Bounds: an [`Extract`]'s, and [`HASHES_MAX`] keys. Readings are reused: in the steady state
//! nothing is allocated.

use larder::{Cache, KeyHash};
use larder_wire::Addr;
use larder_wire::dns::answers::{self, Extract};
use larder_wire::dns::{DnsError, Message, NameBuf};
use larder_wire::scope::Scope;

use crate::names::{NameProtocol, Names};

/// Most keys of one answer that are asked for ahead of its turn; the last alias or address may
/// exceed it by one.
const HASHES_MAX: usize = 32;

/// See the module.
#[derive(Default)]
pub(super) struct Reading {
    /// What it came to.
    pub says: Says,
    /// What an answer teaches.
    pub extract: Extract,
    id: u16,
    /// Hash of the name and type asked for.
    asked: u64,
    name: NameBuf,
    /// Keys whose index lines were asked for, and whose entries are to be.
    hashes: Vec<KeyHash>,
}

/// What a [`Reading`] came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Says {
    /// Nothing that matters here.
    #[default]
    Nothing,
    /// A question to remember.
    Question,
    /// What is in the reading's extract, and the damage met on the way.
    Answer(Result<(), DnsError>),
    /// It is no message.
    Damaged(DnsError),
}

/// Who would teach by a datagram between these ports, if it is DNS. 53 first: a resolver may ask
/// from any port, from those of the others too.
#[inline]
pub(super) fn name_protocol(src_port: u16, dst_port: u16) -> Option<NameProtocol> {
    let either = |port| src_port == port || dst_port == port;
    if either(53) {
        Some(NameProtocol::Dns)
    } else if either(5353) {
        Some(NameProtocol::Mdns)
    } else if either(5355) {
        Some(NameProtocol::Llmnr)
    } else {
        None
    }
}

impl Reading {
    /// Reads a message that had `wire_bytes` octets when it was sent.
    pub fn read(
        &mut self,
        cache: &Cache,
        payload: &[u8],
        wire_bytes: usize,
        learned_from: NameProtocol,
    ) {
        self.says = Says::Nothing;
        let message = match Message::parse_captured(payload, wire_bytes) {
            Ok(message) => message,
            Err(error) => {
                self.says = Says::Damaged(error);
                return;
            }
        };
        self.id = message.id();
        let asked = |name: &[u8], qtype: u16| cache.hash(name).get() ^ u64::from(qtype);
        if message.is_response() {
            let extract = &mut self.extract;
            let outcome = match learned_from {
                NameProtocol::Mdns => answers::extract_mdns(&message, extract),
                _ => answers::extract(&message, extract),
            };
            self.says = Says::Answer(outcome);
            let (name, qtype) = (extract.qname(), extract.qtype());
            self.asked = asked(name.unwrap_or_default(), qtype.unwrap_or_default());
        } else if learned_from == NameProtocol::Dns
            && let Some(question) = message.query(&mut self.name)
        {
            self.says = Says::Question;
            self.asked = asked(self.name.as_bytes(), question.qtype);
        }
    }

    /// The key of the question that this is, or that this answers: who asked whom (addresses and
    /// ports), in which network, under which ID, for what.
    pub fn key(
        &self,
        cache: &Cache,
        scope: Scope,
        client: (Addr, u16),
        server: (Addr, u16),
    ) -> u64 {
        let mut octets = [0; 56];
        octets[..16].copy_from_slice(&client.0.0);
        octets[16..32].copy_from_slice(&server.0.0);
        octets[32..40].copy_from_slice(&self.asked.to_le_bytes());
        let ends = u64::from(server.1) << 32 | u64::from(client.1) << 16 | u64::from(self.id);
        octets[40..48].copy_from_slice(&ends.to_le_bytes());
        octets[48..].copy_from_slice(&scope.bits().to_le_bytes());
        cache.hash(&octets).get()
    }

    /// Asks for the index lines that an answer to `client` will touch.
    pub fn ask_for_lines(&mut self, names: &mut Names, scope: Scope, client: Addr) {
        let Reading { says: Says::Answer(_), extract, hashes, .. } = self else { return };
        if extract.addresses().len() > 0 {
            names.prefetch_head(extract.qname().unwrap_or_default());
        }
        for alias in extract.aliases() {
            hashes.push(names.prefetch_alias(alias.target));
        }
        for address in extract.addresses() {
            if hashes.len() >= HASHES_MAX {
                return;
            }
            hashes.extend(names.prefetch(scope, client, address.addr));
        }
    }

    /// With those lines here, asks for the entries that they lead to.
    pub fn ask_for_entries(&mut self, names: &Names) {
        for hash in self.hashes.drain(..) {
            names.prefetch_entry(hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder::Policy;

    /// The octets of a message with one question for `a.test`, type A, after `flags`.
    fn message(id: u16, flags: [u8; 2]) -> Vec<u8> {
        let mut bytes = id.to_be_bytes().to_vec();
        bytes.extend(flags);
        bytes.extend(b"\0\x01\0\0\0\0\0\0\x01A\x04test\0\0\x01\0\x01");
        bytes
    }

    fn read(bytes: &[u8], learned_from: NameProtocol) -> (Reading, Cache) {
        let cache =
            Cache::builder().budget(1 << 20).policy(Policy::Fifo).seed(7).build().expect("a cache");
        let mut reading = Reading::default();
        reading.read(&cache, bytes, bytes.len(), learned_from);
        (reading, cache)
    }

    /// A question and its answer share a key with the ends swapped; another ID, port, client or
    /// server has another one.
    #[test]
    fn answers_find_their_questions() {
        let (client, server) = (Addr::v4([192, 0, 2, 1]), (Addr::v4([192, 0, 2, 53]), 53));
        let (question, cache) = read(&message(9, [1, 0]), NameProtocol::Dns);
        let (answer, _) = read(&message(9, [0x81, 0x80]), NameProtocol::Dns);
        assert_eq!(question.says, Says::Question);
        assert_eq!(answer.says, Says::Answer(Ok(())));
        let key = question.key(&cache, Scope::NONE, (client, 4000), server);
        assert_eq!(answer.key(&cache, Scope::NONE, (client, 4000), server), key);
        let (other, _) = read(&message(10, [0x81, 0x80]), NameProtocol::Dns);
        let others = [
            other.key(&cache, Scope::NONE, (client, 4000), server),
            answer.key(&cache, Scope::NONE, (client, 4001), server),
            answer.key(&cache, Scope::NONE, (server.0, 4000), (client, 53)),
            answer.key(&cache, Scope::NONE, (client, 4000), (client, 53)),
            answer.key(&cache, Scope::NONE, (client, 4000), (server.0, 5353)),
            answer.key(&cache, Scope::NONE.tagged(10), (client, 4000), server),
        ];
        assert!(!others.contains(&key));
    }

    /// Questions count in unicast DNS alone, and what is no message says so; a reading keeps
    /// nothing of the message before.
    #[test]
    fn questions_elsewhere_say_nothing() {
        let (mut reading, cache) = read(&message(9, [0, 0]), NameProtocol::Mdns);
        assert_eq!(reading.says, Says::Nothing);
        reading.read(&cache, b"short", 5, NameProtocol::Dns);
        assert_eq!(reading.says, Says::Damaged(DnsError::TooShort));
        reading.read(&cache, &message(9, [1, 0]), 24, NameProtocol::Dns);
        assert_eq!(reading.says, Says::Question);
    }
}
