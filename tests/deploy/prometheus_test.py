"""Tests the recording and alert rules: promtool's checks and unit tests, and a real Prometheus with a real server.

prometheus_test.py FOLDER_WITH_THE_PROGRAMS
"""

import os
import re
import subprocess
import sys
import unittest

import features
import running

running.need_command("prometheus", "promtool")
yaml = running.need_module("yaml")

FOLDER = os.path.join(running.ROOT, "deploy", "prometheus")
BINARIES = sys.argv[1]

def rules(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return [rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]


def metric_names(expression):
    return set(re.findall(r"\b(?:sru_|process_|DCGM_)\w+|\bup\b(?=\{)", expression))


class RuleFilesTest(unittest.TestCase):
    def promtool(self, *arguments):
        done = running.run("promtool", *arguments, cwd=FOLDER, stderr=subprocess.STDOUT, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_promtool_accepts_the_rules(self):
        self.assertIn("SUCCESS", self.promtool("check", "rules", "recording.yaml", "alerts.yaml"))

    def test_promtool_accepts_the_configuration(self):
        # --syntax-only: the rules' paths are those of the container.
        self.promtool("check", "config", "--syntax-only", "prometheus.yaml")

    def test_unit_tests(self):
        self.promtool("test", "rules", "recording_test.yaml", "alerts_test.yaml")

    def test_every_alert_fires_in_a_unit_test(self):
        with open(os.path.join(FOLDER, "alerts_test.yaml"), encoding="utf-8") as file:
            fired = set(re.findall(r'ALERTS\{alertname="(\w+)"', file.read()))
        self.assertEqual({rule["alert"] for rule in rules("alerts.yaml")}, fired)

    def test_every_alert_says_what_to_do(self):
        for rule in rules("alerts.yaml"):
            with self.subTest(rule["alert"]):
                self.assertIn(rule["labels"]["severity"], ("page", "ticket"))
                for name in ("summary", "description"):
                    self.assertTrue(rule["annotations"][name])
                # tests/pages_test.py looks for the heading.
                self.assertRegex(rule["annotations"]["runbook"], r"^docs/operations\.md#[a-z-]+$")


class RealPrometheusTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = running.Server(BINARIES)
        cls.addClassCleanup(cls.server.__exit__)
        cls.server.load()
        with running.Server(BINARIES) as stopped:
            cls.gone = stopped.metrics_address
        cls.prometheus = running.Prometheus([cls.server.metrics_address, cls.gone])
        cls.addClassCleanup(cls.prometheus.__exit__)

    def test_the_alert_of_refusals_explains_every_reason(self):
        text = running.get("http://%s/metrics" % self.server.metrics_address)
        reasons = set(re.findall(r'sru_rejections_total\{.*reason="(\w+)"', text)) - {"draining"}
        self.assertGreater(len(reasons), 1)
        alert, = (rule for rule in rules("alerts.yaml") if rule["alert"] == "SruRejections")
        for reason in reasons:
            self.assertIn("(%s)" % reason, alert["annotations"]["description"])

    def test_scrapes_the_server(self):
        target = running.wait_for(
            "a scrape", lambda: [t for t in self.prometheus.api("targets")["activeTargets"] if t["health"] == "up"]
        )[0]
        self.assertEqual(target["lastError"], "")

    def test_sees_that_a_server_is_gone(self):
        pending = running.wait_for(
            "the alert", lambda: self.prometheus.query('ALERTS{alertname="SruServerDown"}'))
        self.assertEqual([labels["instance"] for labels, _ in pending], [self.gone])
        self.assertEqual(pending[0][0]["alertstate"], "pending", "it fires after two minutes")

    def test_every_recording_rule_has_values(self):
        names = [rule["record"] for rule in rules("recording.yaml")]
        self.assertGreater(len(names), 10)
        for name in names:
            with self.subTest(name):
                # Counters must move between two scrapes.
                def values(name=name):
                    found = self.prometheus.query(name)
                    if not found or any(value != value for _, value in found):
                        self.server.load()
                        return None
                    return found

                found = running.wait_for(name, values)
                self.assertGreaterEqual(min(value for _, value in found), 0)
                # The rows of calls that named no loaded model have no label model.
                self.assertTrue(any(set(name.split(":")[0].split("_")) <= set(labels) for labels, _ in found))

    def test_the_rules_are_evaluated_without_an_error_and_nothing_fires(self):
        def evaluated():
            groups = self.prometheus.api("rules")["groups"]
            found = [rule for group in groups for rule in group["rules"]]
            return found if all(rule["health"] != "unknown" for rule in found) else None

        found = running.wait_for("the rules", evaluated)
        self.assertEqual(len(found), len(rules("recording.yaml")) + len(rules("alerts.yaml")))
        for rule in found:
            with self.subTest(rule["name"]):
                self.assertEqual(rule["health"], "ok", rule.get("lastError"))
                self.assertNotEqual(rule.get("state"), "firing")

    def test_metrics_of_the_rules_exist(self):
        series = self.server.metrics()
        recorded = {rule["record"] for rule in rules("recording.yaml")}
        for rule in rules("recording.yaml") + rules("alerts.yaml"):
            # Names of recorded series contain names of metrics.
            expression = rule["expr"]
            for name in sorted(recorded, key=len, reverse=True):
                expression = expression.replace(name, "")
            with self.subTest(rule.get("alert", rule.get("record"))):
                self.assertNotIn(":", re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", expression), "an unknown recorded series")
                for metric in metric_names(expression) - {"up"}:
                    if metric not in features.OPTIONAL | features.EXTERNAL:
                        self.assertIn(metric, series)

    def test_metrics_of_optional_features_exist(self):
        text = running.read("deploy", "prometheus", "alerts.yaml")
        for feature in features.FEATURES:
            with self.subTest(feature.name):
                series = features.metrics_with(feature, BINARIES)
                for metric in feature.metrics & metric_names(text):
                    self.assertIn(metric, series)

    def test_the_objective_is_a_bucket(self):
        found = running.wait_for(
            "buckets", lambda: self.prometheus.query('count(sru_request_duration_seconds_bucket{le="0.1"})')
        )
        self.assertGreater(found[0][1], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
