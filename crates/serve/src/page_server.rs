//! The HTTP server of a page that has no packets, on a thread of its own: no worker waits for its clients.
//!
//! Connections are [`http_server`](crate::http_server)'s, requests are judged by [`Authorizer`]. The document of a
//! page is public, since it asks its user for the token; everything else needs it. There is no TLS.
//!
//! Bounds: [`Options::clients_max`] clients, and 8 KiB of headers for each. Cost: no wake-up without requests.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use larder_io::access::Access;
use larder_io::epoll::{Events, Interest, Poller, Waker};
use larder_io::tcp::ListenOptions;

use crate::authorize::{Authorizer, Claims};
use crate::control;
use crate::http_server::Response;
use crate::http_server::{Body, HttpServer, Limits, Listener, Mode, Piece, Request, Respond};
use crate::pages::Pages;

/// Time that a client may make no progress, and an open connection may have no request, ms.
const STALL_MS: u64 = 30_000;

/// Clients at once, by default.
const CLIENTS_MAX: usize = 256;

/// Interval of the check for stalled clients, ms.
const LOOK_MS: u64 = 1_000;

const WAKE: u64 = 0;
const HTTP: u64 = 1;
const EVENTS_MAX: usize = 64;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Listens there; a Unix socket has the mode and group of `access`.
    pub fn open(&self, access: Access) -> io::Result<Listener> {
        match self {
            Listen::Tcp(address) => {
                let next = "name another address, or stop the program that has it";
                Listener::tcp(*address, &ListenOptions::default(), next)
            }
            Listen::Unix(path) => {
                let (listener, file) = control::listen_at(path, 0o600)?;
                access.apply(path)?;
                Ok(Listener::Unix(listener, file))
            }
        }
    }

    /// True if other machines may reach it.
    pub fn is_public(&self) -> bool {
        matches!(self, Listen::Tcp(address) if !address.ip().to_canonical().is_loopback())
    }
}

/// Options of the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// The address.
    pub listen: Listen,
    /// Names of hosts that requests may have, besides `localhost`, loopback addresses and the
    /// address of the server.
    pub hosts: Vec<String>,
    /// The token that requests must have (`Authorization: Bearer ..`); `None`: none.
    pub token: Option<Vec<u8>>,
    /// Mode and group of the Unix socket.
    pub access: Access,
    /// Clients at once; further ones are closed.
    pub clients_max: usize,
}

impl Options {
    /// Loopback names and the address itself, no token.
    pub fn new(listen: Listen) -> Options {
        let (hosts, token, access) = (Vec::new(), None, Access::PRIVATE);
        Options { listen, hosts, token, access, clients_max: CLIENTS_MAX }
    }
}

impl fmt::Debug for Options {
    /// Without the token, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("listen", &self.listen)
            .field("hosts", &self.hosts)
            .field("has_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

/// A page: its server, and its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOptions {
    /// The server.
    pub server: Options,
    /// The file that keeps the history over restarts; `None`: it begins again.
    pub history: Option<PathBuf>,
}

/// The server's thread. It ends when dropped, and its clients are closed.
#[derive(Debug)]
pub struct PageServer {
    address: Option<SocketAddr>,
    place: String,
    waker: Arc<Waker>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PageServer {
    /// Opens the listener, and starts the thread.
    pub fn start(options: &Options, pages: Arc<dyn Pages>) -> io::Result<PageServer> {
        let listener = options.listen.open(options.access)?;
        let address = listener.address().ok();
        let place = match &options.listen {
            Listen::Tcp(listen) => format!("http://{}/", address.unwrap_or(*listen)),
            Listen::Unix(path) => format!("unix:{}", path.display()),
        };
        let waker = Arc::new(Waker::new()?);
        let poller = Poller::new()?;
        poller.add(&*waker, WAKE, Interest::READ)?;
        let limits =
            Limits { clients_max: options.clients_max, stall_ms: STALL_MS, ..Limits::default() };
        let server = HttpServer::open(listener, limits, Mode::KeepAlive, &poller, HTTP)?;
        let authorizer = Authorizer::new(&options.hosts, options.token.clone());
        let mut served = Served { authorizer, pages };
        let ends = Arc::new(AtomicBool::new(false));
        let run = {
            let ends = Arc::clone(&ends);
            move || run(server, &poller, &mut served, &ends)
        };
        let thread = thread::Builder::new().name("page-http".to_owned()).spawn(run)?;
        Ok(PageServer { address, place, waker, ends, thread: Some(thread) })
    }

    /// The TCP address, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The address, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // The counter of an eventfd is full only if the thread has been awake for long: then it looks anyway.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    mut server: HttpServer<Infallible>,
    poller: &Poller,
    served: &mut Served,
    ends: &AtomicBool,
) {
    let (started, mut looked_ms) = (Instant::now(), 0);
    let mut events = Events::new(EVENTS_MAX);
    while !ends.load(Ordering::Acquire) {
        let wait_ms = (!server.is_idle()).then_some(LOOK_MS);
        if poller.wait(&mut events, wait_ms).is_err() {
            return;
        }
        let now_ms = started.elapsed().as_millis() as u64;
        for event in events.iter().filter(|event| event.token != WAKE) {
            server.handle(event, poller, now_ms, served);
        }
        if now_ms >= looked_ms + LOOK_MS {
            looked_ms = now_ms;
            server.expire(poller, now_ms, served);
        }
    }
}

/// What clients share.
struct Served {
    authorizer: Authorizer,
    pages: Arc<dyn Pages>,
}

impl Respond for Served {
    /// All are in memory.
    type Body = Infallible;

