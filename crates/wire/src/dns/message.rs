//! The structure of a message: header, question, and the records section by section.
//!
//! Nothing is read before it is requested. [`Message::parse`] reads the header alone; the records
//! come from an iterator that reads each once, in order, and ends at the first damage.

use super::{DnsError, NameBuf, read_name, skip_name};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 12;

/// Most bytes of a message: the largest length in the prefix on a stream (RFC 1035, 4.2.2).
pub const MESSAGE_BYTES_MAX: usize = 65_535;

/// Fewest bytes of a question: root name, type, class.
const QUESTION_BYTES_MIN: usize = 5;

/// Fewest bytes of a record: root name, type, class, TTL, length of its data.
const RECORD_BYTES_MIN: usize = 11;

/// Record types by number, those that larder reads.
#[allow(missing_docs)]
pub mod rtype {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const MX: u16 = 15;
    pub const AAAA: u16 = 28;
    pub const SIG: u16 = 24;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const RRSIG: u16 = 46;
    pub const NSEC: u16 = 47;
    pub const DNSKEY: u16 = 48;
    pub const NSEC3: u16 = 50;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
    pub const TSIG: u16 = 250;
    pub const ANY: u16 = 255;
}

/// Classes by number.
#[allow(missing_docs)]
pub mod class {
    pub const IN: u16 = 1;
    pub const CH: u16 = 3;
    pub const ANY: u16 = 255;
    /// The top bit: "cache flush" in a multicast DNS record (RFC 6762, section 10.2), "unicast
    /// response wanted" in a question (section 5.4). Not part of the class there.
    pub const MDNS_TOP_BIT: u16 = 0x8000;
}

/// A message, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    header: &'a [u8; HEADER_BYTES],
}

