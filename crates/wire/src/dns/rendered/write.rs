//! Writes a stored response for a client: a copy, and what differs between clients.

use super::super::edns::{Opt, header_rcode};
use super::super::query::{Query, TYPE_AND_CLASS_BYTES};
use super::super::{HEADER_BYTES, Message, NameBuf, Record, Section, rtype, skip_name};
use super::{AUTHENTIC_DATA, HEAD_BYTES, write_counts};
use crate::read::{u16_at, u32_at};

/// The parts of a response that are not in the stored one.
#[derive(Debug, Clone, Copy)]
pub struct Reply<'a> {
    /// Seconds, by the clock that [`Renderer::render`](super::Renderer::render) was given.
    pub now_s: u32,
    /// Most bytes of the response: [`Query::udp_bytes_max`], or 65,535 on a stream.
    pub bytes_max: usize,
    /// Our UDP size in OPT, bytes.
    pub udp_bytes: u16,
    /// TTL of expired records, seconds: 0, except for a response that is served stale (RFC 8767,
    /// section 5, recommends 30).
    pub stale_ttl_s: u32,
    /// EDNS options in wire form; sent only to clients with EDNS, and omitted if not even a
    /// response without records has room for them.
    pub options: &'a [u8],
}

/// Writes the stored response to `query` into `out`, and returns its length. `None` if `stored` is
/// no response to this query, or `out` has no room for the whole response or `bytes_max`, whichever
/// is less (512 bytes without options are always enough).
///
/// A response that is too long loses whole sets of records from its end, and if any of those is
/// outside the additional section, or is an address in a referral (RFC 9471), TC is set (RFC 2181,
/// section 9). Question and OPT are never cut. AA is never set, RA always; AD if the response has
/// it and the client uses it (RFC 6840, section 5.7); RD and CD are the client's.
#[inline]
pub fn write(stored: &[u8], query: &Query<'_>, reply: &Reply<'_>, out: &mut [u8]) -> Option<usize> {
    let born_s = u32_at(stored, 0)?;
    let count = usize::from(u16_at(stored, 4)?);
    let rcode = u16_at(stored, 6)?;
    let message_end = stored.len().checked_sub(2 * count)?;
    let message = stored.get(HEAD_BYTES..message_end)?;
    let question_end = HEADER_BYTES + query.question().len();
    if !is_same_question(message.get(HEADER_BYTES..question_end)?, query.question()) {
        return None;
    }

    let room = reply.bytes_max.min(out.len());
    let mut opt = query.edns.map(|edns| Opt {
        udp_bytes: reply.udp_bytes,
        dnssec_ok: edns.dnssec_ok,
        rcode,
        options: reply.options,
    });
    if let Some(opt) = &mut opt
        && question_end + opt.bytes() > room
    {
        opt.options = &[];
    }
    let room = room.checked_sub(opt.map_or(0, |opt| opt.bytes()))?;
    let cut = if message.len() <= room { None } else { Some(cut(message, room)?) };
    let end = cut.as_ref().map_or(message.len(), |cut| cut.end);
    out.get_mut(..end)?.copy_from_slice(&message[..end]);

    let age_s = reply.now_s.saturating_sub(born_s);
    for at in stored[message_end..].chunks_exact(2) {
        let at = usize::from(u16::from_be_bytes([at[0], at[1]]));
        let Some(ttl) = out[..end].get_mut(at..).and_then(<[u8]>::first_chunk_mut) else { break };
        let rest_s = u32::from_be_bytes(*ttl).saturating_sub(age_s);
        *ttl = if rest_s > 0 { rest_s } else { reply.stale_ttl_s }.to_be_bytes();
    }

    out.get_mut(HEADER_BYTES..question_end)?.copy_from_slice(query.question());
    out[..2].copy_from_slice(&query.id.to_be_bytes());
    let is_truncated = cut.as_ref().is_some_and(|cut| cut.is_truncated);
    out[2] = 0x80 | u8::from(is_truncated) << 1 | u8::from(query.recursion_desired);
    let earned = if query.wants_authentic_data() { message[3] & AUTHENTIC_DATA } else { 0 };
    let header_rcode = header_rcode(rcode, opt.is_some());
    out[3] = 0x80 | earned | u8::from(query.checking_disabled) << 4 | header_rcode;
    if let Some(cut) = &cut {
        write_counts(out, cut.counts);
    }
    let Some(opt) = opt else { return Some(end) };
    let additionals = u16_at(out, 10)?.checked_add(1)?;
    out[10..12].copy_from_slice(&additionals.to_be_bytes());
    opt.write(out, end)
}

/// True where both are one name in any case, and the same type and class.
#[inline]
fn is_same_question(one: &[u8], other: &[u8]) -> bool {
    let (name, fixed) = one.split_at(one.len() - TYPE_AND_CLASS_BYTES);
    let (other_name, other_fixed) = other.split_at(name.len());
    fixed == other_fixed && name.eq_ignore_ascii_case(other_name)
}

/// The rest of a response that is too long.
struct Cut {
    end: usize,
    counts: [u16; 4],
    is_truncated: bool,
}

/// The longest beginning of `message` of at most `room` bytes that has whole sets of records.
#[cold]
fn cut(message: &[u8], room: usize) -> Option<Cut> {
    let parsed = Message::parse(message).ok()?;
    let end = skip_name(message, HEADER_BYTES).ok()? + TYPE_AND_CLASS_BYTES;
    let mut whole = Cut { end, counts: [1, 0, 0, 0], is_truncated: true };
    let mut counts = whole.counts;
    let (mut has_ns, mut has_soa) = (false, false);
    let mut last: Option<Record> = None;
    let (mut owner, mut last_owner) = (NameBuf::new(), NameBuf::new());
    for record in parsed.records() {
        let record = record.ok()?;
        std::mem::swap(&mut owner, &mut last_owner);
        parsed.read_name(record.owner_offset, &mut owner).ok()?;
        if let Some(last) = last {
            let is_same_set = (last.section, last.rtype, last.class)
                == (record.section, record.rtype, record.class)
                && last_owner.as_bytes() == owner.as_bytes();
            if !is_same_set {
                (whole.end, whole.counts) = (last.rdata_end(), counts);
            }
        }
        if record.rdata_end() > room {
            let is_referral = counts[1] == 0 && has_ns && !has_soa;
            whole.is_truncated = is_referral || record.section != Section::Additional;
            break;
        }
        let is_authority = record.section == Section::Authority;
        has_ns |= is_authority && record.rtype == rtype::NS;
        has_soa |= is_authority && record.rtype == rtype::SOA;
        counts[1 + record.section as usize] += 1;
        last = Some(record);
    }
    (whole.end <= room).then_some(whole)
}
