//! Without io_uring there is only the reactor by readiness.

use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use super::batch::Batch;
use super::send_buffers::SendBuffers;
use super::{Options, Sending, Waker};
use crate::epoll::Interest;

#[derive(Debug)]
pub(super) enum Uring {}

/// Memory shared with the kernel.
#[derive(Debug)]
pub(super) enum Region {}

impl Region {
    /// # Safety
    /// None: there is no region.
    pub(super) unsafe fn bytes(&self, _: usize, _: usize) -> &[u8] {
        match *self {}
    }
}

impl Uring {
    pub(super) fn new(_: &Options, _: &Waker) -> io::Result<(Uring, Batch)> {
        let text = "io_uring needs Linux";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    pub(super) fn listen(&mut self, _: &TcpListener, _: u64) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn unlisten(&mut self, _: &TcpListener, _: u64) {
        match *self {}
    }

    pub(super) fn receive(&mut self, _: BorrowedFd<'_>, _: u64) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn pause(&mut self, _: BorrowedFd<'_>, _: u64) {
        match *self {}
    }

    pub(super) fn watch(&mut self, _: BorrowedFd<'_>, _: u64, _: Interest) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn unwatch(&mut self, _: BorrowedFd<'_>, _: u64) {
        match *self {}
    }

    pub(super) fn send(&mut self, _: BorrowedFd<'_>, _: u64, _: Vec<u8>) -> Sending {
        match *self {}
    }

    pub(super) fn close(&mut self, _: OwnedFd, _: u64) {
        match *self {}
    }

    pub(super) fn wait(
        &mut self,
        _: &mut Batch,
        _: Option<Duration>,
        _: &mut SendBuffers,
    ) -> io::Result<usize> {
        match *self {}
    }
}
