#!/usr/bin/env python3
"""Asks an SRU inference server for the labels of texts. The same as `python3 -m sru_inference classify`, from a
checkout.

python3 classify.py "How many moons does Jupiter have ?" "Who wrote Hamlet ?" python3 classify.py
--address=localhost:50051 --top_k=3 < questions.txt
"""

import sys

from sru_inference.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["classify", *sys.argv[1:]]))
