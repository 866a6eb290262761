"""A real server process, certificates made by openssl, and calls, for the Python tests in this folder.

Needs grpcio, protobuf, numpy and the program openssl; a machine without them skips the tests visibly.
"""

import json
import os
import shutil
import subprocess
import sys
import time

try:
    import google.protobuf  # noqa: F401
    import grpc
    import numpy  # noqa: F401
except ImportError as missing:
    print("SKIPPED: %s (%s)" % (missing, sys.executable))
    sys.exit(77)
if shutil.which("openssl") is None:
    print("SKIPPED: there is no program openssl")
    sys.exit(77)

SERVER, CLIENT, REPOSITORY = sys.argv[1:4]
PYTHON_CLIENT = os.path.join(os.path.dirname(__file__), "..", "..", "client", "python")
sys.path.insert(0, PYTHON_CLIENT)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))

from sru_server import SruServer  # noqa: E402
from sru_inference.v1 import inference_pb2  # noqa: E402

SERVICE = "/sru.v1.InferenceService/"
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
REFLECTION_V1 = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
LIST_SERVICES = b"\x3a\x01*"  # ServerReflectionRequest.list_services
TOKEN = "kR3vX9mQ2bT7wZ5n"
OTHER_TOKEN = "pL8sD1fG4hJ6kA0c"


def await_true(condition, what, timeout=30):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("not within %s s: %s" % (timeout, what))
        time.sleep(0.01)


class Server(SruServer):
    """sru_server on ports of the system's choice; `flags` may override the listeners. With `stderr`, a
    file or descriptor, the log goes there and not to log()."""

    def __init__(self, *flags, files=None, env=None, stderr=None):
        command = [
            SERVER,
            "--model_repository=" + REPOSITORY,
            "--listen=127.0.0.1:0",
            "--metrics_listen=127.0.0.1:0",
            "--http_listen=127.0.0.1:0",
            *flags,
        ]
        if files:
            command = ["prlimit", "--nofile=%d" % files, *command]
        super().__init__(command, env, stderr)
        self.http_port = self.port_of("HTTP")
        self.address = "localhost:%d" % self.port

    def await_log(self, text):
        """A thread of the log writes the lines, shortly after the events that they report."""
        await_true(lambda: text in self.log(), "a log line with '%s'" % text)

    def log_lines(self, message):
        """What a server with --log_format=json logged under this message."""
        lines = [json.loads(line) for line in self.log().splitlines()]
        return [line for line in lines if line["message"] == message]

    def await_more(self, series, action):
        """Does something and waits until a counter has grown by it."""
        before = self.metric(series)
        action()
        await_true(lambda: self.metric(series) > before, series + " grows")

    def await_metric(self, series, value):
        await_true(lambda: self.metric(series) == value, "%s %s" % (series, value))

    def channel(self, credentials=None, name="localhost"):
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.ssl_target_name_override", name),
            ("grpc.max_metadata_size", 1 << 20),
        ]
        if credentials is None:
            return grpc.insecure_channel(self.address, options[:2] + options[3:])
        return grpc.secure_channel(self.address, credentials, options)


def bearer(token):
    return (("authorization", "Bearer " + token),)


def run(*command):
    """A program that ends by itself, with what it wrote."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, errors="replace"
    )


def refusal(*flags, env=None):
    """The line with which a server refuses to start."""
    command = [SERVER, "--model_repository=" + REPOSITORY, "--metrics_listen=127.0.0.1:0", *flags]
    if not any(flag.startswith("--http_listen") for flag in flags):
        command.append("--http_listen=127.0.0.1:0")
    if not any(flag.startswith("--listen") for flag in flags):
        command.append("--listen=127.0.0.1:0")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})}
    )
    errors = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert done.returncode == 1 and len(errors) == 1, (done.returncode, done.stderr)
    return errors[0]


class Answer:
    def __init__(self, code, details, body, metadata):
        self.code, self.details, self.body = code, details, body
        self.metadata = {entry.key: entry.value for entry in metadata or ()}


def call(channel, method, request=b"", metadata=(), timeout=20):
    """Sends bytes; whatever the outcome, it is an Answer."""
    if not method.startswith("/"):
        method = SERVICE + method
    try:
        body, done = channel.unary_unary(method).with_call(
            request, metadata=metadata, timeout=timeout
        )
    except grpc.RpcError as error:
        # An error with initial metadata would not be retried by clients.
        initial = error.initial_metadata() if hasattr(error, "initial_metadata") else ()
        assert not initial, initial
        trailing = error.trailing_metadata() if hasattr(error, "trailing_metadata") else ()
        return Answer(error.code().name, error.details(), None, trailing)
    return Answer("OK", "", body, done.initial_metadata())


def classify_request(*texts, **fields):
    request = inference_pb2.ClassifyRequest(**fields)
    for text in texts:
        request.sequences.add(text=text)
    return request.SerializeToString()


def call_once(server, credentials, method=HEALTH, metadata=(), name="localhost"):
    """Makes one call on a connection of its own."""
    with server.channel(credentials, name) as channel:
        return call(channel, method, metadata=metadata)


def openssl(*arguments):
    done = run("openssl", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, directory, name, rsa_bits=None):
        self.name = name
        self.directory = directory
        self.certificate = os.path.join(directory, name + ".pem")
        self.key = os.path.join(directory, name + ".key")
        openssl(
            "req", "-x509", *self._new_key(rsa_bits), "-nodes",
            "-days", "30", "-subj", "/CN=" + name, "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-keyout", self.key, "-out", self.certificate,
        )  # fmt: skip

    @staticmethod
    def _new_key(rsa_bits):
        if rsa_bits:
            return ["-newkey", "rsa:%d" % rsa_bits]
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]

    @staticmethod
    def _validity(days):
        """With less than 0 days, one that has expired. Newer versions of openssl do not accept that for -days, older ones
        cannot do it otherwise."""
        if days >= 0 or "-not_after" not in run("openssl", "x509", "-help").stderr:
            return ["-days", str(days)]
        return ["-not_before", "20200101000000Z", "-not_after", "20200102000000Z"]

    def issue(self, name, days=20, rsa_bits=None):
        """Paths of a certificate for localhost and of its key."""
        base = os.path.join(self.directory, "%s-%s" % (self.name, name))
        with open(base + ".ext", "w") as extensions:
            # What strict checks want (RFC 5280), which Python's are since 3.13.
            extensions.write(
                "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n"
                "keyUsage=critical,digitalSignature,keyEncipherment\n"
                "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
            )
        openssl(
            "req", *self._new_key(rsa_bits), "-nodes",
            "-subj", "/CN=" + name, "-keyout", base + ".key", "-out", base + ".csr",
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", base + ".csr", "-CA", self.certificate, "-CAkey", self.key,
            "-CAcreateserial", *self._validity(days), "-extfile", base + ".ext", "-out", base + ".pem",
        )  # fmt: skip
        return base + ".pem", base + ".key"


def read(path):
    with open(path, "rb") as file:
        return file.read()


def credentials(authority, certificate=None, key=None):
    return grpc.ssl_channel_credentials(
        root_certificates=read(authority.certificate),
        private_key=read(key) if key else None,
        certificate_chain=read(certificate) if certificate else None,
    )
