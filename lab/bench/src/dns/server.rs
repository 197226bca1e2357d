//! How each server is set up to forward to one upstream, as its manual advises for speed.
//!
//! The same for all: as many threads as cores, answers over UDP from a cache that is large enough, no logging, no
//! rewriting, minimal answers, validation only where zones are signed. A configuration is written for each run, and
//! shown with its figures.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::hierarchy::ROOT_HINTS;
use crate::process::Running;
use crate::servers::{self, Known, LARDER, words};

/// What a server is to do.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// Where it is asked.
    pub listen: SocketAddr,
    /// Whom it asks; `None`: it finds its way from the root of [`super::hierarchy`].
    pub upstream: Option<SocketAddr>,
    /// The root's key, the data of a DNSKEY record as text, by which it validates; `None`: it does not. For those that
    /// find their way.
    pub anchor: Option<String>,
    /// Its threads.
    pub cores: usize,
    /// Names that its cache is to hold at most.
    pub entries: u64,
    /// The directory of its configuration and its log.
    pub folder: &'a Path,
}

/// How a server of a name is set up; `None` where it cannot do this.
type SetUp = fn(&Setup<'_>) -> Option<Launch>;

/// A server that is installed.
pub type Server = servers::Server<SetUp>;

/// How a server is started.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// Arguments. The file of the configuration is NAME.conf in the folder in which it runs.
    pub arguments: Vec<String>,
    /// Its configuration.
    pub configuration: String,
}

/// The file of the root's address, for those that find their way.
const HINTS_FILE: &str = "root.hints";
/// The file of the root's key, for those that validate.
const ANCHOR_FILE: &str = "root.key";

/// Larder's cache: room for a million names. The others are given gigabytes.
const LARDER_CACHE: &str = "256MiB";

const KNOWN: [Known<SetUp>; 4] = [
    Known { name: LARDER, program: LARDER, version_flag: "--version", launch: larder },
    Known { name: "unbound", program: "unbound", version_flag: "-V", launch: unbound },
    Known { name: "dnsdist", program: "dnsdist", version_flag: "--version", launch: dnsdist },
    Known { name: "bind", program: "named", version_flag: "-v", launch: bind },
];

/// Names of the servers that can be measured.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.name)
}

impl Server {
    /// The server of this name, one of [`names`]; the error states why it is not here. `own` is the program of
    /// larder.
    pub fn find(name: &str, own: &Path) -> Result<Server, String> {
        Server::of(&KNOWN, name, own)
    }

    /// How it is started; `None` where it can't do this.
    pub fn launch(&self, setup: &Setup<'_>) -> Option<Launch> {
        (self.launch)(setup)
    }

    /// Starts it, on the calling thread's cores and in its network.
    pub fn start(&self, setup: &Setup<'_>) -> Result<Running, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.program.display());
        let launch = self.launch(setup).ok_or("it only forwards")?;
        fs::write(setup.folder.join(HINTS_FILE), ROOT_HINTS).map_err(failed)?;
        if let Some(anchor) = &setup.anchor {
            let anchor = format!(". IN DNSKEY {anchor}\n");
            fs::write(setup.folder.join(ANCHOR_FILE), anchor).map_err(failed)?;
        }
        let file = setup.folder.join(format!("{}.conf", self.name));
        let log = setup.folder.join(format!("{}.log", self.name));
        fs::write(&file, &launch.configuration).map_err(failed)?;
        Running::process(&self.program, &launch.arguments, setup.folder, &log, setup.listen)
            .map_err(failed)
    }
}

/// All by flags. To validate it must have been built with the feature `recurse`.
fn larder(setup: &Setup<'_>) -> Option<Launch> {
    let (listen, cores) = (setup.listen.to_string(), setup.cores.to_string());
    let fixed = ["dns", "--cache", LARDER_CACHE, "--listen", &listen, "--cores", &cores];
    let mut arguments = words(&fixed);
    match setup.upstream {
        Some(upstream) => arguments.extend(words(&["--upstream", &upstream.to_string()])),
        None => {
            let own = ["--recurse", "--root-hints", HINTS_FILE, "--server-allow", "127.0.0.0/8"];
            arguments.extend(words(&own));
            arguments.extend(match setup.anchor {
                Some(_) => words(&["--dnssec", "validate", "--trust-anchor", ANCHOR_FILE]),
                None => words(&["--dnssec", "off"]),
            });
        }
    }
    Some(Launch { arguments, configuration: String::new() })
}

