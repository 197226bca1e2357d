//! A DNS message that is read ahead of its turn.
//!
//! The content of a message depends on its bytes alone, so it is read before the messages before it are
//! applied; `NameLearner::apply` applies it in packet order. Between the two, the memory that it will
//! touch is prefetched.
//!
//! Bounds: an [`Extract`]'s, and [`HASHES_MAX`] keys. Readings are reused: in the steady state
//! nothing is allocated.

use larder::{Cache, KeyHash};
use larder_wire::Addr;
use larder_wire::dns::answers::{self, Extract};
use larder_wire::dns::{DnsError, Message, NameBuf};
use larder_wire::scope::Scope;

use crate::names::{NameProtocol, Names};

/// Keys of one response that are prefetched; the last alias or address may exceed it by one.
const HASHES_MAX: usize = 32;

/// See the module.
#[derive(Default)]
pub(super) struct Reading {
    pub content: Content,
    /// The aliases and addresses of a response.
    pub extract: Extract,
    id: u16,
    /// Hash of the name and type of the question.
    asked: u64,
    name: NameBuf,
    /// Keys whose index lines were prefetched, and whose entries are next.
    hashes: Vec<KeyHash>,
}

/// The kind of a message that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing that teaches a name.
    #[default]
    Nothing,
    /// A query to remember.
    Query,
    /// A response, which is in the reading's extract, and the damage found in it.
    Response(Result<(), DnsError>),
    /// Not a DNS message.
    Damaged(DnsError),
}

/// The protocol of a datagram between these ports, if it is DNS. 53 comes first: a resolver may query
/// from any port, also from those of the others.
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
    /// Reads a message that had `wire_bytes` bytes when it was sent.
    pub fn read(
        &mut self,
        cache: &Cache,
        payload: &[u8],
        wire_bytes: usize,
        learned_from: NameProtocol,
    ) {
        self.content = Content::Nothing;
        let message = match Message::parse_captured(payload, wire_bytes) {
            Ok(message) => message,
            Err(error) => {
                self.content = Content::Damaged(error);
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
            self.content = Content::Response(outcome);
            let (name, qtype) = (extract.qname(), extract.qtype());
            self.asked = asked(name.unwrap_or_default(), qtype.unwrap_or_default());
        } else if learned_from == NameProtocol::Dns
            && let Some(question) = message.query(&mut self.name)
        {
            self.content = Content::Query;
            self.asked = asked(self.name.as_bytes(), question.qtype);
        }
    }

    /// The key of the query that this is, or that this answers: client and server with their ports,
    /// network, ID, name and type.
    pub fn key(
        &self,
        cache: &Cache,
        scope: Scope,
        client: (Addr, u16),
        server: (Addr, u16),
    ) -> u64 {
        let mut bytes = [0; 56];
        bytes[..16].copy_from_slice(&client.0.0);
        bytes[16..32].copy_from_slice(&server.0.0);
        bytes[32..40].copy_from_slice(&self.asked.to_le_bytes());
        let ends = u64::from(server.1) << 32 | u64::from(client.1) << 16 | u64::from(self.id);
        bytes[40..48].copy_from_slice(&ends.to_le_bytes());
        bytes[48..].copy_from_slice(&scope.bits().to_le_bytes());
        cache.hash(&bytes).get()
    }

    /// Prefetches the index lines that a response to `client` will touch.
    pub fn prefetch_lines(&mut self, names: &mut Names, scope: Scope, client: Addr) {
        let Reading { content: Content::Response(_), extract, hashes, .. } = self else { return };
        let client_hash = names.address_hash(scope, client);
        if extract.addresses().len() > 0 {
            names.prefetch_head(client_hash, extract.qname().unwrap_or_default());
        }
        for alias in extract.aliases() {
            hashes.push(names.prefetch_alias(client_hash, alias.target));
        }
        for address in extract.addresses() {
            if hashes.len() >= HASHES_MAX {
                return;
            }
            hashes.extend(names.prefetch(scope, client, address.addr));
        }
    }

    /// After those lines have arrived, prefetches their entries.
    pub fn prefetch_entries(&mut self, names: &Names) {
        for hash in self.hashes.drain(..) {
            names.prefetch_entry(hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder::Policy;

    /// The bytes of a message with one question for `a.test`, type A, after `flags`.
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

    /// A query and its response share a key with the ends swapped; another ID, port, client or server
    /// has another one.
    #[test]
    fn responses_find_their_queries() {
        let (client, server) = (Addr::v4([192, 0, 2, 1]), (Addr::v4([192, 0, 2, 53]), 53));
        let (query, cache) = read(&message(9, [1, 0]), NameProtocol::Dns);
        let (response, _) = read(&message(9, [0x81, 0x80]), NameProtocol::Dns);
        assert_eq!(query.content, Content::Query);
        assert_eq!(response.content, Content::Response(Ok(())));
        let key = query.key(&cache, Scope::NONE, (client, 4000), server);
        assert_eq!(response.key(&cache, Scope::NONE, (client, 4000), server), key);
        let (other, _) = read(&message(10, [0x81, 0x80]), NameProtocol::Dns);
        let others = [
            other.key(&cache, Scope::NONE, (client, 4000), server),
            response.key(&cache, Scope::NONE, (client, 4001), server),
            response.key(&cache, Scope::NONE, (server.0, 4000), (client, 53)),
            response.key(&cache, Scope::NONE, (client, 4000), (client, 53)),
            response.key(&cache, Scope::NONE, (client, 4000), (server.0, 5353)),
            response.key(&cache, Scope::NONE.tagged(10), (client, 4000), server),
        ];
        assert!(!others.contains(&key));
    }

    /// Queries count in unicast DNS only, and bytes that are no message are damage; a reading keeps nothing
    /// of the message before.
    #[test]
    fn queries_count_in_unicast_dns_only() {
        let (mut reading, cache) = read(&message(9, [0, 0]), NameProtocol::Mdns);
        assert_eq!(reading.content, Content::Nothing);
        reading.read(&cache, b"short", 5, NameProtocol::Dns);
        assert_eq!(reading.content, Content::Damaged(DnsError::TooShort));
        reading.read(&cache, &message(9, [1, 0]), 24, NameProtocol::Dns);
        assert_eq!(reading.content, Content::Query);
    }
}
