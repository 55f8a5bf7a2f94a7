//! `rediss://`: trusted certificates, messages about untrusted certificates, and new certificates while a job runs.

use crate::support::{
    Authority, Certificate, Directory, Line, Redis, SOON, Test, Tls, acquire, any, eventually, free_port, is_renewed,
    ms, redlock, release, status,
};
use std::io::Read;
use std::net::TcpListener;
use std::time::Duration;

const KEY: &str = "redlock:backup";

/// The call that tries to acquire the lock must end with this status, and with a message that has these texts.
#[track_caller]
fn refused<const N: usize>(test: Test, code: i32, fragments: [&str; N]) {
    test.args(["--node-timeout", "2s", "acquire", "--name", "backup"]).fails(code, fragments).run();
}

/// A server that asks clients for a certificate, the authority, and a client's certificate that the server accepts.
fn asking() -> (Tls, Authority, Certificate) {
    let authority = Authority::new();
    let (shown, known) = (authority.issue("DNS:localhost", 2), authority.issue("DNS:client", 2));
    (Tls::with(&authority, &shown, &["--tls-auth-clients", "yes"]), authority, known)
}

/// The call with this client certificate.
fn showing(test: Test, shown: &Certificate) -> Test {
    test.env("REDLOCK_TLS_CERT", &shown.certificate).env("REDLOCK_TLS_KEY", &shown.key)
}

#[test]
fn a_private_ca_is_trusted_by_flag_or_variable_and_replaces_the_systems() {
    let (tls, authority) = Tls::start();
    let url = tls.url();
    let token = acquire(&tls, "backup");
    assert_eq!(tls.redis.get(KEY).as_ref(), Some(&token));
    assert_eq!(status(&tls, "backup")["state"], "held");
    release(&tls, "backup", &token);
    let ca = authority.certificate();
    let trusting = Test::new(url.as_str()).arg("--tls-ca").arg(&ca).env("REDLOCK_TLS_CA", "/elsewhere");
    trusting.args(["run", "-q", "--name", "backup", "--", "redlock", "extend", "-q"]).run();
    // On every system, the file in SSL_CERT_FILE replaces the system's certificates.
    let by_system = || Test::new(url.as_str()).env("SSL_CERT_FILE", &ca);
    by_system().args(["acquire", "--name", "backup"]).stdout(any()).run();
    let elsewhere = Authority::new();
    refused(
        by_system().arg("--tls-ca").arg(elsewhere.certificate()),
        78,
        ["its certificate is not signed by", "--tls-ca"],
    );
}

#[test]
fn three_masters_by_tls() {
    let authority = Authority::new();
    let shown = authority.issue("DNS:localhost", 2);
    let nodes: Vec<Tls> = (0..3).map(|_| Tls::with(&authority, &shown, &["--tls-auth-clients", "no"])).collect();
    let token = acquire(&nodes, "backup");
    assert!(nodes.iter().filter(|node| node.redis.exists(KEY)).count() >= 2);
    release(&nodes, "backup", &token);
}

#[test]
fn what_is_wrong_with_the_servers_certificate_is_reported() {
    let (tls, authority) = Tls::start();
    let node = tls.address();
    let says = |why: &str, advice: &str| {
        refused(Test::new(&tls), 78, [&format!("{node} failed the TLS handshake: its certificate {why}"), advice]);
    };
    refused(Test::new(tls.url().as_str()), 78, [&node, "none of the trusted certificates has issued its", "--tls-ca"]);
    tls.show(&authority.issue("DNS:elsewhere.example,IP:10.0.0.1", 2));
    says("is for elsewhere.example, 10.0.0.1, and not for localhost;", "use a name of the certificate in --redis");
    tls.show(&authority.issue("", 2));
    says("has no name, and not for localhost;", "--redis");
    tls.show(&Authority::new().own());
    says("is that of an authority;", "give this certificate itself with --tls-ca");
    tls.show(&authority.issue("DNS:localhost", -1));
    says("has expired;", "renew it");
    // This authority has the same name, but another key.
    tls.show(&Authority::new().issue("DNS:localhost", 2));
    says("is not signed by the issuer that it names;", "--tls-ca");
    // A wait without a limit ends soon, too.
    redlock(&tls, "run backup --wait -- echo started").fails(78, ["is not signed"]).within(SOON).run();
    assert!(tls.redis.keys_without_history().is_empty());
}

