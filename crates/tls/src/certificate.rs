//! The server's certificate, which can be replaced while it serves.
//!
//! All transports of a server use the same [`Certificate`] for each handshake, so a renewed one
//! counts from the next handshake on, and open connections stay. Each transport has its own ALPN
//! token (RFC 7858 "dot", RFC 9113 "h2", RFC 9250 "doq", RFC 7301 "http/1.1"): a client that names
//! others is refused, so that bytes meant for one protocol are not read as another (the ALPACA
//! attack). A client that names none is accepted.
//!
//! TLS 1.2 and 1.3, with the cipher suites of rustls; 0-RTT is off, since its data can be replayed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The chain, its own certificate first, in PEM.
    pub certificates: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
}

/// A certificate in use.
pub struct Certificate {
    files: Files,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({:?})", self.files.certificates)
    }
}

impl Certificate {
    /// Reads the files. The error states what is wrong and what to do.
    pub fn load(files: Files) -> Result<Certificate, String> {
        let provider = Arc::new(default_provider());
        let current = RwLock::new(Arc::new(read(&files, &provider)?));
        Ok(Certificate { files, provider, current })
    }

    /// Reads the files again; after an error the certificate is as it was.
    pub fn reload(&self) -> Result<(), String> {
        let fresh = Arc::new(read(&self.files, &self.provider)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The settings of a transport with these ALPN tokens, the preferred one first; QUIC has TLS
    /// 1.3 only.
    pub fn config(self: &Arc<Certificate>, alpn: &[&[u8]]) -> Result<ServerConfig, String> {
        let wrong = |error: rustls::Error| format!("TLS cannot be set up: {error}");
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = alpn.iter().map(|token| token.to_vec()).collect();
        // Clients keep what is needed to resume sessions, so nothing is stored here.
        config.ticketer = Ticketer::new().map_err(wrong)?;
        Ok(config)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn read(files: &Files, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let Files { certificates, key } = files;
    let wrong = |path: &Path, error: pem::Error, what: &str| match error {
        pem::Error::Io(error) => {
            format!("{}: {error}; it must be a file that can be read", path.display())
        }
        pem::Error::NoItemsFound => format!("{}: there is no {what} in PEM in it", path.display()),
        error => format!("{}: {error}; expected PEM", path.display()),
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(certificates, error, "certificate"))?;
    if chain.is_empty() {
        return Err(wrong(certificates, pem::Error::NoItemsFound, "certificate"));
    }
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, error, "private key"))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| {
        let (chain, key) = (certificates.display(), key.display());
        format!("{chain} and {key} do not fit together: {error}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey as Made, generate_simple_self_signed};
    use std::fs;

    /// Files that are missing, empty, something else, or of different keys give different errors
    /// that name the file; a reload that fails leaves what was loaded.
    #[test]
    fn wrong_files_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
        let files = Files { certificates: chain.clone(), key: key.clone() };
        let make = || {
            let Made { cert, signing_key } =
                generate_simple_self_signed(["dns.example".to_owned()]).unwrap();
            (cert.pem(), signing_key.serialize_pem())
        };
        let load = || Certificate::load(files.clone()).map(drop);
        assert!(load().unwrap_err().contains("chain.pem: No such file"));
        fs::write(&chain, "").unwrap();
        assert!(load().unwrap_err().contains("chain.pem: there is no certificate"));
        let (one, one_key) = make();
        let (two, two_key) = make();
        fs::write(&chain, &one).unwrap();
        fs::write(&key, &one).unwrap();
        assert!(load().unwrap_err().contains("key.pem: there is no private key"));
        fs::write(&key, &two_key).unwrap();
        assert!(load().unwrap_err().contains("do not fit together"));
        fs::write(&key, &one_key).unwrap();
        let certificate = Certificate::load(files.clone()).unwrap();
        let loaded = || certificate.current.read().unwrap().cert[0].clone();
        let before = loaded();
        fs::write(&chain, "rubbish").unwrap();
        assert!(certificate.reload().is_err());
        assert_eq!(loaded(), before);
        fs::write(&chain, &two).unwrap();
        fs::write(&key, &two_key).unwrap();
        certificate.reload().unwrap();
        assert_ne!(loaded(), before);
    }
}
