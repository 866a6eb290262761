#!/usr/bin/env python3
"""Has an SRU inference server translate texts. The same as `python3 -m sru_inference translate`, from a checkout.

python3 translate.py "A ship sails past the old lighthouse."
python3 translate.py --beam_size=1 < captions.en > captions.de
"""

import sys

from sru_inference.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["translate", *sys.argv[1:]]))
