//! Frames of a client of HTTP/2 that are no request and cost work: PING and SETTINGS, which are
//! answered, PRIORITY and frames of unknown types, which are read and ignored. A limit applies at
//! once, and one to each second; one more frame ends the connection.
//!
//! The bytes pass through unchanged. Frames are counted by their headers as the bytes are read, so
//! a flood ends before it is answered. h2 itself counts floods of resets and of empty frames of
//! requests.
//!
//! Cost: nine bytes read for each frame; a look at the clock for each frame that is counted.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of the preface, before the first frame.
const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;

/// Frames that may come at once, and each second after that.
const FRAMES_MAX: u32 = 1_000;
const FRAMES_A_SECOND: u32 = 100;

const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// A stream of a client of HTTP/2, whose frames are counted.
#[derive(Debug)]
pub struct Counted<S> {
    inner: S,
    frames: Frames,
}

/// True where a connection ended because of [`Counted`].
pub fn is_flood(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|it| it.is::<Flood>())
}

#[derive(Debug)]
struct Flood;

impl std::fmt::Display for Flood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too many PING, SETTINGS, PRIORITY or unknown frames")
    }
}

impl std::error::Error for Flood {}

/// The place in the frames, and how many more may come.
#[derive(Debug)]
struct Frames {
    /// Bytes before the next header.
    skip: usize,
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    left: u32,
    since: Instant,
}

impl Frames {
    fn new(now: Instant) -> Frames {
        Frames {
            skip: PREFACE_BYTES,
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            left: FRAMES_MAX,
            since: now,
        }
    }

    /// Counts the frames that begin in these bytes; false: there are too many.
    fn read(&mut self, mut bytes: &[u8], now: impl Fn() -> Instant) -> bool {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return true;
            }
            let taken = (HEADER_BYTES - self.header_bytes).min(bytes.len());
            self.header[self.header_bytes..][..taken].copy_from_slice(&bytes[..taken]);
            self.header_bytes += taken;
            bytes = &bytes[taken..];
            if self.header_bytes < HEADER_BYTES {
                return true;
            }
            let [high, middle, low, kind, ..] = self.header;
            self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            self.header_bytes = 0;
            let counts = matches!(kind, PRIORITY | SETTINGS | PING) || kind > CONTINUATION;
            if counts && !self.spend(now()) {
                return false;
            }
        }
    }

    fn spend(&mut self, now: Instant) -> bool {
        const EACH: Duration = Duration::from_nanos(1_000_000_000 / FRAMES_A_SECOND as u64);
        let elapsed = now.saturating_duration_since(self.since).as_nanos() / EACH.as_nanos();
        let earned = u32::try_from(elapsed).unwrap_or(u32::MAX);
        self.since += EACH * earned.min(FRAMES_MAX);
        self.left = self.left.saturating_add(earned).min(FRAMES_MAX);
        if self.left == FRAMES_MAX {
            // The rest of the allowance is lost.
            self.since = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

impl<S> Counted<S> {
    /// Counts from the preface on.
    pub fn new(inner: S) -> Counted<S> {
        Counted { inner, frames: Frames::new(Instant::now()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Counted { inner, frames } = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = polled
            && !frames.read(&buf.filled()[before..], Instant::now)
        {
            return Poll::Ready(Err(io::Error::other(Flood)));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let mut bytes =
            vec![(length >> 16) as u8, (length >> 8) as u8, length as u8, kind, 0, 0, 0, 0, 0];
        bytes.resize(HEADER_BYTES + length, PING);
        bytes
    }

    /// Frames that are answered or ignored are counted, however their bytes come, and those of
    /// requests are not; some each second are allowed for any time, and more end the connection.
    #[test]
    fn counted() {
        let start = Instant::now();
        let requests: Vec<u8> =
            [0, 1, 3, 7, 8, 9].iter().flat_map(|&kind| frame(kind, 70)).collect();
        for (kind, step) in [(PING, 1), (SETTINGS, 7), (PRIORITY, 1_000), (200, 5)] {
            let mut frames = Frames::new(start);
            assert!(frames.read(&[PING; PREFACE_BYTES], || start));
            let one = [requests.clone(), frame(kind, 8)].concat();
            for number in 0..FRAMES_MAX {
                for part in one.chunks(step) {
                    assert!(frames.read(part, || start), "{kind}, {number}");
                }
            }
            assert!(frames.read(&requests, || start));
            let later = start + Duration::from_secs(1);
            let once = frame(kind, 0);
            assert!((0..FRAMES_A_SECOND).all(|_| frames.read(&once, || later)));
            assert!(!frames.read(&once, || later));
        }
        let mut frames = Frames::new(start);
        assert!(frames.read(&[0; PREFACE_BYTES], || start));
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            assert!((0..FRAMES_A_SECOND).all(|_| frames.read(&frame(PING, 8), || now)));
        }
    }
}
