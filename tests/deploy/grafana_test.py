"""Runs every query of the Grafana dashboard against a real Prometheus that scrapes a real server.

grafana_test.py FOLDER_WITH_THE_PROGRAMS
"""

import json
import os
import re
import sys
import unittest

import features
import running

running.need_command("prometheus")
yaml = running.need_module("yaml")

BINARIES = sys.argv[1]
DASHBOARD = json.loads(running.read("deploy", "grafana", "dashboard.json"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expanded(expression):
    """What Grafana would send for the defaults of the dashboard's variables."""
    values = {"job": "sru-server", "instance": ".*", "model": ".*", "__rate_interval": "1m", "__interval": "15s"}
    return re.sub(r"\$(\w+)|\$\{(\w+)\}", lambda m: values[m.group(1) or m.group(2)], expression)


def metric_names(expression):
    return set(re.findall(r"\b(?:sru|process|DCGM)_\w+(?=\{)", expression))


def queries():
    for panel in PANELS:
        for target in panel["targets"]:
            yield "%s, %s" % (panel["title"], target["refId"]), target


class LayoutTest(unittest.TestCase):
    def test_has_the_panels_that_operators_look_for(self):
        titles = " ".join(panel["title"] for panel in DASHBOARD["panels"]).lower()
        for word in ("latency", "time goes", "waiting tokens", "age", "batch fill", "refused", "in flight",
                     "by code", "gpu"):
            self.assertIn(word, titles)
        self.assertIn("heatmap", {panel["type"] for panel in PANELS})

    def test_ids_are_unique_and_panels_do_not_overlap(self):
        ids = [panel["id"] for panel in DASHBOARD["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        cells = set()
        for panel in DASHBOARD["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertNotIn((x, y), cells, panel["title"])
                    cells.add((x, y))

    def test_panels_ask_the_chosen_data_source(self):
        for panel in PANELS:
            for source in [panel["datasource"]] + [target["datasource"] for target in panel["targets"]]:
                self.assertEqual(source, {"type": "prometheus", "uid": "${datasource}"}, panel["title"])

    def test_provisioning_finds_the_dashboard(self):
        folder = os.path.join("deploy", "grafana", "provisioning")
        providers = yaml.safe_load(running.read(folder, "dashboards", "dashboards.yaml"))["providers"]
        sources = yaml.safe_load(running.read(folder, "datasources", "prometheus.yaml"))["datasources"]
        compose = yaml.safe_load(running.read("deploy", "compose.yaml"))
        mounts = {v.split(":")[1]: v.split(":")[0] for v in compose["services"]["grafana"]["volumes"]}
        mounted = [path for path in mounts if path.startswith(providers[0]["options"]["path"] + "/")]
        self.assertEqual([mounts[path] for path in mounted], ["./grafana/dashboard.json"])
        home = compose["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        self.assertIn(home, mounted)
        self.assertEqual(sources[0]["type"], "prometheus")
        self.assertEqual(sources[0]["url"], "http://prometheus:9090")


class QueriesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = running.Server(BINARIES)
        cls.addClassCleanup(cls.server.__exit__)
        cls.server.load()
        cls.prometheus = running.Prometheus([cls.server.metrics_address])
        cls.addClassCleanup(cls.prometheus.__exit__)

        def rates():
            cls.server.load()  # each counter must move between two scrapes, which may come within a load
            # The last series to appear: a code that only errors have.
            return cls.prometheus.query('rate(sru_requests_total{code="NOT_FOUND"}[1m]) > 0') and all(
                cls.prometheus.query('rate(sru_request_duration_seconds_count{method="%s"}[1m]) > 0' % method)
                for method in ("Classify", "Encode", "Score", "Generate")
            )

        running.wait_for("rates", rates)

    def test_every_query_has_data_with_the_labels_of_its_legend(self):
        for name, target in queries():
            expression = expanded(target["expr"])
            with self.subTest(name, expression=expression):
                found = self.prometheus.query(expression)
                if metric_names(expression) & (features.OPTIONAL | features.EXTERNAL):
                    continue  # parsed; for the rest see below
                self.assertTrue(found, "no data")
                self.assertTrue(any(value == value for _, value in found), "only NaN")
                wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                for labels, _ in found:
                    self.assertLessEqual(wanted, set(labels))

    def test_every_metric_exists_with_the_labels_that_are_matched(self):
        # An empty label matcher such as reason!="x" gives data for a wrong label too.
        series = self.server.metrics()
        for name, target in queries():
            if not metric_names(target["expr"]) & (features.OPTIONAL | features.EXTERNAL):
                with self.subTest(name):
                    self.check_metrics(target, series)

    def test_every_optional_metric_exists_with_the_labels_that_are_used(self):
        for feature in features.FEATURES:
            with self.subTest(feature.name):
                series = features.metrics_with(feature, BINARIES)
                for _, target in queries():
                    if metric_names(target["expr"]) & feature.metrics:
                        self.check_metrics(target, series)

    def check_metrics(self, target, series):
        # What is left out by them gives no labels to the legend.
        left_out = re.findall(r"\bunless on \([^)]*\) \w+\((\w+)\{", target["expr"])
        for metric, matchers in re.findall(r"\b((?:sru|process)_\w+)\{([^}]*)\}", target["expr"]):
            self.assertIn(metric, series)
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            if metric not in left_out:
                labels |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            self.assertLessEqual(labels - {"job", "instance"}, series[metric], metric)

    def test_variables_have_values(self):
        for variable in DASHBOARD["templating"]["list"]:
            if variable["type"] != "query":
                continue
            with self.subTest(variable["name"]):
                found = re.match(r"label_values\((.*), (\w+)\)$", expanded(variable["query"]["query"]))
                rows = self.prometheus.query(found.group(1))
                self.assertTrue(rows)
                self.assertIn(found.group(2), rows[0][0])

    def test_annotations_parse(self):
        for annotation in DASHBOARD["annotations"]["list"]:
            if "expr" in annotation:
                self.prometheus.query(annotation["expr"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
