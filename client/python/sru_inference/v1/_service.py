"""The stub and the servicer of a service, made from its descriptor: what protoc's plugin for gRPC would write out, method by method."""

from typing import Any

import grpc
from google.protobuf import descriptor_pb2


class Service:
    """`messages` is the generated module that has the service `name`. package: if not the module's own."""

    def __init__(self, messages: Any, name: str, package: str = "") -> None:
        file = descriptor_pb2.FileDescriptorProto.FromString(messages.DESCRIPTOR.serialized_pb)
        (service,) = [one for one in file.service if one.name == name]
        self._name, self._full_name = name, f"{package or file.package}.{name}"
        self._methods = []  # (name, kind of call such as "unary_stream", request, response)
        for method in service.method:
            kind = "_".join("stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming))
            types = [getattr(messages, one.rpartition(".")[2]) for one in (method.input_type, method.output_type)]
            self._methods.append((method.name, kind, *types))

    def stub(self) -> Any:
        """The class of objects that call: each method of the service is a callable of `channel`."""

        def __init__(stub, channel):
            for name, kind, request, response in self._methods:
                call = getattr(channel, kind)(
                    f"/{self._full_name}/{name}",
                    request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString,
                )
                setattr(stub, name, call)

        return type(self._name + "Stub", (), {"__init__": __init__})

    def servicer(self):
        """The class to derive from, whose methods are not implemented."""

        def unimplemented(self, request, context):
            context.set_code(grpc.StatusCode.UNIMPLEMENTED)
            context.set_details("Method not implemented!")
            raise NotImplementedError("Method not implemented!")

        return type(self._name + "Servicer", (), {name: unimplemented for name, *_ in self._methods})

    def add_to_server(self, servicer, server):
        handlers = {
            name: getattr(grpc, kind + "_rpc_method_handler")(
                getattr(servicer, name),
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )
            for name, kind, request, response in self._methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self._full_name, handlers),))
