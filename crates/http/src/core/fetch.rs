//! A fetch: the request to an origin, and the clients that it is for.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{ClientRequest, Content};
use crate::coalescing::Flight;
use crate::freshness::conditions;
use crate::key::push_url;
use crate::message::forward::push_request;
use crate::message::trailers::takes_trailers;
use crate::message::{self, FieldRoom, RequestHead, Scheme};
use crate::pending::Ticket;
use crate::record::Record;
use crate::sent::{OF_ONE, SCHEME_FIELD, VIA};
use crate::store::Store;

/// Interim responses (102, 103) that a client is sent: it need not receive them, and no window
/// limits them.
const INTERIM_MAX: u8 = 16;

/// The clients that a fetch is for.
#[derive(Debug)]
pub enum Purpose {
    /// For all clients that want the object.
    Shared {
        /// The clients that wait.
        flight: Arc<Flight>,
        /// The cached record that the origin should confirm.
        stale: Option<Vec<u8>>,
        /// The client of this event loop that started it.
        leader: Option<u64>,
    },
    /// For one client.
    Private {
        /// Its token.
        client: u64,
        /// The response may be stored, if the rules allow it.
        may_keep: bool,
    },
}

/// A request to an origin, and the data needed to judge its response.
#[derive(Debug)]
pub struct Fetch {
    /// The headers that the origin is sent.
    pub request: Vec<u8>,
    /// The method that the origin is sent.
    pub method: String,
    /// See [`push_url`].
    pub url: Vec<u8>,
    /// The clients that it is for.
    pub purpose: Purpose,
    /// The body that the origin is sent, until the origin gets it.
    pub upload: Option<Content>,
    /// It has a body, so it cannot be sent twice.
    pub has_body: bool,
    /// Connections on which it was sent.
    pub tries: u8,
    /// Its number among all writes and purges.
    pub serial: u64,
    /// The headers as the client sent them.
    pub(super) client_head: Vec<u8>,
    pub(super) peer: Option<SocketAddr>,
    /// The scheme that the origin is sent.
    pub(super) stated_scheme: Option<Scheme>,
    /// When it began, seconds since 1970.
    pub(super) requested_s: u64,
    /// States whether the URL was written since the fetch began.
    pub(super) ticket: Ticket,
    interim: u8,
}

impl Fetch {
    pub(super) fn new(
        from: &ClientRequest<'_>,
        purpose: Purpose,
        upload: Option<Content>,
        stated_scheme: Option<Scheme>,
        requested_s: u64,
        store: &Store,
    ) -> Fetch {
        let mut url = Vec::new();
        push_url(&mut url, from.scheme, from.head.host, from.head.target.path());
        let serial = store.next_serial();
        let ticket = store.enter(&url, serial);
        let mut fetch = Fetch {
            request: Vec::new(),
            method: from.head.method.to_owned(),
            url,
            purpose,
            has_body: upload.is_some(),
            upload,
            tries: 0,
            serial,
            client_head: from.bytes.to_vec(),
            peer: (from.peer)(),
            stated_scheme,
            requested_s,
            ticket,
            interim: 0,
        };
        fetch.render(from.head);
        fetch
    }

    /// The client that gets interim responses: the one that started the fetch. `None`: it has
    /// disconnected, or has got enough of them.
    pub fn takes_interim(&mut self) -> Option<u64> {
        self.interim = self.interim.saturating_add(1);
        let client = match self.purpose {
            Purpose::Private { client, .. } => Some(client),
            Purpose::Shared { leader, .. } => leader,
        };
        client.filter(|_| self.interim <= INTERIM_MAX)
    }

    fn render(&mut self, head: &RequestHead<'_>) {
        self.request.clear();
        let address = self.peer.map(|peer| peer.ip().to_string()).unwrap_or_default();
        let mut extra: Vec<(&str, &[u8])> = Vec::new();
        let is_shared = match &self.purpose {
            Purpose::Shared { stale, .. } => {
                if let Some(Record::Response(kept)) = stale.as_deref().and_then(Record::read) {
                    extra.extend(conditions(kept.validators));
                }
                // A HEAD fetches the body too: the next client wants all of it.
                self.method = "GET".to_owned();
                true
            }
            Purpose::Private { .. } => false,
        };
        // The first of several clients that share a response decides; the others get no trailers.
        if takes_trailers(head.fields) && head.minor_version > 0 {
            extra.extend([("Connection", &b"TE"[..]), ("TE", b"trailers")]);
        }
        extra.push(("Via", VIA.as_bytes()));
        if !address.is_empty() {
            extra.push(("X-Forwarded-For", address.as_bytes()));
        }
        if let Some(scheme) = self.stated_scheme {
            extra.push((SCHEME_FIELD, scheme.as_str().as_bytes()));
        }
        let states_scheme = self.stated_scheme.is_some();
        let drops = |name: &str| {
            is_shared && OF_ONE.iter().any(|it| it.eq_ignore_ascii_case(name))
                // Origins trust this field, so no client may set it.
                || states_scheme && name.eq_ignore_ascii_case(SCHEME_FIELD)
        };
        let head = RequestHead { method: &self.method, ..*head };
        push_request(&mut self.request, &head, None, &extra, drops);
    }

    /// Requests the whole response from now on, not a confirmation of the cached one.
    pub(super) fn forget_stale(&mut self) {
        if let Purpose::Shared { stale, .. } = &mut self.purpose {
            *stale = None;
        }
        let bytes = std::mem::take(&mut self.client_head);
        let mut room = FieldRoom::new();
        if let Ok(Some(head)) = message::request(&bytes, &mut room, &message::Limits::READ_BEFORE) {
            self.render(&head);
        }
        self.client_head = bytes;
    }

    /// The clients that wait, where a client started it.
    pub fn flight(&self) -> Option<&Arc<Flight>> {
        match &self.purpose {
            Purpose::Shared { flight, leader: Some(_), .. } => Some(flight),
            Purpose::Shared { .. } | Purpose::Private { .. } => None,
        }
    }

    /// True where the origin may be sent it twice: that changes nothing, and there is no body.
    pub fn may_retry(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS") && !self.has_body
    }
}
