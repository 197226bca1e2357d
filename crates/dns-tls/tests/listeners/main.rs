//! Clients of encrypted transports, well-behaved and rude, before a core that is played by the
//! test.
//!
//! Each test starts a server of its own on the loopback. Limits are shortened only where a test
//! waits for one to be reached, and nothing else is asked of such a server: no test fails because a
//! machine is slow.

mod https;
mod quic;
mod tls;
mod world;
