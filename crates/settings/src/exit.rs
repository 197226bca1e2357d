//! Exit codes, and failures that state what to do next.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | done, but the input was damaged or cut short |
//! | 2 | usage, input or output, configuration; with `--strict` also damage |
//! | 130 | interrupted; what was read is finished and written |
//! | 141 | standard output was closed by its reader; no message |

use std::fmt::Display;
use std::io;

/// Done.
pub const DONE: u8 = 0;
/// Done, but the input was damaged or cut short.
pub const DAMAGED: u8 = 1;
/// Usage, input or output, configuration.
pub const FAILED: u8 = 2;
/// Interrupted by Ctrl-C or SIGTERM: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;
/// Standard output was closed: 128 + SIGPIPE.
pub const CLOSED_PIPE: u8 = 141;

/// Why a command could not be done.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub code: u8,
    /// The failure and what to do next; empty for an end without a message.
    pub message: String,
}

/// Result of a command: its exit code, or why it could not be done.
pub type Outcome = Result<u8, Failure>;

impl Failure {
    /// The command cannot run with these settings. The message states what to do instead.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: FAILED, message: message.into() }
    }

    /// A file could not be read or written; `next` states what to do.
    pub fn file(what: impl Display, error: &io::Error, next: &str) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::closed_pipe();
        }
        Failure::usage(format!("{what}: {}; {next}", system_words(error)))
    }

    /// Standard output failed; without a message if its reader closed it.
    pub fn stdout(error: &io::Error) -> Failure {
        Failure::file("standard output", error, "make room there, or write to another file")
    }

    /// Standard output was closed by its reader.
    pub fn closed_pipe() -> Failure {
        Failure { code: CLOSED_PIPE, message: String::new() }
    }
}

/// The system's words in lower case, without the number that std adds.
pub fn system_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => "failed".to_owned(),
    }
}
