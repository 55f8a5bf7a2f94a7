//! A server that speaks TLS, with certificates made by openssl(1).

use super::{Directory, Redis, Where, cannot_start};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A certificate authority of one test, in a directory with its own certificate and all that it issued.
#[derive(Debug)]
pub(crate) struct Authority(Directory);

/// Files in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let authority = Authority(Directory::new());
        let arguments = ["req", "-x509", "-subj", "/CN=authority", "-days", "2", "-out", "ca.pem"];
        authority.openssl(&arguments, Some("ca.key"));
        authority
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.0.path().join("ca.pem")
    }

    pub(crate) fn own(&self) -> Certificate {
        Certificate { certificate: self.certificate(), key: self.certificate().with_extension("key") }
    }

    /// A certificate for these names ("DNS:localhost,IP:127.0.0.1"; empty: no name), valid for this many days from now,
    /// or expired if `days` is negative.
    pub(crate) fn issue(&self, names: &str, days: i32) -> Certificate {
        static SERIAL: AtomicU32 = AtomicU32::new(1);
        let (serial, days) = (SERIAL.fetch_add(1, Ordering::Relaxed).to_string(), days.to_string());
        let file = |extension: &str| format!("{serial}.{extension}");
        let (key, request, extensions, certificate) = (file("key"), file("csr"), file("ext"), file("pem"));
        let names = if names.is_empty() { String::new() } else { format!("subjectAltName={names}\n") };
        std::fs::write(self.0.path().join(&extensions), format!("basicConstraints=CA:FALSE\n{names}")).unwrap();
        self.openssl(&["req", "-new", "-subj", "/CN=issued", "-out", &request], Some(&key));
        let issue = ["x509", "-req", "-in", &request, "-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", &serial];
        let details = ["-days", &days, "-extfile", &extensions, "-out", &certificate];
        self.openssl(&[&issue[..], &details[..]].concat(), None);
        Certificate { certificate: self.0.path().join(certificate), key: self.0.path().join(key) }
    }

    /// Runs openssl. With `new_key`, it also writes a new key into the file of this name.
    fn openssl(&self, arguments: &[&str], new_key: Option<&str>) {
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        if let Some(file) = new_key {
            command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", file]);
        }
        let output = command.output().unwrap_or_else(|error| cannot_start(&command, &error));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Certificate {
    /// The arguments of a server that shows this certificate to clients, replicas and Sentinels. A server of a Cluster
    /// also needs `--tls-cluster yes`.
    pub(crate) fn everywhere(&self, authority: &Authority) -> Vec<String> {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let files = [path(&self.certificate), path(&self.key), path(&authority.certificate())];
        let files =
            ["--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file"].into_iter().map(str::to_owned).zip(files);
        let yes = ["--tls-replication", "yes", "--tls-auth-clients", "no"].map(str::to_owned);
        files.flat_map(|(name, file)| [name, file]).chain(yes).collect()
    }
}

/// A server that speaks TLS on a port of `localhost`. The test itself uses the Unix socket, without TLS.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) redis: Redis,
    port: u16,
    /// The certificates that redlock trusts. A test may replace the file's content.
    ca: PathBuf,
}

impl Tls {
    pub(crate) fn start() -> (Tls, Authority) {
        let authority = Authority::new();
        let tls = Tls::with(&authority, &authority.issue("DNS:localhost", 2), &["--tls-auth-clients", "no"]);
        (tls, authority)
    }

    pub(crate) fn with(authority: &Authority, shown: &Certificate, arguments: &[&str]) -> Tls {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let ca = path(&authority.certificate());
        let (certificate, key) = (path(&shown.certificate), path(&shown.key));
        let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
        let mut port = 0;
        let redis = Redis::on_free_port(|free| {
            port = free;
            let number = free.to_string();
            Redis::launch(&[&["--tls-port", &number], &files[..], arguments].concat(), None)
        });
        Tls { redis, port, ca: authority.certificate() }
    }

    pub(crate) fn show(&self, shown: &Certificate) {
        let Certificate { certificate, key } = shown;
        let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
        self.redis.command(&["CONFIG", "SET", "tls-cert-file", certificate, "tls-key-file", key]);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// As messages call it.
    pub(crate) fn address(&self) -> String {
        format!("localhost:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("rediss://{}", self.address())
    }
}

impl Where for Tls {
    fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("REDLOCK_TLS_CA".to_owned(), self.ca.to_str().unwrap().to_owned())]
    }
}

impl Where for Vec<Tls> {
    fn urls(&self) -> Vec<String> {
        self.iter().map(Tls::url).collect()
    }

    fn environment(&self) -> Vec<(String, String)> {
        self[0].environment()
    }
}
