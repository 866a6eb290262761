"""The Kubernetes manifests, without a cluster: they build, and they agree with the server and with each other.

kubernetes_test.py FOLDER_WITH_THE_PROGRAMS
"""

import os
import re
import secrets
import shutil
import sys
import tempfile
import unittest
import urllib.error

import running
from manifests import kustomize, load_all

yaml = running.need_module("yaml")

BINARIES = sys.argv[1]
OVERLAYS = ("cpu", "gpu")
STOP_MARGIN_S = 5  # between the last moment of a drain and the kill


def matches(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


class ManifestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.help = running.server_help(BINARIES)
        cls.overlays = {name: kustomize("overlays", name) for name in OVERLAYS}

    def each(self):
        for name, resources in self.overlays.items():
            deployment = resources["Deployment", "sru-server"]
            pod = deployment["spec"]["template"]
            self.assertEqual(len(pod["spec"]["containers"]), 1)
            yield name, resources, deployment, pod, pod["spec"]["containers"][0]

    def check_env(self, container):
        for variable in container["env"]:
            flag = variable["name"].removeprefix("SRU_").lower()
            self.assertRegex(self.help, r"\n  --%s " % flag, "no such flag")

    def env(self, container):
        return {variable["name"]: variable.get("value") for variable in container["env"]}

    def test_has_every_kind(self):
        for _, resources, _, _, _ in self.each():
            self.assertEqual(
                sorted(resources),
                sorted([
                    ("Deployment", "sru-server"), ("Service", "sru-server"), ("Service", "sru-server-headless"),
                    ("PodDisruptionBudget", "sru-server"), ("NetworkPolicy", "sru-server"),
                    ("HorizontalPodAutoscaler", "sru-server"),
                ]),
            )

    def test_variables_are_flags_and_the_server_accepts_them(self):
        for name, _, _, _, container in self.each():
            self.check_env(container)
            values = {k: v for k, v in self.env(container).items() if v is not None}
            # Started with the same variables, except paths and ports of this machine, it must get as far as serving.
            values.update(SRU_LISTEN="127.0.0.1:0", SRU_HTTP_LISTEN="127.0.0.1:0", SRU_METRICS_LISTEN="127.0.0.1:0")
            values.update(SRU_MODEL_REPOSITORY=running.MODELS)
            # There is no GPU either, nor the time for load balancers to turn away.
            values.update(SRU_BACKEND="cpu", SRU_DRAIN_DELAY_S="0")
            with running.Server(BINARIES, environment=values) as server:
                self.assertEqual(server.client("health"), 0, name)

    def test_ports_are_the_servers(self):
        for _, resources, _, pod, container in self.each():
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            env = self.env(container)
            self.assertEqual(env["SRU_LISTEN"], "0.0.0.0:%d" % ports["grpc"])
            self.assertEqual(env["SRU_HTTP_LISTEN"], "0.0.0.0:%d" % ports["http"])
            self.assertEqual(env["SRU_METRICS_LISTEN"], "0.0.0.0:%d" % ports["metrics"])
            self.assertEqual(container["readinessProbe"]["grpc"]["port"], ports["grpc"])
            for service in (resources["Service", "sru-server"], resources["Service", "sru-server-headless"]):
                self.assertTrue(matches(service["spec"]["selector"], pod["metadata"]["labels"]))
                for port in service["spec"]["ports"]:
                    self.assertIn(port["targetPort"], ("grpc", "http"))
                    self.assertEqual(port["port"], ports[port["targetPort"]])
            names = [port["name"] for port in resources["Service", "sru-server"]["spec"]["ports"]]
            self.assertEqual(names, ["grpc", "http"])
            for rule in resources["NetworkPolicy", "sru-server"]["spec"]["ingress"]:
                for port in rule["ports"]:
                    self.assertIn(port["port"], ports)

    def test_a_server_that_waits_for_a_model_is_left_alive(self):
        deployments = [deployment for _, _, deployment, _, _ in self.each()]
        deployments.append(kustomize("overlays", "cpu-tls")["Deployment", "sru-server"])
        for deployment in deployments:
            container, = deployment["spec"]["template"]["spec"]["containers"]
            self.assertIn("metrics", {port["name"] for port in container["ports"]})
            self.assertEqual(container["livenessProbe"]["httpGet"], {"path": "/healthz", "port": "metrics"})
            self.assertNotIn("grpc", container["livenessProbe"])
            # It would end a server that is alive but not ready.
            self.assertNotIn("startupProbe", container)
        with tempfile.TemporaryDirectory() as empty:
            environment = {"SRU_MODEL_REPOSITORY": empty, "SRU_MODEL_CONTROL": "poll"}
            with running.Server(BINARIES, environment) as server:
                running.get("http://%s/healthz" % server.metrics_address)
                with self.assertRaises(urllib.error.HTTPError) as not_ready:
                    running.get("http://%s/readyz" % server.metrics_address)
                not_ready.exception.close()
                self.assertEqual(not_ready.exception.code, 503)
                self.assertNotEqual(server.client("health"), 0)

    def test_a_pod_has_the_time_to_drain(self):
        for _, _, _, pod, container in self.each():
            env = self.env(container)
            before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
            drain = float(env["SRU_DRAIN_TIMEOUT_S"])
            self.assertLessEqual(float(env["SRU_DRAIN_DELAY_S"]), drain)
            self.assertGreaterEqual(pod["spec"]["terminationGracePeriodSeconds"], before + drain + STOP_MARGIN_S)
            # A drain must be seen by readiness before calls are refused.
            probe = container["readinessProbe"]
            self.assertLessEqual(probe["periodSeconds"], float(env["SRU_DRAIN_DELAY_S"]))

    def test_no_privileges(self):
        for _, _, _, pod, container in self.each():
            self.assertIs(pod["spec"]["automountServiceAccountToken"], False)
            self.assertIs(pod["spec"]["securityContext"]["runAsNonRoot"], True)
            self.assertEqual(pod["spec"]["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            self.assertEqual(
                container["securityContext"],
                {
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            )
            for key in ("hostNetwork", "hostPID", "hostIPC"):
                self.assertNotIn(key, pod["spec"])

    def test_the_user_is_the_images(self):
        user = re.search(r"^USER (\d+):(\d+)$", running.read("Dockerfile"), re.MULTILINE)
        for _, _, _, pod, _ in self.each():
            self.assertEqual(pod["spec"]["securityContext"]["runAsUser"], int(user.group(1)))
            self.assertEqual(pod["spec"]["securityContext"]["runAsGroup"], int(user.group(2)))

    def test_selectors_find_the_pods(self):
        for _, resources, deployment, pod, _ in self.each():
            labels = pod["metadata"]["labels"]
            self.assertTrue(matches(deployment["spec"]["selector"]["matchLabels"], labels))
            budget = resources["PodDisruptionBudget", "sru-server"]["spec"]
            self.assertTrue(matches(budget["selector"]["matchLabels"], labels))
            policy = resources["NetworkPolicy", "sru-server"]["spec"]
            self.assertTrue(matches(policy["podSelector"]["matchLabels"], labels))
            for spread in pod["spec"]["topologySpreadConstraints"]:
                self.assertTrue(matches(spread["labelSelector"]["matchLabels"], labels))
            for monitor in load_all("monitoring", "podmonitor.yaml"):
                self.assertTrue(matches(monitor["spec"]["selector"]["matchLabels"], labels))
                self.assertIn(monitor["spec"]["jobLabel"], labels)

    def test_network_is_closed_but_for_the_three_ports(self):
        for _, resources, _, _, _ in self.each():
            policy = resources["NetworkPolicy", "sru-server"]["spec"]
            self.assertEqual(set(policy["policyTypes"]), {"Ingress", "Egress"})
            self.assertFalse(policy.get("egress"))
            self.assertTrue(all(rule["from"] and rule["ports"] for rule in policy["ingress"]))
            open_ports = [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]]
            self.assertEqual(open_ports, [["grpc", "http"], ["metrics"]])

    def test_the_headless_service_is_headless(self):
        for _, resources, _, _, _ in self.each():
            self.assertEqual(resources["Service", "sru-server-headless"]["spec"]["clusterIP"], "None")
            self.assertNotEqual(resources["Service", "sru-server"]["spec"].get("clusterIP"), "None")

    def test_the_autoscaler_scales_the_deployment_by_the_queue(self):
        for _, resources, deployment, _, _ in self.each():
            scaler = resources["HorizontalPodAutoscaler", "sru-server"]["spec"]
            self.assertEqual(scaler["scaleTargetRef"]["name"], deployment["metadata"]["name"])
            self.assertNotIn("replicas", deployment["spec"])
            self.assertGreater(scaler["maxReplicas"], scaler["minReplicas"])
            self.assertGreater(scaler["minReplicas"], 1, "the disruption budget needs a second pod")
            names = [metric["pods"]["metric"]["name"] for metric in scaler["metrics"] if metric["type"] == "Pods"]
            self.assertEqual(names, ["sru_queue_tokens"])

    def test_overlays(self):
        cpu = self.overlays["cpu"]["Deployment", "sru-server"]["spec"]["template"]["spec"]["containers"][0]
        gpu = self.overlays["gpu"]["Deployment", "sru-server"]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(cpu["image"], "sru-server:cpu")
        self.assertEqual(gpu["image"], "sru-server:cuda")
        self.assertEqual(gpu["resources"]["limits"]["nvidia.com/gpu"], gpu["resources"]["requests"]["nvidia.com/gpu"])
        self.assertEqual(self.env(gpu)["SRU_BACKEND"], "cuda")
        # The request for a GPU places the pod. A plain device plugin labels no node, so a selector would keep it Pending.
        pod = self.overlays["gpu"]["Deployment", "sru-server"]["spec"]["template"]["spec"]
        self.assertNotIn("nodeSelector", pod)
        self.assertNotIn("nodeAffinity", pod.get("affinity", {}))
        # Workers follow the limit, so there must be one.
        self.assertIn("cpu", cpu["resources"]["limits"])
        self.assertIn("SRU_INSTANCES", self.env(cpu))

    def test_tls(self):
        objects = kustomize("overlays", "cpu-tls")
        for name, ports in (("sru-server-headless", [50051]), ("sru-server", [50051, 8080])):
            found = objects["Service", name]["spec"]["ports"]
            self.assertEqual([port["port"] for port in found], ports)
            self.assertEqual({port["appProtocol"] for port in found}, {"https"})
        deployment = objects["Deployment", "sru-server"]
        container, = deployment["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["readinessProbe"]["httpGet"], {"path": "/readyz", "port": "metrics"})
        self.assertNotIn("grpc", container["readinessProbe"])
        env = self.env(container)
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        for name in ("SRU_TLS_CERT", "SRU_TLS_KEY"):
            self.assertIn(os.path.dirname(env[name]), mounts)
        with running.Server(BINARIES) as server:
            running.get("http://%s/readyz" % server.metrics_address)
        self.check_env(container)

    def test_tokens_and_keys_come_from_a_secret(self):
        container, = kustomize("overlays", "cpu-tls-auth")["Deployment", "sru-server"]["spec"]["template"]["spec"]["containers"]
        self.check_env(container)
        env = self.env(container)
        self.assertIn("SRU_TLS_CERT", env)
        secret, = load_all("examples", "auth-secret.yaml")
        for name in ("SRU_AUTH_TOKENS_FILE", "SRU_STATE_KEY_FILE"):
            folder, key = os.path.split(env[name])
            self.assertIn(folder, [mount["mountPath"] for mount in container["volumeMounts"]])
            self.assertIn(key, secret["stringData"])
        # The server refuses the example as it is and takes it with tokens and keys of one's own.
        with tempfile.TemporaryDirectory() as folder:
            files = {"SRU_AUTH_TOKENS_FILE": os.path.join(folder, "tokens"), "SRU_STATE_KEY_FILE": os.path.join(folder, "state_keys")}

            def write(own):
                for path in files.values():
                    text = secret["stringData"][os.path.basename(path)]
                    if own:
                        text = re.sub("CHANGE-ME", lambda _: secrets.token_urlsafe(32), text)
                    with open(path, "w", encoding="utf-8") as file:
                        file.write(text)
                    os.chmod(path, 0o440)

            write(own=False)
            for variable in files:
                done = running.run(
                    os.path.join(BINARIES, "sru_server"), "--model_repository=" + running.MODELS, "--listen=127.0.0.1:0",
                    env={variable: files[variable]})
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("--" + variable.removeprefix("SRU_").lower(), done.stderr)
            write(own=True)
            with running.Server(BINARIES, files):
                pass

    def test_keda_scales_to_zero_by_a_signal_that_needs_no_pod(self):
        objects = kustomize("overlays", "cpu-keda")
        self.assertNotIn(("HorizontalPodAutoscaler", "sru-server"), objects)
        scaled = objects["ScaledObject", "sru-server"]["spec"]
        self.assertEqual(scaled["scaleTargetRef"]["name"], objects["Deployment", "sru-server"]["metadata"]["name"])
        self.assertEqual(scaled["minReplicaCount"], 0)
        queries = [trigger["metadata"]["query"] for trigger in scaled["triggers"] if trigger["type"] == "prometheus"]
        with running.Server(BINARIES) as server:
            server.load()
            ours = server.metrics()
        named = [set(re.findall(r"\b(?:sru|envoy)_\w+", query)) - {"envoy_http_conn_manager_prefix"} for query in queries]
        self.assertTrue(all(name in ours for names in named[:-1] for name in names), named)
        self.assertFalse(named[-1] & set(ours), "the last one must not be the server's own")

    def test_kserve(self):
        runtime, = load_all("kserve", "servingruntime.yaml")
        service, = load_all("kserve", "inferenceservice.yaml")
        self.assertEqual(runtime["apiVersion"], "serving.kserve.io/v1alpha1")
        self.assertEqual(service["apiVersion"], "serving.kserve.io/v1beta1")
        container, = runtime["spec"]["containers"]
        self.assertEqual(container["name"], "kserve-container", "the name that KServe merges by")
        self.check_env(container)
        env = self.env(container)
        self.assertEqual(env["SRU_MODEL_REPOSITORY"], "/mnt/models", "where the storage initializer writes")
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.assertEqual(list(ports), ["h2c", "http"], "KServe takes the protocol of a port from its name")
        self.assertEqual(env["SRU_LISTEN"], "0.0.0.0:%d" % ports["h2c"])
        self.assertEqual(env["SRU_HTTP_LISTEN"], "0.0.0.0:%d" % ports["http"])
        self.assertEqual(container["readinessProbe"]["grpc"]["port"], ports["h2c"])
        self.assertEqual(runtime["spec"]["protocolVersions"], ["grpc-v2", "v2"])
        predictor = service["spec"]["predictor"]
        model = predictor["model"]
        self.assertEqual(model["runtime"], runtime["metadata"]["name"])
        self.assertIn(model["modelFormat"]["name"], [f["name"] for f in runtime["spec"]["supportedModelFormats"]])
        self.assertGreater(predictor["terminationGracePeriodSeconds"], float(env["SRU_DRAIN_TIMEOUT_S"]))

    def test_the_operators_rules_are_those_of_the_files(self):
        script = os.path.join(running.ROOT, "deploy", "prometheus", "to_prometheusrule.py")
        done = running.run(sys.executable, script, "--check")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rule = kustomize("monitoring")["PrometheusRule", "sru-server"]
        groups = []
        for name in ("recording.yaml", "alerts.yaml"):
            groups += yaml.safe_load(running.read("deploy", "prometheus", name))["groups"]
        self.assertEqual(rule["spec"]["groups"], groups)


class AutoscalerMetricTest(unittest.TestCase):
    def test_the_adapters_query_gives_one_value_per_pod(self):
        if shutil.which("prometheus") is None:
            self.skipTest("prometheus is not installed (scripts/deps.sh deploy)")
        values, = load_all("monitoring", "prometheus-adapter-values.yaml")
        rule, = values["rules"]["custom"]
        with running.Server(BINARIES) as server:
            labels = {"namespace": "default", "pod": "sru-server-1"}
            with running.Prometheus([server.metrics_address], labels=labels, rules=()) as prometheus:
                # Does what the adapter does: finds the series, then asks for the pods of a namespace.
                found = running.wait_for("the series", lambda: prometheus.query(rule["seriesQuery"]))
                series = found[0][0]["__name__"]
                self.assertEqual(series, "sru_queue_tokens")
                query = rule["metricsQuery"]
                for placeholder, value in (
                    ("<<.GroupBy>>", "pod"), ("<<.Series>>", series),
                    ("<<.LabelMatchers>>", 'namespace="default",pod=~"sru-server-1|sru-server-2"'),
                ):
                    self.assertIn(placeholder, query)
                    query = query.replace(placeholder, value)
                self.assertEqual(prometheus.query(query), [({"pod": "sru-server-1"}, 0.0)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
