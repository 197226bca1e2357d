//! The client side: for `larder ctl`, and for tests.

use std::io::{self, Read};
use std::path::Path;

pub use larder_serve::control::client::Error;
use larder_serve::control::client::{exchange, upload};

use super::{Fields, Request};

/// Sends a request, waits for the response, and returns the fields of its last line. `each`
/// receives the lines before that one, such as the entries of a dump, with their line ends.
pub fn request(
    path: &Path,
    request: &Request,
    each: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Fields, Error> {
    exchange(path, &request.to_line(), each)
}

/// Sends the lines of a dump to the server, which loads them.
pub fn load(path: &Path, entries: &mut impl Read) -> Result<Fields, Error> {
    upload(path, &Request::Load.to_line(), entries)
}
