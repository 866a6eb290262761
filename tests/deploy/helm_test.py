"""The Helm chart without a cluster: it lints, makes what the overlays make, and what it makes fits the API's schemas.

PyPI's helm-python-sdk renders and lints with Helm's own library. Runs in the virtual environment that scripts/deps.sh deploy makes;
skipped where there is none.
"""

import os
import sys
import unittest

import running

helm = running.in_venv("helm_python")
kubernetes_validate = running.in_venv("kubernetes_validate")

import yaml
from manifests import kustomize, load_all

CHART = os.path.join(running.ROOT, "deploy", "helm", "sru-server")
# What Helm's conventions add to labels and selectors.
HELMS = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"}
EVERYTHING = {
    "image": {"digest": "sha256:" + "0" * 64, "pullPolicy": "Always", "pullSecrets": [{"name": "registry"}]},
    "flags": {"max_message_bytes": 8000000, "poll_interval_s": 0.5, "log_calls": "all", "model_control": "poll"},
    "models": {"claim": "models", "download": {"image": "amazon/aws-cli", "args": ["s3", "sync", "s3://models", "/models"]}},
    "tls": {"secret": "sru-server-tls"}, "auth": {"secret": "sru-server-auth"},
    "routes": {"grpc": {"parentRefs": [{"name": "gateway"}]}, "http": {"parentRefs": [{"name": "gateway"}], "hostnames": ["sru.example"]}},
    "networkPolicy": {"egress": [{"ports": [{"port": 4317, "protocol": "TCP"}]}]},
    "pod": {
        "labels": {"team": "search"}, "annotations": {"note": "true"}, "serviceAccountName": "sru", "priorityClassName": "serving",
        "runtimeClassName": "nvidia", "nodeSelector": {"pool": "cpu"}, "affinity": {"podAntiAffinity": {}},
        "tolerations": [{"operator": "Exists"}], "env": [{"name": "TZ", "value": "UTC"}],
        "volumes": [{"name": "more", "emptyDir": {}}], "volumeMounts": [{"name": "more", "mountPath": "/more"}],
    },
    "labels": {"owner": "us"},
}


def render(values=None, name="sru-server"):
    """{(kind, name): object}"""
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values=values or {}, name=name, namespace="serving")
    objects = [each for path, text in files.items() if path.endswith(".yaml") for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def plain(value):
    """The same without Helm's labels, and with lists of named things in the order of their names."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in HELMS}
    if isinstance(value, list):
        inner = [plain(each) for each in value]
        return sorted(inner, key=lambda each: each["name"]) if all(isinstance(e, dict) and "name" in e for e in inner) else inner
    return value


class HelmTest(unittest.TestCase):
    maxDiff = None

    def test_lint(self):
        for values in ({}, EVERYTHING):
            report = helm.lint(CHART, values, strict=True, kube_version="v1.30.0")
            self.assertEqual(report["errors"], [])
            self.assertEqual([each["error"] for each in report["messages"]], ["icon is recommended"])

    def test_the_defaults_make_the_overlays(self):
        with open(os.path.join(CHART, "values-gpu.yaml"), encoding="utf-8") as file:
            gpu = yaml.safe_load(file)
        for overlay, values in (("cpu", {}), ("gpu", gpu), ("cpu-tls-auth", {"tls": EVERYTHING["tls"], "auth": EVERYTHING["auth"]})):
            self.assertEqual(plain(render(values)), plain(kustomize("overlays", overlay)), overlay)

    def test_options_make_the_other_manifests(self):
        made = plain(render({**EVERYTHING, "labels": {}, "monitoring": {"kind": "serviceMonitor"}}))
        for expected in load_all("monitoring", "servicemonitor.yaml"):
            self.assertEqual(made[expected["kind"], expected["metadata"]["name"]], expected)
        expected, = load_all("monitoring", "podmonitor.yaml")
        self.assertEqual(plain(render({"monitoring": {"kind": "podMonitor"}}))["PodMonitor", "sru-server"], expected)
        for (kind, name), expected in kustomize("gateway").items():
            made[kind, name]["spec"].pop("hostnames", None)
            self.assertEqual(made[kind, name], expected)
        scaled = plain(render({"autoscaling": {"kind": "keda", "min": 0, "keda": {"wakeQuery": "calls"}}}))
        self.assertNotIn(("HorizontalPodAutoscaler", "sru-server"), scaled)
        made, expected = scaled["ScaledObject", "sru-server"], kustomize("overlays", "cpu-keda")["ScaledObject", "sru-server"]
        queue, _, cpu, wake = expected["spec"]["triggers"]
        queue["metadata"]["query"] = queue["metadata"]["query"].replace("{", '{namespace="serving",')
        wake["metadata"]["query"] = "calls"
        expected["spec"]["triggers"] = [queue, cpu, wake]
        self.assertEqual(made, expected)

    def test_everything_fits_the_schemas(self):
        for values in ({}, EVERYTHING, {"models": {"image": "registry/models:1"}}, {"autoscaling": {"kind": "none"}}):
            for (kind, name), each in render(values, name="questions").items():
                self.assertIn(name.replace("-headless", ""), ("questions-sru-server",))
                if not each["apiVersion"].startswith("gateway"):
                    kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)

    def test_numbers_and_flags(self):
        container, = render(EVERYTHING)["Deployment", "sru-server"]["spec"]["template"]["spec"]["containers"]
        env = {each["name"]: each.get("value") for each in container["env"]}
        self.assertEqual(env["SRU_MAX_MESSAGE_BYTES"], "8000000")
        self.assertEqual(env["SRU_POLL_INTERVAL_S"], "0.5")
        self.assertEqual(env["SRU_DRAIN_TIMEOUT_S"], "30")
        self.assertTrue(container["image"].endswith("@sha256:" + "0" * 64), container["image"])
        pod = render({"flags": {"drain_timeout_s": 120}})["Deployment", "sru-server"]["spec"]["template"]["spec"]
        self.assertEqual(pod["terminationGracePeriodSeconds"], 135)
        self.assertEqual(render({"autoscaling": {"kind": "none", "min": 3}})["Deployment", "sru-server"]["spec"]["replicas"], 3)

    def test_mistakes_are_refused(self):
        for values, said in (
            ({"auth": {"secret": "tokens"}}, "tokens need tls.secret"),
            ({"autoscaling": {"kind": "keda", "min": 0}}, "autoscaling.min: 0 needs autoscaling.keda.wakeQuery"),
        ):
            with self.assertRaisesRegex(helm.HelmError, said):
                render(values)
        for values in (
            {"image": {"tags": "cpu"}}, {"replicas": 2}, {"flags": {"listen": "0.0.0.0:1"}}, {"autoscaling": {"kind": "HPA"}},
            {"image": {"digest": "sha256:1"}}, {"flags": {"--max_batch_tokens": 1}},
        ):
            self.assertTrue(helm.lint(CHART, values)["errors"], values)

    def test_the_version_is_the_projects(self):
        with open(os.path.join(CHART, "Chart.yaml"), encoding="utf-8") as file:
            chart = yaml.safe_load(file)
        version = running.read("VERSION").strip()
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))

    def test_every_value_is_in_the_schema(self):
        with helm.Chart.load(CHART) as chart:
            self.assertEqual(set(chart.values), set(chart.schema["properties"]) - {"global"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
