"""The generated messages of sru/v1/inference.proto and admin.proto, and their stubs (scripts/python_stubs.sh)."""
