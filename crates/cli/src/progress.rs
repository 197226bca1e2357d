//! The progress bar of `larder annotate`, from the counters of [`Progress`].

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_annotate::Progress;
use larder_settings::amounts::{scaled, size};
use larder_settings::terminal::Bar;

/// With 10,000 files the line is 79 columns wide: a longer one would wrap, and each drawing leave a line.
const CELLS: u64 = 12;

/// Starts drawing the progress bar, if it is wanted and there is a terminal.
pub fn bar(progress: &Arc<Progress>, wanted: bool) -> Bar {
    let progress = Arc::clone(progress);
    Bar::draw(wanted, move |elapsed| line(&progress, elapsed))
}

fn line(progress: &Progress, elapsed: Duration) -> String {
    // Relaxed: the counters are a picture for the eye, and order nothing.
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let bytes = load(&progress.input_bytes);
    let reading = progress.reading.get().filter(|reading| reading.bytes_total > 0);
    let packets = load(&progress.packets);
    let rate = packets as f64 / elapsed.as_secs_f64().max(0.001);
    let mut line = String::new();
    // Of the files, before decompression.
    let share = reading.map(|reading| load(&reading.bytes) as f64 / reading.bytes_total as f64);
    let share = share.map(|share| share.min(1.0));
    if let Some(share) = share {
        let cells = (share * CELLS as f64) as u64;
        let bar = (0..CELLS).map(|cell| if cell < cells { '#' } else { '.' });
        line.extend(bar);
        let _ = write!(line, " {:3.0} %  ", share * 100.0);
    }
    if let Some(reading) = progress.reading.get()
        && reading.files_total > 1
    {
        let _ = write!(line, "{}/{} files  ", load(&reading.files), reading.files_total);
    }
    let _ = write!(line, "{}  {} packets/s", size(bytes), scaled(rate));
    if let Some(share) = share.filter(|share| 0.0 < *share && *share < 1.0) {
        let left = elapsed.as_secs_f64() * (1.0 - share) / share;
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
    use larder_io::reading::Reading;

    use super::*;

    /// The line has the share of the files that is read and the remaining time, and of several files the number of
    /// those that are read. With a pipe there is no share.
    #[test]
    fn the_line_states_what_is_known() {
        let line_of = |bytes: u64, bytes_total: u64, files: u64, files_total: u64| {
            let (bytes, files) = (AtomicU64::new(bytes), AtomicU64::new(files));
            let reading = Arc::new(Reading { bytes, bytes_total, files, files_total });
            let progress = Progress { reading: reading.into(), ..Progress::default() };
            progress.input_bytes.store(256 << 20, Ordering::Relaxed);
            progress.packets.store(2_000_000, Ordering::Relaxed);
            line(&progress, Duration::from_secs(2))
        };
        let counts = "256.0 MiB  1.0 M packets/s";
        assert_eq!(line_of(1 << 20, 0, 0, 1), counts);
        assert_eq!(line_of(0, 1 << 30, 0, 1), format!("............   0 %  {counts}"));
        assert_eq!(
            line_of(1 << 28, 1 << 30, 0, 1),
            format!("###.........  25 %  {counts}  0:06 left")
        );
        assert_eq!(
            line_of(1 << 29, 1 << 30, 4_999, 10_000),
            format!("######......  50 %  4999/10000 files  {counts}  0:02 left")
        );
        // A file that grew.
        assert_eq!(
            line_of(1 << 31, 1 << 30, 3, 3),
            format!("############ 100 %  3/3 files  {counts}")
        );
        assert_eq!(line_of(1 << 28, 0, 1, 2), format!("1/2 files  {counts}"));
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
