//! The look-up interface of the library: the library requests responses here, and the validator
//! supplies them.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hickory_net::NetError;
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::xfer::{DnsHandle, DnsResponseStream};
use hickory_proto::op::{DnsRequest, DnsResponse, Query};

/// A response, or an error.
pub type Outcome = Result<DnsResponse, NetError>;

/// A request of the library.
pub struct LookupRequest {
    pub query: Query,
    pub slot: Slot,
}

/// The slot for one response. There is no waker: the validator polls the check after it fills a
/// slot.
#[derive(Clone, Default)]
pub struct Slot(Arc<Mutex<Option<Outcome>>>);

impl Slot {
    pub fn fill(&self, outcome: Outcome) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }
}

impl Future for Slot {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

/// The handle of one thread. The library requires a type that threads can share. Only one thread
/// uses it, so the locks never block.
#[derive(Clone, Default)]
pub struct Handle(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    prepared: Option<DnsResponse>,
    requests: Vec<LookupRequest>,
}

impl Handle {
    fn with<T>(&self, act: impl FnOnce(&mut Shared) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The next request gets this response.
    pub fn prepare(&self, response: DnsResponse) {
        self.with(|shared| shared.prepared = Some(response));
    }

    /// The requests since the last call.
    pub fn take_requests(&self) -> Vec<LookupRequest> {
        self.with(|shared| std::mem::take(&mut shared.requests))
    }
}

impl DnsHandle for Handle {
    type Response = DnsResponseStream;
    /// The library uses only its time of day.
    type Runtime = TokioRuntimeProvider;

    fn send(&self, request: DnsRequest) -> DnsResponseStream {
        let slot = Slot::default();
        self.with(|shared| match (shared.prepared.take(), request.queries.first()) {
            (Some(prepared), _) => slot.fill(Ok(prepared)),
            (None, Some(query)) => {
                shared.requests.push(LookupRequest { query: query.clone(), slot: slot.clone() });
            }
            (None, None) => slot.fill(Err("no query".into())),
        });
        DnsResponseStream::from(Box::pin(slot))
    }
}
