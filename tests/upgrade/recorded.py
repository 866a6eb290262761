"""Calls as an earlier version made and answered them (tests/data/wire), and the schema that it had.

Shared by the tests of this folder and by tests/data/make_wire_fixtures.py, which records the calls.
"""

import base64
import concurrent.futures
import json
import os
import shutil
import struct
import threading

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FOLDER = os.path.join(TESTS, "data", "wire")
OLD_MODELS = os.path.join(TESTS, "data", "models")
HEALTH = "/grpc.health.v1.Health/"
SERVING = b"\x08\x01"  # HealthCheckResponse
# What says how long something took or where it ran, not what came out.
NOT_COMPARED = {"times", "backend_description"}


def make_repository(folder, pretrained):
    """The bundled models and those of tests/data/models, in one repository."""
    for root in (pretrained, OLD_MODELS):
        for name in os.listdir(root):
            if os.path.isdir(os.path.join(root, name)):
                shutil.copytree(os.path.join(root, name), os.path.join(folder, name))


# The plain loops of the reference backend give the same bits on every processor and with every compiler.
SERVER_FLAGS = ("--backend=reference", "--instances=1", "--model_control=explicit", "--admin_listen=127.0.0.1:0")


class Schema:
    """The messages of a FileDescriptorSet, in a pool of their own: the generated ones have the same names."""

    def __init__(self, path):
        with open(path, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read())
        self.pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            self.pool.AddSerializedFile(file.SerializeToString())

    def message_class(self, name):
        descriptor = self.pool.FindMessageTypeByName(name)
        if hasattr(message_factory, "GetMessageClass"):  # protobuf 4 and later
            return message_factory.GetMessageClass(descriptor)
        return message_factory.MessageFactory(self.pool).GetPrototype(descriptor)

    def _types(self, method):
        service, name = method.strip("/").split("/")
        found = self.pool.FindServiceByName(service).FindMethodByName(name)
        return found.input_type.full_name, found.output_type.full_name

    def parse_request(self, method, data):
        return self.message_class(self._types(method)[0]).FromString(data)

    def parse_response(self, method, data):
        return self.message_class(self._types(method)[1]).FromString(data)


def known_fields(message):
    """A copy without the fields that the message's schema does not have."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy


def unknown_bytes(message):
    """How many bytes of a message its schema does not know."""
    return message.ByteSize() - known_fields(message).ByteSize()


def close(one, other):
    return one == other or abs(one - other) <= 1e-4 + 1e-4 * abs(one)


def same_bits(field, one, other):
    """A double is a sum, or a power, that the C library's last bit may change; a float is rounded from one."""
    if field.type == field.TYPE_DOUBLE:
        return one == other or abs(one - other) <= 1e-12 * abs(one)
    return struct.pack("<f", one) == struct.pack("<f", other)


def state_difference(path, old, new):
    """States hold a header of 56 bytes that says whose they are, a digest, and what the model remembers."""
    if old[:56] != new[:56]:
        return "%s: another header: %s, was %s" % (path, new[:56].hex(), old[:56].hex())
    if old != new:
        return "%s: other bits (%d bytes, were %d)" % (path, len(new), len(old))
    return None


def differences(old, new, exact=True, path=""):
    """How a message differs from one of the same schema, field by field. Floats are compared by their bits if `exact`
    (doubles to 1e-12); if not, they need only be close, and only the sizes of packed values and states are compared."""
    found = []
    for field in old.DESCRIPTOR.fields:
        if field.name in NOT_COMPARED:
            continue
        name = path + field.name
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.label != field.LABEL_REPEATED:
            if field.has_presence and old.HasField(field.name) != new.HasField(field.name):
                found.append("%s: %s" % (name, "is missing" if old.HasField(field.name) else "is new"))
                continue
            before, after = [before], [after]
        elif len(before) != len(after):
            found.append("%s: %d entries, were %d" % (name, len(after), len(before)))
            continue
        for index, (one, other) in enumerate(zip(before, after)):
            place = "%s[%d]" % (name, index) if field.label == field.LABEL_REPEATED else name
            if field.message_type is not None:
                found += differences(one, other, exact, place + ".")
            elif isinstance(one, bytes) and not exact:
                if len(one) != len(other):
                    found.append("%s: %d bytes, were %d" % (place, len(other), len(one)))
            elif isinstance(one, bytes) and field.name == "state":
                found += [text for text in [state_difference(place, one, other)] if text]
            elif isinstance(one, float):
                if not (same_bits(field, one, other) if exact else close(one, other)):
                    found.append("%s: %r, was %r" % (place, other, one))
            elif one != other:
                found.append("%s: %r, was %r" % (place, other, one))
    return found


