"""Checks a container image: its configuration, its contents, and that its root file system runs as the user, read-only.

image_test.py --build=BUILD   builds an image from the programs of this build folder, then tests it
image_test.py --image=NAME [--engine=docker|podman|buildah]

No engine runs the image: the test starts it in namespaces of its own with nothing but what the image says (entry
point, variables, user, ports), so that it works where only buildah is. Needs root. deploy/test_image.sh calls this.
"""

import argparse
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

import running

MAX_BYTES = 120_000_000
MAX_CUDA_BYTES = 1_000_000_000  # more than half of it is cuBLASLt
HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--build")
    what.add_argument("--image")
    parser.add_argument("--engine", choices=["docker", "podman", "buildah"])
    return parser.parse_args()


def output(*command):
    done = running.run(*command, timeout=300)
    if done.returncode != 0:
        raise RuntimeError("%s: %s" % (" ".join(command), done.stderr.strip()))
    return done.stdout


def works(*command):
    try:
        return running.run(*command).returncode == 0
    except OSError:
        return False


class Image:
    """The configuration and the root file system of an image. A context manager."""

    def __init__(self, options):
        self.work = tempfile.mkdtemp(prefix="sru-image-")
        os.chmod(self.work, 0o755)  # the image's user must reach what is below
        self.root = os.path.join(self.work, "root")
        os.mkdir(self.root)
        storage = os.environ.get("SRU_IMAGE_STORAGE", os.path.join(running.ROOT, "build", "image-storage"))
        image, engine = options.image, options.engine
        if options.build:
            engine, image, storage = "buildah", "sru-server:test", os.path.join(self.work, "storage")
            print(output(
                "env", "SRU_IMAGE_STORAGE=" + storage, os.path.join(running.ROOT, "deploy", "build_image.sh"),
                "--engine=buildah", "--tag=" + image, "--prebuilt=" + os.path.abspath(options.build),
            ).splitlines()[-1])
        elif engine is None:
            engine = next((e for e in ("docker", "podman") if works(e, "image", "inspect", image)), "buildah")
        if engine == "buildah":
            self.buildah = ["buildah", "--root", storage, "--runroot", self.work + "/run", "--storage-driver", "vfs"]
            self.config = json.loads(output(*self.buildah, "inspect", "--type", "image", image))["Docker"]["config"]
            container = output(*self.buildah, "from", "--pull-never", image).strip()
            try:
                mounted = output(*self.buildah, "mount", container).strip()
                output("cp", "-a", mounted + "/.", self.root)
            finally:
                output(*self.buildah, "rm", container)
        else:
            inspected = json.loads(output(engine, "image", "inspect", image))[0]
            self.config = inspected["Config"]
            if "Healthcheck" in inspected:  # where podman has it
                self.config["Healthcheck"] = inspected["Healthcheck"]
            container = output(engine, "create", image).strip()
            try:
                archive = os.path.join(self.work, "root.tar")
                output(engine, "export", "-o", archive, container)
                output("tar", "-C", self.root, "-xf", archive)
            finally:
                output(engine, "rm", container)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.work, ignore_errors=True)

    def environment(self):
        return dict(variable.split("=", 1) for variable in self.config["Env"])

    def command(self, *program):
        user, group = self.config["User"].split(":")
        return [sys.executable, "-B", os.path.join(HERE, "container.py"), self.root, user, group, *program]


