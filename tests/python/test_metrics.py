"""test_metrics.py : sums of sessions as JSON and Prometheus text, and the file that an engine writes them to."""
import json
import os
import re
import types

import numpy as np

import specrt
from specrt import vllm as plugin
from specrt.metrics import SUMS, Exporter, Metrics
from test_specrt import Folder


def value(text, name, policy):
    """Of a counter in Prometheus' text."""
    found = re.search(rf'^specrt_{name}_total{{policy="{re.escape(policy)}"}} (\d+)$', text, re.M)
    return int(found.group(1))


class Sums(Folder):
    def test_session(self):
        """Numbers of real sessions, added up by policy."""
        rows = np.random.default_rng(1).standard_normal((60, 8)).astype(np.float32)
        metrics, head = Metrics(), specrt.Head(rows)
        for text, answers in ("window:8@kver=1@min=0", ([3, 4, 5, 3], [6, 6])), ("full", ([7, 8, 9],)):
            policy = specrt.Policy(text, head)
            for answer in answers:
                session = specrt.Session(policy, 60, specrt.Tree(1, 1, 2))
                session.begin()
                session.prefill([1, 2])
                session.start(answer[0])
                for before, after in zip(answer, answer[1:]):
                    session.observe_chain([before], 0, after, np.zeros((1, 60), np.float32))
                metrics.add(str(policy), session.stats())
        found = json.loads(metrics.json())["policies"]
        window, full = found["window:8@kver=1@min=0"], found["full"]
        self.assertEqual((window["cycles"], window["emitted_tokens"], window["accept_length"]), (4, 4, 1.0))
        self.assertEqual(window["covered_tokens"], 2)  # the second 3 and the second 6
        self.assertEqual((window["coverage"], full["coverage"], full["rows_per_cycle"]), (0.5, 1.0, 60.0))
        text = metrics.prometheus()
        for policy, numbers in found.items():
            for name in SUMS:
                self.assertEqual(value(text, name, policy), numbers[name])
        for name in SUMS:  # a family's lines follow its own two
            self.assertEqual(text.count(f"# TYPE specrt_{name}_total counter\n"), 1)
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) specrt_[a-z_]+_total .+|specrt_[a-z_]+_total\{policy="[^"]+"\} \d+)$')

    def test_nothing(self):
        self.assertEqual(json.loads(Metrics().json()), {"policies": {}})
        metrics = Metrics()
        metrics.add('a"b\\\n', {"plain_cycles": 2})
        self.assertIsNone(json.loads(metrics.json())["policies"]['a"b\\\n']["coverage"])
        self.assertIn('specrt_plain_cycles_total{policy="a\\"b\\\\\\n"} 2\n', metrics.prometheus())

    def test_file(self):
        """JSON or Prometheus text by the name; written again when its time has come, and whole."""
        metrics = Metrics()
        for name, begins in ("m.json", "{"), ("m.prom", "# HELP"), ("m-{pid}.prom", "# HELP"):
            exporter = Exporter(self.path(name), lambda: metrics, seconds=1000)
            exporter.tick()
            path = self.path(name.replace("{pid}", str(os.getpid())))
            with open(path) as file:
                self.assertTrue(file.read().startswith(begins))
            os.remove(path)
            exporter.tick()
            self.assertFalse(os.path.exists(path))
            exporter.seconds = 0
            exporter.tick()
            self.assertTrue(os.path.exists(path))
        self.says("gone/m: expected a file in a folder that is there", plugin.export,
                  types.SimpleNamespace(collect=lambda: metrics), self.path("gone/m"))
