//! Pages for a browser: an HTML document that embeds its style and script, and resources that are
//! made on request.
//!
//! A [`Document`] is one file. Its content security policy allows the embedded style and script by
//! their hashes, requests to the own server, and nothing else. The hashes are computed from the
//! embedded text when the program starts.
//!
//! [`Pages`] are resources of a program that another server delivers together with its own.
//!
//! Invariants
//! 1. The policy names no `unsafe` keyword and no other host (test `only_the_embedded_text_runs`).
//! 2. Style and script cannot end their element early (test `an_element_ends_where_its_text_ends`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// Headers of every resource: a browser neither guesses its type, nor gives it to other sites, nor
/// stores it.
pub const SAFE_HEADERS: &str = "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\n";

/// A resource.
#[derive(Clone, Debug)]
pub struct Page {
    /// Header fields, each with its end of line.
    pub headers: Cow<'static, str>,
    /// The content.
    pub content: Arc<[u8]>,
}

impl Page {
    /// A resource of this media type, with [`SAFE_HEADERS`].
    pub fn new(media_type: &str, content: impl Into<Arc<[u8]>>) -> Page {
        let headers = format!("Content-Type: {media_type}\r\n{SAFE_HEADERS}");
        Page { headers: headers.into(), content: content.into() }
    }
}

/// Resources of a program. Requests arrive on the thread of the server, one at a time.
pub trait Pages: Send + Sync {
    /// The resource at a path; `None`: there is none.
    fn get(&self, path: &str) -> Option<Page>;

    /// Whether the resource at a path has no data, so that clients without a token get it.
    fn is_public(&self, path: &str) -> bool;
}

/// Marks in the HTML where style and script are inserted.
const STYLE_MARK: &str = "<style></style>";
const SCRIPT_MARK: &str = "<script></script>";

/// An HTML document.
#[derive(Debug)]
pub struct Document(Page);

impl Document {
    /// Inserts the style and the script into `html`, at its empty elements.
    ///
    /// # Panics
    /// If a text would end its element (invariant 2). All three are constants of a program.
    pub fn new(html: &str, style: &str, script: &str) -> Document {
        for text in [style, script] {
            let text = text.to_ascii_lowercase();
            let ends = ["</style", "</script", "<!--"].iter().any(|end| text.contains(end));
            assert!(!ends, "an embedded text has the end of its element");
        }
        let html = html.replacen(STYLE_MARK, &format!("<style>{style}</style>"), 1).replacen(
            SCRIPT_MARK,
            &format!("<script>{script}</script>"),
            1,
        );
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; \
             img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
            source_of(script),
            source_of(style)
        );
        let page = Page::new("text/html; charset=utf-8", html.into_bytes());
        let headers = format!("{}Content-Security-Policy: {policy}\r\n", page.headers);
        Document(Page { headers: headers.into(), ..page })
    }

    /// The document as a resource.
    pub fn page(&self) -> Page {
        self.0.clone()
    }
}

/// The style, and the script before and after a program's own.
const STYLE: &str = include_str!("../ui/page.css");
const BEFORE: [&str; 4] = [
    "'use strict';\n(() => {\n",
    include_str!("../ui/parts.js"),
    include_str!("../ui/charts.js"),
    include_str!("../ui/frame.js"),
];
const AFTER: &str = "})();\n";

/// The text of a program's page: its own script sees the functions of `ui/parts.js`, `ui/charts.js` and `ui/frame.js`.
pub fn document(html: &str, script: &str) -> Document {
    Document::new(html, STYLE, &format!("{}{script}{AFTER}", BEFORE.concat()))
}

/// Requests for statistics a second that a page is made for.
const REQUESTS_MAX: u64 = 50;

/// How long a client of this many waits before it asks again, milliseconds.
pub fn poll_ms(clients: u64) -> u64 {
    1_000 * clients.div_ceil(REQUESTS_MAX).clamp(1, 60)
}

/// How many clients a page has, about. With many, each is asked to come less often.
#[derive(Debug, Default)]
pub struct Demand {
    requests: AtomicU64,
    clients: AtomicU64,
}

