"""What the commands that want a GPU say where there is none: SKIPPED, and never a figure.

Run by ctest as `cli_no_gpu`. Hides the GPUs that are there. Standard library only.
"""

import os
import unittest

from cli_harness import CliTest, parse_json, run

os.environ["CUDA_VISIBLE_DEVICES"] = ""


class BenchTest(CliTest):
    def test_gemm_is_skipped(self):
        report = self.good("bench", "gemm", "--preset", "seed", "--dist", "uniform")
        self.assertEqual(report["command"], "bench gemm")
        self.assertEqual(report["result"], "SKIPPED")
        self.assertRegex(report["why"], "GPU|CUDA")
        self.assertEqual(report["problem"]["intermediate_per_rank"], 768)
        self.assertEqual(report["results"], [])
        done = run("bench", "gemm")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\Agemm     SKIPPED: [^\n]+\n\Z")
        self.assertEqual(done.stderr, "", "progress is for terminals")

    def test_csv_keeps_its_columns(self):
        done = run("bench", "gemm", "--csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        header, line = done.stdout.splitlines()
        self.assertEqual(header.split(",")[-1], "result")
        self.assertEqual(line.count(","), header.count(","))
        self.assertTrue(line.endswith(",SKIPPED"), line)

    def test_options_by_file(self):
        path = self.write("job.toml", 'preset = "seed"\nranks = 2\njson = true\n')
        done = run("bench", "gemm", "--config", path)
        self.assertEqual(parse_json(done.stdout)["problem"]["intermediate_per_rank"], 1536)

class VerifyTest(CliTest):
    def test_one_number_of_ranks(self):
        report = self.good("verify", "--ranks", "4")
        self.assertEqual(report["ranks"], 4)
        self.assertTrue(report["passed"])
        self.assertEqual([anchor["result"] for anchor in report["anchors"]],
                         ["PASS", "PASS", "SKIPPED"])
        host, gpu = report["anchors"][0]["parts"]
        self.assertEqual((host["name"], host["result"]), ("host builder", "PASS"))
        self.assertEqual((gpu["name"], gpu["result"]), ("GPU builder", "SKIPPED"))
        self.assertEqual(gpu["cases"], 0)
        self.assertIn("no GPU", gpu["detail"])

    def test_a_builder_left_out_says_why(self):
        gpu = self.good("verify", "--backend", "host")["anchors"][0]["parts"][1]
        self.assertEqual((gpu["result"], gpu["detail"]), ("SKIPPED", "--backend is host"))


class InfoTest(CliTest):
    def test_probe_has_nothing_to_measure(self):
        info = self.good("info", "--probe")
        self.assertEqual(info["gpus"], [])
        self.assertIn("no GPU", info["gpus_note"])
        self.assertNotIn("gpu_links", info)


if __name__ == "__main__":
    unittest.main()
