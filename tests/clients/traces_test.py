"""Spans as a collector gets them that decodes with the official messages, over HTTP and gRPC; traces from callers and clients; collectors
that are down, slow, busy or silent; and how many calls are sampled."""

import asyncio
import contextlib
import http.server
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from concurrent import futures

import clients_venv

clients_venv.enter("grpc", "opentelemetry.proto.collector.trace.v1.trace_service_pb2", "opentelemetry.sdk.trace")
import grpc  # noqa: E402
import numpy  # noqa: E402
from opentelemetry import trace  # noqa: E402
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

from server_process import (  # noqa: E402
    CLIENT, REPOSITORY, Server, await_true, call, classify_request, inference_pb2, refusal, run)
import sru_inference  # noqa: E402

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
QUESTION = {"model": "trec", "sequences": [{"text": "Who wrote it ?"}]}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = "00-%s-%s-01" % (TRACE, PARENT)
STAGES = ["compute", "parse and tokenize", "queue", "write"]
SERVICE = "sru.v1.InferenceService/"


class Collector:
    """Keeps what it gets. `answer`: what it says next, an HTTP status or a gRPC code; `headers` go with it; `hang`: seconds before."""

    def __init__(self, protocol):
        self.spans, self.headers, self.resource, self.attempts = [], {}, {}, []
        self.answer, self.extra, self.hang, self.rejected = None, {}, threading.Event(), 0
        self.hang.set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["content-type"] == "application/x-protobuf" and self.path == "/v1/traces", self.path
                response = collector.take(service.ExportTraceServiceRequest.FromString(body), self.headers.items())
                self.send_response(collector.answer or 200)
                for name, value in collector.extra.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(OSError):  # a server that ends does not wait
                    self.wfile.write(response.SerializeToString())

            def log_message(self, *_):
                pass

        def export(request, context):
            response = collector.take(request, context.invocation_metadata())
            if collector.answer:
                context.abort(collector.answer, "busy")
            return response

        if protocol == "grpc":
            self.server = grpc.server(futures.ThreadPoolExecutor(4))
            handler = grpc.unary_unary_rpc_method_handler(
                export, service.ExportTraceServiceRequest.FromString, lambda message: message.SerializeToString())
            name, _, method = EXPORT[1:].partition("/")
            self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {method: handler}),))
            self.port = self.server.add_insecure_port("127.0.0.1:0")
            self.server.start()
        else:
            self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            self.server.daemon_threads = True
            self.port = self.server.server_port
            threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:%d" % self.port,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20secret",
            "OTEL_SERVICE_NAME": "tested",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def take(self, request, headers):
        self.attempts.append(time.monotonic())
        self.hang.wait(60)
        if not self.answer:
            self.headers = {name.lower(): value for name, value in headers}
            for part in request.resource_spans:
                self.resource = {pair.key: pair.value.string_value for pair in part.resource.attributes}
                for scope in part.scope_spans:
                    self.spans.extend(scope.spans)
        response = service.ExportTraceServiceResponse()
        response.partial_success.rejected_spans = self.rejected
        return response

    def calls(self):
        return [span for span in self.spans if span.kind == span.SPAN_KIND_SERVER]

    def next_call(self, before):
        await_true(lambda: len(self.calls()) > before, "the span of a call")
        return self.calls()[before]

    def children(self, parent):
        return {span.name: span for span in self.spans if span.parent_span_id == parent.span_id}

    def close(self):
        self.hang.set()
        if hasattr(self.server, "shutdown"):
            self.server.shutdown()
            self.server.server_close()
        else:
            self.server.stop(None).wait()


def attributes(span):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


