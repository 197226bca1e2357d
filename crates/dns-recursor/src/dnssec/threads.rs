//! Threads that recurse: each a runtime of its own, a queue, and a limit.
//!
//! ```text
//! ask(query) -> the queue of the core's thread, or dropped where that is full
//! thread: a permit -> a query -> a task: resolve, within the query's wait -> BackendQuery::answer
//! ```
//!
//! A query that nobody waits for any more is dropped when its turn comes. A task that panics loses its query, which
//! tells its core; the thread goes on.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hickory_proto::op::Message;
use hickory_resolver::recursor::{Recursor, RecursorError};
use larder_dns::backend::BackendQuery;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::net::Net;
use super::{Options, reply};

/// A query, and when it came.
type Queued = (BackendQuery, Instant);

/// All threads.
pub(crate) struct Threads {
    queues: Vec<Sender<Queued>>,
    /// Told true, threads end with what they do.
    ends: watch::Sender<bool>,
    handles: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads").field("count", &self.queues.len()).finish_non_exhaustive()
    }
}

impl Threads {
    /// Starts them.
    pub fn start(recursor: Recursor<Net>, options: &Options) -> io::Result<Threads> {
        let recursor = Arc::new(recursor);
        let (ends, has_ended) = watch::channel(false);
        let mut threads = Threads { queues: Vec::new(), ends, handles: Vec::new() };
        for number in 0..options.threads.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (queue, queries) = channel(options.waiting_max.max(1));
            let work = Work {
                recursor: recursor.clone(),
                permits: Arc::new(Semaphore::new(options.questions_max.max(1))),
            };
            let mut has_ended = has_ended.clone();
            let body = move || {
                runtime.block_on(async {
                    let ends = async {
                        while !*has_ended.borrow() && has_ended.changed().await.is_ok() {}
                    };
                    first_of(work.serve(queries), ends).await;
                });
                // What is still being resolved is dropped, and so are its queries.
                runtime.shutdown_background();
            };
            threads.queues.push(queue);
            threads
                .handles
                .push(thread::Builder::new().name(format!("recurse {number}")).spawn(body)?);
        }
        Ok(threads)
    }

    /// Queues a query; drops it where its thread has enough to do.
    pub fn ask(&self, query: BackendQuery) {
        let queue = &self.queues[query.core() % self.queues.len()];
        let _ = queue.try_send((query, Instant::now()));
    }

    /// Ends them.
    pub fn stop(self) {
        // Without receivers there is nothing to end.
        let _ = self.ends.send(true);
        for handle in self.handles {
            // One that panicked has ended too.
            let _ = handle.join();
        }
    }
}

/// Runs both until one has ended.
async fn first_of(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|cx| {
        if one.as_mut().poll(cx).is_ready() {
            return std::task::Poll::Ready(());
        }
        other.as_mut().poll(cx)
    })
    .await;
}

/// What a thread works with.
struct Work {
    recursor: Arc<Recursor<Net>>,
    permits: Arc<Semaphore>,
}

impl Work {
    /// Takes queries until there are no more.
    async fn serve(self, mut queries: Receiver<Queued>) {
        loop {
            // The semaphore is never closed.
            let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
            let Some((query, came)) = queries.recv().await else { return };
            let wait = Duration::from_millis(query.wait_ms().into()).saturating_sub(came.elapsed());
            if wait.is_zero() || !query.is_wanted() {
                continue;
            }
            let recursor = self.recursor.clone();
            tokio::spawn(async move {
                answer(&recursor, wait, query).await;
                drop(permit);
            });
        }
    }
}

/// Finds the answer, and brings it back, in nine tenths of the wait: a name that cannot be found says nothing of the recursor,
/// and a core that waits in vain would think it dead. What is no question comes back as a failure.
async fn answer(recursor: &Recursor<Net>, wait: Duration, query: BackendQuery) {
    let Ok(asked) = Message::from_vec(query.message()) else { return };
    let [question] = asked.queries.as_slice() else { return };
    // A reason is sought in the signatures of what is bogus; who did not ask for them does not get them from larder.
    let finding = recursor.resolve(question.clone(), Instant::now(), true);
    let found = timeout(wait * 9 / 10, finding).await.unwrap_or(Err(RecursorError::Timeout));
    let message = reply::compose(&asked, found);
    if let Ok(octets) = message.to_vec() {
        query.answer(octets);
    }
}
