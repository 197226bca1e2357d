//! Flows of an exporter, named by the DNS packets of an interface.

use larder_testkit::process::Program;
use larder_testkit::wait::until;

use crate::world::{World, named};

/// Packets that came since wait for their time (invariant 2 of `annotate::knowledge`). An exporter sends the flows
/// of the interface to larder, which captures DNS alone and names the flows by it. The
/// exporter is larder itself: its own names are in elements that a collector does not read.
#[test]
fn exported_flows_are_named_by_captured_dns() {
    const TEST: &str = "exported_flows_are_named_by_captured_dns";
    let Some(world) = World::new(TEST) else { return };
    let names = world.names();
    let listen =
        "annotate --flows-listen 127.0.0.1:0 -i b0 --flows-delay 1s --format ecs -o log port 53";
    let mut collector = Program::start(&mut world.larder(listen));
    let said = collector.wait_for("flows: listening address=");
    let address = said.split("address=").nth(1).expect("an address").trim();
    let export =
        format!("annotate -i b0 --format ipfix --ipfix-to {address} --udp-idle 1s --ctl ctl");
    let exporter = Program::start(&mut world.larder(&export));
    world.wait_for_answers();
    names.query(1);
    names.query(2);
    for k in [1, 2, 3] {
        names.send(k, 7000, b"hello");
    }
    let flows = until("three flows", || {
        let flows = named(&world.log(), 7000);
        (flows.len() == 3).then_some(flows)
    });
    let expected = [(1, Some("n1.example")), (2, Some("n2.example")), (3, None)];
    assert_eq!(flows, expected.map(|(k, name)| (k, name.map(str::to_owned))).into());
    let (code, said) = exporter.stop();
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = collector.stop();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("exporter   127.0.0.1: flows_"), "{said}");
    drop(names);
}
