"""Exports a PyTorch checkpoint to the server's model repository: python -m sru_inference.export --help.

Needs PyTorch: pip install sru-inference[export]. The same program as models/export_torch.py of a checkout.
"""

from __future__ import annotations

import sys
from typing import List, Optional


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs the program and returns its exit code."""
    from .exporter import command

    return int(command.main(arguments, program="python -m sru_inference.export"))


if __name__ == "__main__":
    sys.exit(main())