    fn respond(&mut self, request: &Request<'_>) -> Response<Infallible> {
        let Some(claims) = Claims::of(request) else { return self.refuse(400) };
        let judged = match self.pages.is_public(request.path) {
            true => self.authorizer.judge_place(&claims, request.local),
            false => self.authorizer.judge(&claims, request.local),
        };
        if let Err(status) = judged {
            return refusal(status);
        }
        match self.pages.get(request.path) {
            Some(page) => {
                let body = Body::Bytes(Cow::Owned(page.content.to_vec()));
                Response { status: 200, headers: page.headers, body, closes: false }
            }
            None => refusal(404),
        }
    }

    fn refuse(&mut self, status: u16) -> Response<Infallible> {
        Response { closes: true, ..refusal(status) }
    }

    fn next(&mut self, body: &mut Infallible, _bytes_max: u64) -> Piece {
        match *body {}
    }

    fn send(
        &mut self,
        body: &mut Infallible,
        _socket: BorrowedFd<'_>,
        _bytes_left: u64,
    ) -> io::Result<usize> {
        match *body {}
    }
}

/// A refusal, with the next step.
fn refusal(status: u16) -> Response<Infallible> {
    let next = match status {
        401 => "send the token: Authorization: Bearer TOKEN\n",
        403 => "pages of other sites get no data\n",
        421 => "this host is not served here; --ui-hosts allows more names\n",
        404 => "there are /, /api/stats, /api/recent, /api/lists, /api/history/1h and /metrics\n",
        405 => "ask with GET or HEAD\n",
        431 => "ask with fewer fields\n",
        _ => "ask as HTTP/1.1 has it\n",
    };
    let headers = match status {
        401 => {
            "WWW-Authenticate: Bearer\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\n"
        }
        405 => "Allow: GET, HEAD\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\n",
        _ => "Content-Type: text/plain\r\nCache-Control: no-store\r\n",
    };
    let body = Body::Bytes(Cow::Borrowed(next.as_bytes()));
    Response { status, headers: Cow::Borrowed(headers), body, closes: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::Page;
    use larder_testkit::http::Connection;

    struct Two;

    impl Pages for Two {
        fn get(&self, path: &str) -> Option<Page> {
            ["/", "/data"].contains(&path).then(|| Page::new("text/plain", path.as_bytes()))
        }

        fn is_public(&self, path: &str) -> bool {
            path == "/"
        }
    }

    fn exchange(address: SocketAddr, request: &str) -> String {
        let mut connection = Connection::open(address);
        connection.send(request);
        String::from_utf8_lossy(&connection.rest()).into_owned()
    }

    /// The document needs no token, data needs it; other hosts and sites, and nonsense, are refused with a next step.
    #[test]
    fn data_needs_the_token() {
        let mut options = Options::new(Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))));
        (options.token, options.hosts) = (Some(b"secret".to_vec()), vec!["tap.example".to_owned()]);
        assert!(!format!("{options:?}").contains("secret"));
        let server = PageServer::start(&options, Arc::new(Two)).expect("a server");
        let address = server.address().expect("an address");
        assert_eq!(server.place(), format!("http://{address}/"));
        let own = "Host: localhost\r\n";
        let token = "Host: tap.example\r\nAuthorization: Bearer secret\r\n";
        for (path, fields, status, text) in [
            ("/", own, "200", "/"),
            ("/data", own, "401", "send the token"),
            ("/data", "Host: localhost\r\nAuthorization: Bearer wrong\r\n", "401", "Bearer"),
            ("/data", token, "200", "/data"),
            ("/other", token, "404", "/metrics"),
            ("/other", own, "401", "token"),
            ("/", "Host: evil.example\r\n", "421", "--ui-hosts"),
            ("/", "Host: localhost\r\nOrigin: http://evil.example\r\n", "403", "other sites"),
            ("/data", &format!("{token}Sec-Fetch-Site: cross-site\r\n"), "403", "other sites"),
            ("/", "Host: a\r\nHost: b\r\n", "400", "HTTP/1.1"),
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{fields}\r\n");
            let response = exchange(address, &request);
            assert!(
                response.starts_with(&format!("HTTP/1.1 {status}")),
                "{path} {fields}: {response}"
            );
            assert!(response.contains(text), "{path} {fields}: {response}");
        }
        assert!(exchange(address, "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n").contains(" 405 "));
        drop(server);
        assert!(std::net::TcpStream::connect(address).is_err());
    }

    /// Loopback is this machine's own, in both forms; a Unix socket has the mode of its options.
    #[test]
    fn places_are_known() {
        use std::os::unix::fs::MetadataExt;
        for (address, is_public) in [
            ("127.0.0.1:1", false),
            ("[::1]:1", false),
            ("[::ffff:127.0.0.1]:1", false),
            ("0.0.0.0:1", true),
        ] {
            assert_eq!(Listen::Tcp(address.parse().expect("an address")).is_public(), is_public);
        }
        let folder = tempfile::tempdir().expect("a folder");
        let listen = Listen::Unix(folder.path().join("ui"));
        assert!(!listen.is_public());
        let server = PageServer::start(&Options::new(listen), Arc::new(Two)).expect("a server");
        assert!(server.place().starts_with("unix:") && server.address().is_none());
        let mode = std::fs::metadata(folder.path().join("ui")).expect("a socket").mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
