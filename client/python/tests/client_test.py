"""Both clients against a server of this process: what arrives, what comes back, errors, streams."""

import asyncio
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

import grpc
import numpy as np
from fake_service import Refusal, serve

import sru_inference
from sru_inference import aio
from sru_inference.v1 import admin_pb2
from sru_inference.v1 import inference_pb2 as pb


def classify(request):
    """The label of a text is its first word; some texts are orders to fail."""
    text = request.sequences[0].text
    if text == "full":
        raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", retry_after=0.0625)
    if text == "too much":
        raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "the call alone is too much")
    if hasattr(grpc.StatusCode, text):
        raise Refusal(getattr(grpc.StatusCode, text), "as you like it")
    labels = [
        pb.Label(name=sequence.text.split()[0], index=3, probability=0.75, logit=1.5) for sequence in request.sequences
    ]
    return pb.ClassifyResponse(
        model=request.model or "m",
        version=4,
        classifications=[pb.Classification(labels=[label], token_count=2, unknown_tokens=1) for label in labels],
        times=pb.StageTimes(total_us=7),
    )


def tag(request):
    """The labels of a word are its letters."""
    taggings = []
    for sequence in request.sequences:
        words = sequence.text.split()
        tokens = [
            pb.TokenTags(
                token=word,
                labels=[pb.TagLabel(name=letter, index=3, probability=0.75) for letter in word[: request.top_k]],
            )
            for word in words
        ]
        taggings.append(pb.Tagging(tokens=tokens, token_count=len(words), unknown_tokens=1))
    return pb.TagResponse(model=request.model, version=6, taggings=taggings)


def encode(request):
    """As many zeros as its ids say."""
    shapes = [list(sequence.token_ids.values) for sequence in request.sequences]
    return pb.EncodeResponse(
        encodings=[pb.Encoding(shape=shape, data=bytes(4 * int(np.prod(shape)))) for shape in shapes]
    )


def encode_stream(requests):
    """A chunk's values are its ids; the state is how many there were."""
    count = 0
    for index, request in enumerate(requests):
        if request.HasField("start") != (index == 0):
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "start")
        if index == 0 and request.start.state:
            count = int(request.start.state)
        ids = list(request.chunk.token_ids.values)
        if ids == [13]:
            raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "chunk: an unlucky number")
        count += len(ids)
        response = pb.EncodeStreamResponse(state=b"%d" % count if request.return_state else b"")
        if request.HasField("chunk"):
            response.encoding.shape.extend([len(ids), 1])
            response.encoding.data = np.array(ids, "<f4").tobytes()
            response.encoding.token_count = len(ids)
        yield response


