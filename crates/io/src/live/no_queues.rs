//! Without the feature `xdp` there are no queues.

use std::io;
use std::os::fd::OwnedFd;

use super::block::Shape;

#[derive(Debug)]
pub(super) enum Queue {}

pub(super) fn open(name: &str, _: Shape, _: u64) -> Result<Vec<Queue>, String> {
    Err(format!("{name}: this program is built without AF_XDP; build it with --features xdp"))
}

/// Frames that a queue's socket dropped.
pub(super) fn drops(_: &OwnedFd) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Queue {
    pub fn interface(&self) -> usize {
        match *self {}
    }

    pub fn copy(&mut self, _: usize, _: &mut Vec<u8>) -> u64 {
        match *self {}
    }

    pub fn fd(&self) -> libc::c_int {
        match *self {}
    }

    pub fn socket(&self) -> io::Result<OwnedFd> {
        match *self {}
    }
}
