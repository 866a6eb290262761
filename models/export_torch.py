#!/usr/bin/env python3
"""Exports a PyTorch checkpoint of an SRU model to the model repository of the SRU inference server:
export_torch.py --help."""

import sys

from exporter.command import main

if __name__ == "__main__":
    sys.exit(main())
