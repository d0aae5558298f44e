"""What the commands do with good input: results, JSON, files, configuration.

Run by ctest as `cli_good_run`. Standard library only.
"""

import math
import os
import pathlib
import subprocess
import unittest

from cli_harness import (CliTest, PROGRAM, layer_tensors, parse_json, read_safetensors, run,
                         safetensors_bytes, tensor)

SMALL = ["--hidden", "64", "--intermediate", "32", "--tokens", "5"]


class InfoTest(CliTest):
    def test_json_and_text_agree(self):
        info = self.good("info")
        text = run("info").stdout
        self.assertIn(info["build"]["version"], text)
        self.assertIn(info["machine"]["cpu"], text)
        self.assertGreaterEqual(info["machine"]["cores"], 1)
        self.assertGreater(info["machine"]["memory_bytes"], 1 << 28)
        if not info["gpus"]:
            self.assertIn("no GPU", info["gpus_note"])
            self.assertIn("no GPU", text)
        self.assertEqual(run("--version").stdout.strip(), info["build"]["version"])

    def test_a_driver_that_hides_every_gpu_is_no_crash(self):
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([PROGRAM, "info", "--json"], capture_output=True, text=True,
                              env=environment, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(parse_json(done.stdout)["gpus"], [])


class HelpTest(CliTest):
    def test_every_command_has_examples(self):
        self.assertEqual(run("--help").returncode, 0)
        for command in ("info", "plan", "run", "verify", "faults", "bench"):
            done = run(command, "--help")
            self.assertEqual(done.returncode, 0, command)
            self.assertIn(f"slipstream {command}", done.stdout)
            self.assertEqual(done.stderr, "")

    def test_examples_that_need_no_file_run(self):
        for line in run("plan", "--help").stdout.splitlines():
            if not line.startswith("  slipstream plan"):
                continue
            done = run(*line.split()[1:])
            self.assertEqual(done.returncode, 0, f"{line}: {done.stderr}")


class PlanTest(CliTest):
    def test_the_published_shape(self):
        plan = self.good("plan", "--preset", "seed", "--dist", "uniform")
        self.assertEqual(plan["routed_rows"], 16384)
        self.assertAlmostEqual(plan["tile_policies"]["fixed128"]["padding_tax"], 0.19, delta=0.03)
        self.assertLess(plan["tile_policies"]["balanced"]["padding_tax"], 0.03)
        readiness = plan["readiness"]
        self.assertAlmostEqual(readiness["one_chunk_no_segments"]["half_jobs_ready_at"], 0.91,
                               delta=0.015)
        self.assertLess(readiness["tuning"]["half_jobs_ready_at"], 0.6)
        self.assertEqual(sum(plan["tuning"]["chunk_widths"]), 4096)

    def test_tuning_options_arrive(self):
        plan = self.good("plan", "--tile-policy", "fixed128", "--row-order", "ascending", "--segments",
                         "2", "--chunks", "256,128,128", "--ring", "1", "--delivery", "scatter",
                         "--partial", "bf16", "--tile-max-rows", "64")
        tuning = plan["tuning"]
        self.assertEqual(tuning["tile_policy"], "fixed128")
        self.assertEqual(tuning["row_order"], "ascending")
        self.assertEqual(tuning["segments"], 2)
        self.assertEqual(tuning["chunk_widths"], [256, 128, 128])
        self.assertEqual(tuning["ring_chunks"], 1)
        self.assertEqual(tuning["delivery"], "scatter")
        self.assertEqual(tuning["partial_dtype"], "bf16")
        self.assertEqual(tuning["tile_max_rows"], 64)
        self.assertEqual(plan["padding_tax"], plan["tile_policies"]["fixed128"]["padding_tax"])
        self.assertEqual(self.good("plan", "--chunks", "4")["tuning"]["chunk_widths"], [128] * 4)

    def test_every_preset_and_distribution(self):
        for preset, experts in [("seed", 64), ("demo", 8), ("mixtral-8x7b", 8),
                                ("qwen3-30b-a3b", 128), ("qwen3-235b-a22b", 128),
                                ("deepseek-v3", 256), ("gpt-oss-120b", 128), ("olmoe-1b-7b", 64)]:
            plan = self.good("plan", "--preset", preset, "--tokens", "64")
            self.assertEqual(plan["problem"]["experts"], experts)
            self.assertTrue(plan["preset_source"])
            self.assertEqual(run("plan", "--preset", preset, "--tokens", "8").returncode, 0)
        for dist in ("balanced", "uniform", "zipf:1.2", "stddev:0.4", "one"):
            plan = self.good("plan", "--preset", "seed", "--dist", dist)
            self.assertEqual(plan["routing"], dist)

    def test_no_tokens_give_no_nan(self):
        for tokens in ("0", "0,0,0,1"):
            plan = self.good("plan", "--tokens", tokens)
            self.assertEqual(plan["routed_rows"], 2 * int(tokens[-1]))
            self.assertNotIn("nan", run("plan", "--tokens", tokens).stdout)


class RunTest(CliTest):
    def check_passed(self, result):
        self.assertTrue(result["passed"])
        self.assertTrue(result["check"]["passed"])
        self.assertEqual(result["check"]["tokens_checked"], result["tokens"])
        self.assertLessEqual(result["check"]["relative_error"], result["check"]["tolerance"])

    def test_uneven_tokens_and_zipf(self):
        result = self.good("run", "--preset", "demo", "--ranks", "4", "--tokens", "7,0,129,1",
                           "--dist", "zipf:1.2", "--backend", "host")
        self.assertEqual(result["tokens_per_rank"], [7, 0, 129, 1])
        self.assertEqual(result["backend"], "host")
        self.assertGreater(result["seconds"]["total"], 0)
        self.check_passed(result)
        # Not so small that it says nothing: outputs are of size 1.
        self.assertGreater(result["check"]["relative_error"], 1e-4)

    def test_the_text_ends_with_the_check(self):
        done = run("run", *SMALL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "", "progress is for terminals")
        self.assertRegex(done.stdout.splitlines()[-1], r"^check    PASS: 20 of 20 tokens ")
        done = run("run", *SMALL, "--no-check")
        self.assertEqual(done.stdout.splitlines()[-1], "check    left out (--no-check)")
        self.assertIsNone(self.good("run", *SMALL, "--no-check")["check"])

    def test_types(self):
        for dtype, most in [("fp32", 1e-6), ("fp16", 1e-3), ("bf16", 8e-3)]:
            result = self.good("run", *SMALL, "--dtype", dtype)
            self.check_passed(result)
            self.assertLessEqual(result["check"]["tolerance"], most)

    def test_ranks_and_repeats(self):
        for ranks in (1, 2, 8):
            result = self.good("run", *SMALL, "--ranks", ranks, "--repeat", "3", "--threads", "2")
            self.check_passed(result)
            self.assertTrue(result["same_bits"])
            self.assertEqual(result["repeats"], 3)

    def test_no_tokens(self):
        for tokens in ("0", "0,0,3,0"):
            self.check_passed(self.good("run", "--hidden", "64", "--tokens", tokens))

    def test_same_layer_whatever_the_ranks_and_the_tuning(self):
        outputs = []
        for number, more in enumerate((["--ranks", "1", "--tokens", "12"],
                                       ["--ranks", "4", "--tokens", "3", "--chunks", "1"],
                                       ["--ranks", "2", "--tokens", "12,0", "--segments", "3"])):
            path = self.folder / f"out{number}"
            self.good("run", "--hidden", "64", "--intermediate", "32", "--dtype", "fp32", "--out",
                      path, *more)
            tensors = read_safetensors(path)
            self.assertEqual(tensors["out"][:2], ("F32", [12, 64]))
            outputs.append(tensors["out"][2])
        self.assertEqual(read_safetensors(path)["tokens_per_rank"], ("I32", [2], [12, 0]))
        for output in outputs[1:]:
            for a, b in zip(outputs[0], output):
                self.assertTrue(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5), (a, b))
        self.assertGreater(max(map(abs, outputs[0])), 0.1)

    def test_output_file_is_replaced_whole_and_the_same_again(self):
        path = self.write("out", b"old")
        self.good("run", *SMALL, "--out", path)
        first = path.read_bytes()
        self.good("run", *SMALL, "--out", path)
        self.assertEqual(path.read_bytes(), first)
        self.assertEqual([entry.name for entry in self.folder.iterdir()], ["out"])


