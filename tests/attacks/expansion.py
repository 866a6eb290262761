"""Legal requests of 15 MiB whose parsed form would take thirty times that: empty tokens, empty sequences,
unknown fields, groups; to a method of ours and to reflection."""

from harness import CLASSIFY, MIB, Outcome, classify_request, run
from http2 import Closed, Connection, field, varint

SIZE = 15 * MIB
REFLECTION = "/grpc.reflection.v1%s.ServerReflection/ServerReflectionInfo"


def sequence(data):
    return field(3, data)


FORMS = {
    # With truncate the number of tokens is no reason to refuse it.
    "empty tokens": lambda: field(5, 1) + sequence(field(2, b"\x0a\0" * (SIZE // 2))),
    "empty sequences": lambda: b"\x1a\0" * (SIZE // 2),
    "unknown fields": lambda: classify_request("a") + b"\xf8\x01\0" * (SIZE // 3),
    "unknown fields in a sequence": lambda: sequence(field(1, b"a") + b"\x78\0" * (SIZE // 2)),
    "groups": lambda: classify_request("a") + b"\x7b\x7c" * (SIZE // 2),
    "many texts": lambda: sequence(field(1, b"")) * (SIZE // 4),
    "token ids": lambda: field(5, 1) + sequence(field(3, field(1, b"\x01" * SIZE))),
    "model names": lambda: field(1, b"x") * (SIZE // 3),
    "nested unknown": lambda: varint(15 << 3 | 2) + varint(SIZE) + b"\x0a\0" * (SIZE // 2),
}


def attack(target):
    codes = []
    calls = [(form, CLASSIFY, make()) for form, make in FORMS.items()]
    calls += [("groups to reflection", REFLECTION % version, FORMS["groups"]()) for version in ("", "alpha")]
    for _, method, data in calls:
        try:
            with Connection(target.port) as connection:
                codes.append(connection.call(method, data).code)
        except Closed:
            codes.append("CLOSED")
    what = ", ".join("%s %s" % (form, code) for (form, _, _), code in zip(calls, codes))
    failures = ["no answer to " + form for (form, _, _), code in zip(calls, codes) if code == "TIMEOUT"]
    return Outcome(what, failures=failures)


if __name__ == "__main__":
    run("expanding requests", attack, budget_mib=2 * SIZE // MIB, seconds=5, flags=["--max_message_bytes=%d" % (16 * MIB)])
