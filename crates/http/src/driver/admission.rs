//! Who a client is, and whether it may stay.
//!
//! ```text
//! accepted -> a proxy says who it is (only where it must) -> counted with others of its address -> requests
//! ```

use std::net::SocketAddr;

use super::Driver;
use super::clients::Client;
use crate::proxy_protocol::{self, Damaged, Proxied};

impl Driver {
    /// Who is at the other end.
    pub(super) fn peer_of(client: &mut Client) -> Option<SocketAddr> {
        if client.peer.is_none() {
            client.peer = super::origins::peer_of(&client.socket);
        }
        client.peer
    }

    /// Counts a client with others of its address; false: there are too many.
    pub(super) fn admit(&mut self, client: &mut Client) -> bool {
        let most = self.options.clients_per_address;
        if most == 0 {
            return true;
        }
        // One that is gone already has no address.
        let Some(peer) = Driver::peer_of(client) else { return false };
        client.permit = self.connections.admit(peer.ip(), most);
        self.counts.refused_crowded += u64::from(client.permit.is_none());
        client.permit.is_some()
    }

    /// Octets in front of the first request.
    pub(super) fn hear_proxy(&mut self, client: &mut Client, octets: &[u8]) -> bool {
        client.inbox.extend_from_slice(octets);
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
                self.counts.bad_proxy_headers += 1;
                false
            }
        }
    }
}
