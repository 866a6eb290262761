#!/usr/bin/env python3
"""Exports the golden language models of golden_systems/language_model in SRU_SHARED_DIR (default ../shared,
from the project's root) for language_model_test.cc, with models/export_torch.py.

  export_shared_cases.py OUT

Exits with 77 when the folder or PyTorch is absent; OUT does not exist then.
"""

import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main(out):
    shutil.rmtree(out, ignore_errors=True)
    shared = os.environ.get("SRU_SHARED_DIR", os.path.join(ROOT, "..", "shared"))
    cases = os.path.join(shared, "golden_systems", "language_model")
    if not os.path.isdir(cases):
        print(f"skipped: {cases} is absent; set SRU_SHARED_DIR to the directory that has it")
        return 77
    try:
        import torch  # pylint: disable=unused-import,import-outside-toplevel
    except ImportError:
        print("skipped: this Python has no torch (apt install python3-torch)")
        return 77
    partial = out + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    exporters = []
    for case in sorted(os.listdir(cases)):
        source, target = os.path.join(cases, case), os.path.join(partial, case, "1")
        os.makedirs(partial, exist_ok=True)
        exporters.append((source, target, subprocess.Popen(
            [sys.executable, "-B", os.path.join(ROOT, "models", "export_torch.py"),
             "--checkpoint", os.path.join(source, "checkpoint.pt"),
             "--config", os.path.join(source, "config.json"), "--out", target])))
    for source, target, exporter in exporters:
        if exporter.wait() != 0:
            print(f"cannot export {source}")
            return 1
        shutil.copy(os.path.join(source, "expected.safetensors"), target)
    os.rename(partial, out)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
