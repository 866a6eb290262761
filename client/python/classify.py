#!/usr/bin/env python3
"""Asks an SRU inference server for the labels of texts. Needs Python 3.7 and grpcio.

    python3 classify.py "How many moons does Jupiter have ?" "Who wrote Hamlet ?"
    python3 classify.py --address=localhost:50051 --top_k=3 < questions.txt
"""

import argparse
import sys

import grpc

import sru_channel
import sru_wire


class Client(sru_channel.Channel):
    """Classifies over one connection per server; safe to share between threads."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._classify = self.method(
            "Classify", sru_wire.CLASSIFY_REQUEST, sru_wire.CLASSIFY_RESPONSE
        )

    def classify(self, texts, model="", version=0, top_k=1, timeout=10):
        """Returns the answer as a dict (see sru_wire.CLASSIFY_RESPONSE). Raises grpc.RpcError."""
        request = {
            "model": model,
            "version": version,
            "sequences": [{"text": text} for text in texts],
            "top_k": top_k,
        }
        return self._classify(request, timeout)


def main():
    parser = argparse.ArgumentParser(
        description="Asks an SRU inference server for the labels of texts.",
        epilog='example: classify.py --top_k=3 "How many moons does Jupiter have ?"',
    )
    parser.add_argument("texts", nargs="*", help="without any: one per line of standard input")
    parser.add_argument("--top_k", type=int, default=1, help="labels per text; 0 = all")
    sru_channel.add_flags(parser)
    args = parser.parse_args()
    texts = args.texts or [line.strip() for line in sys.stdin if line.strip()]

    client = sru_channel.connect(Client, parser, args)
    try:
        response = client.classify(texts, args.model, top_k=args.top_k, timeout=args.timeout)
    except grpc.RpcError as error:
        sru_channel.explain(error, args)
        return 1
    finally:
        client.close()
    for text, result in zip(texts, response["classifications"]):
        labels = ["%s %.4f" % (label["name"], label["probability"]) for label in result["labels"]]
        print("%s  %s" % (", ".join(labels), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
