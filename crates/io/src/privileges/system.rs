//! Capabilities of Linux.

use std::io;

use crate::socket::check;

const CAP_DAC_OVERRIDE: u32 = 1;

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

/// Drops the capabilities of the calling thread for ever, all of them, or as user 0 all but
/// `CAP_DAC_OVERRIDE`. Neither the thread nor a program that it runs gets others again. Existing
/// threads keep theirs.
pub fn drop_capabilities() -> io::Result<()> {
    const NONE: libc::c_ulong = 0;
    // SAFETY: these take integers only.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, NONE, NONE, NONE))?;
        let all = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
        check(libc::prctl(libc::PR_CAP_AMBIENT, all, NONE, NONE, NONE))?;
    }
    let mut kept = [Half::default(); 2];
    if is_user_0() {
        // It can keep only a capability that it has now.
        let permitted = sets()?[0].permitted & 1 << CAP_DAC_OVERRIDE;
        kept[0] = Half { effective: permitted, permitted, inheritable: 0 };
    }
    let header = Header { version: VERSION, thread: 0 };
    // SAFETY: of this version the kernel reads the header and two halves, which live through the
    // call.
    let returned = unsafe { libc::syscall(libc::SYS_capset, &raw const header, kept.as_ptr()) };
    check(returned as libc::c_int)?;
    Ok(())
}

fn is_user_0() -> bool {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The capability sets of the calling thread.
fn sets() -> io::Result<[Half; 2]> {
    let mut header = Header { version: VERSION, thread: 0 };
    let mut sets = [Half::default(); 2];
    // SAFETY: the kernel reads and writes the header, and writes two halves.
    let returned = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    check(returned as libc::c_int)?;
    Ok(sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets of the calling thread, as `/proc` shows them.
    fn capabilities() -> Vec<(String, u64)> {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let of_line = |line: &str| {
            let (name, value) = line.split_once(':')?;
            let is_meant = matches!(name, "CapInh" | "CapPrm" | "CapEff" | "CapAmb");
            is_meant.then(|| (name.to_owned(), u64::from_str_radix(value.trim(), 16).unwrap()))
        };
        status.lines().filter_map(of_line).collect()
    }

    const CAP_NET_RAW: u32 = 13;

    /// Whether the calling thread may capture frames now. False if the system does not report it.
    fn has_net_raw() -> bool {
        sets().is_ok_and(|sets| sets[0].effective & 1 << CAP_NET_RAW != 0)
    }

    /// A thread that dropped its capabilities has none except that of user 0 for files, nor have
    /// those that it starts. The thread that started it keeps its own, and the kernel agrees.
    #[test]
    fn rights_are_given_up() {
        let before = has_net_raw();
        let could_write = capabilities().iter().any(|(name, set)| name == "CapPrm" && set & 2 != 0);
        let kept = if is_user_0() && could_write { 1 << CAP_DAC_OVERRIDE } else { 0 };
        let inside = std::thread::spawn(move || {
            drop_capabilities().unwrap();
            let expected = [("CapInh", 0), ("CapPrm", kept), ("CapEff", kept), ("CapAmb", 0)];
            let expected = expected.map(|(name, set)| (name.to_owned(), set));
            assert_eq!(capabilities(), expected);
            assert!(!has_net_raw());
            assert!(!std::thread::spawn(has_net_raw).join().unwrap());
            assert_eq!(std::thread::spawn(capabilities).join().unwrap(), expected);
            let refused = crate::netns::enter_private_network().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            // Twice does no harm.
            drop_capabilities().unwrap();
            assert_eq!(capabilities(), expected);
        });
        inside.join().unwrap();
        assert_eq!(has_net_raw(), before);
    }

    /// User 0 can still create files in a folder that only another user may write to, as when
    /// `sudo` is called there.
    #[test]
    fn user_0_writes_where_others_are_at_home() {
        let folder = std::env::temp_dir().join(format!("larder-home-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let is_given = std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).is_ok();
        let path = folder.join("flows.log");
        let inside = std::thread::spawn({
            let path = path.clone();
            move || {
                drop_capabilities().unwrap();
                std::fs::write(path, "a line")
            }
        });
        let written = inside.join().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        // A user other than 0 cannot change the folder's owner, and can write there in any case.
        assert!(written.is_ok(), "{written:?}, given: {is_given}");
    }
}
