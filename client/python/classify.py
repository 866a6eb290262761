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

    service_config: JSON such as ../service_config.json: retries, and balancing between the servers
    of an address such as dns:///NAME:PORT or ipv4:10.0.0.1:50051,10.0.0.2:50051.
    credentials: from grpc.ssl_channel_credentials(); None = no TLS.
    """

    def __init__(self, address, credentials=None, server_name="", token="", service_config=None):
        options = []
        if service_config:
            options.append(("grpc.service_config", service_config))
        if server_name:
            options.append(("grpc.ssl_target_name_override", server_name))
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options)
        self._metadata = [("authorization", "Bearer " + token)] if token else []
        self._classify = self._channel.unary_unary(
            "/sru.v1.InferenceService/Classify",
            request_serializer=lambda values: sru_wire.encode(sru_wire.CLASSIFY_REQUEST, values),
            response_deserializer=lambda data: sru_wire.decode(sru_wire.CLASSIFY_RESPONSE, data),
        )

    def classify(self, texts, model="", version=0, top_k=1, timeout=10):
        """Returns the answer as a dict (see sru_wire.CLASSIFY_RESPONSE). Raises grpc.RpcError."""
        request = {
            "model": model,
            "version": version,
            "sequences": [{"text": text} for text in texts],
            "top_k": top_k,
        }
        return self._classify(request, timeout=timeout, metadata=self._metadata)

    def close(self):
        self._channel.close()


def read(path):
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


def make_credentials(args):
    if not (args.tls or args.tls_ca or args.tls_cert):
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=read(args.tls_ca),
        private_key=read(args.tls_key),
        certificate_chain=read(args.tls_cert),
    )


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
    parser.add_argument("--tls", action="store_true", help="use TLS, as --tls_ca does too")
    parser.add_argument("--tls_ca", help="PEM file with the authorities to trust")
    parser.add_argument("--tls_cert", help="PEM file with this client's certificate")
    parser.add_argument("--tls_key", help="PEM file with its key")
    parser.add_argument("--tls_server_name", default="", help="if it is not that in --address")
    parser.add_argument("--token_file", help="file with the token to send")
    args = parser.parse_args()
    texts = args.texts or [line.strip() for line in sys.stdin if line.strip()]

    try:
        credentials = make_credentials(args)
        token = (read(args.token_file) or b"").decode("ascii").strip()
        service_config = (read(args.service_config) or b"").decode()
    except (OSError, UnicodeDecodeError) as error:
        parser.error(str(error))
    client = Client(args.address, credentials, args.tls_server_name, token, service_config)
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
