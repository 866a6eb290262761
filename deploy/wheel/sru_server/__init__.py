"""The SRU inference server as a package: the programs, the libraries that they load, and the bundled models.

The commands sru_server and sru_client run the programs, and so does `python -m sru_server`.
"""

import os
import sys

_PREFIX = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(_PREFIX, "bin", "sru_server")
CLIENT = os.path.join(_PREFIX, "bin", "sru_client")
MODELS = os.path.join(_PREFIX, "share", "sru", "models")  # a model repository


def _become(program):
    # The program takes Python's place, so that signals reach it and its exit code is the command's.
    os.execv(program, [program] + sys.argv[1:])


def main():
    _become(PROGRAM)


def client():
    _become(CLIENT)
