//! How each server is set up as a cache before one origin, as its manual advises for speed.
//!
//! The same for all: as many workers as cores, connections that stay open, no log of requests, room for all that is
//! asked, clients that ask for the same at once are answered by one fetch where the server can do that. A configuration
//! is written for each run, and shown with its figures.
//!
//! A server that passes on what it gets from itself is its own origin by another path; larder, which has one origin, is
//! two processes for that.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use super::body::{Resource, Way};
use super::load::Target;
use super::plan::Kind;
use crate::process::Running;
use crate::servers::{self, Known, LARDER, words};

/// What a server is to do.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// Where it is asked.
    pub listen: SocketAddr,
    /// Where a second process of it may listen.
    pub second: SocketAddr,
    /// Whom it asks.
    pub origin: SocketAddr,
    /// What for.
    pub kind: Kind,
    /// What is asked for.
    pub resource: Resource,
    /// Its workers.
    pub cores: usize,
    /// The directory of its configuration, its log, and its files if it has any.
    pub folder: &'a Path,
}

/// How a server of a name and a version is set up.
type SetUp = fn(&Setup<'_>, &str) -> Launch;

/// A server that is installed.
pub type Server = servers::Server<SetUp>;

/// How a server is started, and asked.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Arguments, for each process; the last process is asked. The file of the configuration is NAME.conf in the folder
    /// in which they run.
    pub processes: Vec<Vec<String>>,
    /// Its configuration.
    pub configuration: String,
    /// What is asked once, so that it is held.
    pub fill: Option<Target>,
    /// What is measured.
    pub target: Target,
}

const KNOWN: [Known<SetUp>; 4] = [
    Known { name: LARDER, program: LARDER, version_flag: "--version", launch: larder },
    Known { name: "nginx", program: "nginx", version_flag: "-v", launch: nginx },
    Known { name: "haproxy", program: "haproxy", version_flag: "-v", launch: haproxy },
    Known { name: "varnish", program: "varnishd", version_flag: "-V", launch: varnish },
];

/// larder's memory, and Varnish's.
const MEMORY_MIB: u32 = 1024;
/// What Varnish may use for what it passes on: without a bound it would take all there is.
const TRANSIENT_MIB: u32 = 4096;

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

    /// How it is started.
    pub fn launch(&self, setup: &Setup<'_>) -> Launch {
        (self.launch)(setup, &self.version)
    }

    /// Starts it, on the calling thread's cores and in its network.
    pub fn start(&self, setup: &Setup<'_>) -> Result<Running, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", self.program.display());
        let launch = self.launch(setup);
        let file = setup.folder.join(format!("{}.conf", self.name));
        fs::write(&file, &launch.configuration).map_err(failed)?;
        let mut running: Option<Running> = None;
        for (number, arguments) in launch.processes.iter().enumerate() {
            let log = setup.folder.join(format!("{}.{number}.log", self.name));
            let process =
                Running::process(&self.program, arguments, setup.folder, &log, setup.listen)
                    .map_err(failed)?;
            running = Some(match running {
                Some(running) => running.with(process),
                None => process,
            });
        }
        running.ok_or_else(|| "nothing to start".to_owned())
    }
}

/// What is asked of a server that knows the origin's paths, and itself by another one.
fn by_path(setup: &Setup<'_>) -> (Option<Target>, Target) {
    let of = |way| Target::of(setup.listen, Resource { way, ..setup.resource });
    match setup.kind {
        Kind::Hits => (Some(of(Way::Size)), of(Way::Size)),
        Kind::Pass => (Some(of(Way::Size)), of(Way::Itself)),
        Kind::Through => (None, of(Way::Pass)),
        Kind::Busy => (None, of(Way::Slow)),
    }
}

