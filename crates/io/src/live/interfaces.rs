//! Interfaces of a capture: opening them, and binding again to one that was removed and created again.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::block::{Link, Shape};
use super::error::LiveError;
use super::options::LiveOptions;
use super::program::{has_long_frames, nothing, program};
use super::ring::{Frames, Ring};
use super::{Line, Live, Opened, no_such, queues, socket};

/// Spare sockets per ring, for interfaces that are created again and have several rings: sockets in
/// a group cannot be bound again.
pub(super) const SPARES: usize = 8;

/// The ring for long frames, against `ring_bytes`.
const LONG_SHARE: u64 = 2;

impl Live {
    pub(super) fn open_interface(&mut self, name: &str) -> Result<(), LiveError> {
        let number = self.interfaces.len();
        // A socket of any kind shows which kind is needed.
        let found = socket::find(&socket::open(Link::Ethernet)?, name)?;
        let found = found.ok_or_else(|| no_such(name))?;
        let shape = Shape {
            interface: number as u32,
            link: found.link,
            has_loopback: found.is_loopback,
            snap_bytes: self.options.snap_bytes as usize,
        };
        if self.options.rings > 1 && !found.is_up {
            return Err(LiveError::Down { name: name.to_owned() });
        }
        let sockets = |count: usize| -> Result<Vec<OwnedFd>, LiveError> {
            (0..count).map(|_| socket::open(found.link)).collect()
        };
        let several = self.options.rings > 1;
        let spares = sockets(if several { SPARES * self.options.rings } else { 0 })?;
        let (index, is_up) = (found.index, found.is_up);
        let name = name.to_owned();
        self.interfaces.push(Opened { name, index, shape, is_up, is_gone: false, spares });
        self.counts.set_up(number, is_up);
        self.start(number, sockets(self.options.rings)?)?;
        if has_long_frames(&self.options) {
            let long = self.open_line(number, socket::open(found.link)?, Frames::Long)?;
            self.counts.watch(number, long.ring.socket());
            self.lines.push(long);
        }
        if self.options.xdp {
            self.open_queues(number);
        }
        Ok(())
    }

    /// Takes frames by AF_XDP, or notes why not.
    fn open_queues(&mut self, number: usize) {
        let Opened { name, shape, .. } = &self.interfaces[number];
        let opened = if self.options.filter.is_empty() {
            queues::open(name, *shape, self.options.ring_bytes)
        } else {
            Err(format!("{name}: what comes by AF_XDP passes no filter"))
        };
        match opened {
            Ok(opened) => {
                for queue in &opened {
                    if let Ok(socket) = queue.socket() {
                        self.counts.watch_queue(number, socket);
                    }
                }
                self.queues.extend(opened);
            }
            Err(why) => self.notes.push(format!("no AF_XDP, but the kernel's rings: {why}")),
        }
    }

    /// Gives sockets rings and binds them to an interface, so that from some moment on each frame
    /// reaches exactly one of them.
    fn start(&mut self, number: usize, sockets: Vec<OwnedFd>) -> Result<(), LiveError> {
        let several = sockets.len() > 1;
        let mut lines = Vec::with_capacity(sockets.len());
        let mut group = None;
        for socket in sockets {
            let line = self.open_line(number, socket, Frames::Usual)?;
            if several {
                let joined = socket::join(line.ring.socket(), group);
                let joined = joined
                    .map_err(|error| LiveError::Kernel { what: "no group of rings", error })?;
                group = Some(joined);
            }
            lines.push(line);
        }
        let Opened { name, index, shape, is_up, .. } = &self.interfaces[number];
        if several {
            let program = program(&self.options, Frames::Usual);
            for line in &lines {
                let set = socket::set_filter(line.ring.socket(), &program);
                set.map_err(|error| LiveError::Filter { error })?;
            }
        }
        if self.options.is_promiscuous && *index != 0 && !shape.has_loopback {
            // An interface without addresses needs no promiscuous mode.
            if let Err(error) = socket::be_promiscuous(lines[0].ring.socket(), *index)
                && *is_up
            {
                self.notes.push(format!("{name}: only frames for this machine: {error}"));
            }
        }
        for line in &lines {
            self.counts.watch(number, line.ring.socket());
        }
        self.lines.append(&mut lines);
        Ok(())
    }

