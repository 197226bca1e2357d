//! Connections by who has them: an address of IPv4, or a network of 64 bits of IPv6, which is one customer's.
//!
//! Invariant: who entered is counted until it leaves, and nobody who did not enter is. So the table has as many entries as there are
//! connections at most. Cost: a lock of one of `SHARDS` and a look into a table, for a connection that begins or ends.

use std::net::IpAddr;

use foldhash::HashMap;
use larder_io::tcp::client_of;
use parking_lot::Mutex;

const SHARDS: usize = 16;

/// Connections of all loops, by who has them.
#[derive(Debug)]
pub struct Crowd {
    shards: [Mutex<HashMap<IpAddr, u32>>; SHARDS],
}

impl Default for Crowd {
    fn default() -> Crowd {
        Crowd { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Crowd {
    fn shard(&self, of: IpAddr) -> &Mutex<HashMap<IpAddr, u32>> {
        let last = match of {
            IpAddr::V4(address) => address.octets()[3],
            // The last octet of the network.
            IpAddr::V6(address) => address.octets()[7],
        };
        &self.shards[usize::from(last) % SHARDS]
    }

    /// Another connection; false, and it is not counted, where there are `most` already, which is at least one.
    pub fn enter(&self, address: IpAddr, most: u32) -> bool {
        let of = client_of(address.to_canonical());
        let mut shard = self.shard(of).lock();
        let count = shard.entry(of).or_insert(0);
        let has_room = *count < most.max(1);
        if has_room {
            *count += 1;
        }
        has_room
    }

    /// One that entered is over.
    pub fn leave(&self, address: IpAddr) {
        let of = client_of(address.to_canonical());
        let mut shard = self.shard(of).lock();
        if let Some(count) = shard.get_mut(&of) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each has its number of connections and no more, whatever the others have; who leaves makes room; nothing stays.
    #[test]
    fn each_has_its_share() {
        let crowd = Crowd::default();
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let enter = |text| crowd.enter(at(text), 2);
        assert!(enter("192.0.2.1") && enter("::ffff:192.0.2.1") && !enter("192.0.2.1"));
        assert!(enter("192.0.2.17") && enter("2001:db8::1") && enter("2001:db8::ffff"));
        assert!(!enter("2001:db8:0:0:1::") && enter("2001:db8:0:1::1"));
        crowd.leave(at("192.0.2.1"));
        assert!(enter("192.0.2.1") && !enter("192.0.2.1"));
        for text in
            ["192.0.2.1", "192.0.2.1", "192.0.2.17", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::"]
        {
            crowd.leave(at(text));
        }
        assert!(crowd.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