def readable(message):
    """The values of a message, less what the bytes beside them show as well."""

    def shorten(value):
        if isinstance(value, list):
            return [shorten(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        left = {key: shorten(entry) for key, entry in value.items() if key != "times"}
        for key in {"state", "data"} & set(left):
            if len(left[key]) > 64:
                left[key] = left[key][:32] + "..."
        return left

    return shorten(json_format.MessageToDict(message, preserving_proto_field_name=True))


def merged(responses):
    """The messages of a Generate, which come as tokens are made, as one for each sample."""
    samples = {}
    for response in responses:
        if response.sample not in samples:
            samples[response.sample] = type(response)()
        samples[response.sample].MergeFrom(response)
    for sample, whole in samples.items():
        whole.text = "".join(response.text for response in responses if response.sample == sample)
    return [samples[sample] for sample in sorted(samples)]


class Call:
    """One call: the bytes that went over the wire."""

    def __init__(self, method, requests, responses, code):
        self.method, self.requests, self.responses, self.code = method, requests, responses, code

    def to_json(self, schema):
        """With the values beside the bytes, for people."""
        values = []
        if not self.method.startswith(HEALTH):
            values = [readable(schema.parse_response(self.method, data)) for data in self.responses]
        return {
            "method": self.method,
            "code": self.code,
            "requests": [base64.b64encode(data).decode() for data in self.requests],
            "responses": [base64.b64encode(data).decode() for data in self.responses],
            "values": values,
        }

    def messages(self, schema):
        """The answers by a schema, without the fields that it does not know."""
        parsed = [known_fields(schema.parse_response(self.method, data)) for data in self.responses]
        return merged(parsed) if self.method.endswith("/Generate") else parsed

    @staticmethod
    def from_json(entry):
        decoded = ([base64.b64decode(text) for text in entry[key]] for key in ("requests", "responses"))
        return Call(entry["method"], *decoded, entry["code"])


def send(channel, method, requests, timeout=60):
    """Makes a call of any kind with these bytes: on the wire, a call with one message is a stream of one."""
    call = Call(method, list(requests), [], "OK")
    answers = channel.stream_stream(method)(iter(call.requests), timeout=timeout)
    try:
        call.responses.extend(answers)
    except grpc.RpcError as error:
        call.code = error.code().name
    return call


class Stage:
    """A server that answers every call by `handler`: a function of the method, an iterator of requests, the context."""

    def __init__(self, handler):
        self.handler = handler

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                def answer(requests, context):
                    return handler(details.method, requests, context)

                return grpc.stream_stream_rpc_method_handler(answer)

        executor = concurrent.futures.ThreadPoolExecutor(32)
        self._server = grpc.server(executor, handlers=(Handler(),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stop(None).wait()


def keep_watching(context):
    """Health.Watch of a server that serves until the caller leaves."""
    left = threading.Event()
    if context.add_callback(left.set):
        yield SERVING
        left.wait(60)


class Recorder:
    """Hands calls on to a server and keeps what passed."""

    def __init__(self, channel):
        self._channel = channel
        self.calls = []

    def __call__(self, method, requests, context):
        if method == HEALTH + "Watch":
            yield from keep_watching(context)
            return
        call = Call(method, [], [], "OK")
        self.calls.append(call)

        def passing():
            for request in requests:
                call.requests.append(request)
                yield request

        try:
            for response in self._channel.stream_stream(method)(passing(), timeout=60):
                call.responses.append(response)
                yield response
        except grpc.RpcError as error:
            call.code = error.code().name
            context.abort(error.code(), error.details())


class Replay:
    """Answers as recorded, the calls of each method in their order."""

    def __init__(self, calls):
        self._calls = list(calls)
        self.received = []

    def __call__(self, method, requests, context):
        if method == HEALTH + "Watch":
            yield from keep_watching(context)
            return
        call = next((call for call in self._calls if call.method == method), None)
        if call is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "the old client did not call %s here" % method)
        self._calls.remove(call)
        received = Call(method, [], call.responses, call.code)
        self.received.append(received)
        pending = list(call.responses)
        for request in requests:
            received.requests.append(request)
            # EncodeStream answers each message as it comes, other calls when the request is complete.
            if method.endswith("/EncodeStream") and pending:
                yield pending.pop(0)
        yield from pending
        if call.code != "OK":
            context.abort(grpc.StatusCode[call.code], "as recorded")


def load(name):
    """The calls of tests/data/wire/NAME.json and the schema beside it."""
    with open(os.path.join(FOLDER, name + ".json"), encoding="utf-8") as file:
        recorded = json.load(file)
    return recorded, Schema(os.path.join(FOLDER, name + ".binpb"))
