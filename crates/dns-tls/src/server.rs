//! The server of encrypted transports: start, reload, end.
//!
//! ```text
//! start    reads the certificate, binds sockets, starts a runtime with a thread for each core (at most THREADS_MAX)
//! drain    accepts nothing; connections send their responses, announce the end, and close
//! finish   waits half a second for the others, then ends the runtime's threads
//! ```

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_dns::metrics::Metric;
use larder_dns::side_query::{Running, SideSender, SideServer};
use quinn::{Endpoint, EndpointConfig, TokioRuntime};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::hub::Hub;
use crate::limits::Limits;
use crate::listen::{Listener, Transport};
use crate::quic;
use larder_tls::{Certificate, Files, listen};

/// The path of RFC 8484's examples, which clients try by default.
pub const HTTPS_PATH: &str = "/dns-query";

/// Threads of the runtime, at most.
const THREADS_MAX: usize = 16;

/// How long connections may take to close after the cores have ended.
const FINISH: Duration = Duration::from_millis(500);

/// How often the server checks meanwhile whether they have closed.
const LOOK: Duration = Duration::from_millis(5);

/// Addresses, certificate and limits.
#[derive(Debug, Clone)]
pub struct Encrypted {
    /// Addresses of DNS over TLS.
    pub tls: Vec<SocketAddr>,
    /// Addresses of DNS over HTTPS.
    pub https: Vec<SocketAddr>,
    /// The path of DNS over HTTPS; it begins with `/`.
    pub https_path: String,
    /// Addresses of DNS over QUIC.
    pub quic: Vec<SocketAddr>,
    /// The certificate for all of them.
    pub certificate: Files,
    /// Limits of clients.
    pub limits: Limits,
}

/// A running server.
struct Serving {
    hub: Arc<Hub>,
    certificate: Arc<Certificate>,
    stop: watch::Sender<bool>,
    /// `None` after the end.
    runtime: Option<Runtime>,
    listeners: Vec<(&'static str, String)>,
}

impl SideServer for Encrypted {
    fn start(&self, senders: Vec<SideSender>) -> Result<Arc<dyn Running>, String> {
        let certificate = Arc::new(Certificate::load(self.certificate.clone())?);
        let threads = senders.len().clamp(1, THREADS_MAX);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("dns-encrypted")
            .enable_all()
            .build()
            .map_err(|error| format!("threads for encrypted transports: {error}"))?;
        let (stop, stopped) = watch::channel(false);
        let hub = Arc::new(Hub::new(senders, self.limits.clone()));
        let mut listeners = Vec::new();
        // Sockets of tokio and quinn belong to the runtime that they are made in.
        let context = runtime.enter();
        let over_tcp = [
            (&self.tls, "dot", Transport::Tls),
            (&self.https, "h2", Transport::Https(self.https_path.as_str().into())),
        ];
        for (addresses, alpn, transport) in over_tcp {
            let acceptor = TlsAcceptor::from(Arc::new(certificate.config(&[alpn.as_bytes()])?));
            for &address in addresses {
                let (listener, address) =
                    listen::bind(address).map_err(|error| cannot_listen(address, &error))?;
                listeners.push(match &transport {
                    Transport::Tls => ("tls", address.to_string()),
                    Transport::Https(path) => ("https", format!("https://{address}{path}")),
                });
                let host = Listener { hub: hub.clone(), transport: transport.clone() };
                let (acceptor, stopped) = (acceptor.clone(), stopped.clone());
                runtime.spawn(listen::accept(Arc::new(host), listener, acceptor, stopped));
            }
        }
        for &address in &self.quic {
            let config = quic::config(certificate.config(&[b"doq"])?, &self.limits)?;
            let (endpoint, address) =
                bind_quic(address, config).map_err(|error| cannot_listen(address, &error))?;
            listeners.push(("quic", address.to_string()));
            runtime.spawn(quic::accept(hub.clone(), endpoint, stopped.clone()));
        }
        drop(context);
        Ok(Arc::new(Serving { hub, certificate, stop, runtime: Some(runtime), listeners }))
    }
}

fn bind_quic(
    address: SocketAddr,
    config: quinn::ServerConfig,
) -> io::Result<(Endpoint, SocketAddr)> {
    let socket = UdpSocket::bind(address)?;
    let address = socket.local_addr()?;
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?;
    Ok((endpoint, address))
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> String {
    format!("cannot listen at {address}: {error}")
}

impl Running for Serving {
    fn listeners(&self) -> Vec<(&'static str, String)> {
        self.listeners.clone()
    }

    fn reload(&self) -> String {
        match self.certificate.reload() {
            Ok(()) => "certificate reloaded".to_owned(),
            Err(error) => format!("certificate unchanged: {error}"),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        self.hub.metrics()
    }

    fn drain(&self) {
        self.stop.send_replace(true);
    }

    fn finish(&self) {
        self.drain();
        let until = Instant::now() + FINISH;
        while self.hub.open() > 0 && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Does not wait: each task may be aborted anywhere.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
