"""The Kubernetes manifests against the API's published schemas, which the PyPI package kubernetes-validate carries.

Runs itself in the virtual environment that scripts/deps.sh deploy makes; skipped where there is none.
"""

import sys
import unittest

import running

kubernetes_validate = running.in_venv("kubernetes_validate")

from manifests import kustomize, load_all

OVERLAYS = ("cpu", "cpu-keda", "cpu-tls", "cpu-tls-auth", "gpu")
# Groups whose definitions the package does not have: CustomResourcesTest checks them.
CUSTOM = ("keda.sh", "gateway.networking.k8s.io", "monitoring.coreos.com")
# The oldest version that deploy/README.md asks for, and the newest that the package knows.
VERSIONS = ["1.30", kubernetes_validate.latest_version()]


def validate(resource, version):
    if resource["apiVersion"].startswith(CUSTOM):
        return
    kubernetes_validate.validate(resource, version, strict=True)


class SchemaTest(unittest.TestCase):
    def test_overlays(self):
        for overlay in OVERLAYS:
            for key, resource in kustomize("overlays", overlay).items():
                for version in VERSIONS:
                    with self.subTest(overlay=overlay, resource=key, version=version):
                        validate(resource, version)

    def test_files_beside_the_overlays(self):
        for path in (("examples", "auth-secret.yaml"), ("monitoring", "servicemonitor.yaml")):
            for version in VERSIONS:
                validate(load_all(*path)[0], version)

    def test_the_validator_finds_mistakes(self):
        for change in (
            lambda spec: spec.update(replica=3),
            lambda spec: spec["template"]["spec"].update(terminationGracePeriodSeconds="45s"),
            lambda spec: spec["template"]["spec"]["containers"][0]["readinessProbe"].update(grpc={"port": "grpc"}),
        ):
            deployment = kustomize("overlays", "cpu")["Deployment", "sru-server"]
            change(deployment["spec"])
            with self.assertRaises(kubernetes_validate.ValidationError):
                validate(deployment, VERSIONS[-1])

    def test_the_containers_of_kserve(self):
        # There is no schema for the resource itself offline, but it contains containers of a pod.
        runtime, = load_all("kserve", "servingruntime.yaml")
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runtime"},
            "spec": {"containers": runtime["spec"]["containers"]},
        }
        service, = load_all("kserve", "inferenceservice.yaml")
        pod["spec"]["containers"][0]["resources"] = service["spec"]["predictor"]["model"]["resources"]
        for version in VERSIONS:
            validate(pod, version)


# Protocols of KServe (its constants.InferenceServiceProtocol).
KSERVE_PROTOCOLS = {"v1", "v2", "grpc-v1", "grpc-v2"}
RUNTIME = {
    "annotations": None, "containers": [None], "protocolVersions": [str],
    "supportedModelFormats": [{"name": str, "version": str, "autoSelect": bool}],
}
SERVICE = {
    "predictor": {
        "minReplicas": int, "maxReplicas": int, "terminationGracePeriodSeconds": int,
        "model": {
            "modelFormat": {"name": str, "version": str}, "runtime": str, "storageUri": str, "protocolVersion": str,
            "resources": None,
        },
    },
}


