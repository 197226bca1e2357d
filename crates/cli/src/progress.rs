//! The progress bar of `larder annotate`, from the counters of [`Progress`].

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_annotate::Progress;
use larder_settings::amounts::{scaled, size};
use larder_settings::terminal::Bar;

const CELLS: u64 = 20;

/// Starts drawing the progress bar, if it is wanted and there is a terminal.
pub fn bar(progress: &Arc<Progress>, wanted: bool) -> Bar {
    let progress = Arc::clone(progress);
    Bar::draw(wanted, move |elapsed| line(&progress, elapsed))
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

    /// With a known total the line has the share and the remaining time; for a pipe it has neither.
    #[test]
    fn the_line_states_what_is_known() {
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

    /// Times read as people write them.
    #[test]
    fn times_read_well() {
        assert_eq!(clock(59.2), "1:00");
        assert_eq!(clock(3_723.0), "1:02:03");
    }
}
