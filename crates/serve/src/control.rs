//! Controls a running server over a Unix socket: a request is a line of JSON, a response is lines
//! of JSON.
//!
//! ```text
//! {"command":"stats"}   -> {"ok":true, ...}
//! {"command":"dump"}    -> any number of lines, then {"ok":true,"entries":2}
//! anything else         -> {"ok":false,"error":"what to do instead"}
//! ```
//!
//! A response is any number of lines. Only its last line begins with `{"ok":`. The [`Service`]
//! defines the requests; some requests read further lines from the client.
//!
//! | part | duty |
//! |---|---|
//! | [`Service`] | handles requests in the supervisor |
//! | [`Control`] | the socket and its clients, in the supervisor's event loop |
//! | [`job`] | long requests, each on a thread of its own |
//! | [`client`] | the client, for `larder ctl` |
//!
//! The file system decides who may connect: the socket has mode 0600 by default. So clients are
//! trusted not to attack, but they may be slow or broken: [`server`] bounds their memory and their
//! time.

pub mod client;
pub mod job;
pub mod server;
mod socket;

use std::fmt;

use serde_json::Value;

pub use crate::metrics::Fields;
pub use job::{Job, Talk};
pub use server::{Control, Limits};
pub use socket::{SocketFile, listen as listen_at};

/// The result of a request.
pub enum Answer {
    /// The response is complete. An error says what to do.
    Now(Result<Fields, String>),
    /// A long request: a thread handles it while the client waits.
    Later(Job),
    /// A thread handles it and reads the lines after the request, which is the last of its
    /// connection.
    Receives(Job),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Now(result) => f.debug_tuple("Now").field(result).finish(),
            Answer::Later(_) => f.write_str("Later"),
            Answer::Receives(_) => f.write_str("Receives"),
        }
    }
}

impl Answer {
    /// Success, without a result.
    pub fn done() -> Answer {
        Answer::Now(Ok(Fields::new()))
    }

    /// Failure; the text says what to do instead.
    pub fn refused(why: impl Into<String>) -> Answer {
        Answer::Now(Err(why.into()))
    }
}

/// Handles the requests of clients.
pub trait Service {
    /// Handles one request. It must not wait: a long request returns [`Answer::Later`].
    fn request(&mut self, line: &[u8]) -> Answer;
}

/// The beginning of the last line of every response, and of no other line.
pub const CLOSING: &str = "{\"ok\":";

/// The last line of a response, with its line feed.
fn closing_line(result: Result<Fields, String>) -> String {
    let (ok, fields) = match result {
        Ok(fields) => (true, fields),
        Err(error) => (false, Fields::from_iter([("error".to_owned(), error.into())])),
    };
    let object = Value::Object(fields).to_string();
    let rest = match object.strip_prefix('{') {
        Some("}") | None => "}".to_owned(),
        Some(fields) => format!(",{fields}"),
    };
    format!("{CLOSING}{ok}{rest}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last line of a response is JSON, and begins with the mark.
    #[test]
    fn closing_lines() {
        assert_eq!(closing_line(Ok(Fields::new())), "{\"ok\":true}\n");
        let fields = Fields::from_iter([("removed".to_owned(), 3.into())]);
        assert_eq!(closing_line(Ok(fields)), "{\"ok\":true,\"removed\":3}\n");
        let error = closing_line(Err("a \"b\"".to_owned()));
        assert_eq!(error, "{\"ok\":false,\"error\":\"a \\\"b\\\"\"}\n");
    }
}
