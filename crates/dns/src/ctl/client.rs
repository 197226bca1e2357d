//! The side that asks: for `larder ctl`, and for tests.

use std::io::{self, Read};
use std::path::Path;

pub use larder_serve::control::client::Error;
use larder_serve::control::client::{ask, tell};

use super::{Fields, Request};

/// Asks, and waits for the answer: what its last line says. `each` is given the lines before it (the entries of a dump) with
/// their ends.
pub fn request(
    path: &Path,
    request: &Request,
    each: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Fields, Error> {
    ask(path, &request.to_line(), each)
}

/// Has the server load entries, lines as a dump has them.
pub fn load(path: &Path, entries: &mut impl Read) -> Result<Fields, Error> {
    tell(path, &Request::Load.to_line(), entries)
}
