//! Moves bytes to and from a connection, by one system call each, and never waits. A call that
//! would wait returns `WouldBlock`, whatever the mode of the socket (only [`send_file`](super::send_file) needs it to
//! be non-blocking). A connection that the peer has closed is an error and no signal.
//!
//! Interrupted calls are made again; they did nothing.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use super::system::MORE;
use crate::socket::{RawAddress, check, get_int, set_option};

/// Most pieces that one call takes (`UIO_MAXIOV` of the kernel).
pub const PIECES_MAX: usize = 1024;

/// Reads the available bytes, at most as many as fit, and returns their number. 0 is the end of the
/// peer's data (or nothing fits).
pub fn read_into(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    let fd = socket.as_fd().as_raw_fd();
    again_if_interrupted(|| {
        // SAFETY: the kernel writes at most `bytes.len()` bytes at the start of `bytes`.
        unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) }
    })
}

/// Writes as much as there is room for: how much.
pub fn write(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let fd = socket.as_fd().as_raw_fd();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    again_if_interrupted(|| {
        // SAFETY: the kernel reads at most `bytes.len()` bytes at the start of `bytes`.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) }
    })
}

/// Writes as much of `pieces` as there is room for, in order, and returns the number of bytes.
/// Pieces after the first 1,024 are left for the next call. With `more` the kernel holds back a
/// packet that is not full, because more follows at once; if nothing follows, it sends the packet
/// 200 ms later. Only Linux can hold it back.
pub fn write_gathered(socket: &impl AsFd, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let pieces = &pieces[..pieces.len().min(PIECES_MAX)];
    let fd = socket.as_fd().as_raw_fd();
    let more = if more { MORE } else { 0 };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
    // SAFETY: all zeros is a message without address, pieces and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // The kernel only reads them; the type of the field serves `recvmsg` too.
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
    again_if_interrupted(|| {
        // SAFETY: `IoSlice` is laid out as `iovec`, and each of the `msg_iovlen` names bytes that
        // are borrowed through the call.
        unsafe { libc::sendmsg(fd, &raw const message, flags) }
    })
}

/// Small writes are sent at once (TCP_NODELAY).
pub fn set_nodelay(socket: &impl AsFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, &1)
}

/// Announces the end of the data to the peer, after everything written. Reading continues.
pub fn shutdown_write(socket: &impl AsFd) -> io::Result<()> {
    // SAFETY: takes integers only, one of which is a descriptor that is open while it is borrowed.
    check(unsafe { libc::shutdown(socket.as_fd().as_raw_fd(), libc::SHUT_WR) })?;
    Ok(())
}

/// The address of the peer.
pub fn peer(socket: &impl AsFd) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::EMPTY;
    let mut length = RawAddress::BYTES;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes to `raw`, which has that many and may hold
    // any.
    check(unsafe { libc::getpeername(fd, (&raw mut raw).cast(), &raw mut length) })?;
    raw.decode().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

/// Makes closing reset the connection (SO_LINGER of no time): the peer gets an error, not an end.
/// Unsent bytes are dropped.
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 })
}

/// The socket's pending error, such as why it could not connect.
pub fn take_error(socket: &impl AsFd) -> io::Result<Option<io::Error>> {
    let error = get_int(socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((error != 0).then(|| io::Error::from_raw_os_error(error)))
}

pub(super) fn again_if_interrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::send_file;
    use crate::testing::{readable, writable};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (theirs, _) = listener.accept().unwrap();
        (theirs, ours)
    }

    /// No call blocks, also on blocking sockets: a read without data, a write without room.
    /// Available bytes are read as far as they fit, and the end is 0.
    #[test]
    fn nothing_blocks() {
        let (mut theirs, ours) = pair();
        let mut room = [0; 4];
        assert_eq!(read_into(&ours, &mut room).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        theirs.write_all(b"bytes").unwrap();
        assert!(readable(&ours));
        assert_eq!(read_into(&ours, &mut room).unwrap(), 4);
        assert_eq!(&room, b"byte");
        assert_eq!(read_into(&ours, &mut room).unwrap(), 1);
        let pieces = [IoSlice::new(&[7; 1 << 16])];
        let error = loop {
            if let Err(error) = write_gathered(&ours, &pieces, false) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(write(&ours, b"x").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        shutdown_write(&theirs).unwrap();
        assert!(readable(&ours));
        assert_eq!(read_into(&ours, &mut room).unwrap(), 0);
    }

    /// Pieces arrive in their order, at most 1,024 a call. With `more`, a packet is sent together
    /// with the next bytes.
    #[test]
    fn pieces_are_gathered() {
        let (mut theirs, ours) = pair();
        set_nodelay(&ours).unwrap();
        let bytes: Vec<u8> = (0..1500u32).map(|index| index as u8).collect();
        let pieces: Vec<IoSlice<'_>> = bytes.chunks(1).map(IoSlice::new).collect();
        assert_eq!(write_gathered(&ours, &pieces, false).unwrap(), PIECES_MAX);
        assert_eq!(write_gathered(&ours, &pieces[PIECES_MAX..], false).unwrap(), 476);
        assert_eq!(write_gathered(&ours, &[], false).unwrap(), 0);
        let mut received = vec![0; bytes.len()];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!(received, bytes);

        assert_eq!(write_gathered(&ours, &[IoSlice::new(b"head, ")], true).unwrap(), 6);
        if MORE != 0 {
            let early = read_into(&theirs, &mut [0; 10]).unwrap_err();
            assert_eq!(early.kind(), io::ErrorKind::WouldBlock, "it waits for what follows");
        }
        assert_eq!(write(&ours, b"body").unwrap(), 4);
        let mut received = [0; 10];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"head, body");
    }

    /// A file is sent from any offset, whatever its own position, up to its end; an offset that is
    /// out of range is an error.
    #[test]
    fn files_are_sent() {
        let (mut theirs, ours) = pair();
        ours.set_nonblocking(true).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        assert_eq!(send_file(&ours, &file, 2, 5).unwrap(), 5);
        assert_eq!(send_file(&ours, &file, 8, 5).unwrap(), 2);
        assert_eq!(send_file(&ours, &file, 10, 5).unwrap(), 0);
        let error = send_file(&ours, &file, u64::MAX, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let mut received = [0; 7];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"2345689");
        file.set_len(8 << 20).unwrap();
        let error = loop {
            if let Err(error) = send_file(&ours, &file, 0, 8 << 20) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    /// A connection that the peer has closed is an error, and the process survives.
    #[test]
    fn closed_connections_are_errors() {
        let (theirs, ours) = pair();
        assert!(writable(&ours) && take_error(&ours).unwrap().is_none());
        write(&ours, b"unread").unwrap();
        // Closed with bytes unread, it resets.
        assert!(readable(&theirs));
        drop(theirs);
        assert!(readable(&ours));
        assert!(take_error(&ours).unwrap().is_some() && take_error(&ours).unwrap().is_none());
        for _ in 0..2 {
            let error = write_gathered(&ours, &[IoSlice::new(b"x")], false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        }
    }
}
