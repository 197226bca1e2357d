//! Copies bytes from one connection to the other, at the pace of the slower one, and reports how
//! they end.
//!
//! An end is proper ([`End::Whole`]) where its side states it: TLS by `close_notify`, an event loop
//! by the connection's [`CloseState`]. Any other end is a cut, and is never forwarded as an end
//! (invariant 1 of the crate).
//!
//! Bounds: one read of [`READ_BYTES`] that is being written.

use std::time::Duration;

use larder_http::handoff::CloseState;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Bytes that are read at once: two records of TLS.
const READ_BYTES: usize = 32 << 10;

/// How one direction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// All bytes came, and the receiver got them.
    Whole,
    /// The bytes were cut off.
    Cut,
    /// The receiver has closed.
    Gone,
    /// The receiver received nothing for too long.
    Stalled,
}

/// Copies until the end. `close_state`: given where the bytes alone do not state how they ended.
/// `stall`: how long a write may take.
pub(crate) async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    close_state: Option<&CloseState>,
    stall: Option<Duration>,
) -> End {
    let mut room = vec![0; READ_BYTES];
    loop {
        let bytes = match from.read(&mut room).await {
            Ok(0) if close_state.is_none_or(CloseState::is_whole) => return End::Whole,
            Ok(0) => return End::Cut,
            Ok(bytes) => bytes,
            // An event loop that closed with unread bytes ends so too.
            Err(_) if close_state.is_some_and(CloseState::is_whole) => return End::Whole,
            Err(_) => return End::Cut,
        };
        let write = async {
            to.write_all(&room[..bytes]).await?;
            to.flush().await
        };
        let written = match stall {
            Some(stall) => timeout(stall, write).await,
            None => Ok(write.await),
        };
        match written {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return End::Gone,
            Err(_) => return End::Stalled,
        }
    }
}
