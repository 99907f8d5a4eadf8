//! The exporter that Prometheus scrapes.

use std::net::SocketAddr;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};

/// From a round trip to a long job.
const SECONDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0,
];

/// The rules ask what was above 80 %.
const RATIOS: [f64; 7] = [0.1, 0.25, 0.4, 0.5, 0.65, 0.8, 1.0];

/// Without buckets an exporter makes summaries of histograms, which cannot be added up over replicas.
pub(crate) fn install(address: SocketAddr) -> Result<(), BuildError> {
    PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_ratio".to_owned()), &RATIOS)?
        .install()
}
