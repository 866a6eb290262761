"""The status page of a real server in headless Chromium: status_page_browser_test.py SRU_SERVER SOURCE_ROOT [PICTURE]

With PICTURE tests nothing, but writes the picture of the page that the README has, docs/images/status_page.png, in a minute.
Exits with 77, which CTest shows as skipped, where selenium, chromium or chromedriver is missing.
"""

import base64
import http.server
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select, WebDriverWait
except ImportError:
    print("SKIPPED: this Python has no selenium (%s)" % sys.executable)
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testing"))
from sru_server import SruServer  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
if not CHROMIUM or not CHROMEDRIVER:
    print("SKIPPED: chromium and chromedriver are not both here")
    sys.exit(77)

SERVER = ""
SOURCE_ROOT = ""
TIMEOUT = 60
# The columns of the table of models.
HEADS = ["State", "Model", "Task", "Weights", "Workers", "Calls/s", "Errors/s", "Refused/s", "p50", "p99", "Waiting",
         "Batch fill", "Unknown"]
FIGURES = ["calls", "errors", "refused", "p50", "p90", "p99", "tokenize", "queue", "compute", "fill", "batch", "waiting",
           "running", "in_flight", "generated", "first_p50", "first_p99", "next_p50", "next_p99", "loop_lag"]


class Server(SruServer):
    """With two versions of the bundled classifier, or with the bundled language model, on ports of its own."""

    def __init__(self, *flags, writes=False):
        self._models = tempfile.TemporaryDirectory()
        name = "war_and_peace" if writes else "trec"
        bundled = os.path.join(SOURCE_ROOT, "models", "pretrained", name, "1")
        for version in ("1",) if writes else ("1", "2"):
            shutil.copytree(bundled, os.path.join(self._models.name, name, version))
        super().__init__(
            [SERVER, "--model_repository=" + self._models.name, "--version_policy=all", "--listen=127.0.0.1:0",
             "--metrics_listen=127.0.0.1:0", "--http_listen=", *flags])
        self.url = "http://127.0.0.1:%d/" % self.metrics_port
        self.http_port = self.port_of("HTTP")

    def stop(self):
        self.process.kill()
        super().stop()
        self._models.cleanup()


class PlayedServer:
    """The page as it is in the sources, and a server that has the models and answers that a test gives it:
    there is no reader and no translator that could come with the project.

    answers: {path: (HTTP status, dict)}. self.requests are the (path, dict) that have been sent. `more` is of status.json."""

    def __init__(self, models, answers, **more):
        self.requests = []
        status = {
            "time": 0, "version": "0", "state": "ready", "metrics": {},
            "limits": {"max_batch_tokens": 1, "max_queue_tokens": 1, "max_queue_sequences": 1, "max_sequence_tokens": 1},
            "try": {"allowed": True, "reason": ""},
            "history": {"interval_s": 1, "times": [], "figures": {name: [] for name in FIGURES}},
            "slow_calls": {"log_slow_ms": 0, "calls": []}, "errors": [], **more,
            "models": [dict({"figures": dict.fromkeys(FIGURES),"version": 1, "latest": True, "state": "ready", "reason": "", "description": "",
                             "backend": "cpu", "backend_description": "", "dtype": "float32", "instances": 1,
                             "parameters": 1, "labels": [], "takes_text": True}, **model) for model in models]}
        requests = self.requests
        types = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

        class Handler(http.server.BaseHTTPRequestHandler):
            def reply(self, code, kind, body):
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "
                                                            "img-src 'self'; connect-src 'self'")
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                if self.path.startswith("/status.json"):
                    status["time"] += 1
                    self.reply(200, "application/json", json.dumps(status).encode())
                    return
                if self.path in answers or self.path == "/languages":
                    code, answer = answers.get(self.path, (200, []))
                    self.reply(code, "application/json", json.dumps(answer).encode())
                    return
                name = "index.html" if self.path == "/" else os.path.basename(self.path)
                with open(os.path.join(SOURCE_ROOT, "server", "http", "status_page", name), "rb") as file:
                    self.reply(200, types[name.rsplit(".", 1)[1]], file.read())

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                requests.append((self.path, json.loads(body)))
                code, answer = answers[self.path]
                self.reply(code, "application/json", json.dumps(answer).encode())

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/" % self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


TIMES = {"tokenize_us": 1, "queue_us": 2, "compute_us": 3, "total_us": 6}