impl<'a> Message<'a> {
    /// Takes the bytes of one whole message; see [`Message::parse_captured`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, DnsError> {
        Message::parse_captured(bytes, bytes.len())
    }

    /// Takes the captured bytes of a message that had `wire_bytes` bytes when it was sent.
    ///
    /// The header's counts are compared with that length: a packet of another protocol seldom
    /// passes. A sender that set TC may have left the counts of the whole response, so they are
    /// compared with [`MESSAGE_BYTES_MAX`] only.
    #[inline]
    pub fn parse_captured(bytes: &'a [u8], wire_bytes: usize) -> Result<Message<'a>, DnsError> {
        let bytes = &bytes[..bytes.len().min(MESSAGE_BYTES_MAX)];
        let header = bytes.first_chunk().ok_or(DnsError::TooShort)?;
        let message = Message { bytes, header };
        let records = Section::ALL.map(|section| usize::from(message.record_count(section)));
        let bytes_min = HEADER_BYTES
            + usize::from(message.question_count()) * QUESTION_BYTES_MIN
            + records.iter().sum::<usize>() * RECORD_BYTES_MIN;
        let room = if message.is_truncated() { MESSAGE_BYTES_MAX } else { wire_bytes };
        if bytes_min > room { Err(DnsError::NotDns) } else { Ok(message) }
    }

    /// The bytes of the message, from its header on.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    fn header_u16(&self, index: usize) -> u16 {
        u16::from_be_bytes([self.header[index], self.header[index + 1]])
    }

    /// The ID that joins a response to its query.
    #[inline]
    pub fn id(&self) -> u16 {
        self.header_u16(0)
    }

    /// QR: a response, not a query.
    #[inline]
    pub fn is_response(&self) -> bool {
        self.header[2] & 0x80 != 0
    }

    /// OPCODE: 0 is a standard query.
    #[inline]
    pub fn opcode(&self) -> u8 {
        self.header[2] >> 3 & 15
    }

    /// TC: the sender omitted records.
    #[inline]
    pub fn is_truncated(&self) -> bool {
        self.header[2] & 2 != 0
    }

    /// RD: the client requests recursion.
    #[inline]
    pub fn recursion_desired(&self) -> bool {
        self.header[2] & 1 != 0
    }

    /// RCODE, the four bits in the header: 0 is success, 3 is NXDOMAIN.
    #[inline]
    pub fn rcode(&self) -> u8 {
        self.header[3] & 15
    }

    /// The OPT record (RFC 6891), if there is one and the records before it can be read. Cost: a
    /// walk over the records.
    pub fn opt(&self) -> Option<Record> {
        let is_opt =
            |record: &Record| record.section == Section::Additional && record.rtype == rtype::OPT;
        self.records().map_while(Result::ok).find(is_opt)
    }

    /// RCODE with the upper eight bits that OPT has: 16 is BADVERS. Cost: as [`Message::opt`].
    pub fn extended_rcode(&self) -> u16 {
        let high = self.opt().map_or(0, |opt| (opt.ttl_raw >> 24) as u16);
        high << 4 | u16::from(self.rcode())
    }

    /// The number of questions in the header.
    #[inline]
    pub fn question_count(&self) -> u16 {
        self.header_u16(4)
    }

    /// Records of a section, by the header.
    #[inline]
    pub fn record_count(&self, section: Section) -> u16 {
        self.header_u16(6 + 2 * section as usize)
    }

    /// The first question; `None` if the header states that there is none.
    #[inline]
    pub fn question(&self) -> Result<Option<Question>, DnsError> {
        if self.question_count() == 0 {
            return Ok(None);
        }
        let (question, _) = self.question_at(HEADER_BYTES)?;
        Ok(Some(question))
    }

    /// The question at `offset`, and where it ends.
    #[inline]
    fn question_at(&self, offset: usize) -> Result<(Question, usize), DnsError> {
        let at = skip_name(self.bytes, offset)?;
        let fixed: &[u8; 4] = fixed_at(self.bytes, at)?;
        let question = Question {
            name_offset: offset,
            qtype: u16::from_be_bytes([fixed[0], fixed[1]]),
            qclass: u16::from_be_bytes([fixed[2], fixed[3]]),
        };
        Ok((question, at + fixed.len()))
    }

    /// Offset of the first record: the byte after the last question.
    #[inline]
    fn records_offset(&self) -> Result<usize, DnsError> {
        let mut at = HEADER_BYTES;
        for _ in 0..self.question_count() {
            (_, at) = self.question_at(at)?;
        }
        Ok(at)
    }

    /// Every record: answers, then authority, then additional. An error is the last item.
    #[inline]
    pub fn records(&self) -> Records<'a> {
        self.records_through(Section::Additional)
    }

    /// The records of the answer section.
    #[inline]
    pub fn answers(&self) -> Records<'a> {
        self.records_through(Section::Answer)
    }

    /// The records of the sections up to and with `last`.
    #[inline]
    pub fn records_through(&self, last: Section) -> Records<'a> {
        let (at, failed) = match self.records_offset() {
            Ok(at) => (at, None),
            Err(error) => (0, Some(error)),
        };
        let left = self.record_count(Section::Answer);
        Records { message: *self, at, section: Section::Answer, left, last, failed }
    }

    /// Reads the name at an offset found in a [`Question`] or [`Record`]; returns its end.
    #[inline]
    pub fn read_name(&self, offset: usize, out: &mut NameBuf) -> Result<usize, DnsError> {
        read_name(self.bytes, offset, out)
    }

    /// The data of a record of this message (empty for a record of another that does not fit).
    #[inline]
    pub fn rdata(&self, record: &Record) -> &'a [u8] {
        self.bytes.get(record.rdata_offset..record.rdata_end()).unwrap_or(&[])
    }

    /// True for the message of a client: a standard query with one readable question, no answers,
    /// and a class in use. To recognize DNS on other ports.
    pub fn looks_like_query(&self) -> bool {
        self.query(&mut NameBuf::new()).is_some()
    }

    /// The question of a message for which [`Message::looks_like_query`] is true, with its name
    /// read into `name`. `None` for any other message; `name` is then undefined.
    pub fn query(&self, name: &mut NameBuf) -> Option<Question> {
        let shape = !self.is_response()
            && self.opcode() == 0
            && self.rcode() == 0
            && self.question_count() == 1
            && self.record_count(Section::Answer) == 0
            && self.record_count(Section::Authority) == 0;
        if !shape {
            return None;
        }
        let question = self.question().ok()??;
        let class = question.qclass & !class::MDNS_TOP_BIT;
        let is_query = matches!(class, class::IN | class::CH | class::ANY)
            && question.qtype != 0
            && self.read_name(question.name_offset, name).is_ok();
        is_query.then_some(question)
    }
}

