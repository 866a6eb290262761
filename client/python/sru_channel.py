"""The connection that the programs of this folder share, and its flags on their command lines."""

import os
import sys

import grpc

import sru_wire


class Channel:
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

    def method(self, name, request, response):
        """A method of the service, from dict to dict: method(values, timeout). `request` and
        `response` are tables of sru_wire. What it returns raises grpc.RpcError."""
        call = self._channel.unary_unary(
            "/sru.v1.InferenceService/" + name,
            request_serializer=lambda values: sru_wire.encode(request, values),
            response_deserializer=lambda data: sru_wire.decode(response, data),
        )
        return lambda values, timeout: call(values, timeout=timeout, metadata=self._metadata)

    def stream(self, name, request, response):
        """A method that answers with a stream: method(values, timeout) returns an iterator over
        dicts, which raises grpc.RpcError and has cancel()."""
        call = self._channel.unary_stream(
            "/sru.v1.InferenceService/" + name,
            request_serializer=lambda values: sru_wire.encode(request, values),
            response_deserializer=lambda data: sru_wire.decode(response, data),
        )
        return lambda values, timeout: call(values, timeout=timeout, metadata=self._metadata)

    def close(self):
        self._channel.close()


def add_flags(parser):
    parser.add_argument("--address", default=os.environ.get("SRU_ADDRESS", "localhost:50051"))
    parser.add_argument("--model", default="", help="may be left out when the server has one")
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


def make_sequence(sequence):
    """A message SEQUENCE: of a text, or of a list of token ids (int) or of tokens (str)."""
    if isinstance(sequence, str):
        return {"text": sequence}
    values = list(sequence)
    kind = "tokens" if values and isinstance(values[0], str) else "token_ids"
    return {kind: {"values": values}}


def printable(text):
    """Text without the control characters that a terminal would obey."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\\x%02X" % ord(c) for c in text)


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


def connect(make_client, parser, args):
    """make_client with the connection that the flags describe; ends the program if they are wrong.
    """
    try:
        credentials = make_credentials(args)
        token = (read(args.token_file) or b"").decode("ascii").strip()
        service_config = (read(args.service_config) or b"").decode()
    except (OSError, UnicodeDecodeError) as error:
        parser.error(str(error))
    return make_client(args.address, credentials, args.tls_server_name, token, service_config)


def explain(error, args):
    """Says on standard error what a grpc.RpcError means."""
    print("%s: %s" % (error.code().name, error.details()), file=sys.stderr)
    if error.code() == grpc.StatusCode.UNAVAILABLE:
        print(
            "  is the server running at %s? Start it with: make serve" % args.address,
            file=sys.stderr,
        )