class Letters:
    """A language model whose token at position p is the letter p letters after 'a' and whose state is the position.
    Each step says after how many tokens a call stops, and with which code."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __call__(self, request):
        stops_after, code = self.steps.pop(0) if self.steps else (1000, None)
        start = int(request.state or b"0") + len(request.prompt.text)
        wanted = request.max_new_tokens
        for k in range(min(wanted, stops_after)):
            position = start + k
            message = pb.GenerateResponse(
                model="m", version=5, text=chr(ord("a") + position % 26), token_ids=[position]
            )
            last = k + 1 == wanted
            if last:
                message.finish_reason = pb.FINISH_REASON_LENGTH
            if last or k + 1 == stops_after:
                message.state = b"%d" % (position + 1)
                message.prompt_tokens, message.generated_tokens = len(request.prompt.text), k + 1
            yield message
        if stops_after < wanted:
            raise Refusal(code, "the server is shutting down")


def translate(request):
    hypotheses = [
        pb.Hypothesis(text=sequence.text.upper(), token_ids=[1], score=-0.5) for sequence in request.sequences
    ]
    if any(one.text == "BAD" for one in hypotheses):
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "sequences[1].text: bad")
    return pb.TranslateResponse(translations=[pb.Translation(hypotheses=[one], token_count=1) for one in hypotheses])


def answer(request):
    spans = [pb.SpanAnswer(text="x", passage=0, start_char=0, end_char=1, log_score=2.0, probability=0.5)]
    return pb.AnswerResponse(
        model="r", results=[pb.QueryAnswers(answers=spans, token_count=5) for _ in request.queries]
    )


def score(request):
    candidates = [pb.Candidates(candidates=[pb.Candidate(token_id=1, text="a", log_prob=-1.0)])]
    one = pb.Score(
        token_count=2, scored_count=1, log_prob=-1.0, token_log_probs=[-1.0], candidates=candidates, state=b"\xff\x00",
        token_texts=["a"],
    )
    return pb.ScoreResponse(scores=[one] * len(request.sequences))


def tokenize(request):
    """The id of a word is its length."""
    found = []
    for sequence in request.sequences:
        tokens, at = [], 0
        for word in sequence.text.split():
            at = sequence.text.index(word, at)
            where = {"start_byte": at, "end_byte": at + len(word), "start_char": at, "end_char": at + len(word)}
            tokens.append(pb.Token(id=len(word), text=word, **where))
        found.append(pb.Tokenization(tokens=tokens, unknown_tokens=request.unknown))
    return pb.TokenizeResponse(model=request.model, version=request.version, tokenizations=found, max_sequence_tokens=9)


def detokenize(request):
    return pb.DetokenizeResponse(texts=[" ".join("x" * value for value in one.values) for one in request.sequences])


def health(service):
    return {"": 1, "sru.v1.InferenceService": 2}.get(service, 3)


ANSWERS = {
    "Classify": classify,
    "Tag": tag,
    "Encode": encode,
    "EncodeStream": encode_stream,
    "Translate": translate,
    "Answer": answer,
    "Score": score,
    "Tokenize": tokenize,
    "Detokenize": detokenize,
    "ListModels": lambda request: pb.ListModelsResponse(
        models=[
            pb.ModelInfo(name="m", version=4, task="reader", reader=pb.ReaderInfo(features=["exact"]), labels=["A"])
        ],
        statuses=[pb.ModelStatus(model="m", version=5, state=pb.ModelStatus.FAILED, message="no vocab.txt")],
    ),
    "GetModel": lambda request: pb.GetModelResponse(model=pb.ModelInfo(name=request.model, version=request.version)),
    "LoadModel": lambda request: admin_pb2.LoadModelResponse(
        statuses=[pb.ModelStatus(model=request.model, version=1, state=2)]
    ),
    "UnloadModel": lambda request: admin_pb2.UnloadModelResponse(),
    "health": health,
}


class AsyncAdapter:
    """aio.Client with the methods of Client, so that one test serves both."""

    # One for all: gRPC hands what belongs to one loop to another.
    _loop = asyncio.new_event_loop()

    def __init__(self, *args, **kwargs):
        self._client = aio.Client(*args, **kwargs)

    def __getattr__(self, name):
        def method(*args, **kwargs):
            result = getattr(self._client, name)(*args, **kwargs)
            return self._iterate(result) if hasattr(result, "__aiter__") else self._loop.run_until_complete(result)

        return method

    def _iterate(self, items):
        async def step():
            return await items.__anext__()

        while True:
            try:
                yield self._loop.run_until_complete(step())
            except StopAsyncIteration:
                return

    def close(self):
        self._loop.run_until_complete(self._client.close())


class MethodsTest(unittest.TestCase):
    """A method of the services that a client lacks fails here."""

    def test_both_clients_have_every_method(self):
        names = {"ListModels": "models", "GetModel": "model"}
        services = (pb.DESCRIPTOR.services_by_name["InferenceService"], admin_pb2.DESCRIPTOR.services_by_name["AdminService"])
        for method in [method for service in services for method in service.methods]:
            name = names.get(method.name, re.sub("(?<=[a-z])(?=[A-Z])", "_", method.name).lower())
            for client in (sru_inference.Client, aio.Client):
                self.assertTrue(callable(getattr(client, name, None)), f"{client} has no {name}()")


class CallsTest(unittest.TestCase):
    make_client = sru_inference.Client

    def setUp(self):
        self.service = serve(self, **ANSWERS)
        self.client = self.connect(self.service)

    def connect(self, service, **options):
        client = self.make_client(service.address, **options)
        self.addCleanup(client.close)
        return client

    GIVEN = {"top_k": 2, "truncate": True, "skip_empty": True, "priority": "high", "request_id": "id-1"}

    def assert_sent(self, model, version):
        """The first request has GIVEN."""
        request = self.service.requests[0]
        self.assertEqual((request.model, request.version, request.top_k), (model, version, 2))
        self.assertEqual((request.truncate, request.skip_empty, request.priority), (True, True, pb.PRIORITY_HIGH))

    def test_classify(self):
        response = self.client.classify(["one two", "three"], model="trec", version=4, **self.GIVEN)
        self.assertEqual((response.model, response.version, response.request_id), ("trec", 4, "id-1"))
        self.assertEqual(response.times.total_us, 7)
        self.assertEqual([one.label for one in response], ["one", "three"])
        self.assertEqual((response[0].probability, response[0].token_count, response[0].unknown_tokens), (0.75, 2, 1))
        self.assertEqual(response[0].logits.tolist(), [1.5])
        self.assert_sent("trec", 4)
        self.assertRegex(self.service.metadata[0]["user-agent"], r"^sru-inference-python/\d+\.\d+\.\d+ ")

    def test_tag(self):
        response = self.client.tag(["one two", "three"], model="pos", version=6, **self.GIVEN)
        self.assertEqual((response.model, response.version, response.request_id), ("pos", 6, "id-1"))
        self.assertEqual([one.labels for one in response], [("o", "t"), ("t",)])
        first = response[0]
        self.assertEqual((first.token_count, first.truncated, first.unknown_tokens), (2, False, 1))
        self.assertEqual([token.token for token in first.tokens], ["one", "two"])
        self.assertEqual([(label.name, label.index, label.probability) for label in first.tokens[1].labels],
                         [("t", 3, 0.75), ("w", 3, 0.75)])  # fmt: skip
        self.assert_sent("pos", 6)
        self.assertEqual(self.client.tag([""])[0].labels, ())
        self.assertEqual(self.service.requests[1].top_k, 1)

    def test_other_calls(self):
        self.assertEqual([one.values.shape for one in self.client.encode([[2, 3], [4]])], [(2, 3), (4,)])
        self.assertEqual(self.service.requests[-1].output_format, pb.OUTPUT_FORMAT_RAW_FLOAT32)
        wanted = {"return_states": True, "token_log_probs": True, "top_candidates": 1, "token_texts": True}
        scored = self.client.score(["a"], states=[b"s"], **wanted)[0]
        self.assertEqual((scored.token_texts, self.service.requests[-1].token_texts), (("a",), True))
        self.assertEqual((scored.state, scored.token_log_probs.tolist()), (b"\xff\x00", [-1.0]))
        self.assertEqual(scored.candidates[0][0].text, "a")
        self.assertEqual(self.service.requests[-1].states, [b"s"])
        self.assertEqual(self.client.answer([("Who?", ["x y"])])[0].answers[0].text, "x")
        self.assertEqual(self.client.translate(["a"], beam_size=1)[0].text, "A")
        models = self.client.models()
        self.assertEqual((models.models[0].reader.features, models.models[0].labels), (("exact",), ("A",)))
        self.assertIsNone(models.models[0].translator)
        self.assertEqual((models.statuses[0].state, models.statuses[0].message), ("FAILED", "no vocab.txt"))
        self.assertEqual(self.client.model("m", 7).version, 7)
        self.assertEqual(self.client.load_model("m")[0].state, "READY")
        self.assertIsNone(self.client.unload_model("m"))
        self.assertEqual(self.client.health(), "SERVING")
        self.assertEqual(self.client.health("sru.v1.InferenceService"), "NOT_SERVING")
        self.client.wait_ready(timeout=20)

    def test_answers_beyond_four_mebibytes(self):
        self.assertEqual(self.client.encode([[1 << 20, 2]])[0].values.shape, (1 << 20, 2))
        client = self.connect(self.service, max_message_bytes=1 << 20)
        with self.assertRaisesRegex(sru_inference.MessageTooLargeError, "max_message_bytes of this client") as raised:
            client.encode([[1 << 20, 2]])
        self.assertIsNone(raised.exception.retry_after)

    def test_errors(self):
        names = "INVALID_ARGUMENT NOT_FOUND FAILED_PRECONDITION UNAUTHENTICATED PERMISSION_DENIED DEADLINE_EXCEEDED"
        for name in [*names.split(), "ABORTED", "INTERNAL", "UNIMPLEMENTED"]:
            kind = getattr(sru_inference, "".join(part.title() for part in name.split("_")) + "Error")
            with self.assertRaisesRegex(kind, f"^{name}: as you like it$") as raised:
                self.client.classify([name], request_id="r-" + name)
            self.assertEqual((raised.exception.code.name, raised.exception.request_id), (name, "r-" + name))
            self.assertIsNone(raised.exception.retry_after)
            self.assertIsInstance(raised.exception, sru_inference.InferenceError)
        with self.assertRaises(sru_inference.InferenceError) as raised:
            self.client.classify(["DATA_LOSS"])
        self.assertEqual(raised.exception.code, grpc.StatusCode.DATA_LOSS)
        for text, retry_after in (("full", 0.0625), ("too much", None)):
            with self.assertRaises(sru_inference.ResourceExhaustedError) as raised:
                self.client.classify([text])
            self.assertEqual(raised.exception.retry_after, retry_after)
        requests = len(self.service.requests)
        with self.assertRaisesRegex(TypeError, "sequences: expected a list"):
            self.client.classify("a text")
        self.assertEqual(len(self.service.requests), requests)

    def test_calls_are_repeated_only_if_the_server_goes_away(self):
        client = self.connect(self.service, max_attempts=3, initial_backoff=0.002)
        for name, attempts in (("UNAVAILABLE", 3), ("INTERNAL", 1)):
            self.service.requests.clear()
            with self.assertRaises(sru_inference.InferenceError):
                client.classify([name])
            self.assertEqual(len(self.service.requests), attempts)

    def test_a_deadline_passes(self):
        gate = threading.Event()
        service = serve(self, Classify=lambda request: gate.wait() and pb.ClassifyResponse())
        self.addCleanup(gate.set)
        for options, arguments in (({"timeout": 0.2}, {}), ({}, {"timeout": 0.2})):
            with self.assertRaises(sru_inference.DeadlineExceededError):
                self.connect(service, **options).classify(["a"], **arguments)

    def test_a_very_long_timeout_is_a_long_one(self):
        service = serve(self, **{**ANSWERS, "Generate": Letters()})
        for timeout in (sys.maxsize, 1e300):
            for client in (self.connect(service), self.connect(service, timeout=timeout, stream_timeout=timeout)):
                client.wait_ready(timeout=timeout)
                self.assertEqual(client.classify(["one"], timeout=timeout)[0].label, "one")
                self.assertEqual(client.health(), "SERVING")
                self.assertEqual(len(list(client.generate("abc", max_new_tokens=3, timeout=timeout))), 3)
                self.assertEqual(len(list(client.encode_stream([[1, 2]], timeout=timeout))), 1)

    def test_waiting_in_vain_says_why(self):
        service = serve(self, health=lambda service: 2)
        for why in ("its health is NOT_SERVING", ".*(refused|failed|connect)"):
            with self.assertRaisesRegex(sru_inference.DeadlineExceededError, "not ready within 0.2 s: " + why):
                self.connect(service).wait_ready(0.2)
            service.stop()

    def test_a_server_that_does_not_serve_can_be_asked_about(self):
        service = serve(self, health=lambda service: 2, ListModels=ANSWERS["ListModels"], Classify=classify)
        client = self.connect(service, max_attempts=1)
        self.assertEqual((client.health(), client.models().statuses[0].state), ("NOT_SERVING", "FAILED"))
        with self.assertRaises(sru_inference.UnavailableError):
            client.classify(["a"], timeout=5)
        self.assertEqual(self.connect(service, only_serving=False).classify(["a"])[0].label, "a")

    def test_several_addresses(self):
        other = serve(self, **ANSWERS)
        client = self.make_client([self.service.address, other.address])
        self.addCleanup(client.close)
        calls = 0
        while not (self.service.requests and other.requests):  # until both are connected
            client.classify(["a"])
            calls += 1
            self.assertLess(calls, 5000)

    def test_encode_stream(self):
        chunks = [[1, 2], sru_inference.Chunk([3], return_state=True), np.array([4])]
        items = list(self.client.encode_stream(chunks, return_state=True))
        self.assertEqual([item.values.tolist() for item in items[:3]], [[[1], [2]], [[3]], [[4]]])
        self.assertEqual([item.state for item in items], [b"", b"3", b"", b"4"])
        self.assertIsNone(items[3].values)
        rest = list(self.client.encode_stream([[5]], state=items[3].state, return_state=True))
        self.assertEqual(rest[-1].state, b"5")
        self.assertEqual(list(self.client.encode_stream([])), [])

    def test_errors_of_an_encode_stream(self):
        found = []
        with self.assertRaisesRegex(sru_inference.InvalidArgumentError, "an unlucky number"):
            for item in self.client.encode_stream([[1], [13], [2]]):
                found.append(item.token_count)
        self.assertEqual(found, [1])
        with self.assertRaisesRegex(ValueError, r"chunks\[1\]: expected a sequence or return_state"):
            list(self.client.encode_stream([[1], sru_inference.Chunk()]))

        def chunks():
            yield [1]
            raise KeyError("the caller's own")

        with self.assertRaisesRegex(KeyError, "the caller's own"):
            list(self.client.encode_stream(chunks()))

    def test_a_stream_that_is_refused_at_once(self):
        def refuse(requests):
            raise Refusal(grpc.StatusCode.UNAUTHENTICATED, "no token")

        service = serve(self, EncodeStream=refuse, Generate=refuse)
        client = self.connect(service)
        for _ in range(20):
            with self.assertRaisesRegex(sru_inference.UnauthenticatedError, "no token"):
                list(client.encode_stream([[1], [2]]))
        with self.assertRaisesRegex(sru_inference.UnauthenticatedError, "no token"):
            list(client.generate("a"))

    def test_generate(self):
        service = serve(self, Generate=Letters())
        sampling = {"temperature": 0.5, "seed": 3}
        pieces = list(self.connect(service).generate("abc", max_new_tokens=3, sampling=sampling, stop=["x"]))
        self.assertEqual("".join(piece.text for piece in pieces), "def")
        self.assertEqual([piece.finish_reason for piece in pieces], ["", "", "length"])
        self.assertEqual((pieces[0].token_ids.tolist(), pieces[-1].state, pieces[-1].generated_tokens), ([3], b"6", 3))
        self.assertEqual((service.requests[0].sampling.seed, list(service.requests[0].stop)), (3, ["x"]))

    def test_a_text_goes_on_where_a_server_stopped(self):
        service = serve(self, Generate=Letters((2, grpc.StatusCode.UNAVAILABLE), (1, grpc.StatusCode.UNAVAILABLE)))
        pieces = list(self.connect(service).generate("abc", max_new_tokens=6))
        self.assertEqual("".join(piece.text for piece in pieces), "defghi")
        self.assertEqual([request.state for request in service.requests], [b"", b"5", b"6"])
        self.assertEqual((pieces[-1].prompt_tokens, pieces[-1].generated_tokens), (3, 6))

    def test_a_wait_ends_with_the_deadline(self):
        def generate(request):
            if request.state:
                raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", retry_after=5)
            return Letters((2, grpc.StatusCode.UNAVAILABLE))(request)

        service = serve(self, Generate=generate)
        begin = time.monotonic()
        # The last call may be refused before its deadline of a millisecond.
        with self.assertRaises((sru_inference.DeadlineExceededError, sru_inference.ResourceExhaustedError)):
            list(self.connect(service).generate("abc", max_new_tokens=6, timeout=0.5))
        self.assertLess(time.monotonic() - begin, 3)

    def test_errors_of_a_text(self):
        service = serve(self, Generate=Letters((2, grpc.StatusCode.INTERNAL)))
        found = []
        with self.assertRaises(sru_inference.InternalError):
            for piece in self.connect(service).generate("abc", max_new_tokens=6):
                found.append(piece.text)
        self.assertEqual(found, ["d", "e"])

    def test_many_texts_keep_their_order(self):
        texts = [f"text x{i}" for i in range(100)] + [""]
        found = list(self.client.translate_all(iter(texts), batch=3, in_flight=5))
        self.assertEqual(found, [text.upper() for text in texts])
        self.assertEqual(len(self.service.requests), 34)
        self.assertEqual(list(self.client.translate_all([])), [])
        with self.assertRaises(sru_inference.InvalidArgumentError):
            list(self.client.translate_all(["good", "bad"]))

    def test_many_texts_run_as_many_calls_as_allowed(self):
        lock = threading.Lock()
        running = most = 0

        def translate_slowly(request):
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.05)
            with lock:
                running -= 1
            return translate(request)

        client = self.connect(serve(self, Translate=translate_slowly))
        for in_flight in (1, 2):
            most = 0
            self.assertEqual(list(client.translate_all(list("abcd"), batch=1, in_flight=in_flight)), list("ABCD"))
            self.assertEqual(most, in_flight)

    def test_bad_arguments_of_many_texts(self):
        for wrong in ("a dog", b"a dog"):
            with self.assertRaisesRegex(TypeError, "texts: expected a list, found a single text"):
                list(self.client.translate_all(wrong))
        for name in ("batch", "in_flight"):
            for wrong in (0, -1):
                with self.assertRaisesRegex(ValueError, f"{name}: expected at least 1, found {wrong}"):
                    list(self.client.translate_all(["a dog"], **{name: wrong}))
        with self.assertRaisesRegex(TypeError, r"\[1\].*found NoneType"):
            list(self.client.translate_all(["a dog", None]))
        self.assertEqual(self.service.requests, [])

    def test_a_closed_client_refuses_calls(self):
        self.client.classify(["a"])
        client = self.make_client(self.service.address)
        client.close()
        if self.make_client is sru_inference.Client:
            with self.assertRaisesRegex(RuntimeError, "the client is closed"):
                client.classify(["a"])


    LIMIT = 5

    def limited(self, answer, error=None):
        """Answers to calls with at most LIMIT sequences."""

        def limited(request):
            count = len(request.sequences)
            if count > self.LIMIT:
                raise error or Refusal(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"sequences: {count} are too many, expected at most {self.LIMIT} (--max_sequences_per_request); "
                    "send several calls",
                )
            return answer(request)

        return limited

    def test_a_long_list_goes_in_several_calls(self):
        texts = [f"w{index}" for index in range(23)]
        service = serve(self, **{name: self.limited(ANSWERS[name]) for name in ("Classify", "Tag", "Encode", "Translate")})
        client = self.connect(service)
        with unittest.mock.patch("sru_inference._parts.MOST_SEQUENCES", 12):
            response = client.classify(texts, top_k=1, request_id="long")
            self.assertEqual([one.label for one in response], texts)
            self.assertEqual((response.version, response.request_id, response.times.total_us), (4, "long", 6 * 7))
            counts = sorted(len(request.sequences) for request in service.requests)
            self.assertEqual(counts, [1, 2, 5, 5, 5, 5, 11, 12])
            self.assertEqual({request.top_k for request in service.requests}, {1})
            self.assertEqual([one.tokens[0].token for one in client.tag(texts)], texts)
            self.assertEqual([one.text for one in client.translate(texts)], [text.upper() for text in texts])
            encodings = client.encode([[index + 1] for index in range(23)])
            self.assertEqual([one.values.shape for one in encodings], [(index + 1,) for index in range(23)])
            self.assertIsInstance(encodings, sru_inference.results.Encodings)
            self.assertEqual(len(client.classify(iter(texts[:12]))), 12)

    def test_what_belongs_to_the_sequences_goes_with_them(self):
        def score_state(request):
            pairs = zip(request.sequences, request.states)
            return pb.ScoreResponse(scores=[pb.Score(state=one.text.encode() + state) for one, state in pairs])

        def prefixed(request):
            texts = [prefix + one.text for one, prefix in zip(request.sequences, request.target_prefixes)]
            return pb.TranslateResponse(translations=[pb.Translation(hypotheses=[pb.Hypothesis(text=text)]) for text in texts])

        client = self.connect(serve(self, Score=self.limited(score_state), Translate=self.limited(prefixed)))
        texts = list("abcdefghijklm")
        found = client.score(texts, states=[text.upper().encode() for text in texts])
        self.assertEqual([one.state.decode() for one in found], [text + text.upper() for text in texts])
        found = client.translate(texts, target_prefixes=[text.upper() for text in texts])
        self.assertEqual([one.text for one in found], [text.upper() + text for text in texts])

    def test_a_call_that_is_too_large_is_halved(self):
        for error in (
            Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "the call alone is too much"),
            Refusal(grpc.StatusCode.INVALID_ARGUMENT, "sequences: more than 9 tokens in all, expected at most that "
                    "(--max_queue_tokens); send several calls"),
        ):  # fmt: skip
            service = serve(self, Classify=self.limited(classify, error))
            found = self.connect(service).classify([f"w{index}" for index in range(9)])
            self.assertEqual([one.label for one in found], [f"w{index}" for index in range(9)])
            self.assertEqual(sorted(len(request.sequences) for request in service.requests), [4, 5, 9])

    def test_an_error_in_a_long_list_names_the_callers_index(self):
        def refuse(request):
            for index, sequence in enumerate(request.sequences):
                if sequence.text == "bad":
                    raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, f"sequences[{index}].text: bad")
            return classify(request)

        client = self.connect(serve(self, Classify=self.limited(refuse)))
        texts = ["a"] * 23
        texts[17] = "bad"
        with self.assertRaisesRegex(sru_inference.InvalidArgumentError, r"^INVALID_ARGUMENT: sequences\[17\].text: bad$"):
            client.classify(texts)
        with self.assertRaisesRegex(TypeError, r"sequences\[3\]: expected a text"):
            client.classify(["a", "b", "c", None])

    def test_a_long_list_waits_for_its_own_calls_only(self):
        lock, running = threading.Lock(), [0, 0]  # now, refused

        def busy(request):
            with lock:
                running[0] += 1
                full = running[0] > 2
                running[1] += full
            try:
                if full:
                    raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", retry_after=0.01)
                time.sleep(0.02)
                return classify(request)
            finally:
                with lock:
                    running[0] -= 1

        texts = [f"w{index}" for index in range(60)]
        client = self.connect(serve(self, Classify=self.limited(busy)))
        self.assertEqual([one.label for one in client.classify(texts)], texts)
        self.assertGreater(running[1], 0)
        with self.assertRaises(sru_inference.ResourceExhaustedError):
            self.client.classify(["full"])

    def test_tokens_of_texts_and_texts_of_tokens(self):
        client = self.connect(serve(self, Tokenize=self.limited(tokenize), Detokenize=self.limited(detokenize)))
        found = client.tokenize(["a bb", ""], model="m", version=3, unknown="skip")
        self.assertEqual((found.model, found.version, found.max_sequence_tokens), ("m", 3, 9))
        self.assertEqual(found[0].tokens[1], sru_inference.results.Token(2, "bb", 2, 4, 2, 4))
        self.assertEqual([(len(one.tokens), one.unknown_tokens) for one in found], [(2, 2), (0, 2)])
        self.assertEqual(list(client.detokenize([[1, 2], np.array([3]), []])), ["x xx", "xxx", ""])
        self.assertEqual(list(client.detokenize([[1]] * 13)), ["x"] * 13)
        for wrong in ("ab", ["a"], [1.5]):
            with self.assertRaisesRegex((TypeError, ValueError), r"sequences\[1\]: expected "):
                client.detokenize([[1], wrong])

    def test_what_becomes_of_unknown_tokens(self):
        for number, unknown in enumerate(["", "refuse", "skip", "replace"]):
            self.client.classify(["a"], unknown=unknown)
            self.client.answer([("Who?", ["x"])], unknown=unknown)
            list(self.client.encode_stream([[1]], unknown=unknown))
            self.assertEqual([request.unknown for request in self.service.requests[-3:-1]], [number] * 2)
        with self.assertRaisesRegex(ValueError, "unknown: expected one of refuse, skip, replace, found 'drop'"):
            self.client.score(["a"], unknown="drop")


class AioCallsTest(CallsTest):
    make_client = AsyncAdapter

    @classmethod
    def tearDownClass(cls):
        AsyncAdapter._loop.run_until_complete(AsyncAdapter._loop.shutdown_asyncgens())
        AsyncAdapter._loop.close()


class CopyTest(unittest.TestCase):
    """What runs calls in other processes pickles its clients."""

    def test_a_copy_has_the_options_and_channels_of_its_own(self):
        service = serve(self, **ANSWERS)
        for kind in (sru_inference.Client, aio.Client):
            copy = pickle.loads(pickle.dumps(kind([service.address], token="t", timeout=7)))
            self.assertIs(type(copy), kind)
            self.assertEqual((copy._connection.options.timeout, copy._connection.options.token), (7, "t"))
        with sru_inference.Client(service.address) as client:
            client.health()
            copy = pickle.loads(pickle.dumps(client))
        with copy:
            self.assertEqual(copy.classify(["one"])[0].label, "one")


class ThreadsTest(unittest.TestCase):
    def test_threads_share_a_client(self):
        service = serve(self, **ANSWERS)
        with sru_inference.Client(service.address) as client:
            found = []

            def call(word):
                for _ in range(20):
                    found.append(client.classify([word])[0].label == word)

            threads = [threading.Thread(target=call, args=(f"w{i}",)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(found, [True] * 160)

    def test_a_text_can_be_cancelled(self):
        service = serve(self, Generate=Letters())
        with sru_inference.Client(service.address) as client:
            pieces = client.generate("a", max_new_tokens=1000)
            next(pieces)
            canceller = threading.Thread(target=pieces.cancel)
            canceller.start()
            canceller.join()
            with self.assertRaises(sru_inference.CancelledError):
                for _ in pieces:
                    pass
            with client.generate("a", max_new_tokens=3) as pieces:
                next(pieces)

    def test_an_error_among_many_texts_waits_for_no_other_call(self):
        release = threading.Event()
        self.addCleanup(release.set)

        def translate(request):
            if request.sequences[0].text == "bad":
                raise Refusal(grpc.StatusCode.INVALID_ARGUMENT)
            release.wait(30)
            raise Refusal(grpc.StatusCode.UNAVAILABLE)

        service = serve(self, Translate=translate)
        with sru_inference.Client(service.address) as client:
            begin = time.monotonic()
            with self.assertRaises(sru_inference.InvalidArgumentError):
                list(client.translate_all(["bad", "a", "b", "c"], batch=1, in_flight=2))
            self.assertLess(time.monotonic() - begin, 10)

    def test_closing_an_asyncio_client_cancels_no_task(self):
        release = threading.Event()
        self.addCleanup(release.set)

        def generate(request):
            release.wait(30)
            yield from Letters()(request)

        def classify_later(request):
            release.wait(30)
            return classify(request)

        service = serve(self, Classify=classify_later, Generate=generate)

        async def main():
            client = aio.Client(service.address)
            pieces = client.generate("a", max_new_tokens=1000)
            calls = [asyncio.ensure_future(call) for call in (client.classify(["a"]), pieces.__anext__())]
            while len(service.requests) < 2:
                await asyncio.sleep(0.01)
            await client.close()
            for call in calls:
                with self.assertRaisesRegex(sru_inference.CancelledError, "the client was closed"):
                    await call

        if sys.version_info >= (3, 11):
            asyncio.run(main())

    def test_asyncio_calls_at_once_and_cancelled(self):
        service = serve(self, Generate=Letters(), **{name: ANSWERS[name] for name in ("Classify", "EncodeStream")})

        async def main():
            async with aio.Client(service.address) as client:
                found = await asyncio.gather(*(client.classify([f"w{i}"]) for i in range(100)))
                self.assertEqual([one[0].label for one in found], [f"w{i}" for i in range(100)])

                async def chunks():
                    yield [1]
                    yield [2, 3]

                self.assertEqual([item.token_count async for item in client.encode_stream(chunks())], [1, 2])
                pieces = client.generate("a", max_new_tokens=1000)
                await pieces.__anext__()
                pieces.cancel()
                with self.assertRaises(sru_inference.CancelledError):
                    async for _ in pieces:
                        pass
            with self.assertRaisesRegex(RuntimeError, "the client is closed"):
                await client.classify(["a"])

        asyncio.run(main())


FORK = """
import os, sys
import sru_inference
client = sru_inference.Client(sys.argv[1])
child = os.fork()
if child:
    os.waitpid(child, 0)
print(client.classify(["parent" if child else "child"])[0].label, flush=True)
os._exit(0)
"""


class ForkTest(unittest.TestCase):
    def setUp(self):
        self.service = serve(self, Classify=classify)

    def test_a_client_without_calls_is_inherited(self):
        # In a process of its own, in which gRPC has done nothing yet.
        command = [sys.executable, "-B", "-c", FORK, self.service.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stdout.split(), ["child", "parent"], done.stderr)

    def test_a_client_with_calls_is_refused_in_the_child(self):
        # No fork: gRPC may hang after one, in the parent as well.
        with sru_inference.Client(self.service.address) as client:
            client.classify(["parent"])
            with unittest.mock.patch("os.getpid", return_value=os.getpid() + 1):
                with self.assertRaisesRegex(RuntimeError, r"used before os.fork\(\)"):
                    client.classify(["child"])
            client.classify(["parent"])


if __name__ == "__main__":
    unittest.main()
