//! What a failure of TLS means, in words, and what to do next.

use crate::text::{escaped, first_of, rfc3339};
use std::time::Duration;
use tokio_rustls::rustls::pki_types::UnixTime;
use tokio_rustls::rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// A message shows at most this many of the names in a certificate.
const NAMES: usize = 5;

/// The meaning of a failure, and the advice; no advice if the failure may pass. An open connection may fail like this,
/// too: some servers reject the client's certificate only after the handshake.
pub(super) fn meaning(error: &Error) -> (String, Option<&'static str>) {
    let (why, advice) = match error {
        Error::InvalidCertificate(why) => {
            let (why, advice) = of_certificate(why);
            return (escaped(&why, 300), Some(advice));
        }
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            ("it does not speak TLS", Some("use redis:// for a plain port"))
        }
        Error::PeerIncompatible(_) => {
            ("it speaks TLS in no way that redlock knows", Some("let it speak TLS 1.2 or 1.3"))
        }
        _ => ("it breaks the rules of TLS", None),
    };
    (why.to_owned(), advice)
}

/// Most alerts are about the client's certificate.
fn of_alert(alert: AlertDescription) -> (&'static str, Option<&'static str>) {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked, CertificateUnknown,
        HandshakeFailure, ProtocolVersion, UnknownCA, UnsupportedCertificate,
    };
    let (why, advice) = match alert {
        CertificateRequired => ("it asks for a client certificate", "give --tls-cert and --tls-key"),
        CertificateExpired => ("it says that the client certificate has expired", "renew the one in --tls-cert"),
        CertificateRevoked => ("it says that the client certificate is revoked", "give another with --tls-cert"),
        UnknownCA => (
            "it does not trust the issuer of the client certificate",
            "check --tls-cert, and the server's tls-ca-cert-file",
        ),
        BadCertificate | UnsupportedCertificate | CertificateUnknown | AccessDenied => {
            ("it rejects the client certificate", "check --tls-cert and --tls-key")
        }
        // TLS 1.2 has no alert of its own for a missing certificate.
        HandshakeFailure => (
            "it asks for a client certificate, or for another cipher",
            "check --tls-cert and --tls-key, and its tls-ciphers",
        ),
        ProtocolVersion => ("it speaks another version of TLS", "let it speak TLS 1.2 or 1.3"),
        _ => return ("it ended the handshake", None),
    };
    (why, Some(advice))
}

fn of_certificate(error: &CertificateError) -> (String, &'static str) {
    use CertificateError as E;
    const ITSELF: &str = "give this certificate itself with --tls-ca; openssl s_client -connect HOST:PORT shows it";
    let (why, advice) = match error {
        E::BadEncoding => ("its certificate cannot be read", "let it show one of X.509 version 3"),
        E::ExpiredContext { not_after, .. } => {
            let why = format!("its certificate, or its issuer's, expired at {}", date(*not_after));
            return (why, "renew it, or set this machine's clock");
        }
        E::NotValidYetContext { not_before, .. } => {
            let why = format!("its certificate, or its issuer's, is valid only from {}", date(*not_before));
            return (why, "set this machine's clock, or wait");
        }
        E::NotValidForNameContext { expected, presented } => {
            // webpki writes DnsName("a") and IpAddress(10.0.0.1).
            let plain = |name: &String| {
                name.rsplit_once(['(']).map_or(name.as_str(), |(_, rest)| rest).trim_matches(['"', ')']).to_owned()
            };
            let all = presented.len() as u64;
            let names = match presented.is_empty() {
                true => "has no name".to_owned(),
                false => format!("is for {}", first_of(presented.iter().map(plain), NAMES, all)),
            };
            let why = format!("its certificate {names}, and not for {}", expected.to_str());
            return (why, "use a name of the certificate in --redis, or give the certificate itself with --tls-ca");
        }
        E::Expired => ("its certificate has expired", "renew it, or set this machine's clock"),
        E::NotValidYet => ("its certificate is not valid yet", "set this machine's clock, or wait"),
        E::Revoked => ("its certificate is revoked", "let it show another"),
        E::UnhandledCriticalExtension => {
            ("its certificate has a critical extension that redlock does not know", ITSELF)
        }
        E::UnknownIssuer => (
            "none of the trusted certificates has issued its certificate",
            "give the issuer's certificate, or the server's own, with --tls-ca",
        ),
        E::BadSignature => (
            "its certificate is not signed by the issuer that it names",
            "check that --tls-ca has the issuer's present certificate",
        ),
        E::UnsupportedSignatureAlgorithmContext { .. } | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            (
                "its certificate, or its issuer's, has a signature of an unsupported kind",
                "issue one signed with SHA-256",
            )
        }
        E::InvalidPurposeContext { .. } | E::InvalidPurpose => {
            ("its certificate is not for servers", "issue one for serverAuth, or give this one itself with --tls-ca")
        }
        E::Other(other) => match other.0.downcast_ref() {
            Some(webpki::Error::CaUsedAsEndEntity) => ("its certificate is that of an authority", ITSELF),
            Some(webpki::Error::UnsupportedCertVersion) => {
                ("its certificate is of X.509 version 1", "issue one of version 3")
            }
            Some(webpki::Error::EndEntityUsedAsCa | webpki::Error::PathLenConstraintViolated) => {
                ("a certificate of its chain may issue no others", ITSELF)
            }
            Some(webpki::Error::NameConstraintViolation) => {
                ("the issuer of its certificate may issue none for this name", ITSELF)
            }
            _ => ("its certificate breaks a rule of X.509", ITSELF),
        },
        _ => ("its certificate cannot be checked", ITSELF),
    };
    (why.to_owned(), advice)
}

