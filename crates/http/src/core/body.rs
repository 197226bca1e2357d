//! Bytes of a body on their way into memory: of a response from an origin, or of a request from a
//! client.
//!
//! If a response turns out longer than the cache may hold, it continues in parts ([`crate::parts`])
//! of [`Options::window_bytes`](crate::options::Options) each.

use std::sync::Arc;

use larder_mem::object::{Failure, Filler, Kind, Object, ObjectId, Plan, Room};

use super::fetch::{Fetch, Purpose};
use super::storing::Keep;
use super::{Content, Core};
use crate::answer::{Body, Trailers};
use crate::message::trailers::push_trailers;
use crate::message::{Chunked, Framing, Piece};
use crate::parts::Parts;

/// The rest of a body, by its framing.
#[derive(Debug)]
pub enum Remaining {
    /// This many bytes.
    Length(u64),
    /// Chunks.
    Chunks(Box<Chunked>),
    /// All until the connection closes.
    UntilClose,
}

/// How far a body came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is complete.
    Complete,
    /// More bytes have to come.
    More,
    /// There is no memory for the next bytes.
    NoRoom,
    /// The bytes are no valid chunks.
    Broken,
}

impl From<Framing> for Remaining {
    fn from(framing: Framing) -> Remaining {
        match framing {
            Framing::None => Remaining::Length(0),
            Framing::Length(bytes) => Remaining::Length(bytes),
            Framing::Chunked => Remaining::Chunks(Box::default()),
            Framing::UntilClose => Remaining::UntilClose,
        }
    }
}

impl Remaining {
    /// Moves bytes of the body into its object: how many bytes it used, and how far the body came.
    pub fn take(&mut self, bytes: &[u8], filler: &mut Filler) -> (usize, Taken) {
        match self {
            Remaining::Length(left) => {
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                let moved = fill(filler, &bytes[..wanted]);
                *left -= moved as u64;
                let taken = match *left {
                    0 => Taken::Complete,
                    _ if moved < wanted => Taken::NoRoom,
                    _ => Taken::More,
                };
                (moved, taken)
            }
            Remaining::UntilClose => {
                let moved = fill(filler, bytes);
                (moved, if moved < bytes.len() { Taken::NoRoom } else { Taken::More })
            }
            Remaining::Chunks(chunked) => {
                let mut used = 0;
                loop {
                    match chunked.next(&bytes[used..]) {
                        Ok(Piece::Data { bytes: data, consumed }) => {
                            let left = data.len() - fill(filler, data);
                            chunked.put_back(left);
                            used += consumed - left;
                            if left > 0 {
                                return (used, Taken::NoRoom);
                            }
                        }
                        Ok(Piece::More { consumed }) => return (used + consumed, Taken::More),
                        Ok(Piece::End { consumed }) => return (used + consumed, Taken::Complete),
                        Err(_) => return (bytes.len(), Taken::Broken),
                    }
                }
            }
        }
    }

    /// Hands over the trailers of the body. The caller does so before it seals the body: a client
    /// that sees the end of the body then sees its trailers too.
    pub fn end_with(&self, trailers: &Trailers) {
        if let Remaining::Chunks(chunked) = self {
            let mut lines = Vec::new();
            push_trailers(&mut lines, chunked.trailers());
            // A body ends once.
            let _ = trailers.set(lines.into());
        }
    }
}

/// Copies bytes into an object, and returns how many it had memory for.
fn fill(filler: &mut Filler, bytes: &[u8]) -> usize {
    let mut moved = 0;
    while moved < bytes.len() {
        let rest = &bytes[moved..];
        let count = match filler.room(rest.len()) {
            Room::Memory(memory) => {
                let count = memory.len().min(rest.len());
                memory[..count].copy_from_slice(&rest[..count]);
                count
            }
            Room::Later => break,
        };
        filler.wrote(count);
        moved += count;
    }
    moved
}

/// The body of a request, from a client.
#[derive(Debug)]
pub struct Upload {
    /// `None` when the body is complete or has failed.
    pub filler: Option<Filler>,
    /// The rest of it.
    pub remaining: Remaining,
    /// Its trailers, for the origin.
    pub trailers: Arc<Trailers>,
}

/// The body of a response, from an origin.
#[derive(Debug)]
pub struct Incoming {
    /// The memory for its bytes.
    pub filler: Filler,
    /// The rest of it.
    pub remaining: Remaining,
    /// The connection may be used again after it.
    pub keeps_alive: bool,
    keep: Option<Keep>,
    trailers: Option<Arc<Trailers>>,
    /// Where the body continues if it is too long to be cached.
    parts: Option<Parts>,
}

impl Incoming {
    pub(super) fn new(
        filler: Filler,
        framing: Framing,
        keep: Option<Keep>,
        trailers: Option<Arc<Trailers>>,
        parts: Option<Parts>,
    ) -> Incoming {
        let remaining = framing.into();
        Incoming { filler, remaining, keeps_alive: false, keep, trailers, parts }
    }

