"""Tests deploy/build_image.sh with a stand-in for docker: what it builds, and what it says if it cannot.

That the images work is image_test.py's.
"""

import os
import sys
import tempfile
import unittest

import running

SCRIPT = os.path.join(running.ROOT, "deploy", "build_image.sh")

# Records how it was called; $FAILS names a stage that cannot be built, $VERSION is what the server says.
DOCKER = """#!/bin/bash
printf '%s\\n' "$*" >>"$CALLS"
case "$1" in
  build)
    [[ -z "$FAILS" || " $* " != *" --target $FAILS "* ]] || { echo "ERROR: no such image" >&2; exit 1; }
    [[ " $* " != *" -q "* ]] || cp "${@: -1}/Dockerfile" "$CALLS.label"
    ;;
  run) echo "$VERSION" ;;
  image) echo 73000000 ;;
esac
"""


class BuildImageTest(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.calls = os.path.join(work.name, "calls")
        with open(os.path.join(work.name, "docker"), "w", encoding="ascii") as file:
            file.write(DOCKER)
        os.chmod(file.name, 0o755)
        self.environment = dict(
            os.environ, PATH=work.name + ":" + os.environ["PATH"], CALLS=self.calls, FAILS="",
            VERSION="sru_server 0.1.0 (backends: cpu; gRPC 1.51.1)",
        )

    def build(self, *arguments, fails="", **environment):
        return running.run(SCRIPT, "--engine=docker", *arguments, env={**self.environment, "FAILS": fails, **environment})

    def built(self, stage):
        """The arguments with which this stage was built, or None."""
        with open(self.calls, encoding="utf-8") as file:
            return next((line for line in file if " --target %s " % stage in line), None)

    def test_the_label_has_the_version_that_the_server_says(self):
        done = self.build("--tag=mine:1")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.calls + ".label", encoding="utf-8") as file:
            self.assertEqual(file.read(), 'FROM mine:1\nLABEL io.grpc.version="1.51.1"\n')
        done = self.build(VERSION="sru_server 0.1.0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected 'gRPC VERSION' in what the image's sru_server --version says, found none", done.stderr)

    def test_an_image_that_does_not_build_is_an_error(self):
        self.assertNotEqual(self.build(fails="runtime-cpu").returncode, 0)

    def test_there_is_one_for_each_target(self):
        for target in ("cpu", "cuda"):
            done = self.build("--target=" + target)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("gRPC 1.51.1, size 73000000", done.stdout)
            self.assertEqual(done.stderr, "")
            self.assertNotIn(" BASE=", self.built("runtime-" + target), "the Dockerfile's")

    def test_cuda_12_is_for_older_drivers(self):
        self.build("--target=cuda")
        self.assertIn("--build-arg CUDA_REQUIRED=13.0", self.built("runtime-cuda"))
        self.assertNotIn("CUDA_BASE", self.built("runtime-cuda"), "the Dockerfile's")
        os.remove(self.calls)
        self.build("--target=cuda", "--cuda=12")
        self.assertIn("--build-arg CUDA_REQUIRED=12.0", self.built("runtime-cuda"))
        self.assertIn("--build-arg CUDA_BASE=docker.io/nvidia/cuda:12.9.1-devel-", self.built("runtime-cuda"))
        done = self.build("--cuda=12")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--cuda chooses the base of --target=cuda; leave it out with --target=cpu", done.stderr)
        dockerfile = running.read("Dockerfile")
        self.assertRegex(dockerfile, r"ARG CUDA_BASE=\S+cuda:13\.")
        self.assertRegex(dockerfile, r'ARG CUDA_REQUIRED=13\.0\n(.*\n)*?.*NVIDIA_REQUIRE_CUDA="cuda>=\$\{CUDA_REQUIRED\}"')

    def test_the_image_has_the_version_of_the_project(self):
        self.build()
        self.assertRegex(self.built("runtime-cpu"), r"--build-arg VERSION=%s " % running.read("VERSION").strip())

    def test_the_time_in_the_image_can_be_given(self):
        self.build(SOURCE_DATE_EPOCH="1000000000")
        self.assertIn("CREATED=2001-09-09T01:46:40Z", self.built("runtime-cpu"))

    def test_builds_for_another_architecture(self):
        own = "arm64" if os.uname().machine == "aarch64" else "amd64"
        other = "amd64" if own == "arm64" else "arm64"
        done = self.build("--arch=" + other)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--platform linux/" + other, self.built("runtime-cpu"))
        self.assertIn("-t sru-server:cpu-" + other, self.built("runtime-cpu"))
        os.remove(self.calls)
        self.assertEqual(self.build("--arch=" + own).returncode, 0)
        self.assertNotIn("--platform", self.built("runtime-cpu"))
        self.assertIn("-t sru-server:cpu ", self.built("runtime-cpu"))

        done = self.build("--arch=mips")
        self.assertIn("unexpected argument '--arch=mips'", done.stderr)
        done = self.build("--arch=" + other, "--local_base")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--local_base makes bases of this machine's architecture, %s;" % own, done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "bin"))
            server = os.path.join(folder, "bin", "sru_server")
            with open(server, "wb") as file:  # an ELF header of 64 bits: magic, type, machine, version
                machine = 183 if other == "arm64" else 62
                file.write(b"\x7fELF\2\1\1" + bytes(9) + bytes((2, 0, machine, 0, 1, 0, 0, 0)) + bytes(40))
            os.chmod(server, 0o755)
            done = self.build("--prebuilt=" + folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--prebuilt: expected programs for %s, found %s for %s" % (own, server, other), done.stderr)

    def test_refuses_what_does_not_go_together(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.build("--prebuilt=" + folder)
            self.assertIn("/bin/sru_server is missing", done.stderr)
            os.mkdir(os.path.join(folder, "bin"))
            server = os.path.join(folder, "bin", "sru_server")
            with open(server, "w", encoding="ascii"):
                pass
            os.chmod(server, 0o755)
            done = self.build("--prebuilt=" + folder, "--target=cuda")
            self.assertEqual(done.returncode, 1)
            self.assertIn("or leave out --target=cuda", done.stderr)
        done = self.build("--base=newest")
        self.assertEqual(done.returncode, 1)
        self.assertIn("unexpected argument '--base=newest'", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
