"""Wrong options, shapes and files: exit code 2 and one sentence with the value and a way out.

Run by ctest as `cli_bad_input`. Standard library only.
"""

import os
import struct
import unittest

from cli_harness import CliTest, file_bytes, run, safetensors_bytes, tensor


class OptionTest(CliTest):
    def test_commands(self):
        self.bad(has=["command is missing", "info, plan, run, verify, faults, bench", "--help"])
        self.bad("rnu", has=["'rnu'", "did you mean 'run'"])
        self.bad("", has="''")
        self.bad("frobnicate", has=["'frobnicate'", "--help"])
        self.bad("run", "plan", has="'plan'")
        self.bad("--ranks", "2", "run", has="--ranks")

    def test_unknown_options(self):
        self.bad("run", "--rank", "2", has=["'--rank'", "did you mean '--ranks'"])
        self.bad("run", "--hiden=7", has=["'--hiden=7'", "did you mean '--hidden'"])
        self.bad("run", "surplus", has="'surplus'")
        self.bad("run", "-x", has="'-x'")
        self.bad("info", "--ranks", "2", has=["'--ranks'", "an option of info"])
        self.bad("plan", "--out", "x", has=["'--out'", "an option of plan"])

    def test_values_that_are_missing_or_twice(self):
        self.bad("run", "--ranks", has="--ranks is without a value")
        self.bad("run", "--ranks", "2", "--ranks", "4", has=["--ranks", "2 times"])
        self.bad("run", "--ranks", "", has=["--ranks", "''"])
        self.bad("run", "--ranks", "--topk", has=["--ranks", "'--topk'"])
        self.bad("run", "--no-check=maybe", has="maybe")

    def test_numbers(self):
        for option, values, expected in [
                ("--ranks", ("0", "9", "-1", "two", "4.0", "0x4", " 4", "4 ", "99999999999999999999"),
                 "1..8"),
                ("--experts", ("0", "1025", "-3"), "1..1024"),
                ("--hidden", ("0", "1048577"), "1..1048576"),
                ("--intermediate", ("0", "-4"), "1..1048576"),
                ("--topk", ("0", "65"), "1..64"),
                ("--threads", ("0", "1025"), "1..1024"),
                ("--repeat", ("0", "-1", "1e3"), "1..1000000"),
                ("--seed", ("-1", "x"), "0..9223372036854775807"),
                ("--segments", ("0", "17"), "1..16"),
                ("--tile-max-rows", ("7", "1032"), "8..1024"),
        ]:
            for value in values:
                with self.subTest(option=option, value=value):
                    self.bad("run", option, value, has=[option, f"'{value}'", expected])

    def test_tokens(self):
        self.bad("run", "--tokens", "-1", has=["--tokens", "'-1'", "0..2147483647"])
        self.bad("run", "--tokens", "7,,1,2", has=["'7,,1,2'", "'' is none"])
        self.bad("run", "--tokens", "7,0,129,", has=["'7,0,129,'"])
        self.bad("run", "--tokens", "7;0", has="'7;0'")
        self.bad("run", "--tokens", "1,2,3", has=["3 numbers", "4, one per rank", "--ranks 3"])
        self.bad("run", "--ranks", "2", "--tokens", "1,2,3", has=["3 numbers", "--ranks 3"])

    def test_names(self):
        self.bad("run", "--preset", "mixtral", has=["'mixtral'", "seed, demo", "'mixtral-8x7b'"])
        self.bad("run", "--preset", "quite-other", has=["'quite-other'", "olmoe-1b-7b"])
        self.bad("run", "--dtype", "fp8", has=["--dtype", "'fp8'", "bf16, fp16 or fp32"])
        self.bad("run", "--backend", "gpu", has=["--backend", "'gpu'", "auto, host or cuda"])
        self.bad("verify", "--ranks", "0", has=["--ranks", "'0'", "1..8"])
        self.bad("verify", "--ranks", "9", has=["--ranks", "'9'", "1..8"])
        self.bad("verify", "--backend", "tpu", has=["--backend", "'tpu'"])
        self.bad("plan", "--tile-policy", "fixed", has=["--tile-policy", "'fixed'", "fixed128"])
        self.bad("plan", "--row-order", "up", has=["--row-order", "'up'", "local-first"])
        self.bad("plan", "--delivery", "mail", has=["--delivery", "'mail'", "gather or scatter"])
        self.bad("plan", "--partial", "fp16", has=["fp16", "fp32 or bf16"])
        for text in ("random", "zipf", "zipf:", "zipf:x", "zipf:-1", "zipf:nan", "stddev", "one:2",
                     "uniform:1", ""):
            with self.subTest(dist=text):
                self.bad("plan", "--dist", text, has=["--dist", f"'{text}'"])

    def test_shapes_that_do_not_go_together(self):
        self.bad("run", "--intermediate", "1023", has=["--intermediate", "1023", "4 ranks", "1024"])
        self.bad("plan", "--ranks", "8", "--tokens", "100000000", "--topk", "8",
                 has=["6400000000", "fewer tokens"])
        # More spread than distinct experts can have.
        self.bad("plan", "--experts", "8", "--topk", "8", "--dist", "stddev:3", has="stddev")

    def test_chunks(self):
        self.bad("plan", "--hidden", "96", "--chunks", "8", has=["--chunks is 8", "1..2", "96"])
        self.bad("plan", "--chunks", "0", has=["--chunks", "'0'"])
        self.bad("plan", "--chunks", "100,200", has=["300", "512"])
        self.bad("plan", "--chunks", ",".join(["16"] * 33), has=["33 widths", "at most 32"])
        self.bad("plan", "--chunks", "256,256", "--ring", "3", has=["--ring", "'3'", "1..2"])
        self.bad("plan", "--tile-max-rows", "12", has=["12", "multiple of 8"])

    def test_backends_that_are_not_there(self):
        self.bad("run", "--backend", "cuda", has=["cuda", "host"])
        self.bad("faults", "--backend", "cuda", has=["'cuda'", "auto or host"])
        self.bad("faults", "--ranks", "1", has=["'1'", "2..8"])

    def test_what_to_bench(self):
        self.bad("bench", has=["what to bench is missing", "gemm"])
        self.bad("bench", "gem", has=["'gem'", "did you mean 'gemm'"])
        self.bad("bench", "plan", has=["'plan'", "one of gemm"])
        self.bad("bench", "gemm", "surplus", has="'surplus'")
        self.bad("bench", "gemm", "--threads", "2", has=["'--threads'", "an option of bench"])
        self.bad("bench", "gemm", "--dtype", "fp32", has=["--dtype", "'fp32'", "bf16 or fp16"])
        self.bad("bench", "gemm", "--tokens", "0", has=["--tokens", "'0'", "a token or more"])
        self.bad("bench", "gemm", "--repeat", "0", has=["--repeat", "'0'", "1..1000000"])
        self.bad("bench", "gemm", "--dist", "none", has=["--dist", "'none'"])
        self.bad("bench", "gemm", "--peers", self.folder, has=["--peers", "grouped_mm.py"])
        done = run("bench", "gemm", "--csv", "--json")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"\Acli: --csv [^\n]+ one of the two[^\n]+\n\Z")
        self.bad("run", "--csv", has=["'--csv'", "an option of run"])

    def test_memory_is_counted_before_it_is_taken(self):
        self.bad("run", "--preset", "deepseek-v3", "--experts", "1024", "--backend", "host",
                 has=["memory", "GiB", "available"])
        self.bad("run", "--hidden", "1048576", "--intermediate", "1048576", "--experts", "1024",
                 has=["TiB", "available"])
        self.bad("plan", "--ranks", "8", "--tokens", "4000000", "--topk", "60", "--experts", "64",
                 has=["memory", "tables"])

    def test_output_paths(self):
        self.bad("run", "--out", self.folder / "no" / "out", has=["no/out", "No such file"])
        self.bad("run", "--out", self.folder, has="a directory")
        self.bad("run", "--out", "", has="output file ''")
        self.bad("run", "--out", "/dev/null", has=["/dev/null", "no regular file"])
        self.assertTrue(os.path.exists("/dev/null") and not os.path.isfile("/dev/null"))

    def test_text_that_is_no_utf8_or_no_line(self):
        self.bad("run", "--preset", "a\nb", has="a?b")
        done = run("run", "--preset", os.fsdecode(b"\xff\xfe"), "--json")
        self.assertEqual(done.returncode, 2)


