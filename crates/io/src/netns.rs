//! A network of one's own: for measurements that nothing else may disturb, and for tests of loss.

use std::io;
use std::os::fd::AsRawFd;

use crate::socket::{check, owned};

/// Moves the calling thread into a new network namespace with only the loopback, which is up, with
/// 127.0.0.1 and `::1`. Threads that it starts afterwards are there too; open sockets stay where
/// they were. Needs `CAP_SYS_ADMIN`; without it the error is `PermissionDenied`.
pub fn enter_private_network() -> io::Result<()> {
    // SAFETY: changes what later sockets of this thread see; takes an integer.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    // SAFETY: takes integers only; what it makes is ours.
    let socket =
        unsafe { owned(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)) }?;
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads the name, which ends in a zero, and the flags, which are set.
    check(unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const request)
    })?;
    Ok(())
}

/// Makes `algorithm` the congestion control of the calling thread's network namespace from now on.
/// Measurements over loopback need one that sends as much as it may (`cubic`, `reno`). One with its
/// own pacing (`bbr`) spends most of its time on timers there.
pub fn set_congestion_control(algorithm: &str) -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", algorithm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// In a private network loopback works, and a port that is taken outside is free.
    #[test]
    fn a_network_of_our_own() {
        let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let inside = std::thread::spawn(move || {
            enter_private_network()
                .map(|()| UdpSocket::bind(address).unwrap().local_addr().unwrap())
        });
        match inside.join().unwrap() {
            Ok(inside) => assert_eq!(inside, address),
            Err(error) => {
                crate::testing::skip("a_network_of_our_own", format!("not permitted: {error}"));
            }
        }
    }
}
