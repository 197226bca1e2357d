//! Records: the headers in their final form, memory for the body, time to live.

use std::sync::Arc;

use larder::Ttl;
use larder_mem::object::{Leased, Object, ReaderOptions};

use super::Core;
use super::fetch::{Fetch, Purpose};
use crate::Response;
use crate::cacheability::{Life, Stored};
use crate::field::{has, members};
use crate::key::{Key, tag};
use crate::message::forward::push_kept_head;
use crate::message::{push_date, push_field};
use crate::record::{self, BodyId, push_response};
use crate::store::Promise;

/// Fields by which an origin names tags.
const TAG_FIELDS: [&str; 3] = ["surrogate-key", "xkey", "cache-tag"];
/// Tags of one response; more are ignored.
const TAGS_MAX: usize = 64;

/// The data to store when a body is complete.
#[derive(Debug)]
pub(super) struct Keep {
    pub(super) key: Key,
    pub(super) stored: Stored,
    pub(super) rendered: Rendered,
    /// Memory for the body.
    pub(super) _promise: Option<Promise>,
}

/// Headers in their final form.
#[derive(Debug)]
pub(super) struct Rendered {
    url: Vec<u8>,
    serial: u64,
    tags: Vec<u64>,
    status_line: Vec<u8>,
    field_lines: Vec<u8>,
}

impl Rendered {
    pub(super) fn new(
        fetch: &Fetch,
        stored: &Stored,
        response: &Response<'_>,
        now_s: u64,
    ) -> Rendered {
        let mut status_line = Vec::new();
        let is_skipped = |name: &str| {
            // A response that is not stored keeps the `Age` of its origin.
            let is_kept = stored.etag.is_some() || stored.life.lifetime_s > 0;
            name.eq_ignore_ascii_case("content-length")
                || is_kept && name.eq_ignore_ascii_case("age")
        };
        push_kept_head(&mut status_line, stored.life.status, response.fields, is_skipped);
        let status_bytes = memchr::memmem::find(&status_line, b"\r\n").map_or(0, |at| at + 2);
        let mut field_lines = status_line.split_off(status_bytes);
        if !has(response.fields, "date") {
            let mut date = Vec::new();
            push_date(&mut date, now_s);
            push_field(&mut field_lines, "Date", &date);
        }
        let mut tags: Vec<u64> = Vec::new();
        for name in TAG_FIELDS {
            let words = members(response.fields, name)
                .flat_map(|member| member.split(|byte| byte.is_ascii_whitespace()));
            tags.extend(words.filter(|word| !word.is_empty()).map(tag));
        }
        tags.truncate(TAGS_MAX);
        Rendered { url: fetch.url.clone(), serial: fetch.serial, tags, status_line, field_lines }
    }

    pub(super) fn record(
        &self,
        stored: &Stored,
        body_bytes: Option<u64>,
        body_id: Option<BodyId>,
    ) -> Option<Vec<u8>> {
        let mut record = Vec::with_capacity(256 + self.field_lines.len());
        let parts = record::Parts {
            stored,
            url: &self.url,
            serial: self.serial,
            tags: &self.tags,
            status_line: &self.status_line,
            field_lines: &self.field_lines,
            body_bytes,
            body_id,
        };
        push_response(&mut record, &parts).then_some(record)
    }
}

impl Core {
    /// Stores a record, unless its URL was written meanwhile; true: it is stored.
    pub(super) fn keep(
        &mut self,
        fetch: &Fetch,
        key: &Key,
        stored: &Stored,
        record: &[u8],
    ) -> bool {
        let life = &stored.life;
        let keep_s = if stored.validators().has_any() { u64::from(self.options.keep_s) } else { 0 };
        let stale_s = life.stale_window_s(&self.options.rules).max(keep_s);
        let ttl_s = life.fresh_s(self.now_s) + stale_s;
        if ttl_s == 0 {
            // It expired in transit, or while its body came.
            self.counts.not_kept += 1;
            return false;
        }
        let ttl = Ttl::seconds(u32::try_from(ttl_s).unwrap_or(u32::MAX - 1));
        if fetch.ticket.is_outdated() {
            self.counts.outdated += 1;
            return false;
        }
        let now = self.seconds();
        let is_kept = self.handle.insert(&self.store, key, record, ttl, now);
        if is_kept && fetch.ticket.is_outdated() {
            self.counts.outdated += 1;
            self.handle.remove(key);
            self.handle.flush();
            return false;
        }
        // Clients that look from now on find it, before the end of the turn.
        self.handle.flush();
        if is_kept {
            self.counts.kept += 1;
        } else {
            self.counts.not_kept += 1;
        }
        is_kept
    }

    /// The longest body that is stored. Several have to fit, or each would evict all others.
    pub(super) fn kept_bytes_max(&self) -> u64 {
        self.options.memory.bodies_bytes / 2
    }

    /// A body turned out too long to be stored. Later clients get the response without storing, and
    /// the memory of this body is free when its readers have received it.
    pub(super) fn note_too_long(&mut self, fetch: &Fetch, key: &Key) {
        let (now, for_s) = (self.seconds(), self.options.unshared_s);
        self.counts.too_long += 1;
        self.handle.set_unshared(&self.store, key, true, for_s, now);
        self.handle.flush();
        self.end_flight(fetch);
        if let Purpose::Shared { flight, .. } = &fetch.purpose {
            flight.let_go();
        }
    }

    /// A body is complete: larder stores it, in its record if it is short.
    pub(super) fn keep_whole(&mut self, fetch: &Fetch, keep: Keep, object: &Arc<Object>) {
        let bytes = object.published();
        let Keep { key, stored, rendered, .. } = keep;
        let inline_max = self.options.inline_bytes_max;
        let room = self.handle.record_bytes_max(&self.store);
        if let Some(mut record) = rendered.record(&stored, Some(bytes), None)
            && bytes <= inline_max as u64
            && record.len() + bytes as usize <= room
            && append_body(&mut record, object)
        {
            self.keep(fetch, &key, &stored, &record);
            return;
        }
        let id = self.store.bodies.insert(&key, object.clone());
        let record = rendered.record(&stored, Some(bytes), Some(id));
        let is_kept = match record.filter(|record| record.len() <= room) {
            Some(record) => self.keep(fetch, &key, &stored, &record),
            None => {
                self.counts.not_kept += 1;
                false
            }
        };
        if !is_kept {
            self.store.bodies.remove(id);
        }
    }
}

/// The metadata of a response that is not stored.
pub(super) fn unkept(response: &Response<'_>, now_s: u64) -> Stored {
    let life = Life {
        status: response.status,
        directives: Default::default(),
        lifetime_s: 0,
        is_heuristic: false,
        is_by_rule: false,
        initial_age_s: 0,
        response_s: now_s,
    };
    Stored { life, vary: Vec::new(), etag: None, last_modified: None }
}

/// Copies a complete body to the end of its record; false where it cannot be read.
fn append_body(record: &mut Vec<u8>, object: &Arc<Object>) -> bool {
    let options = ReaderOptions { loop_number: 0, lease_bytes_max: u64::MAX };
    let Ok(mut reader) = object.open(0..u64::MAX, options) else { return false };
    let mut leases = Vec::new();
    loop {
        match reader.lease(&mut leases, u64::MAX) {
            Leased::Some { .. } => {
                leases.drain(..).for_each(|lease| record.extend_from_slice(lease.as_bytes()));
            }
            Leased::End => return true,
            _ => return false,
        }
    }
}
