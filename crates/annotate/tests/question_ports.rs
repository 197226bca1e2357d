//! A lookup counts whatever port the client asks from.

mod support;

use larder_annotate::options::{Endpoint, Options, OutputFormat};
use support::{Maker, answer, made, question, tcp};

/// A client may ask port 53 from the ports of mDNS, LLMNR, NetBIOS and DHCP: random source ports hit
/// each of them once in 64,000 lookups. The flow that follows is named by the answer.
#[test]
fn from_ports_that_mean_something_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for port in [5353, 5355, 137, 67, 68, 546, 547, 853, 40_000] {
        let (client, server) = ([10, 0, 0, 1], [203, 0, 113, 7]);
        let mut maker = Maker::new(1);
        maker.push(question(client, port, 99, 5));
        maker.push(answer(client, port, 99, 5, &[server]));
        maker.push(tcp((client, server), (50_000, 443), 0x02, 1, &[]));
        let path = folder.path().join("port.pcap");
        std::fs::write(&path, maker.pcap()).expect("room for a capture");
        let options = Options {
            read: vec![Endpoint::Path(path)],
            format: OutputFormat::Ecs,
            names_budget_bytes: 8 << 20,
            ..Options::default()
        };
        let made = made(&options, 1);
        let log = String::from_utf8_lossy(&made.files["log"]).into_owned();
        let flow = log.lines().find(|line| line.contains("203.0.113.7")).expect("a flow");
        assert!(flow.contains("\"h5.larder.example\""), "port {port}: {flow}");
        assert!(flow.contains("\"dns_pair\""), "port {port}: {flow}");
    }
}
