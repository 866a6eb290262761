"""No route over HTTP is forgotten: what /openapi.json describes stands in the table of docs/rest.md and in that of the tests
(http_routes.py), and the other way round.

    routes_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY
"""

import json
import os
import re
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

from server_process import TOKEN, Server

from http_routes import ROUTES

# LibreTranslate's web page asks the first two before it has a key. The others are probes.
OPEN = "/languages", "/frontend/settings", "/health", "/v2/health/live", "/v2/health/ready"
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "rest.md")


def documented():
    """The paths of the table of docs/rest.md: whole, or the beginnings of those that end with "...". One with NAME has the names that
    follow in its row."""
    with open(PAGE, encoding="utf-8") as file:
        table = file.read().split("| route |")[1].split("\n\n")[0]
    paths = []
    for row in table.splitlines()[2:]:
        spans = re.findall("`([^`]+)`", row.split("|")[1])
        names = [span for span in spans if "/" not in span]
        for span in spans:
            path = span.split(" ")[-1]
            if not path.startswith("/"):
                continue
            paths += [path.replace("NAME", name) for name in names] if "NAME" in path else [path.split("?")[0]]
    return {path for path in paths if "METHOD" not in path}


class RoutesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Server() as server:
            with urllib.request.urlopen("http://127.0.0.1:%d/openapi.json" % server.http_port, timeout=30) as answer:
                cls.described = json.load(answer)["paths"]

    def test_the_page_has_every_route(self):
        page = documented()
        begins = [path[: -len("...")] for path in page if path.endswith("...")]
        whole = {path for path in page if not path.endswith("...")}
        missing = [path for path in self.described if path not in whole and not any(path.startswith(begin) for begin in begins)]
        self.assertEqual(missing, [], "not in the table of docs/rest.md")
        self.assertEqual(sorted(whole - {"/openapi.json"} - self.described.keys()), [], "only in the table of docs/rest.md")
        for begin in begins:
            self.assertTrue(any(path.startswith(begin) for path in self.described.keys() - whole), begin)

    def test_the_tests_have_every_route(self):
        def row(method, path):
            return "%s %s" % (method, re.sub(r"\{version\}", "VERSION", re.sub(r"\{(name|model)\}", "MODEL", path)))

        described = {row(method.upper(), path) for path, methods in self.described.items() for method in methods}
        rows = {"%s %s" % (route.method, route.path) for route in ROUTES}
        self.assertEqual(sorted(described - rows), [], "not in tests/testing/http_routes.py")
        self.assertEqual(sorted(rows - described), [], "only in tests/testing/http_routes.py")

    def test_every_route_asks_for_a_token(self):
        with tempfile.TemporaryDirectory() as directory:
            tokens = os.path.join(directory, "tokens")
            with open(tokens, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write("somebody %s\n" % TOKEN)
            server = Server("--auth_tokens_file=" + tokens)
        self.addCleanup(server.stop)
        for route in (route for route in ROUTES if route.path not in OPEN and not route.path.endswith("/ready")):
            with self.subTest(route.path, method=route.method):
                request = urllib.request.Request(
                    "http://127.0.0.1:%d%s" % (server.http_port, route.path.replace("MODEL", "trec").replace("VERSION", "1")),
                    None if route.method == "GET" else json.dumps(route.body or {}).encode(),
                    {"Content-Type": "application/json"},
                    method=route.method,
                )
                with self.assertRaises(urllib.error.HTTPError) as raised:
                    urllib.request.urlopen(request, timeout=30)
                with raised.exception as error:
                    self.assertIn(error.code, (401, 403))  # DeepL's and LibreTranslate's APIs have 403


class FrontPageTest(unittest.TestCase):
    def get(self, server, path="/", **headers):
        request = urllib.request.Request("http://127.0.0.1:%d%s" % (server.http_port, path), headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.headers, answer.read().decode()

    def test_programs_get_json_with_a_call_that_works(self):
        with Server() as server:
            headers, body = self.get(server, Accept="*/*")
            page = json.loads(body)
            self.assertEqual((headers["Content-Type"], headers["Vary"]), ("application/json", "Accept"))
            self.assertIn("Simple Recurrent Units", page["about"])
            curl = re.fullmatch(r"curl -s (127\.0\.0\.1:\d+)(/\S+) --json '(.*)'", page["example"])
            self.assertIsNotNone(curl, page["example"])
            host, path, body = curl.groups()
            request = urllib.request.Request("http://%s%s" % (host, path), body.encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                self.assertEqual(json.load(answer)["model"], json.loads(body)["model"])
            for link in ("openapi", "models", "documents", "operations", "health", "ready"):
                self.assertTrue(self.get(server, page[link])[1], link)

    def test_people_get_a_page_that_loads_nothing(self):
        with Server() as server:
            headers, page = self.get(server, Accept="text/html,application/xhtml+xml,*/*;q=0.8", Host="127.1")
            self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
            self.assertIn("curl -s localhost:8080/v1/", page)  # such a host is not repeated
            links = re.findall('href="([^"]+)"', page)
            self.assertGreaterEqual(len(links), 6)
            for link in links:
                self.assertTrue(self.get(server, link)[1], link)
            self.assertNotIn("src=", page)

    def test_without_a_token_it_names_no_model(self):
        with tempfile.TemporaryDirectory() as directory:
            tokens = os.path.join(directory, "tokens")
            with open(tokens, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write("somebody %s\n" % TOKEN)
            server = Server("--auth_tokens_file=" + tokens)
        self.addCleanup(server.stop)
        for accept in ("*/*", "text/html"):
            self.assertNotIn("trec", self.get(server, Accept=accept)[1])
            self.assertIn("trec", self.get(server, Accept=accept, Authorization="Bearer " + TOKEN)[1])
        with self.assertRaises(urllib.error.HTTPError) as raised:
            self.get(server, Authorization="Bearer wrong")
        with raised.exception as error:
            self.assertEqual(error.code, 401)
        self.assertIn("# ", self.get(server, "/docs/security.md")[1])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
