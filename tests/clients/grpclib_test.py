"""The server as grpclib sees it, a client of gRPC in Python alone, on the package h2."""

import asyncio
import sys
import unittest

import clients_venv

clients_venv.enter("grpclib", "grpc")
from grpclib.client import Channel, StreamStreamMethod, UnaryStreamMethod, UnaryUnaryMethod  # noqa: E402
from grpclib.const import Status  # noqa: E402
from grpclib.exceptions import GRPCError, StreamTerminatedError  # noqa: E402
from server_process import SERVICE, Server, inference_pb2  # noqa: E402
from transports import either  # noqa: E402

ENDED_TWICE = either((), StreamTerminatedError, "a deadline that passes while a call ends")


def method(kind, channel, name):
    return kind(channel, SERVICE + name, getattr(inference_pb2, name + "Request"), getattr(inference_pb2, name + "Response"))


def classify(model="trec"):
    return inference_pb2.ClassifyRequest(model=model, sequences=[{"text": "Where is Lake Titicaca ?"}])


def generate(tokens):
    return inference_pb2.GenerateRequest(model="war_and_peace", prompt={"text": "It was"}, max_new_tokens=tokens)


class GrpclibTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    async def asyncSetUp(self):
        self.channel = Channel("127.0.0.1", self.server.port)
        self.addCleanup(self.channel.close)

    async def fails(self, call):
        with self.assertRaises(GRPCError) as raised:
            await call
        return raised.exception

    async def test_answers(self):
        call = method(UnaryUnaryMethod, self.channel, "Classify")
        answers = await asyncio.gather(*(call(classify(), timeout=30) for _ in range(200)))
        for answer in answers:
            self.assertEqual(answer.classifications[0].labels[0].name, "LOC")

    async def test_an_answer_in_parts(self):
        parts = await method(UnaryStreamMethod, self.channel, "Generate")(generate(800), timeout=60)
        self.assertGreater(len(parts), 3)
        self.assertEqual(sum(len(part.token_ids) for part in parts), 800)

    async def test_errors(self):
        call = method(UnaryUnaryMethod, self.channel, "Classify")
        error = await self.fails(call(classify("nope")))
        self.assertEqual(error.status, Status.NOT_FOUND)
        self.assertIn("'nope' is not loaded", error.message)
        error = await self.fails(call(inference_pb2.ClassifyRequest(model="trec", top_k=-1)))
        self.assertEqual(error.status, Status.INVALID_ARGUMENT)
        error = await self.fails(method(UnaryStreamMethod, self.channel, "Generate")(generate(-1)))
        self.assertEqual(error.status, Status.INVALID_ARGUMENT)
        self.assertIn("max_new_tokens", error.message)
        error = await self.fails(UnaryUnaryMethod(self.channel, SERVICE + "Nothing", inference_pb2.ClassifyRequest,
                                                  inference_pb2.ClassifyResponse)(classify()))
        self.assertEqual(error.status, Status.UNIMPLEMENTED)

    async def test_what_a_client_leaves(self):
        async with method(UnaryStreamMethod, self.channel, "Generate").open(timeout=60) as stream:
            await stream.send_message(generate(4000), end=True)
            self.assertTrue((await stream.recv_message()).token_ids)
            await stream.cancel()
        self.server.await_metric("sru_requests_in_flight", 0)
        try:
            async with Channel("127.0.0.1", self.server.port) as channel:
                await method(UnaryStreamMethod, channel, "Generate")(generate(4000), timeout=0.05)
            self.fail("a text of a second came within 50 ms")
        except asyncio.TimeoutError:
            pass  # the client's clock was the first
        except GRPCError as error:
            self.assertEqual(error.status, Status.DEADLINE_EXCEEDED)
        except ENDED_TWICE:
            pass
        self.server.await_metric("sru_requests_in_flight", 0)
        with self.assertRaises(GRPCError) as raised:
            async with method(StreamStreamMethod, self.channel, "EncodeStream").open(timeout=30) as stream:
                await stream.send_request(end=True)
                await stream.recv_message()
        self.assertEqual(raised.exception.status, Status.INVALID_ARGUMENT)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
