"""The headers of traces, without opentelemetry and with what its API does."""

import unittest

import sru_inference
from sru_inference import _spans
from sru_inference.v1 import inference_pb2 as pb

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class SpansTest(unittest.TestCase):
    def test_a_given_header_is_that_of_calls_in_the_block(self):
        connection = sru_inference.Client()._connection
        self.assertEqual(connection.metadata(""), ())
        with sru_inference.traceparent(HEADER):
            self.assertEqual(connection.metadata("id"), (("x-request-id", "id"), ("traceparent", HEADER)))
            stands = _spans.Trace()
        self.assertEqual(connection.metadata(""), ())
        self.assertEqual(connection.metadata("", stands), (("traceparent", HEADER),))
        with _spans.CallSpan(pb.ClassifyRequest(), stands) as span:
            self.assertEqual(connection.metadata("", span), (("traceparent", HEADER),))

    def test_wrong_headers(self):
        for wrong in ("", HEADER[:-1], HEADER + "-x", HEADER.upper(), HEADER + "\n"):
            with self.assertRaisesRegex(ValueError, "^traceparent: expected"), sru_inference.traceparent(wrong):
                self.fail(wrong)

    def test_without_a_trace_nothing_is_sent(self):
        with self.assertRaises(KeyError), _spans.CallSpan(pb.ClassifyRequest(), _spans.Trace()) as span:
            self.assertEqual(span.headers(), ())
            raise KeyError


if __name__ == "__main__":
    unittest.main()
