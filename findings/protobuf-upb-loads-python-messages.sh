#!/bin/sh
# A module that protoc generates imports protobuf's message classes in pure Python, although upb's, in C, are used.
#
# Software: protobuf 7.36.2 (Python), and 5.29.6 alike.
# Documented: google/protobuf/internal/api_implementation.py: one implementation is chosen, here upb; nothing says that the other
# one is loaded too.
# Expected: with upb, google.protobuf.internal.python_message and what it needs are not imported.
# Seen: generated modules import google.protobuf.descriptor_pool, which imports python_message, decoder, encoder, containers (with
# pickle), text_format and others: some 40 modules with those of the standard library, 10 ms of CPU or more, and 3 MiB. No message
# uses them.
#   implementation: upb
#   in pure Python: containers decoder encoder python_message wire_format
#   base of a message: google._upb._message
#
# Exits with 0 while this is so, and with 1 once it has changed. Needs Python 3.11 or later with venv, and a Python package index.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check protobuf==7.36.2
cat >main.py <<'PY'
import sys

from google.protobuf import descriptor_pb2
from google.protobuf.internal import api_implementation

print("implementation:", api_implementation.Type())
names = ("containers", "decoder", "encoder", "python_message", "wire_format")
print("in pure Python:", *(name for name in names if f"google.protobuf.internal.{name}" in sys.modules))
print("base of a message:", descriptor_pb2.FileDescriptorSet.__mro__[1].__module__)
PY
venv/bin/python main.py | tee output
cat >expected <<'TEXT'
implementation: upb
in pure Python: containers decoder encoder python_message wire_format
base of a message: google._upb._message
TEXT
cmp output expected || { echo "the behaviour has changed"; exit 1; }
