"""Arguments to messages, and messages to results."""

import dataclasses
import functools
import inspect
import pickle
import unittest

import numpy as np

import sru_inference
from sru_inference import _requests, results
from sru_inference.v1 import inference_pb2 as pb


def sequence(value):
    message = pb.Sequence()
    _requests.fill_sequence(message, value, "sequences[0]")
    return message


class Requests(sru_inference.Client):
    """Its methods return what they would send."""

    def _call(self, method, request, *_):
        return request

    def _generate(self, request, *_):
        return request


class SequenceTest(unittest.TestCase):
    def test_every_form(self):
        self.assertEqual(sequence("caf\u00e9").text, "caf\u00e9")
        self.assertEqual(sequence("").WhichOneof("input"), "text")
        self.assertEqual(list(sequence(["a", "b"]).tokens.values), ["a", "b"])
        for ids in (
            [1, 300],
            (1, 300),
            np.array([1, 300]),
            np.array([1, 300], np.int16),
            [np.int64(1), np.int64(300)],
            range(1, 301, 299),
        ):
            self.assertEqual(list(sequence(ids).token_ids.values), [1, 300])
        self.assertEqual(sequence([]).WhichOneof("input"), "token_ids")
        frames = np.arange(6, dtype=np.float64).reshape(3, 2)
        for value in (frames, frames.tolist(), np.asfortranarray(frames), frames.astype(">f4")):
            features = sequence(value).features
            self.assertEqual(features.feature_size, 2)
            self.assertEqual(np.frombuffer(features.data, "<f4").tolist(), [0, 1, 2, 3, 4, 5])

    def test_an_array_with_one_more_axis_is_a_batch(self):
        request = pb.ClassifyRequest()
        _requests.fill_sequences(request.sequences, np.array([[1, 2], [3, 4]]))
        self.assertEqual([list(one.token_ids.values) for one in request.sequences], [[1, 2], [3, 4]])
        _requests.fill_sequences(request.sequences, np.zeros((3, 5, 2), np.float32))
        self.assertEqual([one.features.feature_size for one in request.sequences[2:]], [2, 2, 2])

    def test_errors_name_the_argument(self):
        for error, wrong, expected in (
            (TypeError, "a text", "sequences: expected a list"),
            (ValueError, ["a", "\ud800"], r"sequences\[1\]: expected Unicode"),
            (ValueError, [["a", "\ud800"]], r"sequences\[0\]\[1\]: expected Unicode"),
            (TypeError, [b"a"], r"sequences\[0\]: expected a text, found bytes"),
            (TypeError, [["a", 1]], r"sequences\[0\]\[1\]: expected a text, found int"),
            (TypeError, [1], r"sequences\[0\]: expected .* found int"),
            (ValueError, [[1 << 40]], r"sequences\[0\]: expected token ids of 32 bits"),
            (ValueError, [np.zeros(3)], r"sequences\[0\]: .* found an array \[3\] of float64"),
            (ValueError, [np.zeros((3, 2), int)], r"sequences\[0\]: .* found an array \[3, 2\] of int64"),
        ):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(error, expected):
                _requests.fill_sequences(pb.ClassifyRequest().sequences, wrong)

    def test_names_of_choices(self):
        for enum, names, prefix in (
            (pb.Priority, _requests.PRIORITIES, "PRIORITY_"),
            (pb.LengthPenalty.Form, _requests.LENGTH_PENALTIES, "FORM_"),
            (pb.FinishReason, results._FINISH_REASONS, "FINISH_REASON_"),
        ):
            known = [name[len(prefix) :].lower().replace("unspecified", "") for name in enum.keys()]
            self.assertEqual(known, list(names))
        with self.assertRaisesRegex(
            ValueError, "pooling: expected one of default, none, last, max, mean, first, found 'middle'"
        ):
            _requests.choose(_requests.POOLINGS, "middle", "pooling")

    def test_sampling(self):
        def request(sampling, state=b"", prompt="a"):
            return Requests().generate(
                prompt, state=state, sampling=sampling, stop=["x"], token_texts=True, priority="low"
            )

        message = request({"temperature": 0.5, "seed": 2**64 - 1, "logit_bias": {3: -1.5, 0: 1}})
        self.assertEqual((message.sampling.temperature, message.sampling.seed), (0.5, 2**64 - 1))
        self.assertEqual(dict(message.sampling.logit_bias), {3: -1.5, 0: 1})
        self.assertEqual((message.token_texts, message.priority), (True, pb.PRIORITY_LOW))
        self.assertFalse(request(sru_inference.Sampling(top_k=3)).sampling.HasField("seed"))
        self.assertFalse(request(None).HasField("sampling"))
        self.assertFalse(request(None, state=b"s", prompt="").HasField("prompt"))
        with self.assertRaisesRegex(TypeError, "sampling: expected .*temperature.*heat"):
            request({"heat": 1})

    def test_queries(self):
        tags = sru_inference.PassageTags(pos_ids=[1, 300], lemmas=["a"])
        query = sru_inference.Query("Who?", ["a"], [tags], ["who"])
        request = Requests().answer(
            [("Which?", ["x", "y"]), query], top_n=2, max_answer_tokens=5, one_per_passage=True, no_overlap=True
        )
        self.assertEqual(list(request.queries[0].passages), ["x", "y"])
        self.assertEqual(list(request.queries[1].passage_tags[0].pos_ids), [1, 300])
        self.assertEqual(list(request.queries[1].question_lemmas), ["who"])
        self.assertEqual(
            (request.top_n, request.max_answer_tokens, request.one_per_passage, request.no_overlap), (2, 5, True, True)
        )
        for wrong, expected in (
            (["Which?"], r"queries\[0\]: expected a Query"),
            ([("Which?", "a passage")], r"queries\[0\].passages: expected a list"),
            ([("Which?", [1])], r"queries\[0\].passages\[0\]: expected a text, found int"),
        ):
            with self.assertRaisesRegex(TypeError, expected):
                Requests().answer(wrong)

    def test_errors_of_fields_name_the_argument(self):
        client = Requests()
        for error, call, expected in (
            (ValueError, lambda: client.classify(["a"], top_k=2**40), "^top_k: "),
            (TypeError, lambda: client.tag(["a"], version="1"), "^version: "),
            (TypeError, lambda: client.encode(["a"], truncate="x"), "^truncate: "),
            (TypeError, lambda: client.score(["a"], states=["x"]), "^states: "),
            (ValueError, lambda: client.answer([("Who?", ["a"])], top_n=2**40), "^top_n: "),
            (TypeError, lambda: client.translate(["a"], max_length_factor="x"), "^max_length_factor: "),
            (TypeError, lambda: client.encode_stream([[1]], state="x"), "^state: "),
            (TypeError, lambda: client.generate(None), "^prompt: expected a text"),
            (TypeError, lambda: client.generate("a", stop_token_ids=["x"]), "^stop_token_ids: "),
            (TypeError, lambda: client.generate("a", sampling={"temperature": "hot"}), r"^sampling\.temperature: "),
            (ValueError, lambda: client.generate("a", sampling={"seed": -1}), r"^sampling\.seed: "),
            (TypeError, lambda: client.generate("a", sampling={"logit_bias": {"x": 1}}), r"^sampling\.logit_bias: "),
            (TypeError, lambda: sru_inference.Client(timeout="5"), "^timeout: expected seconds, found '5'"),
            (TypeError, lambda: client._connection.timeout("5"), "^timeout: expected seconds, found '5'"),
        ):
            with self.subTest(expected), self.assertRaisesRegex(error, expected):
                call()

    def test_every_argument_reaches_the_request(self):
        elsewhere = {"self", "timeout", "request_id", "precision", "alpha"}  # not under their own names
        for name in ("classify", "tag", "encode", "score", "generate", "answer", "translate", "tokenize", "detokenize"):
            arguments = set(inspect.signature(getattr(sru_inference.Client, name)).parameters) - elsewhere
            request = getattr(pb, name.title() + "Request")
            self.assertLessEqual(arguments, set(request.DESCRIPTOR.fields_by_name), name)

    def test_alpha_is_sent_only_if_it_is_given(self):
        def penalty(alpha):
            return Requests().translate(["a"], length_penalty="power", alpha=alpha).length_penalty

        self.assertFalse(penalty(None).HasField("alpha"))
        self.assertTrue(penalty(0.0).HasField("alpha"))
        self.assertEqual(penalty(None).form, pb.LengthPenalty.FORM_POWER)

    def test_what_a_translation_may_have_of_marian(self):
        self.assertFalse(Requests().translate(["a"]).HasField("word_penalty"))
        request = Requests().translate(
            ["a"], word_penalty=0, max_length_factor=1.5, return_hard_alignment=True, return_token_log_probs=True
        )
        self.assertTrue(request.HasField("word_penalty"))
        self.assertEqual((request.max_length_factor, request.return_hard_alignment), (1.5, True))
        self.assertTrue(request.return_token_log_probs)
        self.assertFalse(request.return_alignment)


