//! The captures of [`Senders`], one after the other, as one stream of pcapng with a section for each.
//!
//! A capture that is cut in a record costs that record only: sections are written here, and begin at the beginning of
//! a block.
//!
//! Cost and bound: those of a capture that is merged.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use larder_wire::capture::write;

use super::Merge;
use crate::damage::{self, SourceDamage, SourceDamageKind};
use crate::input::{Content, Input};
use crate::over_tcp::{SenderEvent, Senders};
use crate::reading::Reading;
use crate::selection::Selection;

/// The stream of [`Senders`].
pub(crate) struct Captures {
    senders: Senders,
    damage: Arc<Mutex<Vec<SourceDamage>>>,
    reading: Arc<Reading>,
    /// The first bytes, until they are given.
    begin: Vec<u8>,
    current: Option<(SocketAddr, Merge)>,
}

impl Captures {
    /// The captures of all senders as one.
    pub(crate) fn of(
        senders: Senders,
        damage: Arc<Mutex<Vec<SourceDamage>>>,
        reading: Arc<Reading>,
    ) -> Captures {
        let mut begin = Vec::new();
        // Before the first sender there is a capture already, without packets.
        write::section(&mut begin, "larder");
        Captures { senders, damage, reading, begin, current: None }
    }

    /// Waits for the next capture, and its first record.
    fn next(&mut self) -> io::Result<()> {
        let (stream, peer) = self.senders.accept()?;
        self.senders.report(peer, SenderEvent::Connected);
        // Damage is counted under one name, of which there is one for any number of senders.
        let input = Input { name: self.senders.name(), content: Content::of_connection(stream) };
        let reports = (Arc::clone(&self.damage), Arc::clone(&self.reading));
        match Merge::open(vec![input], Vec::new(), Selection::default(), reports) {
            Ok(merge) => self.current = Some((peer, merge)),
            Err(error) => self.refuse(peer, error.to_string()),
        }
        Ok(())
    }

    fn refuse(&mut self, peer: SocketAddr, why: String) {
        let kind = SourceDamageKind::Stream(why.clone());
        damage::add(&self.damage, &self.senders.name(), 0, kind);
        self.senders.report(peer, SenderEvent::Refused(why));
    }
}

impl Read for Captures {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.begin.is_empty() {
                let count = buffer.len().min(self.begin.len());
                buffer[..count].copy_from_slice(&self.begin[..count]);
                self.begin.drain(..count);
                return Ok(count);
            }
            let Some((peer, merge)) = &mut self.current else {
                self.next()?;
                continue;
            };
            let peer = *peer;
            match merge.read(buffer) {
                Ok(0) => self.senders.report(peer, SenderEvent::Ended),
                Ok(count) => return Ok(count),
                Err(error) => self.refuse(peer, error.to_string()),
            }
            self.current = None;
        }
    }
}
