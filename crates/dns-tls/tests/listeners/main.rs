//! Clients of encrypted transports, correct and abusive; the test takes the place of the core.
//!
//! Each test starts a server of its own on the loopback. A test shortens a limit only if it waits
//! until that is reached, and uses such a server for nothing else: no test fails on a slow machine.

mod https;
mod quic;
mod tls;
mod world;
