"""What calls and what answers the methods of admin.proto."""

from . import admin_pb2
from ._service import Service

_service = Service(admin_pb2, "AdminService")
AdminServiceStub = _service.stub()
AdminServiceServicer = _service.servicer()
add_AdminServiceServicer_to_server = _service.add_to_server