class Container:
    """The image's entry point, process 1 of namespaces of its own. A context manager."""

    def __init__(self, image):
        self.image = image
        self.process = subprocess.Popen(
            [shutil.which("unshare"), "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
            + image.command(*image.config["Entrypoint"]),
            env={**image.environment(), "CONTAINER_SETUP": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
        )
        self.first_line = self.process.stdout.readline()
        if not self.first_line:
            error = self.process.communicate()[1]
            raise RuntimeError("the image does not start: " + error)
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid), encoding="ascii") as file:
            self.pid = int(file.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def inside(self, *command, environment=None):
        return running.run(
            shutil.which("nsenter"), "--target", str(self.pid), "--mount", "--net", "--pid", *command, env=environment)

    def execute(self, *program):
        """Does what `docker exec` does."""
        return self.inside(*self.image.command(*program), environment=self.image.environment())

    def get(self, path):
        done = self.inside(
            sys.executable, "-c",
            "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())",
            "http://127.0.0.1:9090" + path,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout

    def status(self, field):
        with open("/proc/%d/status" % self.pid, encoding="ascii") as file:
            return re.search(r"^%s:\s*(.*)$" % field, file.read(), re.MULTILINE).group(1)


OPTIONS = arguments()
if os.geteuid() != 0:
    running.skip("needs root, for namespaces and chroot")
if OPTIONS.build or OPTIONS.engine == "buildah":
    running.need_command("buildah")
running.need_command("unshare", "nsenter")
if not works("unshare", "--mount", "--pid", "--net", "--fork", "true"):
    running.skip("this machine lets nobody make namespaces")
if OPTIONS.build and not works("buildah", "--storage-driver", "vfs", "--root", "/nonexistent/a", "--version"):
    running.skip("buildah does not work here")


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.image = Image(OPTIONS)
        cls.addClassCleanup(cls.image.__exit__)

    def paths(self):
        for folder, folders, files in os.walk(self.image.root):
            for name in folders + files:
                yield os.path.join(folder, name)

    def test_configuration(self):
        config = self.image.config
        user, group = config["User"].split(":")
        self.assertGreater(int(user), 0, "a number, and not root")
        self.assertGreater(int(group), 0)
        self.assertEqual(config["Entrypoint"], ["/usr/local/bin/sru_server"], "exec form, so that it gets signals")
        self.assertFalse(config.get("Cmd"))
        self.assertEqual(set(config["ExposedPorts"]), {"50051/tcp", "8080/tcp", "9090/tcp"})
        # This is not the server's default, which depends on its gRPC: the engine decides who reaches the port.
        self.assertEqual(self.image.environment()["SRU_LISTEN"], "0.0.0.0:50051")
        self.assertEqual(config["StopSignal"], "SIGTERM")
        self.assertEqual(config["Healthcheck"]["Test"][:3], ["CMD", "/usr/local/bin/sru_client", "health"])
        for label in ("title", "description", "licenses", "version", "revision", "created"):
            self.assertTrue(config["Labels"]["org.opencontainers.image." + label])
        self.assertRegex(config["Labels"]["org.opencontainers.image.version"], r"^\d+\.\d+\.\d+$")

    def test_size(self):
        size = sum(os.lstat(path).st_size for path in self.paths() if os.path.isfile(path))
        print("%.1f MB" % (size / 1e6))
        self.assertLess(size, MAX_CUDA_BYTES if self.is_cuda() else MAX_BYTES)

    def is_cuda(self):
        return "NVIDIA_VISIBLE_DEVICES" in self.image.environment()

    def test_asks_for_the_driver_that_its_cublas_needs(self):
        if not self.is_cuda():
            self.skipTest("an image for the processor")
        major, = {m.group(1) for m in (re.search(r"/libcublasLt\.so\.(\d+)$", path) for path in self.paths()) if m}
        self.assertEqual(self.image.environment()["NVIDIA_REQUIRE_CUDA"], "cuda>=%s.0" % major)

    def test_has_cublas_but_not_the_driver_if_it_is_for_gpus(self):
        names = [os.path.basename(path) for path in self.paths()]
        self.assertEqual(any(re.match(r"libcublasLt\.so\.\d+$", name) for name in names), self.is_cuda())
        self.assertFalse([name for name in names if re.match(r"libcuda\.so|libnvidia-", name)], "the host's is mounted")

    def test_holds_nothing_to_break_in_with(self):
        programs = []
        for path in self.paths():
            mode = os.lstat(path).st_mode
            self.assertFalse(mode & (stat.S_ISUID | stat.S_ISGID) and stat.S_ISREG(mode), path)
            self.assertEqual(os.lstat(path).st_uid, 0, path)
            if not stat.S_ISLNK(mode) and not mode & stat.S_ISVTX:
                self.assertFalse(mode & (stat.S_IWGRP | stat.S_IWOTH), path + " can be written")
            folder = os.path.basename(os.path.dirname(path))
            if stat.S_ISREG(mode) and folder in ("bin", "sbin"):
                programs.append(os.path.basename(path))
        self.assertEqual(sorted(programs), ["sru_client", "sru_server"])

    def test_names_its_packages_and_their_licences(self):
        folder = os.path.join(self.image.root, "var", "lib", "dpkg", "status.d")
        if not os.path.exists("/usr/bin/dpkg-query") and not os.listdir(folder):
            self.skipTest("built where there is no dpkg")
        packages = os.listdir(folder)
        self.assertTrue(any(name.startswith("libgrpc") for name in packages), packages)
        for name in packages:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                self.assertRegex(file.read(), r"(?m)^Version: ")
        self.assertTrue(os.path.exists(os.path.join(self.image.root, "usr", "share", "doc", "sru", "LICENSE")))

    def test_runs(self):
        health = self.image.config["Healthcheck"]["Test"][1:]
        with Container(self.image) as container:
            self.assertIn(
                "listening on 0.0.0.0:50051, metrics on 0.0.0.0:9090, HTTP on 0.0.0.0:8080", container.first_line
            )
            self.assertEqual(container.status("NSpid").split()[-1], "1", "as in a container, where signals differ")
            self.assertEqual(set(container.status("Uid").split()), {self.image.config["User"].split(":")[0]})
            self.assertEqual(int(container.status("CapEff"), 16), 0)
            self.assertEqual(int(container.status("CapBnd"), 16), 0)

            done = container.execute(*health)
            self.assertEqual(done.returncode, 0, done.stderr)

            # Three places say which gRPC it has; the label can be read without starting the image.
            grpc = self.image.config["Labels"]["io.grpc.version"]
            self.assertRegex(grpc, r"^\d+\.\d+\.\d+$")
            done = container.execute("/usr/local/bin/sru_server", "--version")
            self.assertRegex(done.stdout, r"\bgRPC %s\b" % re.escape(grpc))
            self.assertRegex(container.get("/metrics"), r'sru_build_info\{[^}]*grpc="%s"' % re.escape(grpc))

            question = "How many moons does Jupiter have ?"
            done = container.execute("/usr/local/bin/sru_client", "classify", "--json", question)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn('"NUM"', done.stdout)

            counted = 'sru_requests_total{code="OK",method="Classify",model="trec",version="1"} 1'
            self.assertIn(counted, container.get("/metrics"))
            self.assertIn("ready", container.get("/readyz"))

            os.kill(container.pid, signal.SIGTERM)
            log = container.process.communicate(timeout=30)[1]
            self.assertEqual(container.process.returncode, 0, log)
            self.assertIn("drained", log)

    def test_the_health_check_fails_without_a_server(self):
        health = self.image.config["Healthcheck"]["Test"][1:]
        done = running.run(
            shutil.which("unshare"), "--mount", "--pid", "--net", "--fork", "--kill-child", *self.image.command(*health),
            env={**self.image.environment(), "CONTAINER_SETUP": "1"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("sru_client health: ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
