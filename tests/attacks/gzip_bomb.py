"""Half a megabyte that unpacks to 512 MiB, to a method that needs no token and to one that parses it.

gRPC unpacks a message before it checks its length, so nothing may be unpacked at all.
"""

import struct
import zlib

from harness import CLASSIFY, HEALTH, Outcome, run
from http2 import Closed, Connection


def bomb(mib):
    """A gzip stream of zeros: one block of 16 MiB, repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    size = mib << 20
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * (mib // 16) + end + struct.pack("<II", 0, size & 0xFFFFFFFF)


def attack(target):
    data = bomb(512)
    codes, sent = [], 0
    for method in (HEALTH, CLASSIFY, HEALTH):
        try:
            with Connection(target.port) as connection:
                answer = connection.call(method, data, [("grpc-encoding", "gzip")], compressed=True)
                codes.append(answer.code)
                sent += connection.sent
        except Closed:
            codes.append("CLOSED")
    failures = ["a bomb was answered with OK"] if "OK" in codes else []
    return Outcome("%d kB sent, answers %s" % (sent // 1000, " ".join(codes)), failures=failures)


if __name__ == "__main__":
    run("gzip bomb", attack)
