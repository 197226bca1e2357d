//! A build without the feature `xdp`: there are no queues, and to configure one is an error.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use larder_serve::log::Log;
use larder_wire::udp_frame::FrameAddresses;

use super::Interface;

/// Never constructed.
pub struct Incoming(Infallible);

/// Never constructed.
pub struct Outgoing(Infallible);

pub(super) fn open_interface(
    name: &str,
    _bound: &[SocketAddr],
    _log: &Log,
) -> Result<Interface, String> {
    Err(format!("{name}: this larder was built without the feature 'xdp', which needs Linux"))
}

impl Incoming {
    /// Never called.
    pub fn recv(&mut self) -> usize {
        match self.0 {}
    }

    /// Never called.
    pub fn letters(&self) -> std::iter::Empty<(FrameAddresses, &[u8])> {
        match self.0 {}
    }
}

impl AsFd for Incoming {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

impl Outgoing {
    /// Never called.
    pub fn answer(
        &mut self,
        _letter: &FrameAddresses,
        _bytes_max: usize,
        _write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<bool> {
        match self.0 {}
    }

    /// Never called.
    pub fn flush(&mut self) {
        match self.0 {}
    }
}
