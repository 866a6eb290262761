#!/usr/bin/env python3
"""Exports models of SRU_SHARED_DIR (default ../shared, from the project's root) for the tests of whole models, with
models/export_torch.py.

  export_shared_cases.py OUT FOLDER...

A FOLDER of SRU_SHARED_DIR is a model (it has checkpoint.pt), or has models, such as golden_systems/language_model. Each becomes
OUT/NAME/1, with its expected.* beside the model's files.

Exits with 77 when a folder or PyTorch is absent; OUT does not exist then.
"""

import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def models_of(folder):
    def is_model(path):
        return os.path.exists(os.path.join(path, "checkpoint.pt"))

    inside = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    return [folder] if is_model(folder) else [path for path in inside if is_model(path)]


def main(out, *folders):
    shutil.rmtree(out, ignore_errors=True)
    shared = os.environ.get("SRU_SHARED_DIR", os.path.join(ROOT, "..", "shared"))
    folders = [os.path.join(shared, folder) for folder in folders]
    for folder in folders:
        if not os.path.isdir(folder):
            print(f"skipped: {folder} is absent; set SRU_SHARED_DIR to the directory that has it")
            return 77
    try:
        import torch  # pylint: disable=unused-import,import-outside-toplevel
    except ImportError:
        print("skipped: this Python has no torch (apt install python3-torch)")
        return 77
    partial = out + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.makedirs(partial)
    exporters = []
    for source in [model for folder in folders for model in models_of(folder)]:
        target = os.path.join(partial, os.path.basename(source), "1")
        exporters.append((source, target, subprocess.Popen(
            [sys.executable, "-B", os.path.join(ROOT, "models", "export_torch.py"),
             "--checkpoint", os.path.join(source, "checkpoint.pt"),
             "--config", os.path.join(source, "config.json"), "--out", target])))
    for source, target, exporter in exporters:
        if exporter.wait() != 0:
            print(f"cannot export {source}")
            return 1
        for name in os.listdir(source):
            if name.startswith("expected."):
                shutil.copy(os.path.join(source, name), target)
    os.rename(partial, out)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
