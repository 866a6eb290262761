#!/usr/bin/env python3
"""Compares the wire of two builds: the same calls of every method, and their answers to the byte.

    tests/upgrade/wire_replay.py record OLD/build/bin/sru_server calls.gz
    tests/upgrade/wire_replay.py replay build/bin/sru_server calls.gz

Makes calls of each method from a seed, one after the other: valid ones, wrong ones and damaged bytes. Compares messages, status, details,
headers and trailers, without the fields of MASKED; the messages of a Generate are merged first. Exits with 1 if answers differ. Needs protoc, and
grpcio and protobuf for Python.
"""

import argparse
import collections
import gzip
import os
import pickle
import random
import shutil
import struct
import subprocess
import sys
import tempfile

import grpc
import recorded

sys.path.insert(0, os.path.join(recorded.TESTS, "testing"))
from sru_server import SruServer  # noqa: E402

ROOT = os.path.join(recorded.TESTS, "..")
CONTRACTS = ["sru/v1/inference.proto", "sru/v1/admin.proto", "inference/open_inference.proto"]
# These fields say how long something took, when, where it ran, and in how many batches.
MASKED = {"times", "backend_description", "last_inference", "ns", "execution_count", "batch_stats"}
MODELS = {  # and the methods that they answer, which most calls keep to
    "trec": "Classify Encode ModelInfer ModelStreamInfer",
    "old_classifier": "Classify Encode EncodeStream ModelInfer",
    "old_encoder": "Encode EncodeStream",
    "old_language_model": "Score Generate ModelInfer",
    "war_and_peace": "Score Generate",
    "old_reader": "Answer ModelInfer ModelStreamInfer",
    "old_translator": "Translate ModelInfer ModelStreamInfer",
    "tagger": "Tag ModelInfer",
}
WORDS = "who wrote the old book ? a river by the sea , Well Prince 17 naïve 水 \n".split(" ")
NAMES = {"model", "name", "model_name"}
USUAL = NAMES | {"sequences", "queries", "question", "passages", "prompt", "values", "data", "feature_size"}
rnd = random.Random(1)


def text():
    return " ".join(rnd.choices(WORDS, k=rnd.randint(1, 12)))


def value_of(field, model):
    if field.type == field.TYPE_STRING:
        plain = model if field.name in NAMES else text()
        return rnd.choice(["", "", "1", "7"]) if "version" in field.name else plain
    if field.type == field.TYPE_BYTES:
        floats = struct.pack("<20f", *(rnd.uniform(-1, 1) for _ in range(20)))
        return floats if field.name == "data" else rnd.randbytes(rnd.randint(0, 80))
    if field.enum_type is not None:
        return rnd.choice(field.enum_type.values).number
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rnd.choice([0.25, 0.5, 1.0, 1.5])
    most = 1 if field.type == field.TYPE_BOOL or "version" in field.name else 8
    return 5 if field.name == "feature_size" else rnd.randint(0, most)


def fill(message, model):
    """Fills in a message of any type at random, mostly as a caller would."""
    kinds = {oneof.name: rnd.choice(oneof.fields).name for oneof in message.DESCRIPTOR.oneofs}
    if message.DESCRIPTOR.name == "Sequence" and rnd.random() < 0.9:
        kinds["input"] = "features" if model == "old_encoder" else rnd.choice(["text", "token_ids"])
    for field in message.DESCRIPTOR.fields:
        within, many = field.message_type, field.label == field.LABEL_REPEATED
        chosen = field.containing_oneof is not None and kinds[field.containing_oneof.name] == field.name
        if rnd.random() > (0.98 if chosen or field.name in USUAL else 0.2):
            continue
        if field.containing_oneof is not None and not chosen or within is not None and within.GetOptions().map_entry:
            continue
        for _ in range(rnd.randint(1, 3) if many else 1):
            place = getattr(message, field.name)
            if within is not None:
                fill(place.add() if many else place, model)
            elif many:
                place.append(value_of(field, model))
            else:
                setattr(message, field.name, value_of(field, model))


def make_request(message, method, model, is_first):
    if "ModelInferRequest" in message.DESCRIPTOR.name and rnd.random() < 0.8:
        message.model_name, message.id = model, text()
        size = rnd.randint(1, 3)
        for name in ("question", "passage") if model == "old_reader" else ("text",):
            tensor = message.inputs.add(name=name, datatype="BYTES", shape=[size])
            tensor.contents.bytes_contents.extend(text().encode() for _ in range(size))
    elif method == "EncodeStream" and rnd.random() < 0.95:
        fill(message.start if is_first else message.chunk, model)
        message.return_state = rnd.random() < 0.5
    else:
        fill(message, model)
    if method == "Generate":
        message.sampling.seed = rnd.randint(0, 9)  # else the server takes another one each time
    data = bytearray(message.SerializeToString())
    if data and rnd.random() < 0.1:
        data[rnd.randrange(len(data))] ^= 1 << rnd.randrange(8)
    return bytes(data)


