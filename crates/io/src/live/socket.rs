//! Sockets of AF_PACKET: options, addresses, and the properties of an interface.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_int, c_ulong};

use larder_wire::filter::Instruction;

use super::LiveError;
use super::block::Link;
use crate::socket::{check, get_option, owned};

pub(super) const SOL_PACKET: c_int = 263;
pub(super) const RX_RING: c_int = 5;
const ADD_MEMBERSHIP: c_int = 1;
const STATISTICS: c_int = 6;
const VERSION: c_int = 10;
const TIMESTAMP: c_int = 17;
const FANOUT: c_int = 18;
const IGNORE_OUTGOING: c_int = 23;

const TPACKET_V3: c_int = 2;
const FANOUT_HASH: c_int = 0;
/// `PACKET_FANOUT_FLAG_UNIQUEID`: the kernel finds a number for the group.
const FANOUT_UNIQUE: c_int = 0x2000;
const PROMISCUOUS: u16 = 1;
pub(super) const EVERY_PROTOCOL: u16 = (libc::ETH_P_ALL as u16).to_be();

const RAW_HARDWARE: c_int = libc::SOF_TIMESTAMPING_RAW_HARDWARE as c_int;
/// `HWTSTAMP_FILTER_ALL`.
const STAMP_EVERYTHING: c_int = 1;

/// Hardware whose frames begin with IP: RAWIP, TUNNEL, TUNNEL6, SIT, NONE.
const RAW_IP: [u16; 5] = [519, 768, 769, 776, 0xfffe];
/// Hardware whose link layer has no information that larder needs: PPP, IPGRE, IP6GRE, and RAWIP of
/// modems, which has no link layer.
const COOKED: [u16; 3] = [512, 778, 823];

/// The current state of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    /// Its number; 0 is every interface.
    pub index: c_int,
    /// The first header of its frames.
    pub link: Link,
    /// Frames that are sent by it are received by it too.
    pub is_loopback: bool,
    /// It carries frames.
    pub is_up: bool,
}

/// Makes a socket that receives nothing until it is bound.
pub(super) fn open(link: Link) -> Result<OwnedFd, LiveError> {
    let kind = if link == Link::Cooked { libc::SOCK_DGRAM } else { libc::SOCK_RAW };
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers only; what it makes is ours.
    let socket = unsafe { owned(libc::socket(libc::AF_PACKET, kind, 0)) };
    let socket = socket.map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => LiveError::NotPermitted,
        _ => LiveError::Kernel { what: "no socket of AF_PACKET", error },
    })?;
    set_packet_option(&socket, SOL_PACKET, VERSION, &TPACKET_V3)
        .map_err(|error| LiveError::Kernel { what: "no rings of version 3", error })?;
    Ok(socket)
}

/// Sets an option whose value is plain data that points to nothing, or to memory that outlives the
/// call.
pub(super) fn set_packet_option<T>(
    socket: &OwnedFd,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let (fd, bytes) = (socket.as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the kernel reads `bytes` bytes of `value`, which lives through the call.
    check(unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), bytes) })?;
    Ok(())
}

/// Makes the kernel filter the socket's frames; replaces an earlier filter.
pub(super) fn set_filter(socket: &OwnedFd, filter: &[Instruction]) -> io::Result<()> {
    let mut program: Vec<libc::sock_filter> = filter
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
        .collect();
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // The instructions live through the call.
    set_packet_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Makes the kernel give the socket frames of an interface, those of one protocol
/// ([`EVERY_PROTOCOL`], 0: none).
pub(super) fn bind(socket: &OwnedFd, index: c_int, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = index;
    let bytes = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes of `address`.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) })?;
    Ok(())
}