#[test]
fn a_servers_own_certificate_is_trusted_by_its_bytes() {
    let (tls, authority) = Tls::start();
    let trusting =
        |certificate: &Certificate| Test::new(tls.url().as_str()).env("REDLOCK_TLS_CA", &certificate.certificate);
    let run = |test: Test| test.args(["run", "-q", "--name", "backup", "--", "true"]);
    let another = Authority::new();
    // The first is an authority's, of no host's name, as `openssl req -x509` makes it. The others are not self-signed.
    for own in [authority.own(), another.issue("DNS:elsewhere.example", 2), another.issue("", 2)] {
        tls.show(&own);
        run(trusting(&own)).run();
        tls.redis.command(&["CONFIG", "SET", "tls-protocols", "TLSv1.2"]);
        run(trusting(&own)).run();
        tls.redis.command(&["CONFIG", "SET", "tls-protocols", "TLSv1.3"]);
        // A certificate that says the same, but is another, is not trusted.
        refused(trusting(&Authority::new().own()), 78, [&tls.address(), "its certificate"]);
    }
    let expired = another.issue("DNS:localhost", -1);
    tls.show(&expired);
    refused(trusting(&expired), 78, [&tls.address(), "its certificate has expired"]);
}

#[test]
fn a_server_that_asks_for_a_certificate_gets_it() {
    let (tls, _authority, known) = asking();
    refused(Test::new(&tls), 78, [&tls.address(), "asks for a client certificate", "--tls-cert"]);
    tls.redis.command(&["CONFIG", "SET", "tls-protocols", "TLSv1.2"]);
    refused(Test::new(&tls), 78, [&tls.address(), "failed the TLS handshake", "--tls-cert"]);
    showing(Test::new(&tls), &known).args(["run", "-q", "--name", "backup", "--", "true"]).run();
    tls.redis.command(&["CONFIG", "SET", "tls-protocols", "TLSv1.3"]);
    // A wait does not help.
    redlock(&tls, "run -q backup --wait 1m -- true").fails(78, ["asks for a client certificate", "--tls-cert"]).run();
    let another = Authority::new();
    refused(
        showing(Test::new(&tls), &another.issue("DNS:client", 2)),
        78,
        [&tls.address(), "failed the TLS handshake: it ", "client certificate", "--tls-cert"],
    );
    let test = Test::new(&tls).args(["--tls-cert", known.certificate.to_str().unwrap()]);
    let test = test.args(["--tls-key", known.key.to_str().unwrap()]);
    // The job finds the certificate and the key, too.
    test.args(["run", "-q", "--name", "backup", "--", "redlock", "extend", "-q"]).run();
}

/// A certificate of X.509 version 1. It stands here because newer versions of openssl make version 3 by default.
const OF_VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBGDCBvwIUeGDOMdzvE9IaKGDbv25lFIxtquwwCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDb2xkMCAXDTI2MTEyMjA5NTU1N1oYDzIwODEwODI1MDk1NTU3WjAOMQww
CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT+r6sKVOyQtUMN
PCLyP6RtVI82OId6xmy+vkYgdpfJ+T2uxtSVMu5voJ5ph2usKXXjAcx3Ny89uVAd
lDpt/AhQMAoGCCqGSM49BAMCA0gAMEUCIBDFx440COnjhy8w5PHqM/j5Z8uG0Qt9
/BLLl2wN6J69AiEAul1yPFVBb29kAO48aw8JIoCPtgMHNBA1R4PC20ZNk98=
-----END CERTIFICATE-----
";

