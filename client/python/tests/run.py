"""Runs the tests of this folder with the package sru_inference that this Python finds: PYTHONPATH=client/python, or
an installation.

Exits with 77, which CTest shows as skipped, where grpcio, protobuf or numpy is missing.
"""

import importlib
import os
import sys
import unittest

for module in ("grpc", "google.protobuf", "numpy"):
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(f"SKIPPED: {error} ({sys.executable})")
        sys.exit(77)

if __name__ == "__main__":
    suite = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)), pattern="*_test.py")
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
