//! The client's address, and whether the client is accepted.
//!
//! ```text
//! accepted -> a proxy states the address (only where required) -> counted by its address -> requests
//! ```

use std::net::SocketAddr;

use super::super::Driver;
use super::Client;
use crate::proxy_protocol::{self, Damaged, Proxied};

impl Driver {
    /// The client's address.
    pub(in crate::driver) fn peer_of(client: &mut Client) -> Option<SocketAddr> {
        if client.peer.is_none() {
            client.peer = client.peer();
        }
        client.peer
    }

    /// Counts a client by its address; false: there are too many.
    pub(in crate::driver) fn admit(&mut self, client: &mut Client) -> bool {
        let most = self.core.options.clients_per_address;
        if most == 0 {
            return true;
        }
        // One that is gone already has no address.
        let Some(peer) = Driver::peer_of(client) else { return false };
        client.permit = self.connections.admit(peer.ip(), most);
        self.core.counts.refused_crowded += u64::from(client.permit.is_none());
        client.permit.is_some()
    }

    /// Bytes in front of the first request.
    pub(in crate::driver) fn hear_proxy(&mut self, client: &mut Client, bytes: &[u8]) -> bool {
        client.inbox.extend_from_slice(bytes);
        match proxy_protocol::read(&client.inbox) {
            Ok(None) => true,
            Ok(Some((proxied, used))) => {
                client.inbox.drain(..used);
                client.expects_proxy = false;
                if let Proxied::Client { from, .. } = proxied {
                    client.peer = Some(from);
                }
                self.admit(client) && self.go_on(client)
            }
            Err(Damaged) => {
                self.core.counts.bad_proxy_headers += 1;
                false
            }
        }
    }
}