def post(server, path, body, headers=()):
    request = urllib.request.Request(
        "http://127.0.0.1:%d%s" % (server.http_port, path), json.dumps(body).encode(),
        {"content-type": "application/json", **dict(headers)})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def tree(protocol):
    class Tree(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            folder = tempfile.TemporaryDirectory()
            cls.addClassCleanup(folder.cleanup)
            models = shutil.copytree(REPOSITORY, os.path.join(folder.name, "models"))
            for name in ("encoder", "translator"):
                model = os.path.join(clients_venv.ROOT, "tests", "data", "models", "old_" + name, "1")
                shutil.copytree(model, os.path.join(models, name, "1"))
            cls.collector = Collector(protocol)
            cls.addClassCleanup(cls.collector.close)
            cls.server = Server("--model_repository=" + models, "--log_format=json", "--log_requests=all", env=cls.collector.env)
            cls.addClassCleanup(cls.server.stop)
            cls.client = sru_inference.Client("127.0.0.1:%d" % cls.server.port)
            cls.addClassCleanup(cls.client.close)

        def setUp(self):
            self.before = len(self.collector.calls())

        def call_span(self, method, stages=STAGES):
            """The span of the one call since the test began, once its tree is right."""
            span = self.collector.next_call(self.before)
            self.assertEqual(span.name, method)
            children = self.collector.children(span)
            self.assertEqual(sorted(children), sorted(stages))
            self.assertEqual({len(span.trace_id), len(span.span_id)}, {16, 8})
            for child in children.values():
                self.assertEqual(child.trace_id, span.trace_id)
                self.assertEqual(child.kind, child.SPAN_KIND_INTERNAL)
                self.assertLessEqual(span.start_time_unix_nano, child.start_time_unix_nano)
                self.assertLessEqual(child.start_time_unix_nano, child.end_time_unix_nano)
                self.assertLessEqual(child.end_time_unix_nano, span.end_time_unix_nano)
            self.assertLess(abs(span.end_time_unix_nano / 1e9 - time.time()), 60)
            return span, children

        def test_classify_over_grpc(self):
            with self.server.channel() as channel:
                answer = call(channel, "Classify", classify_request("Who wrote it ?", "Why ?", model="trec"),
                              (("traceparent", TRACEPARENT), ("tracestate", "vendor=1"), ("x-request-id", "mine")))
            self.assertEqual(answer.code, "OK")
            span, children = self.call_span(SERVICE + "Classify")
            self.assertEqual((span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state), (TRACE, PARENT, "vendor=1"))
            found = attributes(span)
            self.assertIn(found.pop("client.address"), ("127.0.0.1", "::1"))
            self.assertEqual(found, {
                "rpc.system.name": "grpc", "rpc.method": SERVICE + "Classify", "rpc.response.status_code": "OK",
                "sru.model": "trec", "sru.version": 1, "sru.sequences": 2, "sru.tokens": 6, "sru.caller": found["sru.caller"],
                "sru.request_id": "mine"})
            (link,) = children["compute"].links
            (batch,) = [one for one in self.collector.spans if one.span_id == link.span_id]
            self.assertEqual((batch.name, batch.trace_id, batch.parent_span_id), ("batch", link.trace_id, b""))
            self.assertEqual(attributes(batch), {"sru.model": "trec", "sru.version": 1, "sru.sequences": 2, "sru.tokens": 6})
            self.assertEqual(self.collector.resource["service.name"], "tested")
            self.assertEqual(self.collector.headers["x-key"], "a secret")
            await_true(lambda: any(line.get("request_id") == "mine" for line in self.server.log_lines("request")), "the line")
            (line,) = [line for line in self.server.log_lines("request") if line.get("request_id") == "mine"]
            self.assertEqual((line["trace_id"], line["span_id"]), (TRACE, span.span_id.hex()))

        def test_classify_over_rest(self):
            post(self.server, "/v1/classify", QUESTION, {"traceparent": TRACEPARENT, "tracestate": "vendor=2"})
            span, _ = self.call_span(SERVICE + "Classify")
            self.assertEqual((span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state), (TRACE, PARENT, "vendor=2"))
            found = attributes(span)
            self.assertEqual((found["http.request.method"], found["http.route"]), ("POST", "/v1/classify"))
            self.assertNotIn("rpc.system.name", found)

        def test_open_inference(self):
            tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["Who wrote it ?"]}
            post(self.server, "/v2/models/trec/infer", {"inputs": [tensor]}, {"traceparent": TRACEPARENT})
            span, _ = self.call_span("inference.GRPCInferenceService/ModelInfer")
            self.assertEqual(span.parent_span_id.hex(), PARENT)
            self.assertEqual(attributes(span)["sru.model"], "trec")

        def test_a_generated_text(self):
            tokens = sum(len(text.token_ids) for text in self.client.generate("It was", model="war_and_peace", max_new_tokens=200))
            span, children = self.call_span(SERVICE + "Generate")
            events = children["compute"].events
            self.assertEqual([event.name for event in events[:3]], ["first token", "token", "token"])
            counts = [event.attributes[0].value.int_value for event in events]
            self.assertEqual(counts[:4], [1, 16, 32, 48])
            self.assertLessEqual(counts[-1], tokens)
            self.assertLess(len(counts), 20)
            times = [event.time_unix_nano for event in events]
            self.assertEqual(times, sorted(times))
            self.assertLessEqual(span.start_time_unix_nano, times[0])
            self.assertLessEqual(times[-1], children["compute"].end_time_unix_nano)

        def test_a_translation(self):
            self.client.translate(["a b c", "b a"], model="translator")
            _, children = self.call_span(SERVICE + "Translate")
            events = children["compute"].events
            self.assertEqual(events[0].name, "first step")
            self.assertEqual(events[0].attributes[0].value.int_value, 1)
            self.assertGreater(attributes(children["compute"])["sru.compute_us"], 0)

        def test_a_stream_of_chunks_has_the_stages_of_each(self):
            chunks = list(self.client.encode_stream([numpy.zeros((frames, 5), "float32") for frames in (2, 3)], model="encoder"))
            self.assertEqual(len(chunks), 2)
            span, _ = self.call_span(SERVICE + "EncodeStream")
            names = [one.name for one in self.collector.spans if one.parent_span_id == span.span_id]
            self.assertEqual(sorted(names), sorted(2 * STAGES))

        def test_a_lookup_has_no_stages(self):
            self.client.models()
            span, _ = self.call_span(SERVICE + "ListModels", [])
            self.assertEqual(attributes(span)["rpc.response.status_code"], "OK")

        def test_a_refusal(self):
            with self.server.channel() as channel:
                answer = call(channel, "Classify", classify_request("Who ?", model="nope"), (("traceparent", TRACEPARENT),))
            self.assertEqual(answer.code, "NOT_FOUND")
            span, _ = self.call_span(SERVICE + "Classify", [])
            self.assertEqual(attributes(span)["error.type"], "NOT_FOUND")
            self.assertEqual(span.status.code, 0)  # it is the caller's error

        def test_a_parent_that_is_not_sampled(self):
            for header, name in (("00-%s-%s-00" % (TRACE, PARENT), "quiet"), (TRACEPARENT, "loud")):
                post(self.server, "/v1/classify", QUESTION, {"traceparent": header, "x-request-id": name})
            self.assertEqual(attributes(self.collector.next_call(self.before))["sru.request_id"], "loud")

        def test_the_c_plus_plus_client(self):
            done = run(CLIENT, "classify", "--address=127.0.0.1:%d" % self.server.port, "--model=trec", "--traceparent=" + TRACEPARENT,
                       "Who wrote it ?")
            self.assertEqual(done.returncode, 0, done.stderr)
            span, _ = self.call_span(SERVICE + "Classify")
            self.assertEqual((span.trace_id.hex(), span.parent_span_id.hex()), (TRACE, PARENT))

    Tree.__name__ = Tree.__qualname__ = "Tree_" + protocol.replace("/", "_")
    return Tree


