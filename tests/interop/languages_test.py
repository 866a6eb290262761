"""gRPC's interoperation tests with clients of other languages: grpc-go, grpc-java, and the client that Ruby's gem brings.

    [SRU_GRPC_TRANSPORT=library] languages_test.py SRU_INTEROP_SERVER

scripts/deps.sh languages installs what they need. A language that is missing is skipped visibly; a machine without any skips the test.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from transports import HERE, either, interop_server

SERVER = sys.argv[1]
GO_SOURCES = "/usr/share/gocode"
JARS = "/usr/share/java/"
GO_PACKAGE = "tests.interop/grpc_testing"
RUBY_CASES = (
    "empty_unary large_unary client_streaming server_streaming ping_pong empty_stream timeout_on_sleeping_server cancel_after_begin "
    "cancel_after_first_response unimplemented_method unimplemented_service status_code_and_message custom_metadata"
).split()
ASKS_FOR_COMPRESSION = "a call that asks if its message came compressed, which none of the server's does"
RUBY_CASES += either(["client_compressed_unary", "client_compressed_streaming"], [], ASKS_FOR_COMPRESSION)


def ruby_client():
    """The path of the gem's client; None without the gem."""
    if shutil.which("ruby") is None:
        return None
    script = 'puts Gem::Specification.find_by_name("grpc").full_gem_path'
    found = subprocess.run(["ruby", "-e", script], capture_output=True, text=True).stdout.strip()
    client = os.path.join(found, "src/ruby/pb/test/client.rb")
    return client if found and os.path.exists(client) else None


RUBY = ruby_client()
HAS_GO = all(shutil.which(name) for name in ("go", "protoc-gen-go", "protoc-gen-go-grpc")) and os.path.isdir(
    GO_SOURCES + "/src/google.golang.org/grpc"
)
HAS_JAVA = shutil.which("javac") is not None and all(
    os.path.exists(JARS + name + ".jar") for name in ("grpc-netty", "netty-codec-http2", "protobuf", "perfmark-api")
)
JAVA_PLUGIN = shutil.which("grpc_java_plugin") or shutil.which("protoc-gen-grpc-java")


class LanguagesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        server = interop_server(SERVER)
        self.port = str(server.__enter__())
        self.addCleanup(server.__exit__, None, None, None)

    def run_in_folder(self, *command, **variables):
        done = subprocess.run(
            command, cwd=self.folder, env={**os.environ, **variables}, capture_output=True, text=True, timeout=280
        )
        self.assertEqual(done.returncode, 0, "%s\n%s\n%s" % (command[0], done.stdout, done.stderr))
        return done.stdout

    def generate(self, folder, *flags):
        os.makedirs(os.path.join(self.folder, folder))
        self.run_in_folder("protoc", *flags, "-I", HERE, "interop.proto")

    @unittest.skipIf(RUBY is None, "ruby-grpc is not installed")
    def test_ruby(self):
        for case in RUBY_CASES:
            with self.subTest(case):
                self.run_in_folder(
                    "ruby", RUBY, "--server_host=127.0.0.1", "--server_port=" + self.port, "--test_case=" + case
                )

    @unittest.skipUnless(HAS_GO, "golang-google-grpc-dev or the compiler is not installed")
    def test_go(self):
        where = "own/src/" + GO_PACKAGE
        options = "paths=source_relative,Minterop.proto=" + GO_PACKAGE
        self.generate(
            where, "--go_out=" + where, "--go-grpc_out=" + where, "--go_opt=" + options, "--go-grpc_opt=" + options
        )
        self.run_in_folder(
            *("go", "build", "-o", "client", os.path.join(HERE, "languages/client.go")),
            GO111MODULE="off",
            GOPATH=os.path.join(self.folder, "own") + ":" + GO_SOURCES,
            GOCACHE=os.path.join(self.folder, "cache"),
            GOFLAGS="",
        )
        self.assertIn("12 of 12", self.run_in_folder("./client", "127.0.0.1:" + self.port))

    @unittest.skipUnless(HAS_JAVA and JAVA_PLUGIN, "libgrpc-java or the compiler is not installed")
    def test_java(self):
        self.generate(
            "stubs", "--java_out=stubs", "--grpc-java_out=stubs", "--plugin=protoc-gen-grpc-java=" + str(JAVA_PLUGIN)
        )
        sources = glob.glob(self.folder + "/stubs/**/*.java", recursive=True)
        self.run_in_folder(
            *("javac", "-nowarn", "-cp", JARS + "*", "-d", "classes", *sources, os.path.join(HERE, "languages/Client.java"))
        )
        self.assertIn("12 of 12", self.run_in_folder("java", "-cp", "classes:" + JARS + "*", "Client", "127.0.0.1:" + self.port))


if __name__ == "__main__":
    if RUBY is None and not HAS_GO and not HAS_JAVA:
        print("SKIPPED: no client of another language is installed (scripts/deps.sh languages)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
