//! Composes the response to a client at the end of its task.
//!
//! A server's response for the same name is copied, except for the fields that differ from client to
//! client. With aliases before it, or for NXDOMAIN of a name above, the response is rendered again.

use larder_dns::backend::ANSWER_BYTES_MAX;
use larder_dns::core::Now;
use larder_wire::dns::edns::{option, rcode};
use larder_wire::dns::query::Query;
use larder_wire::dns::rendered::{self, Reply, Rules};
use larder_wire::dns::{HEADER_BYTES, class};

use super::task::Task;
use super::{End, Resolver};

/// Extended error (RFC 8914): no authoritative server could be reached.
const NO_REACHABLE_AUTHORITY: u16 = 22;

/// The most bytes of an OPT record with an extended error.
const OPT_ROOM: usize = 32;

impl<C> Resolver<C> {
    /// The response for a client, unless the task failed.
    pub(super) fn compose(
        &mut self,
        now: Now,
        task: &Task<C>,
        message: &[u8],
        end: &End<'_>,
    ) -> Option<Vec<u8>> {
        let query = Query::parse(message).ok()?;
        let (bytes, is_denied) = match end {
            End::Answer(bytes) => (bytes, false),
            End::Denied(bytes) => (bytes, true),
            End::Failed => return None,
        };
        if !is_denied && task.alias_count == 0 {
            return Some(copy_response(bytes, &query));
        }
        let Resolver { renderer, composer, .. } = self;
        let rules = Rules {
            ttl_max_s: i32::MAX as u32,
            negative_ttl_max_s: i32::MAX as u32,
            ..Rules::default()
        };
        let request = |question| rendered::QueryInfo {
            question,
            is_case_random: false,
            dnssec_ok: task.dnssec_ok,
        };
        renderer.render(bytes, &request(&task.question), now.wall_s, &rules).ok()?;
        let mut question = task.name.clone();
        question.extend_from_slice(&task.rtype.to_be_bytes());
        question.extend_from_slice(&class::IN.to_be_bytes());
        if is_denied {
            composer.deny_below(renderer.stored(), &request(&question)).then_some(())?;
            std::mem::swap(renderer, composer);
        }
        if task.alias_count > 0 {
            let mut local = vec![0; HEADER_BYTES];
            local[2] = 0x80;
            local[5] = 1;
            local[6..8].copy_from_slice(&task.record_count.to_be_bytes());
            local.extend_from_slice(query.question());
            local.extend_from_slice(&task.aliases);
            let whole = request(query.question());
            composer.put_behind(&local, renderer.stored(), &whole, now.wall_s).ok()?;
            std::mem::swap(renderer, composer);
        }
        let reply = Reply {
            now_s: now.wall_s,
            bytes_max: ANSWER_BYTES_MAX,
            udp_bytes: self.options.udp_bytes_max,
            stale_ttl_s: 0,
            options: &[],
        };
        let mut out = vec![0; self.renderer.stored().len() + OPT_ROOM];
        let length = rendered::write(self.renderer.stored(), &query, &reply, &mut out)?;
        out.truncate(length);
        Some(out)
    }
}

/// A server's response, with the ID, flags and letter case of the client's query.
fn copy_response(bytes: &[u8], query: &Query<'_>) -> Vec<u8> {
    let mut message = bytes.to_vec();
    let question = query.question();
    if let Some(theirs) = message.get_mut(HEADER_BYTES..HEADER_BYTES + question.len()) {
        theirs.copy_from_slice(question);
    }
    message[..2].copy_from_slice(&query.id.to_be_bytes());
    message[2] = 0x80 | u8::from(query.recursion_desired);
    message[3] = 0x80 | u8::from(query.checking_disabled) << 4 | message[3] & 15;
    message
}

/// A SERVFAIL response.
pub(super) fn failure(message: &[u8], udp_bytes: u16) -> Option<Vec<u8>> {
    let query = Query::parse(message).ok()?;
    let [high, low] = NO_REACHABLE_AUTHORITY.to_be_bytes();
    let options = [0, option::EXTENDED_ERROR as u8, 0, 2, high, low];
    let mut out = vec![0; message.len() + OPT_ROOM];
    let length = query.write_empty(rcode::SERVFAIL, udp_bytes, &options, &mut out)?;
    out.truncate(length);
    Some(out)
}
