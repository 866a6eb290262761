#!/usr/bin/env python3
"""Writes the rules as the Prometheus operator's resource, deploy/kubernetes/monitoring/prometheusrule.yaml.

deploy/prometheus/to_prometheusrule.py           after a change of recording.yaml or alerts.yaml
deploy/prometheus/to_prometheusrule.py --check   exits with 1 when it is not up to date
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent / "kubernetes" / "monitoring" / "prometheusrule.yaml"

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
        for line in (HERE / name).read_text(encoding="utf-8").split("groups:\n", 1)[1].splitlines():
            if line and not line.lstrip().startswith("#"):
                text += "  " + line + "\n"
    return text


def main():
    text = make()
    if "--check" not in sys.argv[1:]:
        OUT.write_text(text, encoding="utf-8")
    elif OUT.read_text(encoding="utf-8") != text:
        sys.exit("prometheusrule.yaml is not up to date; run deploy/prometheus/to_prometheusrule.py")


if __name__ == "__main__":
    main()