TreeOverHttp = tree("http/protobuf")
TreeOverGrpc = tree("grpc")


class PythonClient(unittest.TestCase):
    """Its spans are the parents of the server's."""

    @classmethod
    def setUpClass(cls):
        cls.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(cls.exporter))
        trace.set_tracer_provider(provider)
        cls.collector = Collector("http/protobuf")
        cls.addClassCleanup(cls.collector.close)
        cls.server = Server(env=cls.collector.env)
        cls.addClassCleanup(cls.server.stop)
        cls.address = "127.0.0.1:%d" % cls.server.port

    def setUp(self):
        self.before = len(self.collector.calls())
        self.exporter.clear()

    def check(self, method, parent, error=False):
        await_true(lambda: len(self.exporter.get_finished_spans()) > 1, "the client's span")
        (mine,) = [span for span in self.exporter.get_finished_spans() if span.name == SERVICE + method]
        served = self.collector.next_call(self.before)
        self.assertEqual(mine.kind, trace.SpanKind.CLIENT)
        self.assertEqual(mine.parent.span_id, parent.get_span_context().span_id)
        self.assertEqual(served.parent_span_id.hex(), "%016x" % mine.context.span_id)
        self.assertEqual(served.trace_id.hex(), "%032x" % mine.context.trace_id)
        self.assertEqual(mine.status.status_code == trace.StatusCode.ERROR, error)

    def in_span(self):
        return trace.get_tracer("test").start_as_current_span("mine")

    def test_calls(self):
        with sru_inference.Client(self.address) as client:
            with self.in_span() as parent:
                client.classify(["Who wrote it ?"], model="trec")
            self.check("Classify", parent)

    def test_errors(self):
        with sru_inference.Client(self.address) as client:
            with self.in_span() as parent, self.assertRaises(sru_inference.errors.NotFoundError):
                client.classify(["Who wrote it ?"], model="nope")
            self.check("Classify", parent, error=True)

    def test_texts_though_they_begin_after_the_span(self):
        with sru_inference.Client(self.address) as client:
            with self.in_span() as parent:
                stream = client.generate("It was", model="war_and_peace", max_new_tokens=3)
            self.assertTrue(list(stream))
            self.check("Generate", parent)

    def test_asyncio(self):
        async def calls(method):
            async with sru_inference.aio.Client(self.address) as client:
                with self.in_span() as parent:
                    if method == "Classify":
                        await client.classify(["Who wrote it ?"], model="trec")
                    else:
                        async for _ in client.generate("It was", model="war_and_peace", max_new_tokens=3):
                            pass
                await asyncio.sleep(0)
                return parent

        for method in ("Classify", "Generate"):
            with self.subTest(method):
                self.setUp()
                self.check(method, asyncio.run(calls(method)))

    def test_a_given_header(self):
        with sru_inference.Client(self.address) as client:
            with sru_inference.traceparent(TRACEPARENT):
                client.classify(["Who wrote it ?"], model="trec")
            served = self.collector.next_call(self.before)
            self.assertEqual((served.trace_id.hex(), served.parent_span_id.hex()), (TRACE, PARENT))
            with self.assertRaisesRegex(ValueError, "^traceparent: expected"):
                with sru_inference.traceparent("00-nonsense"):
                    pass


