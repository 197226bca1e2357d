//! A request's body on its way to an origin: the client fills an object, and the connection to the
//! origin reads it.
//!
//! The object has a window: a client that sends faster than the origin receives is not read. After
//! the body, the client's bytes are its next request.

use larder_mem::object::Failure;

use super::super::base::Base;
use super::{Client, Clients};
use crate::core::{Remaining, Taken};

impl Clients {
    /// Takes a body out of the client's bytes. False: the client is to be closed.
    pub(super) fn take_upload(&mut self, base: &mut Base, client: &mut Client) -> bool {
        let Some(mut upload) = client.upload.take() else { return true };
        let Some(mut filler) = upload.filler.take() else { return true };
        let inbox = std::mem::take(&mut client.inbox);
        let (used, taken) = upload.remaining.take(&inbox, &mut filler);
        client.inbox = inbox;
        client.inbox.drain(..used);
        if taken != Taken::NoRoom {
            base.deliveries.unset_filler(filler.object().id());
        }
        let is_chunked = matches!(upload.remaining, Remaining::Chunks(_));
        let is_too_long = is_chunked && filler.written() > base.core.options.body_bytes_max;
        match taken {
            _ if is_too_long => {
                filler.fail(Failure::Abandoned);
                base.core.counts.bodies_too_long += 1;
                return self.refuse_upload(base, client, 413, "refused: the body is too long");
            }
            Taken::Complete => {
                upload.remaining.end_with(&upload.trailers);
                filler.seal();
                self.waits_for_origin(base, client, false);
            }
            Taken::More if client.is_finished => {
                filler.fail(Failure::Abandoned);
                base.core.counts.refused_requests += 1;
                return self.refuse_upload(base, client, 400, "refused: the body is not whole");
            }
            Taken::Broken => {
                filler.fail(Failure::Damaged);
                base.core.counts.refused_requests += 1;
                return self.refuse_upload(base, client, 400, "refused: the body is no chunks");
            }
            Taken::More => {
                filler.publish_now();
                upload.filler = Some(filler);
                client.upload = Some(upload);
                if used > 0 {
                    // The next bytes have all their time.
                    self.waits_for_origin(base, client, true);
                }
            }
            Taken::NoRoom => {
                filler.publish_now();
                base.core.make_room();
                base.deliveries.set_filler(filler.object().id(), client.token);
                upload.filler = Some(filler);
                client.upload = Some(upload);
                // The origin is slow now, and has a limit of its own.
                self.waits_for_origin(base, client, false);
            }
        }
        true
    }

    /// A body is invalid, or too long: the client gets an error, unless its response has begun.
    fn refuse_upload(
        &mut self,
        base: &mut Base,
        client: &mut Client,
        status: u16,
        text: &'static str,
    ) -> bool {
        client.closes = true;
        client.lingers = true;
        client.inbox.clear();
        // What becomes of its fetch concerns no client then.
        if client.exchange.take().is_none() {
            return true;
        }
        let is_open = self.refuse(base, client, status, text);
        client.note_cut(base, text);
        is_open
    }
}

impl Client {
    /// A body is not wanted any more. Dropping its filler notifies the reader.
    pub(super) fn drop_upload(&mut self, base: &mut Base) {
        if let Some(filler) = self.upload.take().and_then(|upload| upload.filler) {
            base.deliveries.unset_filler(filler.object().id());
        }
    }
}
