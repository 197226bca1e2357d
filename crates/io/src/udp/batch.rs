//! Batches: many messages a system call, in memory that is allocated once.
//!
//! ```text
//! recv(&socket) -> n     messages 0..n are there until the next recv
//! slot() -> room         write a response; commit(length, route) queues it
//! send(&socket) -> Sent  messages that the kernel accepted or refused are removed from the queue;
//!                        those that it has no room for stay
//! ```
//!
//! Invariants
//! 1. Headers point to the batch's own memory. They are written in the call that gives them to the
//!    kernel, which does not use them after the system call returns.
//! 2. `received` counts the headers that the kernel filled in the last call; a header's lengths are
//!    at most those given to the kernel, except `msg_len`, which is the true length of a message.
//! 3. `first <= queued <= capacity`: the messages `first..queued` wait to be sent.
//!
//! Buffers are an odd number of cache lines apart. At a distance of a power of two they would share
//! the few entries that the nearest cache has for such addresses.

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use libc::{c_uint, cmsghdr, in_pktinfo, in6_pktinfo, iovec, msghdr};

use super::system::{self, mmsghdr};
use super::{Local, Route, UdpSocket};
use crate::socket::{RawAddress, check};

/// Most messages of a batch: the kernel's limit for one call.
pub const MESSAGES_MAX: usize = 1024;

const LINE_BYTES: usize = 64;

/// Room for the control data of a message: our address, and on inherited sockets perhaps a time
/// before it.
const CONTROL_BYTES: usize = 96;

/// Aligned as `cmsghdr` is.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

const _: () = assert!(align_of::<Control>() >= align_of::<cmsghdr>());
// SAFETY: computes a size.
const _: () = assert!(
    unsafe { libc::CMSG_SPACE(size_of::<in6_pktinfo>() as c_uint) } <= CONTROL_BYTES as u32
);

/// The memory that a header points to, except the bytes.
#[derive(Clone, Copy)]
struct Envelope {
    part: iovec,
    peer: RawAddress,
    control: Control,
}

/// The memory of a batch.
struct Arena {
    headers: Box<[mmsghdr]>,
    envelopes: Box<[Envelope]>,
    bytes: Box<[u8]>,
    message_bytes: usize,
    stride: usize,
}

impl Arena {
    fn new(messages: usize, message_bytes: usize) -> Arena {
        let messages = messages.clamp(1, MESSAGES_MAX);
        // The longest that IP can carry.
        let message_bytes = message_bytes.clamp(1, u16::MAX as usize);
        let stride = (message_bytes.div_ceil(LINE_BYTES) | 1) * LINE_BYTES;
        // SAFETY: all zeros is a valid header: null pointers of length 0.
        let header: mmsghdr = unsafe { std::mem::zeroed() };
        let envelope = Envelope {
            part: iovec { iov_base: ptr::null_mut(), iov_len: 0 },
            peer: RawAddress::EMPTY,
            control: Control([0; CONTROL_BYTES]),
        };
        Arena {
            headers: vec![header; messages].into_boxed_slice(),
            envelopes: vec![envelope; messages].into_boxed_slice(),
            bytes: vec![0; messages * stride].into_boxed_slice(),
            message_bytes,
            stride,
        }
    }
}

// SAFETY: the pointers in the headers are used only in the call that wrote them (invariant 1), and
// between calls are numbers without meaning.
unsafe impl Send for Arena {}
// SAFETY: as above; shared references only read lengths and bytes.
unsafe impl Sync for Arena {}

/// One message that was received.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// The message, or its beginning if it is longer than the batch's buffers.
    pub bytes: &'a [u8],
    /// How long it was. Of one that is longer than the buffers only Linux states the length; on
    /// other systems it is one byte more than fits.
    pub length: usize,
    /// Source and destination.
    pub route: Route,
}

impl Message<'_> {
    /// Whether [`Message::bytes`] is only the beginning.
    pub fn is_truncated(&self) -> bool {
        self.length > self.bytes.len()
    }
}

/// Room for messages that are received together. It may serve many sockets, one after the other.
pub struct RecvBatch {
    arena: Arena,
    received: usize,
}

