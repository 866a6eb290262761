"""Writes the directory of a model."""

import ctypes
import json
import os
import pathlib
import re
import shutil
import struct
import tempfile
import textwrap

from .common import FORMAT_VERSION, ExportError, printable

# The files of a model; write_model() writes no others.
FILES = ("config.json", "model.safetensors", "vocab.txt", "spm.model")


def write_safetensors(path, tensors):
    header = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    encoded = json.dumps(header, separators=(",", ":")).encode("utf-8")
    encoded += b" " * (-len(encoded) % 8)  # keeps the data aligned in a mapped file
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)))
        file.write(encoded)
        for tensor in tensors.values():
            if tensor.numel() > 0:  # the address of an empty tensor is 0
                # string_at() would copy, and its size is a C int.
                file.write((ctypes.c_char * (tensor.numel() * 4)).from_address(tensor.data_ptr()))


def check_free(out, force, inputs=()):
    """Refuses an `out` that exists. `force` allows a directory that has nothing but a model's files, none of them an input."""
    if not os.path.lexists(out):
        return
    if not force:
        raise ExportError(f"{out} exists; choose another version, or pass --force to replace it")
    if not os.path.isdir(out):
        raise ExportError(f"{out} is no directory, and --force replaces only the directory of a model; choose another version")
    for name in sorted(os.listdir(out)):
        path = os.path.join(out, name)
        if name not in FILES or os.path.isdir(path):
            raise ExportError(f"{path}: the exporter does not write this, and --force would delete it; move it, or choose "
                              "another version")
        if any(os.path.exists(given) and os.path.exists(path) and os.path.samefile(given, path) for given in inputs):
            raise ExportError(f"{path}: is an input of the export, and --force would delete it; move it, or choose another "
                              "version")


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_out(out):
    path = os.path.abspath(out)
    version, model = os.path.basename(path), os.path.basename(os.path.dirname(path))
    if not re.fullmatch(r"[1-9][0-9]{0,17}", version):
        raise ExportError(f"--out {out}: expected REPOSITORY/MODEL/VERSION with a positive integer "
                          f"as the version, found '{version}'")
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}", model):
        raise ExportError(f"--out {out}: expected REPOSITORY/MODEL/VERSION with a model name of "
                          f"A-Z a-z 0-9 _ . - that does not start with a dot, found '{model}'")
    return path


def config_text(config):
    """The contents of config.json. Numbers of a list stand beside each other."""
    def fill(match):
        return "[" + textwrap.fill(" ".join(match.group(1).split()), 96, initial_indent="      ",
                                   subsequent_indent="      ").strip() + "]"

    text = json.dumps(config, indent=2, ensure_ascii=False)
    return re.sub(r"\[\n([0-9,\s]+)\]", fill, text) + "\n"


def write_files(directory, description, model):
    """The files of an Exported model."""
    config = {"format_version": FORMAT_VERSION, **({"description": description} if description else {}), **model.config}
    pathlib.Path(directory, "config.json").write_text(config_text(config), encoding="utf-8")
    write_safetensors(os.path.join(directory, "model.safetensors"), model.tensors)
    vocabulary = model.vocabulary
    if vocabulary is not None and vocabulary.words is not None:
        pathlib.Path(directory, "vocab.txt").write_bytes("".join(word + "\n" for word in vocabulary.words).encode())
    if vocabulary is not None and vocabulary.pieces is not None:
        shutil.copyfile(vocabulary.pieces, os.path.join(directory, "spm.model"))


def write_model(out, force, description, model, accept):
    """Writes an Exported model to a hidden sibling of `out`, then renames it, so that a server that runs meanwhile never sees
    half a model. If accept(directory) is false, it is not written. Returns whether it was accepted."""
    parent = os.path.dirname(os.path.abspath(out))
    os.makedirs(parent, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".export-", dir=parent)
    try:
        os.chmod(temporary, 0o777 & ~current_umask())
        write_files(temporary, description, model)
        if not accept(temporary):
            return False
        check_free(out, force)
        if os.path.lexists(out):
            old = tempfile.mkdtemp(prefix=".replaced-", dir=parent)
            os.rename(out, os.path.join(old, "model"))
            os.rename(temporary, out)
            shutil.rmtree(old)
        else:
            os.rename(temporary, out)
        return True
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def count_weights(model):
    """As the server counts them: without scale_x, a constant, and with v1 without weight_c, which is zeros."""
    unused = (".scale_x", ".weight_c") if model.config.get("encoder", {}).get("v1") else (".scale_x",)
    return sum(tensor.numel() for name, tensor in model.tensors.items() if not name.endswith(unused))


def report(out, model, notes):
    """Says what was written, what was found out about it and how to use it."""
    weights = count_weights(model)
    print(f"wrote {out}:")
    for name in sorted(os.listdir(out)):
        print(f"  {name}  {os.path.getsize(os.path.join(out, name)):,} bytes")
    print(f"{model.layers}, {weights:,} weights, {model.summary}.")
    for note in notes:
        print(textwrap.fill(printable(note), 118, initial_indent="note: ", subsequent_indent="      ", break_long_words=False,
                            break_on_hyphens=False))
    print("Serve it and ask it:")
    print(f"  sru_server --model_repository={os.path.dirname(os.path.dirname(out))}")
    print("  " + model.usage.format(model=os.path.basename(os.path.dirname(out))))
