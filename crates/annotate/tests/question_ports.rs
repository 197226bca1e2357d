//! A lookup counts from any port of the client.

mod support;

use support::{Folder, answer, ecs, made, question, tcp};

/// A client may query port 53 from the ports of mDNS, LLMNR, NetBIOS and DHCP: random source ports
/// are one of them once in 64,000 lookups. The flow that follows is named by the answer.
#[test]
fn from_ports_that_mean_something_else() {
    let folder = Folder::new();
    for port in [5353, 5355, 137, 67, 68, 546, 547, 853, 40_000] {
        let (client, server) = ([10, 0, 0, 1], [203, 0, 113, 7]);
        let path = folder.capture(vec![
            question(client, port, 99, 5),
            answer(client, port, 99, 5, &[server]),
            tcp((client, server), (50_000, 443), 0x02, 1, &[]),
        ]);
        let log = made(&ecs(&path), 1).log();
        let flow = log.lines().find(|line| line.contains("203.0.113.7")).expect("a flow");
        assert!(flow.contains("\"h5.larder.example\""), "port {port}: {flow}");
        assert!(flow.contains("\"dns_pair\""), "port {port}: {flow}");
    }
}
