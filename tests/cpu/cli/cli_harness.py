"""What the tests of the program share: running it, and safetensors files by hand.

The program's path is in the environment variable SLIPSTREAM. Standard library only.
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

PROGRAM = os.environ.get("SLIPSTREAM", "slipstream")
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "I64": 8, "F64": 8, "U8": 1}
FORMATS = {"F32": "f", "F16": "e", "I32": "i", "I64": "q", "F64": "d"}


def run(*arguments, stdin=None):
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, errors="replace",
        timeout=240, check=False,
        stdin=stdin or subprocess.DEVNULL)


def reject_constant(text):
    raise ValueError(f"{text} is no JSON")


def parse_json(text):
    """Strict: NaN and Infinity, which Python would take, are errors."""
    return json.loads(text, parse_constant=reject_constant)


def product(shape):
    result = 1
    for size in shape:
        result *= size
    return result


def tensor(dtype, shape, values=None):
    """(dtype, shape, bytes); one value is repeated; without values all are zero."""
    count = product(shape)
    if values is None:
        return dtype, list(shape), bytes(count * BYTES[dtype])
    values = list(values) if isinstance(values, (list, tuple)) else [values] * count
    return dtype, list(shape), struct.pack(f"<{count}{FORMATS[dtype]}", *values)


def file_bytes(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors_bytes(tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += raw
    return file_bytes(header, data)


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    tensors = {}
    for name, entry in parse_json(raw[8:8 + length]).items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = raw[begin:end]
        if entry["dtype"] in FORMATS:
            count = product(entry["shape"])
            values = list(struct.unpack(f"<{count}{FORMATS[entry['dtype']]}", values))
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return tensors


def layer_tensors(tokens=3, experts=2, hidden=4, intermediate=6, topk=2, dtype="F32"):
    """A small true layer; tests replace or remove what they want wrong."""
    return {
        "hidden_states": tensor(dtype, (tokens, hidden)),
        "topk_ids": tensor("I32", (tokens, topk)),
        "topk_weights": tensor("F32", (tokens, topk)),
        "w_gate_up": tensor(dtype, (experts, 2 * intermediate, hidden)),
        "w_down": tensor(dtype, (experts, hidden, intermediate)),
    }


class CliTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="slipstream-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def write_layer(self, name="layer.safetensors", remove=(), **changes):
        tensors = {**layer_tensors(), **changes}
        for key in remove:
            del tensors[key]
        return self.write(name, safetensors_bytes(tensors))

    def good(self, *arguments):
        """Runs with --json; the parsed object."""
        done = run(*arguments, "--json")
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stderr}{done.stdout}")
        self.assertEqual(done.stderr, "", arguments)
        return parse_json(done.stdout)

    def bad(self, *arguments, has):
        """Exit code 2 and one sentence with all of `has`; as JSON too."""
        has = [has] if isinstance(has, str) else has
        done = run(*arguments)
        context = f"{arguments}: code {done.returncode}, {done.stderr!r}"
        self.assertEqual(done.returncode, 2, context)
        self.assertEqual(done.stdout, "", context)
        self.assertRegex(done.stderr, r"\A[a-z]+: [^\n]+\n\Z", context)
        for piece in has:
            self.assertIn(piece, done.stderr, context)
        with_json = run(*arguments, "--json")
        context = f"{arguments} --json: {with_json.stdout}"
        self.assertEqual(with_json.returncode, 2, context)
        error = parse_json(with_json.stdout)["error"]
        self.assertEqual(with_json.stderr, error["message"] + "\n", context)
        for field in ("code", "subsystem", "what", "observed", "expected", "hint"):
            self.assertIn(field, error)
        return done.stderr
