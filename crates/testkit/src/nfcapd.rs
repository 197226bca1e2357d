//! nfdump's collector: receives export packets, and shows what it made of them.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::process::{Program, Run};
use crate::wait;

/// A collector that listens; its records are in a folder.
#[derive(Debug)]
pub struct Nfcapd {
    program: Program,
    folder: PathBuf,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Nfcapd {
    /// Starts it, at a free port, and waits until it listens.
    pub fn start(folder: impl Into<PathBuf>) -> Nfcapd {
        let folder = folder.into();
        let free = UdpSocket::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.expect("a port");
        let mut command = Command::new("nfcapd");
        command.args(["-b", "127.0.0.1", "-p", &address.port().to_string(), "-w"]).arg(&folder);
        let program = Program::start(command.stdout(Stdio::null()));
        let nfcapd = Nfcapd { program, folder, address };
        wait::until_so("nfcapd listens", || nfcapd.socket().is_some());
        nfcapd
    }

    /// Its socket, as the kernel shows it.
    fn socket(&self) -> Option<String> {
        let port = format!(":{:04X} ", self.address.port());
        let sockets = std::fs::read_to_string("/proc/self/net/udp").ok()?;
        sockets.lines().find(|line| line.contains(&port)).map(str::to_owned)
    }

    /// Ends it once it has taken all packets, and shows its records with nfdump's `-o fmt:FORMAT`, without
    /// spaces, sorted.
    pub fn records(mut self, format: &str) -> Vec<String> {
        // It logs this while it takes the first packet, and ends after the packet that it takes at the moment.
        self.program.wait_for("New ipfix exporter");
        wait::until_so("nfcapd has taken all", || {
            self.socket().is_none_or(|line| line.contains(" 00000000:00000000 "))
        });
        self.program.signal("-TERM");
        self.program.child.wait().expect("it ends");
        let mut nfdump = Command::new("nfdump");
        nfdump.env("TZ", "UTC").arg("-R").arg(&self.folder).args(["-q", "-N", "-o"]);
        let text = Run::of(nfdump.arg(format!("fmt:{format}"))).good();
        let mut lines: Vec<String> = text.lines().map(|line| line.replace(' ', "")).collect();
        lines.sort();
        lines
    }
}
