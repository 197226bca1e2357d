//! Without capabilities there is nothing to drop.

use std::io;

/// Does nothing: this system has no capabilities.
pub fn drop_capabilities() -> io::Result<()> {
    Ok(())
}