class Load:
    """Calls the server as the box does, one call after the other, until it is stopped."""

    def __init__(self, url, text="How far away is the moon ?", **body):
        self.calls = 0
        self._stop = threading.Event()
        self._request = urllib.request.Request(
            url + "v1/classify", data=json.dumps(dict({"sequences": [{"text": text}]}, **body)).encode(),
            headers={"Content-Type": "application/json"})
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.is_set():
            with urllib.request.urlopen(self._request, timeout=10) as response:
                response.read()
            self.calls += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


class StatusPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        options = Options()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--disable-background-networking", "--no-first-run",
                         "--host-resolver-rules=MAP *.example 127.0.0.1", "--window-size=1280,1000"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        cls.driver = webdriver.Chrome(service=Service(CHROMEDRIVER), options=options)

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()

    def setUp(self):
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")

    def open(self, *flags, writes=False):
        return self.visit(Server(*flags, writes=writes))

    def play(self, models, answers=None, **more):
        return self.visit(PlayedServer(models, answers or {}, **more))

    def visit(self, server):
        self.addCleanup(server.stop)
        self.driver.get(server.url)
        self.wait(lambda: self.text("state") == "ready", "the state is ready")
        return server

    def element(self, element_id):
        return self.driver.find_element(By.ID, element_id)

    def fill(self, element_id, *keys):
        box = self.element(element_id)
        box.clear()
        box.send_keys(*keys)

    def press(self, form):
        self.driver.find_element(By.CSS_SELECTOR, "#%s button[type=submit]" % form).click()

    def elements(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition, what):
        # The page may replace an element between finding and reading it.
        WebDriverWait(self.driver, TIMEOUT, poll_frequency=0.05,
                      ignored_exceptions=[StaleElementReferenceException]).until(
                          lambda _: condition(), what)

    def text(self, element_id):
        return self.driver.find_element(By.ID, element_id).text

    def number(self, tile):
        """The number that a tile shows, None for a dash."""
        found = re.search(r"[\d.]+", self.elements("#tile-%s .value" % tile)[0].text)
        return float(found.group()) if found else None

    def model_cells(self, row):
        # Read in one step, because the page makes the rows anew meanwhile.
        return self.driver.execute_script(
            "return Object.fromEntries(Array.from(document.querySelectorAll(arguments[0]),"
            " cell => [cell.dataset.name, cell.innerText]));",
            "#models tbody tr:nth-child(%d) td" % row)

    def classify(self, text):
        self.fill("try-text", text, Keys.ENTER)

    def answer_rows(self):
        return [row.text.split("\n") for row in self.elements("#try-answer .answer-row")]

    def run_module(self, expression):
        """The value of an expression over `m`, the module metrics.js."""
        return self.driver.execute_async_script(
            "const done = arguments[0]; import('/metrics.js').then("
            "(m) => done(%s), (error) => done(String(error)));" % expression)

    def check_quiet(self, server):
        """Nothing was written to the console, and nothing was requested from another host."""
        self.assertEqual(self.driver.get_log("browser"), [])
        urls = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.add(message["params"]["request"]["url"])
        self.assertIn(server.url + "status.json?", urls)
        self.assertEqual([url for url in urls if not url.startswith(server.url)], [])

    def test_a_question_gets_its_label(self):
        server = self.open()
        for text, label in (("Where do swifts sleep at night?", "LOC"),
                            ("How many bricks are there in a chimney?", "NUM"),
                            ("Who painted the ceiling of the old town hall ?", "HUM")):
            self.classify(text)
            self.wait(lambda: (self.answer_rows() or [[""]])[0][0] == label, label)
            rows = self.answer_rows()
            self.assertEqual(sorted(name for name, _ in rows),
                             ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"])
            percents = [float(percent.split()[0]) for _, percent in rows]
            self.assertEqual(percents, sorted(percents, reverse=True))
            self.assertAlmostEqual(sum(percents), 100, delta=0.6)
            self.assertGreater(percents[0], 50)
        self.assertIn("trec version 1", self.text("try-answer"))
        self.check_quiet(server)

    def test_an_error_is_shown_as_text(self):
        self.open("--max_sequence_tokens=3")
        self.classify("<img src=x onerror=alert(1)> two three four")
        self.wait(lambda: "INVALID_ARGUMENT" in self.text("try-answer"), "an error")
        self.assertIn("sequences[0]", self.text("try-answer"))
        self.assertEqual(self.elements("#try-answer img"), [])

    def test_shows_the_share_of_unknown_words(self):
        server = self.open()
        with Load(server.url, text="qqzz is qqyy qqxx"):
            self.wait(lambda: self.model_cells(2)["Unknown"] == "75 %", "three of four words are unknown")
        alarming = self.elements("#models .alarming")
        self.assertEqual([one.text for one in alarming], ["75 %"])

    def test_figures_follow_the_load(self):
        server = self.open()
        self.wait(lambda: self.number("calls") == 0, "no calls yet")
        self.assertIsNone(self.number("p50"))
        with Load(server.url, version=2):
            for tile, least in (("calls", 5), ("p50", 0), ("p99", 0), ("fill", 0)):
                self.wait(lambda tile=tile, least=least: (self.number(tile) or 0) > least, tile)
            self.assertEqual((self.number("errors"), self.number("refused")), (0, 0))
            # The lines of the charts have points and move.
            path = self.elements("#charts path.line")[0]
            before = path.get_attribute("d")
            self.wait(lambda: path.get_attribute("d").count("L") > before.count("L"), "a new point")
            facts = self.element("connections")
            with socket.create_connection(("127.0.0.1", server.port)):
                self.wait(lambda: re.search(r"silent\s+1\b", facts.text), "a connection that says nothing")
            self.wait(lambda: re.search(r"silent\s+0\b", facts.text), "it is closed")
            # Only the version that is called has figures.
            self.assertEqual([head.get_attribute("textContent") for head in self.elements("#models thead th")], HEADS)
            self.assertEqual(sorted(self.model_cells(1)), sorted(HEADS))
            self.assertIn("trec · 1", self.model_cells(1)["Model"])
            self.assertIn("latest", self.model_cells(2)["Model"])
            self.wait(lambda: re.match(r"[1-9]", self.model_cells(2)["Calls/s"]), "calls of 2")
            self.assertEqual(self.model_cells(1)["Calls/s"], "0")
            self.assertEqual(self.model_cells(2)["Unknown"], "0 %")
            self.assertEqual(self.model_cells(1)["Unknown"], "\u2013")
            # The choice of models has them too.
            Select(self.element("scope")).select_by_visible_text("trec · 1")
            self.wait(lambda: self.number("calls") == 0, "no calls of the chosen version")
            # What was is there at once.
            self.driver.get(server.url)
            self.wait(lambda: self.elements("#charts path.line")[0].get_attribute("d").count("L") > 1, "the history")
            Select(self.element("scope")).select_by_visible_text("trec · 2")
            self.wait(lambda: (self.number("calls") or 0) > 5, "calls of the chosen version")
        self.wait(lambda: self.number("calls") == 0, "the load is over")
        self.check_quiet(server)

    def write(self, prompt, tokens):
        self.wait(self.element("write").is_displayed, "the box for texts")
        for element_id, value in (("write-tokens", str(tokens)), ("write-temperature", "0"), ("write-prompt", prompt)):
            self.fill(element_id, value)
        self.element("write-start").click()

    def written(self):
        """The text after its beginning."""
        return self.driver.execute_script("return document.getElementById('write-text').lastChild.textContent;")

    def test_a_model_writes_a_text(self):
        server = self.open(writes=True)
        self.write("Prince Andrew ", 60)
        self.wait(lambda: "ended by" in self.text("write-result"), "the end of the text")
        self.assertIn("war_and_peace version 1, prompt of 14 tokens, 60 tokens in ", self.text("write-result"))
        self.assertEqual(len(self.written().encode()), 60)
        self.assertTrue(self.element("write-text").get_attribute("textContent").startswith("Prince Andrew "))
        # The figures of texts are shown, and move.
        self.wait(self.element("text-charts").is_displayed, "the charts of texts")
        self.wait(lambda: re.search("ms|µs", self.elements("#text-charts .chart:nth-child(3)")[0].text),
                  "the time between tokens")
        self.assertFalse(self.element("try").is_displayed())
        self.check_quiet(server)

    def test_a_text_can_be_cancelled(self):
        server = self.open(writes=True)
        cancel = self.element("write-cancel")
        self.assertFalse(cancel.is_enabled())
        # The click comes with the first token: a text of 1,000 tokens may be written quickly.
        self.driver.execute_script(
            "new MutationObserver((changes, observer) => {"
            "  if (document.getElementById('write-text').textContent.length > 10) {"
            "    observer.disconnect(); document.getElementById('write-cancel').click(); } })"
            ".observe(document.getElementById('write-text'),"
            " {subtree: true, characterData: true, childList: true});")
        self.write("The war", 1000)
        self.wait(lambda: self.text("write-result") == "cancelled", "the text was cancelled")
        self.assertLess(len(self.written()), 1000)
        self.assertFalse(cancel.is_enabled())
        # Its place is free again.
        for _ in range(3):
            self.write("The war", 5)
            self.wait(lambda: "5 tokens in" in self.text("write-result"), "another text")
        self.check_quiet(server)

    def test_an_error_of_a_text_is_shown(self):
        self.open("--max_sequence_tokens=5", writes=True)
        self.write("<img src=x onerror=alert(1)>", 5)
        self.wait(lambda: "INVALID_ARGUMENT" in self.text("write-result"), "an error")
        self.assertIn("prompt", self.text("write-result"))
        self.assertEqual(self.elements("#write img"), [])

    def test_a_reader_marks_its_answers(self):
        # Offsets are code points: in JavaScript the clef counts as two.
        passage = "\N{MUSICAL SYMBOL G CLEF} <b>Anna</b> left. Bob stayed."
        spans = [("Bob", 0.75), ("Anna", 0.125)]
        answers = [{"text": text, "probability": p, "log_score": 5.25, "start_char": passage.index(text),
                    "end_char": passage.index(text) + len(text)} for text, p in spans]
        # One that shares its place with a better one has no mark.
        answers.append(dict(answers[0], text="Bob stayed", end_char=passage.index(" stayed") + 7))
        server = self.play(
            [{"name": "questions", "task": "reader", "version": 3}, {"name": "other", "task": "classifier"}],
            {"/v1/answer": (200, {"model": "questions", "version": "3", "times": TIMES,
                                  "results": [{"answers": answers, "token_count": 9}]})})
        self.wait(self.element("read").is_displayed, "the box of readers")
        self.assertFalse(self.element("translate").is_displayed())
        self.assertEqual([option.text for option in self.elements("#read-model option")], ["questions · 3"])
        self.fill("read-question", "Who stayed?")
        # ChromeDriver types only characters of the first plane.
        self.driver.execute_script("document.getElementById('read-passage').value = arguments[0]", passage)
        self.press("read")
        self.wait(lambda: self.elements("#read-answer mark"), "marks")
        self.assertEqual([mark.text for mark in self.elements("#read-answer mark")], ["Anna", "Bob"])
        self.assertEqual([mark.text for mark in self.elements("#read-answer mark.best")], ["Bob"])
        self.assertEqual(self.elements("#read-answer .passage")[0].get_attribute("textContent"), passage)
        self.assertEqual(self.elements("#read-answer b"), [])
        self.assertEqual([row.text.split("\n") for row in self.elements("#read-answer .answer-row")],
                         [["Bob", "75.0 %"], ["Anna", "12.5 %"], ["Bob stayed", "75.0 %"]])
        self.assertIn("questions version 3, 9 tokens", self.text("read-answer"))
        self.assertEqual(server.requests, [("/v1/answer", {
            "model": "questions", "version": 3, "question": "Who stayed?", "passages": [passage],
            "top_n": 3, "no_overlap": True})])
        self.check_quiet(server)

    def test_texts_are_translated_between_languages(self):
        server = self.play(
            [{"name": "en_de", "task": "translator"}],
            {"/languages": (200, [{"code": "de", "name": "German", "targets": ["en"]},
                                  {"code": "en", "name": "English", "targets": ["de", "fr"]}]),
             "/translate": (200, {"translatedText": "Ein Hund.\n\n<b>Zwei</b>",
                                  "detectedLanguage": {"language": "en", "confidence": 90}})})
        self.wait(self.element("texts").is_displayed, "the box of texts")
        self.assertEqual([option.text for option in self.elements("#texts-source option")], ["detect", "German", "English"])
        self.assertEqual([option.text for option in self.elements("#texts-target option")], ["German", "English", "fr"])
        self.driver.execute_script("document.getElementById('texts-text').value = 'A dog.\\n\\n<b>Two</b>'")
        self.press("texts")
        self.wait(lambda: self.elements("#texts-answer .passage"), "a translation")
        self.assertEqual(self.elements("#texts-answer .passage")[0].get_attribute("textContent"),
                         "Ein Hund.\n\n<b>Zwei</b>")
        self.assertIn("from en, 90 % of the text", self.text("texts-answer"))
        self.assertEqual(server.requests, [("/translate", {
            "q": "A dog.\n\n<b>Two</b>", "source": "auto", "target": "de", "format": "text"})])
        self.check_quiet(server)

    def test_a_translator_shows_its_best_translations(self):
        hypotheses = [{"text": "Ein Hund", "score": -0.5, "unfinished": False},
                      {"text": "<i>Der</i>", "score": -0.75, "unfinished": True}]
        server = self.play(
            [{"name": "captions", "task": "translator"}, {"name": "ids", "task": "translator", "takes_text": False}],
            {"/v1/translate": (200, {"model": "captions", "version": "1", "times": TIMES, "translations": [{
                "hypotheses": hypotheses, "token_count": 3, "truncated": False}]})})
        self.wait(self.element("translate").is_displayed, "the box of translators")
        self.assertEqual([option.text for option in self.elements("#translate-model option")], ["captions · 1"])
        self.fill("translate-beam", "2")
        self.fill("translate-text", "A dog")
        self.press("translate")
        self.wait(lambda: self.elements("#translate-answer li"), "translations")
        self.assertEqual([entry.text for entry in self.elements("#translate-answer li")],
                         ["Ein Hund -0.500", "<i>Der</i> -0.750, cut off"])
        self.assertEqual(self.elements("#translate-answer i"), [])
        self.assertEqual(server.requests, [("/v1/translate", {
            "model": "captions", "version": 1, "text": "A dog", "beam_size": 2, "num_hypotheses": 2})])
        self.check_quiet(server)

    def test_a_refusal_of_a_box_is_shown(self):
        error = (401, {"error": {"code": "UNAUTHENTICATED", "message": "<b>no</b> token"}})
        server = self.play([{"name": "questions", "task": "reader"}, {"name": "captions", "task": "translator"}],
                           {"/v1/answer": error, "/v1/translate": error})
        self.wait(self.element("read").is_displayed, "the box of readers")
        for form, boxes in (("read", ("read-question", "read-passage")), ("translate", ("translate-text",))):
            for box in boxes:
                self.fill(box, "text")
            self.assertFalse(self.element(form + "-token").is_displayed())
            self.press(form)
            self.wait(lambda: "UNAUTHENTICATED: <b>no</b> token" in self.text(form + "-answer"), "the error")
            self.assertTrue(self.element(form + "-token").is_displayed())
        self.assertEqual(len(server.requests), 2)

    def test_a_lost_server_is_told(self):
        server = self.open()
        self.wait(lambda: self.number("calls") == 0, "figures")
        server.process.send_signal(signal.SIGTERM)
        self.wait(lambda: self.text("state") == "no answer", "the server is gone")
        self.assertIn("has not answered", self.text("lost"))

    def test_the_box_says_why_it_is_closed(self):
        server = self.open("--status_page_try=off")
        self.wait(lambda: "--status_page_try=off" in self.text("try-closed"), "the reason")
        self.assertFalse(self.element("try").is_displayed())
        self.check_quiet(server)

    def test_a_name_that_may_be_another_sites_is_refused(self):
        """Under a stranger's name that points to the server, the browser takes the page for that site's."""
        server = self.open("--status_page_try=all", "--status_page_host=sru.example")
        self.driver.get(server.url.replace("127.0.0.1", "sru.example"))
        self.wait(lambda: self.text("state") == "ready", "the state is ready")
        self.classify("Where do swifts sleep at night?")
        self.wait(lambda: (self.answer_rows() or [[""]])[0][0] == "LOC", "LOC")

        self.driver.get(server.url.replace("127.0.0.1", "evil.example"))
        self.assertIn("--status_page_host=evil.example", self.driver.find_element(By.TAG_NAME, "body").text)
        self.assertEqual(self.driver.execute_async_script(
            "const done = arguments[0];"
            "const headers = {'Content-Type': 'application/json'};"
            "const body = JSON.stringify({sequences: [{text: 'x'}]});"
            "Promise.all([fetch('/status.json'), fetch('/v1/classify', {method: 'POST', headers, body})])"
            ".then((answers) => done(answers.map((answer) => answer.status)), (error) => done(String(error)));"),
            [403, 403])

    def serve_foreign_page(self):
        """A site of somebody else; returns its port."""

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(b"<!doctype html><title>a page of somebody else</title>")

            def log_message(self, *_):
                pass

        foreign = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        thread = threading.Thread(target=foreign.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(foreign.server_close)
        self.addCleanup(foreign.shutdown)
        return foreign.server_address[1]

    def test_pages_of_other_origins_cannot_call(self):
        """Neither a page of another site, nor one whose own name points to a port of the server."""
        server = Server("--http_listen=127.0.0.1:0", "--status_page_try=all")
        self.addCleanup(server.stop)
        page_port = self.serve_foreign_page()
        call = (
            "const done = arguments[0];"
            "const body = JSON.stringify({model: 'trec', sequences: [{text: 'x'}]});"
            "const json = {method: 'POST', headers: {'Content-Type': 'application/json'}, body};"
            "const simple = {method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain'}, body};"
            "const blob = {method: 'POST', mode: 'no-cors', body: new Blob([body])};"
            "Promise.all([['/v1/models', {}], ['/v1/classify', json], ['/v1/classify', simple], ['/v1/classify', blob]]"
            ".map(([path, options]) => fetch('http://%s:%d' + path, options)"
            ".then((answer) => answer.type + ' ' + answer.status, () => 'blocked'))).then(done);")
        for port in (server.http_port, server.metrics_port):
            for host in ("127.0.0.1", "evil.example"):
                self.driver.get("http://evil.example:%d/" % page_port)
                answers = self.driver.execute_async_script(call % (host, port))
                self.assertEqual(answers[:2], ["blocked", "blocked"], host)
                self.assertEqual(answers[2:], ["opaque 0", "opaque 0"], host)  # sent, and refused, see below
            self.driver.get("http://evil.example:%d/v1/models" % port)
            self.assertIn("evil.example", self.driver.find_element(By.TAG_NAME, "body").text)
            answers = self.driver.execute_async_script(call % ("evil.example", port))
            self.assertEqual(answers[:2], ["basic 403", "basic 403"])

        with urllib.request.urlopen(server.url + "metrics", timeout=TIMEOUT) as metrics:
            lines = metrics.read().decode().splitlines()
        self.assertIn('sru_http_requests_total{code="2xx"} 0', lines)
        self.assertFalse([line for line in lines if line.startswith("sru_requests_total{")])

    def test_pages_of_allowed_origins_can_call(self):
        """By JSON of /v1, Connect and gRPC-Web in text, a stream of which is read as it comes."""
        page_port = self.serve_foreign_page()
        page = "http://app.example:%d" % page_port
        server = Server("--http_listen=127.0.0.1:0", "--allow_origins=https://other.example," + page, writes=True)
        self.addCleanup(server.stop)
        call = (
            "const [url, request, done] = arguments;"
            "const post = (path, type, body, headers = {}) => fetch(url + path,"
            " {method: 'POST', headers: {'Content-Type': type, 'Connect-Timeout-Ms': '30000', 'X-Grpc-Web': '1',"
            "  'X-Request-Id': 'page', 'Authorization': 'Bearer x', 'X-Custom': 'x', ...headers}, body});"
            "const score = JSON.stringify({sequences: [{text: 'It was'}]});"
            # Each piece ends with whole groups of four characters, which are decoded by themselves.
            "async function frames(answer) {"
            "  const reader = answer.body.getReader();"
            "  let text = '', bytes = '', pieces = 0, found = [];"
            "  for (;;) {"
            "    const {value, done} = await reader.read();"
            "    if (done) return {found, pieces, rest: text + bytes};"
            "    pieces += 1;"
            "    text += new TextDecoder().decode(value);"
            "    for (; text.length >= 4; text = text.slice(4)) bytes += atob(text.slice(0, 4));"
            "    for (;;) {"
            "      const at = (i) => bytes.charCodeAt(i);"
            "      const size = bytes.length < 5 ? Infinity : at(1) << 24 | at(2) << 16 | at(3) << 8 | at(4);"
            "      if (bytes.length < 5 + size) break;"
            "      found.push([at(0), bytes.slice(5, 5 + size)]);"
            "      bytes = bytes.slice(5 + size);"
            "    }"
            "  }"
            "}"
            "async function run() {"
            "  const results = {};"
            "  const rest = await post('/v1/score', 'application/json', score);"
            "  results.rest = [rest.type, rest.status, 'scores' in await rest.json()];"
            "  const connect = await post('/sru.v1.InferenceService/Score', 'application/json', score);"
            "  results.connect = [connect.status, connect.headers.get('x-request-id'), 'scores' in await connect.json()];"
            "  const wrong = await post('/sru.v1.InferenceService/Score', 'application/json', '{}',"
            "                           {'Connect-Timeout-Ms': 'soon'});"
            "  results.wrong = [wrong.status, (await wrong.json()).code];"
            "  const web = await post('/sru.v1.InferenceService/Generate', 'application/grpc-web-text', request);"
            "  results.web = [web.status, web.headers.get('content-type'), await frames(web)];"
            "  return results;"
            "}"
            "run().then(done, (error) => done(String(error)));")
        # GenerateRequest: prompt.text = "It was", max_new_tokens = 400.
        request = b"\x1a\x08\x0a\x06It was\x30\x90\x03"
        text = base64.b64encode(struct.pack(">BI", 0, len(request)) + request).decode()
        url = "http://sru.example:%d" % server.http_port
        self.driver.get(page)
        results = self.driver.execute_async_script(call, url, text)
        self.assertIsInstance(results, dict, results)
        self.assertEqual(results["rest"], ["cors", 200, True])
        self.assertEqual(results["connect"], [200, "page", True])
        self.assertEqual(results["wrong"], [400, "invalid_argument"])
        status, kind, stream = results["web"]
        self.assertEqual((status, kind, stream["rest"]), (200, "application/grpc-web-text+proto", ""))
        self.assertGreater(len(stream["found"]), 2, stream)
        self.assertEqual({flags for flags, _ in stream["found"][:-1]}, {0})
        self.assertEqual(stream["found"][-1], [0x80, "grpc-status: 0\r\n"])
        # The same page under another name.
        self.driver.get(page.replace("app", "evil"))
        results = self.driver.execute_async_script(call, url, text)
        self.assertIn("TypeError", results)

    def test_fits_a_phone(self):
        server = self.open()
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True})
        self.addCleanup(self.driver.execute_cdp_cmd, "Emulation.clearDeviceMetricsOverride", {})
        self.driver.get(server.url)
        self.wait(lambda: self.number("calls") == 0, "figures")
        self.assertLessEqual(self.driver.execute_script("return document.documentElement.scrollWidth"), 360)

    def test_both_color_schemes_differ(self):
        self.open()
        colors = set()
        for scheme in ("light", "dark"):
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
                "features": [{"name": "prefers-color-scheme", "value": scheme}]})
            colors.add(self.driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        self.assertEqual(len(colors), 2)

    def test_nothing_may_be_loaded_from_elsewhere(self):
        server = self.open()
        refused = self.driver.execute_async_script(
            "const done = arguments[0];"
            "fetch('http://localhost:1/').then(() => done('fetched'), (e) => done(e.name));")
        self.assertEqual(refused, "TypeError")
        messages = " ".join(entry["message"] for entry in self.driver.get_log("browser"))
        self.assertIn("Content Security Policy", messages)
        # Another origin's page cannot use the box: the browser asks first and gets no permission.
        self.driver.get(server.url.replace("127.0.0.1", "localhost"))
        refused = self.driver.execute_async_script(
            "const done = arguments[1];"
            "fetch(arguments[0] + 'v1/classify', {method: 'POST', body: '{\"sequences\": [{\"text\": \"x\"}]}', "
            "headers: {'Content-Type': 'application/json'}})"
            ".then((r) => done('answered ' + r.status), (e) => done(e.name));", server.url)
        self.assertEqual(refused, "TypeError")

    def test_rates_are_differences_between_two_answers(self):
        self.open()
        answer = "{time: %d, metrics: {a: {series: [{labels: {}, value: %d}]}}}"
        for expression, expected in (
                ("m.rate(%s, %s, 'a')" % (answer % (3, 30), answer % (1, 10)), 10),
                # A server that was restarted counts from 0.
                ("m.rate(%s, %s, 'a')" % (answer % (3, 4), answer % (1, 10)), 2),
                ("m.rate(%s, null, 'a')" % (answer % (3, 4)), None)):
            self.assertEqual(self.run_module(expression), expected, expression)

    def test_of_many_models_the_failed_ones_come_first(self):
        models = [{"name": "m%d" % i, "task": "encoder", "backend_description": "AVX"} for i in range(30)]
        for i in (7, 21):
            models[i].update(state="failed", reason="m%d/1/config.json: <b>no</b> layers" % i)
        server = self.play(models)
        self.wait(lambda: self.text("failed") == "2 of 30 models failed", "the head says so")
        self.assertIn("2 of 30 models failed", self.driver.title)
        self.assertEqual(self.text("hardware"), "cpu · AVX")
        rows = self.driver.execute_script(
            "return Array.from(document.querySelectorAll('#models tbody tr'), row => [row.innerText, row.offsetHeight]);")
        self.assertEqual(len(rows), 30)
        self.assertEqual([text.split()[:2] for text, _ in rows[:4]],
                         [["failed", "m7"], ["failed", "m21"], ["ready", "m0"], ["ready", "m1"]])
        self.assertIn("m7/1/config.json: <b>no</b> layers", rows[0][0])
        self.assertLessEqual(max(height for _, height in rows), 40, "one line each")
        self.check_quiet(server)

    def test_slow_calls_and_errors_are_shown_as_text(self):
        call = dict(TIMES, time=1700000000, method="Translate", code="OK", error="", model="ende", version=3, sequences=2, tokens=40,
                    request_id="id-7", trace_id="t-7", rest_us=9000, batch_sequences=7, batch_tokens=90, steps=12, first_step_us=5)
        error = dict(call, code="NOT_FOUND", error="<i>x</i> is not loaded", model="", version=0)
        counts = {"sru_requests_total": {"type": "counter", "help": "", "series": [
            {"labels": {"code": code}, "value": value} for code, value in (("OK", 5), ("NOT_FOUND", 2))]}}
        server = self.play([{"name": "ende", "task": "translator"}], metrics=counts, errors=[error],
                           slow_calls={"log_slow_ms": 5, "calls": [call, call]},
                           build={"commit": "0123456789abcdef"}, flags=[{"name": "dtype", "value": "int8", "source": "flag"}])
        self.wait(lambda: "5.00 ms or longer" in self.text("slow-note"), "the bound")
        rows = self.elements("#slow tbody tr")
        self.assertEqual(len(rows), 2)
        for part in ("Translate", "ende · 3", "rest 9.00 ms", "2 / 40", "7 / 90", "12", "id-7", "t-7"):
            self.assertIn(part, rows[0].text)
        self.assertIn("<i>x</i> is not loaded", self.elements("#errors tbody tr")[0].text)
        self.assertIn("2 since the start", self.text("codes"))
        self.assertIn("(0123456789abcdef)", self.text("facts"))
        self.driver.find_element(By.CSS_SELECTOR, "#build-section summary").click()
        self.assertIn("--dtype int8 flag", self.elements("#flags tbody tr")[0].text)
        self.check_quiet(server)

    def test_two_texts_are_compared_and_words_tagged(self):
        encodings = [{"shape": ["2"], "values": [3, 4], "token_count": 4, "unknown_tokens": 3},
                     {"shape": ["2", "2"], "values": [8, 6, 0, 0], "token_count": 2}]
        tokens = [{"token": word, "labels": [{"name": name, "probability": 0.75}]}
                  for word, name in (("<b>Anna</b>", "PERSON"), ("left", "O"))]
        server = self.play(
            [{"name": "vectors", "task": "encoder"}, {"name": "names", "task": "tagger"}],
            {"/v1/encode": (200, {"model": "vectors", "version": "1", "times": TIMES, "encodings": encodings}),
             "/v1/tag": (200, {"model": "names", "version": "1", "times": TIMES, "taggings": [{"tokens": tokens, "token_count": 2}]})})
        self.fill("encode-text", "a")
        self.fill("encode-other", "b")
        self.press("encode")
        self.wait(lambda: "similarity 0.960" in self.text("encode-answer"), "the cosine of (3, 4) and (4, 3)")
        self.assertIn("4 tokens, 3 of them unknown", self.text("encode-answer"))
        self.fill("tag-text", "Anna left")
        self.press("tag")
        self.wait(lambda: self.elements("#tag-answer .tagged"), "tags")
        self.assertEqual([one.text.split("\n") for one in self.elements("#tag-answer .tagged")],
                         [["<b>Anna</b>", "PERSON"], ["left", "O"]])
        self.assertEqual([path for path, _ in server.requests], ["/v1/encode", "/v1/tag"])
        self.assertEqual(server.requests[0][1]["texts"], ["a", "b"])
        self.check_quiet(server)

    def test_the_page_of_the_port_for_calls(self):
        server = self.open("--http_listen=127.0.0.1:0")
        self.driver.get("http://127.0.0.1:%d/" % server.http_port)
        body = self.driver.find_element(By.TAG_NAME, "body")
        self.assertIn("curl -s 127.0.0.1:%d/v1/classify" % server.http_port, body.text)
        self.driver.find_element(By.LINK_TEXT, "/docs/rest.md").click()
        self.wait(lambda: "# " in self.driver.find_element(By.TAG_NAME, "body").text, "the document")
        self.assertEqual([entry for entry in self.driver.get_log("browser") if "favicon" not in entry["message"]], [])


def write_picture(path):
    """The top of the page while a model is called at rates that change."""
    StatusPageTest.setUpClass()
    driver = StatusPageTest.driver
    command = [SERVER, "--model_repository=" + os.path.join(SOURCE_ROOT, "models", "pretrained"), "--listen=127.0.0.1:0",
               "--metrics_listen=127.0.0.1:0", "--http_listen="]
    with SruServer(command) as server:
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": 1280, "height": 638, "deviceScaleFactor": 1, "mobile": False})
        driver.get("http://127.0.0.1:%d/" % server.metrics_port)
        load = [os.path.join(os.path.dirname(SERVER), "sru_bench"), "load", "--address=127.0.0.1:%d" % server.port,
                "--model=trec", "--sequences=4", "--warmup=10ms"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for rate in (400, 1100, 1900, 2600, 1500):
            subprocess.run([*load, "--duration=12s", "--rate=%d" % rate], check=True, **quiet)
        with subprocess.Popen([*load, "--duration=6s", "--rate=2200"], **quiet):
            time.sleep(4)
            driver.save_screenshot(path)
    StatusPageTest.tearDownClass()


if __name__ == "__main__":
    SERVER, SOURCE_ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    if len(sys.argv) > 3:
        write_picture(sys.argv[3])
        sys.exit()
    unittest.main(argv=sys.argv[:1], verbosity=2)
