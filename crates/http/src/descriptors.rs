//! Open files: each connection needs one, and the kernel limits their number for a process.
//!
//! ```text
//! start   the soft limit is raised to the hard one; clients may not use a reserve for origins
//! later   a connection that fails for lack of one is counted; a log line states it, at most now and then
//! ```
//! Without the reserve, idle clients would take all open files, and clients that send requests
//! would get no response.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use larder_serve::log::Log;

use crate::options::Options;

/// Open files of a process besides connections: standard streams, logs, listeners, control sockets.
const OWN: u64 = 64;
/// Open files of an event loop.
const OF_LOOP: u64 = 16;
/// Open files of a connection over TLS: its socket, and the socket pair to an event loop.
const ENCRYPTED: u64 = 3;
/// The most that macOS takes where it has no hard limit (`OPEN_MAX`); it refuses to have no soft one.
const WITHOUT_LIMIT: u64 = 10_240;
/// Connections to origins that are always possible.
const ORIGINS_MIN: u64 = 16;

/// How the open files of this process are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// The limit of open files; `None`: there is none.
    pub limit: Option<u64>,
    /// The limit of client connections.
    pub clients_max: usize,
}

/// Raises the limit as far as this process may, and returns the new one; `None`: there is none.
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let is_set = |current| setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok();
    let wanted = [maximum, Some(WITHOUT_LIMIT).max(current)];
    // If the kernel refuses, the limit stays as it is.
    wanted.into_iter().find(|wanted| is_set(*wanted)).unwrap_or(current)
}

/// Divides open files among clients and origins. Origins get their configured maximum, but at most
/// a half.
pub fn divide(limit: Option<u64>, options: &Options) -> Division {
    let wanted = options.clients_max;
    let Some(all) = limit else { return Division { limit, clients_max: wanted } };
    let left = all.saturating_sub(OWN + OF_LOOP * options.loops as u64);
    let each = |is_encrypted| if is_encrypted { ENCRYPTED } else { 1 };
    let cost = each(options.origins.iter().any(|origin| origin.is_secure));
    let origins = (options.origin_connections_max as u64)
        .saturating_mul(options.origins.len() as u64)
        .saturating_mul(cost);
    let reserve = origins.clamp(ORIGINS_MIN, ORIGINS_MIN.max(left / 2));
    let has_encrypted = options.tls_bridge.as_ref().is_some_and(|it| it.has_clients());
    let room = left.saturating_sub(reserve) / each(has_encrypted);
    let room = usize::try_from(room).unwrap_or(usize::MAX).max(1);
    Division { limit, clients_max: wanted.min(room) }
}

impl Division {
    /// Logs if clients get fewer connections than configured.
    pub fn log(&self, wanted: usize, log: &Log) {
        if let Some(limit) = self.limit.filter(|_| self.clients_max < wanted) {
            log.warn("too few open files")
                .number("limit", limit)
                .number("clients_max", self.clients_max)
                .number("wanted", wanted)
                .text("hint", "raise the limit (ulimit -Hn, LimitNOFILE=), or lower --clients-max");
        }
    }
}

/// True where the cause is a lack on this machine, not the other side: open files, memory, ports.
pub fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let all = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    error.raw_os_error().is_some_and(|code| all.iter().any(|it| it.raw_os_error() == code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OriginAddress;
    use larder_serve::log::{Format, Level};

    /// Clients get the configured number if there are enough files. Else origins keep their
    /// maximum, or half of all files. However few there are, some client is served.
    #[test]
    fn divided() {
        let origin = |is_secure| OriginAddress {
            address: "192.0.2.1:80".parse().unwrap(),
            name: "192.0.2.1".to_owned(),
            is_secure,
        };
        let clients = |limit, connections, is_secure| {
            let mut options = Options::new(Vec::new(), vec![origin(is_secure)]);
            (options.clients_max, options.origin_connections_max) = (10_000, connections);
            let division = divide(limit, &options);
            let log = Log::new("http", Level::Info, Format::Text);
            division.log(10_000, &log);
            assert_eq!(log.take().len(), usize::from(division.clients_max < 10_000));
            division.clients_max
        };
        assert_eq!(clients(None, 1_000, false), 10_000);
        assert_eq!(clients(Some(1 << 20), 1_000, false), 10_000);
        assert_eq!(clients(Some(8_192), 1_000, false), 8_192 - 80 - 1_000);
        assert_eq!(clients(Some(8_192), 1_000, true), 8_192 - 80 - 3_000);
        assert_eq!(clients(Some(1_024), 1_000, false), 472);
        assert_eq!(clients(Some(1_024), 10, false), 1_024 - 80 - 16);
        assert_eq!(clients(Some(20), 10, false), 1);
    }

    /// A shortage of this machine is distinguished from failures of the other side.
    #[test]
    fn whose_fault() {
        use rustix::io::Errno;
        let is_ours = |errno: Errno| is_shortage(&io::Error::from(errno));
        assert!(is_ours(Errno::MFILE) && is_ours(Errno::ADDRNOTAVAIL));
        assert!(!is_ours(Errno::CONNREFUSED) && !is_ours(Errno::TIMEDOUT));
        assert!(!is_shortage(&io::ErrorKind::Unsupported.into()));
    }
}
