#!/usr/bin/env bash
# Writes the generated messages of client/python from the protos. Run it after a change of proto/sru/v1,
# proto/sru_inference or proto/inference, and commit the result; python_unit_test fails until then.
#
# The code is committed, and it is the code of protoc 3.21, because generated code runs with the protobuf that it was
# generated for and with newer ones: this one runs with Debian 12's own python3-protobuf (3.21) and with every version
# on PyPI since. A newer protoc's code would refuse the former. Debian 12 and 13 and Ubuntu 24.04 have 3.21.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(protoc --version)
case "$version" in
  'libprotoc 3.21.'*) ;;
  *)
    echo "python_stubs: expected protoc 3.21 (Debian 12 or 13), found $version" >&2
    exit 1
    ;;
esac
out=client/python/sru_inference
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Under another package, since tritonclient declares the protocol's own: a process has one pool of messages.
renamed=$work/renamed/sru_inference/open_inference.proto
mkdir -p "${renamed%/*}"
sed 's/^package inference;/package sru_inference.open_inference;/' proto/inference/open_inference.proto >"$renamed"
protoc -I proto -I "$work/renamed" --python_out="$work" --pyi_out="$work" \
  sru/v1/inference.proto sru/v1/admin.proto sru_inference/details.proto sru_inference/open_inference.proto
# `sru` is also the name of the PyTorch package, so the modules are those of sru_inference.
sed -i 's/^from sru\.v1 import /from sru_inference.v1 import /' "$work"/sru/v1/*
# Offsets into the descriptor, which only CopyToProto() of protobuf's slow form reads: more lines than all the rest.
sed -i '/^if _descriptor._USE_C_DESCRIPTORS/,$d' "$work"/sru/v1/*_pb2.py "$work"/sru_inference/*_pb2.py
cp "$work"/sru/v1/* "$out/v1/"
cp "$work"/sru_inference/* "$out/"
