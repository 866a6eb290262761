#!/usr/bin/env python3
"""Records how an earlier version calls and answers: tests/data/wire/NAME.json and NAME.binpb.

    git worktree add --detach /tmp/old COMMIT
    (cd /tmp/old && cmake --preset release -DSRU_CUDA=OFF && cmake --build build --target sru_server sru_client)
    tests/data/make_wire_fixtures.py /tmp/old COMMIT
    git worktree remove --force /tmp/old

The old sru_client calls the old sru_server through a proxy that keeps the bytes; requests that sru_client has no flag
for are composed by the old schema. NAME is the commit. Needs protoc, and grpcio and protobuf for Python.
"""

import argparse
import base64
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "upgrade"))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "testing"))
import recorded  # noqa: E402
from sru_server import SruServer  # noqa: E402

TEXT = "Who wrote the novel?"
FRAMES = struct.pack("<20f", *(math.sin(i) for i in range(20)))  # four, of five values each
# Command lines of sru_client, and what they read. {folder} is one that they share.
COMMANDS = [
    ("health", (), None),
    ("health", ("--service=trec",), None),
    ("models", (), None),
    ("models", ("--status",), None),
    ("models", ("old_translator",), None),
    ("classify", ("--model=trec", "--top_k=3", TEXT, "Where is the river?"), None),
    ("classify", ("--model=old_classifier", "--top_k=0", "--priority=high", "who wrote it"), None),
    ("encode", ("--model=old_classifier", TEXT), None),
    ("encode", ("--model=old_classifier", "--pooling=none", "--normalize", "--output_format=float16", TEXT), None),
    ("encode", ("--model=old_classifier", "--pooling=mean", "--output_format=bfloat16", TEXT), None),
    ("score", ("--model=old_language_model", "--per_token", "--top_candidates=2", "the old model"), None),
    ("generate", ("--model=war_and_peace", "--seed=7", "--temperature=0.8", "--top_k=20", "--max_new_tokens=24",
                  "--state_out={folder}/more", "Well, Prince"), None),
    ("generate", ("--model=war_and_peace", "--max_new_tokens=12", "--log_probs", "--top_candidates=2",
                  "--state_in={folder}/more"), None),
    ("answer", ("--model=old_reader", "--question=who wrote the book?", "--top_n=3"), b"The river. The book. Who?\n"),
    ("translate", ("--model=old_translator", "--n_best=2", "--alignment", "the book", "the sea"), None),
    ("translate", ("--model=old_translator", "--beam_size=1", "--prefix=the", "--max_new_tokens=6", "book"), None),
    ("admin", ("load", "trec"), None),
    ("admin", ("unload", "old_classifier"), None),
    ("admin", ("load", "old_classifier"), None),
    ("admin", ("unload", "never_was"), None),
]  # fmt: skip


