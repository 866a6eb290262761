"""The stub and the servicer of a service, made from its descriptor: what protoc's plugin for gRPC would write out, method by method."""

from typing import Any, Tuple

import grpc
from google.protobuf import descriptor_pb2


def service(messages: Any, name: str, package: str = "") -> Tuple[Any, Any, Any]:
    """Of the service `name` in a generated module: the class of stubs, whose objects call each method through a channel, the class
    of servicers, whose methods are not implemented, and what adds a servicer to a server. package: if not the module's own."""
    file = descriptor_pb2.FileDescriptorProto.FromString(messages.DESCRIPTOR.serialized_pb)
    (descriptor,) = [one for one in file.service if one.name == name]
    full_name = f"{package or file.package}.{name}"
    methods = []  # (name, kind of call such as "unary_stream", request, response)
    for method in descriptor.method:
        kind = "_".join("stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming))
        types = [getattr(messages, one.rpartition(".")[2]) for one in (method.input_type, method.output_type)]
        methods.append((method.name, kind, *types))

    def call_through(stub, channel):
        for method, kind, request, response in methods:
            call = getattr(channel, kind)(
                f"/{full_name}/{method}",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )
            setattr(stub, method, call)

    def unimplemented(self, request, context):
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("Method not implemented!")
        raise NotImplementedError("Method not implemented!")

    def add_to_server(servicer, server):
        handlers = {
            method: getattr(grpc, kind + "_rpc_method_handler")(
                getattr(servicer, method),
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )
            for method, kind, request, response in methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(full_name, handlers),))

    stub = type(name + "Stub", (), {"__init__": call_through})
    return stub, type(name + "Servicer", (), {method: unimplemented for method, *_ in methods}), add_to_server
