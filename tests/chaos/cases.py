"""The calls that are made, and the right answer to each, to the bit.

A model is served in two sets of weights, one under odd versions and one under even ones, so that an answer's version
says which of two answers is right. A calm server computes both beforehand; bits do not depend on the batch, so that what
it says is what every server has to say under any load.
"""

import base64
import http.client
import json
import math
import os
import shutil
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "client", "python"))
sys.path.insert(0, os.path.join(ROOT, "tests", "attacks"))

import numpy  # noqa: E402
from http2 import field, fields  # noqa: E402
from sru_inference.v1 import inference_pb2 as pb  # noqa: E402

SERVICE = "/sru.v1.InferenceService/"
MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health/Check"
_TIMES, _VERSION = 4, 2  # fields of most answers

BUNDLED = os.path.join(ROOT, "models", "pretrained")
SMALL = os.path.join(ROOT, "tests", "data", "models")
# Always the same version, so that a text which one server has begun can go on at another.
CONSTANT_MODEL = "war_and_peace"


def models(folder):
    return {
        name: os.path.join(folder, name, "1")
        for name in sorted(os.listdir(folder))
        if os.path.isdir(os.path.join(folder, name, "1"))
    }


def copy_model(source, target, odd):
    """A version's folder; that of even versions has other weights."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copytree(source, target)
    if odd:
        return
    path = os.path.join(target, "model.safetensors")
    with open(path, "r+b") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        for name, tensor in header.items():
            if name == "__metadata__" or tensor["dtype"] != "F32":
                continue
            begin, end = tensor["data_offsets"]
            file.seek(8 + size + begin)
            values = numpy.frombuffer(file.read(end - begin), "<f4") * numpy.float32(1.125)
            file.seek(8 + size + begin)
            file.write(values.astype("<f4").tobytes())


def _strip(data, *dropped):
    """The message without its version and times, and the version."""
    version = 0
    kept = []
    for key, value, whole in fields(data):
        if key == _VERSION:
            version = int(value)
        elif key not in dropped:
            kept.append(whole)
    return b"".join(kept), version


class Case:
    """A call. `answer(responses)` is (what is compared, version), the version None if the answer does not tell."""

    def __init__(self, kind, method, requests, stream=False):
        self.kind, self.method, self.stream = kind, method, stream
        self.requests = [one if isinstance(one, bytes) else one.SerializeToString() for one in requests]
        self.right = None  # of even versions, of odd ones

    @property
    def times_field(self):
        return 0 if self.kind == "ModelInfer" else _TIMES

    @property
    def floods(self):
        """Whether chaos_flood can make it: one message in, one out, of which it knows what to leave out."""
        return not self.stream and self.kind not in ("ListModels", "GetModel", "Health")

    def answer(self, responses):
        if self.kind == "Generate":
            return _text([pb.GenerateResponse.FromString(one) for one in responses])
        if self.kind == "EncodeStream":
            return b"|".join(b"".join(w for f, _, w in fields(one) if f == 1) for one in responses), None
        if self.kind == "Health":
            return responses[0], None
        if self.kind == "GetModel":
            return _model(pb.GetModelResponse.FromString(responses[0]).model)
        if self.kind == "ListModels":
            listed = pb.ListModelsResponse.FromString(responses[0]).models
            return b"|".join(sorted({_model(one)[0] for one in listed})), None
        return _strip(responses[0], self.times_field)

    def is_right(self, responses):
        found, version = self.answer(responses)
        if version is None:
            return found in self.right
        return found == self.right[version % 2]


def _text(responses):
    """A text, whatever the pieces in which it came."""
    tokens = [token for one in responses for token in one.token_ids]
    log_probs = [value for one in responses for value in one.log_probs]
    last = responses[-1]
    return (
        "".join(one.text for one in responses).encode()
        + struct.pack("<%di" % len(tokens), *tokens)
        + struct.pack("<%df" % len(log_probs), *log_probs)
        + struct.pack("<iii", last.finish_reason, last.prompt_tokens, last.generated_tokens)
    ), last.version


def _model(info):
    """Without what says where it runs, and on how many workers: fewer when a device is lost."""
    version = info.version
    for field_name in ("version", "instances", "backend", "backend_description"):
        info.ClearField(field_name)
    return info.SerializeToString(), version


class RestCase:
    """A call over HTTP."""

    stream = floods = False

    def __init__(self, kind, method, path, body=None):
        self.kind, self.method, self.path = kind, method, path
        self.body = None if body is None else json.dumps(body).encode()
        self.right = None

    def answer(self, body):
        if self.kind == "REST Generate":
            events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")]
            for event in events:
                if "error" in event:
                    raise EventError(event["error"]["code"])
            tokens = [token for event in events for token in event.get("token_ids", ())]
            text = "".join(event.get("text", "") for event in events)
            return json.dumps([text, tokens, events[-1].get("finish_reason")]).encode(), int(events[-1]["version"])
        found = json.loads(body)
        if self.kind == "REST ListModels":
            return json.dumps([one["id"] for one in found["data"]]).encode(), None
        found.pop("times", None)
        version = int(found.pop("version", None) or found.pop("model_version"))
        return json.dumps(found, sort_keys=True).encode(), version

    is_right = Case.is_right


class EventError(Exception):
    """A stream of events that ended with an error."""


def _sequences(*texts):
    return [pb.Sequence(text=text) for text in texts]


def _model_infer(model, texts):
    """A ModelInferRequest with one tensor of texts."""
    contents = b"".join(field(8, text.encode()) for text in texts)
    tensor = field(1, b"text") + field(2, b"BYTES") + field(3, bytes([len(texts)])) + field(5, contents)
    return field(1, model.encode()) + field(5, tensor)


QUESTIONS = ("Who wrote Hamlet ?", "Where is Lake Titicaca ?", "How many moons does Jupiter have ?", "What is an atom ?")
FRAMES = [struct.pack("<20f", *(math.sin(i + shift) for i in range(20))) for shift in range(3)]  # four of five values


def make_cases(served):
    """Every call of the server, for those of the models that are served."""
    cases = [
        Case("Classify", SERVICE + "Classify", [pb.ClassifyRequest(model="old_classifier", sequences=_sequences(text))])
        for text in ("Who wrote the book?", "where is the river", "the book")
    ]
    encode = pb.EncodeRequest(model="old_classifier", sequences=_sequences("who wrote the book", "river"))
    encode.pooling, encode.output_format = pb.POOLING_NONE, pb.OUTPUT_FORMAT_RAW_FLOAT32
    cases.append(Case("Encode", SERVICE + "Encode", [encode]))
    for text in ("the old model", "a new one."):
        score = pb.ScoreRequest(model="old_language_model", sequences=_sequences(text), token_log_probs=True)
        score.top_candidates, score.return_states = 2, False
        cases.append(Case("Score", SERVICE + "Score", [score]))
    generate = pb.GenerateRequest(model="old_language_model", max_new_tokens=12, token_log_probs=True)
    generate.prompt.text = "the "
    generate.sampling.temperature, generate.sampling.seed = 0.9, 3
    cases.append(Case("Generate", SERVICE + "Generate", [generate], stream=True))
    chunks = [pb.EncodeStreamRequest(chunk=pb.Sequence(features=pb.Features(data=one, feature_size=5))) for one in FRAMES]
    chunks[0].start.model = "old_encoder"
    chunks[0].start.output_format = pb.OUTPUT_FORMAT_RAW_FLOAT32
    cases.append(Case("EncodeStream", SERVICE + "EncodeStream", chunks, stream=True))
    for question in ("who wrote the book?", "where is the river?"):
        answer = pb.AnswerRequest(model="old_reader", top_n=3, max_answer_tokens=3)
        answer.queries.add(question=question, passages=["the river is the book", "Who? The book!"])
        cases.append(Case("Answer", SERVICE + "Answer", [answer]))
    for text in ("the book", "the sea"):
        translate = pb.TranslateRequest(model="old_translator", sequences=_sequences(text), num_hypotheses=2)
        cases.append(Case("Translate", SERVICE + "Translate", [translate]))
    cases += [
        Case("ModelInfer", MODEL_INFER, [_model_infer("old_classifier", ["Who wrote it?", "the river"])]),
        Case("ModelInfer", MODEL_INFER, [_model_infer("old_translator", ["the book"])]),
        Case("ListModels", SERVICE + "ListModels", [b""]),
        Case("GetModel", SERVICE + "GetModel", [pb.GetModelRequest(model="old_classifier")]),
        Case("Health", HEALTH, [b""]),
    ]
    if "trec" in served:
        for count in (1, 4):
            request = pb.ClassifyRequest(model="trec", sequences=_sequences(*QUESTIONS[:count]))
            cases.append(Case("Classify", SERVICE + "Classify", [request]))
        request = pb.EncodeRequest(model="trec", sequences=_sequences(QUESTIONS[1]))
        cases.append(Case("Encode", SERVICE + "Encode", [request]))
        cases.append(Case("ModelInfer", MODEL_INFER, [_model_infer("trec", QUESTIONS[:2])]))
        score = pb.ScoreRequest(model=CONSTANT_MODEL, sequences=_sequences("The prince smiled"), token_log_probs=True)
        cases.append(Case("Score", SERVICE + "Score", [score]))
        cases.append(Case("Generate", SERVICE + "Generate", [long_text()], stream=True))
    return cases


def long_text():
    """Long enough that a server which stops leaves it unfinished."""
    request = pb.GenerateRequest(model=CONSTANT_MODEL, max_new_tokens=48, token_log_probs=True)
    request.prompt.text = "Well, Prince"
    request.sampling.temperature, request.sampling.seed = 0.8, 7
    return request


def make_rest_cases():
    classify = {"model": "trec", "sequences": [{"text": text} for text in QUESTIONS[:2]], "top_k": 2}
    score = {"model": "old_language_model", "sequences": [{"text": "the old"}], "token_log_probs": True}
    text = {"model": CONSTANT_MODEL, "prompt": {"text": "It was"}, "max_new_tokens": 8}
    query = {"question": "who wrote the book?", "passages": ["the river is the book"]}
    infer = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["Who wrote it?"]}]}
    return [
        RestCase("REST Classify", "POST", "/v1/classify", classify),
        RestCase("REST Score", "POST", "/v1/score", score),
        RestCase("REST Generate", "POST", "/v1/generate", text),
        RestCase("REST Answer", "POST", "/v1/answer", {"model": "old_reader", "queries": [query]}),
        RestCase("REST Translate", "POST", "/v1/translate", {"model": "old_translator", "sequences": [{"text": "the sea"}]}),
        RestCase("REST ModelInfer", "POST", "/v2/models/old_classifier/infer", infer),
        RestCase("REST ListModels", "GET", "/v1/models"),
    ]


def call_calmly(channel, case):
    responses = list(channel.stream_stream(case.method)(iter(case.requests), timeout=60))
    return case.answer(responses)[0]


def call_rest_calmly(port, case):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(case.method, case.path, case.body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError("%s: %d %s" % (case.path, answer.status, body.decode()))
    return case.answer(body)[0]


def save_for_flood(cases, path):
    """The file that chaos_flood reads."""
    encoded = lambda data: base64.b64encode(data).decode()  # noqa: E731
    with open(path, "w", encoding="ascii") as file:
        for case in cases:
            if case.floods:
                right = " ".join(encoded(one) for one in case.right)
                words = (case.kind, case.method, case.times_field, encoded(case.requests[0]), right)
                file.write("%s %s %d %s %s\n" % words)


def save(cases, path):
    """What callers read: the right answers in the order of the cases."""
    with open(path, "w", encoding="ascii") as file:
        json.dump([[base64.b64encode(one).decode() for one in case.right] for case in cases], file)


def load(cases, path):
    with open(path, encoding="ascii") as file:
        for case, right in zip(cases, json.load(file)):
            case.right = [base64.b64decode(one) for one in right]
    return cases
