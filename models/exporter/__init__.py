"""The exporter of PyTorch checkpoints: command.py is the command, and there is one file per kind of network and per
concern. Needs nothing but PyTorch, and that only when it exports; importing it has no side effects."""
