"""Reads deploy/kubernetes as kubectl would apply it. Skips the test if there is no kubectl."""

import os
import re
import shutil
import tempfile

import running

running.need_command("kubectl")
yaml = running.need_module("yaml")

FOLDER = os.path.join(running.ROOT, "deploy", "kubernetes")


def to_old_syntax(folder):
    """Rewrites kustomization files for kustomize 2.0, which the kubectl of Debian 12 (1.20) has inside."""
    for parent, _, files in os.walk(folder):
        if "kustomization.yaml" not in files:
            continue
        path = os.path.join(parent, "kustomization.yaml")
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
        resources = content.pop("resources", [])
        content["bases"] = [r for r in resources if not r.endswith(".yaml")]
        content["resources"] = [r for r in resources if r.endswith(".yaml")]
        content["patchesStrategicMerge"] = [patch["path"] for patch in content.pop("patches", [])]
        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump(content, file)


def kustomize(*folder):
    """The resources of a kustomization, by (kind, name)."""

    def run(root):
        return running.run("kubectl", "kustomize", os.path.join(root, *folder), timeout=120)

    done = run(FOLDER)
    if done.returncode != 0:
        version = running.run("kubectl", "version", "--client", timeout=120).stdout
        if not re.search(r'v1\.(1\d|20)\.|Minor:"(1\d|20)"', version):
            raise AssertionError(done.stderr)
        print("kubectl is older than 1.21: the kustomizations are translated for it")
        with tempfile.TemporaryDirectory() as copy:
            root = os.path.join(copy, "kubernetes")
            shutil.copytree(FOLDER, root)
            to_old_syntax(root)
            done = run(root)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    found = {}
    for resource in yaml.safe_load_all(done.stdout):
        key = (resource["kind"], resource["metadata"]["name"])
        if key in found:
            raise AssertionError("%s twice" % (key,))
        found[key] = resource
    return found


def load_all(*path):
    return [document for document in yaml.safe_load_all(running.read("deploy", "kubernetes", *path)) if document]