    /// Gives a socket a ring and binds it to an interface.
    fn open_line(
        &mut self,
        number: usize,
        socket: OwnedFd,
        frames: Frames,
    ) -> Result<Line, LiveError> {
        let Opened { name, index, shape, .. } = &self.interfaces[number];
        let LiveOptions { ring_bytes, batch_ms, rings, hardware_time, .. } = self.options;
        // A socket outside the group would receive the frames of the others. So no socket receives
        // anything until all are in it.
        let is_of_group = rings > 1 && frames == Frames::Usual;
        let program = if is_of_group { nothing() } else { program(&self.options, frames) };
        socket::set_filter(&socket, &program).map_err(|error| LiveError::Filter { error })?;
        if shape.has_loopback && shape.link == Link::Ethernet {
            socket::ignore_outgoing(&socket);
        }
        if hardware_time && let Err(why) = socket::use_hardware_time(&socket, name) {
            let note = format!("{name}: no stamps of the card, but the system's: {why}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        let socket = Arc::new(socket);
        let bytes = match frames {
            Frames::Usual => ring_bytes,
            Frames::Long => ring_bytes / LONG_SHARE,
        };
        let ring = Ring::new(Arc::clone(&socket), (bytes, frames), batch_ms);
        let ring = ring.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOMEM | libc::ENOBUFS) => {
                LiveError::NoMemory { name: name.clone(), ring_bytes }
            }
            _ => LiveError::Kernel { what: "no ring", error },
        })?;
        socket::bind(&socket, *index, socket::EVERY_PROTOCOL)
            .map_err(|error| LiveError::Kernel { what: "the interface cannot be had", error })?;
        Ok(Line { ring, interface: number, frames, is_left: false })
    }

    /// Notes which interfaces are up, and finds those again that were made again.
    pub(super) fn look_at_interfaces(&mut self) {
        self.leave_empty_rings();
        for number in 0..self.interfaces.len() {
            let Some(line) = self.lines.iter().find(|l| l.interface == number && !l.is_left) else {
                continue;
            };
            let socket = Arc::clone(line.ring.socket());
            let interface = &mut self.interfaces[number];
            let was_up = interface.is_up;
            let is_there = socket::is_up(&socket, interface.index);
            interface.is_up = is_there.unwrap_or(false);
            match is_there {
                Some(true) if !was_up => self.report(number, "interface up"),
                Some(false) if was_up => self.report(number, "interface down"),
                _ => {}
            }
            if is_there.is_none() {
                if !std::mem::replace(&mut self.interfaces[number].is_gone, true) {
                    self.report(number, "interface removed");
                }
                // Queues end with their interface; a new interface is captured by rings alone.
                self.queues.retain(|queue| queue.interface() != number);
                self.counts.forget_queues(number);
                match self.open_again(number, &socket) {
                    Ok(false) => {}
                    Ok(true) => {
                        let interface = &mut self.interfaces[number];
                        (interface.is_up, interface.is_gone) = (true, false);
                        self.counts.came_again(number);
                        self.report(number, "interface recreated");
                    }
                    Err(error) => {
                        let name = &self.interfaces[number].name;
                        self.failure = Some(format!(
                            "interface {name} was recreated, and cannot be captured from: {error}; start again"
                        ));
                    }
                }
            }
            let is_up = self.interfaces[number].is_up;
            self.counts.set_up(number, is_up);
            if was_up && (!is_up || is_there.is_none()) {
                self.counts.went_down(number);
            }
        }
    }

    /// Binds to an interface with the name of a removed one; false while no such interface is up.
    fn open_again(&mut self, number: usize, socket: &OwnedFd) -> Result<bool, LiveError> {
        let rings = self.options.rings;
        let interface = &mut self.interfaces[number];
        let Some(found) = socket::find(socket, &interface.name)?.filter(|found| found.is_up) else {
            return Ok(false);
        };
        if found.link != interface.shape.link {
            // Its frames would not fit the link type of the header.
            return Err(LiveError::OtherLink);
        }
        let before = std::mem::replace(&mut interface.index, found.index);
        match self.bind_again(number, rings) {
            // It was removed or went down meanwhile.
            Err(LiveError::Kernel { error, .. }) if socket::is_gone(&error) => {
                self.interfaces[number].index = before;
                Ok(false)
            }
            result => result.map(|()| true),
        }
    }

    /// Binds the rings of an interface to its present index.
    fn bind_again(&mut self, number: usize, rings: usize) -> Result<(), LiveError> {
        let index = self.interfaces[number].index;
        let lines = self.lines.len();
        if rings > 1 {
            // A socket in a group cannot be bound again.
            let Opened { spares, shape, .. } = &mut self.interfaces[number];
            while spares.len() < rings {
                spares.push(socket::open(shape.link)?);
            }
            let sockets = spares.split_off(spares.len() - rings);
            self.start(number, sockets)?;
        }
        for line in self.lines[..lines].iter_mut().filter(|line| line.interface == number) {
            if rings > 1 && line.frames == Frames::Usual {
                line.is_left = true;
                continue;
            }
            socket::bind(line.ring.socket(), index, socket::EVERY_PROTOCOL).map_err(|error| {
                LiveError::Kernel { what: "the interface cannot be had", error }
            })?;
            if self.options.is_promiscuous && line.frames == Frames::Usual {
                // Errors were reported at the start.
                let _ = socket::be_promiscuous(line.ring.socket(), index);
            }
        }
        Ok(())
    }

    /// Drops rings whose interface has others, once they are empty.
    fn leave_empty_rings(&mut self) {
        let counts = &self.counts;
        self.lines.retain_mut(|line| {
            counts.malformed(line.interface, line.ring.take_malformed());
            let is_done = line.is_left && line.ring.head_ns().is_none();
            if is_done {
                counts.forget(line.ring.socket());
            }
            !is_done
        });
    }
}
