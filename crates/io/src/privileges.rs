//! Giving rights back. Capturing needs `CAP_NET_RAW` while sockets are opened, and nothing afterwards.
//!
//! Linux keeps capabilities for each thread. [`drop_capabilities`] is for the thread that calls it, and for those that it
//! starts afterwards: call it before there are others, or on each of them.

use std::io;

use crate::socket::check;

const CAP_NET_RAW: u32 = 13;

/// `_LINUX_CAPABILITY_VERSION_3`: sets of 64.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    thread: libc::c_int,
}

/// Half of each set: the lower 32 capabilities first.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up all capabilities of the calling thread for ever: it has none, and no program that it runs gets any. Threads
/// that are there already keep theirs. User 0 keeps what files allow it.
pub fn drop_capabilities() -> io::Result<()> {
    const NONE: libc::c_ulong = 0;
    // SAFETY: these take integers only.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, NONE, NONE, NONE))?;
        let all = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
        check(libc::prctl(libc::PR_CAP_AMBIENT, all, NONE, NONE, NONE))?;
    }
    let header = Header { version: VERSION, thread: 0 };
    let none = [Half::default(); 2];
    // SAFETY: of this version the kernel reads the header and two halves, which live through the call.
    let returned = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    check(returned as libc::c_int)?;
    Ok(())
}

/// Whether the calling thread may see frames now. False where the system does not say.
pub fn has_net_raw() -> bool {
    let mut header = Header { version: VERSION, thread: 0 };
    let mut sets = [Half::default(); 2];
    // SAFETY: the kernel reads and writes the header, and writes two halves.
    let returned = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    returned == 0 && sets[0].effective & 1 << CAP_NET_RAW != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that gave its rights up has none, nor have those that it starts; the one that started it keeps its own,
    /// and the kernel agrees.
    #[test]
    fn rights_are_given_up() {
        let before = has_net_raw();
        let inside = std::thread::spawn(|| {
            drop_capabilities().unwrap();
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            for line in status.lines() {
                if let Some((name @ ("CapInh" | "CapPrm" | "CapEff" | "CapAmb"), value)) =
                    line.split_once(':')
                {
                    assert_eq!(u64::from_str_radix(value.trim(), 16), Ok(0), "{name}");
                }
            }
            assert!(!has_net_raw());
            assert!(!std::thread::spawn(has_net_raw).join().unwrap());
            let refused = crate::netns::enter_private_network().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            // Twice does no harm.
            drop_capabilities().unwrap();
        });
        inside.join().unwrap();
        assert_eq!(has_net_raw(), before);
    }
}