class CustomResourcesTest(unittest.TestCase):
    """Checks by hand the fields that these definitions have, and the types of the values that we set.

    PyPI has no package with KServe's definitions as schemas. The fields below are those of its Go types (servingruntime_types.go of
    v1alpha1; predictor.go, component.go and inference_service.go of v1beta1), as far as the manifests use them. This cannot see a field
    that a version of KServe removes, defaults that its webhooks set, nor what its controller makes of the pod.
    """

    def check(self, value, shape, path):
        if isinstance(shape, dict):
            self.assertIsInstance(value, dict, path)
            self.assertLessEqual(set(value), set(shape), path)
            for key, inner in value.items():
                self.check(inner, shape[key], path + "." + key)
        elif isinstance(shape, list):
            self.assertIsInstance(value, list, path)
            for inner in value:
                self.check(inner, shape[0], path + "[]")
        elif shape is not None:
            self.assertIsInstance(value, shape, path)

    def test_monitoring(self):
        resources = kustomize("monitoring")
        self.assertEqual(set(kind for kind, _ in resources), {"PodMonitor", "PrometheusRule"})
        for resource in resources.values():
            self.assertEqual(resource["apiVersion"], "monitoring.coreos.com/v1")
        self.check(
            resources["PodMonitor", "sru-server"]["spec"],
            {
                "jobLabel": str, "selector": {"matchLabels": None},
                "podMetricsEndpoints": [{"port": str, "path": str, "interval": str, "scrapeTimeout": str}],
            },
            "PodMonitor.spec",
        )
        rule = {"record": str, "alert": str, "expr": str, "for": str, "labels": None, "annotations": None}
        self.check(
            resources["PrometheusRule", "sru-server"]["spec"],
            {"groups": [{"name": str, "interval": str, "rules": [rule]}]},
            "PrometheusRule.spec",
        )

    def test_service_monitor(self):
        service, monitor = load_all("monitoring", "servicemonitor.yaml")
        self.check(
            monitor["spec"],
            {
                "jobLabel": str, "selector": {"matchLabels": None},
                "endpoints": [{"port": str, "path": str, "interval": str, "scrapeTimeout": str}],
            },
            "ServiceMonitor.spec",
        )
        self.assertLessEqual(monitor["spec"]["selector"]["matchLabels"].items(), service["metadata"]["labels"].items())
        self.assertEqual([port["name"] for port in service["spec"]["ports"]], [each["port"] for each in monitor["spec"]["endpoints"]])

    def test_keda(self):
        # Fields of keda.sh's scaledobject_types.go; a trigger's metadata are texts.
        scaled = kustomize("overlays", "cpu-keda")["ScaledObject", "sru-server"]
        self.check(
            scaled["spec"],
            {
                "scaleTargetRef": {"name": str}, "minReplicaCount": int, "maxReplicaCount": int, "pollingInterval": int,
                "cooldownPeriod": int, "advanced": {"horizontalPodAutoscalerConfig": {"behavior": None}},
                "triggers": [{"type": str, "metricType": str, "metadata": None}],
            },
            "ScaledObject.spec",
        )
        for trigger in scaled["spec"]["triggers"]:
            self.assertTrue(all(isinstance(value, str) for value in trigger["metadata"].values()), trigger)
        # The behavior is that of an autoscaler, whose schema there is.
        scaler = kustomize("overlays", "cpu")["HorizontalPodAutoscaler", "sru-server"]
        scaler["spec"]["behavior"] = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        validate(scaler, VERSIONS[-1])

    def test_routes(self):
        routes = kustomize("gateway")
        ports = {port["port"] for port in kustomize("overlays", "cpu")["Service", "sru-server"]["spec"]["ports"]}
        for kind in ("GRPCRoute", "HTTPRoute"):
            self.assertEqual(routes[kind, "sru-server"]["apiVersion"], "gateway.networking.k8s.io/v1")
            rule = {"backendRefs": [{"name": str, "port": int}], **({"timeouts": {"request": str}} if kind == "HTTPRoute" else {})}
            self.check(routes[kind, "sru-server"]["spec"], {"parentRefs": [{"name": str}], "rules": [rule]}, kind)
            self.assertIn(routes[kind, "sru-server"]["spec"]["rules"][0]["backendRefs"][0]["port"], ports)

    def test_kserve(self):
        runtime, = load_all("kserve", "servingruntime.yaml")
        self.check(runtime["spec"], RUNTIME, "ServingRuntime.spec")
        self.assertLessEqual(set(runtime["spec"]["protocolVersions"]), KSERVE_PROTOCOLS)
        service, = load_all("kserve", "inferenceservice.yaml")
        self.check(service["spec"], SERVICE, "InferenceService.spec")
        # KServe refuses an InferenceService whose runtime does not name its protocol.
        self.assertIn(
            service["spec"]["predictor"]["model"]["protocolVersion"], runtime["spec"]["protocolVersions"]
        )

    def test_the_checks_find_mistakes(self):
        for change in (
            lambda spec: spec.update(protocolVersion=["v2"]),
            lambda spec: spec.update(protocolVersions="v2"),
            lambda spec: spec["supportedModelFormats"][0].update(version=1),
        ):
            runtime, = load_all("kserve", "servingruntime.yaml")
            change(runtime["spec"])
            with self.assertRaises(AssertionError):
                self.check(runtime["spec"], RUNTIME, "ServingRuntime.spec")
        service, = load_all("kserve", "inferenceservice.yaml")
        service["spec"]["predictor"]["protocolVersion"] = "grpc-v2"  # a field of the model, not of the predictor
        with self.assertRaises(AssertionError):
            self.check(service["spec"], SERVICE, "InferenceService.spec")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
