//! Encrypted connections: certificates are verified, on both sides.

use lockattr::{Client, ClientBuilder, Error};
use tests::etcd::Etcd;
use tests::tls::Authority;

use crate::support::{nothing_left, take};

/// A cluster with a certificate for 127.0.0.1.
fn cluster(authority: &Authority, options: &[&str]) -> Etcd {
    let (certificate, key) = authority.files("127.0.0.1");
    let mut all = vec!["--cert-file", &certificate, "--key-file", &key];
    all.extend(options);
    Etcd::with_tls(1, &all)
}

async fn refused(builder: ClientBuilder, url: &str) -> String {
    match builder.connect(url).await {
        Err(Error::Unavailable { source, .. }) => source.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_verified_by_the_certificates_that_are_given() {
    let authority = Authority::new();
    let cluster = cluster(&authority, &[]);
    let trusting = Client::builder().root_certificates(authority.pem());
    let locks = trusting.connect(cluster.url()).await.unwrap();
    take(&locks, "k").await.release().await.unwrap();
    let another = Client::builder().root_certificates(Authority::new().pem());
    let told = refused(another, &cluster.url()).await;
    assert!(told.contains("certificate"), "{told}");
    // Without TLS there is no answer that means anything.
    let plain = cluster.url().replacen("etcds", "etcd", 1);
    refused(Client::builder(), &plain).await;
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_verify_its_clients() {
    let authority = Authority::new();
    let trusted = authority.own_file();
    let options = ["--client-cert-auth", "--trusted-ca-file", &trusted];
    let cluster = cluster(&authority, &options);
    let trusting = Client::builder().root_certificates(authority.pem());
    refused(trusting.clone(), &cluster.url()).await;
    let (certificate, key) = authority.certificate("jobs");
    let known = trusting.client_certificate(certificate, key);
    let locks = known.connect(cluster.url()).await.unwrap();
    take(&locks, "k").await.release().await.unwrap();
    nothing_left(&cluster).await;
}