class ConfigTest(CliTest):
    def config(self, text, has, *more):
        path = self.write("job.toml", text)
        return self.bad("run", "--config", path, *more, has=["job.toml", *has])

    def test_files(self):
        self.bad("run", "--config", self.folder / "none.toml", has=["none.toml", "not there"])
        self.bad("run", "--config", self.folder, has="no regular file")
        self.bad("run", "--config", "/dev/zero", has="/dev/zero")
        self.config("a" * (1 << 21), ["too large"])

    def test_contents(self):
        self.config("ranks = ", ["line 1"])
        self.config("ranks = 2\nranks = 4\n", ["line 2"])
        self.config("# f\u00fcr\n\u00ff\u00fe = 1", ["line 2", "ASCII"])
        self.config('dist = "\u0151ne"', ["line 1", "ASCII", "double quotes"])
        self.config('dist = """\none"""', ["line 1", "one line"])
        self.config('dist = "\\u0151ne"  # \u0151', ["dist in", "'\u0151ne'"])
        self.config(b"\xff\xfe = 1", ["line 1"])
        self.config(b'dist = "\xff"', ["line 1"])
        self.config("rankss = 2", ["'rankss'", "did you mean 'ranks'"])
        self.config("colour = 1", ["'colour'", "run --help"])
        self.config("hidden = 64\n [run]\nranks = 2", ["line 2", "without tables"])
        self.config("[=", ["line 1", "without tables"])
        self.config("run.ranks = 2", ["'run'"])
        self.config("ranks = 9", ["ranks in", "'9'", "1..8"])
        self.config("ranks = 2.0", ["ranks in", "of type floating-point"])
        self.config("ranks = true", ["ranks in", "'true'"])
        self.config("ranks = {a = 1}", ["line 1", "without tables"])
        self.config("ranks.a = 1", ["ranks in", "of type table"])
        self.config("tokens = [[1], [2]]", ["tokens in", "of type array"])
        self.config("ranks = 2024-01-01", ["ranks in", "of type date"])
        self.config("tokens = [1, 2.5]", ["tokens in", "of type array"])
        self.config("tokens = [1, 2]", ["tokens in", "2 numbers"])
        self.config("no-check = 1", ["no-check in", "'1'", "true or false"])
        self.config('config = "x"', ["config in"])
        self.config('preset = "none"', ["preset in", "'none'"])


