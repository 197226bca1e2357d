//! What the library looks up with: it asks for responses here, and the validator brings them.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hickory_net::NetError;
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::xfer::{DnsHandle, DnsResponseStream};
use hickory_proto::op::{DnsRequest, DnsResponse, Query};

/// A response, or that there is none.
pub type Outcome = Result<DnsResponse, NetError>;

/// What the library asks for.
pub struct LookupRequest {
    pub query: Query,
    pub slot: Slot,
}

/// Where one response is awaited. Who fills it polls what awaits it: there is no waker.
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

/// One thread's. The library wants it to be shared among threads, which it is not: the locks are
/// never waited for.
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

    /// The next that is asked for is this.
    pub fn prepare(&self, response: DnsResponse) {
        self.with(|shared| shared.prepared = Some(response));
    }

    /// What was asked for since the last call.
    pub fn take_requests(&self) -> Vec<LookupRequest> {
        self.with(|shared| std::mem::take(&mut shared.requests))
    }
}

impl DnsHandle for Handle {
    type Response = DnsResponseStream;
    /// Of which the library uses the time of day.
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
