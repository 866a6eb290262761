"""Names that are longer than any model's are refused: the error names the field and does not repeat the name.

    long_names_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import json
import os
import sys
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "attacks"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
from http2 import Connection, field  # noqa: E402
from http_routes import ROUTES  # noqa: E402
from sru_server import SruServer  # noqa: E402
from transports import either  # noqa: E402

SERVER, _, REPOSITORY = sys.argv[1:4]
LENGTHS = 129, 5000, 1 << 20
MOST_OPEN_MESSAGE = either(4096, 1 << 30, "a message of over 4 KiB to a method that needs no token")
SRU, OPEN, ADMIN = "/sru.v1.InferenceService/", "/inference.GRPCInferenceService/", "/sru.v1.AdminService/"
TEXT = field(2, field(1, b"a"))
LOOK_UPS = "ModelMetadata", "ModelConfig", "ModelStatistics"
REPOSITORY_CALLS = "RepositoryModelLoad", "RepositoryModelUnload"
# Method, the field, and the request with a name.
CALLS = (
    *((SRU + name, "model", lambda name: field(1, name)) for name in ("Classify", "Score", "Generate", "GetModel")),
    *((SRU + name, "model", lambda name: field(1, name) + field(3, field(1, b"a"))) for name in ("Encode", "Tag")),
    (SRU + "EncodeStream", "model", lambda name: field(1, field(1, name))),
    (OPEN + "ModelInfer", "model_name", lambda name: field(1, name)),
    (OPEN + "ModelInfer", "model_version", lambda name: field(1, b"trec") + field(2, name)),
    *((OPEN + name, "name", lambda name: field(1, name)) for name in LOOK_UPS),
    (OPEN + "ModelMetadata", "version", lambda name: field(1, b"trec") + field(2, name)),
    ("/grpc.health.v1.Health/Check", "service", lambda name: field(1, name)),
    ("/grpc.health.v1.Health/Watch", "service", lambda name: field(1, name)),
)
ADMIN_CALLS = (
    *((ADMIN + name, "model", lambda name: field(1, name)) for name in ("LoadModel", "UnloadModel")),
    *((OPEN + name, "model_name", lambda name: field(2, name)) for name in REPOSITORY_CALLS),
)


class LongNamesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = SruServer(
            [
                SERVER,
                "--model_repository=" + REPOSITORY,
                "--model_control=explicit",
                "--load_models=trec",
                "--listen=127.0.0.1:0",
                "--metrics_listen=127.0.0.1:0",
                "--http_listen=127.0.0.1:0",
                "--admin_listen=127.0.0.1:0",
            ]
        )

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def check(self, details, field_name, length):
        self.assertIn("%s: expected at most 128 bytes, found %d" % (field_name, length), details)
        self.assertNotIn("xxx", details)

    def check_calls(self, port, calls, lengths):
        with Connection(port, window=1 << 20) as connection:
            for path, name, request in calls:
                for length in lengths:
                    with self.subTest(path, length=length):
                        answer = connection.call(path, request(b"x" * length))
                        if path.startswith("/grpc.health") and length > MOST_OPEN_MESSAGE:
                            self.assertIn(answer.code, ("RESOURCE_EXHAUSTED", "RST_STREAM"), answer)
                            self.assertNotIn("xxx", answer.details)
                            continue
                        self.assertEqual(answer.code, "INVALID_ARGUMENT", answer)
                        self.check(answer.details, name, length)

    def test_calls(self):
        self.check_calls(self.server.port, CALLS, LENGTHS)

    def test_admin_calls(self):
        self.check_calls(self.server.port_of("admin"), ADMIN_CALLS, LENGTHS[:2])  # longer messages are refused

    def test_http(self):
        name = "x" * 129
        for route in ROUTES:
            for part, field_name in (("MODEL", route.names), ("VERSION", route.versions)):
                if not field_name:
                    continue
                named = {"MODEL": "trec", "VERSION": "1", part: name}
                path = route.path.replace("MODEL", named["MODEL"]).replace("VERSION", named["VERSION"])
                data = route.body and json.dumps(route.body).replace("MODEL", named["MODEL"])
                self.check_refusal(route.method, path, data, field_name)

    def check_refusal(self, method, path, data, field_name):
        with self.subTest(path[:40], field_name=field_name):
            request = urllib.request.Request(
                "http://127.0.0.1:%d%s" % (self.server.port_of("HTTP"), path),
                data and data.encode(),
                {"Content-Type": "application/json"},
                method=method,
            )
            with self.assertRaises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(request, timeout=10)
            with raised.exception as error:
                self.assertEqual(error.code, 400)
                self.check(error.read().decode(), field_name, 129)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
