"""What a program says of itself: --version, the flags that were changed, and --check_config, which exits with 0 and a line of what
was looked at, or names each thing that is wrong, and opens no port."""

import json
import os
import re
import shutil
import socket
import tempfile

from server_process import CLIENT, REPOSITORY, SERVER, Authority, Server, read, run

SERVER_FLAGS = ["--backend=cpu", "--metrics_listen=127.0.0.1:0", "--http_listen=127.0.0.1:0"]


def check(*flags):
    """Exit status, standard output and the errors, one a line."""
    done = run(SERVER, "--check_config", *SERVER_FLAGS, *flags)
    errors = [line.split("ERROR ", 1)[1] for line in done.stderr.splitlines() if "ERROR " in line]
    return done.returncode, done.stdout, errors


def expect(code, parts, *flags):
    """As many errors as `parts`, each with the words of one of them, in any order."""
    status, out, errors = check(*flags)
    assert status == code and out == "", (status, out, errors)
    assert len(errors) == len(parts), errors
    for words in parts:
        assert any(all(word in error for word in words) for error in errors), (words, errors)


def write(folder, name, text, mode=0o600):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def test_build(_):
    bench = os.path.join(os.path.dirname(SERVER), "sru_bench")
    versions = set()
    for program in [SERVER, CLIENT] + [bench] * os.path.exists(bench):
        done = run(program, "--version")
        found = re.match(os.path.basename(program) + r" (\d+\.\d+\.\d+) \(commit ([^;)]+)", done.stdout)
        assert done.returncode == 0 and found, done
        versions.add(found.groups())
    [(version, commit)] = versions
    assert commit == "unknown" or re.fullmatch("[0-9a-f]{8}(-dirty)?", commit), commit
    with Server("--auth_health=false", "--max_batch_tokens=5000", env={"SRU_DRAIN_TIMEOUT_S": "7"}) as server:
        build = json.loads(server.page("/version"))
        assert (build["version"], build["commit"]) == (version, commit), build
        assert build["build_id"] in run("readelf", "-n", SERVER).stdout, build
        status = json.loads(server.page("/status.json"))
        assert status["build"] == build, status["build"]
        flags = {flag["name"]: (flag["value"], flag["source"]) for flag in status["flags"]}
        assert flags["max_batch_tokens"] == ("5000", "flag") and "auth_health" not in flags, flags
        assert flags["drain_timeout_s"] == ("7", "SRU_DRAIN_TIMEOUT_S"), flags
        assert 'commit="%s"' % commit in server.page("/metrics")
        [start] = [line for line in server.log().splitlines() if " start: " in line]
        assert "(commit %s;" % commit in start and build["build_id"] in start, start
        assert "--max_batch_tokens=5000" in start and "SRU_DRAIN_TIMEOUT_S=7" in start, start


def test_all_is_right(folder):
    with socket.socket() as taken:  # by the server that runs
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = "--listen=127.0.0.1:%d" % taken.getsockname()[1]
        authority = Authority(folder, "authority")
        certificate, key = authority.issue("server")
        status, out, errors = check(
            listen,
            "--model_repository=" + REPOSITORY,
            "--tls_cert=" + certificate,
            "--tls_key=" + key,
            "--auth_tokens_file=" + write(folder, "tokens", "alice kR3vX9mQ2bT7wZ5n weight=2\n"),
            "--state_key_file=" + write(folder, "keys", "k" * 40 + "\n"),
        )
    assert (status, errors) == (0, []), (status, errors)
    assert out.startswith("the configuration is right: flags, certificates, tokens, state keys, 2 versions"), out
    assert out.count("\n") == 1, out


def test_flags(folder):
    repository = "--model_repository=" + REPOSITORY
    expect(
        2,
        [["--no_such"], ["--dtype", "float8"], ["--drain_delay_s"], ["--tls_key"],
         ["--tls_cert: cannot read"]],
        repository, "--no_such=1", "--dtype=float8", "--drain_delay_s=60", "--tls_cert=/no/such",
    )  # fmt: skip
    expect(2, [["--model_repository"], ["--max_sequence_tokens"]], "--max_batch_tokens=16")
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_SAMPLER": "most"}
    os.environ.update(collector)
    try:
        expect(2, [["OTEL_TRACES_SAMPLER", "most"]], repository)
    finally:
        for name in collector:
            del os.environ[name]


def test_files(folder):
    ours, others = Authority(folder, "ours"), Authority(folder, "others")
    certificate, key = ours.issue("server")
    expired, expired_key = ours.issue("expired", days=-1)
    _, other_key = others.issue("server")
    repository = "--model_repository=" + REPOSITORY
    expect(1, [["--tls_key"]], repository, "--tls_cert=" + certificate, "--tls_key=" + other_key)
    expect(1, [["--tls_cert", "expired"]], repository, "--tls_cert=" + expired, "--tls_key=" + expired_key)
    expect(1, [["--tls_cert", "no/such"]], repository, "--tls_cert=/no/such", "--tls_key=" + key)
    # Everything at once, beside a repository that is not there.
    expect(
        1,
        [["--tls_cert"], ["--auth_tokens_file", "weight"], ["--admin_tokens_file", "no/tokens"],
         ["--state_key_file"], ["/no/repository"]],
        "--model_repository=/no/repository",
        "--tls_cert=" + key, "--tls_key=" + key,
        "--auth_tokens_file=" + write(folder, "limits", "alice kR3vX9mQ2bT7wZ5n weight=x\n"),
        "--admin_listen=127.0.0.1:0", "--admin_tokens_file=/no/tokens",
        "--state_key_file=" + write(folder, "open", "k" * 40 + "\n", mode=0o644),
    )  # fmt: skip


def test_models(folder):
    for name in ("cut", "right", "unfinished", "words"):
        shutil.copytree(os.path.join(REPOSITORY, "trec", "1"), os.path.join(folder, name, "1"))
    weights = os.path.join(folder, "cut", "1", "model.safetensors")
    with open(weights, "r+b") as file:
        file.truncate(len(read(weights)) - 5)
    os.remove(os.path.join(folder, "unfinished", "1", "config.json"))
    write(os.path.join(folder, "words", "1"), "vocab.txt", "one\ntwo\n")
    os.mkdir(os.path.join(folder, "empty"))
    os.mkdir(os.path.join(folder, "right", "v2"))
    expect(
        1,
        [["model cut version 1", "model.safetensors"], ["model unfinished version 1", "config.json"],
         ["model words version 1", "vocab.txt"], ["model empty"], ["model right", "v2"]],
        "--model_repository=" + folder,
    )  # fmt: skip
    large = os.path.join(folder, "large")
    for name in ("first", "second"):
        shutil.copytree(os.path.join(REPOSITORY, "war_and_peace", "1"), os.path.join(large, name, "1"))
    expect(1, [["first", "memory", "--instances"], ["second", "memory"]],
           "--model_repository=" + large, "--instances=1024", "--max_batch_tokens=4194304",
           "--max_queue_tokens=8388608")  # fmt: skip
    expect(1, [["--load_models", "none"]], "--model_repository=" + REPOSITORY, "--model_control=explicit",
           "--load_models=none")  # fmt: skip


for name, test in sorted(globals().copy().items()):
    if name.startswith("test_"):
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as directory:
            test(directory)
