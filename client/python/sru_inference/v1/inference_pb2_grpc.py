"""What calls and what answers the methods of inference.proto."""

from . import inference_pb2
from ._service import Service

_service = Service(inference_pb2, "InferenceService")
InferenceServiceStub = _service.stub()
InferenceServiceServicer = _service.servicer()
add_InferenceServiceServicer_to_server = _service.add_to_server
