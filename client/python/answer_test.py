"""Runs answer.py against a server of this process. Exits with 77, which CTest shows as skipped,
where grpcio is missing."""

import os
import subprocess
import sys
import tempfile
import unittest

try:
    import grpc
except ImportError:
    print("SKIPPED: this Python has no grpcio (%s)" % sys.executable)
    sys.exit(77)

import answer
import fake_service
import sru_wire

HERE = os.path.dirname(os.path.abspath(__file__))


def longest_words(request):
    """The longest words of each query's passages; an empty passage is refused."""
    results = []
    for query in request["queries"]:
        spans = []
        for place, passage in enumerate(query["passages"]):
            if not passage:
                return grpc.StatusCode.INVALID_ARGUMENT
            for word in passage.split():
                start = passage.index(word)
                spans.append(
                    {
                        "text": word,
                        "passage": place,
                        "start_char": start,
                        "end_char": start + len(word),
                        "log_score": float(len(word)),
                        "probability": 0.5,
                    }
                )
        spans.sort(key=lambda span: -span["log_score"])
        results.append({"answers": spans[: request["top_n"]], "token_count": len(spans)})
    return {"model": "reader", "version": 3, "results": results}


class AnswerTest(unittest.TestCase):
    def setUp(self):
        self.service = fake_service.FakeService(
            "Answer", sru_wire.ANSWER_REQUEST, sru_wire.ANSWER_RESPONSE, longest_words
        )
        self.addCleanup(self.service.stop)
        self.client = answer.Client(self.service.address)
        self.addCleanup(self.client.close)

    def test_answers(self):
        passages = ["ein l\u00e4ngeres", "kurz"]
        tagged = {
            "question": "Who?",
            "passages": ["a"],
            "passage_tags": [{"pos_ids": [1, 300], "lemmas": ["a"]}],
            "question_lemmas": ["who"],
        }
        response = self.client.answer(
            [("Which?", passages), tagged],
            "reader",
            version=3,
            top_n=2,
            max_answer_tokens=5,
            one_per_passage=True,
            no_overlap=True,
        )
        self.assertEqual((response["model"], response["version"]), ("reader", 3))
        best = response["results"][0]["answers"][0]
        self.assertEqual(best["text"], "l\u00e4ngeres")
        self.assertEqual(passages[0][best["start_char"] : best["end_char"]], best["text"])
        self.assertEqual(best["log_score"], 8.0)
        self.assertEqual(answer.marked(best, passages[0]), "ein [l\u00e4ngeres]")
        request = self.service.requests[0]
        self.assertEqual(request["queries"][1]["passage_tags"][0]["pos_ids"], [1, 300])
        self.assertEqual(request["queries"][1]["question_lemmas"], ["who"])
        self.assertEqual(
            [request[name] for name in ("top_n", "max_answer_tokens", "one_per_passage", "no_overlap")],
            [2, 5, 1, 1],
        )

    def test_a_passage_is_no_list_of_letters(self):
        with self.assertRaises(TypeError):
            self.client.answer([("Which?", "a passage")])
        self.assertEqual(self.service.requests, [])

    def test_errors_carry_their_code(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.answer([("Which?", [""])])
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_marks_one_line(self):
        span = {"start_char": 3, "end_char": 6}
        self.assertEqual(answer.marked(span, "a\n\x1b bcd\n\n e", 60), "a \\x1B[ bc]d e")
        self.assertEqual(answer.marked(span, "0123456789", 1), "2[345]6")

    def run_program(self, *flags, text=""):
        return subprocess.run(
            [sys.executable, os.path.join(HERE, "answer.py"), "--address=" + self.service.address]
            + list(flags),
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )

    def test_the_program_prints_answers(self):
        done = self.run_program("--question=Which?", "--top_n=2", text="It was wonderful.\n")
        self.assertEqual(
            (done.returncode, done.stdout),
            (0, "  10.000  0.5000  -  It was [wonderful.]\n   3.000  0.5000  -  It [was] wonderful.\n"),
        )
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("one two three")
            file.flush()
            done = self.run_program("--question=Which?", file.name, "-", text="four")
            self.assertEqual(
                done.stdout, "   5.000  0.5000  %s  one two [three]\n" % file.name
            )
            done = self.run_program("--question=Which?", file.name + ".absent")
            self.assertEqual(done.returncode, 2)
            self.assertIn(file.name + ".absent", done.stderr)
        done = self.run_program("--question=Which?", text="")
        self.assertEqual(done.returncode, 1)
        self.assertIn("INVALID_ARGUMENT", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
