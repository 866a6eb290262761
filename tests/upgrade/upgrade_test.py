"""Programs of this version beside those of earlier ones: calls, states, model directories and flags.

    upgrade_test.py SRU_SERVER SRU_CLIENT MODEL_REPOSITORY

tests/data/README.md says what was recorded, and how. Answers are read by the schema of the earlier version, as its
client reads them: fields that it does not know do not exist for it.
"""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(TESTS, "integration"))
import server_process  # noqa: E402  (skips where there is no grpcio)
from server_process import CLIENT, SERVER, Server, call, refusal  # noqa: E402

import grpc  # noqa: E402
import numpy  # noqa: E402
import recorded  # noqa: E402
import sru_inference  # noqa: E402
from recorded import Call, Recorder, Replay, Stage, differences, send, unknown_bytes  # noqa: E402
from sru_inference.v1 import inference_pb2 as pb  # noqa: E402

LAST = "69f4d91"
# The flags of the first server.
FIRST_FLAGS = (
    "model_repository listen metrics_listen backend dtype instances max_batch_tokens max_batch_sequences "
    "max_queue_delay_us max_queue_tokens max_queue_sequences admission max_sequence_tokens max_sequences_per_request "
    "max_message_bytes drain_timeout_s drain_delay_s"
).split()
# Flags of earlier versions that are gone, with what to say instead. The server refuses each by name.
GONE_FLAGS = {
    "admin_without_auth": "", "admission": "", "allow_tf32": "", "compute_turn_us": "", "connection_guard": "", "cpu_threads": "",
    "empty_repository_grace_s": "", "gpu_dependent_launch": "", "gpu_poll_us": "",
    "max_concurrent_streams": "", "max_connection_age_grace_s": "", "max_connection_idle_s": "", "min_ping_interval_s": "",
    "read_pause_us": "", "scheduling": "",
}
# Those of the client's subcommands.
GONE_CLIENT_FLAGS = {
    "answer": {"batch", "in_flight", "paragraphs", "queries"},
    "classify": {"tokens", "times"},
    "encode": {"chunk_frames", "features", "state_in", "state_out", "stream", "tokens"},
    "generate": {"interactive", "logit_bias", "stats", "stop_token_ids", "tokens"},
    "score": {"carry", "files", "state_in", "state_out", "tokens", "totals"},
    "translate": {"files", "stats", "tokens"},
}
GONE_FLAG_OF_EVERY_SUBCOMMAND = {"token_without_tls"}
# A field of requests that an old server may ignore: the client prints "-" for each token's text.
IGNORED_FIELD = "token_texts"


def part_like(old, new):
    """What `new` has of the keys of `old`, also of those of objects in it."""
    return {key: part_like(value, new.get(key, {})) if isinstance(value, dict) else new.get(key) for key, value in old.items()}


class UpgradeTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.recorded, cls.schema = recorded.load(LAST)
        cls.repository = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.repository.cleanup)
        recorded.make_repository(cls.repository.name, server_process.REPOSITORY)
        server_process.REPOSITORY = cls.repository.name

    def commands(self):
        for entry in self.recorded["commands"]:
            yield entry, [Call.from_json(one) for one in entry["calls"]]

    def serve(self, *flags):
        models = ",".join(sorted(os.listdir(self.repository.name)))
        # Calls of high priority need leave since callers have limits.
        return Server("--load_models=" + models, *recorded.SERVER_FLAGS[1:], "--caller_limits=highest_priority=high", *flags)

    @staticmethod
    def channels(server):
        return server.channel(), grpc.insecure_channel("localhost:%d" % server.port_of("admin"))

    def check_old_calls(self, server, exact):
        """The old client's bytes, and what its schema makes of the answers."""
        main, admin = self.channels(server)
        calls = [one for _, calls in self.commands() for one in calls]
        calls += [Call.from_json(one) for one in self.recorded["calls"]]
        methods = set()
        for index, old in enumerate(calls):
            new = send(admin if "/sru.v1.AdminService/" in old.method else main, old.method, old.requests)
            with self.subTest(old.method, index=index):
                methods.add(old.method.split("/")[-1])
                self.assertEqual(new.code, old.code)
                if old.method.startswith(recorded.HEALTH):
                    self.assertEqual(new.responses, old.responses)
                    continue
                before, after = old.messages(self.schema), new.messages(self.schema)
                self.assertEqual(len(after), len(before))
                for one, other in zip(before, after):
                    self.assertEqual(differences(one, other, exact), [])
        main.close()
        admin.close()
        services = ("InferenceService", "AdminService")
        every = {m.name for s in services for m in self.schema.pool.FindServiceByName("sru.v1." + s).methods}
        self.assertEqual(every - methods, set())

    def test_server_answers_the_old_client_with_the_same_bits(self):
        with self.serve("--backend=reference") as server:
            self.check_old_calls(server, exact=True)
            self.check_states(server)

    def test_processors_answer_the_old_client_with_close_values(self):
        with self.serve("--backend=cpu") as server:
            main, admin = self.channels(server)
            for entry in self.recorded["calls"] + [one for e in self.recorded["commands"] for one in e["calls"]]:
                old = Call.from_json(entry)
                # Which of two close values is greater, and thus a search or a sample, may differ.
                if old.code != "OK" or not re.search("/(Classify|Encode|EncodeStream|Score)$", old.method):
                    continue
                new = send(main, old.method, old.requests)
                with self.subTest(old.method):
                    self.assertEqual(new.code, "OK")
                    for one, other in zip(old.messages(self.schema), new.messages(self.schema)):
                        self.assertEqual(differences(one, other, exact=False), [])
            main.close()
            admin.close()
            self.check_models(server)

    def old_score(self, text):
        """The Score of the old client with this text."""
        calls = [one for _, calls in self.commands() for one in calls]
        return next(one for one in calls if one.method.endswith("/Score") and text in one.requests[0])

    def check_states(self, server):
        """A state of the old server goes on as one of this server does, and is refused where it does not belong."""
        with server.channel() as channel:

            def score(text, state=b"", model="war_and_peace"):
                request = pb.ScoreRequest(model=model, return_states=True, token_log_probs=True)
                request.sequences.add(text=text)
                request.states.append(state)
                answer = call(channel, "Score", request.SerializeToString())
                return answer, pb.ScoreResponse.FromString(answer.body or b"")

            old = self.old_score(b"The prince smiled")
            state = old.messages(self.schema)[0].scores[0].state
            self.assertEqual(score("The prince smiled")[1].scores[0].state, state)
            whole = score("The prince smiled at the countess.")[1].scores[0]
            rest = score(" at the countess.", state)[1].scores[0]
            self.assertEqual(list(rest.token_log_probs), list(whole.token_log_probs)[-len(rest.token_log_probs) :])
            self.assertEqual(rest.state, whole.state)

            answer, _ = score("the", state, model="old_language_model")
            self.assertEqual(answer.code, "INVALID_ARGUMENT")
            self.assertIn("states[0]", answer.details)
            # Format 1, which the first language models wrote, and one that is not yet known.
            for version in (1, 99):
                other = state[:8] + version.to_bytes(4, "little") + state[12:]
                answer, _ = score(" at", other)
                self.assertEqual(answer.code, "INVALID_ARGUMENT")
                self.assertRegex(answer.details, r"states\[0\].*format")

    def test_states_of_other_weights_or_data_types_are_refused(self):
        old = self.old_score(b" at the countess.")
        with self.serve("--backend=cpu", "--dtype=bfloat16") as server, server.channel() as channel:
            answer = call(channel, "Score", old.requests[0])
            self.assertEqual(answer.code, "INVALID_ARGUMENT")
            self.assertRegex(answer.details, r"states\[0\].*float32.*bfloat16|states\[0\].*bfloat16.*float32")

        # The same model with one weight changed.
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(self.repository.name, "old_language_model", "1")
            target = os.path.join(folder, "old_language_model", "1")
            os.makedirs(target)
            for name in os.listdir(source):
                data = bytearray(server_process.read(os.path.join(source, name)))
                if name == "model.safetensors":
                    data[-2] ^= 1
                with open(os.path.join(target, name), "wb") as file:
                    file.write(data)
            calls = (Call.from_json(one) for one in self.recorded["calls"] if one["method"].endswith("/Score"))
            old = next(one for one in calls if self.schema.parse_request(one.method, one.requests[0]).states)
            with Server("--model_repository=" + folder) as server, server.channel() as channel:
                answer = call(channel, "Score", old.requests[0])
                self.assertEqual(answer.code, "INVALID_ARGUMENT")
                self.assertRegex(answer.details, r"states\[0\].*weights")

    def check_models(self, server):
        """What PyTorch computed with the weights before the first exporters wrote them."""
        with open(os.path.join(recorded.OLD_MODELS, "expected.json"), encoding="utf-8") as file:
            expected = json.load(file)
        with sru_inference.Client(server.address) as client:
            self.assertEqual(
                {model.name: model.task for model in client.models().models if model.name.startswith("old_")},
                {"old_" + task: task for task in ("classifier", "encoder", "language_model", "reader", "translator")},
            )
            close = lambda found, wanted: numpy.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)  # noqa: E731
            case = expected["old_classifier"]
            for sequence in (case["text"], case["token_ids"]):
                labels = client.classify([sequence], model="old_classifier")[0].labels
                logits = [label.logit for label in sorted(labels, key=lambda label: label.index)]
                close(logits, case["logits"])
            case = expected["old_encoder"]
            features = numpy.array(case["features"], numpy.float32)
            vectors = client.encode([features], model="old_encoder", pooling="none")[0]
            close(numpy.array(vectors), case["vectors"])
            case = expected["old_language_model"]
            score = client.score([case["text"]], model="old_language_model", token_log_probs=True)[0]
            close(score.token_log_probs, case["token_log_probs"])

    def test_client_understands_the_old_server(self):
        """sru_client sends the old server nothing that it has to know, and prints what the old client printed."""
        with tempfile.TemporaryDirectory() as folder:
            for entry, calls in self.commands():
                flags = " ".join(entry["command"])
                if re.search("--tokens|--features|^score .*--state_", flags):
                    continue
                with self.subTest(flags), Stage(Replay(calls)) as stage:
                    name, *arguments = [argument.format(folder=folder) for argument in entry["command"]]
                    command = [CLIENT, name, *arguments, "--json", "--address=127.0.0.1:%d" % stage.port]
                    given = base64.b64decode(entry["input"])
                    done = subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)
                    self.assertEqual(done.returncode, entry["exit_code"], done.stderr.decode())
                    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
                    self.assertEqual(len(lines), len(entry["output"]))
                    for line, old in zip(lines, map(json.loads, entry["output"])):
                        old.pop("latency_us", None)
                        self.assertEqual(part_like(old, line), old)
                    self.check_requests(stage.handler.received, calls)

    def check_requests(self, received, calls):
        if calls[-1].method.endswith("/Score"):  # the old client asked first which tokenizer the model has
            calls = calls[-1:]
        self.assertEqual([one.method for one in received], [one.method for one in calls])
        for new, old in zip(received, calls):
            if new.method.startswith(recorded.HEALTH):
                self.assertEqual(new.requests, old.requests)
                continue
            for request, before in zip(new.requests, old.requests):
                message = self.schema.parse_request(new.method, self.without_ignored(new.method, request))
                self.assertEqual(unknown_bytes(message), 0, "a field that the old server ignores: %s" % message)
                self.assertEqual(message, self.schema.parse_request(new.method, before))
            self.assertEqual(len(new.requests), len(old.requests))

    @staticmethod
    def without_ignored(method, request):
        if not method.endswith("/Score"):
            return request
        message = pb.ScoreRequest.FromString(request)
        message.ClearField(IGNORED_FIELD)
        return message.SerializeToString()

    def test_python_client_understands_the_old_server(self):
        """The generated messages have the old values, and the client's requests nothing that the old schema lacks."""
        calls = {}
        for _, commands in self.commands():
            for one in commands:
                if one.code == "OK":
                    calls.setdefault(one.method.split("/")[-1], one)
        question = {"question": "who wrote the book?", "passages": ["The river is the book. Who?"]}
        uses = {
            "Classify": lambda client: client.classify(["Who?", "Where?"], model="trec"),
            "Encode": lambda client: client.encode(["Who?"], model="old_classifier"),
            "Score": lambda client: client.score(["the old model"], model="old_language_model", token_log_probs=True),
            "Generate": lambda client: list(client.generate("Well", model="war_and_peace", max_new_tokens=24)),
            "Answer": lambda client: client.answer([sru_inference.Query(**question)], model="old_reader"),
            "Translate": lambda client: client.translate(["the book", "the sea"], model="old_translator"),
            "ListModels": lambda client: client.models(),
            "GetModel": lambda client: client.model("old_translator"),
        }
        for name, use in uses.items():
            old = calls[name]
            with self.subTest(name), Stage(Replay([old])) as stage:
                with sru_inference.Client("127.0.0.1:%d" % stage.port) as client:
                    use(client)
                for request in stage.handler.received[0].requests:
                    self.assertEqual(unknown_bytes(self.schema.parse_request(old.method, request)), 0)
                for data in old.responses:
                    before = self.schema.parse_response(old.method, data)
                    after = getattr(pb, before.DESCRIPTOR.name).FromString(data)
                    self.assertEqual(unknown_bytes(after), 0)
                    again = type(before).FromString(after.SerializeToString())
                    self.assertEqual(again, before)

    def test_every_flag_is_there_or_refused_by_name(self):
        def flags(*command):
            done = subprocess.run([*command, "--help=all"], capture_output=True, text=True, timeout=60, check=False)
            return set(re.findall(r"^  --(\w+)", done.stdout, re.MULTILINE))

        self.assertGreater(len(self.recorded["server_flags"]), 60)
        earlier = set(self.recorded["server_flags"]) | set(FIRST_FLAGS)
        self.assertEqual(sorted(earlier - flags(SERVER)), sorted(GONE_FLAGS))
        for name, instead in {**GONE_FLAGS, "never_was": ""}.items():
            line = refusal("--%s=1" % name)
            self.assertIn("unknown flag --%s" % name, line)
            self.assertIn(instead, line)
        for subcommand, known in self.recorded["client_flags"].items():
            with self.subTest(subcommand):
                self.assertGreater(len(known), 5)
                gone = GONE_CLIENT_FLAGS.get(subcommand, set()) | GONE_FLAG_OF_EVERY_SUBCOMMAND
                self.assertEqual(set(known) - flags(CLIENT, subcommand), gone)