/// After "Performance Tuning" of its documentation and unbound.conf(5): slabs a power of two near the threads,
/// twice as much memory for records as for messages, buffers of sockets, many questions a thread.
fn unbound(setup: &Setup<'_>) -> Option<Launch> {
    let Setup { listen, upstream, cores, folder, .. } = setup;
    let ways = match upstream {
        Some(upstream) => format!(
            "forward-zone:\n  name: \".\"\n  forward-addr: {}@{}\n",
            upstream.ip(),
            upstream.port()
        ),
        None => String::new(),
    };
    let hints = if upstream.is_none() { HINTS_FILE } else { "" };
    let (anchor, modules) = match setup.anchor {
        Some(_) => (format!("  trust-anchor-file: \"{ANCHOR_FILE}\"\n"), "validator iterator"),
        None => (String::new(), "iterator"),
    };
    let slabs = cores.next_power_of_two() * 2;
    let configuration = format!(
        "server:
  interface: {}@{}
  do-daemonize: no
  username: \"\"
  chroot: \"\"
  directory: \"{}\"
  root-hints: \"{hints}\"
  pidfile: \"\"
  use-syslog: no
  verbosity: 0
  statistics-interval: 0
  num-threads: {cores}
  so-reuseport: yes
  so-rcvbuf: 4m
  so-sndbuf: 4m
  outgoing-range: 8192
  num-queries-per-thread: 4096
  msg-cache-size: 2g
  rrset-cache-size: 4g
  msg-cache-slabs: {slabs}
  rrset-cache-slabs: {slabs}
  infra-cache-slabs: {slabs}
  key-cache-slabs: {slabs}
  module-config: \"{modules}\"
{anchor}  minimal-responses: yes
  qname-minimisation: no
  prefetch: no
  do-ip6: no
  do-not-query-localhost: no
  access-control: 127.0.0.0/8 allow
remote-control:
  control-enable: no
{ways}",
        listen.ip(),
        listen.port(),
        folder.display()
    );
    Some(Launch { arguments: words(&["-d", "-c", "unbound.conf"]), configuration })
}

