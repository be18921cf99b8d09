import unittest

from ledgerline import config
from ledgerline.config import ConfigError


class ConfigTest(unittest.TestCase):
    def test_sections_and_keys(self):
        found = config.parse("top = 1\n[Net]\nHost = a.b = c\n")
        self.assertEqual(found, {"main": {"top": "1"}, "net": {"host": "a.b = c"}})

    def test_comments_and_blank_lines(self):
        self.assertEqual(config.parse("# x\n; y\n\na = 1\n"), {"main": {"a": "1"}})

    def test_value_over_lines(self):
        self.assertEqual(config.parse("a = 1\n  2\n\tthree\nb = x\n"), {"main": {"a": "1\n2\nthree", "b": "x"}})

    def test_blank_line_ends_a_value(self):
        with self.assertRaisesRegex(ConfigError, "line 3"):
            config.parse("a = 1\n\n  2\n")

    def test_refusals_name_the_line(self):
        for text, line in (("a\n", 1), ("[x\n", 1), ("a=1\n[]\n", 2), ("a=1\na=2\n", 2), ("= 1\n", 1)):
            with self.subTest(text), self.assertRaisesRegex(ConfigError, f"line {line}:"):
                config.parse(text)

    def test_empty_section_stays(self):
        self.assertEqual(config.parse("[x]\n"), {"x": {}})

    def test_round_trip(self):
        settings = {"main": {"a": "1"}, "x": {"b": "two\nlines", "c": ""}}
        self.assertEqual(config.parse(config.dump(settings)), settings)

    def test_layered(self):
        found = config.layered({"a": {"x": "1", "y": "2"}}, {"a": {"y": "3"}, "b": {"z": "4"}})
        self.assertEqual(found, {"a": {"x": "1", "y": "3"}, "b": {"z": "4"}})

    def test_layered_leaves_layers_alone(self):
        base = {"a": {"x": "1"}}
        config.layered(base, {"a": {"x": "2"}})
        self.assertEqual(base, {"a": {"x": "1"}})

    def test_expand(self):
        settings = {"main": {"root": "/srv", "logs": "${root}/logs"}, "web": {"dir": "${main.logs}/web", "port": "${port2:80}"}}
        found = config.expand(settings)
        self.assertEqual(found["web"], {"dir": "/srv/logs/web", "port": "80"})

    def test_expand_prefers_the_value_to_the_fallback(self):
        self.assertEqual(config.expand({"a": {"x": "1", "y": "${x:9}"}})["a"]["y"], "1")
        self.assertEqual(config.expand({"a": {"y": "[${x:}]"}})["a"]["y"], "[]")

    def test_expand_refuses_circles_and_gaps(self):
        with self.assertRaisesRegex(ConfigError, "a.x refers to itself through a.x"):
            config.expand({"a": {"x": "${x}"}})
        with self.assertRaisesRegex(ConfigError, "refers to a.y, which is not set"):
            config.expand({"a": {"x": "${y}"}})

    def test_boolean(self):
        self.assertEqual([config.boolean(w) for w in ("Yes", "on", "1", "no", "OFF", "0")], [True, True, True, False, False, False])
        with self.assertRaises(ConfigError):
            config.boolean("maybe")

    def test_listing(self):
        self.assertEqual(config.listing("a, b\n\nc,,"), ["a", "b", "c"])
