//! Where a comparison of servers takes place: cores for servers and for what asks them, a folder, ports of a network
//! that nothing else uses.
//!
//! What is made here is inherited by the threads and processes that the calling thread starts.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use larder_io::cores::available_cores;
use larder_io::random::Random;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Which cores are whose.
#[derive(Debug, Clone)]
pub struct Cores {
    /// Where servers run.
    pub server: Vec<usize>,
    /// Where questions come from: as many as the server has, as far as there are; one of the server's where none is
    /// left.
    pub load: Vec<usize>,
}

impl Cores {
    /// The first `cores` that we may use are the servers'.
    pub fn split(cores: usize) -> io::Result<Cores> {
        let all = available_cores()?;
        let server: Vec<usize> = all.iter().copied().take(cores.max(1)).collect();
        let left: Vec<usize> = all.iter().copied().skip(server.len()).collect();
        let load = match left.is_empty() {
            true => server.last().copied().into_iter().collect(),
            false => left[..left.len().min(server.len())].to_vec(),
        };
        Ok(Cores { server, load })
    }

    /// Whether servers and load share a core.
    pub fn are_shared(&self) -> bool {
        self.load.iter().any(|core| self.server.contains(core))
    }
}

/// A folder for configurations and logs, removed at the end.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// A new one, whose name begins with `larder-bench-` and what it is for.
    pub fn new(purpose: &str) -> io::Result<Folder> {
        let name = format!("larder-bench-{purpose}-{:016x}", Random::new().u64()?);
        let folder = std::env::temp_dir().join(name);
        // Private and new: the name cannot be guessed.
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Keeps the calling thread, and what it starts, on these cores.
pub fn run_on(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        set.set(core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// An address of the run's own network.
pub fn at_port(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