/// After "Performance Tuning" of its documentation: a listener a thread, a packet cache in many shards, messages
/// received many at a time, as many questions outstanding as there are IDs. The upstream is not probed.
fn dnsdist(setup: &Setup<'_>) -> Option<Launch> {
    let Setup { listen, upstream, cores, entries, .. } = setup;
    let upstream = (*upstream)?;
    let locals: String =
        (0..*cores).map(|_| format!("addLocal(\"{listen}\", {{reusePort=true}})\n")).collect();
    let shards = if *cores == 1 { 1 } else { 20 * cores };
    let configuration = format!(
        "{locals}setACL({{\"127.0.0.0/8\"}})
setSecurityPollSuffix(\"\")
setMaxUDPOutstanding(65535)
setUDPMultipleMessagesVectorSize(64)
setUDPSocketBufferSizes(4194304, 4194304)
newServer({{address=\"{upstream}\", sockets={cores}}}):setUp()
cache = newPacketCache({entries}, {{maxTTL=86400, minTTL=0, numberOfShards={shards}}})
getPool(\"\"):setCache(cache)
"
    );
    let arguments = words(&["--supervised", "--disable-syslog", "-C", "dnsdist.conf"]);
    Some(Launch { arguments, configuration })
}

/// After the BIND 9 Administrator Reference Manual: forwards only, as many clients as may come, no quotas, none of
/// what it does for authority.
fn bind(setup: &Setup<'_>) -> Option<Launch> {
    let Setup { listen, upstream, cores, folder, .. } = setup;
    let (forwarders, hints) = match upstream {
        Some(upstream) => (
            format!(
                "  forward only;\n  forwarders port {} {{ {}; }};\n",
                upstream.port(),
                upstream.ip()
            ),
            String::new(),
        ),
        None => {
            let hints = format!("zone \".\" {{ type hint; file \"{HINTS_FILE}\"; }};\n");
            (String::new(), hints)
        }
    };
    let (validation, anchors) = match &setup.anchor {
        Some(anchor) => {
            // The key in quotes, and no algorithm by name.
            let (numbers, key) = anchor.rsplit_once(' ').unwrap_or_default();
            ("yes", format!("trust-anchors {{ \".\" static-key {numbers} \"{key}\"; }};\n"))
        }
        None => ("no", String::new()),
    };
    let configuration = format!(
        "options {{
  directory \"{}\";
  pid-file none;
  session-keyfile none;
  listen-on port {} {{ {}; }};
  listen-on-v6 {{ none; }};
  recursion yes;
  allow-query {{ 127.0.0.0/8; }};
  allow-recursion {{ 127.0.0.0/8; }};
  allow-query-cache {{ 127.0.0.0/8; }};
{forwarders}  dnssec-validation {validation};
  minimal-responses yes;
  empty-zones-enable no;
  qname-minimization off;
  recursive-clients 20000;
  clients-per-query 0;
  max-clients-per-query 0;
  max-cache-size 8g;
  prefetch 0;
  querylog no;
  notify no;
}};
controls {{ }};
logging {{ category default {{ null; }}; category unmatched {{ null; }}; }};
{anchors}{hints}",
        folder.display(),
        listen.port(),
        listen.ip()
    );
    let arguments = words(&["-f", "-4", "-n", &cores.to_string(), "-c", "bind.conf"]);
    Some(Launch { arguments, configuration })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every server is configured where to listen, whom to query or where the root is, and how many threads to have.
    #[test]
    fn configurations_are_complete() {
        let setup = Setup {
            listen: "127.0.0.1:5301".parse().unwrap(),
            upstream: Some("127.0.0.1:5300".parse().unwrap()),
            anchor: None,
            cores: 3,
            entries: 7_654_321,
            folder: Path::new("/somewhere"),
        };
        for known in &KNOWN {
            let text = |setup: &Setup<'_>| {
                let launch = (known.launch)(setup)?;
                Some(format!("{} {}", launch.arguments.join(" "), launch.configuration))
            };
            let all = text(&setup).unwrap();
            for needed in ["5301", "5300", "127.0.0.1"] {
                assert!(all.contains(needed), "{}: {all}", known.name);
            }
            let threads = all.contains('3') || all.matches("addLocal").count() == 3;
            assert!(threads && !all.contains("{{"), "{}: {all}", known.name);
            let recursing = text(&Setup { upstream: None, ..setup.clone() });
            assert_eq!(recursing.is_none(), known.name == "dnsdist");
            assert!(recursing.is_none_or(|text| text.contains(HINTS_FILE)), "{}", known.name);
            let anchor = Some("257 3 13 abcd=".to_owned());
            let validating = text(&Setup { upstream: None, anchor, ..setup.clone() });
            let has_anchor =
                |text: String| text.contains(ANCHOR_FILE) || text.contains("\"abcd=\"");
            assert!(validating.is_none_or(has_anchor), "{}", known.name);
        }
    }

    /// An unknown server, and a program that is not there, are errors with the reason.
    #[test]
    fn what_is_missing_is_reported() {
        let own = Path::new("/nonexistent/larder");
        assert!(Server::find("knot", own).unwrap_err().contains("'knot'"));
        assert!(Server::find(LARDER, own).unwrap_err().contains("cargo build"));
        // A program that is there is taken, whatever its version.
        assert!(Server::find(LARDER, Path::new("/bin/false")).is_ok());
        assert_eq!(names().count(), KNOWN.len());
    }
}
