//! What a core notes for the page: facts of some of its responses.
//!
//! ```text
//! a core: notes.describe(source), notes.answered(client, response)    a note of each sampled response
//!         notes.flush(), ten times a second -> record channel -> the thread of the page
//! ```
//!
//! At low rates each response is noted, at high ones a random part, with weights ([`larder_serve::sampling`]).
//!
//! Invariants
//! 1. A core never waits: a full channel drops notes, and counts them ([`larder_serve::record_channel`]).
//!
//! Cost for a response without a note: one subtraction. Cost of a note: a read of the clock, the response's header
//! and question, and some 80 bytes.

use std::net::{IpAddr, Ipv6Addr};

use larder_serve::record_channel::RecordSender;
use larder_serve::sampling::Sampling;
use larder_wire::dns::Message;

use crate::clock::{Clock, Now};
use crate::core::{Client, Source};
use crate::dnstap::Protocol;

/// Bytes of a note before its name.
const HEAD_BYTES: usize = 8 + 4 + 4 + 16 + 2 + 2 + 1 + 1 + 1;

/// The notes of one core.
#[derive(Debug)]
pub struct Notes {
    sender: RecordSender,
    clock: Clock,
    sampling: Sampling,
    now_us: u64,
    source: Source,
    since_us: Option<u64>,
}

impl Notes {
    /// For one core; [`Notes::another`] makes those of the others.
    pub fn new(sender: RecordSender, clock: Clock) -> Notes {
        Notes {
            sender,
            clock,
            sampling: Sampling::default(),
            now_us: 0,
            source: Source::Local,
            since_us: None,
        }
    }

    /// For another core.
    pub fn another(&self) -> Notes {
        Notes::new(self.sender.another(), self.clock)
    }

    /// Begins a turn.
    pub fn begin(&mut self, now: Now) {
        self.now_us = now.us;
    }

    /// Sets the source of the responses from now on, and since when their clients wait; `None`: since the turn began.
    #[inline]
    pub fn describe(&mut self, source: Source, since_us: Option<u64>) {
        (self.source, self.since_us) = (source, since_us);
    }

    /// The core sends a response to a client.
    #[inline]
    pub fn answered(&mut self, client: &Client, response: &[u8]) {
        let weight = self.sampling.draw();
        if weight > 0 {
            self.note(client, response, weight);
        }
    }

    #[cold]
    fn note(&mut self, client: &Client, response: &[u8], weight: u32) {
        let now = self.clock.now();
        let us = now.us.saturating_sub(self.since_us.unwrap_or(self.now_us));
        let note = Note::of(client, response, self.source);
        let note = Note {
            unix_ms: self.clock.unix_ns(now) / 1_000_000,
            duration_us: u32::try_from(us).unwrap_or(u32::MAX),
            weight,
            ..note
        };
        self.sender.record(|out| note.write(out));
    }

    /// Passes the notes to the thread of the page. Called as often as counters are published.
    pub fn flush(&mut self) {
        self.sampling.begin_window();
        self.sender.flush();
    }

    /// Notes dropped because the channel was full.
    pub fn dropped(&self) -> u64 {
        self.sender.dropped()
    }
}

/// The facts of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// When it was sent, milliseconds since 1970.
    pub unix_ms: u64,
    /// How long the client waited, as far as the server knows.
    pub duration_us: u32,
    /// The responses that this one stands for.
    pub weight: u32,
    /// The client.
    pub client: IpAddr,
    /// The type of its query.
    pub qtype: u16,
    /// The response code.
    pub rcode: u16,
    /// Where the response came from.
    pub source: Source,
    /// How the query came.
    pub protocol: Protocol,
    /// The name in wire form and lower case; empty: the response has no question.
    pub name: Box<[u8]>,
}

impl Note {
    /// Reads the facts of a response; others are 0.
    fn of(client: &Client, response: &[u8], source: Source) -> Note {
        let mut note = Note {
            unix_ms: 0,
            duration_us: 0,
            weight: 1,
            client: client.peer().ip().to_canonical(),
            qtype: 0,
            rcode: 0,
            source,
            protocol: client.protocol(),
            name: Box::default(),
        };
        let Ok(message) = Message::parse(response) else { return note };
        note.rcode = message.extended_rcode();
        if let Ok(Some(question)) = message.question() {
            // This server wrote the response: its question has no compression pointers.
            let wire = &response[question.name_offset..];
            let name = wire.get(..name_bytes(wire)).unwrap_or_default();
            (note.qtype, note.name) = (question.qtype, name.to_ascii_lowercase().into());
        }
        note
    }

