//! Reads and writes of sockets that never wait.

use std::io;

/// Does a read or write: how many octets; `None` where it would wait.
pub fn retry(mut act: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match act() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
