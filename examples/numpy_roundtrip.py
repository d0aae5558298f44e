#!/usr/bin/env python3
"""Real input from NumPy and back: writes a layer as safetensors, lets slipstream run it on several
ranks, and checks the output with NumPy alone, in fp64.

usage: numpy_roundtrip.py [SLIPSTREAM]     the program, or `slipstream` on PATH

Needs NumPy and the standard library. Exit code 0 when every output agrees, 1 when one does not,
77 where NumPy is missing. docs/input_format.md has the names and shapes.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("numpy_roundtrip: skipped, NumPy is missing (Debian: python3-numpy)")
    sys.exit(77)


# --- safetensors by hand: 8 bytes of header length, JSON, data -----------------------------------


class Stored:
    """An array and the element type that the file gives it. NumPy has no bf16: uint16 holds its bits."""

    def __init__(self, dtype, array):
        self.dtype = dtype
        self.array = np.ascontiguousarray(array)


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, stored in tensors.items():
        raw = stored.array.tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": stored.dtype, "shape": stored.array.shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    types = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I64": "<i8"}
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(raw[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = Stored(entry["dtype"], array)
    return tensors


def store(dtype, values):
    """Rounds fp64 values to the nearest of `dtype`."""
    if dtype == "F32":
        return Stored(dtype, values.astype(np.float32))
    if dtype == "F16":
        return Stored(dtype, values.astype(np.float16))
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest, ties to even
    return Stored(dtype, rounded.astype(np.uint16))


def load(stored):
    """The exact values, in fp64."""
    if stored.dtype == "BF16":
        return (stored.array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.array.astype(np.float64)


# --- the layer, by its definition ----------------------------------------------------------------


def layer(tensors):
    x, weights = load(tensors["hidden_states"]), load(tensors["topk_weights"])
    ids, down = tensors["topk_ids"].array, load(tensors["w_down"])
    if "w_gate_up" in tensors:
        gate, up = np.split(load(tensors["w_gate_up"]), 2, axis=1)
    else:
        gate, up = load(tensors["w_gate"]), load(tensors["w_up"])
    out = np.zeros_like(x)
    for token in range(len(x)):
        for expert, weight in zip(ids[token], weights[token]):
            if expert < 0:  # no expert
                continue
            g, u = gate[expert] @ x[token], up[expert] @ x[token]
            out[token] += weight * (down[expert] @ (g / (1 + np.exp(-g)) * u))
    return out


def make_layer(random, dtype, fused):
    tokens_per_rank = [5, 0, 9, 3]
    num_tokens, experts, hidden, width, topk = sum(tokens_per_rank), 6, 96, 80, 3
    ids = np.array([random.permutation(experts)[:topk] for _ in range(num_tokens)])
    ids[2, 1] = -1  # one expert less
    ids[4, :] = -1  # a padded token: its output is zero
    ids[7, :] = 5  # three times the same expert
    gate = random.normal(size=(experts, width, hidden)) / np.sqrt(hidden)
    up = random.normal(size=(experts, width, hidden)) / np.sqrt(hidden)
    tensors = {
        "hidden_states": store(dtype, random.normal(size=(num_tokens, hidden))),
        "tokens_per_rank": Stored("I64", np.array(tokens_per_rank, np.int64)),
        "topk_ids": Stored("I32", ids.astype(np.int32)),
        "topk_weights": Stored("F32", random.uniform(-1, 1, ids.shape).astype(np.float32)),
        "w_down": store(dtype, random.normal(size=(experts, hidden, width)) / np.sqrt(width)),
    }
    if fused:
        tensors["w_gate_up"] = store(dtype, np.concatenate([gate, up], axis=1))
    else:
        tensors["w_gate"], tensors["w_up"] = store(dtype, gate), store(dtype, up)
    return tensors


def run_once(program, folder, seed, dtype, fused, tolerance):
    tensors = make_layer(np.random.default_rng(seed), dtype, fused)
    source, target = folder / "layer.safetensors", folder / "out.safetensors"
    write_safetensors(source, tensors)
    command = [program, "run", "--input", str(source), "--out", str(target), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"numpy_roundtrip: {' '.join(command)} ended with {done.returncode}\n{done.stderr}")
        return False
    out = read_safetensors(target)["out"]
    wanted, found = layer(tensors), load(out)
    if out.dtype != dtype or found.shape != wanted.shape:
        print(f"numpy_roundtrip: out is {out.dtype} {found.shape}, expected {dtype} {wanted.shape}")
        return False
    error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    zero_rows = not found[4].any()
    good = bool(error <= tolerance) and zero_rows
    kind = "fused" if fused else "apart"
    print(
        f"{'PASS' if good else 'FAIL'}  {dtype:<4} gate and up {kind}, seed {seed}: relative error "
        f"{error:.1e} (at most {tolerance:.0e}), padded token {'zero' if zero_rows else 'NOT ZERO'}"
    )
    return good


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "slipstream"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        results = [
            run_once(program, folder, 1, "F32", True, 1e-6),
            run_once(program, folder, 2, "F32", False, 1e-6),
            run_once(program, folder, 3, "BF16", True, 8e-3),
            run_once(program, folder, 4, "F16", False, 1e-3),
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
