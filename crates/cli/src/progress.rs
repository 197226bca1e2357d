//! The progress bar: one line on a terminal, drawn by a thread of its own.
//!
//! The thread reads the counters of [`Progress`] every [`EVERY`] and writes one line to standard
//! error; the run pays nothing for it. Dropping the [`Bar`] stops the thread and wipes the line.
//! No bar is drawn where standard error is no terminal, or `TERM` is `dumb`.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use larder_annotate::Progress;

const EVERY: Duration = Duration::from_millis(200);
const CELLS: u64 = 20;
/// Wipes the line; understood by every terminal that is not `dumb`.
const WIPE: &str = "\r\x1b[K";

/// A bar that is being drawn.
pub struct Bar {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Starts drawing, when there is somebody to see it and she wants to.
    pub fn start(progress: &Arc<Progress>, wanted: bool) -> Bar {
        let progress = Arc::clone(progress);
        Bar::draw(wanted, move |elapsed| line(&progress, elapsed))
    }

    /// The same with a line of the caller's, made anew each time from the time since the start.
    pub fn draw(wanted: bool, line: impl Fn(Duration) -> String + Send + 'static) -> Bar {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if !wanted || dumb || !std::io::stderr().is_terminal() {
            return Bar { stop: None, thread: None };
        }
        let (stop, stopped) = mpsc::channel();
        let spawned = thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let started = Instant::now();
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let line = line(started.elapsed());
                let _ = write!(std::io::stderr(), "{WIPE}{line}");
            }
            let _ = write!(std::io::stderr(), "{WIPE}");
        });
        // A machine that cannot start a thread can still do the run without a bar.
        Bar { stop: Some(stop), thread: spawned.ok() }
    }
}

/// Lines for the operator, as a run says them. Dropped, it prints what is left.
pub struct News {
    progress: Arc<Progress>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl News {
    /// Prints on standard error from now on.
    pub fn start(progress: &Arc<Progress>) -> News {
        print_news(progress);
        let (stop, stopped) = mpsc::channel();
        let of_thread = Arc::clone(progress);
        let spawned = thread::Builder::new().name("news".to_owned()).spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                print_news(&of_thread);
            }
        });
        News { progress: Arc::clone(progress), stop: Some(stop), thread: spawned.ok() }
    }
}

fn print_news(progress: &Progress) {
    while let Some(line) = progress.take_news() {
        let wipe = if std::io::stderr().is_terminal() { WIPE } else { "" };
        let _ = writeln!(std::io::stderr(), "{wipe}larder annotate: {line}");
    }
}

impl Drop for News {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        print_news(&self.progress);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn line(progress: &Progress, elapsed: Duration) -> String {
    // Relaxed: the counters are a picture for the eye, and order nothing.
    let bytes = progress.input_bytes.load(Ordering::Relaxed);
    let total = progress.input_bytes_total.load(Ordering::Relaxed);
    let packets = progress.packets.load(Ordering::Relaxed);
    let rate = packets as f64 / elapsed.as_secs_f64().max(0.001);
    let mut line = String::new();
    if total > 0 {
        let done = bytes.min(total);
        let cells = (done as f64 / total as f64 * CELLS as f64) as u64;
        let bar = (0..CELLS).map(|cell| if cell < cells { '#' } else { '.' });
        line.extend(bar);
        let _ = write!(line, " {:3.0} %  ", done as f64 / total as f64 * 100.0);
    }
    let _ = write!(line, "{}  {} packets/s", size(bytes), scaled(rate));
    if total > bytes && bytes > 0 {
        let left = elapsed.as_secs_f64() * (total - bytes) as f64 / bytes as f64;
        let _ = write!(line, "  {} left", clock(left));
    }
    line
}

/// Octets with a binary unit: `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{amount:.1} {}", units[unit]) }
}

/// A rate with a decimal unit: `12.3 M`.
pub fn scaled(rate: f64) -> String {
    match rate {
        _ if rate >= 1e6 => format!("{:.1} M", rate / 1e6),
        _ if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        _ => format!("{rate:.0}"),
    }
}

/// Seconds as `1:02:03` or `2:03`.
fn clock(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a known total the line has share and time left; of a pipe it says what it can.
    #[test]
    fn the_line_says_what_is_known() {
        let progress = Progress::default();
        progress.input_bytes.store(256 << 20, Ordering::Relaxed);
        progress.packets.store(2_000_000, Ordering::Relaxed);
        assert_eq!(line(&progress, Duration::from_secs(2)), "256.0 MiB  1.0 M packets/s");
        progress.input_bytes_total.store(1 << 30, Ordering::Relaxed);
        assert_eq!(
            line(&progress, Duration::from_secs(2)),
            "#####...............  25 %  256.0 MiB  1.0 M packets/s  0:06 left"
        );
    }

    /// A run that has not begun divides by nothing.
    #[test]
    fn the_first_line_is_calm() {
        assert_eq!(line(&Progress::default(), Duration::ZERO), "0 B  0 packets/s");
    }

    /// Sizes, rates and times read as people write them.
    #[test]
    fn amounts_read_well() {
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(u64::MAX), "16384.0 PiB");
        assert_eq!(scaled(999.0), "999");
        assert_eq!(scaled(1_500.0), "1.5 k");
        assert_eq!(clock(59.2), "1:00");
        assert_eq!(clock(3_723.0), "1:02:03");
    }
}
