#!/usr/bin/env python3
"""Asks an SRU inference server for a label of each token of texts. The same as `python3 -m sru_inference tag`, from a
checkout.

python3 tag.py "three seven seven two"
python3 tag.py --address=localhost:50051 --top_k=3 < texts.txt
"""

import sys

from sru_inference.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["tag", *sys.argv[1:]]))
