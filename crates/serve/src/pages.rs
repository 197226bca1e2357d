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
use std::sync::Arc;

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

    /// Invariant 2: a text that would end its element is refused.
    #[test]
    #[should_panic(expected = "the end of its element")]
    fn an_element_ends_where_its_text_ends() {
        Document::new("<style></style>", "p{}", "f('</SCRIPT>')");
    }
}