/// All by flags. A response to a request with credentials may not be kept by a cache that others share, yet be answered
/// by one that holds it (RFC 9111, 3.5): so the first of two passes on what the second holds.
fn larder(setup: &Setup<'_>, _version: &str) -> Launch {
    let process = |listen: SocketAddr, origin: SocketAddr| {
        let (listen, origin) = (listen.to_string(), format!("http://{origin}"));
        let (cores, memory) = (setup.cores.to_string(), format!("{MEMORY_MIB}MiB"));
        let own = ["http", "--listen", &listen, "--origin", &origin, "--cores", &cores];
        [words(&own), words(&["--memory", &memory])].concat()
    };
    let (fill, target) = by_path(setup);
    let (processes, fill, target) = match setup.kind {
        Kind::Pass => {
            let held = Target::of(setup.second, Resource { way: Way::Size, ..setup.resource });
            let fields = "Cache-Control: no-store\r\nAuthorization: Basic eDp5\r\n";
            let target = Target { address: setup.listen, fields, ..held.clone() };
            let two =
                vec![process(setup.second, setup.origin), process(setup.listen, setup.second)];
            (two, Some(held), target)
        }
        _ => (vec![process(setup.listen, setup.origin)], fill, target),
    };
    Launch { processes, configuration: String::new(), fill, target }
}

