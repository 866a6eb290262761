#!/usr/bin/env python3
"""Asks an SRU inference server for the labels of texts. Needs Python 3.7 and grpcio.

    python3 classify.py "How many moons does Jupiter have ?" "Who wrote Hamlet ?"
    python3 classify.py --address=localhost:50051 --top_k=3 < questions.txt
"""

import argparse
import os
import sys

import grpc

import sru_wire


class Client:
    """One connection per server; safe to share between threads.

    service_config: JSON as ../service_config.json has it: retries and balancing between the servers
    of an address such as dns:///NAME:PORT or ipv4:10.0.0.1:50051,10.0.0.2:50051.
    """

    def __init__(self, address, service_config=None):
        options = [("grpc.service_config", service_config)] if service_config else []
        self._channel = grpc.insecure_channel(address, options=options)
        self._classify = self._channel.unary_unary(
            "/sru.v1.InferenceService/Classify",
            request_serializer=lambda values: sru_wire.encode(sru_wire.CLASSIFY_REQUEST, values),
            response_deserializer=lambda data: sru_wire.decode(sru_wire.CLASSIFY_RESPONSE, data),
        )

    def classify(self, texts, model="", version=0, top_k=1, timeout=10):
        """The answer as a dict (see sru_wire.CLASSIFY_RESPONSE). Raises grpc.RpcError."""
        request = {
            "model": model,
            "version": version,
            "sequences": [{"text": text} for text in texts],
            "top_k": top_k,
        }
        return self._classify(request, timeout=timeout)

    def close(self):
        self._channel.close()


def main():
    parser = argparse.ArgumentParser(
        description="Asks an SRU inference server for the labels of texts.",
        epilog='example: classify.py --top_k=3 "How many moons does Jupiter have ?"',
    )
    parser.add_argument("texts", nargs="*", help="without any: one per line of standard input")
    parser.add_argument("--address", default=os.environ.get("SRU_ADDRESS", "localhost:50051"))
    parser.add_argument("--model", default="", help="may be left out when the server has one")
    parser.add_argument("--top_k", type=int, default=1, help="labels per text; 0 = all")
    parser.add_argument(
        "--service_config", help="file with gRPC's JSON for several servers: ../service_config.json"
    )
    parser.add_argument("--timeout", type=float, default=10, help="seconds")
    args = parser.parse_args()
    texts = args.texts or [line.strip() for line in sys.stdin if line.strip()]

    service_config = None
    if args.service_config:
        with open(args.service_config) as file:
            service_config = file.read()
    client = Client(args.address, service_config)
    try:
        response = client.classify(texts, args.model, top_k=args.top_k, timeout=args.timeout)
    except grpc.RpcError as error:
        print("%s: %s" % (error.code().name, error.details()), file=sys.stderr)
        if error.code() == grpc.StatusCode.UNAVAILABLE:
            print(
                "  is the server running at %s? Start it with: make serve" % args.address,
                file=sys.stderr,
            )
        return 1
    finally:
        client.close()
    for text, result in zip(texts, response["classifications"]):
        labels = ["%s %.4f" % (label["name"], label["probability"]) for label in result["labels"]]
        print("%s  %s" % (", ".join(labels), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
