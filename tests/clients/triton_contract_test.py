"""Compares proto/inference/open_inference.proto with the descriptors of Triton's own client, so that a field that is named, numbered or
typed differently fails here. What the contract leaves out is listed below; whatever else it lacks is an error, too.

    triton_contract_test.py SRU_SERVER SRU_CLIENT MODELS   (as every test of this folder; these are not used)
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import clients_venv

clients_venv.enter("tritonclient.grpc")

from google.protobuf import descriptor_pb2  # noqa: E402
from tritonclient.grpc import model_config_pb2, service_pb2  # noqa: E402

# Methods of Triton that end with UNIMPLEMENTED, and whose messages the contract therefore lacks.
LEFT_OUT_METHODS = {
    *(kind + "SharedMemory" + what for kind in ("System", "Cuda") for what in ("Status", "Register", "Unregister")),
    "TraceSetting", "LogSettings",
}  # fmt: skip

# Parts of ModelConfig that say nothing of a model that is served here.
LEFT_OUT_MESSAGES = {
    "BatchInput", "BatchOutput", "ModelEnsembling", "ModelInstanceGroup.SecondaryDevice", "ModelMetrics", "ModelOperations",
    "ModelOptimizationPolicy", "ModelQueuePolicy", "ModelRateLimiter", "ModelRepositoryAgents", "ModelSequenceBatching",
    "ModelTensorReshape", "ModelWarmup",
}  # fmt: skip
LEFT_OUT_ENUMS = {"BatchInput.Kind", "BatchOutput.Kind", "ModelInput.Format", "ModelQueuePolicy.TimeoutAction"}
LEFT_OUT_FIELDS = {
    "ModelConfig": {
        "batch_input", "batch_output", "cc_model_filenames", "default_model_filename", "ensemble_scheduling", "metric_tags",
        "model_metrics", "model_operations", "model_repository_agents", "model_warmup", "optimization", "runtime",
        "sequence_batching",
    },
    "ModelDynamicBatching": {"default_queue_policy", "priority_queue_policy"},
    "ModelInput": {"format", "is_non_linear_format_io", "is_shape_tensor", "reshape"},
    "ModelInstanceGroup": {"host_policy", "passive", "profile", "rate_limiter", "secondary_devices"},
    "ModelOutput": {"is_non_linear_format_io", "is_shape_tensor", "reshape"},
}  # fmt: skip
# oneofs of which one member is left, which the wire does not show.
LEFT_OUT_ONEOFS = {("ModelConfig", "scheduling_choice")}


def field_form(message, field):
    """What must be equal of a field."""
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
    if (message.name, oneof) in LEFT_OUT_ONEOFS:
        oneof = None
    return (field.number, field.type, field.type_name, field.label, oneof, field.proto3_optional, field.options.packed)


class Contract:
    """Everything that the wire shows of some files, by name without the package."""

    def __init__(self, files):
        self.messages, self.enums, self.methods = {}, {}, {}
        for file in files:
            assert file.package == "inference" and file.syntax == "proto3", file.name
            self._add("", file.message_type, file.enum_type)
            for service in file.service:
                for method in service.method:
                    self.methods["%s.%s" % (service.name, method.name)] = (
                        method.input_type, method.output_type, method.client_streaming, method.server_streaming,
                    )  # fmt: skip

    def _add(self, scope, messages, enums):
        for enum in enums:
            self.enums[scope + enum.name] = {value.name: value.number for value in enum.value}
        for message in messages:
            name = scope + message.name
            self.messages[name] = {field.name: field_form(message, field) for field in message.field}
            self._add(name + ".", message.nested_type, message.enum_type)


def tritons():
    files = []
    for module in (service_pb2, model_config_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files.append(file)
    return Contract(files)


def ours():
    protoc = shutil.which("protoc")
    if protoc is None:
        raise unittest.SkipTest("protoc is not installed")
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "descriptors")
        protos = os.path.join(clients_venv.ROOT, "proto")
        command = [protoc, "--proto_path=" + protos, "--descriptor_set_out=" + out, "inference/open_inference.proto"]
        subprocess.run(command, check=True)
        with open(out, "rb") as file:
            return Contract(descriptor_pb2.FileDescriptorSet.FromString(file.read()).file)


class ContractTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ours, cls.tritons = ours(), tritons()

    def test_methods(self):
        methods = self.tritons.methods.items()
        expected = {name: form for name, form in methods if name.split(".")[1] not in LEFT_OUT_METHODS}
        self.assertEqual(len(self.tritons.methods) - len(expected), len(LEFT_OUT_METHODS))
        self.assertEqual(self.ours.methods, expected)

    def test_messages(self):
        of_methods = {name + kind for name in LEFT_OUT_METHODS for kind in ("Request", "Response")}
        left_out = LEFT_OUT_MESSAGES | of_methods
        for name, fields in self.tritons.messages.items():
            parts = name.split(".")
            if any(".".join(parts[: i + 1]) in left_out for i in range(len(parts))):
                self.assertNotIn(name, self.ours.messages)
                continue
            gone = LEFT_OUT_FIELDS.get(name, set())
            if "." in name and name not in self.ours.messages:
                # The entry of a map that is left out.
                entries = {field.title().replace("_", "") + "Entry" for field in LEFT_OUT_FIELDS.get(parts[0], ())}
                self.assertIn(parts[1], entries, name)
                continue
            self.assertLessEqual(gone, set(fields), name)
            expected = {field: form for field, form in fields.items() if field not in gone}
            self.assertEqual(self.ours.messages.get(name), expected, name)
        self.assertLessEqual(set(self.ours.messages), set(self.tritons.messages))

    def test_enums(self):
        for name, values in self.tritons.enums.items():
            scope = name.rpartition(".")[0]
            if name in LEFT_OUT_ENUMS or scope in LEFT_OUT_MESSAGES or scope.split(".")[0] in LEFT_OUT_MESSAGES:
                self.assertNotIn(name, self.ours.enums)
                continue
            self.assertEqual(self.ours.enums.get(name), values, name)
        self.assertLessEqual(set(self.ours.enums), set(self.tritons.enums))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