class InputTest(CliTest):
    def test_ranks_tokens_and_dtype(self):
        path = self.write_layer()
        result = self.good("run", "--input", path)
        self.assertEqual(result["tokens_per_rank"], [3])
        self.assertEqual(result["problem"]["dtype"], "fp32")
        self.assertIsNone(result["routing"])
        self.assertEqual(
            self.good("run", "--input", path, "--ranks", "2")["tokens_per_rank"], [1, 2])
        self.assertEqual(
            self.good("run", "--input", path, "--ranks", "3", "--tokens", "0,3,0")["tokens_per_rank"],
            [0, 3, 0])
        self.assertEqual(
            self.good("run", "--input", path, "--dtype", "bf16")["problem"]["dtype"], "bf16")
        # Saying again what the file says is fine.
        self.good("run", "--input", path, "--experts", "2", "--hidden", "4", "--intermediate", "6",
                  "--topk", "2", "--tokens", "3")

    def test_tokens_per_rank_in_the_file(self):
        path = self.write_layer(tokens_per_rank=tensor("I64", (3,), [2, 0, 1]))
        self.assertEqual(self.good("run", "--input", path)["tokens_per_rank"], [2, 0, 1])
        self.good("run", "--input", path, "--ranks", "3", "--tokens", "2,0,1")

    def test_other_tensors_are_named(self):
        path = self.write_layer(router=tensor("F32", (2, 4)))
        self.assertEqual(self.good("run", "--input", path)["ignored_tensors"], ["router"])
        self.assertIn("router", run("run", "--input", path).stdout)

    def test_by_hand(self):
        # One expert, one column: y = silu(2) * 3 of the first token, out = 0.5 * y * [1, -1].
        tensors = {
            "hidden_states": tensor("F32", (2, 2), [1.0, 2.0, 5.0, 5.0]),
            "topk_ids": tensor("I32", (2, 1), [0, -1]),
            "topk_weights": tensor("F32", (2, 1), [0.5, 1.0]),
            "w_gate_up": tensor("F32", (1, 2, 2), [0.0, 1.0, 3.0, 0.0]),
            "w_down": tensor("F32", (1, 2, 1), [1.0, -1.0]),
        }
        path = self.write("hand", safetensors_bytes(tensors))
        self.good("run", "--input", path, "--out", self.folder / "out")
        y = 2 / (1 + math.exp(-2)) * 3
        found = read_safetensors(self.folder / "out")["out"][2]
        for value, wanted in zip(found, [0.5 * y, -0.5 * y, 0.0, 0.0]):
            self.assertAlmostEqual(value, wanted, places=6)

    def test_no_tokens_and_unaligned_data(self):
        tensors = layer_tensors(tokens=0)
        self.good("run", "--input", self.write("none", safetensors_bytes(tensors)), "--ranks", "2")
        whole = safetensors_bytes(layer_tensors(dtype="F32"))
        for spaces in (1, 2, 3):  # moves the data off every boundary
            length = int.from_bytes(whole[:8], "little")
            moved = (length + spaces).to_bytes(8, "little") + whole[8:8 + length] + b" " * spaces
            self.good("run", "--input", self.write("moved", moved + whole[8 + length:]))

    def test_writing_over_the_input(self):
        path = self.write_layer()
        self.good("run", "--input", path, "--out", path)
        self.assertEqual(read_safetensors(path)["out"][1], [3, 4])


