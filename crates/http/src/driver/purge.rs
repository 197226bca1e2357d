//! `PURGE`, as users of Varnish send it: of a URL, or of tags that the request names.
//!
//! Who may is a list of networks, empty unless told otherwise; who may not is told 405. A request that names tags (`xkey-purge`,
//! `Surrogate-Key`, `Cache-Tag`) purges those and not its URL; `xkey-softpurge`, or `Fastly-Soft-Purge: 1`, leaves what it purges as stale.

use super::Driver;
use super::clients::Client;
use crate::Field;
use crate::field::{has, members, only};
use crate::key::{by_other_scheme, push_url, tag};
use crate::message::RequestHead;

/// Fields that name what is to be purged.
const TAG_FIELDS: [&str; 4] = ["xkey-purge", "xkey-softpurge", "surrogate-key", "cache-tag"];

/// Tags of one request; those beyond are not heeded.
const TAGS_MAX: usize = 256;

impl Driver {
    /// Answers a `PURGE`.
    pub(super) fn purge(&mut self, client: &mut Client, head: &RequestHead<'_>, out: &mut Vec<u8>) {
        let peer = Driver::peer_of(client);
        let may = |ip| self.options.purge_from.iter().any(|prefix| prefix.contains(ip));
        if !peer.is_some_and(|peer| may(peer.ip())) {
            let start = out.len();
            self.own(client, head, 405, "this address may not purge", out);
            // RFC 9110, section 15.5.6, wants to know what else there is.
            let line =
                memchr::memmem::find(&out[start..], b"\r\n").map_or(out.len(), |at| start + at + 2);
            out.splice(line..line, *b"Allow: GET, HEAD\r\n");
            return;
        }
        let is_soft = has(head.fields, "xkey-softpurge")
            || only(head.fields, "fastly-soft-purge").is_some_and(|value| value == b"1");
        let tags = tags(head.fields);
        if tags.is_empty() {
            self.url.clear();
            push_url(&mut self.url, client.scheme(), head.host, head.target.path());
            if is_soft {
                self.store.purge_url(&self.url);
            } else {
                let url = std::mem::take(&mut self.url);
                self.forget(&url);
                self.url = url;
            }
        } else {
            tags.iter().for_each(|&tag| self.store.purge_tag(tag, is_soft));
        }
        self.handle.see_purges(&self.store);
        let text = if is_soft { "purged: stale from now on" } else { "purged" };
        self.own(client, head, 200, text, out);
    }

    /// Forgets a URL, by both schemes, for all loops; true where there was something.
    pub(super) fn forget(&mut self, url: &[u8]) -> bool {
        self.store.note_purge();
        let now = self.now.seconds();
        let urls = [url, &by_other_scheme(url)];
        let was_there = urls.map(|url| self.handle.forget(&self.store, url, now)).contains(&true);
        // Who asks for it from now on finds it gone.
        self.handle.flush();
        was_there
    }
}

fn tags(fields: &[Field<'_>]) -> Vec<u64> {
    let words = TAG_FIELDS.iter().flat_map(|name| members(fields, name));
    let words = words.flat_map(|member| member.split(|octet| octet.is_ascii_whitespace()));
    words.filter(|word| !word.is_empty()).take(TAGS_MAX).map(tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of all fields are tags, whatever is between them.
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