/// Joins the sockets of a group, all of which are bound to one interface: each flow is given to one
/// of them. `None` makes the group. Returns the group's number.
pub(super) fn join(socket: &OwnedFd, group: Option<u16>) -> io::Result<u16> {
    let value = match group {
        Some(group) => c_int::from(group) | FANOUT_HASH << 16,
        None => (FANOUT_HASH | FANOUT_UNIQUE) << 16,
    };
    set_packet_option(socket, SOL_PACKET, FANOUT, &value)?;
    let mut found = [0];
    get_option(socket, SOL_PACKET, FANOUT, &mut found)?;
    Ok(found[0] as u16)
}

/// Makes a loopback show frames once. Kernels before 4.20 cannot; then the reader skips sent
/// frames.
pub(super) fn ignore_outgoing(socket: &OwnedFd) {
    let _ = set_packet_option(socket, SOL_PACKET, IGNORE_OUTGOING, &1 as &c_int);
}

/// Enables promiscuous mode of an interface, while the socket is open.
pub(super) fn be_promiscuous(socket: &OwnedFd, index: c_int) -> io::Result<()> {
    #[repr(C)]
    struct Membership {
        index: c_int,
        kind: u16,
        address_bytes: u16,
        address: [u8; 8],
    }
    let membership = Membership { index, kind: PROMISCUOUS, address_bytes: 0, address: [0; 8] };
    set_packet_option(socket, SOL_PACKET, ADD_MEMBERSHIP, &membership)
}

/// The kernel's counts since the last call: frames, dropped frames among them, and how often it had
/// no block.
pub(super) fn take_statistics(socket: &OwnedFd) -> io::Result<[u32; 3]> {
    let mut values = [0; 3];
    get_option(socket, SOL_PACKET, STATISTICS, &mut values)?;
    Ok(values.map(|value| value as u32))
}

/// Takes the socket's pending error.
pub(super) fn take_error(socket: &OwnedFd) -> Option<c_int> {
    let error = crate::socket::get_int(socket, libc::SOL_SOCKET, libc::SO_ERROR).ok()?;
    (error != 0).then_some(error)
}

/// Finds the interface of this name; `None` if there is none. `any` is every interface.
pub(super) fn find(socket: &OwnedFd, name: &str) -> Result<Option<Interface>, LiveError> {
    if name == super::ANY {
        let every = Interface { index: 0, link: Link::Cooked, is_loopback: true, is_up: true };
        return Ok(Some(every));
    }
    let Some(mut request) = named(name) else { return Ok(None) };
    let failed = |error| LiveError::Kernel { what: "the interface cannot be looked at", error };
    // SAFETY: each of the calls writes a part of the request, and the part read afterwards is the
    // one that it wrote.
    unsafe {
        match ioctl(socket, libc::SIOCGIFINDEX as c_ulong, &mut request) {
            Err(error) if is_gone(&error) => return Ok(None),
            result => result.map_err(failed)?,
        }
        let index = request.ifr_ifru.ifru_ifindex;
        match ioctl(socket, libc::SIOCGIFHWADDR as c_ulong, &mut request) {
            Err(error) if is_gone(&error) => return Ok(None),
            result => result.map_err(failed)?,
        }
        let hardware = request.ifr_ifru.ifru_hwaddr.sa_family;
        let link = match hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Link::Ethernet,
            _ if RAW_IP.contains(&hardware) => Link::RawIp,
            _ if COOKED.contains(&hardware) => Link::Cooked,
            _ => return Err(LiveError::UnknownLink { name: name.to_owned(), hardware }),
        };
        match ioctl(socket, libc::SIOCGIFFLAGS as c_ulong, &mut request) {
            Err(error) if is_gone(&error) => return Ok(None),
            result => result.map_err(failed)?,
        }
        let flags = c_int::from(request.ifr_ifru.ifru_flags);
        let is_up = flags & libc::IFF_UP != 0;
        let is_loopback = hardware == libc::ARPHRD_LOOPBACK;
        Ok(Some(Interface { index, link, is_loopback, is_up }))
    }
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO | libc::ENETDOWN))
}

