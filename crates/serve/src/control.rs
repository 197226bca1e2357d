//! Control of a running server: a Unix socket, a line of JSON asked, lines of JSON answered.
//!
//! ```text
//! {"command":"stats"}   -> {"ok":true, ...}
//! {"command":"dump"}    -> any number of lines, then {"ok":true,"entries":2}
//! anything else         -> {"ok":false,"error":"what to do instead"}
//! ```
//!
//! An answer is any number of lines, of which the last, and only that, begins with `{"ok":`. What may be asked is the
//! [`Service`]'s own; there are those that hear lines after the request.
//!
//! | part | duty |
//! |---|---|
//! | [`Service`] | what the supervisor does about a request |
//! | [`Control`] | the socket and its clients, in the supervisor's loop |
//! | [`job`] | what takes long, on a thread of its own |
//! | [`client`] | the other side, for `larder ctl` |
//!
//! Who may connect is the file system's to say: the socket is made with mode 0600 unless told otherwise. So clients
//! are trusted to mean well, and not trusted to work well: [`server`] bounds what they hold.

pub mod client;
pub mod job;
pub mod server;
mod socket;

use std::fmt;

use serde_json::Value;

pub use crate::figures::Fields;
pub use job::{Job, Talk};
pub use server::{Control, Limits};
pub use socket::{SocketFile, listen as listen_at};

/// What comes of a request.
pub enum Answer {
    /// It is done, or can't be; the text says what to do.
    Now(Result<Fields, String>),
    /// It takes long: a thread does it, and the client waits.
    Later(Job),
    /// A thread does it and reads the lines that follow: the request is the last of its connection.
    Hears(Job),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Now(result) => f.debug_tuple("Now").field(result).finish(),
            Answer::Later(_) => f.write_str("Later"),
            Answer::Hears(_) => f.write_str("Hears"),
        }
    }
}

impl Answer {
    /// Done, with nothing to say.
    pub fn done() -> Answer {
        Answer::Now(Ok(Fields::new()))
    }

    /// Not done; the text says what to do instead.
    pub fn refused(why: impl Into<String>) -> Answer {
        Answer::Now(Err(why.into()))
    }
}

/// What the supervisor does for a client.
pub trait Service {
    /// Does what a line asks for. It may not wait: what takes long is an [`Answer::Later`].
    fn ask(&mut self, line: &[u8]) -> Answer;
}

/// What the last line of every answer begins with, and no other line.
pub const CLOSING: &str = "{\"ok\":";

/// The last line of an answer, with its end.
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

    /// The last line of an answer is JSON, and begins as agreed.
    #[test]
    fn closing_lines() {
        assert_eq!(closing_line(Ok(Fields::new())), "{\"ok\":true}\n");
        let fields = Fields::from_iter([("removed".to_owned(), 3.into())]);
        assert_eq!(closing_line(Ok(fields)), "{\"ok\":true,\"removed\":3}\n");
        let error = closing_line(Err("a \"b\"".to_owned()));
        assert_eq!(error, "{\"ok\":false,\"error\":\"a \\\"b\\\"\"}\n");
    }
}
