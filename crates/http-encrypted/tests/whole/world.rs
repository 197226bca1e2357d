//! A server with a certificate of its own before an origin that a closure plays, and clients.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use larder_http::options::{Options, OriginAddress};
use larder_http::server::Running;
use larder_http_encrypted::{Encrypted, Files, Limits, Trust};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use tempfile::TempDir;

/// How long something is waited for that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const NAME: &str = "http.example";

/// A stream that an origin answers on.
pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A certificate of one's own, and its files.
pub struct Made {
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
    pub files: Files,
    _folder: TempDir,
}

impl Made {
    pub fn new(name: &str) -> Made {
        let folder = tempfile::tempdir().unwrap();
        let files = Files {
            certificates: folder.path().join("chain.pem"),
            key: folder.path().join("key.pem"),
        };
        let (certificate, key) = write(&files, name);
        Made { certificate, key, files, _folder: folder }
    }
}

/// Makes a certificate, and writes it to these files.
pub fn write(files: &Files, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let names = [name.to_owned(), "127.0.0.1".to_owned()];
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    fs::write(&files.certificates, cert.pem()).unwrap();
    fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    (cert.der().clone(), key)
}

/// An origin: each connection is a thread, and each request's head is given to the closure, which answers; false: it is closed.
pub fn origin(
    answer: impl Fn(&str, &mut dyn Stream) -> bool + Send + Sync + 'static,
    tls: Option<Arc<ServerConfig>>,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, asked) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let its = asked.clone();
    // It ends with the process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, answer, asked, tls) =
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
                    asked.fetch_add(1, Ordering::SeqCst);
                    if !answer(&head, &mut *stream) {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

/// The head of a request or response; `None` where there is none.
pub fn head(stream: &mut (impl Read + ?Sized)) -> Option<String> {
    let (mut head, mut octet) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut octet) {
            Ok(1) => head.push(octet[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8(head).unwrap())
}

/// An answer with a body that has a length.
pub fn answer(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

pub struct World {
    pub running: Option<Running>,
    pub made: Made,
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
        let made = Made::new(NAME);
        let encrypted = Encrypted {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            certificate: Some(made.files.clone()),
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
        options.beside = Some(Arc::new(encrypted));
        adjust(&mut options);
        let running = Running::start(&options).unwrap();
        let line = running.beside().unwrap().lines().remove(0);
        let tls = line.rsplit_once("https://").unwrap().1.parse().unwrap();
        World { running: Some(running), made, tls }
    }

    pub fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub fn clear(&self) -> TcpStream {
        let stream = TcpStream::connect(self.running().addresses()[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A client that believes the server and names these protocols.
    pub fn config(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.made.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|token| token.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A client of HTTP/1.1.
    pub fn http1(&self, alpn: &[&str]) -> StreamOwned<ClientConnection, TcpStream> {
        let stream = TcpStream::connect(self.tls).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        StreamOwned::new(ClientConnection::new(self.config(alpn), name()).unwrap(), stream)
    }

    pub fn count(&self, name: &str) -> u64 {
        let gauges = self.running().beside().unwrap().gauges();
        let counts: HashMap<_, _> = gauges.into_iter().map(|it| (it.field(), it.value)).collect();
        counts[name] as u64
    }

    /// Waits until it is so.
    pub fn until(&self, what: &str, is_so: impl Fn(&World) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let gauges = self.running().beside().unwrap().gauges();
            assert!(begun.elapsed() < PATIENCE, "{what}: {gauges:?}");
            thread::sleep(Duration::from_millis(5));
        }
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
