"""The committed messages are those of the contract: scripts/python_stubs.sh makes them."""

import os
import shutil
import subprocess
import tempfile
import unittest

from google.protobuf import descriptor_pb2

from sru_inference import details_pb2, open_inference_pb2
from sru_inference.v1 import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc

PROTO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "proto")
MODULES = {
    "sru/v1/inference.proto": inference_pb2,
    "sru/v1/admin.proto": admin_pb2,
    "sru_inference/details.proto": details_pb2,
    "sru_inference/open_inference.proto": open_inference_pb2,
}


class StubsTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("protoc"), "there is no protoc")
    def test_messages_are_those_of_the_protos(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "set")
            os.mkdir(os.path.join(folder, "sru_inference"))
            with open(os.path.join(PROTO, "inference", "open_inference.proto"), encoding="utf-8") as file:
                text = file.read().replace("\npackage inference;", "\npackage sru_inference.open_inference;")
            with open(os.path.join(folder, "sru_inference", "open_inference.proto"), "w", encoding="utf-8") as file:
                file.write(text)
            includes = ["-I", PROTO, "-I", folder]
            subprocess.run(["protoc", *includes, "--descriptor_set_out=" + path, *MODULES], check=True)
            with open(path, "rb") as file:
                files = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
        self.assertEqual(len(files), len(MODULES))
        for wanted in files:
            found = descriptor_pb2.FileDescriptorProto.FromString(MODULES[wanted.name].DESCRIPTOR.serialized_pb)
            for one in (wanted, found):
                self.forget_json_names(one.message_type)
            self.assertEqual(found, wanted, f"{wanted.name}: run scripts/python_stubs.sh and commit what it writes")

    def forget_json_names(self, messages):
        """They follow from the names, and not every version of protoc writes them."""
        for message in messages:
            for field in message.field:
                field.ClearField("json_name")
            self.forget_json_names(message.nested_type)

    def test_every_method_has_a_stub(self):
        for service, stub in (
            (inference_pb2, inference_pb2_grpc.InferenceServiceStub),
            (admin_pb2, admin_pb2_grpc.AdminServiceStub),
        ):
            channel = RecordingChannel()
            stub(channel)
            descriptors = service.DESCRIPTOR.services_by_name.values()
            wanted = {f"/{one.full_name}/{method.name}" for one in descriptors for method in one.methods}
            self.assertEqual(channel.methods, wanted)

    def test_details_are_wire_compatible(self):
        """With google/rpc/retry.proto, under another package."""
        with open(os.path.join(PROTO, "google", "rpc", "retry.proto"), encoding="utf-8") as file:
            text = file.read()
        for message in (details_pb2.Status, details_pb2.RetryInfo):
            for field in message.DESCRIPTOR.fields:
                self.assertRegex(text, rf"(?s)message {message.DESCRIPTOR.name} \{{.*\b{field.name} = {field.number};")


class RecordingChannel:
    """Has the methods that a stub asks for."""

    def __init__(self):
        self.methods = set()

    def _method(self, name, **_):
        self.methods.add(name)

    unary_unary = unary_stream = stream_stream = _method


if __name__ == "__main__":
    unittest.main()
