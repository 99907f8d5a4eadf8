//! Encrypted connections: servers are verified, and show who they let in (feature `tls`).

use lockattr::Client;
use tests::tls::Authority;
use tests::zookeeper::Ensemble;

use crate::support::{millis, seconds};

#[tokio::test]
async fn servers_and_clients_verify_each_other() {
    let authority = Authority::new();
    let (certificate, key) = authority.certificate("localhost");
    let (_server, secure) = Ensemble::encrypted(authority.pem(), &certificate, &key, true);
    let url = |host: &str| format!("zookeeper+tls://{host}:{}/locks", secure.port());
    let builder = || Client::builder().ttl(seconds(5));
    let known = || builder().root_certificates(authority.pem());
    let (certificate, key) = authority.certificate("jobs");
    let right = known().client_certificate(certificate.clone(), key.clone());
    let locks = right.connect(url("localhost")).await.unwrap();
    let lease = locks.lock("x").acquire().await.unwrap();
    lease.release().await.unwrap();

    // Without a certificate, for another name, of an authority that is not known, and without TLS.
    let shown = || known().client_certificate(certificate.clone(), key.clone());
    let others = Authority::new();
    let stranger = builder()
        .root_certificates(others.pem())
        .client_certificate(certificate.clone(), key.clone());
    for (builder, url) in [
        (known(), url("localhost")),
        (shown(), url("127.0.0.1")),
        (stranger, url("localhost")),
        (builder(), format!("zookeeper://{secure}/locks")),
    ] {
        let soon = builder
            .connect_timeout(millis(400))
            .reply_timeout(millis(400));
        assert!(soon.connect(&url).await.is_err(), "{url}");
    }
    let error = known()
        .connect("zookeeper://a/b")
        .await
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("`root_certificates`"), "{error}");
}
