"""One caller's bad header on a connection that a proxy shares with others: their calls must continue."""

from harness import CLASSIFY, QUESTION, Outcome, run
from http2 import CONTINUATION, END_HEADERS, END_STREAM, DATA, HEADERS, Closed, Connection, frame, header_block
from http2 import literal, message

WATCH = "/grpc.health.v1.Health/Watch"
MAX_FRAME = 16384


def bad_binary(connection):
    return connection.call(CLASSIFY, QUESTION, [("x-bin", "!!!!")], timeout=2)


def over_the_limit(connection):
    """Headers over --max_metadata_bytes, among them one that enters the table."""
    block = header_block(CLASSIFY, [("x-%d" % i, "v" * 1000) for i in range(12)])
    block += literal("x-other", "of somebody else", indexed=True)
    stream = connection.next_stream()
    connection.send(frame(HEADERS, END_HEADERS, stream, block))
    connection.send(frame(DATA, END_STREAM, stream, message(QUESTION)))
    return connection.finish(stream, timeout=2)


def refers_to_the_table(connection):
    """A call by somebody else that refers to the entry."""
    stream = connection.next_stream()
    connection.send(frame(HEADERS, END_HEADERS, stream, header_block(CLASSIFY) + bytes([0x80 | 62])))
    connection.send(frame(DATA, END_STREAM, stream, message(QUESTION)))
    return connection.finish(stream, timeout=2)


def shared(target, bad, later):
    """What the one call and the later ones of others on the connection got, and whether a Watch continued."""
    try:
        with Connection(target.port) as connection:
            connection.pump(0.1)
            watch = connection.start(WATCH, body=message(b""), end=True)
            codes = [bad(connection).code]
            codes += [call(connection).code for call in later]
            return codes, watch not in connection.resets
    except Closed as error:
        return [str(error)], False


def good(connection):
    return connection.call(CLASSIFY, QUESTION, timeout=2)


def attack(target):
    failures, texts = [], []
    for name, bad, later in (
        ("bad -bin", bad_binary, [good, good]),
        ("over the limit", over_the_limit, [good, refers_to_the_table, good]),
    ):
        codes, watching = shared(target, bad, later)
        texts.append("%s: %s" % (name, " ".join(codes)))
        if codes[1:] != ["OK"] * len(later) or not watching:
            failures.append("others on the connection got %s, their stream went on: %s" % (codes[1:], watching))
        if codes[0] == "OK":
            failures.append("the bad call was answered")
    return Outcome("; ".join(texts), failures=failures)


if __name__ == "__main__":
    run("bad headers on a shared connection", attack)
