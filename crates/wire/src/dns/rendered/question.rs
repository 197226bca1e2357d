//! The query that a response must repeat.

use super::super::edns::rcode;
use super::super::query::TYPE_AND_CLASS_BYTES;
use super::super::{HEADER_BYTES, rtype, skip_name};
use super::rules::{QueryInfo, Unfit};
use crate::read::u16_at;

/// The question of the query, parsed.
pub(super) struct Question<'a> {
    /// Name, type, class.
    pub(super) bytes: &'a [u8],
    pub(super) qtype: u16,
    pub(super) qclass: u16,
    pub(super) dnssec_ok: bool,
}

impl<'a> Question<'a> {
    pub(super) fn of(info: &QueryInfo<'a>) -> Option<Question<'a>> {
        let name_end = skip_name(info.question, 0).ok()?;
        Some(Question {
            bytes: info.question.get(..name_end + TYPE_AND_CLASS_BYTES)?,
            qtype: u16_at(info.question, name_end)?,
            qclass: u16_at(info.question, name_end + 2)?,
            dnssec_ok: info.dnssec_ok,
        })
    }

    /// Compares `message` with the query: true if it is a response that repeats the question, false
    /// if it is a failure without a question.
    pub(super) fn is_repeated(&self, message: &[u8], is_case_random: bool) -> Result<bool, Unfit> {
        let other = Unfit::OtherQuestion;
        let header: &[u8; HEADER_BYTES] = message.first_chunk().ok_or(other)?;
        if header[2] & 0xf8 != 0x80 {
            return Err(other);
        }
        match u16::from_be_bytes([header[4], header[5]]) {
            0 if matches!(u16::from(header[3] & 15), rcode::NOERROR | rcode::NXDOMAIN) => {
                Err(other)
            }
            0 => Ok(false),
            1 => {
                let end = HEADER_BYTES + self.bytes.len();
                let theirs = message.get(HEADER_BYTES..end).ok_or(other)?;
                let (name, fixed) = theirs.split_at(theirs.len() - TYPE_AND_CLASS_BYTES);
                let (own_name, own_fixed) = self.bytes.split_at(name.len());
                if fixed != own_fixed || !name.eq_ignore_ascii_case(own_name) {
                    Err(other)
                } else if is_case_random && name != own_name {
                    Err(Unfit::OtherCase)
                } else {
                    Ok(true)
                }
            }
            _ => Err(other),
        }
    }

    /// True for records that a client gets only if it asks for DNSSEC, or for their type.
    pub(super) fn hides(&self, record_type: u16) -> bool {
        let is_dnssec = matches!(
            record_type,
            rtype::RRSIG | rtype::NSEC | rtype::NSEC3 | rtype::DS | rtype::DNSKEY
        );
        is_dnssec && !self.dnssec_ok && record_type != self.qtype && self.qtype != rtype::ANY
    }
}
