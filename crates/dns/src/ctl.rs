//! Control of a running server over a Unix socket: a request is a line of JSON, and so is the
//! response.
//!
//! ```text
//! {"command":"stats"}                      -> {"ok":true, …}
//! {"command":"flush","name":"a.example"}   -> {"ok":true,"removed":3}
//! {"command":"dump"}                       -> an entry a line, then {"ok":true,"entries":2}
//! {"command":"load"}, then entries         -> {"ok":true,"loaded":2, …}        the last request of its connection
//! anything else                            -> {"ok":false,"error":"what to do instead"}
//! ```
//!
//! [`larder_serve::control`] runs the socket and its clients.
//!
//! | part | duty |
//! |---|---|
//! | [`Request`] | the requests |
//! | [`Actions`] | what the supervisor does for them |
//! | [`jobs`] | long work, on threads of its own: dump, load, flush |
//! | [`entry`] | an entry of the cache as a line |
//! | [`client`] | the client side, for `larder ctl` |

pub mod client;
pub mod entry;
pub mod jobs;
#[cfg(test)]
mod tests;

use larder::{Cache, Seconds};
use larder_serve::control::Service;
use serde_json::Value;

pub use larder_serve::control::{Answer, Control, Fields, Job, Limits, Talk, server};

use crate::presentation::{name_to_wire, push_name};

/// The requests. Names are in wire form and lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Return the running version.
    Version,
    /// Return counters and gauges.
    Stats,
    /// Return all entries of the cache that have not expired.
    Dump,
    /// Put the entries that follow into the cache; they have the form of [`Request::Dump`].
    Load,
    /// Remove all responses for this name from the cache.
    Flush(Vec<u8>),
    /// Remove all responses for this name and for all names below it from the cache.
    FlushZone(Vec<u8>),
    /// Save the cache to its file.
    Snapshot,
    /// Read the configuration again; the cache stays.
    Reload,
    /// Stop the server, after the work that it has begun.
    Stop,
}

/// Commands without an argument.
const PLAIN: [(&str, Request); 7] = [
    ("version", Request::Version),
    ("stats", Request::Stats),
    ("dump", Request::Dump),
    ("load", Request::Load),
    ("snapshot", Request::Snapshot),
    ("reload", Request::Reload),
    ("stop", Request::Stop),
];

impl Request {
    /// [`Request::Flush`] of a name in presentation form. The error says what a valid name is.
    pub fn flush(name: &str) -> Result<Request, String> {
        wire(name).map(Request::Flush)
    }

    /// [`Request::FlushZone`] of a name in presentation form.
    pub fn flush_zone(zone: &str) -> Result<Request, String> {
        wire(zone).map(Request::FlushZone)
    }

    /// Parses a request. The error says what to send instead.
    pub fn parse(line: &[u8]) -> Result<Request, String> {
        let request: Value = serde_json::from_slice(line).map_err(|error| {
            format!("not a line of JSON ({error}); ask {{\"command\":\"stats\"}}")
        })?;
        let word = |name| request.get(name).and_then(Value::as_str);
        let argument =
            |name| word(name).ok_or_else(|| format!("\"{name}\" is missing, a string with a name"));
        match word("command") {
            Some("flush") => Request::flush(argument("name")?),
            Some("flush-zone") => Request::flush_zone(argument("zone")?),
            Some(command) => {
                let known = PLAIN.iter().find(|(name, _)| *name == command);
                known.map(|(_, request)| request.clone()).ok_or_else(|| {
                    let names = PLAIN.map(|(name, _)| name).join(", ");
                    format!("no such command; there are {names}, flush, flush-zone")
                })
            }
            None => Err("\"command\" is missing, as in {\"command\":\"stats\"}".to_owned()),
        }
    }

    /// The line, without its end, that [`Request::parse`] accepts.
    pub fn to_line(&self) -> String {
        let (command, argument) = match self {
            Request::Flush(name) => ("flush", Some(("name", name))),
            Request::FlushZone(zone) => ("flush-zone", Some(("zone", zone))),
            plain => {
                let known = PLAIN.iter().find(|(_, request)| request == plain);
                (known.map_or("version", |(name, _)| *name), None)
            }
        };
        let mut fields = Fields::new();
        fields.insert("command".to_owned(), command.into());
        if let Some((key, name)) = argument {
            let mut text = String::new();
            push_name(&mut text, name);
            fields.insert(key.to_owned(), text.into());
        }
        Value::Object(fields).to_string()
    }
}

