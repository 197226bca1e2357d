//! Functions for sockets of every kind that the standard library lacks: options before `bind`, and
//! addresses in the kernel's form.
//!
//! Invariant: a [`RawAddress`] is 28 bytes that may be read whatever the kernel left in them, so
//! an address is decoded without unsafe code. The fields of `sockaddr_in` lie where `sockaddr_in6`
//! has its first ones; that is checked when this file is compiled.

#[cfg_attr(any(feature = "portable", not(target_os = "linux")), path = "socket/portable.rs")]
mod system;

use std::io;
use std::mem::{offset_of, size_of, size_of_val};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

pub(crate) use system::accept;

use libc::{c_int, sockaddr_in, sockaddr_in6, socklen_t};

/// Whether sockets share an address (SO_REUSEPORT). Only sockets of one user can.
///
/// A program with one socket per core binds the first of an address with [`Sharing::First`] and the
/// others with [`Sharing::Join`]: so its sockets share, and a second program is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// The address belongs to this socket.
    #[default]
    Alone,
    /// No other socket has the address now. Sockets that join may have it later.
    First,
    /// Other sockets may have the address, if they allow it.
    Join,
}

impl Sharing {
    /// For socket number `at` of `count` that share an address; `is_open`: other programs may have
    /// it too.
    pub fn of(at: usize, count: usize, is_open: bool) -> Sharing {
        match (at, count) {
            _ if is_open => Sharing::Join,
            (_, 0 | 1) => Sharing::Alone,
            (0, _) => Sharing::First,
            _ => Sharing::Join,
        }
    }

    pub(crate) fn before_bind(self, socket: &OwnedFd) -> io::Result<()> {
        self.allow(socket, Sharing::Join)
    }

    /// The kernel checks the option of each socket whenever another one binds.
    pub(crate) fn after_bind(self, socket: &OwnedFd) -> io::Result<()> {
        self.allow(socket, Sharing::First)
    }

    fn allow(self, socket: &OwnedFd, now: Sharing) -> io::Result<()> {
        if self == now {
            set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1)?;
        }
        Ok(())
    }
}

/// An address as the kernel writes it, of either family.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct RawAddress(sockaddr_in6);

const _: () = assert!(offset_of!(sockaddr_in, sin_family) == offset_of!(sockaddr_in6, sin6_family));
const _: () = assert!(offset_of!(sockaddr_in, sin_port) == offset_of!(sockaddr_in6, sin6_port));
const _: () = assert!(offset_of!(sockaddr_in, sin_addr) == offset_of!(sockaddr_in6, sin6_flowinfo));
const _: () = assert!(size_of::<sockaddr_in>() <= size_of::<sockaddr_in6>());

const FAMILY_V4: libc::sa_family_t = libc::AF_INET as libc::sa_family_t;
const FAMILY_V6: libc::sa_family_t = libc::AF_INET6 as libc::sa_family_t;

impl RawAddress {
    /// Room for an address; of no family.
    pub(crate) const EMPTY: RawAddress = {
        // SAFETY: all zeros is a valid `sockaddr_in6`: integers only.
        RawAddress(unsafe { std::mem::zeroed() })
    };

    /// Bytes of the room.
    pub(crate) const BYTES: socklen_t = size_of::<RawAddress>() as socklen_t;

    /// Encodes an address; the length is the second value.
    pub(crate) fn encode(address: &SocketAddr) -> (RawAddress, socklen_t) {
        let mut raw = RawAddress::EMPTY;
        raw.0.sin6_port = address.port().to_be();
        match address {
            SocketAddr::V4(v4) => {
                raw.0.sin6_family = FAMILY_V4;
                raw.0.sin6_flowinfo = u32::from_ne_bytes(v4.ip().octets());
                (raw, size_of::<sockaddr_in>() as socklen_t)
            }
            SocketAddr::V6(v6) => {
                raw.0.sin6_family = FAMILY_V6;
                raw.0.sin6_addr.s6_addr = v6.ip().octets();
                raw.0.sin6_scope_id = v6.scope_id();
                (raw, RawAddress::BYTES)
            }
        }
    }

    /// The address, if its family is one of the two.
    pub(crate) fn decode(&self) -> Option<SocketAddr> {
        let port = u16::from_be(self.0.sin6_port);
        match self.0.sin6_family {
            FAMILY_V4 => {
                let ip = Ipv4Addr::from(self.0.sin6_flowinfo.to_ne_bytes());
                Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
            }
            FAMILY_V6 => {
                let ip = Ipv6Addr::from(self.0.sin6_addr.s6_addr);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, self.0.sin6_scope_id)))
            }
            _ => None,
        }
    }
}

