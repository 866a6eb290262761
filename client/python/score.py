#!/usr/bin/env python3
"""Asks an SRU inference server how probable texts are. The same as `python3 -m sru_inference score`, from a checkout.

python3 score.py --model=war_and_peace "Prince Andrew smiled." "Prince Andrew smiled at."
python3 score.py --carry < book.txt          (every line goes on from the one before)
"""

import sys

from sru_inference.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["score", *sys.argv[1:]]))
