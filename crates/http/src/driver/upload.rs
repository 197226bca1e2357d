//! A request's body on its way to an origin: filled by the client, read by the connection to the origin, like any body.
//!
//! It is an object of its own with a window: a client that sends faster than the origin takes is not read. What follows the body in
//! the client's octets is its next request.

use std::sync::Arc;

use larder::mem::object::{Failure, Filler, Kind, Plan, Room};

use super::Driver;
use super::clients::Client;
use super::delivery::Delivery;
use crate::answer::{Body, Trailers};
use crate::message::trailers::push_trailers;
use crate::message::{Chunked, Framing, Piece};

/// A body that comes.
#[derive(Debug)]
pub struct Upload {
    filler: Option<Filler>,
    framing: Remaining,
    trailers: Arc<Trailers>,
}

#[derive(Debug)]
enum Remaining {
    Octets(u64),
    /// And the octets of data so far.
    Chunks(Box<Chunked>, u64),
}

/// How far it came.
enum Step {
    /// All of it is there.
    Complete,
    /// More octets are wanted.
    More,
    /// Memory is wanted.
    Room,
    /// It is not what it should be.
    Bad,
}

impl Driver {
    /// An object for a body of this framing, and its delivery to an origin.
    pub(super) fn upload_of(&mut self, framing: Framing) -> (Upload, Delivery) {
        let (bytes, body, framing) = match framing {
            Framing::Length(bytes) => (Some(bytes), Body::Whole, Remaining::Octets(bytes)),
            _ => (None, Body::Chunks, Remaining::Chunks(Box::default(), 0)),
        };
        let kind = Kind::Transit { window_bytes: self.options.window_bytes };
        let filler = self.store.objects.create(Plan { loop_number: self.number, bytes, kind });
        let trailers: Arc<Trailers> = Arc::default();
        let its = (body == Body::Chunks).then(|| trailers.clone());
        let delivery = Delivery::new(filler.object().clone(), body, true, its);
        (Upload { filler: Some(filler), framing, trailers }, delivery)
    }

    pub(super) fn upload_has_room(&mut self, client: &mut Client) -> bool {
        self.go_on(client)
    }

    /// Takes a body out of the client's octets. False: the client is to be closed.
    pub(super) fn take_upload(&mut self, client: &mut Client) -> bool {
        let Some(mut upload) = client.upload.take() else { return true };
        let Some(mut filler) = upload.filler.take() else { return true };
        let inbox = std::mem::take(&mut client.inbox);
        let (used, step) = upload.framing.take(&inbox, &mut filler);
        client.inbox = inbox;
        client.inbox.drain(..used);
        if !matches!(step, Step::Room) {
            self.rooms.remove(&filler.object().id());
        }
        let bytes_max = self.options.body_bytes_max;
        let is_too_long =
            matches!(upload.framing, Remaining::Chunks(_, bytes) if bytes > bytes_max);
        match step {
            _ if is_too_long => {
                filler.fail(Failure::Abandoned);
                self.counts.bodies_too_long += 1;
                return self.refuse_upload(client, 413, "refused: the body is too long");
            }
            Step::Complete => {
                if let Remaining::Chunks(chunked, _) = &upload.framing {
                    end_with(&upload.trailers, chunked);
                }
                filler.seal();
                self.waits_for_origin(client, false);
            }
            Step::More if client.is_finished => {
                filler.fail(Failure::Abandoned);
                self.counts.refused_requests += 1;
                return self.refuse_upload(client, 400, "refused: the body is not whole");
            }
            Step::Bad => {
                filler.fail(Failure::Damaged);
                self.counts.refused_requests += 1;
                return self.refuse_upload(client, 400, "refused: the body is no chunks");
            }
            Step::More => {
                filler.publish_now();
                upload.filler = Some(filler);
                client.upload = Some(upload);
                if used > 0 {
                    // The next octets have all their time.
                    self.waits_for_origin(client, true);
                }
            }
            Step::Room => {
                filler.publish_now();
                self.make_room();
                self.rooms.insert(filler.object().id(), client.token);
                upload.filler = Some(filler);
                client.upload = Some(upload);
                // It is the origin that is slow now, and has its own time.
                self.waits_for_origin(client, false);
            }
        }
        true
    }

    /// A body is not what was announced, or too long: the client is told so, unless its answer has begun.
    fn refuse_upload(&mut self, client: &mut Client, status: u16, text: &'static str) -> bool {
        client.closes = true;
        client.lingers = true;
        client.inbox.clear();
        // What becomes of its fetch is for nobody then.
        if client.exchange.take().is_none() {
            return true;
        }
        let is_open = self.refuse(client, status, text);
        self.note_cut(client, text);
        is_open
    }

    /// A body is of no interest any more. Its filler tells who reads it.
    pub(super) fn drop_upload(&mut self, client: &mut Client) {
        if let Some(filler) = client.upload.take().and_then(|upload| upload.filler) {
            self.rooms.remove(&filler.object().id());
        }
    }

    /// Gives up what is kept where somebody waits for memory.
    pub(super) fn make_room(&mut self) {
        let bytes = self.store.objects.shortage_bytes();
        if bytes > 0 {
            self.store.bodies.evict(bytes);
        }
    }
}

impl Remaining {
    /// Moves octets of the body into its object: how many octets that were, and how it stands.
    fn take(&mut self, octets: &[u8], filler: &mut Filler) -> (usize, Step) {
        match self {
            Remaining::Octets(left) => {
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(octets.len());
                let moved = fill(filler, &octets[..wanted]);
                *left -= moved as u64;
                let step = match (*left, moved == wanted) {
                    (0, _) => Step::Complete,
                    (_, true) => Step::More,
                    (_, false) => Step::Room,
                };
                (moved, step)
            }
            Remaining::Chunks(chunked, taken_bytes) => {
                let mut used = 0;
                loop {
                    match chunked.next(&octets[used..]) {
                        Ok(Piece::Data { octets: data, consumed }) => {
                            let left = data.len() - fill(filler, data);
                            *taken_bytes += (data.len() - left) as u64;
                            chunked.put_back(left);
                            used += consumed - left;
                            if left > 0 {
                                return (used, Step::Room);
                            }
                        }
                        Ok(Piece::More { consumed }) => return (used + consumed, Step::More),
                        Ok(Piece::End { consumed }) => return (used + consumed, Step::Complete),
                        Err(_) => return (octets.len(), Step::Bad),
                    }
                }
            }
        }
    }
}

/// Hands over what of a body's trailers goes on. To be called before the body is sealed.
pub(super) fn end_with(trailers: &Trailers, chunked: &Chunked) {
    let mut lines = Vec::new();
    push_trailers(&mut lines, chunked.trailers());
    // A body ends once.
    let _ = trailers.set(lines.into());
}

/// Copies octets into an object: how many there was room for.
pub(super) fn fill(filler: &mut Filler, octets: &[u8]) -> usize {
    let mut moved = 0;
    while moved < octets.len() {
        let rest = &octets[moved..];
        let bytes = match filler.room(rest.len()) {
            Room::Memory(memory) => {
                let bytes = memory.len().min(rest.len());
                memory[..bytes].copy_from_slice(&rest[..bytes]);
                bytes
            }
            Room::Later => break,
        };
        filler.wrote(bytes);
        moved += bytes;
    }
    moved
}
