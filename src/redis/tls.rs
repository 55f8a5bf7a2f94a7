//! TLS: which certificates to trust and to show, and what a handshake that fails means in words.

use super::address::Host;
use super::rotated::{Rotated, read};
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
use tokio_rustls::rustls::{AlertDescription, CertificateError, ClientConfig, Error, InvalidMessage, RootCertStore};

/// Why one side of a TLS connection does not trust the other, in words that continue "10.0.0.1:6379 …", and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Untrusted {
    pub(super) what: String,
    pub(crate) advice: &'static str,
}

/// Trusts the certificates in `ca` (PEM), or the system's without it, and shows `identity`, a certificate and its key (PEM),
/// to a server that asks for one. The system's are read once.
///
/// # Errors
/// Which file cannot be read or used.
pub(crate) fn client(
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
) -> Result<Rotated<TlsConnector>, String> {
    let system = Arc::new(if ca.is_none() { system_roots()? } else { RootCertStore::empty() });
    let files = ca.iter().chain(identity.iter().flat_map(|(certificate, key)| [certificate, key]));
    Rotated::new(files.cloned().collect(), move || {
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
                let secret = PrivateKeyDer::from_pem_slice(&read(key).map_err(|why| unusable(key, why))?);
                let secret = secret.map_err(|error| unusable(key, in_pem(&error, "unencrypted key")))?;
                let config = builder.with_client_auth_cert(chain, secret);
                config.map_err(|error| unusable(key, format!("{error} ({})", certificate.display())))?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    })
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err("this system has no certificates to trust; --tls-ca names some".to_owned()),
        false => Ok(roots),
    }
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(roots)
}

/// The certificates in a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path).map_err(|why| unusable(path, why))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.and_then(|found| if found.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(found) });
    found.map_err(|error| unusable(path, in_pem(&error, "certificate")))
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> String {
    format!("cannot use {}: {why}", path.display())
}

fn in_pem(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::NoItemsFound => format!("no {what} in PEM in it"),
        error => format!("not PEM: {error}"),
    }
}

/// Speaks TLS to this host over an open connection.
///
/// # Errors
/// Why one side does not trust the other, or what went wrong with the connection.
pub(super) async fn over(stream: TcpStream, host: &Host, with: TlsConnector) -> io::Result<TlsStream<TcpStream>> {
    let name = host.name.strip_suffix('.').unwrap_or(&host.name).to_owned();
    let name = ServerName::try_from(name).map_err(|_| io::Error::other("no certificate has such a name"))?;
    with.connect(name, stream).await
}

/// Why the two sides do not trust each other; none for what trying again may mend. After the handshake too: a server may
/// tell only then what it thinks of the client's certificate.
pub(super) fn distrust(error: &Error) -> Option<Untrusted> {
    let (what, advice) = match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            ("does not speak TLS".to_owned(), "use redis:// for a plain port")
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            ("wants a client certificate".to_owned(), IDENTITY)
        }
        Error::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied),
        ) => (format!("refuses the client certificate: {alert:?}"), IDENTITY),
        // With TLS 1.2 a missing certificate is no more than that.
        Error::AlertReceived(alert @ (AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion)) => {
            (format!("refuses the TLS handshake: {alert:?}"), "does it want a client certificate, or TLS before 1.2?")
        }
        _ => return None,
    };
    Some(Untrusted { what, advice })
}

const IDENTITY: &str = "give one with --tls-cert and --tls-key";

/// What is wrong with the server's certificate.
fn certificate(error: &CertificateError) -> (String, &'static str) {
    const CLOCK: &str = "is this machine's clock right?";
    match error {
        CertificateError::NotValidForNameContext { expected, presented } => {
            // DnsName("a"), IpAddress(10.0.0.1)
            let bare = |name: &String| name.split(['(', ')']).nth(1).unwrap_or(name).replace('"', "");
            let names = match presented.iter().map(bare).collect::<Vec<_>>().join(", ") {
                names if names.is_empty() => "no name (subjectAltName)".to_owned(),
                names => escaped(&names, 200),
            };
            (format!("presented a certificate for {names}, not for {}", expected.to_str()), "is --redis right?")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("presented a certificate that has expired".to_owned(), CLOCK)
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("presented a certificate that is not valid yet".to_owned(), CLOCK)
        }
        // Of the same name, but with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            ("presented a certificate from an unknown CA".to_owned(), "--tls-ca names the CA to trust")
        }
        // Other programs put up with that.
        error if error.to_string().contains("CaUsedAsEndEntity") => {
            ("presented the certificate of a CA as its own".to_owned(), "issue one for the server, with CA:FALSE")
        }
        error => {
            (format!("presented a certificate that cannot be used: {}", escaped(&error.to_string(), 200)), "replace it")
        }
    }
}
