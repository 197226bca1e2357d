//! The client's address, and whether the client is accepted.
//!
//! ```text
//! accepted -> a proxy states the address (only where required) -> counted by its address -> requests
//! ```

use std::net::SocketAddr;

use super::super::base::Base;
use super::{Client, Clients};
use crate::proxy_protocol::{self, Damaged, Proxied};

impl Client {
    /// Its address, from now on also where it is gone.
    pub(super) fn known_peer(&mut self) -> Option<SocketAddr> {
        self.peer = self.peer();
        self.peer
    }
}

impl Clients {
    /// Counts a client by its address; false: there are too many.
    pub(super) fn admit(&mut self, base: &mut Base, client: &mut Client) -> bool {
        let most = base.core.options.clients_per_address;
        if most == 0 {
            return true;
        }
        // One that is gone already has no address.
        let Some(peer) = client.known_peer() else { return false };
        client.permit = self.limit.admit(peer.ip(), most);
        base.core.counts.refused_crowded += u64::from(client.permit.is_none());
        client.permit.is_some()
    }

    /// Bytes in front of the first request.
    pub(super) fn receive_proxy(
        &mut self,
        base: &mut Base,
        client: &mut Client,
        bytes: &[u8],
    ) -> bool {
        client.inbox.extend_from_slice(bytes);
        match proxy_protocol::read(&client.inbox) {
            Ok(None) => true,
            Ok(Some((proxied, used))) => {
                client.inbox.drain(..used);
                client.expects_proxy = false;
                if let Proxied::Client { from, .. } = proxied {
                    client.peer = Some(from);
                }
                self.admit(base, client) && self.go_on(base, client)
            }
            Err(Damaged) => {
                base.core.counts.bad_proxy_headers += 1;
                false
            }
        }
    }
}