/// After its documentation of ngx_http_core_module and ngx_http_proxy_module: the kernel sends files, which stay open;
/// one fetch for all clients that wait; connections to the origin stay open; proxied bodies are not written to files.
fn nginx(setup: &Setup<'_>, _version: &str) -> Launch {
    let Setup { listen, origin, cores, folder, .. } = setup;
    let configuration = format!(
        "daemon off;
user root;
worker_processes {cores};
worker_rlimit_nofile 16384;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  open_file_cache max=1000 inactive=1h;
  open_file_cache_valid 1h;
  client_body_temp_path nginx-temp;
  fastcgi_temp_path nginx-temp;
  uwsgi_temp_path nginx-temp;
  scgi_temp_path nginx-temp;
  proxy_temp_path nginx-temp;
  proxy_cache_path nginx-cache keys_zone=c:16m max_size=4g inactive=1h use_temp_path=off;
  proxy_http_version 1.1;
  proxy_set_header Connection \"\";
  upstream origin {{ server {origin}; keepalive 512; keepalive_requests 1000000000; }}
  upstream itself {{ server {listen}; keepalive 512; keepalive_requests 1000000000; }}
  server {{
    listen {listen} backlog=4096;
    location / {{
      proxy_pass http://origin;
      proxy_cache c;
      proxy_cache_lock on;
      proxy_cache_lock_age 10m;
      proxy_cache_lock_timeout 10m;
    }}
    location /pass/ {{ proxy_pass http://origin; proxy_max_temp_file_size 0; }}
    location /itself/ {{ proxy_pass http://itself/size/; proxy_max_temp_file_size 0; }}
  }}
}}
"
    );
    let prefix = format!("{}/", folder.display());
    let processes = vec![words(&["-p", &prefix, "-e", "stderr", "-c", "nginx.conf"])];
    let (fill, target) = by_path(setup);
    Launch { processes, configuration, fill, target }
}

/// After its configuration manual, "Cache": as large an object as it may be asked for; connections to the origin stay
/// open and are shared.
fn haproxy(setup: &Setup<'_>, _version: &str) -> Launch {
    let Setup { listen, origin, cores, .. } = setup;
    let configuration = format!(
        "global
  nbthread {cores}
  maxconn 4096
defaults
  mode http
  http-reuse always
  timeout connect 10s
  timeout client 10m
  timeout server 10m
cache held
  total-max-size 512
  max-object-size 268435456
  max-age 3600
frontend clients
  bind {listen}
  use_backend pass if {{ path_beg /pass/ }}
  use_backend itself if {{ path_beg /itself/ }}
  default_backend origin
backend origin
  http-request cache-use held
  http-response cache-store held
  server origin {origin}
backend pass
  server origin {origin}
backend itself
  http-request replace-path /itself/(.*) /size/\\1
  server itself {listen}
"
    );
    let processes = vec![words(&["-db", "-q", "-f", "haproxy.conf"])];
    let (fill, target) = by_path(setup);
    Launch { processes, configuration, fill, target }
}

/// After its manual, with its own threads, memory for what is held, and for what is passed on the bound that it has
/// since version 8.
fn varnish(setup: &Setup<'_>, version: &str) -> Launch {
    let Setup { listen, origin, .. } = setup;
    let backend = |name: &str, address: &SocketAddr| {
        let (host, port) = (address.ip(), address.port());
        format!("backend {name} {{ .host = \"{host}\"; .port = \"{port}\"; }}\n")
    };
    let configuration = format!(
        "vcl 4.1;
{}{}sub vcl_recv {{
  set req.backend_hint = origin;
  if (req.url ~ \"^/pass/\") {{ return (pass); }}
  if (req.url ~ \"^/itself/\") {{
    set req.url = regsub(req.url, \"^/itself/\", \"/size/\");
    set req.backend_hint = itself;
    return (pass);
  }}
}}
",
        backend("origin", origin),
        backend("itself", listen)
    );
    let (memory, transient) =
        (format!("malloc,{MEMORY_MIB}M"), format!("Transient=malloc,{TRANSIENT_MIB}M"));
    let folder = setup.folder.join("varnish").display().to_string();
    let listen = listen.to_string();
    let mut arguments = words(&["-F", "-j", "none", "-n", &folder, "-a", &listen]);
    // Elsewhere it looks in its own folders only.
    let file = setup.folder.join("varnish.conf").display().to_string();
    arguments.extend(words(&["-f", &file, "-s", &memory, "-s", &transient]));
    if varnish_major(version).is_some_and(|major| major >= 8) {
        arguments.extend(words(&["-p", "transit_buffer=1M"]));
    }
    let (fill, target) = by_path(setup);
    Launch { processes: vec![arguments], configuration, fill, target }
}

/// The first number of `varnishd (varnish-7.1.1 revision …)`.
fn varnish_major(version: &str) -> Option<u32> {
    let number = version.split_once("varnish-")?.1;
    number.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every server is configured where to listen and whom to query, in every kind of work; the resource is requested
    /// in the end.
    #[test]
    fn configurations_are_complete() {
        for known in &KNOWN {
            for kind in [Kind::Hits, Kind::Pass, Kind::Through, Kind::Busy] {
                let resource = Resource { way: Way::Size, bytes: 4321, number: 9, takes_ms: 77 };
                let setup = Setup {
                    listen: "127.0.0.1:8081".parse().unwrap(),
                    second: "127.0.0.1:8082".parse().unwrap(),
                    origin: "127.0.0.1:8080".parse().unwrap(),
                    kind,
                    resource,
                    cores: 3,
                    folder: Path::new("/somewhere"),
                };
                let launch = (known.launch)(&setup, "varnishd (varnish-8.0.0 revision x)");
                let mut all = launch.configuration;
                launch.processes.iter().flatten().for_each(|word| all = format!("{all} {word}"));
                for needed in ["8081", "8080", "127.0.0.1"] {
                    assert!(all.contains(needed), "{}: {all}", known.name);
                }
                assert!(!all.contains("{{"), "{}: {all}", known.name);
                assert!(launch.target.path.contains("/4321/9"), "{:?}", launch.target);
                assert_eq!(launch.target.address, setup.listen);
                assert_eq!(launch.fill.is_some(), matches!(kind, Kind::Hits | Kind::Pass));
                assert_eq!(all.contains("8082"), known.name == LARDER && kind == Kind::Pass);
                assert_eq!(all.contains("transit_buffer"), known.name == "varnish");
            }
        }
        assert_eq!(varnish_major("varnishd (varnish-7.1.1 revision 7ce)"), Some(7));
        assert_eq!(varnish_major("nginx version: nginx/1.22.1"), None);
    }

    /// An unknown server is an error with the reason.
    #[test]
    fn what_is_missing_is_reported() {
        let own = Path::new("/nonexistent/larder");
        assert!(Server::find("squid", own).unwrap_err().contains("'squid'"));
        assert!(Server::find(LARDER, own).unwrap_err().contains("cargo build"));
        // A program that is there is taken, whatever its version.
        assert!(Server::find(LARDER, Path::new("/bin/false")).is_ok());
        assert_eq!(names().count(), KNOWN.len());
    }
}
