//! Runs the built program in an empty directory with an empty environment, so that no file or
//! variable of the machine affects a test.

#[allow(dead_code)]
pub mod server;

use std::ops::Deref;
use std::process::Command;

use larder_testkit::dns;
use larder_testkit::frames::{Pcap, udp_frame};
pub use larder_testkit::process::Run;

/// A directory that is deleted at the end of a test.
pub struct Scratch(larder_testkit::scratch::Scratch);

impl Scratch {
    /// A new empty directory.
    pub fn new() -> Scratch {
        Scratch(larder_testkit::scratch::Scratch::within(env!("CARGO_TARGET_TMPDIR")))
    }

    /// A command that runs the program in it, without input.
    pub fn larder(&self) -> Command {
        self.command(env!("CARGO_BIN_EXE_larder"))
    }

    /// Runs the program with `line`, split at spaces.
    #[allow(dead_code)]
    pub fn run(&self, line: &str) -> Run {
        Run::of(self.larder().args(line.split_whitespace()))
    }
}

impl Deref for Scratch {
    type Target = larder_testkit::scratch::Scratch;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A small pcap file, written frame by frame. Its clock advances by one second per frame.
#[allow(dead_code)]
pub struct TestCapture {
    pub bytes: Vec<u8>,
    frames: u64,
}

#[allow(dead_code)]
impl TestCapture {
    /// An Ethernet capture without packets.
    pub fn new() -> TestCapture {
        TestCapture { bytes: Pcap::new(1).bytes, frames: 0 }
    }

    /// Adds a frame.
    pub fn frame(&mut self, frame: &[u8]) {
        self.frames += 1;
        let mut file = Pcap { bytes: std::mem::take(&mut self.bytes) };
        file.push((1_700_000_000 + self.frames) * 1_000_000_000, frame);
        self.bytes = file.bytes;
    }

    /// Adds a DNS message from 192.0.2.53 to 192.0.2.1.
    pub fn dns_answer(&mut self, message: &[u8]) {
        self.frame(&TestCapture::udp(53, message));
    }

    /// Adds one packet from 192.0.2.1 to `destination`, port 9999.
    pub fn flow_to(&mut self, destination: [u8; 4]) {
        self.frame(&udp_frame(([192, 0, 2, 1], destination), (40_000, 9999), b"x"));
    }

    /// An Ethernet frame with a UDP datagram from 192.0.2.53 to 192.0.2.1, port 40000.
    pub fn udp(source_port: u16, payload: &[u8]) -> Vec<u8> {
        udp_frame(([192, 0, 2, 53], [192, 0, 2, 1]), (source_port, 40_000), payload)
    }

    /// A response: `name` has the address 198.51.100.7.
    pub fn answer(name: impl AsRef<[u8]>) -> Vec<u8> {
        dns::answer(&dns::query(0x1234, name, dns::A), &[[198, 51, 100, 7]], 60)
    }
}
