//! Commands of operators to a running server, over the Unix socket of [`larder_serve::control`].
//!
//! ```text
//! {"command":"stats"}                                            -> {"ok":true, ...}
//! {"command":"purge","url":"http://a.example/b","soft":true}     -> {"ok":true}
//! {"command":"purge-tag","tag":"news"}                           -> {"ok":true}
//! {"command":"flush"}                                            -> {"ok":true}
//! {"command":"reload"}                                           -> {"ok":true,"changed":["keep"],"needs_restart":[]}
//! ```
//!
//! A purged response is not served any more once the operator has the reply. A soft purge makes a
//! response stale: larder revalidates it with the origin, and may serve it while the origin fails
//! ([`crate::Rules::stale_if_error_s`]).

use serde_json::Value;

use crate::key::push_url;
use crate::message::Scheme;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reports the version of the program.
    Version,
    /// Reports counters and gauges.
    Stats,
    /// Purges the responses of a URL, all variants.
    Purge {
        /// In the form that records use ([`push_url`]).
        url: Vec<u8>,
        /// The responses stay cached, but are stale.
        is_soft: bool,
    },
    /// Purges all responses that have a tag.
    PurgeTag {
        /// The tag.
        tag: String,
        /// The responses stay cached, but are stale.
        is_soft: bool,
    },
    /// Purges everything.
    Flush {
        /// The responses stay cached, but are stale.
        is_soft: bool,
    },
    /// Reads the settings again.
    Reload,
    /// Ends the server after the requests that it has begun.
    Stop,
}

impl Request {
    /// Reads a command. The error states what to send instead.
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        let request: Value = serde_json::from_slice(line).map_err(|error| {
            format!("not a line of JSON ({error}); ask {{\"command\":\"stats\"}}")
        })?;
        let word = |name| request.get(name).and_then(Value::as_str);
        let is_soft = match request.get("soft") {
            None => false,
            Some(soft) => soft.as_bool().ok_or("\"soft\" is true or false")?,
        };
        let argument = |name, example| {
            word(name).ok_or_else(|| format!("\"{name}\" is missing, a string as {example:?}"))
        };
        match word("command") {
            Some("version") => Ok(Request::Version),
            Some("stats") => Ok(Request::Stats),
            Some("reload") => Ok(Request::Reload),
            Some("stop") => Ok(Request::Stop),
            Some("purge") => {
                let text = argument("url", "http://a.example/b")?;
                let url = parse_url(text);
                let url =
                    url.ok_or_else(|| format!("{text:?} is no URL; expected http://HOST/PATH"))?;
                Ok(Request::Purge { url, is_soft })
            }
            Some("purge-tag") => {
                let tag = argument("tag", "news")?.to_owned();
                Ok(Request::PurgeTag { tag, is_soft })
            }
            Some("flush") if request.get("name").is_some() => {
                Err("flush takes out everything; purge takes out a URL, purge-tag a tag".to_owned())
            }
            Some("flush") => Ok(Request::Flush { is_soft }),
            Some(command) => Err(format!(
                "larder http has no command {command:?}; there are version, stats, purge, purge-tag, \
                 flush, reload, stop"
            )),
            None => Err("\"command\" is missing, as in {\"command\":\"stats\"}".to_owned()),
        }
    }
}

/// Converts a URL as people write it, with or without its scheme, to the form that records use. It
/// ignores a fragment (`#`): clients do not send that to servers.
pub fn parse_url(text: &str) -> Option<Vec<u8>> {
    let without = |scheme: &str| {
        let head = text.get(..scheme.len()).filter(|head| head.eq_ignore_ascii_case(scheme));
        head.map(|head| &text[head.len()..])
    };
    let (rest, port) = match (without("http://"), without("https://")) {
        (Some(rest), _) => (rest, ":80"),
        (_, Some(rest)) => (rest, ":443"),
        _ => (text, ":80"),
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = authority.strip_suffix(port).unwrap_or(authority);
    let is_visible = rest.bytes().all(|byte| byte.is_ascii_graphic());
    if authority.is_empty() || authority.contains('@') || !is_visible {
        return None;
    }
    let mut url = Vec::with_capacity(rest.len() + 1);
    // A purge is for both schemes.
    push_url(&mut url, Scheme::Http, authority.as_bytes(), path.as_bytes());
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// URLs get the form that records use, with or without scheme, port and path.
    #[test]
    fn urls() {
        for (text, kept) in [
            ("http://A.example/b?c#d", Some("a.example/b?c")),
            ("HTTPS://a.example:443", Some("a.example/")),
            ("https://a.example:80/", Some("a.example/")),
            ("a.example:80/B", Some("a.example/B")),
            ("a.example?c", Some("a.example/?c")),
            ("http://[::1]:8080/", Some("[::1]:8080/")),
            ("/b", None),
            ("http://", None),
            ("http://u@a.example/", None),
            ("http://a.example/b c", None),
            ("http://\u{e4}.example/", None),
            ("", None),
        ] {
            let url = parse_url(text).map(|url| String::from_utf8(url).unwrap());
            assert_eq!(url.as_deref(), kept, "{text}");
        }
    }

    /// Each command is read, and an invalid one gives an error that states the valid ones.
    #[test]
    fn requests() {
        let parse = |line: &str| Request::parse(line.as_bytes());
        assert_eq!(parse("{\"command\":\"stats\"}"), Ok(Request::Stats));
        assert_eq!(
            parse("{\"command\":\"flush\",\"soft\":true}"),
            Ok(Request::Flush { is_soft: true })
        );
        let url = b"a/b".to_vec();
        assert_eq!(
            parse("{\"command\":\"purge\",\"url\":\"a/b\"}"),
            Ok(Request::Purge { url, is_soft: false })
        );
        let tag = "x y".to_owned();
        assert_eq!(
            parse("{\"command\":\"purge-tag\",\"tag\":\"x y\",\"soft\":false}"),
            Ok(Request::PurgeTag { tag, is_soft: false })
        );
        for (line, part) in [
            ("stats", "not a line of JSON"),
            ("{}", "\"command\" is missing"),
            ("{\"command\":\"dump\"}", "purge-tag, flush"),
            ("{\"command\":\"purge\"}", "\"url\" is missing"),
            ("{\"command\":\"purge\",\"url\":\"/a\"}", "no URL"),
            ("{\"command\":\"purge-tag\",\"tag\":7}", "\"tag\" is missing"),
            ("{\"command\":\"flush\",\"name\":\"a\"}", "purge takes out a URL"),
            ("{\"command\":\"flush\",\"soft\":1}", "true or false"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
