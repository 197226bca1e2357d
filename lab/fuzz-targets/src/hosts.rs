//! What hosts say of themselves: NetBIOS names and DHCP.

use larder_wire::dhcp::v4::MessageV4;
use larder_wire::dhcp::v6::{MessageV6, RELAYS_MAX};
use larder_wire::dns::NameBuf;
use larder_wire::name::NAME_BYTES_MAX;
use larder_wire::nbns;

use super::{assert_inside, occurs};

/// The input is the payload of a datagram of UDP port 137.
pub fn nbns(payload: &[u8]) {
    let mut hosts = 0;
    let _ = nbns::hosts(payload, |host| {
        hosts += 1;
        assert!(occurs(host.addr.octets(), payload), "{} was invented", host.addr);
        assert!(!host.name.is_empty() && host.name.len() <= 2 * 15);
        assert!(host.name.iter().all(|byte| !byte.is_ascii_control()));
    });
    assert!(hosts * 6 <= payload.len(), "more hosts than there is room for");
}

/// The input is a datagram of ports 67 and 68, and of 546 and 547.
pub fn dhcp(payload: &[u8]) {
    let mut name = NameBuf::new();
    if let Ok(message) = MessageV4::parse(payload) {
        assert_inside(message.hardware_addr(), payload);
        for addr in [message.client_addr, message.your_addr, message.requested_addr] {
            assert!(addr.is_none_or(|addr| occurs(addr.octets(), payload)));
        }
        assert!(message.bound_addr().is_none_or(|addr| occurs(addr.octets(), payload)));
        assert_named(message.client_fqdn(&mut name), &name);
        assert_named(message.host_name(&mut name), &name);
    }
    if let Ok(message) = MessageV6::parse(payload) {
        assert!(message.relays <= RELAYS_MAX);
        assert!(message.client_id().is_none_or(|id| !id.is_empty()));
        assert_inside(message.client_id().unwrap_or_default(), payload);
        assert_named(message.client_fqdn(&mut name), &name);
        for lease in message.leases() {
            assert!(occurs(lease.addr.octets(), payload), "{} was invented", lease.addr);
        }
    }
}

/// A name that was found is one; else the buffer holds anything.
fn assert_named(found: bool, name: &NameBuf) {
    let bytes = name.as_bytes();
    if found {
        assert!(!bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX);
        assert!(!bytes.iter().any(u8::is_ascii_uppercase));
    }
}
