//! Clients of the page of `larder annotate`: each fetches what a browser with the page fetches, when
//! it does.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_io::cores::pin_to_core;
use larder_serve::http_client::{Place, get};

/// What is fetched, and at every how many turns; the page shows an hour.
const FETCHED: [(&str, u64); 4] =
    [("/api/stats", 1), ("/api/lists", 5), ("/api/history/1h", 10), ("/segments", 10)];

/// The pause of the page between two turns.
const TURN: Duration = Duration::from_secs(1);

/// How long a client waits for a response.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits for `begins`, and fetches until `stop`, on `core`; adds the responses to `fetched`. An error:
/// what was refused.
pub fn fetch(
    socket: &Path,
    core: usize,
    begins: &AtomicBool,
    stop: &AtomicBool,
    fetched: &AtomicU64,
) -> Result<(), String> {
    pin_to_core(core).map_err(|error| error.to_string())?;
    while !begins.load(Ordering::Acquire) {
        if stop.load(Ordering::Acquire) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let place = Place::Unix(socket.to_owned());
    let start = Instant::now();
    for turn in 0.. {
        for (path, every) in FETCHED {
            if turn % every != 0 {
                continue;
            }
            let response = get(&place, path, None, PATIENCE);
            let mut response = response.map_err(|error| format!("{path}: {error}"))?;
            if response.status != 200 {
                return Err(format!("{path}: status {}", response.status));
            }
            let whole = io::copy(&mut response, &mut io::sink());
            whole.map_err(|error| format!("{path}: {error}"))?;
            fetched.fetch_add(1, Ordering::Relaxed);
        }
        let due = TURN * (turn as u32 + 1);
        while start.elapsed() < due {
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}