/// Whether the interface of a socket exists and is up; `None` if it was removed.
pub(super) fn is_up(socket: &OwnedFd, index: c_int) -> Option<bool> {
    if index == 0 {
        return Some(true);
    }
    // The kernel takes an interface that is removed from its sockets: another may have its number
    // already.
    if bound_to(socket) != Some(index) {
        return None;
    }
    // SAFETY: all zeros is a valid `ifreq`; the calls write the name and the flags, which are read
    // afterwards.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_ifru.ifru_ifindex = index;
        // By number, since it may have been renamed.
        ioctl(socket, libc::SIOCGIFNAME as c_ulong, &mut request).ok()?;
        ioctl(socket, libc::SIOCGIFFLAGS as c_ulong, &mut request).ok()?;
        Some(c_int::from(request.ifr_ifru.ifru_flags) & libc::IFF_UP != 0)
    }
}

/// The number of the interface that a socket is bound to.
fn bound_to(socket: &OwnedFd) -> Option<c_int> {
    // SAFETY: all zeros is a valid address, of which the kernel writes as much as fits.
    unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        let mut bytes = size_of_val(&address) as libc::socklen_t;
        let into = (&raw mut address).cast();
        check(libc::getsockname(socket.as_raw_fd(), into, &raw mut bytes)).ok()?;
        Some(address.sll_ifindex)
    }
}

/// Makes the interface stamp received frames, and the socket use these stamps. The error states the
/// reason.
pub(super) fn use_hardware_time(socket: &OwnedFd, name: &str) -> Result<(), String> {
    let Some(mut request) = named(name) else { return Err("it has no card".to_owned()) };
    let mut wanted = libc::hwtstamp_config { flags: 0, tx_type: 0, rx_filter: STAMP_EVERYTHING };
    request.ifr_ifru.ifru_data = (&raw mut wanted).cast();
    // SAFETY: the kernel reads and writes a `hwtstamp_config`, which is ours and lives through the
    // call.
    let set = unsafe { ioctl(socket, libc::SIOCSHWTSTAMP as c_ulong, &mut request) };
    if let Err(error) = set {
        let mut current = libc::hwtstamp_config { flags: 0, tx_type: 0, rx_filter: 0 };
        request.ifr_ifru.ifru_data = (&raw mut current).cast();
        // SAFETY: as above.
        let is_on = unsafe { ioctl(socket, libc::SIOCGHWTSTAMP as c_ulong, &mut request) }.is_ok()
            && current.rx_filter == STAMP_EVERYTHING;
        if !is_on {
            return Err(match error.raw_os_error() {
                Some(libc::EPERM) => format!(
                    "switching them on needs CAP_NET_ADMIN; 'hwstamp_ctl -i {name} -r 1' does it \
                     beforehand"
                ),
                _ => format!("its driver has none ({error})"),
            });
        }
    }
    set_packet_option(socket, SOL_PACKET, TIMESTAMP, &RAW_HARDWARE)
        .map_err(|error| format!("the kernel does not hand them over ({error})"))
}

/// Names of the interfaces that there are.
pub(super) fn names() -> Vec<String> {
    let mut found = Vec::new();
    // SAFETY: a list that ends in an item of number 0, whose names end in zeros; freed once, and
    // not used after that.
    unsafe {
        let list = libc::if_nameindex();
        let mut item = list;
        while !item.is_null() && (*item).if_index != 0 && !(*item).if_name.is_null() {
            let name = std::ffi::CStr::from_ptr((*item).if_name);
            found.push(name.to_string_lossy().into_owned());
            item = item.add(1);
        }
        if !list.is_null() {
            libc::if_freenameindex(list);
        }
    }
    found
}

/// A request for the interface of this name; `None` for an invalid name.
fn named(name: &str) -> Option<libc::ifreq> {
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Some(request)
}

/// # Safety
/// `what` takes an `ifreq`, and what its parts point to is there.
unsafe fn ioctl(socket: &OwnedFd, what: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the name ends in a zero; the rest is the contract.
    let returned = unsafe {
        libc::ioctl(socket.as_raw_fd(), what as libc::Ioctl, std::ptr::from_mut(request))
    };
    check(returned).map(|_| ())
}