#[test]
fn files_that_cannot_be_used_are_named_at_once() {
    let (tls, authority) = Tls::start();
    let directory = Directory::new();
    let file = |name: &str, text: &[u8]| {
        std::fs::write(directory.path().join(name), text).unwrap();
        directory.path().join(name).to_str().unwrap().to_owned()
    };
    let ca = std::fs::read(authority.certificate()).unwrap();
    let garbage = ca.iter().map(|&byte| if byte == b'M' { b'?' } else { byte }).collect::<Vec<u8>>();
    for bad in [
        "/no/such/file".to_owned(),
        "/".to_owned(),
        "/dev/zero".to_owned(),
        file("empty", b""),
        file("half", &ca[..ca.len() / 2]),
        file("garbage", &garbage),
        file("binary", b"\0\xff\0\xff"),
    ] {
        refused(Test::new(&tls).args(["--tls-ca", &bad]), 64, [&bad]);
        let known = authority.issue("DNS:client", 2);
        refused(showing(Test::new(&tls), &Certificate { key: bad.clone().into(), ..known.clone() }), 64, [&bad]);
        refused(showing(Test::new(&tls), &Certificate { certificate: bad.clone().into(), ..known }), 64, [&bad]);
    }
    let (one, another) = (authority.issue("DNS:a", 2), authority.issue("DNS:b", 2));
    let mixed = Certificate { key: another.key.clone(), ..one.clone() };
    refused(showing(Test::new(&tls), &mixed), 64, [another.key.to_str().unwrap(), one.certificate.to_str().unwrap()]);
    refused(Test::new(&tls).env("REDLOCK_TLS_CERT", &one.certificate), 64, ["--tls-cert", "--tls-key"]);
    let known = authority.issue("DNS:client", 2);
    let old = Certificate { certificate: file("old", OF_VERSION_1.as_bytes()).into(), ..known.clone() };
    refused(showing(Test::new(&tls), &old), 64, [old.certificate.to_str().unwrap(), "version 3"]);
    // Keys with a passphrase: as PKCS #8, and in the traditional form of openssl.
    for (name, form) in [("pkcs8", &["pkey"][..]), ("traditional", &["ec"])] {
        let locked = directory.path().join(name).to_str().unwrap().to_owned();
        let mut command = std::process::Command::new("openssl");
        command.args(form).args(["-aes256", "-passout", "pass:s3cret", "-out", &locked, "-in"]).arg(&known.key);
        assert!(command.output().unwrap().status.success());
        refused(
            showing(Test::new(&tls), &Certificate { key: locked.clone().into(), ..known.clone() }),
            64,
            [&locked, "has a passphrase", "openssl pkey"],
        );
    }
    // Without TLS, a call refuses the flag, but ignores the variable: the variable may be meant for other calls.
    refused(redlock(&tls.redis, "--tls-ca /no/such/file"), 64, ["--tls-ca", "rediss://"]);
    let plain = Test::new(&tls.redis).env("REDLOCK_TLS_CA", "/no/such/file").args(["acquire", "--name", "backup"]);
    plain.stdout(any()).run();
}

#[test]
fn a_url_with_the_wrong_scheme_is_reported() {
    let (tls, _authority) = Tls::start();
    let plain = tls.url().replace("rediss://", "redis://");
    refused(Test::new(plain.as_str()), 69, [&tls.address(), "rediss://"]);
    redlock(plain.as_str(), "status").fails(69, ["rediss://"]).run();
    let redis = Redis::with_tcp(&[]);
    let by_tls = redis.tcp_url().replace("redis://", "rediss://");
    refused(Test::new(by_tls.as_str()), 69, [&redis.address(), "redis://"]);
    let address = format!("127.0.0.1:{}", free_port());
    refused(Test::new(format!("rediss://{address}").as_str()), 69, [&address, "connection refused"]);
}

