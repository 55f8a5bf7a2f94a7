//! TLS: the certificates to trust and to show, and the handshake.

use super::distrust;
use super::file_value::{FileValue, Unusable, read};
use super::url::Host;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// A TLS configuration. `ca`: the file (PEM) of the certificates to trust, or else the system's, which are read once.
/// `identity`: the files (PEM) of a certificate and its key, for servers that ask for one, or else redlock shows none.
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
        let trusted = match &ca {
            Some(path) => Trusted::only(path)?,
            None => Trusted::new(Arc::clone(&system), Vec::new())?,
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(trusted));
        let config = match &identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let config = builder.with_client_auth_cert(certificates(certificate)?, secret(key)?);
                config.map_err(|error| match error {
                    Error::InconsistentKeys(_) => {
                        unusable(key, format!("it is not the key of {}", certificate.display()))
                    }
                    Error::InvalidCertificate(_) => {
                        unusable(certificate, "it is no X.509 certificate of version 3; issue one of version 3")
                    }
                    _ => unusable(key, "it is no RSA, ECDSA or Ed25519 key that redlock can use"),
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

/// The certificates that are trusted: those of issuers, and those of servers themselves.
#[derive(Debug)]
struct Trusted {
    issuers: Arc<WebPkiServerVerifier>,
    themselves: Vec<CertificateDer<'static>>,
}

impl Trusted {
    /// Only the certificates in this file. Each may be an issuer's, or a server's own: many servers show a certificate
    /// that they have issued for themselves.
    fn only(path: &Path) -> Result<Trusted, Unusable> {
        let (mut roots, themselves) = (RootCertStore::empty(), certificates(path)?);
        for certificate in themselves.iter().cloned() {
            roots.add(certificate).map_err(|error| unusable(path, distrust::meaning(&error).0))?;
        }
        Trusted::new(Arc::new(roots), themselves)
    }

    fn new(roots: Arc<RootCertStore>, themselves: Vec<CertificateDer<'static>>) -> Result<Trusted, Unusable> {
        let issuers = WebPkiServerVerifier::builder_with_provider(roots, Arc::new(ring::default_provider())).build();
        Ok(Trusted { issuers: issuers.map_err(|error| error.to_string())?, themselves })
    }
}

impl ServerCertVerifier for Trusted {
    /// A certificate that is trusted itself need not be for this name, or for servers. But it may have expired.
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{BadEncoding, Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        if !self.themselves.iter().any(|own| own == shown) {
            return self.issuers.verify_server_cert(shown, chain, name, ocsp, now);
        }
        // Without a chain, an error about the time is about this certificate. webpki looks at the time first.
        match self.issuers.verify_server_cert(shown, &[], name, ocsp, now) {
            Err(Error::InvalidCertificate(
                why @ (BadEncoding | Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }),
            )) => Err(why.into()),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issuers.verify_tls12_signature(message, shown, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issuers.verify_tls13_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issuers.supported_verify_schemes()
    }
}

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
        pem::Error::MissingSectionEnd { .. } => "not PEM: it has no end".to_owned(),
        _ => "not PEM: it is damaged".to_owned(),
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
