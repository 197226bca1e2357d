//! `PURGE`, as users of Varnish send it: of a URL, or of tags that the request names.
//!
//! A list of networks says which clients may purge; it is empty by default, and other clients get a
//! 405. A request that names tags (`xkey-purge`, `Surrogate-Key`, `Cache-Tag`) purges those and not
//! its URL; `xkey-softpurge`, or `Fastly-Soft-Purge: 1`, makes what it purges stale.

use super::request::Reply;
use super::{ClientRequest, Core};
use crate::Field;
use crate::field::{has, members, only};
use crate::key::{by_other_scheme, push_url, tag};

/// Fields that name tags to purge.
const TAG_FIELDS: [&str; 4] = ["xkey-purge", "xkey-softpurge", "surrogate-key", "cache-tag"];

/// Tags of one request; more are ignored.
const TAGS_MAX: usize = 256;

impl Core {
    /// Responds to a `PURGE`.
    pub(super) fn purge(
        &mut self,
        from: &ClientRequest<'_>,
        closes: bool,
        out: &mut Vec<u8>,
    ) -> Reply {
        let head = from.head;
        let may = |ip| self.options.purge_from.iter().any(|prefix| prefix.contains(ip));
        if !(from.peer)().is_some_and(|peer| may(peer.ip())) {
            let start = out.len();
            let reply = self.own(from, closes, 405, "this address may not purge", out);
            // RFC 9110, section 15.5.6, requires the methods that are allowed.
            let line =
                memchr::memmem::find(&out[start..], b"\r\n").map_or(out.len(), |at| start + at + 2);
            out.splice(line..line, *b"Allow: GET, HEAD\r\n");
            return reply;
        }
        let is_soft = has(head.fields, "xkey-softpurge")
            || only(head.fields, "fastly-soft-purge").is_some_and(|value| value == b"1");
        let tags = tags(head.fields);
        if tags.is_empty() {
            let mut url = Vec::new();
            push_url(&mut url, from.scheme, head.host, head.target.path());
            if is_soft {
                self.store.purge_url(&url);
            } else {
                self.forget(&url);
            }
        } else {
            tags.iter().for_each(|&tag| self.store.purge_tag(tag, is_soft));
        }
        self.handle.see_purges(&self.store);
        let text = if is_soft { "purged: stale from now on" } else { "purged" };
        self.own(from, closes, 200, text, out)
    }

    /// Forgets a URL, by both schemes, for all event loops; true where it was cached.
    pub fn forget(&mut self, url: &[u8]) -> bool {
        self.store.note_purge();
        let now = self.seconds();
        let urls = [url, &by_other_scheme(url)];
        let was_there = urls.map(|url| self.handle.forget(&self.store, url, now)).contains(&true);
        // A request from now on misses.
        self.handle.flush();
        was_there
    }
}

fn tags(fields: &[Field<'_>]) -> Vec<u64> {
    let words = TAG_FIELDS.iter().flat_map(|name| members(fields, name));
    let words = words.flat_map(|member| member.split(|byte| byte.is_ascii_whitespace()));
    words.filter(|word| !word.is_empty()).take(TAGS_MAX).map(tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of all these fields are tags, however they are separated.
    #[test]
    fn tags_are_words() {
        let field = |name, value: &'static [u8]| Field { name, value };
        let fields = [
            field("Surrogate-Key", b"a  b"),
            field("xkey-purge", b"c, d"),
            field("Host", b"e"),
            field("cache-tag", b""),
        ];
        let mut found = tags(&fields);
        let mut expected: Vec<u64> = ["a", "b", "c", "d"].map(|word| tag(word.as_bytes())).into();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
