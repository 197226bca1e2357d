//! Certificates for a test in files, stores that trust them, and servers that present them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;

/// Writes a certificate for a name and 127.0.0.1 to `chain.pem` of a folder, and its key to
/// `key.pem`.
pub fn write_certificate(folder: &Path, name: &str) {
    let names = [name.to_owned(), "127.0.0.1".to_owned()];
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(names).expect("a certificate");
    fs::write(folder.join("chain.pem"), cert.pem()).expect("written");
    fs::write(folder.join("key.pem"), signing_key.serialize_pem()).expect("written");
}

/// A certificate in its own folder.
#[derive(Debug)]
pub struct Identity {
    folder: TempDir,
}

impl Identity {
    /// A certificate for a name and 127.0.0.1.
    pub fn new(name: &str) -> Identity {
        let identity = Identity { folder: tempfile::tempdir().expect("a folder") };
        identity.renew(name);
        identity
    }

    /// Replaces it with a new one.
    pub fn renew(&self, name: &str) {
        write_certificate(self.folder.path(), name);
    }

    /// The file of the certificate.
    pub fn chain(&self) -> PathBuf {
        self.folder.path().join("chain.pem")
    }

    /// The file of the key.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// The certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.chain()).expect("a certificate")
    }

    /// A client configuration that trusts it, and offers these protocols.
    pub fn client(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        client_of(self.certificate(), alpn)
    }

    /// A server configuration that presents it, and accepts these protocols.
    pub fn server(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::from_pem_file(self.key()).expect("a key");
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate()], key)
            .expect("its key");
        config.alpn_protocols = tokens(alpn);
        Arc::new(config)
    }
}

/// A client configuration that trusts a certificate, and offers these protocols.
pub fn client_of(certificate: CertificateDer<'static>, alpn: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = tokens(alpn);
    Arc::new(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn tokens(alpn: &[&str]) -> Vec<Vec<u8>> {
    alpn.iter().map(|token| token.as_bytes().to_vec()).collect()
}
