"""Compares the contracts with those of earlier versions: whoever speaks an old one is understood, and understands.

compatibility_test.py PROTOC

tests/data/wire/*.binpb are the descriptors of the earlier ones. All that they have is still there, under the same
number, name and type; new fields, values, messages and methods may be added. A contract that has to break is a new
package (sru.v2); these files are never edited.
"""

import glob
import os
import subprocess
import sys
import tempfile
import unittest

try:
    from google.protobuf import descriptor_pb2
except ImportError as missing:
    print("SKIPPED: %s (%s)" % (missing, sys.executable))
    sys.exit(77)

FOLDER = os.path.dirname(os.path.abspath(__file__))
OLD = sorted(glob.glob(os.path.join(FOLDER, "..", "tests", "data", "wire", "*.binpb")))
CONTRACTS = ["sru/v1/inference.proto", "sru/v1/admin.proto"]
PROTOC = "protoc"
Field = descriptor_pb2.FieldDescriptorProto


def load(path):
    with open(path, "rb") as file:
        return descriptor_pb2.FileDescriptorSet.FromString(file.read())


def field_facts(field, message):
    """What the wire and the generated code of a field depend on."""
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    packed = field.options.packed if field.options.HasField("packed") else "default"
    return {
        "name": field.name,
        "JSON name": field.json_name,
        "type": (Field.Type.Name(field.type), field.type_name),
        "label": Field.Label.Name(field.label),
        "oneof": oneof,
        "optional": field.proto3_optional,
        "packed": packed,
    }


def facts(files):
    """Everything of the contracts by its path: whoever changes one of the values breaks somebody."""
    found = {}

    def enum(path, entry):
        for value in entry.value:
            found["%s, number %d" % (path, value.number)] = {"name": value.name}

    def message(path, entry):
        found["message " + path] = {"map entry": entry.options.map_entry}
        for field in entry.field:
            found["%s, number %d" % (path, field.number)] = field_facts(field, entry)
        for nested in entry.nested_type:
            message(path + "." + nested.name, nested)
        for nested in entry.enum_type:
            enum(path + "." + nested.name, nested)

    for file in files.file:
        for entry in file.message_type:
            message(file.package + "." + entry.name, entry)
        for entry in file.enum_type:
            enum(file.package + "." + entry.name, entry)
        for service in file.service:
            for method in service.method:
                found["method /%s.%s/%s" % (file.package, service.name, method.name)] = {
                    "request": method.input_type,
                    "response": method.output_type,
                    "streams requests": method.client_streaming,
                    "streams responses": method.server_streaming,
                }
    return found


def breaks(old, new):
    """One line for each thing that an old client or server would take amiss."""
    before, after = facts(old), facts(new)
    found = []
    for path, known in before.items():
        if path not in after:
            found.append("%s is gone" % path)
            continue
        for key, value in known.items():
            if after[path][key] != value:
                found.append("%s: its %s is %s, was %s" % (path, key, after[path][key], value))
    return found


class CompatibilityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "new.binpb")
            subprocess.run([PROTOC, "-I", FOLDER, "--descriptor_set_out=" + path, *CONTRACTS], check=True, timeout=60)
            cls.new = load(path)

    def test_nothing_of_an_earlier_contract_has_changed(self):
        self.assertTrue(OLD)
        for path in OLD:
            old = load(path)
            self.assertGreater(len(facts(old)), 50)
            with self.subTest(os.path.basename(path)):
                self.assertEqual(breaks(old, self.new), [])

    def changed(self, change):
        """The breaks of a copy on which `change` was done."""
        copy = descriptor_pb2.FileDescriptorSet()
        copy.CopyFrom(self.new)
        inference = next(file for file in copy.file if file.name == CONTRACTS[0])
        change(inference)
        return breaks(self.new, copy)

    def test_each_kind_of_break_is_found(self):
        def message(file, name):
            return next(entry for entry in file.message_type if entry.name == name)

        def field(file, name, field_name):
            return next(entry for entry in message(file, name).field if entry.name == field_name)

        def set_field(name, field_name, **values):
            def change(file):
                for key, value in values.items():
                    setattr(field(file, name, field_name), key, value)

            return change

        def reuse(file):  # the number of a field that is removed, for another
            field(file, "ClassifyRequest", "truncate").name = "cut"

        def leave_oneof(file):
            field(file, "Sequence", "text").ClearField("oneof_index")

        def remove_field(file):
            entry = message(file, "ClassifyRequest")
            entry.field.remove(field(file, "ClassifyRequest", "top_k"))

        def remove_message(file):
            file.message_type.remove(message(file, "ListModelsRequest"))

        def swap_values(file):
            pooling = next(entry for entry in file.enum_type if entry.name == "Pooling")
            pooling.value[2].number, pooling.value[3].number = pooling.value[3].number, pooling.value[2].number

        def nested_value(file):
            del message(file, "ModelStatus").enum_type[0].value[4]

        def rename_method(file):
            file.service[0].method[0].name = "Label"

        def stream(file):
            file.service[0].method[0].server_streaming = True

        def package(file):
            file.package = "sru.v2"

        for change, expected in (
            (set_field("ClassifyRequest", "top_k", number=99), "sru.v1.ClassifyRequest, number 4 is gone"),
            (set_field("ClassifyRequest", "top_k", type=Field.TYPE_INT64), "number 4: its type is"),
            (set_field("ClassifyRequest", "top_k", type=Field.TYPE_SINT32), "number 4: its type is"),
            (set_field("ClassifyRequest", "sequences", label=Field.LABEL_OPTIONAL), "number 3: its label is"),
            (set_field("ClassifyRequest", "sequences", type_name=".sru.v1.Tokens"), "number 3: its type is"),
            (set_field("Sampling", "seed", proto3_optional=False), "number 5: its optional is"),
            (set_field("ClassifyRequest", "model", json_name="name"), "number 1: its JSON name is"),
            (lambda file: setattr(field(file, "TokenIds", "values").options, "packed", False), "its packed is False"),
            (reuse, "sru.v1.ClassifyRequest, number 5: its name is cut, was truncate"),
            (leave_oneof, "sru.v1.Sequence, number 1: its oneof is"),
            (remove_field, "sru.v1.ClassifyRequest, number 4 is gone"),
            (remove_message, "message sru.v1.ListModelsRequest is gone"),
            (swap_values, "sru.v1.Pooling, number 2: its name is"),
            (nested_value, "sru.v1.ModelStatus.State, number 4 is gone"),
            (rename_method, "method /sru.v1.InferenceService/Classify is gone"),
            (stream, "its streams responses is True, was False"),
            (package, "method /sru.v1.InferenceService/Classify is gone"),
        ):
            with self.subTest(expected):
                self.assertTrue([line for line in self.changed(change) if expected in line], self.changed(change))

    def test_additions_are_no_breaks(self):
        def add(file):
            file.message_type.add(name="New").field.add(name="x", number=1, type=Field.TYPE_BOOL)
            file.message_type[0].field.add(name="new", number=999, type=Field.TYPE_BOOL)
            file.enum_type[0].value.add(name="PRIORITY_NEW", number=999)

        self.assertEqual(self.changed(add), [])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        PROTOC = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
