"""The Python in `docs/guide/python.md`, run."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEMO = ROOT / "crates/cli/demo/demo.pcapng"
# A line of what each prints.
PRINTED = ["192.0.2.10 www.shop.example 2442", "www.shop.example", "www.shop.example", "www.example.org no name"]


class Guide(unittest.TestCase):
    def test_each_example_runs(self):
        text = (ROOT / "docs/guide/python.md").read_text()
        examples = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(examples), len(PRINTED))
        for example, printed in zip(examples, PRINTED):
            with self.subTest(example), tempfile.TemporaryDirectory() as folder:
                shutil.copy(DEMO, pathlib.Path(folder) / "monday.pcap")
                done = subprocess.run(
                    [sys.executable, "-c", example], cwd=folder, env=dict(os.environ, POLARS_FMT_MAX_ROWS="100"),
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
                if lacks := re.search(r"No module named '(duckdb|polars)'", done.stderr):
                    print(f"SKIP python: {lacks[1]} is not installed, so its example does not run", file=sys.stderr)
                    continue
                self.assertEqual(done.stderr, "")
                self.assertIn(printed, done.stdout)


if __name__ == "__main__":
    unittest.main()
