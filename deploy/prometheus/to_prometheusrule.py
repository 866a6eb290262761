#!/usr/bin/env python3
"""Writes the rules as the Prometheus operator's resource, deploy/kubernetes/monitoring/prometheusrule.yaml.

deploy/prometheus/to_prometheusrule.py           after a change of recording.yaml or alerts.yaml
deploy/prometheus/to_prometheusrule.py --check   exits with 1 when it is not up to date
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "kubernetes", "monitoring", "prometheusrule.yaml")

HEAD = """\
# Made by deploy/prometheus/to_prometheusrule.py from recording.yaml and alerts.yaml there; edit those.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: sru-server
  labels:
    app.kubernetes.io/name: sru-server
spec:
  groups:
"""


def make():
    text = HEAD
    for name in ("recording.yaml", "alerts.yaml"):
        with open(os.path.join(HERE, name), encoding="utf-8") as file:
            lines = file.read().split("groups:\n", 1)[1].splitlines()
        for line in lines:
            if line and not line.lstrip().startswith("#"):
                text += "  " + line + "\n"
    return text


def main():
    text = make()
    if "--check" in sys.argv[1:]:
        with open(OUT, encoding="utf-8") as file:
            if file.read() != text:
                sys.exit("prometheusrule.yaml is not up to date; run deploy/prometheus/to_prometheusrule.py")
        return
    with open(OUT, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
