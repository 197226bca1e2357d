//! One request of a trace.

/// What is asked of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Op {
    /// Somebody looks a key up.
    #[default]
    Get,
    /// Somebody stores a value; it is no lookup and counts as neither hit nor miss.
    Set,
    /// Somebody takes a key out.
    Remove,
}

/// [`Request::ttl_s`] of a value that never ends, or of which the trace has none.
pub const TTL_NONE: u32 = u32::MAX;

/// One request, in the trace's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The key: a number as the trace has it, or 64 bits of hash of a text key (two of a hundred million keys
    /// collide with a chance of one in four thousand; such a pair would count as one).
    pub key: u64,
    /// Seconds since the trace's first request; 0 where the trace has no times.
    pub time_s: u32,
    /// How long the value lives once stored, in seconds, or [`TTL_NONE`].
    pub ttl_s: u32,
    /// Bytes of the value (and key, where the trace counts it); 1 where the trace has no sizes.
    pub bytes: u32,
    /// What is asked.
    pub op: Op,
}

impl Request {
    /// A lookup of a key in a trace without times, sizes and ends.
    pub const fn get(key: u64) -> Request {
        Request { key, time_s: 0, ttl_s: TTL_NONE, bytes: 1, op: Op::Get }
    }
}
