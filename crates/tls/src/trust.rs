//! The authorities whose certificates count: those of the system, or of a file.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The authorities that certify a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The authorities that this system trusts; `SSL_CERT_FILE` names others.
    System,
    /// Those in a file, in PEM, and no others.
    File(PathBuf),
}

impl Trust {
    /// The settings of handshakes by this trust. The error states what to do; `setting` is the one
    /// that names a file.
    pub fn config(&self, alpn: &[u8], setting: &str) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        match self {
            Trust::System => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    let why = found.errors.first().map_or(String::new(), |it| format!(" ({it})"));
                    return Err(format!(
                        "this system has no certificates of authorities{why}; install them \
                         (Debian: ca-certificates), or give --{setting} FILE"
                    ));
                }
            }
            Trust::File(path) => {
                let path_text = path.display();
                let wrong = |what: String| format!("{path_text}: {what}");
                for certificate in CertificateDer::pem_file_iter(path)
                    .map_err(|error| wrong(format!("{error}; expected certificates in PEM")))?
                {
                    let certificate =
                        certificate.map_err(|error| wrong(format!("{error}; expected PEM")))?;
                    roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(wrong("there is no certificate in PEM in it".to_owned()));
                }
            }
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        Ok(config)
    }
}
