#!/usr/bin/env python3
"""Asks an SRU inference server from a checkout: the same as `python3 -m sru_inference COMMAND`, with the name under which it is
called. The other names are links to this file.

python3 classify.py "How many moons does Jupiter have ?" "Who wrote Hamlet ?"
python3 translate.py --address=localhost:50051 < texts.txt
"""

import os
import sys

from sru_inference.__main__ import main

if __name__ == "__main__":
    sys.exit(main([os.path.basename(sys.argv[0])[: -len(".py")], *sys.argv[1:]]))