fn date(time: UnixTime) -> String {
    rfc3339(Duration::from_secs(time.as_secs())).unwrap_or_else(|| "a distant day".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ExtendedKeyPurpose, OtherError, PeerIncompatible, PeerMisbehaved};

    #[test]
    fn every_reason_is_in_plain_words_with_an_advice_of_its_own() {
        use CertificateError as E;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let other = |error: webpki::Error| E::Other(OtherError(Arc::new(error)));
        let presented = vec!["DnsName(\"a.example\")".to_owned(), "IpAddress(10.0.0.1)".to_owned()];
        let expected = ServerName::try_from("b.example").expect("a name");
        for (error, why, advice) in [
            (E::BadEncoding, "cannot be read", "version 3"),
            (E::Expired, "has expired", "renew"),
            (E::ExpiredContext { time, not_after: time }, "expired at 2027-01-15T08:00:00.000Z", "renew"),
            (E::NotValidYet, "not valid yet", "clock"),
            (E::NotValidYetContext { time, not_before: time }, "valid only from 2027-01-15", "clock"),
            (E::Revoked, "revoked", "another"),
            (E::UnhandledCriticalExtension, "extension", "--tls-ca"),
            (E::UnknownIssuer, "has issued", "or the server's own, with --tls-ca"),
            (E::UnknownRevocationStatus, "cannot be checked", "--tls-ca"),
            (E::BadSignature, "not signed", "issuer's present certificate"),
            (
                E::NotValidForNameContext { expected: expected.clone(), presented },
                "is for a.example, 10.0.0.1, and not for b.example",
                "--redis",
            ),
            (
                E::NotValidForNameContext { expected, presented: Vec::new() },
                "has no name, and not for b.example",
                "--redis",
            ),
            (
                E::InvalidPurposeContext { required: ExtendedKeyPurpose::ServerAuth, presented: Vec::new() },
                "not for servers",
                "serverAuth",
            ),
            (other(webpki::Error::CaUsedAsEndEntity), "of an authority", "itself with --tls-ca"),
            (other(webpki::Error::UnsupportedCertVersion), "version 1", "version 3"),
            (other(webpki::Error::EndEntityUsedAsCa), "may issue no others", "itself"),
            (other(webpki::Error::NameConstraintViolation), "none for this name", "itself"),
            (other(webpki::Error::MalformedExtensions), "a rule of X.509", "itself"),
        ] {
            let (met, advised) = meaning(&Error::InvalidCertificate(error));
            assert!(met.contains(why) && advised.is_some_and(|text| text.contains(advice)), "{met}; {advised:?}");
        }
        for alert in (0..=u8::MAX).map(AlertDescription::from) {
            let (why, advice) = meaning(&Error::AlertReceived(alert));
            assert_eq!(advice.is_none(), why == "it ended the handshake", "{why}");
        }
        for error in [PeerMisbehaved::TooManyEmptyFragments.into(), Error::DecryptError] {
            assert_eq!(meaning(&error), ("it breaks the rules of TLS".to_owned(), None));
        }
        let (_, advice) = meaning(&PeerIncompatible::ServerDoesNotSupportTls12Or13.into());
        assert_eq!(advice, Some("let it speak TLS 1.2 or 1.3"));
    }
}