class BadCollectors(unittest.TestCase):
    def serve(self, **env):
        server = Server(env=env)
        self.addCleanup(server.stop)
        return server

    def start(self, protocol, **env):
        collector = Collector(protocol)
        self.addCleanup(collector.close)
        return collector, self.serve(**{**collector.env, **env})

    def check_calls(self, server, count):
        with server.channel() as channel:
            for _ in range(count):
                self.assertEqual(call(channel, "Classify", classify_request("Who ?", model="trec")).code, "OK")

    def dropped(self, server, reason):
        return server.metric('sru_spans_dropped_total{reason="%s"}' % reason) or 0

    def each(self):
        for protocol in ("http/protobuf", "grpc"):
            with self.subTest(protocol):
                yield protocol

    def test_one_that_is_down(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # nobody listens
            for protocol in self.each():
                server = self.serve(
                    OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:%d" % taken.getsockname()[1], OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
                    OTEL_BSP_SCHEDULE_DELAY="10", OTEL_BSP_MAX_QUEUE_SIZE="30", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="5")
                self.check_calls(server, 50)
                self.assertGreater(self.dropped(server, "queue_full"), 0)
                server.await_log("spans cannot be exported")
                self.assertEqual(server.stop(), 0)
                self.assertEqual(server.log().count("spans cannot be exported"), 1)

    def test_one_that_is_silent_holds_up_neither_calls_nor_the_end(self):
        for protocol in self.each():
            collector, server = self.start(protocol, OTEL_BSP_MAX_QUEUE_SIZE="30", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="5")
            collector.hang.clear()
            self.check_calls(server, 50)
            self.assertGreater(self.dropped(server, "queue_full"), 0)
            began = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - began, 25)  # of 30 for the drain; the grace is 3

    def test_one_that_is_busy_is_asked_again_after_the_time_that_it_says(self):
        collector, server = self.start("http/protobuf")
        collector.answer, collector.extra = 503, {"retry-after": "2"}
        self.check_calls(server, 1)
        await_true(lambda: collector.attempts, "an attempt")
        collector.answer = None
        await_true(collector.calls, "the span")
        self.assertGreater(collector.attempts[1] - collector.attempts[0], 1.9)
        server.await_metric("sru_spans_exported_total", len(collector.spans))
        server.await_log("spans are exported again")

    def test_one_that_refuses(self):
        for protocol, answer in (("http/protobuf", 400), ("grpc", grpc.StatusCode.INVALID_ARGUMENT)):
            with self.subTest(protocol):
                collector, server = self.start(protocol)
                collector.answer = answer
                self.check_calls(server, 1)
                await_true(lambda: self.dropped(server, "collector") >= 5, "the count")
                self.assertEqual(len(collector.attempts), 1)

    def test_one_that_takes_a_part(self):
        collector, server = self.start("grpc")
        collector.rejected = 2
        self.check_calls(server, 1)
        await_true(lambda: self.dropped(server, "collector") == 2, "the count")
        self.assertEqual(server.metric("sru_spans_exported_total"), len(collector.spans) - 2)

    def test_the_end_brings_what_waits(self):
        for protocol in self.each():
            collector, server = self.start(protocol, OTEL_BSP_SCHEDULE_DELAY="3600000")
            self.check_calls(server, 7)
            self.assertEqual(collector.calls(), [])
            self.assertEqual(server.stop(), 0)
            self.assertEqual(len(collector.calls()), 7)


