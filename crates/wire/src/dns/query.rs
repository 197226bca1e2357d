//! A query, read in one pass; its name is folded into the key of a cache on the way.
//!
//! ```text
//! bytes -> Query::read -> Ok(Query)     a good query; its name, type and class are in the KeyBuf
//!                          Err(Refused)  the response to send instead, or none
//! KeyBuf -> finish(other parts of the key) -> the key, at most 255 bytes
//! ```
//!
//! Refused messages: see [`Refusal`]. A response never gets a response, or two servers could send
//! to each other forever; a message too short for a header gets none either. A message with no
//! question or more than one has a format error (RFC 9619). So has a compressed name, since no name
//! is before it. Bytes after the last counted record are ignored. There may be one OPT (RFC 6891);
//! other additional records (for example, a signature) are ignored.
//!
//! The key is the name in wire form and lower case, type, class, and the caller's addition: flags,
//! view, generation of a policy, scope of a client's network. A name may have 255 bytes, and so may
//! a key of the engine. So the key of a very long name is a digest: a byte 255, with which no name
//! begins, and SHA-256 of the long form. No one can find two queries with one digest (2^128 tries),
//! and [`rendered`](super::rendered) compares the question with the stored one anyway.
//!
//! Cost: one walk over the labels, one over the name's bytes sixteen at a time; where the query
//! has EDNS, one over its options. Nothing is allocated, and no byte is read more than twice.

use sha2::{Digest, Sha256};

use super::edns::{self, Edns, EdnsError, Opt, UDP_BYTES_PLAIN, header_rcode, rcode};
use super::{HEADER_BYTES, NAME_WIRE_BYTES_MAX};

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = 255;

/// Bytes of type and class, after the name.
pub(super) const TYPE_AND_CLASS_BYTES: usize = 4;

/// Bytes that are folded at once.
const BLOCK_BYTES: usize = 16;

/// Room for the longest name, type and class, in whole blocks.
const CAPACITY: usize = (NAME_WIRE_BYTES_MAX + TYPE_AND_CLASS_BYTES).next_multiple_of(BLOCK_BYTES);

/// First byte of the key of a long name; a name begins with 63 at most.
const DIGEST_MARK: u8 = 0xff;

/// The key of a query. Reused from query to query; never on the heap.
#[derive(Debug, Clone)]
pub struct KeyBuf {
    len: usize,
    bytes: [u8; CAPACITY],
}

impl KeyBuf {
    /// An empty one.
    pub const fn new() -> KeyBuf {
        KeyBuf { len: 0, bytes: [0; CAPACITY] }
    }

    /// Its bytes: after [`Query::read`] name, type and class, up to 259; after [`KeyBuf::finish`]
    /// the key.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Adds the other parts that distinguish responses, once for each [`Query::read`], and returns
    /// the key: from 5 to 255 bytes. `extra` should have the same length for all queries, as it is
    /// last. A longer key becomes a digest of 33 bytes.
    #[inline]
    pub fn finish(&mut self, extra: &[u8]) -> &[u8] {
        let end = self.len + extra.len();
        if end <= KEY_BYTES_MAX {
            self.bytes[self.len..end].copy_from_slice(extra);
            self.len = end;
        } else {
            self.digest(extra);
        }
        self.as_bytes()
    }

    #[cold]
    fn digest(&mut self, extra: &[u8]) {
        let digest = Sha256::new().chain_update(self.as_bytes()).chain_update(extra).finalize();
        self.bytes[0] = DIGEST_MARK;
        self.bytes[1..=digest.len()].copy_from_slice(&digest);
        self.len = 1 + digest.len();
    }

    /// Takes a name in wire form with type and class after it, the name in lower case.
    #[inline]
    fn fold(&mut self, question: &[u8]) {
        // Bytes of length are below those of letters, so the name is folded as a whole. Type and
        // class follow in the last block or beyond it, and are put right below.
        for (to, from) in self.bytes.chunks_mut(BLOCK_BYTES).zip(question.chunks(BLOCK_BYTES)) {
            match (to.first_chunk_mut::<BLOCK_BYTES>(), from.first_chunk::<BLOCK_BYTES>()) {
                (Some(to), Some(from)) => *to = from.map(|byte| byte.to_ascii_lowercase()),
                _ => {
                    for (to, from) in to.iter_mut().zip(from) {
                        *to = from.to_ascii_lowercase();
                    }
                }
            }
        }
        let name_bytes = question.len() - TYPE_AND_CLASS_BYTES;
        self.bytes[name_bytes..question.len()].copy_from_slice(&question[name_bytes..]);
        self.len = question.len();
    }
}