/// The `N` bytes at `offset`.
#[inline]
fn fixed_at<const N: usize>(bytes: &[u8], offset: usize) -> Result<&[u8; N], DnsError> {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).ok_or(DnsError::SectionTruncated)
}

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Offset of the name, for [`Message::read_name`].
    pub name_offset: usize,
    /// The query type.
    pub qtype: u16,
    /// The query class, as sent; multicast DNS uses its top bit ([`Question::wants_unicast`]).
    pub qclass: u16,
}

impl Question {
    /// The QU bit of a multicast DNS question: the client accepts a unicast response.
    pub fn wants_unicast(&self) -> bool {
        self.qclass & class::MDNS_TOP_BIT != 0
    }
}

/// The three sections that hold records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Section {
    Answer = 0,
    Authority = 1,
    Additional = 2,
}

impl Section {
    /// In the order of the wire.
    pub const ALL: [Section; 3] = [Section::Answer, Section::Authority, Section::Additional];

    fn next(self) -> Option<Section> {
        match self {
            Section::Answer => Some(Section::Authority),
            Section::Authority => Some(Section::Additional),
            Section::Additional => None,
        }
    }
}

/// One record; its names and data stay in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Offset of the owner name, for [`Message::read_name`].
    pub owner_offset: usize,
    /// Type.
    pub rtype: u16,
    /// The class, as sent: multicast DNS uses its top bit, OPT puts a size here.
    pub class: u16,
    /// The TTL field, as sent (OPT puts flags here); [`Record::ttl_s`] is the time.
    pub ttl_raw: u32,
    /// Offset of the data.
    pub rdata_offset: usize,
    /// Bytes of data.
    pub rdata_bytes: usize,
    /// The section that holds it.
    pub section: Section,
}

/// A time of 32 bits, of which 31 count: with the top bit set it is the longest there is (RFC 8767,
/// section 4).
#[inline]
pub(super) fn capped(time_s: u32) -> u32 {
    time_s.min(i32::MAX as u32)
}

impl Record {
    /// Time to live, seconds; a value with the top bit set counts as the longest time (RFC 8767,
    /// section 4).
    #[inline]
    pub fn ttl_s(&self) -> u32 {
        capped(self.ttl_raw)
    }

    /// Offset of the byte after the data.
    #[inline]
    pub fn rdata_end(&self) -> usize {
        self.rdata_offset + self.rdata_bytes
    }
}

/// The records of a message, in order; made by [`Message::records`].
#[derive(Clone, Debug)]
pub struct Records<'a> {
    message: Message<'a>,
    at: usize,
    section: Section,
    left: u16,
    last: Section,
    failed: Option<DnsError>,
}

impl Records<'_> {
    #[inline]
    fn read(&mut self) -> Result<Record, DnsError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let bytes = self.message.bytes;
        let owner_offset = self.at;
        let at = skip_name(bytes, owner_offset)?;
        let fixed: &[u8; 10] = fixed_at(bytes, at)?;
        let rdata_bytes = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let record = Record {
            owner_offset,
            rtype: u16::from_be_bytes([fixed[0], fixed[1]]),
            class: u16::from_be_bytes([fixed[2], fixed[3]]),
            ttl_raw: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            rdata_offset: at + fixed.len(),
            rdata_bytes,
            section: self.section,
        };
        if record.rdata_end() > bytes.len() {
            return Err(DnsError::SectionTruncated);
        }
        self.at = record.rdata_end();
        Ok(record)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, DnsError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.left == 0 {
            if self.section == self.last {
                return None;
            }
            self.section = self.section.next()?;
            self.left = self.message.record_count(self.section);
        }
        let item = self.read();
        if item.is_ok() {
            self.left -= 1;
        } else {
            (self.left, self.last) = (0, self.section);
        }
        Some(item)
    }
}
