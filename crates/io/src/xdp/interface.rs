//! Properties of a network interface.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use crate::socket::{RawAddress, check, owned};

/// Most queues that are bound: the largest network cards have this number.
pub const QUEUES_MAX: u32 = 256;

/// A network interface at the time of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Bytes of the longest IP packet that it sends.
    pub mtu: u32,
    /// Queues that receive frames, 1 to [`QUEUES_MAX`].
    pub queues: u32,
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `ETHTOOL_GCHANNELS`.
const GET_CHANNELS: u32 = 0x3c;

impl Interface {
    /// Finds the interface of this name. Fails with `NotFound` if there is none, and with
    /// `InvalidInput` if it is not Ethernet.
    pub fn find(name: &str) -> io::Result<Interface> {
        // SAFETY: takes integers only; what it makes is ours.
        let socket = unsafe {
            owned(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))
        }?;
        let mut request = named(name)?;
        // SAFETY: each of the calls writes a part of the request, and the part that is read
        // afterwards is the one that it wrote.
        unsafe {
            ioctl(&socket, libc::SIOCGIFINDEX, &mut request)?;
            let index = request.ifr_ifru.ifru_ifindex as u32;
            ioctl(&socket, libc::SIOCGIFMTU, &mut request)?;
            let mtu = request.ifr_ifru.ifru_mtu as u32;
            ioctl(&socket, libc::SIOCGIFHWADDR, &mut request)?;
            let hardware = request.ifr_ifru.ifru_hwaddr;
            if hardware.sa_family != libc::ARPHRD_ETHER {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let mut mac = [0; 6];
            for (to, from) in mac.iter_mut().zip(hardware.sa_data) {
                *to = from as u8;
            }
            let queues = queues(&socket, &mut request).clamp(1, QUEUES_MAX);
            Ok(Interface { index, name: name.to_owned(), mac, mtu, queues })
        }
    }
}

/// Queues that receive frames; 1 if the driver does not report it.
fn queues(socket: &OwnedFd, request: &mut libc::ifreq) -> u32 {
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the kernel reads the command, and writes nine integers, into a value that has nine
    // and is ours.
    match unsafe { ioctl(socket, libc::SIOCETHTOOL, request) } {
        Ok(()) => channels.rx.saturating_add(channels.combined),
        Err(_) => 1,
    }
}

/// A request for the interface of this name.
fn named(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::ErrorKind::NotFound.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// # Safety
/// `what` takes an `ifreq`, and what its parts point to is there.
unsafe fn ioctl(socket: &OwnedFd, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the name ends in a zero; the rest is the contract.
    let returned = unsafe { libc::ioctl(socket.as_raw_fd(), what, ptr::from_mut(request)) };
    match check(returned) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
            Err(io::ErrorKind::NotFound.into())
        }
        result => result.map(|_| ()),
    }
}

/// Addresses of this machine, by all its interfaces, each once.
pub fn local_addresses() -> io::Result<Vec<IpAddr>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: writes the beginning of a list, which is freed below and not used after that.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let mut found = Vec::new();
    let mut item = first;
    // SAFETY: items are those of the list, up to its end.
    while let Some(at) = unsafe { item.as_ref() } {
        if !at.ifa_addr.is_null() {
            // SAFETY: an address has the length of its family; only the bytes of the family found
            // are read.
            found.extend(unsafe { read_address(at.ifa_addr) }.map(|address| address.ip()));
        }
        item = at.ifa_next;
    }
    // SAFETY: made above, and freed once.
    unsafe { libc::freeifaddrs(first) };
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// # Safety
/// `address` is of a family, and as long as one of that family is.
unsafe fn read_address(address: *const libc::sockaddr) -> Option<SocketAddr> {
    // SAFETY: the family is at the beginning of all of them.
    let family = libc::c_int::from(unsafe { (*address).sa_family });
    let length = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let mut raw = RawAddress::EMPTY;
    // SAFETY: by the contract there is as much to read, and the room is that of the longer one.
    unsafe { ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut raw).cast(), length) };
    raw.decode()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback is not Ethernet, a missing interface is not found, and invalid names do no
    /// harm.
    #[test]
    fn what_is_none_is_reported() {
        let kind = |name: &str| Interface::find(name).map(|_| ()).unwrap_err().kind();
        assert_eq!(kind("lo"), io::ErrorKind::InvalidInput);
        for name in ["larder-none", "", "sixteen-letters-", "a\0b", &"x".repeat(999)] {
            assert_eq!(kind(name), io::ErrorKind::NotFound, "{name}");
        }
    }

    /// The machine has the loopback's address, each once.
    #[test]
    fn the_loopback_is_local() {
        let found = local_addresses().unwrap();
        assert!(found.contains(&IpAddr::from([127, 0, 0, 1])), "{found:?}");
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