class ResultsTest(unittest.TestCase):
    def encoding(self, array, shape):
        return pb.Encoding(data=array.tobytes(), shape=shape)

    def test_values_of_every_precision(self):
        values = np.array([[0.5, -2.0, 0.0], [1.0, 65504.0, -0.25]], np.float32)
        wire = {
            "float32": values.astype("<f4"),
            "float16": values.astype("<f2"),
            "bfloat16": (np.array([[0.5, -2.0, 0.0], [1.0, 65280.0, -0.25]], "<f4").view("<u4") >> 16).astype("<u2"),
        }
        for precision, array in wire.items():
            found = results.encoding_values(self.encoding(array, [2, 3]), precision)
            expected = values.copy()
            if precision == "bfloat16":
                expected[1, 1] = 65280.0
            self.assertEqual((found.dtype, found.tolist()), (np.float32, expected.tolist()))
            found[0, 0] = 7  # the caller's own
            with self.assertRaisesRegex(ValueError, "bytes of " + precision):
                results.encoding_values(self.encoding(array, [3, 3]), precision)
        empty = results.encoding_values(pb.Encoding(shape=[0, 3]), "float32")
        self.assertEqual(empty.shape, (0, 3))

    def test_encodings_are_arrays(self):
        message = pb.EncodeResponse(model="m", version=2)
        for row in ([1, 2], [3, 4]):
            message.encodings.append(self.encoding(np.array(row, "<f4"), [2]))
        found = results.encodings(message, "id", "float32")
        self.assertEqual(found.array().tolist(), [[1, 2], [3, 4]])
        self.assertEqual(np.asarray(found[1]).tolist(), [3, 4])
        self.assertEqual(np.asarray(found[1], np.float64).dtype, np.float64)
        self.assertEqual((found.model, found.version, found.request_id, len(found[:1])), ("m", 2, "id", 1))
        message.encodings.append(self.encoding(np.zeros(3, "<f4"), [3]))
        with self.assertRaisesRegex(ValueError, r"one shape, found \[2\] and \[3\]"):
            results.encodings(message, "", "float32").array()

    def test_figures_of_a_score(self):
        message = pb.ScoreResponse(
            scores=[pb.Score(token_count=3, scored_count=2, log_prob=-2.0), pb.Score(token_count=1)]
        )
        first, second = results.scores(message, "")
        self.assertAlmostEqual(first.perplexity, np.e)
        self.assertAlmostEqual(2**first.bits_per_token, first.perplexity)
        self.assertIsNone(second.perplexity)
        self.assertIsNone(second.bits_per_token)

    def test_alignment_has_a_row_per_token(self):
        hypothesis = pb.Hypothesis(text="A B", tokens=["A", "B"], alignment=[1, 0, 0, 0, 1, 0])
        message = pb.TranslateResponse(
            translations=[pb.Translation(hypotheses=[hypothesis], token_count=3), pb.Translation()]
        )
        first, second = results.translations(message, "", alignment=True)
        self.assertEqual(first.hypotheses[0].alignment.tolist(), [[1, 0, 0], [0, 1, 0]])
        self.assertEqual((first.text, second.text), ("A B", ""))
        self.assertIsNone(results.translations(message, "", alignment=False)[0].hypotheses[0].alignment)

    def test_a_result_has_every_field_of_its_message(self):
        left_out = {"Encoding": {"data", "shape"}, "ModelInfo": {"pooling"}, "TranslatorInfo": {"length_penalty"}}
        of_results = (
            "StageTimes Label Classification TagLabel TokenTags Tagging Encoding Candidate Score SpanAnswer QueryAnswers "
            "Hypothesis Translation ModelInfo ModelStatus ReaderInfo TranslatorInfo Token Tokenization"
        )
        kinds = [(getattr(results, name), getattr(pb, name)) for name in of_results.split()]
        kinds += [(getattr(sru_inference, name), getattr(pb, name)) for name in ("Sampling", "Query", "PassageTags")]
        for kind, message in (*kinds, (results.GeneratedText, pb.GenerateResponse)):
            fields = {field.name for field in dataclasses.fields(kind)}
            expected = set(message.DESCRIPTOR.fields_by_name) - left_out.get(kind.__name__, set())
            self.assertEqual(fields, expected, kind)

    def test_each_field_has_the_value_of_its_message(self):
        """Constructors name no fields."""

        def filled(message, number=0):
            for field in message.DESCRIPTOR.fields:
                number += 1
                holder = getattr(message, field.name)
                repeated = hasattr(holder, "extend")
                if field.message_type is not None:
                    filled(holder.add() if repeated else holder, number)
                else:
                    value = {field.TYPE_STRING: f"s{number}", field.TYPE_BYTES: b"%d" % number, field.TYPE_BOOL: True}.get(
                        field.type, 1 if field.enum_type else number
                    )
                    if repeated:
                        holder.append(value)
                    else:
                        setattr(message, field.name, value)
            return message

        def compare(result, message, where):
            for field in dataclasses.fields(result):
                found, wanted = getattr(result, field.name), getattr(message, field.name, None)
                where_field = f"{where}.{field.name}"
                if field.name in ("values", "alignment", "finish_reason", "candidates"):
                    continue
                if dataclasses.is_dataclass(found):
                    compare(found, wanted, where_field)
                elif isinstance(found, tuple) and found and dataclasses.is_dataclass(found[0]):
                    self.assertEqual(len(found), 1)
                    compare(found[0], wanted[0], where_field)
                else:
                    found = list(found) if isinstance(found, (tuple, np.ndarray)) else found
                    self.assertEqual(found, list(wanted) if isinstance(found, list) else wanted, where_field)

        for read, kind, field in (
            (results.classifications, pb.ClassifyResponse, "classifications"),
            (results.taggings, pb.TagResponse, "taggings"),
            (results.scores, pb.ScoreResponse, "scores"),
            (results.answers, pb.AnswerResponse, "results"),
            (results.tokenizations, pb.TokenizeResponse, "tokenizations"),
            (functools.partial(results.translations, alignment=False), pb.TranslateResponse, "translations"),
        ):
            message = filled(kind())
            if kind is pb.TranslateResponse:
                message.translations[0].hypotheses[0].ClearField("alignment")  # has a shape
            response = read(message, "id")
            self.assertEqual((response.model, response.version), (message.model, message.version))
            compare(response[0], getattr(message, field)[0], field)
            self.assertIs(response.results, response.results)
            again = pickle.loads(pickle.dumps(read(message, "id")))
            self.assertEqual((repr(again), len(again)), (repr(response), len(response)))
        encoding = filled(pb.EncodeResponse()).encodings[0]
        encoding.shape[:], encoding.data = [1], bytes(4)
        compare(results.encodings(pb.EncodeResponse(encodings=[encoding]), "", "float32")[0], encoding, "encodings")
        message = filled(pb.GenerateResponse())
        compare(results.generated_text(message), message, "generate")
        scored = results.scores(filled(pb.ScoreResponse()), "")[0].candidates[0][0]
        compare(scored, filled(pb.ScoreResponse()).scores[0].candidates[0].candidates[0], "candidates")

    def test_errors_can_be_pickled(self):
        error = sru_inference.ResourceExhaustedError("full", retry_after=0.5, request_id="r")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.retry_after, again.request_id), ("RESOURCE_EXHAUSTED: full", 0.5, "r"))


if __name__ == "__main__":
    unittest.main()