class Sampling(unittest.TestCase):
    def sampled(self, count, **env):
        collector = Collector("http/protobuf")
        self.addCleanup(collector.close)
        with Server(env={**collector.env, "OTEL_BSP_MAX_QUEUE_SIZE": "100000", **env}) as server, server.channel() as channel:
            for _ in range(count):
                call(channel, "Classify", classify_request("Who ?", model="trec"))
            server.stop()
        return len(collector.calls())

    def test_ratios(self):
        self.assertEqual(self.sampled(20, OTEL_TRACES_SAMPLER="always_off"), 0)
        self.assertEqual(self.sampled(20, OTEL_TRACES_SAMPLER_ARG="0"), 0)
        self.assertEqual(self.sampled(20, OTEL_TRACES_SAMPLER="always_on"), 20)
        some = self.sampled(1000, OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0.2")
        self.assertTrue(100 < some < 300, some)  # eight standard deviations

    def test_wrong_values_end_the_start(self):
        os.environ.pop("SRU_IN_VENV", None)  # of this test, and no flag
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_SAMPLER_ARG": "10%"}
        self.assertIn("OTEL_TRACES_SAMPLER_ARG: expected a number, found '10%'", refusal(env=env))

    def test_without_an_endpoint_there_is_nothing(self):
        with Server() as server:
            self.assertIsNone(server.metric("sru_spans_exported_total"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
