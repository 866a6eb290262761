"""What calls and what answers the methods of inference.proto."""

from . import inference_pb2
from ._service import service

InferenceServiceStub, InferenceServiceServicer, add_InferenceServiceServicer_to_server = service(inference_pb2, "InferenceService")