class InputTest(CliTest):
    def refused(self, has, *more, remove=(), **changes):
        path = self.write_layer(remove=remove, **changes)
        return self.bad("run", "--input", path, *more, has=["layer.safetensors", *has])

    def test_files_that_are_none(self):
        self.bad("run", "--input", self.folder / "none", has=["none", "No such file"])
        self.bad("run", "--input", self.folder, has="a directory")
        for name, content, expected in [
                ("empty", b"", "0 bytes"),
                ("short", b"\0\0\0", "3 bytes"),
                ("long", struct.pack("<Q", 1 << 60) + b"{}", str(1 << 60)),
                ("text", b"hello, this is no safetensors file", "header length"),
                ("json", file_bytes(b"{]"), "broken at byte"),
                ("numpy", b"\x93NUMPY\x01\0" + bytes(200), "header length"),
        ]:
            with self.subTest(name=name):
                self.bad("run", "--input", self.write(name, content), has=[name, expected])

    def test_a_file_cut_short_anywhere(self):
        whole = safetensors_bytes({"x": tensor("F32", (3,))})
        for size in range(0, len(whole), 7):
            self.bad("run", "--input", self.write("cut", whole[:size]), has="cut")

    def test_lying_headers(self):
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for header, expected in [
                ({"x": {**entry, "shape": [3]}}, "12 bytes for F32 [3]"),
                ({"x": {**entry, "data_offsets": [0, 800]}}, "[0, 800]"),
                ({"x": {**entry, "shape": [1 << 62, 4]}}, str(1 << 62)),
                ({"x": entry, "y": entry}, "overlap"),
                ({"x": {**entry, "dtype": "F31"}}, "'F31'"),
        ]:
            with self.subTest(expected=expected):
                self.bad("run", "--input", self.write("lie", file_bytes(header, bytes(8))),
                         has=["lie", expected])

    def test_tensors_that_are_missing(self):
        for name in ("hidden_states", "topk_ids", "topk_weights", "w_down", "w_gate_up"):
            with self.subTest(name=name):
                self.refused([f"tensor {name} is missing"], remove=[name])
        self.refused(["w_down is missing", "did you mean 'w_dwon'"], remove=["w_down"],
                     w_dwon=tensor("F32", (2, 4, 6)))
        self.refused(["w_up is missing"], remove=["w_gate_up"], w_gate=tensor("F32", (2, 6, 4)))
        self.refused(["fused and apart"], w_gate=tensor("F32", (2, 6, 4)))

    def test_shapes(self):
        for name, shape, dtype, expected in [
                ("hidden_states", (12,), "F32", "[12]"),
                ("hidden_states", (3, 0), "F32", "[3, 0]"),
                ("hidden_states", (4, 4), "F32", "[3, 2]"),
                ("topk_ids", (4, 2), "I32", "[4, 2], expected [3, K]"),
                ("topk_ids", (6,), "I32", "[6]"),
                ("topk_ids", (3, 0), "I32", "[3, 0]"),
                ("topk_ids", (3, 65), "I32", "[3, 65]"),
                ("topk_weights", (3, 1), "F32", "[3, 1], expected [3, 2]"),
                ("w_down", (2, 5, 6), "F32", "[2, 5, 6], expected [E, 4, I]"),
                ("w_down", (8, 6), "F32", "[8, 6]"),
                ("w_down", (0, 4, 6), "F32", "[0, 4, 6]"),
                ("w_gate_up", (2, 11, 4), "F32", "[2, 11, 4], expected [2, 12, 4]"),
                ("w_gate_up", (3, 12, 4), "F32", "[3, 12, 4], expected [2, 12, 4]"),
                ("tokens_per_rank", (3, 1), "I32", "[3, 1]"),
                ("tokens_per_rank", (9,), "I32", "[9]"),
        ]:
            with self.subTest(name=name, shape=shape):
                self.refused([expected], **{name: tensor(dtype, shape)})

    def test_types(self):
        for name, shape, dtype in [
                ("hidden_states", (3, 4), "F64"),
                ("hidden_states", (3, 4), "I32"),
                ("topk_ids", (3, 2), "F32"),
                ("topk_weights", (3, 2), "I64"),
                ("w_down", (2, 4, 6), "U8"),
                ("tokens_per_rank", (1,), "F32"),
        ]:
            with self.subTest(name=name, dtype=dtype):
                self.refused([f"dtype of {name} is {dtype}"], **{name: tensor(dtype, shape)})

    def test_values(self):
        nan, infinity = float("nan"), float("inf")
        self.refused(["topk_ids[1, 0] is 2", "0..1 or -1"],
                     topk_ids=tensor("I32", (3, 2), [0, 1, 2, 0, 1, 1]))
        self.refused(["topk_ids[2, 1] is -2"],
                     topk_ids=tensor("I64", (3, 2), [0, 1, 1, 0, 1, -2]))
        self.refused([f"topk_ids[0, 0] is {1 << 32}"],
                     topk_ids=tensor("I64", (3, 2), [1 << 32, 0, 0, 0, 0, 0]))
        self.refused(["hidden_states[1, 2] is nan"],
                     hidden_states=tensor("F32", (3, 4), [0.0] * 6 + [nan] + [0.0] * 5))
        self.refused(["topk_weights[0, 0] is -inf"],
                     topk_weights=tensor("F32", (3, 2), [-infinity] + [0.0] * 5))
        self.refused(["w_down[1, 3, 5] is inf"],
                     w_down=tensor("F32", (2, 4, 6), [0.0] * 47 + [infinity]))
        self.refused(["w_gate_up[0, 11, 0] is nan"],
                     w_gate_up=tensor("F32", (2, 12, 4), [0.0] * 44 + [nan] + [0.0] * 51))
        self.refused(["hidden_states[0, 0] is 70000", "--dtype bf16 or fp32"], "--dtype", "fp16",
                     hidden_states=tensor("F32", (3, 4), [7e4] + [0.0] * 11))
        self.refused(["tokens_per_rank is [1, 1]", "sum 3"],
                     tokens_per_rank=tensor("I32", (2,), [1, 1]))
        self.refused(["tokens_per_rank is [4, -1]"],
                     tokens_per_rank=tensor("I64", (2,), [4, -1]))
        self.refused(["tokens_per_rank"],
                     tokens_per_rank=tensor("I64", (3,), [(1 << 63) - 1, (1 << 63) - 1, 5]))

    def test_options_that_contradict_the_file(self):
        self.refused(["--experts is 3", "expected 2"], "--experts", "3")
        self.refused(["--hidden is 8", "expected 4"], "--hidden", "8")
        self.refused(["--intermediate is 12", "expected 6"], "--intermediate", "12")
        self.refused(["--topk is 1", "expected 2"], "--topk", "1")
        self.refused(["--tokens is '4'", "sum 3"], "--tokens", "4")
        self.refused(["--tokens is '2,2'", "sum 3"], "--ranks", "2", "--tokens", "2,2")
        two_ranks = {"tokens_per_rank": tensor("I32", (2,), [1, 2])}
        self.refused(["--ranks is 3", "expected 2"], "--ranks", "3", **two_ranks)
        self.refused(["--tokens is '2,1'", "[1, 2]"], "--tokens", "2,1", **two_ranks)
        for option, value in [("--preset", "demo"), ("--dist", "uniform"), ("--seed", "1")]:
            with self.subTest(option=option):
                self.bad("run", "--input", self.write_layer(), option, value,
                         has=[option, f"'{value}'", "input file"])

    def test_widths_that_ranks_do_not_divide(self):
        self.bad("run", "--input", self.write_layer(), "--ranks", "4",
                 has=["--intermediate is 6", "4 ranks"])


if __name__ == "__main__":
    unittest.main()
