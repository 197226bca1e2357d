//! Threads that recurse: each a runtime of its own, a queue, and a limit.
//!
//! ```text
//! ask(errand) -> the queue of the core's thread, or dropped where that is full
//! thread: a permit -> an errand -> a task: resolve, within the errand's wait -> Errand::answer
//! ```
//!
//! An errand that nobody waits for any more is dropped when its turn comes. A task that panics loses its errand, which
//! tells its core; the thread goes on.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hickory_proto::op::Message;
use hickory_resolver::recursor::{Recursor, RecursorError};
use larder_dns::answerer::Errand;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::net::Net;
use super::{Options, reply};

/// An errand, and when it came.
type Queued = (Errand, Instant);

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
            let (queue, errands) = channel(options.waiting_max.max(1));
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
                    first_of(work.serve(errands), ends).await;
                });
                // What is still being resolved is dropped, and so are its errands.
                runtime.shutdown_background();
            };
            threads.queues.push(queue);
            threads
                .handles
                .push(thread::Builder::new().name(format!("recurse {number}")).spawn(body)?);
        }
        Ok(threads)
    }

    /// Queues an errand; drops it where its thread has enough to do.
    pub fn ask(&self, errand: Errand) {
        let queue = &self.queues[errand.core() % self.queues.len()];
        let _ = queue.try_send((errand, Instant::now()));
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
    /// Takes errands until there are no more.
    async fn serve(self, mut errands: Receiver<Queued>) {
        loop {
            // The semaphore is never closed.
            let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
            let Some((errand, came)) = errands.recv().await else { return };
            let wait =
                Duration::from_millis(errand.wait_ms().into()).saturating_sub(came.elapsed());
            if wait.is_zero() || !errand.is_wanted() {
                continue;
            }
            let recursor = self.recursor.clone();
            tokio::spawn(async move {
                answer(&recursor, wait, errand).await;
                drop(permit);
            });
        }
    }
}

/// Finds the answer, and brings it back, in nine tenths of the wait: a name that cannot be found says nothing of the recursor,
/// and a core that waits in vain would think it dead. What is no question comes back as a failure.
async fn answer(recursor: &Recursor<Net>, wait: Duration, errand: Errand) {
    let Ok(asked) = Message::from_vec(errand.message()) else { return };
    let [query] = asked.queries.as_slice() else { return };
    // A reason is sought in the signatures of what is bogus; who did not ask for them does not get them from larder.
    let finding = recursor.resolve(query.clone(), Instant::now(), true);
    let found = timeout(wait * 9 / 10, finding).await.unwrap_or(Err(RecursorError::Timeout));
    let message = reply::compose(&asked, found);
    if let Ok(octets) = message.to_vec() {
        errand.answer(octets);
    }
}
