#!/usr/bin/env python3
"""Exports a PyTorch checkpoint of an SRU model to the model repository of the SRU inference server:
export_torch.py --help. The same command as `python -m exporter` in this folder."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from exporter.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
