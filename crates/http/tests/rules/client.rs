//! A client of a scenario, and the responses that it receives.

use std::collections::VecDeque;
use std::sync::Arc;

use larder_http::answer::Segment;
use larder_http::core::{Content, Exchange};
use larder_http::message::{self, FieldRoom, Limits};
use larder_http::parts::Part;
use larder_mem::object::{Leased, Object, Reader, ReaderOptions};

use super::script::Step;

/// Bytes of a body that are moved at once.
pub const PIECE_BYTES: usize = 64 << 10;

/// A response that a client receives.
#[derive(Default)]
pub struct Response {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// A line has named it, and this much of its body.
    pub is_named: bool,
    pub named_bytes: usize,
    pub is_complete: bool,
    pub is_failed: bool,
}

/// A body on its way to a client.
pub struct Delivery {
    object: Arc<Object>,
    part: Option<Arc<Part>>,
    segments: VecDeque<Segment>,
    reader: Option<Reader>,
}

#[derive(Default)]
pub struct Client {
    pub core: usize,
    pub exchange: Option<Exchange>,
    pub has_upload: bool,
    pub delivery: Option<Delivery>,
    pub responses: VecDeque<Response>,
    pub is_slow: bool,
}

impl Delivery {
    pub fn new(content: Content) -> Delivery {
        let Content { object, body, part, .. } = content;
        Delivery { object, part, segments: body.segments(), reader: None }
    }

    /// Moves what there is of the body: `None` while more is to come, else whether it is whole.
    fn run(&mut self, body: &mut Vec<u8>) -> Option<bool> {
        while let Some(segment) = self.segments.front() {
            let range = match segment {
                Segment::Bytes(bytes) => {
                    body.extend_from_slice(bytes);
                    self.segments.pop_front();
                    continue;
                }
                Segment::Body(range) => range.clone(),
            };
            let reader = match &mut self.reader {
                Some(reader) => reader,
                none => {
                    let options = ReaderOptions { loop_number: 0, lease_bytes_max: 1 << 20 };
                    let Ok(reader) = self.object.open(range, options) else { return Some(false) };
                    none.insert(reader)
                }
            };
            let mut leases = Vec::new();
            match reader.lease(&mut leases, PIECE_BYTES as u64) {
                Leased::Some { is_end, .. } => {
                    leases.iter().for_each(|lease| body.extend_from_slice(lease.as_bytes()));
                    if !is_end {
                        continue;
                    }
                }
                Leased::End => {}
                Leased::Later | Leased::ReturnFirst => return None,
                Leased::Failed(_) => return Some(false),
            }
            self.reader = None;
            match self.part.as_ref().and_then(|part| part.next()) {
                Some((object, part)) => (self.object, self.part) = (object, Some(part)),
                None => drop(self.segments.pop_front()),
            }
        }
        Some(true)
    }
}

impl Client {
    /// Receives what there is of a body; true: something changed.
    pub fn receive(&mut self) -> bool {
        let Some(delivery) = self.delivery.as_mut().filter(|_| !self.is_slow) else { return false };
        let response = self.responses.back_mut().unwrap();
        let before = response.body.len();
        let Some(is_whole) = delivery.run(&mut response.body) else {
            return response.body.len() > before;
        };
        self.delivery = None;
        (response.is_complete, response.is_failed) = (is_whole, !is_whole);
        true
    }
}

impl Response {
    pub fn read(out: &[u8]) -> Response {
        let out = out.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(out);
        let mut room = FieldRoom::new();
        let head = message::response(out, &mut room, "GET", &Limits::default()).unwrap().unwrap();
        let fields = head.fields.iter().map(owned).collect();
        let body = out[head.head_bytes..].to_vec();
        Response { status: head.status, fields, body, ..Response::default() }
    }

    pub fn check(&mut self, status: &str, step: &Step) -> Result<(), String> {
        if self.status.to_string() != status {
            return Err(format!("it gets {}", self.status));
        }
        check_fields(&self.fields, step)?;
        self.is_named = true;
        match &step.content {
            Some((_, text)) => self.check_more(text)?,
            // The body does not matter.
            None => self.named_bytes = self.body.len(),
        }
        let is_whole = step.content.as_ref().is_some_and(|(word, _)| word == "body");
        (!is_whole || self.is_complete && self.named_bytes == self.body.len())
            .then_some(())
            .ok_or_else(|| format!("its body has {} bytes so far", self.body.len()))
    }

    pub fn check_more(&mut self, text: &[u8]) -> Result<(), String> {
        let more = &self.body[self.named_bytes..];
        if !more.starts_with(text) {
            let show = String::from_utf8_lossy(&more[..more.len().min(60)]);
            return Err(format!("its body goes on with {} bytes: {show}", more.len()));
        }
        self.named_bytes += text.len();
        Ok(())
    }
}

pub fn check_fields(fields: &[(String, String)], step: &Step) -> Result<(), String> {
    let find = |name: &str| fields.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
    for (name, expected) in &step.fields {
        let value = find(name).map(|(_, value)| value);
        if value != Some(expected) {
            return Err(format!("{name} is {value:?}"));
        }
    }
    match step.absent.iter().find_map(|name| find(name)) {
        Some((name, value)) => Err(format!("there is {name}: {value}")),
        None => Ok(()),
    }
}

pub fn owned(field: &larder_http::Field<'_>) -> (String, String) {
    (field.name.to_owned(), String::from_utf8_lossy(field.value).into_owned())
}