impl Demand {
    /// A client asked for statistics.
    pub fn asked(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// This many seconds have passed since the last call.
    pub fn passed(&self, seconds: u64) {
        let requests = self.requests.swap(0, Ordering::Relaxed);
        let clients = requests.saturating_mul(self.poll_ms()).div_ceil(1_000 * seconds.max(1));
        self.clients.store(clients, Ordering::Relaxed);
    }

    /// How long a client waits before it asks again, milliseconds.
    pub fn poll_ms(&self) -> u64 {
        poll_ms(self.clients.load(Ordering::Relaxed))
    }
}

/// Texts of a page: each is made as often for a thousand clients as for one.
#[derive(Debug)]
pub struct Texts<K>(Mutex<HashMap<K, (u64, Page)>>);

impl<K> Default for Texts<K> {
    fn default() -> Texts<K> {
        Texts(Mutex::new(HashMap::new()))
    }
}

impl<K: Hash + Eq> Texts<K> {
    /// The JSON text of a key that is at most `age_s` seconds old at `now_s`. There are as many texts as keys.
    pub fn json(&self, key: K, now_s: u64, age_s: u64, make: impl FnOnce() -> Vec<u8>) -> Page {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_s, page)) = texts.get(&key)
            // The clock may have been set back.
            && (*made_s..*made_s + age_s).contains(&now_s)
        {
            return page.clone();
        }
        let page = Page::new("application/json", make());
        texts.insert(key, (now_s, page.clone()));
        page
    }
}

/// The hash of an embedded text, as a policy names it.
fn source_of(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant 1: the policy has the hashes of the embedded texts (from `openssl dgst -sha256 -binary | base64`),
    /// and allows nothing else of scripts and styles.
    #[test]
    fn only_the_embedded_text_runs() {
        let html = "<!doctype html><style></style><script></script>";
        let Page { headers, content } = Document::new(html, "p{}", "f()").page();
        assert_eq!(&*content, b"<!doctype html><style>p{}</style><script>f()</script>");
        let policy =
            headers.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: "));
        let policy = policy.expect("a policy");
        let style = "style-src 'sha256-gG2yISYereRMiG2lMXrbiUgi0Ubw9p7QCeWcroOvy9Y='";
        let script = "script-src 'sha256-GcEEE0IkDzIP5EQ6DXZaDPORqT5RTBELX8Fyzyg9yvo='";
        for part in [style, script, "default-src 'none'", "frame-ancestors 'none'"] {
            assert!(policy.split("; ").any(|found| found == part), "{part}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http") && !policy.contains('*'));
        assert!(headers.ends_with("\r\n") && headers.contains("nosniff"));
    }

    /// Clients of which there are many wait longer, so that their requests together stay few.
    #[test]
    fn many_clients_come_less_often() {
        assert_eq!([0, 1, 50, 51, 1_000].map(poll_ms), [1_000, 1_000, 1_000, 2_000, 20_000]);
        assert_eq!(poll_ms(u64::MAX), 60_000);
        let demand = Demand::default();
        for clients in [1_u64, 200, 1_000] {
            // Those that ask at the pause of the time before are found again.
            for _ in 0..2 {
                let requests = clients * 1_000 / demand.poll_ms();
                (0..requests * 4).for_each(|_| demand.asked());
                demand.passed(4);
            }
            assert!(demand.poll_ms().abs_diff(poll_ms(clients)) <= 1_000, "{clients}");
        }
        demand.passed(1);
        assert_eq!(demand.poll_ms(), 1_000);
    }

    /// A text is made again when it is too old, or when the clock was set back.
    #[test]
    fn texts_are_shared() {
        let texts = Texts::default();
        let get = |key: u8, now_s: u64| {
            let page = texts.json(key, now_s, 5, || now_s.to_string().into_bytes());
            String::from_utf8(page.content.to_vec()).expect("UTF-8")
        };
        let got =
            [(1, 100), (1, 104), (2, 104), (1, 105), (1, 90)].map(|(key, now_s)| get(key, now_s));
        assert_eq!(got, ["100", "100", "104", "105", "90"]);
    }

    /// Invariant 2: a text that would end its element is refused.
    #[test]
    #[should_panic(expected = "the end of its element")]
    fn an_element_ends_where_its_text_ends() {
        Document::new("<style></style>", "p{}", "f('</SCRIPT>')");
    }
}
