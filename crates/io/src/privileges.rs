//! Drops capabilities. Capturing needs `CAP_NET_RAW` while sockets are opened, and none afterwards.
//!
//! Linux keeps capabilities for each thread. [`drop_capabilities`] affects the calling thread, and
//! those that it starts afterwards: call it before there are others, or on each of them.
//!
//! User 0 keeps `CAP_DAC_OVERRIDE`, if it has it. Without it root can write only where file modes
//! permit, and larder could not open logs in a folder of the user that called `sudo`; operators do
//! not expect that of root. For a process without any capability run larder as another user, with
//! `CAP_NET_RAW` alone.

//!
//! Other systems have no capabilities.

#[cfg_attr(not(target_os = "linux"), path = "privileges/portable.rs")]
mod system;

use std::io;

use crate::socket::check;

pub use system::drop_capabilities;

/// Makes the process a member of `group`, so that it may give its files to that group also after
/// [`drop_capabilities`]. A process that is a member already needs no rights for that.
pub fn join_group(group: u32) -> io::Result<()> {
    // SAFETY: with a size of 0 the list is not written.
    let count = check(unsafe { libc::getgroups(0, std::ptr::null_mut()) })?;
    let mut groups = vec![0; count as usize];
    // SAFETY: the kernel writes at most `count` numbers, for which there is room.
    let count = check(unsafe { libc::getgroups(count, groups.as_mut_ptr()) })?;
    groups.truncate(count as usize);
    // SAFETY: takes nothing, and cannot fail.
    let own = unsafe { libc::getegid() };
    if own == group || groups.contains(&group) {
        return Ok(());
    }
    groups.push(group);
    // SAFETY: the list has the number of entries given, and is only read.
    check(unsafe { libc::setgroups(groups.len() as _, groups.as_ptr()) })?;
    Ok(())
}
