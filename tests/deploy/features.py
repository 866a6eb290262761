"""Metrics that a server has only with certain flags, or that come from elsewhere.

Rules and dashboard may name them: without such a metric an alert is silent and a panel empty. They are held to the
same checks, of a server with the flags.
"""

import collections
import os
import tempfile

import running

# environment: the variables that switch it on.
Feature = collections.namedtuple("Feature", "name environment metrics")


def _certificate(folder):
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    running.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                "30", "-subj", "/CN=localhost", "-keyout", key, "-out", cert, check=True)
    return {"SRU_TLS_CERT": cert, "SRU_TLS_KEY": key}


FEATURES = [
    Feature(
        "model polling", lambda folder: {"SRU_MODEL_CONTROL": "poll"},
        {"sru_model_load_failures_total", "sru_model_loads_total", "sru_model_state"},
    ),
    Feature(
        "TLS", _certificate,
        {"sru_tls_certificate_expiry_seconds", "sru_tls_reload_failures_total", "sru_tls_handshake_failures_total"},
    ),
    Feature(
        "tokens", lambda folder: {},
        {"sru_auth_failures_total", "sru_auth_tokens_reload_failures_total"},
    ),
]

OPTIONAL = frozenset(metric for feature in FEATURES for metric in feature.metrics)

# Metrics that exist only with a GPU: this server's own, and those of NVIDIA's DCGM exporter, named as in its documentation.
# And that of a translator, since none is bundled.
EXTERNAL = frozenset({
    "sru_translate_sentences",
    "sru_device_lost_total", "sru_gpu_memory_bytes",
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS",
})


def metrics_with(feature, binaries):
    """{series: labels} of a server with this feature."""
    with tempfile.TemporaryDirectory() as folder:
        with running.Server(binaries, environment=feature.environment(folder)) as server:
            return server.metrics()
