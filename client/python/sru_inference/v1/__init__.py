"""The generated messages of sru/v1/inference.proto and admin.proto (scripts/python_stubs.sh), and their stubs."""
