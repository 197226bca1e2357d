//! One fetch on a connection to an origin: the request is sent, and the response is read.
//!
//! ```text
//! asking -> headers -> interim responses, for the client that waits
//!                   -> the response: the core says what becomes of it -> its body, into memory
//! ```
//!
//! A body of a known length is read straight into the memory in which it is stored.

use std::io::{self, ErrorKind};

use larder_io::reactor::Interest;
use larder_io::tcp;
use larder_mem::object::{Filler, Room};

use super::super::delivery::{Delivery, Ran};
use super::{BODY, Context, HEAD, HELD_UP, Origin, Origins, ROOM, State};
use crate::coalescing::Outcome;
use crate::core::{Fetch, Incoming, Next, Reading, Remaining, Taken};
use crate::message::forward::push_kept_head;
use crate::message::{self, FieldRoom, Framing};

/// Reads of one connection in a turn.
const READS_MAX: usize = 8;
/// The same for a body of one client: it goes on before more comes, so that little memory is used
/// again and again.
const READS_PRIVATE_MAX: usize = 2;
/// Bytes read at once into memory.
const READ_BYTES: usize = 1 << 20;

/// How far reading came.
enum Read {
    /// Nothing more is there.
    Blocked,
    /// It used up its share of the turn.
    Share,
    /// There is no memory, or no client receives what is there.
    NoRoom,
    /// The body is complete.
    Complete,
    /// The body is not complete, and nothing more comes.
    Broken,
}
impl Origins {
    /// Sends what is left of the request.
    pub(super) fn send_request(&mut self, cx: &mut Context<'_>, origin: &mut Origin) -> bool {
        origin.state = State::Requesting;
        let Some(fetch) = &mut origin.fetch else { return false };
        if origin.sent_bytes == 0 {
            origin.asked_us = cx.base.now.us;
        }
        while origin.sent_bytes < fetch.request.len() {
            match tcp::write(&origin.socket, &fetch.request[origin.sent_bytes..]) {
                Ok(bytes) => origin.sent_bytes += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait_in(cx, origin, HEAD);
                    return cx
                        .base
                        .reactor
                        .watch(&origin.socket, origin.token, Interest::WRITE)
                        .is_ok();
                }
                Err(_) => return false,
            }
        }
        origin.upload = fetch.upload.take().map(Delivery::new).or(origin.upload.take());
        let Some(upload) = &mut origin.upload else {
            origin.state = State::Head;
            self.wait_in(cx, origin, HEAD);
            return cx.base.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok();
        };
        let mut sent_bytes = 0;
        let lease_bytes_max = cx.base.core.options.window_bytes;
        let ran = upload.run(&origin.socket, cx.base.core.number, lease_bytes_max, &mut sent_bytes);
        let object = upload.object().id();
        let interest = match ran {
            Ran::Complete => {
                origin.upload = None;
                origin.state = State::Head;
                self.wait_in(cx, origin, HEAD);
                return self.read_head(cx, origin);
            }
            Ran::Waits => {
                cx.base.deliveries.wait_for_more(object, origin.token);
                // A response may come before the request's end.
                Interest::READ
            }
            Ran::Blocked | Ran::Share => Interest::BOTH,
            // The client left; or the origin has, and may have stated why.
            Ran::Failed => return false,
            Ran::Gone => {
                origin.upload = None;
                origin.state = State::Head;
                return self.read_head(cx, origin);
            }
        };
        if matches!(ran, Ran::Waits) {
            self.wait_in(cx, origin, HELD_UP);
        } else {
            self.wait_in(cx, origin, HEAD);
        }
        if cx.base.reactor.watch(&origin.socket, origin.token, interest).is_err() {
            return false;
        }
        self.read_head(cx, origin)
    }

    /// Reads the headers of a response.
    pub(super) fn read_head(&mut self, cx: &mut Context<'_>, origin: &mut Origin) -> bool {
        for _ in 0..READS_MAX {
            match tcp::read_into(&origin.socket, &mut self.scratch) {
                Ok(0) => return false,
                Ok(bytes) => origin.inbox.extend_from_slice(&self.scratch[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if origin.state == State::Requesting {
                        return true;
                    }
                    return cx
                        .base
                        .reactor
                        .watch(&origin.socket, origin.token, Interest::READ)
                        .is_ok();
                }
                Err(_) => return false,
            }
            if let Some(goes_on) = self.look_for_head(cx, origin) {
                return goes_on;
            }
        }
        cx.base.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok()
    }

    /// Looks for complete headers in the inbox; `None`: more has to come.
    fn look_for_head(&mut self, cx: &mut Context<'_>, origin: &mut Origin) -> Option<bool> {
        loop {
            let inbox = std::mem::take(&mut origin.inbox);
            let mut room = FieldRoom::new();
            let method =
                origin.fetch.as_ref().map_or("GET", |fetch| fetch.method.as_str()).to_owned();
            let head =
                match message::response(&inbox, &mut room, &method, &cx.base.core.options.limits) {
                    Ok(Some(head)) => head,
                    Ok(None) => {
                        origin.inbox = inbox;
                        return None;
                    }
                    Err(_) => {
                        cx.base.core.counts.bad_responses += 1;
                        if let Some(fetch) = origin.fetch.take() {
                            cx.fail(&fetch, 502);
                        }
                        return Some(false);
                    }
                };
            let rest = &inbox[head.head_bytes..];
            if head.status < 200 {
                // An interim response: 102 and 103 are of use to the client that waits, 100 is for
                // larder.
                let fetch = origin.fetch.as_deref_mut().filter(|_| head.status != 100);
                if let Some(client) = fetch.and_then(Fetch::takes_interim) {
                    let mut interim = Vec::new();
                    push_kept_head(&mut interim, head.status, head.fields, |_| false);
                    interim.extend_from_slice(b"\r\n");
                    let outcome = Outcome::Interim(interim.into());
                    cx.base.outbox.outcomes.push_back((client, outcome));
                }
                origin.inbox = rest.to_vec();
                continue;
            }
            let waited_us = cx.base.now.us.saturating_sub(origin.asked_us);
            cx.base.core.counts.origin.note(waited_us);
            let keeps_alive = head.keeps_alive && origin.upload.is_none();
            let (next, used) = match &mut origin.fetch {
                Some(fetch) => {
                    let (core, mut net) = cx.split();
                    core.response(&mut net, fetch, &head, rest)
                }
                None => (Next::Unwanted, 0),
            };
            origin.inbox = rest[used..].to_vec();
            return Some(match next {
                Next::Body(mut incoming) => {
                    incoming.keeps_alive = keeps_alive;
                    self.begin_body(cx, origin, incoming)
                }
                Next::Done => {
                    origin.fetch = None;
                    let has_body = matches!(head.framing, Framing::Chunked | Framing::UntilClose);
                    self.rest_origin(cx, origin, keeps_alive && !has_body)
                }
                Next::Again => {
                    if let Some(fetch) = origin.fetch.take() {
                        self.start(cx, fetch);
                    }
                    false
                }
                Next::Unwanted => {
                    origin.fetch = None;
                    false
                }
            });
        }
    }

    fn begin_body(
        &mut self,
        cx: &mut Context<'_>,
        origin: &mut Origin,
        incoming: Box<Incoming>,
    ) -> bool {
        origin.state = State::Body;
        // They came with the headers.
        cx.base.core.counts.received_bytes += origin.inbox.len() as u64;
        cx.base.deliveries.set_filler(incoming.object().id(), origin.token);
        origin.incoming = Some(incoming);
        self.wait_in(cx, origin, BODY);
        self.read_body(cx, origin)
    }

    /// Reads what there is of a body.
    pub(super) fn read_body(&mut self, cx: &mut Context<'_>, origin: &mut Origin) -> bool {
        let Some(mut incoming) = origin.incoming.take() else { return false };
        let Some(fetch) = origin.fetch.take() else { return false };
        let reading = cx.base.core.before_reading(&fetch, &mut incoming);
        let read = match reading {
            Reading::Abort => {
                cx.base.deliveries.unset_filler(incoming.object().id());
                origin.fetch = Some(fetch);
                return false;
            }
            Reading::Wait => Read::NoRoom,
            Reading::Read => self.fill_body(cx, origin, &mut incoming),
            Reading::ReadPart { before } => {
                cx.base.deliveries.set_filler(incoming.object().id(), origin.token);
                cx.base.deliveries.unset_filler(before);
                self.fill_body(cx, origin, &mut incoming)
            }
        };
        cx.base.core.after_reading(&fetch, &mut incoming);
        match read {
            Read::Complete => {
                let keeps_alive = incoming.keeps_alive;
                cx.base.deliveries.unset_filler(incoming.object().id());
                cx.base.core.completed(&fetch, *incoming);
                self.unannounced.retain(|(id, _)| *id != origin.id);
                return self.rest_origin(cx, origin, keeps_alive && !origin.has_ended);
            }
            Read::Broken => {
                cx.base.deliveries.unset_filler(incoming.object().id());
                cx.base.core.broken(*incoming);
                origin.fetch = Some(fetch);
                return false;
            }
            Read::NoRoom => {
                incoming.filler.publish_now();
                cx.base.core.make_room();
                let list = if incoming.is_kept() { ROOM } else { HELD_UP };
                if self.table.list_of(origin.id) != Some(list) {
                    self.wait_in(cx, origin, list);
                }
                (origin.incoming, origin.fetch) = (Some(incoming), Some(fetch));
                return true;
            }
            Read::Blocked | Read::Share => {}
        }
        (origin.incoming, origin.fetch) = (Some(incoming), Some(fetch));
        if !self.unannounced.iter().any(|(id, _)| *id == origin.id) {
            self.unannounced.push((origin.id, cx.base.now.us));
        }
        self.wait_in(cx, origin, BODY);
        cx.base.reactor.watch(&origin.socket, origin.token, Interest::READ).is_ok()
    }

    fn fill_body(
        &mut self,
        cx: &mut Context<'_>,
        origin: &mut Origin,
        incoming: &mut Incoming,
    ) -> Read {
        let reads_max = if incoming.is_kept() { READS_MAX } else { READS_PRIVATE_MAX };
        let Incoming { filler, remaining, .. } = incoming;
        // The bytes of the last read are used too: if nothing comes after them, the socket is not
        // ready again.
        for reads in 0..=reads_max {
            if !origin.inbox.is_empty() {
                let inbox = std::mem::take(&mut origin.inbox);
                let (used, taken) = remaining.take(&inbox, filler);
                // Its memory is freed when all is used: else what is left of a first read would
                // stay with each connection.
                if used < inbox.len() {
                    origin.inbox = inbox;
                    origin.inbox.drain(..used);
                }
                match taken {
                    Taken::More => {}
                    Taken::Complete => return Read::Complete,
                    Taken::NoRoom => return Read::NoRoom,
                    Taken::Broken => return Read::Broken,
                }
            }
            if origin.has_ended {
                return match remaining {
                    Remaining::UntilClose if origin.ended_whole() => Read::Complete,
                    _ => Read::Broken,
                };
            }
            if matches!(remaining, Remaining::Length(0)) {
                return Read::Complete;
            }
            if reads == reads_max {
                break;
            }
            let Some(result) = self.read_more(origin, remaining, filler) else {
                return Read::NoRoom;
            };
            match result {
                Ok(0) => origin.has_ended = true,
                Ok(bytes) => cx.base.core.counts.received_bytes += bytes as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Read::Blocked,
                Err(_) => return Read::Broken,
            }
        }
        Read::Share
    }

    /// Reads once, into the memory of the body where its length is known; `None`: there is none.
    fn read_more(
        &mut self,
        origin: &mut Origin,
        remaining: &mut Remaining,
        filler: &mut Filler,
    ) -> Option<io::Result<usize>> {
        let Remaining::Length(left) = remaining else {
            let result = tcp::read_into(&origin.socket, &mut self.scratch);
            if let Ok(bytes) = result {
                origin.inbox.extend_from_slice(&self.scratch[..bytes]);
            }
            return Some(result);
        };
        let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(READ_BYTES);
        let Room::Memory(memory) = filler.room(wanted) else { return None };
        let wanted = memory.len().min(wanted);
        let result = tcp::read_into(&origin.socket, &mut memory[..wanted]);
        if let Ok(bytes) = result {
            filler.wrote(bytes);
            *left -= bytes as u64;
        }
        Some(result)
    }
}