fn wire(name: &str) -> Result<Vec<u8>, String> {
    name_to_wire(name).ok_or_else(|| {
        format!("{name:?} is no domain name; labels have 1 to 63 bytes, names 255 at most")
    })
}

/// The supervisor's part of each request. No method may wait: long work is an [`Answer::Later`].
pub trait Actions {
    /// The cache to dump, load and flush.
    fn cache(&self) -> &Cache;
    /// The current time of that cache.
    fn now(&self) -> Seconds;
    /// Counters and gauges.
    fn stats(&mut self) -> Fields;
    /// Saves the cache to its file.
    fn snapshot(&mut self) -> Answer;
    /// Reads the configuration again.
    fn reload(&mut self) -> Answer;
    /// Requests the server's end. The same call returns the response.
    fn stop(&mut self) -> Answer;
}

/// Carries out requests with these actions.
pub struct ControlService<'a, A>(pub &'a mut A);

impl<A: Actions> Service for ControlService<'_, A> {
    fn request(&mut self, line: &[u8]) -> Answer {
        match Request::parse(line) {
            Ok(request) => act(&request, self.0),
            Err(error) => Answer::Now(Err(error)),
        }
    }
}

/// Carries out `request` with `actions`.
fn act(request: &Request, actions: &mut impl Actions) -> Answer {
    let cache = || actions.cache().clone();
    match request {
        Request::Version => {
            let version = env!("CARGO_PKG_VERSION").into();
            Answer::Now(Ok(Fields::from_iter([("version".to_owned(), version)])))
        }
        Request::Stats => Answer::Now(Ok(actions.stats())),
        Request::Dump => Answer::Later(jobs::dump(cache(), actions.now())),
        Request::Load => Answer::Receives(jobs::load(cache(), actions.now())),
        Request::Flush(name) => Answer::Later(jobs::flush_name(cache(), name.clone())),
        Request::FlushZone(zone) => Answer::Later(jobs::flush_zone(cache(), zone.clone())),
        Request::Snapshot => actions.snapshot(),
        Request::Reload => actions.reload(),
        Request::Stop => actions.stop(),
    }
}

/// Limits of clients. A line may be as long as the longest entry. Eight loading clients take at
/// most about 5 MB of memory.
pub fn limits() -> Limits {
    Limits { line_bytes_max: entry::LINE_BYTES_MAX, ..Limits::default() }
}

#[cfg(test)]
mod request_tests {
    use super::*;

    /// [`Request::parse`] returns every request from its line.
    #[test]
    fn requests_come_back() {
        let named = [Request::flush("A.b\\.c.Example").unwrap(), Request::flush_zone(".").unwrap()];
        for request in PLAIN.map(|(_, request)| request).iter().chain(&named) {
            assert_eq!(Request::parse(request.to_line().as_bytes()).as_ref(), Ok(request));
        }
        assert_eq!(named[0], Request::Flush(b"\x01a\x03b.c\x07example\0".to_vec()));
    }

    /// The error for an invalid request says what to send.
    #[test]
    fn errors_say_what_to_request() {
        for (line, part) in [
            (&b"stats"[..], "not a line of JSON"),
            (b"{}", "\"command\" is missing"),
            (b"{\"command\":7}", "\"command\" is missing"),
            (b"{\"command\":\"purge\"}", "flush-zone"),
            (b"{\"command\":\"flush\"}", "\"name\" is missing"),
            (b"{\"command\":\"flush-zone\",\"zone\":\"a..b\"}", "no domain name"),
            (b"\xff", "not a line of JSON"),
        ] {
            let error = Request::parse(line).unwrap_err();
            assert!(error.contains(part), "{line:?}: {error}");
        }
        let nested = "[".repeat(60_000);
        assert!(Request::parse(nested.as_bytes()).is_err(), "no stack is used up");
    }
}
