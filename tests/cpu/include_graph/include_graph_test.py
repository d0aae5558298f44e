"""Plants violations in a small tree and checks that include_graph.py names each one.

Run by ctest (`include_graph_self_test`). A checker that finds nothing proves nothing.
"""

import contextlib
import io
import pathlib
import tempfile
import unittest

import include_graph

HERE = pathlib.Path(__file__).resolve().parent


class IncludeGraphTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        # A legal tree, checked with the project's own graph.
        self.write("include/slipstream/status.h", "#include <string>\n")
        self.write("include/slipstream/config.h", "")
        self.write("include/slipstream/layer.h", '#include "slipstream/status.h"\n')
        self.write("src/core/numeric.h", "#include <bit>\n")
        self.write("src/protocol/gate.h", '#include <atomic>\n#include "slipstream/status.h"\n')
        self.write("src/schedule/golden.h", '#include "core/numeric.h"\n')
        self.write("src/gemm/engine.h", "#include <cuda/ptx>\n")
        self.write("src/host/drive.cc", '#include "schedule/golden.h"\n#include <cblas.h>\n')
        self.write("cli/main.cc", '#include "slipstream/layer.h"\n#include <CLI/CLI.hpp>\n')

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run_checker(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = include_graph.main(["--root", str(self.root)])
        return code, output.getvalue()

    def expect_violation(self, path, text, *expected):
        self.write(path, text)
        code, output = self.run_checker()
        self.assertEqual(code, 1, output)
        for piece in expected:
            self.assertIn(piece, output)
        self.assertIn(" 1 includes not allowed", output)

    def test_the_legal_tree_passes(self):
        code, output = self.run_checker()
        self.assertEqual(code, 0, output)

    def test_host_never_sees_gemm(self):
        self.expect_violation(
            "src/host/role.cc", '// why\n\n#include "gemm/engine.h"\n',
            'src/host/role.cc:3: host includes "gemm/engine.h"; allowed: {host public core')

    def test_public_headers_see_only_public_headers(self):
        self.expect_violation(
            "include/slipstream/problem.h", '#include "core/numeric.h"\n',
            'include/slipstream/problem.h:1: public includes "core/numeric.h"; allowed: {public |')

    def test_protocol_sees_the_error_header_and_not_the_layer(self):
        self.expect_violation(
            "src/protocol/bad.h", '#include "slipstream/layer.h"\n',
            'src/protocol/bad.h:1: protocol includes "slipstream/layer.h"; allowed: '
            "{protocol public/config.h public/status.h")

    def test_memory_orders_stay_in_protocol(self):
        self.expect_violation("src/host/counter.h", "#include <atomic>\n",
                              "src/host/counter.h:1: host includes <atomic> (atomic); allowed:")

    def test_protocol_has_no_locks(self):
        self.expect_violation("src/protocol/lock.h", "#include <mutex>\n",
                              "src/protocol/lock.h:1: protocol includes <mutex> (threads)")

    def test_a_file_with_a_node_of_its_own_is_not_part_of_its_folder(self):
        self.write("src/protocol/report.h", '#include "protocol/gate.h"\n#include <fmt/format.h>\n')
        self.expect_violation("src/protocol/spin.h", '#include "protocol/report.h"\n',
                              'src/protocol/spin.h:1: protocol includes "protocol/report.h"')

    def test_nobody_includes_the_command_line(self):
        self.write("cli/options.h", "")
        self.expect_violation("src/layer/plan.cc", '#include "../../cli/options.h"\n',
                              'src/layer/plan.cc:1: layer includes "../../cli/options.h"')

    def test_a_path_through_the_parent_folder_does_not_hide_the_target(self):
        self.expect_violation("src/host/sly.cc", '#include "../gemm/engine.h"\n',
                              'src/host/sly.cc:1: host includes "../gemm/engine.h"')

    def test_angle_brackets_do_not_hide_a_project_header(self):
        self.expect_violation("src/schedule/sly.h", "#  include <slipstream/layer.h>\n"
                              "#include <gemm/engine.h>\n",
                              "src/schedule/sly.h:2: schedule includes <gemm/engine.h>")

    def test_unknown_external_header(self):
        self.expect_violation("src/core/extra.cc", "#include <boost/any.hpp>\n",
                              "core includes <boost/any.hpp> (no group has it)")

    def test_quoted_header_that_is_nowhere(self):
        self.expect_violation("src/core/lost.cc", '#include "core/nowhere.h"\n',
                              'src/core/lost.cc:1: core includes "core/nowhere.h": no such file')

    def test_computed_include(self):
        self.expect_violation("src/core/macro.cc", "#include HEADER\n", "can be checked")

    def test_folder_without_a_node(self):
        self.write("src/novel/thing.h", "")
        code, output = self.run_checker()
        self.assertEqual(code, 1)
        self.assertIn("src/novel/thing.h:1: no node", output)

    def test_comments_are_no_includes_and_keep_line_numbers(self):
        self.expect_violation(
            "src/host/commented.cc",
            '// #include "gemm/engine.h"\n/*\n#include "gemm/engine.h"\n*/\n#include "gemm/engine.h"\n',
            "src/host/commented.cc:5: ")

    def test_an_empty_tree_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            self.root = pathlib.Path(folder)
            self.assertEqual(self.run_checker()[0], 2)


class AllowedFileTest(unittest.TestCase):
    def test_a_cycle_cannot_be_written_down(self):
        with self.assertRaisesRegex(include_graph.GraphError, "allowed.txt:1: .* not above it"):
            include_graph.Graph("node a src/a | b | std\nnode b src/b | a | std\n")

    def test_nobody_names_the_programs(self):
        graph = include_graph.Graph((HERE / "allowed.txt").read_text(encoding="utf-8"))
        for node in graph.nodes.values():
            for project in node.projects:
                self.assertNotIn(project.split("/")[0], ("cli", "bench"), node.name)


if __name__ == "__main__":
    unittest.main()
