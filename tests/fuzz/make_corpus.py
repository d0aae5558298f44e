#!/usr/bin/env python3
"""Writes the start corpus of safetensors_fuzz into a folder: a few true files and a few lies.

usage: make_corpus.py FOLDER
"""
import json
import pathlib
import struct
import sys


def file_bytes(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


CORPUS = {
    "empty": file_bytes({}),
    "padded": file_bytes(b"{}      "),
    "one": file_bytes({"x": tensor("F32", [2, 3], 0, 24)}, bytes(24)),
    "types": file_bytes(
        {
            "a": tensor("BF16", [2], 0, 4),
            "b": tensor("F16", [1, 2], 4, 8),
            "c": tensor("I64", [], 8, 16),
            "d": tensor("I32", [0, 5], 16, 16),
            "e": tensor("U8", [1], 16, 17),
            "__metadata__": {"format": "pt"},
        },
        bytes(range(17)),
    ),
    "overlap": file_bytes({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, bytes(3)),
    "hole": file_bytes({"a": tensor("U8", [1], 1, 2)}, bytes(2)),
    "overflow": file_bytes({"a": tensor("F64", [2**62, 4], 0, 0)}),
    "long_header": struct.pack("<Q", 2**63) + b"{}",
    "truncated": file_bytes({"x": tensor("F32", [2], 0, 8)}, bytes(8))[:-5],
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in CORPUS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
