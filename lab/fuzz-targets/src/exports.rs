//! Export packets of routers: no packet does harm, a refused one gives no flow, and memory is bounded.

use larder_annotate::exports::check::check;
use larder_annotate::exports::collect::{Collector, PAIRS_MAX};
use larder_annotate::exports::record::Export;
use larder_wire::Addr;

use super::Cut;

/// When the packets come, ns since 1970.
const RECEIVED_NS: i64 = 1_800_000_000_000_000_000;

/// The input is packets, each behind its exporter (one byte) and its length (two).
pub fn exports(input: &[u8]) {
    let mut cut = Cut(input);
    let mut collector = Collector::new();
    let mut form = Vec::new();
    while !cut.is_empty() {
        let exporter = Addr::v4([192, 0, 2, cut.u8()]);
        let len = usize::from(cut.u16());
        let packet = cut.bytes(len);
        if let Ok(checked) = check(packet) {
            assert!(packet.starts_with(checked.bytes), "other bytes than those of the packet");
        }
        let mut flows = 0;
        let taken = collector.datagram(exporter, RECEIVED_NS, packet, |flow| {
            flows += 1;
            assert!(flow.start_ns <= flow.end_ns, "a flow ends before it begins");
            assert_eq!(flow.exporter.addr, exporter);
            form.clear();
            flow.write(&mut form);
            assert_eq!(Export::read(&form), Some(flow), "the form of a sorter loses something");
        });
        assert!(
            check(packet).is_ok() || taken.is_err() && flows == 0,
            "a refused packet gave a flow"
        );
        // A record has at least one byte.
        assert!(flows <= packet.len(), "more records than bytes");
    }
    assert!(collector.pairs() <= PAIRS_MAX);
}
