//! The server's certificate and key, in files that may be replaced: the kubelet does so when their Secret changes.

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::cell::RefCell;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of the files, as in a Secret of type kubernetes.io/tls.
const FILES: [&str; 2] = ["tls.crt", "tls.key"];

/// Why the certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum CertificateError {
    #[error("{path}: cannot look at it", path = .path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error("{path}: cannot read it as PEM", path = .path.display())]
    Read { path: PathBuf, source: PemError },
    #[error("{path}: certificate and key cannot be used together", path = .path.display())]
    Use { path: PathBuf, source: rustls::Error },
}

/// Certificate and key of a directory.
pub struct Certificate {
    directory: PathBuf,
    last: RefCell<Last>,
}

struct Last {
    version: Version,
    config: Arc<ServerConfig>,
}

/// What changes with the files.
type Version = [(u64, i64, i64); 2];

impl Certificate {
    /// Reads them.
    pub fn read(directory: PathBuf) -> Result<Certificate, CertificateError> {
        let last = RefCell::new(Last { version: version(&directory)?, config: config(&directory)? });
        Ok(Certificate { directory, last })
    }

    /// For a new connection. Files that have changed are read again; while that is not possible, what was there before counts.
    pub fn config(&self) -> Arc<ServerConfig> {
        let mut last = self.last.borrow_mut();
        match version(&self.directory) {
            Ok(new) if new != last.version => match config(&self.directory) {
                Ok(config) => {
                    tracing::info!("{}: a new certificate", self.directory.display());
                    *last = Last { version: new, config };
                }
                Err(error) => tracing::warn!("the certificate stays: {}", sidestep_error::chain(&error)),
            },
            _ => {}
        }
        Arc::clone(&last.config)
    }
}

fn version(directory: &Path) -> Result<Version, CertificateError> {
    let of = |meta: Metadata| (meta.ino(), meta.ctime(), meta.ctime_nsec());
    let one = |name| {
        let path = directory.join(name);
        path.metadata().map(of).map_err(|source| CertificateError::Look { path, source })
    };
    Ok([one(FILES[0])?, one(FILES[1])?])
}

fn config(directory: &Path) -> Result<Arc<ServerConfig>, CertificateError> {
    let [certificates, key] = FILES.map(|name| directory.join(name));
    let failed = |path: &Path, source| CertificateError::Read { path: path.into(), source };
    let chain = CertificateDer::pem_file_iter(&certificates).and_then(Iterator::collect);
    let chain: Vec<_> = chain.map_err(|source| failed(&certificates, source))?;
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|source| failed(&key, source))?;
    let unusable = |source| CertificateError::Use { path: directory.into(), source };
    let builder = ServerConfig::builder_with_provider(default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
    Ok(builder.with_no_client_auth().with_single_cert(chain, key).map_err(unusable)?.into())
}