class ConfigTest(CliTest):
    def test_names_and_precedence(self):
        path = self.write("job.toml", 'preset = "demo"  # f\u00fcr\nranks = 2\ntokens = [\n  3, 4\n]\nhidden = 64\n'
                          'dist = "zipf:1.1"\nno-check = true\nout = "unused by plan"\n')
        plan = self.good("plan", "--config", path)
        self.assertEqual(plan["tokens_per_rank"], [3, 4])
        self.assertEqual(plan["routing"], "zipf:1.1")
        plan = self.good("plan", "--config", path, "--tokens", "9", "--dist", "one")
        self.assertEqual(plan["tokens_per_rank"], [9, 9])
        self.assertEqual(plan["routing"], "one")
        result = self.good("run", "--config", path, "--out", self.folder / "out")
        self.assertIsNone(result["check"])
        self.assertEqual(result["problem"]["hidden"], 64)

    def test_json_by_file(self):
        done = run("plan", "--config", self.write("job.toml", "json = true\ntokens = 1\n"))
        self.assertEqual(parse_json(done.stdout)["tokens_per_rank"], [1] * 4)


class VerifyTest(CliTest):
    def test_anchors(self):
        report = self.good("verify", "--backend", "host")
        self.assertEqual([anchor["result"] for anchor in report["anchors"]],
                         ["PASS", "PASS", "SKIPPED"])
        self.assertTrue(report["passed"])
        self.assertGreater(report["anchors"][0]["cases"], 100)
        self.assertGreater(report["anchors"][1]["cases"], 10)
        done = run("verify", "--seed", "7")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len(done.stdout.splitlines()), 5, "three anchors, the first has two parts")


class FaultsTest(CliTest):
    def test_scenarios_say_what_was_expected_and_observed(self):
        done = run("faults", "--backend", "host", "--json")
        report = parse_json(done.stdout)
        # Whether each passes is for the layer's own tests; here the exit code must say the same.
        self.assertEqual(done.returncode, 0 if report["passed"] else 1)
        self.assertEqual(report["passed"], all(s["passed"] for s in report["scenarios"]))
        self.assertGreaterEqual(len(report["scenarios"]), 9)
        for scenario in report["scenarios"]:
            self.assertTrue(scenario["expected"] and scenario["observed"], scenario)


class StdoutTest(CliTest):
    def test_a_full_disk_is_told(self):
        if not pathlib.Path("/dev/full").exists():
            self.skipTest("no /dev/full")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True,
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"\Acli: stdout [^\n]+\n\Z")


if __name__ == "__main__":
    unittest.main()