class ComparisonTest(unittest.TestCase):
    """What the tests above rest on: a difference is found."""

    def test_differences(self):
        old = pb.ScoreResponse(model="m", version=1)
        old.times.total_us = 5
        old.scores.add(log_prob=-1.5, token_log_probs=[-0.25], state=b"s" * 60)
        for change, expected in (
            (lambda new: setattr(new, "version", 2), "version: 2, was 1"),
            (lambda new: new.scores.add(), "scores: 2 entries, were 1"),
            (lambda new: setattr(new.scores[0], "log_prob", -1.50000001), "scores[0].log_prob"),
            (lambda new: new.scores[0].token_log_probs.__setitem__(0, -0.25000003), "scores[0].token_log_probs[0]"),
            (lambda new: setattr(new.scores[0], "state", b"s" * 59 + b"t"), "scores[0].state: other bits"),
            (lambda new: setattr(new.scores[0], "state", b"t" * 60), "scores[0].state: another header"),
        ):
            new = pb.ScoreResponse()
            new.CopyFrom(old)
            new.times.total_us = 7
            self.assertEqual(differences(old, new), [])
            change(new)
            found = differences(old, new)
            self.assertEqual(len(found), 1, found)
            self.assertIn(expected, found[0])
        new.CopyFrom(old)
        new.scores[0].log_prob = -1.50001
        self.assertEqual(differences(old, new, exact=False), [])
        new.scores[0].log_prob = -1.51
        self.assertEqual(len(differences(old, new, exact=False)), 1)

    def test_unknown_bytes(self):
        self.assertEqual(unknown_bytes(pb.ListModelsRequest.FromString(b"\xf8\x07\x01")), 3)

    def test_a_recorder_keeps_what_passes(self):
        def answer(method, requests, context):
            yield from (request + b"!" for request in requests)

        with Stage(answer) as server, grpc.insecure_channel("127.0.0.1:%d" % server.port) as channel:
            recorder = Recorder(channel)
            with Stage(recorder) as proxy, grpc.insecure_channel("127.0.0.1:%d" % proxy.port) as through:
                self.assertEqual(send(through, "/a/b", [b"1", b"2"]).responses, [b"1!", b"2!"])
            self.assertEqual((recorder.calls[0].method, recorder.calls[0].requests), ("/a/b", [b"1", b"2"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
