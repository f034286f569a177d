"""Prints the package's offsets as `NAME value` lines, for python_client_test.cc."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
from crowdsurf import layout

for name, value in vars(layout).items():
    if name.isupper() and isinstance(value, int):
        print(name, value)