    fn write(&self, out: &mut Vec<u8>) {
        let client = match self.client {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        out.extend_from_slice(&self.unix_ms.to_le_bytes());
        out.extend_from_slice(&self.duration_us.to_le_bytes());
        out.extend_from_slice(&self.weight.to_le_bytes());
        out.extend_from_slice(&client.octets());
        out.extend_from_slice(&self.qtype.to_le_bytes());
        out.extend_from_slice(&self.rcode.to_le_bytes());
        out.extend_from_slice(&[self.source as u8, self.protocol as u8, self.name.len() as u8]);
        out.extend_from_slice(&self.name);
    }

    /// Takes the next note of a batch; `None`: there is none.
    pub fn take(bytes: &mut &[u8]) -> Option<Note> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let mut head = head.as_slice();
        let unix_ms = u64::from_le_bytes(part(&mut head)?);
        let duration_us = u32::from_le_bytes(part(&mut head)?);
        let weight = u32::from_le_bytes(part(&mut head)?);
        let client = IpAddr::V6(Ipv6Addr::from(part::<16>(&mut head)?)).to_canonical();
        let qtype = u16::from_le_bytes(part(&mut head)?);
        let rcode = u16::from_le_bytes(part(&mut head)?);
        let [source, protocol, length] = part(&mut head)?;
        let (name, rest) = rest.split_at_checked(usize::from(length))?;
        *bytes = rest;
        let source = *Source::ALL.get(usize::from(source))?;
        let protocol = Protocol::ALL.into_iter().find(|known| *known as u8 == protocol)?;
        let name = name.into();
        Some(Note { unix_ms, duration_us, weight, client, qtype, rcode, source, protocol, name })
    }
}

fn part<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (part, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*part)
}

/// The length of a name in wire form that begins here; that of all bytes if it does not end.
fn name_bytes(wire: &[u8]) -> usize {
    let mut at = 0;
    while let Some(&length) = wire.get(at)
        && length != 0
        && at < 255
    {
        at += 1 + usize::from(length);
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_serve::record_channel::{Batch, channel};
    use std::sync::mpsc::Receiver;

    const RESPONSE: &[u8] = b"\0\0\x81\x83\0\x01\0\0\0\0\0\0\x03wWw\x02<\xff\0\0\x1c\0\x01";

    fn client(number: u8) -> Client {
        let peer = (std::net::Ipv4Addr::new(192, 0, 2, number), 4_242).into();
        Client::Stream { stream: 0, peer }
    }

    fn notes_of(received: &Receiver<Batch>) -> Vec<Note> {
        let mut notes = Vec::new();
        for batch in received.try_iter() {
            let mut bytes = batch.bytes.as_slice();
            notes.extend(std::iter::from_fn(|| Note::take(&mut bytes)));
            assert!(bytes.is_empty());
        }
        notes
    }

    /// A note has the facts of its response; responses without a question, and damaged ones, too.
    #[test]
    fn notes_are_read_again() {
        let (sender, received) = channel();
        let mut notes = Notes::new(sender, Clock::start());
        notes.begin(Now { us: 0, wall_s: 0 });
        notes.describe(Source::Blocked, None);
        notes.answered(&client(1), RESPONSE);
        notes.describe(Source::Miss, Some(u64::MAX));
        notes.answered(&client(2), &RESPONSE[..12]);
        notes.answered(&client(3), b"");
        notes.flush();
        let notes = notes_of(&received);
        let [one, two, three] = &notes[..] else { panic!("{notes:?}") };
        assert_eq!((&*one.name, one.qtype, one.rcode), (&b"\x03www\x02<\xff\0"[..], 28, 3));
        assert_eq!((one.source, one.protocol, one.weight), (Source::Blocked, Protocol::Tcp, 1));
        assert_eq!(one.client, IpAddr::from([192, 0, 2, 1]));
        assert!(one.unix_ms > 1_700_000_000_000);
        assert_eq!((two.name.len(), two.duration_us, two.source), (0, 0, Source::Miss));
        assert_eq!((three.name.len(), three.rcode), (0, 0));
    }

    /// Bytes that are no note, and a note that is cut, end the batch.
    #[test]
    fn damaged_notes_end_a_batch() {
        let mut bytes = Vec::new();
        Note::of(&client(1), RESPONSE, Source::Hit).write(&mut bytes);
        for end in 0..bytes.len() {
            assert_eq!(Note::take(&mut &bytes[..end]), None, "{end}");
        }
        bytes[HEAD_BYTES - 3] = 200;
        assert_eq!(Note::take(&mut &bytes[..]), None);
    }

    /// Invariant 1: a channel that is not read drops notes, and the core continues.
    #[test]
    fn a_full_channel_drops() {
        let (sender, received) = channel();
        let mut notes = Notes::new(sender, Clock::start());
        for _ in 0..100 {
            notes.answered(&client(1), RESPONSE);
            notes.flush();
        }
        let taken = notes_of(&received).len() as u64;
        assert_eq!(taken + notes.dropped(), 100);
        assert!(notes.dropped() > 0);
    }
}
