"""What calls and what answers the methods of admin.proto."""

from . import admin_pb2
from ._service import service

AdminServiceStub, AdminServiceServicer, add_AdminServiceServicer_to_server = service(admin_pb2, "AdminService")
