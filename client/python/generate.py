#!/usr/bin/env python3
"""Has a language model of an SRU inference server go on from a text. The same as `python3 -m sru_inference
generate`, from a checkout.

python3 generate.py "It was a dark and stormy night" python3 generate.py --temperature=0.8 --top_p=0.95 --seed=7 "It
was a dark and"
"""

import sys

from sru_inference.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["generate", *sys.argv[1:]]))
