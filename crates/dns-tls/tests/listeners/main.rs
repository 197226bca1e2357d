//! Clients of encrypted transports, correct and abusive; the test plays the core.
//!
//! Each test starts its own server on the loopback. A test shortens a limit only if it waits until
//! that limit is reached, and uses such a server for nothing else. So no test fails because the
//! machine is slow.

mod https;
mod quic;
mod tls;
mod world;
