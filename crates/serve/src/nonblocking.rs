//! Calls of sockets that never wait.

use std::io;

/// Reads, writes or accepts, and returns the result; `None` where it would wait.
pub fn retry<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
    loop {
        match act() {
            Ok(done) => return Ok(Some(done)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
