"""The parts of export_torch.py: one file per kind of network, and what these share."""