impl AsRef<[u8]> for KeyBuf {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Default for KeyBuf {
    fn default() -> KeyBuf {
        KeyBuf::new()
    }
}

/// A query that can get a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query<'a> {
    /// The response repeats it.
    pub id: u16,
    /// RD: recursion is desired.
    pub recursion_desired: bool,
    /// AD: the client requests the validation state (RFC 6840, section 5.7).
    pub authentic_data: bool,
    /// CD: the client also accepts data that fails validation (RFC 4035, section 3.2.2).
    pub checking_disabled: bool,
    /// Name, type and class as received.
    question: &'a [u8],
    /// The query type.
    pub qtype: u16,
    /// The query class.
    pub qclass: u16,
    /// The query's EDNS, if it has it.
    pub edns: Option<Edns<'a>>,
}

/// The response to a message that is no good query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing: it is a response, or has no whole header.
    Silence,
    /// [`rcode::NOTIMP`]: an operation other than a standard query.
    NotImplemented,
    /// [`rcode::FORMERR`]: not one question, a name or record that cannot be read, records where a
    /// query has none, more than one OPT.
    Malformed,
    /// [`rcode::BADVERS`]: a version of EDNS other than 0 (RFC 6891, section 6.1.3).
    Version,
}

/// Why a message is no good query, and which of its parts a response can repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The kind of refusal.
    pub refusal: Refusal,
    /// Bytes of the message up to the end of its question, if that could be read, else of the
    /// header: the response repeats them.
    pub repeated_bytes: usize,
    /// The message has an OPT record: the response has one too.
    pub has_edns: bool,
    /// The bit that is DO in version 0, which is copied (RFC 3225, section 3), as other versions
    /// may have it too.
    pub dnssec_ok: bool,
}

impl<'a> Query<'a> {
    /// Reads a message from a client. Name, type and class are written into `key`, which is useless
    /// after an error.
    #[inline]
    pub fn read(message: &'a [u8], key: &mut KeyBuf) -> Result<Query<'a>, Refused> {
        let query = Query::parse(message)?;
        key.fold(query.question);
        Ok(query)
    }

    /// Like [`Query::read`], for callers without a key.
    #[inline]
    pub fn parse(message: &'a [u8]) -> Result<Query<'a>, Refused> {
        let refused = |refusal, repeated_bytes| {
            Err(Refused { refusal, repeated_bytes, has_edns: false, dnssec_ok: false })
        };
        let Some(header) = message.first_chunk::<HEADER_BYTES>() else {
            return refused(Refusal::Silence, 0);
        };
        if header[2] & 0x80 != 0 {
            return refused(Refusal::Silence, 0);
        }
        if header[2] & 0x78 != 0 {
            return refused(Refusal::NotImplemented, HEADER_BYTES);
        }
        let counts: [u16; 4] =
            std::array::from_fn(|at| u16::from_be_bytes([header[4 + 2 * at], header[5 + 2 * at]]));
        let [1, answers, authorities, additionals] = counts else {
            return refused(Refusal::Malformed, HEADER_BYTES);
        };
        let Some(question) = question(message) else {
            return refused(Refusal::Malformed, HEADER_BYTES);
        };
        let end = HEADER_BYTES + question.len();
        if answers != 0 || authorities != 0 {
            return refused(Refusal::Malformed, end);
        }
        let edns = match additionals {
            0 => None,
            _ => match edns::find(message, end, additionals) {
                Ok(edns) => edns,
                Err(EdnsError::Version(dnssec_ok)) => {
                    let refusal = Refusal::Version;
                    return Err(Refused {
                        refusal,
                        repeated_bytes: end,
                        has_edns: true,
                        dnssec_ok,
                    });
                }
                Err(EdnsError::Malformed(has_edns)) => {
                    let (refusal, dnssec_ok) = (Refusal::Malformed, false);
                    return Err(Refused { refusal, repeated_bytes: end, has_edns, dnssec_ok });
                }
            },
        };
        let fixed = question.last_chunk::<TYPE_AND_CLASS_BYTES>().unwrap_or(&[0; 4]);
        Ok(Query {
            id: u16::from_be_bytes([header[0], header[1]]),
            recursion_desired: header[2] & 1 != 0,
            authentic_data: header[3] & 0x20 != 0,
            checking_disabled: header[3] & 0x10 != 0,
            question,
            qtype: u16::from_be_bytes([fixed[0], fixed[1]]),
            qclass: u16::from_be_bytes([fixed[2], fixed[3]]),
            edns,
        })
    }

    /// Name in wire form, type and class, as received; the response repeats the case of the name.
    #[inline]
    pub fn question(&self) -> &'a [u8] {
        self.question
    }

    /// The name as received, in wire form.
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        &self.question[..self.question.len() - TYPE_AND_CLASS_BYTES]
    }

