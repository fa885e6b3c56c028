//! The recorder of the measurements of this process. `/metrics` and the OpenTelemetry sender read the same
//! one.

use crate::exit::{FAILURE, Failure};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// The upper ends of the buckets of each histogram, in seconds.
const BUCKETS: [(&str, &[f64]); 3] = [
    ("quorate_acquire_seconds", &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5]),
    (
        "quorate_run_seconds",
        &[0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0],
    ),
    (
        "quorate_tick_lateness_seconds",
        &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 3_600.0],
    ),
];

/// Installs the recorder of this process. Call it before the quorum is built: measurements that were made
/// before are lost.
pub(crate) fn install() -> Result<PrometheusHandle, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new(FAILURE, format!("cannot install the recorder of measurements: {error}"))
    };
    let mut builder = PrometheusBuilder::new();
    for (name, ends) in BUCKETS {
        let matcher = Matcher::Full(name.to_owned());
        builder = builder.set_buckets_for_metric(matcher, ends).map_err(|error| failed(&error))?;
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|error| failed(&error))?;
    Ok(handle)
}
