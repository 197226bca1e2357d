//! Live capture needs Linux: elsewhere there are its options, and opening fails.

#[path = "error.rs"]
mod error;
#[path = "interface_counts.rs"]
mod interface_counts;
#[path = "options.rs"]
mod options;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

pub use error::LiveError;
pub use interface_counts::InterfaceCounts;
pub use options::LiveOptions;

/// The name of all interfaces.
pub const ANY: &str = "any";

/// There is none. (It is private that there cannot be one, so callers need not be told.)
#[derive(Debug)]
pub struct Live(Never);

#[derive(Debug)]
enum Never {}

/// Counts of a live capture.
#[derive(Debug, Default)]
pub struct LiveCounts {
    /// How often the time of day was set while frames were read.
    pub clock_steps: AtomicU64,
}

impl LiveCounts {
    /// None.
    pub fn interfaces(&self) -> &[InterfaceCounts] {
        &[]
    }

    /// Reads nothing.
    pub fn refresh(&self) {}
}

/// The result of [`Live::fill`].
#[expect(dead_code, reason = "nothing is captured")]
pub(crate) enum Filled {
    Some,
    Nothing,
    End,
}

/// Fails with [`LiveError::NeedsLinux`].
pub fn link_type(_: &str) -> Result<u16, LiveError> {
    Err(LiveError::NeedsLinux)
}

impl Live {
    /// Fails with [`LiveError::NeedsLinux`].
    pub fn open(_: &LiveOptions) -> Result<Live, LiveError> {
        Err(LiveError::NeedsLinux)
    }

    /// The beginning of the capture.
    pub fn header(&self) -> Vec<u8> {
        match self.0 {}
    }

    /// The counters, which change during the capture.
    pub fn counts(&self) -> Arc<LiveCounts> {
        match self.0 {}
    }

    /// Requested options that are not available, as messages.
    pub fn notes(&self) -> &[String] {
        match self.0 {}
    }

    /// Has changes of interfaces reported.
    pub fn report_to(&mut self, _: impl FnMut(&'static str, &str) + Send + 'static) {
        match self.0 {}
    }

    /// Why the capture ended by itself.
    pub fn failure(&self) -> Option<&str> {
        match self.0 {}
    }

    pub(crate) fn name(&self) -> String {
        match self.0 {}
    }

    pub(crate) fn clock_step_ns(&mut self) -> i64 {
        match self.0 {}
    }

    pub(crate) fn silent_at_ns(&mut self) -> Option<i64> {
        match self.0 {}
    }

    pub(crate) fn keep_house(&mut self) {
        match self.0 {}
    }

    pub(crate) fn gives_up(&mut self, _: &AtomicBool) -> bool {
        match self.0 {}
    }

    pub(crate) fn fill(
        &mut self,
        _: &mut Vec<u8>,
        _: usize,
        _: &AtomicBool,
        _: Duration,
    ) -> Filled {
        match self.0 {}
    }
}