    /// The object that is filled now.
    pub fn object(&self) -> &Arc<Object> {
        self.filler.object()
    }

    /// It is stored when it is complete.
    pub fn is_kept(&self) -> bool {
        self.keep.is_some()
    }

    /// True where no client reads a body that is not stored.
    fn is_unwanted(&self) -> bool {
        self.keep.is_none()
            && match &self.parts {
                Some(parts) => parts.is_unread(),
                None => self.filler.is_unwanted(),
            }
    }
}

/// The next step for a body before more of it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Read.
    Read,
    /// Read; the body continues in another object.
    ReadPart {
        /// The object before.
        before: ObjectId,
    },
    /// The clients have to receive some of it first.
    Wait,
    /// No client wants it: abort the fetch.
    Abort,
}

impl Core {
    /// Memory for the body of a request, and the content that the origin is sent from it.
    pub(super) fn upload_of(&self, framing: Framing) -> (Upload, Content) {
        let (bytes, body) = match framing {
            Framing::Length(bytes) => (Some(bytes), Body::Whole),
            _ => (None, Body::Chunks),
        };
        let kind = Kind::Transit { window_bytes: self.options.window_bytes };
        let filler = self.store.objects.create(Plan { loop_number: self.number, bytes, kind });
        let trailers: Arc<Trailers> = Arc::default();
        let content = Content {
            object: filler.object().clone(),
            trailers: (body == Body::Chunks).then(|| trailers.clone()),
            body,
            is_private: true,
            part: None,
        };
        (Upload { filler: Some(filler), remaining: framing.into(), trailers }, content)
    }

    /// Decides the next step for a body before more of it is read.
    pub fn before_reading(&mut self, fetch: &Fetch, incoming: &mut Incoming) -> Reading {
        if incoming.is_unwanted() || self.is_abandoned(fetch, incoming) {
            self.counts.fetches_abandoned += 1;
            return Reading::Abort;
        }
        let is_streamed = incoming.keep.is_none() && incoming.parts.is_some();
        if !is_streamed || incoming.filler.written() < self.options.window_bytes {
            return Reading::Read;
        }
        let Some(parts) = incoming.parts.as_mut() else { return Reading::Wait };
        if !parts.may_go_on() {
            return Reading::Wait;
        }
        let plan = Plan { loop_number: self.number, bytes: None, kind: Kind::Stored };
        let filler = self.store.objects.create(plan);
        parts.go_on(filler.object().clone());
        let sealed = std::mem::replace(&mut incoming.filler, filler);
        let before = sealed.object().id();
        sealed.seal();
        Reading::ReadPart { before }
    }

    /// More bytes of a body have come.
    pub fn after_reading(&mut self, fetch: &Fetch, incoming: &mut Incoming) {
        incoming.filler.publish();
        let is_too_long = incoming.filler.written() > self.kept_bytes_max();
        if let Some(keep) = incoming.keep.take_if(|_| is_too_long) {
            self.note_too_long(fetch, &keep.key);
        }
    }

    /// A body is complete: larder stores it if the rules allow it.
    pub fn completed(&mut self, fetch: &Fetch, incoming: Incoming) {
        let Incoming { filler, keep, trailers, remaining, .. } = incoming;
        let object = filler.object().clone();
        if let Some(trailers) = trailers {
            remaining.end_with(&trailers);
        }
        filler.seal();
        if let Some(keep) = keep {
            self.keep_whole(fetch, keep, &object);
        }
        self.end_flight(fetch);
    }

    /// The origin did not complete a body: no client sees an end of it.
    pub fn broken(&mut self, incoming: Incoming) {
        self.counts.bodies_broken += 1;
        incoming.filler.fail(Failure::Origin);
    }

    /// True where no client reads a body that is to be stored, no client will, and too many bytes
    /// are missing to complete it all the same.
    fn is_abandoned(&mut self, fetch: &Fetch, incoming: &Incoming) -> bool {
        let left_bytes = match &incoming.remaining {
            Remaining::Length(left) => Some(*left),
            Remaining::Chunks(_) | Remaining::UntilClose => None,
        };
        if incoming.keep.is_none() || self.options.abandoned.finishes(left_bytes) {
            return false;
        }
        let is_unread = || {
            let handles = match &fetch.purpose {
                Purpose::Shared { leader: None, .. } => None,
                Purpose::Shared { flight, .. } => flight.body_handles(),
                Purpose::Private { .. } => Some(0),
            };
            // One handle is the filler's. A client that has the response and does not read yet has
            // one too.
            let handles_now = Arc::strong_count(incoming.filler.object());
            handles.is_some_and(|its| handles_now == its + 1)
        };
        if !is_unread() {
            return false;
        }
        // A client that comes now starts another fetch; one that came before that has a handle.
        self.end_flight(fetch);
        is_unread()
    }
}