impl RecvBatch {
    /// Room for `messages` (1 to [`MESSAGES_MAX`]) of up to `message_bytes` (1 to 65,535) each.
    pub fn new(messages: usize, message_bytes: usize) -> RecvBatch {
        RecvBatch { arena: Arena::new(messages, message_bytes), received: 0 }
    }

    /// Messages that fit.
    pub fn capacity(&self) -> usize {
        self.arena.headers.len()
    }

    /// Receives waiting messages, as many as fit, and returns their number; 0 if none waits.
    /// Replaces those of the call before.
    ///
    /// On a connected socket `ConnectionRefused` and similar errors are results of an earlier send;
    /// each is reported once, and the socket stays in use.
    pub fn recv(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.received = 0;
        let control_bytes = if socket.reports_local { CONTROL_BYTES } else { 0 };
        let Arena { headers, envelopes, bytes, message_bytes, stride } = &mut self.arena;
        let buffers = bytes.chunks_exact_mut(*stride);
        for ((header, envelope), buffer) in headers.iter_mut().zip(&mut **envelopes).zip(buffers) {
            envelope.part = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: *message_bytes };
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut envelope.peer).cast();
            header.msg_namelen = RawAddress::BYTES;
            header.msg_iov = &raw mut envelope.part;
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut envelope.control).cast();
            header.msg_controllen = control_bytes as _;
            header.msg_flags = 0;
        }
        loop {
            // SAFETY: by the loop above each header points to memory of this batch, which we borrow
            // alone, of at least the lengths that it states.
            let count = unsafe { system::receive(socket.as_fd().as_raw_fd(), headers) };
            match check(count) {
                Ok(count) => {
                    self.received = count as usize;
                    return Ok(self.received);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => return Ok(0),
                    _ => return Err(error),
                },
            }
        }
    }

    /// The messages of the last call, in order of arrival.
    #[inline]
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        (0..self.received).filter_map(|index| self.message(index))
    }

    /// One message of the last call. `None` beyond its end, or if a future kernel names a peer that
    /// is neither IPv4 nor IPv6.
    #[inline]
    pub fn message(&self, index: usize) -> Option<Message<'_>> {
        let Arena { headers, envelopes, bytes, message_bytes, stride } = &self.arena;
        let header = headers[..self.received].get(index)?;
        let envelope = envelopes.get(index)?;
        let length = header.msg_len as usize;
        let bytes = &bytes[index * stride..][..length.min(*message_bytes)];
        let peer = envelope.peer.decode()?;
        let local = match header.msg_hdr.msg_controllen {
            0 => None,
            // SAFETY: by invariant 2 the kernel filled this header, whose control is the
            // envelope's.
            _ => unsafe { local_of(&header.msg_hdr, &envelope.control) },
        };
        Some(Message { bytes, length, route: Route { peer, local } })
    }
}

