"""The installed client library as a project outside of the tree uses it, which is client/example.

  client_package_test.py SOURCE BUILD COMPILER

SOURCE is the project, BUILD its build folder with the client library and sru_server, COMPILER the C++ compiler.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, COMPILER = (os.path.abspath(path) for path in sys.argv[1:4])
# What the server needs and the client does not, by the names that find_package() takes.
SERVER_ONLY = ("Boost", "GTest", "OpenMP", "benchmark", "dnnl", "prometheus-cpp")


class ClientPackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        installed = cls.path("installed")
        cls.run_program("cmake", "--install", BUILD, "--component", "client", "--prefix", installed)
        cls.prefix = cls.path("moved")
        os.rename(installed, cls.prefix)

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.directory.name, *parts)

    @staticmethod
    def run_program(*command, returns=0):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CMAKE_", "SRU_"))}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        if done.returncode != returns:
            raise AssertionError("%s returned %d:\n%s" % (" ".join(command), done.returncode, done.stdout))
        return done.stdout

    def configure(self, source, *options, returns=0):
        build = tempfile.mkdtemp(dir=self.directory.name)
        compiler = "-DCMAKE_CXX_COMPILER=" + COMPILER
        return build, self.run_program("cmake", "-S", source, "-B", build, compiler, *options, returns=returns)

    def test_example_classifies(self):
        consumer = self.path("consumer")
        shutil.copytree(os.path.join(SOURCE, "client", "example"), consumer)
        build, _ = self.configure(consumer, "-DCMAKE_PREFIX_PATH=" + self.prefix)
        self.run_program("cmake", "--build", build)
        with subprocess.Popen(
            [
                os.path.join(BUILD, "bin", "sru_server"),
                "--model_repository=" + os.path.join(SOURCE, "models", "pretrained"),
                "--listen=127.0.0.1:0",
                "--metrics_listen=127.0.0.1:0",
                "--http_listen=",
            ],
            stdout=subprocess.PIPE,
            text=True,
        ) as server:
            try:
                address = re.match(r"listening on ([^ ,]+)", server.stdout.readline()).group(1)
                self.assertEqual(self.run_program(os.path.join(build, "classify"), address), "LOC\n")
            finally:
                server.terminate()
        self.assertEqual(server.returncode, 0)

    def test_names_no_path_of_the_build(self):
        package = os.path.join(self.prefix, "lib", "cmake", "sru_client")
        files = os.listdir(package)
        self.assertIn("sru_clientConfig.cmake", files)
        for name in files:
            with open(os.path.join(package, name), encoding="utf-8") as file:
                text = file.read()
            for path in (SOURCE, BUILD, self.path("installed")):
                self.assertNotIn(path, text, name)

    def test_another_version_is_not_taken(self):
        consumer = self.path("asks_for_99")
        os.mkdir(consumer)
        with open(os.path.join(consumer, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write("cmake_minimum_required(VERSION 3.25)\nproject(asks NONE)\nfind_package(sru_client 99 REQUIRED)\n")
        _, said = self.configure(consumer, "-DCMAKE_PREFIX_PATH=" + self.prefix, returns=1)
        self.assertIn("99", said)

    def test_client_alone_needs_nothing_of_the_server(self):
        absent = ["-DCMAKE_DISABLE_FIND_PACKAGE_%s=ON" % name for name in SERVER_ONLY]
        build, _ = self.configure(SOURCE, "-DSRU_CLIENT_ONLY=ON", *absent)
        targets = self.run_program("cmake", "--build", build, "--target", "help")
        self.assertIn("sru_client_lib", targets)
        self.assertNotIn("sru_server", targets)
        # The server's configuration does notice.
        self.configure(SOURCE, *absent, returns=1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
