//! A server with its own certificate before an origin that a closure plays, and clients.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use larder_http::options::{Options, OriginAddress};
use larder_http::server::Running;
use larder_http_tls::{Encrypted, Files, Limits, Trust};
use larder_testkit::tls::{Identity, client_of};
use larder_testkit::wait::{PATIENCE, until_so_or};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, StreamOwned};

pub const NAME: &str = "http.example";

/// A stream on which an origin responds.
pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// The files of a certificate.
pub fn files(identity: &Identity) -> Files {
    Files { certificates: identity.chain(), key: identity.key() }
}

/// An origin whose every response is `x`.
pub fn plain_origin() -> SocketAddr {
    origin(|_, stream| stream.write_all(answer("", "x").as_bytes()).is_ok(), None).0
}

/// An origin. Each connection has a thread, which passes each request's headers to the closure. The
/// closure responds, and closes the connection by returning false.
pub fn origin(
    answer: impl Fn(&str, &mut dyn Stream) -> bool + Send + Sync + 'static,
    tls: Option<Arc<ServerConfig>>,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, requests) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let its = requests.clone();
    // The thread ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, answer, requests, tls) =
                (stream.unwrap(), answer.clone(), its.clone(), tls.clone());
            thread::spawn(move || {
                let mut stream: Box<dyn Stream> = match tls {
                    None => Box::new(stream),
                    Some(tls) => {
                        let tls = rustls::ServerConnection::new(tls).unwrap();
                        Box::new(StreamOwned::new(tls, stream))
                    }
                };
                while let Some(head) = head(&mut *stream) {
                    requests.fetch_add(1, Ordering::SeqCst);
                    if !answer(&head, &mut *stream) {
                        return;
                    }
                }
            });
        }
    });
    (address, requests)
}

/// The headers of a request or response; `None` if the stream ended before.
pub fn head(stream: &mut (impl Read + ?Sized)) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

/// A response with a body of known length.
pub fn answer(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

pub struct World {
    pub running: Option<Running>,
    pub identity: Identity,
    certificate: CertificateDer<'static>,
    pub tls: SocketAddr,
}

impl World {
    /// A server before an origin in the clear.
    pub fn start(origin: SocketAddr) -> World {
        World::with(vec![(origin, None)], Limits::default(), Trust::System, |_| ())
    }

    pub fn with(
        origins: Vec<(SocketAddr, Option<&str>)>,
        limits: Limits,
        trust: Trust,
        adjust: impl Fn(&mut Options),
    ) -> World {
        let identity = Identity::new(NAME);
        let certificate = identity.certificate();
        let encrypted = Encrypted {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            certificate: Some(files(&identity)),
            trust: origins.iter().any(|(_, name)| name.is_some()).then_some(trust),
            threads: 1,
            limits,
        };
        let named = |(address, name): (SocketAddr, Option<&str>)| OriginAddress {
            address,
            name: name.map_or(address.to_string(), |name| format!("{name}:{}", address.port())),
            is_secure: name.is_some(),
        };
        let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        let mut options = Options::new(listen, origins.into_iter().map(named).collect());
        options.tls_bridge = Some(Arc::new(encrypted));
        adjust(&mut options);
        let running = Running::start(&options).unwrap();
        let (_, url) = running.tls_bridge().unwrap().listeners().remove(0);
        let tls = url.rsplit_once("https://").unwrap().1.parse().unwrap();
        World { running: Some(running), identity, certificate, tls }
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub fn clear(&self) -> TcpStream {
        let stream = TcpStream::connect(self.running().addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A client configuration that trusts the server and offers these protocols.
    pub fn config(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        client_of(self.certificate.clone(), alpn)
    }

    /// A client of HTTP/1.1.
    pub fn http1(&self, alpn: &[&str]) -> StreamOwned<ClientConnection, TcpStream> {
        let stream = TcpStream::connect(self.tls).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(ClientConnection::new(self.config(alpn), name()).unwrap(), stream)
    }

    pub fn count(&self, name: &str) -> u64 {
        let metrics = self.running().tls_bridge().unwrap().metrics();
        let counts: HashMap<_, _> = metrics.iter().map(|it| (it.field(), it.value)).collect();
        counts[name] as u64
    }

    /// Waits until `is_so` returns true.
    pub fn until(&self, what: &str, is_so: impl Fn(&World) -> bool) {
        let stands = || format!("{what}: {:?}", self.running().tls_bridge().unwrap().metrics());
        until_so_or(stands, || is_so(self));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let ended = running.stop();
            assert!(thread::panicking() || ended.is_ok(), "the loops");
        }
    }
}

pub fn name() -> ServerName<'static> {
    ServerName::try_from(NAME).unwrap()
}