/// The address and the interface of our end, from the control data.
///
/// # Safety
/// `header` was filled by [`system::receive`], with `control` as its room.
unsafe fn local_of(header: &msghdr, control: &Control) -> Option<Local> {
    let mut header = *header;
    // The pointer of that call may be stale: invariant 1.
    header.msg_control = ptr::from_ref(control).cast_mut().cast();
    // SAFETY: the kernel wrote `msg_controllen` bytes of well-formed items to `control`, which is
    // aligned for them; the macros stay inside that length, nothing writes, and items are copied
    // out by their own lengths, which are checked.
    unsafe {
        let mut item = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(at) = item.as_ref() {
            let data = libc::CMSG_DATA(item);
            let holds = |bytes: usize| at.cmsg_len >= libc::CMSG_LEN(bytes as c_uint) as _;
            match (at.cmsg_level, at.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if holds(size_of::<in_pktinfo>()) => {
                    let info = data.cast::<in_pktinfo>().read_unaligned();
                    return Some(Local {
                        address: Ipv4Addr::from(system::own_end(&info).s_addr.to_ne_bytes()).into(),
                        interface: info.ipi_ifindex as u32,
                    });
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if holds(size_of::<in6_pktinfo>()) => {
                    let info = data.cast::<in6_pktinfo>().read_unaligned();
                    return Some(Local {
                        address: Ipv6Addr::from(info.ipi6_addr.s6_addr).into(),
                        interface: info.ipi6_ifindex as u32,
                    });
                }
                _ => item = libc::CMSG_NXTHDR(&raw const header, item),
            }
        }
    }
    None
}

/// The result of sending a batch.
#[derive(Debug, Default)]
pub struct Sent {
    /// Messages that the kernel took.
    pub sent: usize,
    /// Messages that the kernel refused; they are dropped.
    pub failed: usize,
    /// Why it refused the first of those.
    pub error: Option<io::Error>,
}

/// Messages that are sent together.
pub struct SendBatch {
    arena: Arena,
    first: usize,
    queued: usize,
}

impl SendBatch {
    /// Room for `messages` (1 to [`MESSAGES_MAX`]) of up to `message_bytes` (1 to 65,535) each.
    pub fn new(messages: usize, message_bytes: usize) -> SendBatch {
        SendBatch { arena: Arena::new(messages, message_bytes), first: 0, queued: 0 }
    }

    /// Messages that fit.
    pub fn capacity(&self) -> usize {
        self.arena.headers.len()
    }

    /// Messages that wait to be sent.
    pub fn len(&self) -> usize {
        self.queued - self.first
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Room for the next message, with old bytes in it; `None` when the batch is full: send it.
    /// Nothing is queued until [`SendBatch::commit`].
    #[inline]
    pub fn slot(&mut self) -> Option<&mut [u8]> {
        if self.queued == self.capacity() {
            return None;
        }
        let start = self.queued * self.arena.stride;
        Some(&mut self.arena.bytes[start..start + self.arena.message_bytes])
    }

    /// Queues the first `length` bytes of the room of [`SendBatch::slot`], to the route's peer from
    /// the route's own end, or to the peer of a connected socket (`None`).
    ///
    /// # Panics
    /// When the batch is full or `length` is past the room: there was no such slot.
    #[inline]
    pub fn commit(&mut self, length: usize, route: Option<&Route>) {
        assert!(length <= self.arena.message_bytes, "a message fits its slot");
        assert!(self.queued < self.capacity(), "a slot was given");
        let envelope = &mut self.arena.envelopes[self.queued];
        let header = &mut self.arena.headers[self.queued].msg_hdr;
        envelope.part.iov_len = length;
        header.msg_namelen = 0;
        header.msg_controllen = 0;
        if let Some(route) = route {
            (envelope.peer, header.msg_namelen) = RawAddress::encode(&route.peer);
            if let Some(local) = &route.local {
                header.msg_controllen = set_local(&mut envelope.control, local) as _;
            }
        }
        self.queued += 1;
    }

    /// Queues a copy of `bytes`; false when the batch is full or they are too long for it.
    #[inline]
    pub fn push(&mut self, bytes: &[u8], route: Option<&Route>) -> bool {
        let Some(room) = self.slot().and_then(|slot| slot.get_mut(..bytes.len())) else {
            return false;
        };
        room.copy_from_slice(bytes);
        self.commit(bytes.len(), route);
        true
    }

    /// Sends the waiting messages. No message stops the others: one that the kernel refuses is
    /// counted and dropped, for example because it is too long, a firewall blocks it, there is no
    /// route, or memory ran out. (The kernel reports an ICMP error for an earlier message on a
    /// connected socket at the next send, which then has not happened; it is tried once again.)
    ///
    /// When the socket's buffer is full the rest stays queued: wait until the socket is writable
    /// and call again, or [`SendBatch::clear`].
    pub fn send(&mut self, socket: &UdpSocket) -> Sent {
        self.link();
        let mut waiting = self.first..self.queued;
        let headers = &mut self.arena.headers;
        let outcome = drain(&mut waiting, |waiting| {
            let waiting = &mut headers[waiting];
            // SAFETY: `link` has pointed these headers to memory of this batch, which we borrow
            // alone; their lengths were set by `commit`, inside that memory.
            let count = unsafe { system::send(socket.as_fd().as_raw_fd(), waiting) };
            check(count).map(|count| count as usize)
        });
        self.first = waiting.start;
        debug_assert!(self.first <= self.queued && self.queued <= self.capacity(), "invariant 3");
        if waiting.is_empty() {
            self.clear();
        }
        outcome
    }

    /// Drops the waiting messages.
    pub fn clear(&mut self) {
        (self.first, self.queued) = (0, 0);
    }

    /// Points the headers of the waiting messages to their envelopes.
    fn link(&mut self) {
        let Arena { headers, envelopes, bytes, stride, .. } = &mut self.arena;
        let waiting = self.first..self.queued;
        let buffers = bytes.chunks_exact_mut(*stride).skip(waiting.start);
        let envelopes = &mut envelopes[waiting.clone()];
        for ((header, envelope), buffer) in headers[waiting].iter_mut().zip(envelopes).zip(buffers)
        {
            let header = &mut header.msg_hdr;
            envelope.part.iov_base = buffer.as_mut_ptr().cast();
            header.msg_iov = &raw mut envelope.part;
            header.msg_iovlen = 1;
            // A length of 0 means no address; the kernel then requires a null pointer.
            header.msg_name = match header.msg_namelen {
                0 => ptr::null_mut(),
                _ => (&raw mut envelope.peer).cast(),
            };
            header.msg_control = match header.msg_controllen {
                0 => ptr::null_mut(),
                _ => (&raw mut envelope.control).cast(),
            };
        }
    }
}

/// Gives the messages `waiting` to `call`, which takes some from the front or returns why it does
/// not take the first, until all are taken or there is no room. The rest is left in `waiting`.
fn drain(
    waiting: &mut Range<usize>,
    mut call: impl FnMut(Range<usize>) -> io::Result<usize>,
) -> Sent {
    let mut outcome = Sent::default();
    // The message that was tried again after a refusal, which befell an earlier one.
    let mut tried_again = None;
    while waiting.start < waiting.end {
        let error = match call(waiting.clone()) {
            Ok(0) => return outcome,
            Ok(count) => {
                waiting.start += count;
                outcome.sent += count;
                continue;
            }
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return outcome,
            io::ErrorKind::ConnectionRefused if tried_again != Some(waiting.start) => {
                tried_again = Some(waiting.start);
            }
            _ => {
                waiting.start += 1;
                outcome.failed += 1;
                outcome.error.get_or_insert(error);
            }
        }
    }
    outcome
}

/// Writes the item that makes a message be sent from `local`, and returns its length.
///
/// The interface is named only for link-local addresses, which are ambiguous without it. For others
/// routing decides, as for any message that is no response. A multicast address cannot be the
/// source of a response.
fn set_local(control: &mut Control, local: &Local) -> usize {
    if local.address.is_multicast() || local.address.is_unspecified() {
        return 0;
    }
    match local.address {
        IpAddr::V4(address) => {
            let source = libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
            let info = in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: source,
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            set_item(control, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
        }
        IpAddr::V6(address) => {
            let interface = if address.is_unicast_link_local() { local.interface } else { 0 };
            let info = in6_pktinfo {
                ipi6_addr: libc::in6_addr { s6_addr: address.octets() },
                ipi6_ifindex: interface as _,
            };
            set_item(control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
        }
    }
}

/// Writes one item: a header, and a value that the kernel copies.
fn set_item<T: Copy>(control: &mut Control, level: i32, kind: i32, value: T) -> usize {
    // SAFETY: compute sizes.
    let (bytes, space) = unsafe {
        let size = size_of::<T>() as c_uint;
        (libc::CMSG_LEN(size), libc::CMSG_SPACE(size) as usize)
    };
    assert!(space <= CONTROL_BYTES, "one address item fits");
    let header = control.0.as_mut_ptr().cast::<cmsghdr>();
    // SAFETY: `control` is aligned for `cmsghdr`, and has `space` bytes, which hold the header and
    // the value behind it.
    unsafe {
        let mut item: cmsghdr = std::mem::zeroed();
        item.cmsg_len = bytes as _;
        item.cmsg_level = level;
        item.cmsg_type = kind;
        header.write(item);
        libc::CMSG_DATA(header).cast::<T>().write_unaligned(value);
    }
    space
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch").field("received", &self.received).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch").field("queued", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives scripted results to a queue of four, and returns the counts sent, failed, left.
    fn script(answers: &[Result<usize, i32>]) -> (usize, usize, usize) {
        let mut answers = answers.iter();
        let mut waiting = 3..7;
        let sent = drain(&mut waiting, |requested| {
            assert!(!requested.is_empty() && requested.end == 7);
            match answers.next().expect("the script goes on") {
                Ok(count) => Ok(*count),
                Err(error) => Err(io::Error::from_raw_os_error(*error)),
            }
        });
        assert_eq!(answers.len(), 0, "the script was followed to its end");
        assert_eq!(sent.failed > 0, sent.error.is_some());
        (sent.sent, sent.failed, waiting.len())
    }

    /// Whatever the kernel returns, each message is sent, counted as failed, or left, in order.
    /// Partial sends continue, a full buffer ends the call, a signal does not. No refusal stops the
    /// others, and a refusal of an earlier message costs none of these.
    #[test]
    fn every_message_is_accounted_for() {
        assert_eq!(script(&[Ok(4)]), (4, 0, 0));
        assert_eq!(script(&[Ok(1), Ok(2), Ok(1)]), (4, 0, 0));
        assert_eq!(script(&[Ok(1), Err(libc::EAGAIN)]), (1, 0, 3));
        assert_eq!(script(&[Ok(3), Ok(0)]), (3, 0, 1));
        assert_eq!(script(&[Err(libc::EINTR), Ok(4)]), (4, 0, 0));
        assert_eq!(script(&[Err(libc::ENOBUFS), Ok(1), Err(libc::EMSGSIZE), Ok(1)]), (2, 2, 0));
        assert_eq!(script(&[Err(libc::EPERM); 4]), (0, 4, 0));
        let refused = libc::ECONNREFUSED;
        assert_eq!(script(&[Err(refused), Ok(4)]), (4, 0, 0));
        assert_eq!(script(&[Ok(1), Err(refused), Ok(1), Err(refused), Ok(2)]), (4, 0, 0));
        assert_eq!(script(&[Err(refused), Err(refused), Ok(3)]), (3, 1, 0));
        assert_eq!(script(&[Err(refused), Err(libc::EINTR), Err(libc::EAGAIN)]), (0, 0, 4));
    }

    /// Queued messages keep their place, and the batch is full until they are sent.
    #[test]
    fn what_is_left_keeps_its_place() {
        let mut batch = SendBatch::new(3, 10);
        for n in 0..3 {
            assert!(batch.push(&[n], None));
        }
        batch.first = 1;
        assert_eq!((batch.len(), batch.slot()), (2, None));
        batch.clear();
        assert!(batch.is_empty());
        assert!(!batch.push(&[0; 11], None), "too long for the room");
        assert!(batch.push(&[0; 10], None));
    }

    /// A response names its source if that is an address to respond from, with an interface only
    /// for link-local addresses; and it is read as it was written.
    #[test]
    fn sources_are_named() {
        let mut control = Control([0; CONTROL_BYTES]);
        let mut round = |address: &str, interface| {
            let local = Local { address: address.parse().unwrap(), interface };
            let length = set_local(&mut control, &local);
            // SAFETY: all zeros is a valid header.
            let mut header: msghdr = unsafe { std::mem::zeroed() };
            header.msg_control = (&raw mut control).cast();
            header.msg_controllen = length as _;
            // SAFETY: the item was just written to `control`, and is `length` long.
            unsafe { local_of(&header, &control) }
                .map(|local| (local.address.to_string(), local.interface))
        };
        assert_eq!(round("192.0.2.1", 3), Some(("192.0.2.1".to_owned(), 0)));
        assert_eq!(round("2001:db8::1", 3), Some(("2001:db8::1".to_owned(), 0)));
        assert_eq!(round("fe80::1", 3), Some(("fe80::1".to_owned(), 3)));
        for nowhere in ["ff02::1", "224.0.0.251", "0.0.0.0", "::"] {
            assert_eq!(round(nowhere, 3), None);
        }
    }
}