    /// The largest response over UDP, bytes, if the server sends at most `server_max`.
    #[inline]
    pub fn udp_bytes_max(&self, server_max: u16) -> usize {
        let client = self.edns.map_or(UDP_BYTES_PLAIN, |edns| edns.udp_bytes.max(UDP_BYTES_PLAIN));
        usize::from(client.min(server_max.max(UDP_BYTES_PLAIN)))
    }

    /// True where records of DNSSEC are wanted.
    #[inline]
    pub fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    /// True if the client uses AD of the response (RFC 6840, section 5.7).
    #[inline]
    pub fn wants_authentic_data(&self) -> bool {
        self.authentic_data || self.dnssec_ok()
    }

    /// Writes a response with a response code and no records: refusals, failures, empty local
    /// zones. `udp_bytes` is our size in OPT, `options` are its options, used if the client sent
    /// EDNS. Returns the length; `None` if `out` has no room.
    pub fn write_empty(
        &self,
        rcode: u16,
        udp_bytes: u16,
        options: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let flags =
            [u8::from(self.recursion_desired), u8::from(self.checking_disabled) << 4 | 0x80];
        let dnssec_ok = self.dnssec_ok();
        let opt = self.edns.map(|_| Opt { udp_bytes, dnssec_ok, rcode, options });
        write_empty(self.id, flags, self.question, rcode, opt, out)
    }
}

impl Refused {
    /// The response code; `None` if no response is sent.
    pub fn rcode(&self) -> Option<u16> {
        match self.refusal {
            Refusal::Silence => None,
            Refusal::NotImplemented => Some(rcode::NOTIMP),
            Refusal::Malformed => Some(rcode::FORMERR),
            Refusal::Version => Some(rcode::BADVERS),
        }
    }

    /// Writes the response to `message`, which was refused. `udp_bytes` is our size in OPT. Returns
    /// the length, which exceeds that of `message` by an OPT record at most; `None` if no response
    /// is sent, or `out` has no room.
    pub fn write(&self, message: &[u8], udp_bytes: u16, out: &mut [u8]) -> Option<usize> {
        let rcode = self.rcode()?;
        let header = message.first_chunk::<HEADER_BYTES>()?;
        let question = message.get(HEADER_BYTES..self.repeated_bytes)?;
        // Operation and RD; CD and RA.
        let flags = [header[2] & 0x79, header[3] & 0x10 | 0x80];
        let opt = Opt { udp_bytes, dnssec_ok: self.dnssec_ok, rcode, options: &[] };
        let id = u16::from_be_bytes([header[0], header[1]]);
        write_empty(id, flags, question, rcode, self.has_edns.then_some(opt), out)
    }
}

/// Writes header, question and OPT, each if there is one.
fn write_empty(
    id: u16,
    flags: [u8; 2],
    question: &[u8],
    rcode: u16,
    opt: Option<Opt<'_>>,
    out: &mut [u8],
) -> Option<usize> {
    let mut header = [0; HEADER_BYTES];
    header[..2].copy_from_slice(&id.to_be_bytes());
    header[2] = 0x80 | flags[0];
    header[3] = flags[1] | header_rcode(rcode, opt.is_some());
    header[5] = u8::from(!question.is_empty());
    header[11] = u8::from(opt.is_some());
    let end = HEADER_BYTES + question.len();
    out.get_mut(..HEADER_BYTES)?.copy_from_slice(&header);
    out.get_mut(HEADER_BYTES..end)?.copy_from_slice(question);
    opt.map_or(Some(end), |opt| opt.write(out, end))
}

/// The question of a message: a name that is not compressed, type and class.
#[inline]
fn question(message: &[u8]) -> Option<&[u8]> {
    let mut at = HEADER_BYTES;
    loop {
        match *message.get(at)? {
            0 => break,
            length @ 1..=63 => at += 1 + usize::from(length),
            _ => return None,
        }
        if at - HEADER_BYTES >= NAME_WIRE_BYTES_MAX {
            return None;
        }
    }
    message.get(HEADER_BYTES..at + 1 + TYPE_AND_CLASS_BYTES)
}

#[cfg(test)]
mod tests;