def make_call(schema, method):
    models = [model for model, methods in MODELS.items() if method.name in methods.split()] or list(MODELS)
    model = rnd.choice(models if rnd.random() < 0.9 else [*MODELS, "never_was", ""])
    count = rnd.randint(1, 4) if method.name in ("EncodeStream", "ModelStreamInfer") else 1
    request = schema.message_class(method.input_type.full_name)
    return [make_request(request(), method.name, model, is_first=i == 0) for i in range(count)]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def masked(data, message_type):
    """The bytes of each field that is not masked, or a list for a message within. The entries of maps come in any order."""
    left, maps, at = [], [], 0
    while at < len(data):
        begin = at
        key, at = varint(data, at)
        value, after = varint(data, at) if key & 7 in (0, 2) else (0, at + (8 if key & 7 == 1 else 4))
        at = after + value if key & 7 == 2 else after
        field = message_type.fields_by_number[key >> 3]
        if field.name not in MASKED:
            within = field.message_type
            is_map = within is not None and within.GetOptions().map_entry
            (maps if is_map else left).append(masked(data[after:at], within) if within else data[begin:at])
    return left + sorted(maps, key=repr)


def answer(schema, channels, method, requests, number):
    service = method.containing_service.full_name
    channel = channels[service.endswith("AdminService") or method.name.startswith("Repository")]
    headers = (("x-request-id", "replay-%d" % number),)
    call = channel.stream_stream("/%s/%s" % (service, method.name))(iter(requests), timeout=60, metadata=headers)
    messages = []
    try:
        messages.extend(call)
    except grpc.RpcError:
        pass  # its code is compared
    if method.name == "Generate":
        response = schema.message_class(method.output_type.full_name)
        merged = recorded.merged([response.FromString(data) for data in messages])
        messages = [message.SerializeToString(deterministic=True) for message in merged]
    sent = [sorted(map(tuple, found or ())) for found in (call.initial_metadata(), call.trailing_metadata())]
    return call.code().name, call.details(), sent, [masked(data, method.output_type) for data in messages]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["record", "replay"])
    parser.add_argument("server")
    parser.add_argument("file")
    parser.add_argument("--calls", type=int, default=500, help="of each method; to record")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, models = os.path.join(folder, "schema"), os.path.join(folder, "models")
        protoc = ["protoc", "-I", os.path.join(ROOT, "proto"), "--include_imports", "--descriptor_set_out=" + path]
        subprocess.run([*protoc, *CONTRACTS], check=True)
        schema = recorded.Schema(path)
        services = [s for name in CONTRACTS for s in schema.pool.FindFileByName(name).services_by_name.values()]
        methods = {method.full_name: method for service in services for method in service.methods}
        if args.action == "record":
            # The last ones change which models there are.
            names = sorted(methods, key=lambda name: "load" in name.lower())
            calls = [(name, make_call(schema, methods[name])) for name in names for _ in range(args.calls)]
        else:
            with gzip.open(args.file, "rb") as file:
                calls, before = pickle.load(file)
        recorded.make_repository(models, os.path.join(ROOT, "models", "pretrained"))
        shutil.copytree(os.path.join(recorded.TESTS, "golden", "tagger", "words"), os.path.join(models, "tagger", "1"))
        command = [args.server, "--model_repository=" + models, *recorded.SERVER_FLAGS, "--backend=cpu"]
        command += ["--listen=127.0.0.1:0", "--http_listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                    "--load_models=" + ",".join(MODELS)]
        with SruServer(command) as server:
            channels = [grpc.insecure_channel("127.0.0.1:%d" % server.port_of(port)) for port in ("listening", "admin")]
            answers = [answer(schema, channels, methods[name], sent, i) for i, (name, sent) in enumerate(calls)]
    codes = collections.Counter((name, found[0]) for (name, _), found in zip(calls, answers))
    print("\n".join("%s %s: %d" % (*both, count) for both, count in sorted(codes.items())))
    if args.action == "record":
        with gzip.open(args.file, "wb") as file:
            pickle.dump((calls, answers), file)
        return 0
    different = [i for i, found in enumerate(answers) if found != before[i]]
    for i in different:
        print("%s, call %d: was\n  %r\nis\n  %r\nto %r" % (calls[i][0], i, before[i], answers[i], calls[i][1]))
    print("%d calls of %d methods, %d answers differ" % (len(calls), len(methods), len(different)))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
