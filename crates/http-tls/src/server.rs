//! The TLS server: binds, starts, reloads and ends.
//!
//! ```text
//! start    certificate read, sockets bound, a runtime with a thread for each event loop (at most THREADS_MAX)
//! drain    nothing is accepted; HTTP/2 clients get GOAWAY; requests are answered
//! finish   what event loops have written is sent, for a while; then the runtime's threads end
//! ```

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_http::connection::ClientLimits;
use larder_http::handoff::CloseState;
use larder_http::options::OriginAddress;
use larder_http::tls_bridge::{Acceptor, Running, TlsBridge};
use larder_serve::metrics::Metric;
use larder_tls::{Certificate, Files, Trust, listen};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::clients::Clients;
use crate::limits::{Counters, InForce, Limits};
use crate::listener::{ALPN, Listener};
use crate::origins::Origins;

/// Threads of the runtime, however many event loops there are.
const THREADS_MAX: usize = 16;

/// How often closing connections are checked.
const LOOK: Duration = Duration::from_millis(5);

/// The settings of clients and origins over TLS.
#[derive(Debug, Clone)]
pub struct Encrypted {
    /// Addresses for clients.
    pub listen: Vec<SocketAddr>,
    /// The certificate for them; needed where there is an address.
    pub certificate: Option<Files>,
    /// The authorities that may certify origins; `None`: there are no origins over TLS.
    pub trust: Option<Trust>,
    /// Threads.
    pub threads: usize,
    /// Limits of clients.
    pub limits: Limits,
}

/// A running server.
#[derive(Debug)]
struct Serving {
    limits: InForce,
    clients: Arc<Clients>,
    origins: Origins,
    certificate: Option<Arc<Certificate>>,
    stop: watch::Sender<bool>,
    /// `None` after the end.
    runtime: Option<Runtime>,
    listeners: Vec<(&'static str, String)>,
}

impl TlsBridge for Encrypted {
    fn has_clients(&self) -> bool {
        !self.listen.is_empty()
    }

    fn start(&self, acceptor: Acceptor) -> Result<Arc<dyn Running>, String> {
        let certificate = self.certificate.clone().map(Certificate::load).transpose()?;
        let certificate = certificate.map(Arc::new);
        let runtime = Builder::new_multi_thread()
            .worker_threads(self.threads.clamp(1, THREADS_MAX))
            .thread_name("http-tls")
            .enable_all()
            .build()
            .map_err(|error| format!("threads for TLS: {error}"))?;
        let (stop, stopped) = watch::channel(false);
        let counters = Arc::new(Counters::default());
        let limits = InForce::new(self.limits.clone());
        let origins = Origins::new(self.trust.as_ref(), limits.clone(), counters.clone())?;
        let clients = Arc::new(Clients::new(acceptor, counters, limits.clone()));
        let mut listeners = Vec::new();
        // Sockets of tokio belong to the runtime in which they are made.
        let context = runtime.enter();
        for &address in &self.listen {
            let certificate = certificate.as_ref().ok_or("TLS needs a certificate")?;
            let acceptor = TlsAcceptor::from(Arc::new(certificate.config(&ALPN)?));
            let (listener, address) = listen::bind(address)
                .map_err(|error| format!("cannot listen at {address}: {error}"))?;
            listeners.push(("https", format!("https://{address}")));
            let host = Arc::new(Listener(clients.clone()));
            runtime.spawn(listen::accept(host, listener, acceptor, stopped.clone()));
        }
        drop(context);
        let runtime = Some(runtime);
        Ok(Arc::new(Serving { limits, clients, origins, certificate, stop, runtime, listeners }))
    }
}

impl Running for Serving {
    fn listeners(&self) -> Vec<(&'static str, String)> {
        self.listeners.clone()
    }

    fn reload(&self) -> String {
        match self.certificate.as_ref().map(|it| it.reload()) {
            Some(Ok(())) => "certificate reloaded".to_owned(),
            Some(Err(error)) => format!("certificate unchanged: {error}"),
            None => "there is no certificate to load anew".to_owned(),
        }
    }

    fn follow(&self, limits: &ClientLimits) {
        self.limits.follow(limits);
    }

    fn metrics(&self) -> Vec<Metric> {
        self.clients.metrics().collect()
    }

    fn connect(&self, origin: &OriginAddress) -> io::Result<(UnixStream, CloseState)> {
        let runtime = self.runtime.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let _context = runtime.enter();
        self.origins.connect(origin)
    }

    fn drain(&self) {
        self.stop.send_replace(true);
    }

    fn finish(&self, patience: Duration) {
        self.drain();
        let until = Instant::now() + patience;
        while self.clients.open() > 0 && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // This does not wait: tasks may be aborted.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
