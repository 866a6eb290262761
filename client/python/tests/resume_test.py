"""The rules by which a text goes on elsewhere, against replicas that a test plays; client/resume_generate_test.cc
has the same."""

import unittest

import grpc

from sru_inference import InternalError, ResourceExhaustedError, UnavailableError
from sru_inference._resume import LONGEST_WAIT, Resumption
from sru_inference.v1 import inference_pb2 as pb

DRAINING = UnavailableError("the server is shutting down")


class Replicas:
    """Replicas of a model whose token at position p of sample s is 100 s + p, and whose state is the position. Each
    step says how many tokens of each sample a call generates before it ends with an error, and whether the samples
    then have states."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.requests, self.waits, self.samples = [], [], {}

    def run(self, request, max_attempts=4):
        resumption = Resumption(request, max_attempts)
        call = resumption.first()
        while call is not None:
            self.requests.append(pb.GenerateRequest.FromString(call.request.SerializeToString()))
            if call.wait:
                self.waits.append(call.wait)
            tokens, error, states = self.steps.pop(0) if self.steps else (1000, None, True)
            for message in self.messages(call.request, tokens, states):
                if resumption.take(message):
                    self.samples.setdefault(message.sample, pb.GenerateResponse()).MergeFrom(message)
                if resumption.complete:
                    error = None
                    break
            call = resumption.ended(error)

    def messages(self, request, tokens, states):
        start, prompt, wanted = int(request.state or b"0"), len(request.prompt.token_ids.values), request.max_new_tokens
        for t in range(min(wanted, tokens)):
            for s in range(max(1, request.num_samples)):
                position = start + prompt + t
                message = pb.GenerateResponse(version=5, sample=s, token_ids=[100 * s + position], text=f"{position} ")
                last = t + 1 == wanted
                stopped = not last and t + 1 == tokens
                if last:
                    message.finish_reason = pb.FINISH_REASON_LENGTH
                if last or (stopped and states):
                    if stopped or request.return_state:
                        message.state = b"%d" % (position + 1)
                    message.prompt_tokens, message.generated_tokens = prompt, t + 1
                yield message


def make_request(max_new_tokens, num_samples=0, **fields):
    prompt = pb.Sequence(token_ids=pb.TokenIds(values=[0, 1, 2]))
    return pb.GenerateRequest(
        model="m", prompt=prompt, max_new_tokens=max_new_tokens, num_samples=num_samples, **fields
    )


def ids(*samples):
    return [list(sample.token_ids) for sample in samples]


class ResumptionTest(unittest.TestCase):
    def test_an_uninterrupted_call_is_passed_on(self):
        replicas, request = Replicas(), make_request(2, return_state=True)
        replicas.run(request)
        self.assertEqual(replicas.requests, [request])
        self.assertEqual(ids(replicas.samples[0]), [[3, 4]])
        self.assertEqual((replicas.samples[0].state, replicas.samples[0].generated_tokens), (b"5", 2))

    def test_goes_on_from_the_state_of_a_server_that_drains(self):
        replicas = Replicas((2, DRAINING, True), (0, DRAINING, True), (1, DRAINING, True))
        replicas.run(make_request(6, min_new_tokens=3, echo=True))
        requests = replicas.requests
        self.assertEqual([request.state for request in requests], [b"", b"5", b"5", b"6"])
        self.assertEqual([request.max_new_tokens for request in requests], [6, 4, 4, 3])
        self.assertEqual([request.min_new_tokens for request in requests], [3, 1, 1, 0])
        self.assertEqual([request.echo for request in requests], [True, False, False, False])
        self.assertEqual([request.version for request in requests], [0, 5, 5, 5])
        self.assertEqual([request.HasField("prompt") for request in requests], [True, False, False, False])
        whole = replicas.samples[0]
        self.assertEqual(ids(whole), [[3, 4, 5, 6, 7, 8]])
        self.assertEqual((whole.prompt_tokens, whole.generated_tokens, whole.state), (3, 6, b""))

    def test_each_sample_goes_on_from_its_own_state(self):
        replicas, request = Replicas((2, DRAINING, True)), make_request(4, 3)
        request.sampling.temperature = 1
        replicas.run(request)
        self.assertEqual([one.num_samples for one in replicas.requests], [3, 1, 2, 3])
        self.assertEqual(
            ids(*(replicas.samples[s] for s in range(3))), [[100 * s + p for p in range(3, 7)] for s in range(3)]
        )
        # It is one text only if all calls have the same seed.
        self.assertEqual(len({one.sampling.seed for one in replicas.requests}), 1)
        self.assertTrue(replicas.requests[0].sampling.HasField("seed"))

    def test_greedy_samples_are_alike(self):
        replicas = Replicas((2, DRAINING, True))
        replicas.run(make_request(4, 2))
        self.assertEqual([one.num_samples for one in replicas.requests], [2, 1, 1])

    def test_gives_up_after_calls_without_a_token(self):
        replicas = Replicas(*[(0, DRAINING, True)] * 3)
        with self.assertRaises(UnavailableError):
            replicas.run(make_request(2), max_attempts=3)
        self.assertEqual(len(replicas.requests), 3)
        replicas = Replicas((1, DRAINING, True))
        with self.assertRaises(UnavailableError):
            replicas.run(make_request(2), max_attempts=1)

    def test_without_a_state_there_is_nothing_to_go_on_from(self):
        replicas = Replicas((2, DRAINING, False))
        with self.assertRaises(UnavailableError):
            replicas.run(make_request(3))
        self.assertEqual(len(replicas.requests), 1)

    def test_a_text_that_has_not_begun_begins_elsewhere_with_the_version_that_was_named(self):
        replicas = Replicas((0, DRAINING, False))
        replicas.run(make_request(2, version=2))
        self.assertEqual([request.version for request in replicas.requests], [2, 2])
        self.assertEqual(ids(replicas.samples[0]), [[3, 4]])

    def test_other_errors_end_the_text(self):
        replicas = Replicas((2, InternalError("oops"), True))
        with self.assertRaisesRegex(InternalError, "oops"):
            replicas.run(make_request(3))

    def test_a_refused_resumption_waits_as_long_as_the_server_asks(self):
        full = ResourceExhaustedError("full", retry_after=0.25)
        endless = ResourceExhaustedError("full", retry_after=1e9)
        replicas = Replicas((1, DRAINING, True), (0, full, True), (0, endless, True))
        replicas.run(make_request(3))
        self.assertEqual(replicas.waits, [0.25, LONGEST_WAIT])
        self.assertEqual(ids(replicas.samples[0]), [[3, 4, 5]])
        # The first call is the caller's to repeat.
        with self.assertRaises(ResourceExhaustedError):
            Replicas((0, full, True)).run(make_request(3))

    def test_an_error_after_the_end_does_not_matter(self):
        replicas = Replicas((2, DRAINING, True))
        replicas.steps = [(1000, DRAINING, True)]
        replicas.run(make_request(2))
        self.assertEqual(ids(replicas.samples[0]), [[3, 4]])

    def test_answers_that_make_no_sense(self):
        for messages, expected in (
            ([pb.GenerateResponse(sample=1)], "the answer has sample 1 of 1"),
            ([pb.GenerateResponse(finish_reason=1), pb.GenerateResponse()], "sample 0 goes on after its finish_reason"),
            ([pb.GenerateResponse(text="a")], "sample 0 has no finish_reason"),
        ):
            resumption = Resumption(make_request(2), 4)
            resumption.first()
            with self.assertRaisesRegex(InternalError, expected) as raised:
                for message in messages:
                    resumption.take(message)
                resumption.ended(None)
            self.assertEqual(raised.exception.code, grpc.StatusCode.INTERNAL)
        with self.assertRaisesRegex(InternalError, "generated 3 of 2 tokens"):
            resumption = Resumption(make_request(2), 4)
            resumption.take(pb.GenerateResponse(state=b"s", generated_tokens=3))
            resumption.ended(DRAINING)


if __name__ == "__main__":
    unittest.main()
