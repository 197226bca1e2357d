//! Questions and answers of DNS in a capture: pcap or pcapng, any link type and tunnel that we read.
//!
//! A question seen is a lookup of its name, type and class. An answer seen stores what was asked for, with
//! the least TTL of the answer section, or, of a negative answer, the one that its SOA record allows (RFC 2308,
//! section 5). So a cache that fills itself on a miss and one that only receives the responses (a capture's own)
//! can both be replayed. A capture on both sides of a resolver has the questions of both.
//!
//! Read are messages over UDP, and over TCP where a segment begins with one and holds all of it; port 53 on
//! either side. Fragments and streams are not put together: a DNS question fits a packet.
//!
//! Bound: the window grows to 32 MiB where a damaged capture has to be searched.

use std::io;

use larder_wire::capture::{Capture, OpenError, Record, Step};
use larder_wire::dns::{Message, NameBuf, Section, tcp};
use larder_wire::packet::{self, Skip};

use super::digits::Clock;
use super::reader::TraceReader;
use super::zeek::query_key;
use super::{BATCH_REQUESTS, Damage, Source};
use crate::request::{Op, Request};

const DNS_PORT: u16 = 53;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Record type of the start of authority.
const SOA: u16 = 6;

/// Response codes that say something that may be kept: there is an answer, there is no such name.
const NOERROR: u8 = 0;
const NXDOMAIN: u8 = 3;

/// `pcap-dns`.
pub struct PcapDns {
    reader: TraceReader,
    capture: Capture,
    queries: Queries,
    damage: Damage,
}

impl PcapDns {
    /// Reads the header.
    pub fn open(mut reader: TraceReader) -> Result<PcapDns, OpenError> {
        let (capture, offset) = Capture::open(reader.peek())?;
        reader.take(offset);
        Ok(PcapDns { reader, capture, queries: Queries::default(), damage: Damage::default() })
    }
}

impl Source for PcapDns {
    fn next(&mut self, batch: &mut Vec<Request>) -> io::Result<()> {
        batch.clear();
        while batch.len() < BATCH_REQUESTS {
            let offset = self.reader.offset();
            let taken = match self.capture.next(self.reader.peek(), 0, self.reader.ended()) {
                Step::Record(record) => {
                    if let Err(why) = self.queries.read(&record, batch) {
                        self.damage.add(|| format!("byte {offset}: {why}"));
                    }
                    record.next_offset
                }
                Step::Meta { next_offset } => next_offset,
                Step::Damaged { kind, next_offset } => {
                    self.damage.add(|| format!("byte {offset}: {}", kind.as_str()));
                    next_offset
                }
                Step::NeedMore => {
                    self.reader.fill();
                    continue;
                }
                Step::End => break,
            };
            self.reader.take(taken);
        }
        self.reader.count_failure(&mut self.damage);
        Ok(())
    }

    fn damage(&self) -> Damage {
        self.damage.clone()
    }
}

/// What is remembered from packet to packet.
#[derive(Default)]
struct Queries {
    clock: Clock,
    name: NameBuf,
    scratch: Vec<u8>,
}

impl Queries {
    /// Adds what a packet asks or answers, if it is DNS; or states why it cannot be known.
    fn read(&mut self, record: &Record<'_>, batch: &mut Vec<Request>) -> Result<(), &'static str> {
        let packet = match packet::decode(record.link_type, record.frame) {
            Ok(packet) => packet,
            Err(Skip::NotIp(_)) => return Ok(()),
            Err(Skip::UnknownLinkType(_)) => return Err("a link type that we do not read"),
            Err(_) => return Err("a packet cut short or malformed"),
        };
        let ours = packet.src_port == DNS_PORT || packet.dst_port == DNS_PORT;
        if !ours || packet.fragment.is_some() {
            return Ok(());
        }
        let start = packet.payload_offset as usize;
        let payload = record.frame.get(start..start + packet.payload_len as usize);
        let mut payload = payload.unwrap_or_default();
        match packet.protocol {
            UDP => self.message(payload, packet.payload_bytes as usize, record.ts_ns, batch),
            TCP => {
                // A segment that does not begin with a message continues one.
                while let Ok(Some(range)) = tcp::next_message(payload) {
                    let message = &payload[range.clone()];
                    self.message(message, message.len(), record.ts_ns, batch)?;
                    payload = &payload[range.end..];
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn message(
        &mut self,
        bytes: &[u8],
        wire_bytes: usize,
        time_ns: i64,
        batch: &mut Vec<Request>,
    ) -> Result<(), &'static str> {
        const DAMAGED: &str = "a DNS message that can't be read";
        let message = Message::parse_captured(bytes, wire_bytes).map_err(|_| DAMAGED)?;
        if message.opcode() != 0 {
            return Ok(());
        }
        let Some(question) = message.question().map_err(|_| DAMAGED)? else { return Ok(()) };
        message.read_name(question.name_offset, &mut self.name).map_err(|_| DAMAGED)?;
        let name = self.name.as_bytes();
        let key = query_key(name, question.qtype, question.qclass, &mut self.scratch);
        let request = match message.is_response() {
            false => Request::get(key),
            true => match ttl_s(&message).map_err(|()| DAMAGED)? {
                Some(ttl_s) => Request { op: Op::Set, ttl_s, ..Request::get(key) },
                None => return Ok(()),
            },
        };
        batch.push(Request { time_s: self.clock.since_first(time_ns), ..request });
        Ok(())
    }
}

/// How long a response may be kept; `None` where it may not. An error where it can't be read.
fn ttl_s(message: &Message<'_>) -> Result<Option<u32>, ()> {
    if message.is_truncated() || !matches!(message.rcode(), NOERROR | NXDOMAIN) {
        return Ok(None);
    }
    let (mut answer_s, mut negative_s) = (None, None);
    for record in message.records_through(Section::Authority) {
        let record = record.map_err(|_| ())?;
        if record.section == Section::Answer {
            let ttl_s = record.ttl_s();
            answer_s = Some(answer_s.map_or(ttl_s, |least: u32| least.min(ttl_s)));
        } else if record.rtype == SOA
            && let Some(minimum) = message.rdata(&record).last_chunk::<4>()
        {
            negative_s = Some(record.ttl_s().min(u32::from_be_bytes(*minimum)));
        }
    }
    // A chain of aliases that ends in nothing is as good as its least part.
    Ok(match message.rcode() {
        NOERROR if answer_s.is_some() => answer_s,
        _ => match (answer_s, negative_s) {
            (Some(answer_s), Some(negative_s)) => Some(negative_s.min(answer_s)),
            (_, negative_s) => negative_s,
        },
    })
}