/// The result of a system call, or its error.
pub(crate) fn check(returned: c_int) -> io::Result<c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Takes over a descriptor that a system call has just made.
///
/// # Safety
/// `returned` is the result of a call that makes descriptors, and has no other owner.
pub(crate) unsafe fn owned(returned: c_int) -> io::Result<OwnedFd> {
    let fd = check(returned)?;
    // SAFETY: not negative, so a new descriptor, which by the contract is ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A socket of the address's family, non-blocking and closed by `exec`. One of IPv6 takes no IPv4:
/// a server binds one socket a family, and sees no address in two forms.
pub(crate) fn open(address: &SocketAddr, kind: c_int) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = system::socket(family, kind)?;
    if address.is_ipv6() {
        set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1)?;
    }
    Ok(socket)
}

/// Types whose bytes the kernel may read: plain data without padding that matters.
pub(crate) trait OptionValue {}
impl OptionValue for c_int {}
impl OptionValue for libc::linger {}
#[cfg(target_os = "linux")]
impl OptionValue for libc::sock_fprog {}
#[cfg(all(feature = "xdp", target_os = "linux"))]
impl OptionValue for libc::xdp_umem_reg {}

/// Sets an option.
pub(crate) fn set_option<T: OptionValue>(
    socket: &impl AsFd,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of_val(value) as socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value`, which lives through the call; what it
    // points to (`sock_fprog`, `xdp_umem_reg`) is for its maker to keep.
    check(unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) })?;
    Ok(())
}

/// Reads an option that is a row of integers: as many as the kernel has, at most as many as
/// `values` can hold.
pub(crate) fn get_option(
    socket: &impl AsFd,
    level: c_int,
    name: c_int,
    values: &mut [c_int],
) -> io::Result<usize> {
    let mut length = size_of_val(values) as socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes, which is what `values` has, and any bytes
    // are integers.
    check(unsafe {
        libc::getsockopt(fd, level, name, values.as_mut_ptr().cast(), &raw mut length)
    })?;
    Ok(length as usize / size_of::<c_int>())
}

/// Reads an option that is one integer.
pub(crate) fn get_int(socket: &impl AsFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value = [0];
    get_option(socket, level, name, &mut value)?;
    Ok(value[0])
}

/// Gives a socket its own address.
pub(crate) fn bind(socket: &impl AsFd, address: &SocketAddr) -> io::Result<()> {
    let (raw, length) = RawAddress::encode(address);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `length` bytes of `raw`, which has at least as many.
    check(unsafe { libc::bind(fd, (&raw const raw).cast(), length) })?;
    Ok(())
}

/// Connects a socket to its peer. On a non-blocking TCP socket the result is usually `EINPROGRESS`.
pub(crate) fn connect(socket: &impl AsFd, peer: &SocketAddr) -> io::Result<()> {
    let (raw, length) = RawAddress::encode(peer);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `length` bytes of `raw`, which has at least as many.
    check(unsafe { libc::connect(fd, (&raw const raw).cast(), length) })?;
    Ok(())
}

/// Checks that an inherited descriptor is an Internet socket of this kind. The caller makes it
/// non-blocking.
pub(crate) fn expect_kind(socket: &impl AsFd, kind: c_int, what: &str) -> io::Result<()> {
    let is = get_int(socket, libc::SOL_SOCKET, libc::SO_TYPE)?;
    let family = system::family(socket)?;
    if is == kind && (family == libc::AF_INET || family == libc::AF_INET6) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("the socket handed over is no {what} socket of IPv4 or IPv6"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of both families survive the conversion, IPv6 with its scope; bytes without a
    /// family are no address.
    #[test]
    fn addresses_survive() {
        for text in ["192.0.2.1:53", "0.0.0.0:0", "[2001:db8::1]:65535", "[::]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::encode(&address).0.decode(), Some(address));
        }
        let scoped = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 53, 0, 7));
        assert_eq!(RawAddress::encode(&scoped).0.decode(), Some(scoped));
        assert_eq!(RawAddress::EMPTY.decode(), None);
    }

    /// The kernel reads an address in our form like one of the standard library: a bound socket
    /// reports it.
    #[test]
    fn the_kernel_agrees() {
        let address: SocketAddr = "127.0.0.3:0".parse().unwrap();
        let socket = open(&address, libc::SOCK_DGRAM).unwrap();
        bind(&socket, &address).unwrap();
        let socket = std::net::UdpSocket::from(socket);
        assert_eq!(socket.local_addr().unwrap().ip(), address.ip());
        let kind = expect_kind(&socket, libc::SOCK_STREAM, "TCP").unwrap_err().to_string();
        assert!(kind.contains("no TCP socket"), "{kind}");
        expect_kind(&socket, libc::SOCK_DGRAM, "UDP").unwrap();
    }
}
