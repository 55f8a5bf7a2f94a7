//! TLS: the certificates to trust and to show, and messages for failed handshakes.

use super::file_value::{FileValue, Unusable, read};
use super::url::Host;
use crate::text::escaped;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{AlertDescription, ClientConfig, Error, InvalidMessage, RootCertStore};

/// A TLS configuration. `ca`: the file (PEM) of the certificates to trust; None: the system's certificates, which are
/// read once. `identity`: the files (PEM) of a certificate and its key, for servers that ask for a certificate; None:
/// redlock shows no certificate.
///
/// # Errors
/// A file that cannot be read or used, or a system without certificates to trust.
pub(crate) fn client(
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
) -> Result<FileValue<Arc<ClientConfig>>, Unusable> {
    let system = Arc::new(if ca.is_none() { system_roots()? } else { RootCertStore::empty() });
    let files = ca.iter().chain(identity.iter().flat_map(|(certificate, key)| [certificate, key]));
    FileValue::new(files.cloned().collect(), move || {
        let roots = match &ca {
            Some(path) => Arc::new(roots(path)?),
            None => Arc::clone(&system),
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.with_root_certificates(roots);
        let config = match &identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let config = builder.with_client_auth_cert(chain, secret(key)?);
                config.map_err(|error| match error.to_string() {
                    why if why.contains("UnsupportedCertVersion") => {
                        unusable(certificate, "it is an X.509 certificate of version 1; issue one of version 3")
                    }
                    why => unusable(key, format!("{why} ({})", certificate.display())),
                })?
            }
        };
        Ok(Arc::new(config))
    })
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err("this system has no certificates to trust; give some with --tls-ca".to_owned()),
        false => Ok(roots),
    }
}

fn roots(path: &Path) -> Result<RootCertStore, Unusable> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(roots)
}

/// The private key in a file.
fn secret(path: &Path) -> Result<PrivateKeyDer<'static>, Unusable> {
    let text = read(path).map_err(|error| error.within(|why| unusable(path, why)))?;
    let key = PrivateKeyDer::from_pem_slice(&text);
    let key = key.map_err(|error| match text.windows(9).any(|word| word == b"ENCRYPTED") {
        true => unusable(path, "it has a passphrase; openssl pkey -in FILE -out FILE removes it"),
        false => unusable(path, in_pem(&error, "key")),
    });
    Ok(key?)
}

/// The certificates in a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let text = read(path).map_err(|error| error.within(|why| unusable(path, why)))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.and_then(|found| if found.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(found) });
    Ok(found.map_err(|error| unusable(path, in_pem(&error, "certificate")))?)
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> String {
    format!("cannot use {}: {why}", path.display())
}

fn in_pem(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::NoItemsFound => format!("it has no {what} in PEM"),
        error => format!("not PEM: {error}"),
    }
}

/// Starts TLS with this host over an open connection.
///
/// # Errors
/// A lack of trust on either side, a broken connection, or a host whose name TLS does not accept.
pub(super) async fn over(stream: TcpStream, host: &Host, with: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let name = host.name.strip_suffix('.').unwrap_or(&host.name).to_owned();
    let name = ServerName::try_from(name).map_err(|_| io::Error::other("not a valid TLS server name"))?;
    TlsConnector::from(with).connect(name, stream).await
}

/// The text and the advice for an error that comes from a lack of trust. None for other errors, which may pass. An open
/// connection may fail like this, too: some servers reject the client's certificate only after the handshake.
pub(super) fn distrust(error: &Error) -> Option<(String, &'static str)> {
    let advice = match error {
        Error::InvalidCertificate(_) => "check --tls-ca, the host name in --redis and this machine's clock",
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => "use redis:// for a plain port",
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            // TLS 1.2 has no alert of its own for a missing certificate.
            | AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion,
        ) => "check --tls-cert and --tls-key",
        _ => return None,
    };
    Some((escaped(&error.to_string(), 300), advice))
}