def flags(*program):
    shown = subprocess.run([*program, "--help=all"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.findall(r"^  --(\w+)", shown, re.MULTILINE)


def start(server, repository):
    models = ",".join(sorted(os.listdir(repository)))
    ports = ["--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0"]
    models = ["--model_repository=" + repository, "--load_models=" + models]
    return SruServer([server, *ports, *models, *recorded.SERVER_FLAGS])


def record_commands(client, folder, recorders):
    entries = []
    with recorded.Stage(recorders["main"]) as main, recorded.Stage(recorders["admin"]) as admin:
        for name, arguments, data in COMMANDS:
            port, recorder = (admin.port, recorders["admin"]) if name == "admin" else (main.port, recorders["main"])
            recorder.calls.clear()
            given = [argument.format(folder=folder) for argument in arguments]
            command = [client, name, *given, "--json", "--address=127.0.0.1:%d" % port]
            done = subprocess.run(command, input=data or b"", stdout=subprocess.PIPE, timeout=60, check=False)
            entries.append({
                "command": [name, *arguments],
                "input": base64.b64encode(data or b"").decode(),
                "exit_code": done.returncode,
                "output": done.stdout.decode().splitlines(),
                "calls": list(recorder.calls),
            })  # fmt: skip
    return entries


def composed(schema, channel):
    """Calls with fields that sru_client has no flag for."""

    def message(name, **fields):
        return schema.message_class("sru.v1." + name)(**fields)

    def call(method, *requests):
        data = [request.SerializeToString() for request in requests]
        return recorded.send(channel, "/sru.v1.InferenceService/" + method, data)

    text, ids = message("Sequence", text=TEXT), message("Sequence", token_ids={"values": [2, 3, 4, 9]})
    frames = message("Sequence", features={"data": FRAMES, "feature_size": 5})
    calls = []
    for output_format in range(5):
        for pooling in range(6 if output_format else 1):
            fields = {"model": "old_classifier", "sequences": [text, ids], "pooling": pooling}
            calls.append(call("Encode", message("EncodeRequest", output_format=output_format, **fields)))
    calls.append(call("Encode", message("EncodeRequest", model="old_encoder", sequences=[frames])))
    calls.append(call("Classify", message("ClassifyRequest", model="old_classifier", version=1, sequences=[ids])))
    calls.append(call("Classify", message("ClassifyRequest", model="old_classifier", sequences=[text], top_k=-1)))
    calls.append(call("Classify", message("ClassifyRequest", model="war_and_peace", sequences=[text])))
    calls.append(call("Classify", message("ClassifyRequest", model="never_was", sequences=[text])))
    calls.append(call("Classify", message("ClassifyRequest", model="trec", sequences=[message("Sequence", text=" ")])))
    score = message("ScoreRequest", model="old_language_model", return_states=True, token_log_probs=True)
    score.top_candidates = 2
    score.sequences.add(text="the old model")
    score.sequences.add(text="a new one.")
    first = call("Score", score)
    states = [entry.state for entry in schema.parse_response(first.method, first.responses[0]).scores]
    score.states.extend([states[1], b""])
    calls += [first, call("Score", score)]
    generate = message("GenerateRequest", model="old_language_model", num_samples=3, max_new_tokens=8)
    generate.return_state = True
    generate.prompt.text = "the "
    generate.sampling.temperature, generate.sampling.seed, generate.sampling.repetition_penalty = 1.5, 3, 1.2
    generate.sampling.logit_bias[2] = -100
    generate.token_log_probs = True
    calls.append(call("Generate", generate))
    generate.state = states[0]
    generate.stop.append("e")
    calls.append(call("Generate", generate))
    for output_format in range(5):
        start_message = {"model": "old_encoder", "output_format": output_format}
        first_chunk = message("EncodeStreamRequest", start=start_message, chunk=frames)
        last_chunk = message("EncodeStreamRequest", chunk=frames, return_state=True)
        calls.append(call("EncodeStream", first_chunk, last_chunk))
    damaged = bytearray(states[0])
    damaged[-1] ^= 1
    score.states[0] = bytes(damaged)
    calls.append(call("Score", score))
    translate = message("TranslateRequest", model="old_translator")
    translate.sequences.add(text="the sea")
    translate.length_penalty.form = 2
    translate.length_penalty.alpha = 0.5
    calls.append(call("Translate", translate))
    answer = message("AnswerRequest", model="old_reader", max_answer_tokens=3, top_n=4, no_overlap=True)
    answer.queries.add(question="who wrote the book?", passages=["the river is the book", "Who? The book!"])
    calls.append(call("Answer", answer))
    calls.append(call("GetModel", message("GetModelRequest", model="old_reader")))
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="the old version's tree, built in its folder build")
    parser.add_argument("name", help="the commit, as the files are to be named")
    args = parser.parse_args()
    base = os.path.join(recorded.FOLDER, args.name)
    os.makedirs(recorded.FOLDER, exist_ok=True)
    protos = os.path.join(args.source, "proto")
    contracts = ["sru/v1/inference.proto", "sru/v1/admin.proto"]
    subprocess.run(["protoc", "-I", protos, "--descriptor_set_out=" + base + ".binpb", *contracts], check=True)
    schema = recorded.Schema(base + ".binpb")
    program = os.path.join(args.source, "build", "bin", "sru_")
    subcommands = sorted({name for name, _, _ in COMMANDS})
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as repository:
        recorded.make_repository(repository, os.path.join(args.source, "models", "pretrained"))
        with start(program + "server", repository) as server:
            ports = {"main": server.port, "admin": server.port_of("admin")}
            channels = {name: grpc.insecure_channel("127.0.0.1:%d" % ports[name]) for name in ports}
            recorders = {name: recorded.Recorder(channel) for name, channel in channels.items()}
            commands = record_commands(program + "client", folder, recorders)
            calls = composed(schema, channels["main"])
    for entry in commands:
        entry["calls"] = [call.to_json(schema) for call in entry["calls"]]
    content = {
        "server_flags": flags(program + "server"),
        "client_flags": {name: flags(program + "client", name) for name in subcommands},
        "commands": commands,
        "calls": [call.to_json(schema) for call in calls],
    }
    with open(base + ".json", "w", encoding="utf-8") as file:
        entries = {}
        for key in ("commands", "calls"):
            entries[key] = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in content[key])
        for key in ("server_flags", "client_flags"):
            entries[key] = json.dumps(content[key])
        file.write('{"server_flags": %(server_flags)s,\n"client_flags": %(client_flags)s,\n' % entries)
        file.write('"commands": [\n%(commands)s],\n"calls": [\n%(calls)s]}\n' % entries)


if __name__ == "__main__":
    main()