#[test]
fn a_server_that_talks_first_and_not_by_tls_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let _ = std::io::Write::write_all(&mut client.unwrap(), b"-DENIED Redis is running in protected mode\r\n");
        }
    });
    refused(Test::new(format!("rediss://{address}").as_str()), 78, [&address, "failed the TLS handshake", "redis://"]);
}

#[test]
fn the_server_is_told_which_name_is_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("rediss://localhost:{port}");
    let call = redlock(url.as_str(), "acquire x").fails(69, ["\"x\""]).spawn();
    let mut hello = [0; 512];
    let read = listener.accept().unwrap().0.read(&mut hello).unwrap();
    assert!(hello[..read].windows(9).any(|text| text == b"localhost"), "{:?}", &hello[..read]);
    drop(listener);
    call.finish();
}

/// Starts a job that lasts longer than the ttl, so redlock must renew the lease.
#[track_caller]
fn job(tls: &Tls, test: Test) -> (crate::support::Running, String) {
    let test = test.args(["run", "-q", "--name", "backup", "--ttl", "8s", "--", "sleep", "9"]);
    let job = test.within(Duration::from_secs(30)).spawn();
    eventually(SOON, "acquired", || tls.redis.exists(KEY));
    let token = tls.redis.get(KEY).unwrap();
    (job, token)
}

/// Closes all connections to the server, also those of subscribers, but not the test's own.
fn cut(tls: &Tls) {
    tls.redis.command(&["CLIENT", "KILL", "SKIPME", "yes"]);
}

#[test]
fn a_job_and_a_waiter_outlive_a_new_certificate_of_a_new_ca() {
    let (tls, authority) = Tls::start();
    let (mut job, token) = job(&tls, Test::new(&tls));
    let waiter = Line::join(&tls.redis, redlock(&tls, "run -q backup --wait -- true"));
    let new = Authority::new();
    tls.show(&new.issue("DNS:localhost", 2));
    cut(&tls);
    // redlock's CA file still has the old CA, then half of the new one, and at last all of it.
    std::thread::sleep(ms(300));
    let text = std::fs::read(new.certificate()).unwrap();
    std::fs::write(authority.certificate(), &text[..text.len() / 2]).unwrap();
    std::thread::sleep(ms(300));
    std::fs::write(authority.certificate(), text).unwrap();
    is_renewed(&tls.redis);
    assert!(!job.has_ended(), "{}", job.all_stderr());
    assert_eq!(tls.redis.get(KEY), Some(token));
    job.finish();
    waiter.finish();
}

#[test]
fn a_job_outlives_a_new_client_certificate_and_a_new_password() {
    let (tls, authority, known) = asking();
    let password = known.key.with_extension("password");
    std::fs::write(&password, "first\n").unwrap();
    let change = |how| tls.redis.command(&["ACL", "SETUSER", "locks", "on", "+@all", "~*", "&*", "resetpass", how]);
    change(">first");
    let url = tls.url().replace("rediss://", "rediss://locks@");
    let test = showing(Test::new(&tls), &known).env("REDLOCK_REDIS", url).env("REDLOCK_PASSWORD_FILE", &password);
    let (mut job, token) = job(&tls, test);
    // From now on the server refuses the old password, which the file still has.
    change(">second");
    let next = authority.issue("DNS:client", 2);
    std::fs::rename(&next.certificate, &known.certificate).unwrap();
    cut(&tls);
    std::thread::sleep(ms(300));
    std::fs::rename(&next.key, &known.key).unwrap();
    std::fs::write(&password, "second\n").unwrap();
    is_renewed(&tls.redis);
    assert!(!job.has_ended(), "{}", job.all_stderr());
    assert_eq!(tls.redis.get(KEY), Some(token));
    job.finish();
}
