#!/usr/bin/env python3
"""Asks an SRU inference server for the answer to a question in texts. The same as `python3 -m sru_inference answer`,
from a checkout.

python3 answer.py --question="Who wrote Hamlet?" drama.txt python3 answer.py --question="When did it end?" --top_n=3
< article.txt
"""

import sys

from sru_inference.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["answer", *sys.argv[1:]]))
