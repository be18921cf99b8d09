import unittest

from ledgerline import changes


class ChangesTest(unittest.TestCase):
    def test_edits(self):
        found = changes.edits(["a", "b", "c"], ["a", "x", "c", "d"])
        self.assertEqual(found, [(" ", "a"), ("-", "b"), ("+", "x"), (" ", "c"), ("+", "d")])

    def test_edits_of_nothing(self):
        self.assertEqual(changes.edits([], ["a"]), [("+", "a")])
        self.assertEqual(changes.edits(["a"], []), [("-", "a")])
        self.assertEqual(changes.edits([], []), [])

    def test_edits_are_shortest(self):
        found = changes.edits(list("abcabba"), list("cbabac"))
        self.assertEqual(sum(mark != " " for mark, _ in found), 5)

    def test_apply(self):
        left, right = list("abcabba"), list("cbabac")
        self.assertEqual(changes.apply(left, changes.edits(left, right)), right)

    def test_apply_refuses_other_lines(self):
        script = changes.edits(["a", "b"], ["a"])
        for lines in (["a", "c"], ["a"], ["a", "b", "c"]):
            with self.subTest(lines), self.assertRaises(ValueError):
                changes.apply(lines, script)

    def test_summary(self):
        self.assertEqual(changes.summary(changes.edits(["a", "b"], ["b", "c", "d"])), "+2 -1")

    def test_similarity(self):
        self.assertEqual(changes.similarity(["a", "b"], ["a", "c"]), 0.5)
        self.assertEqual(changes.similarity([], []), 1.0)
        self.assertEqual(changes.similarity(["a"], []), 0.0)

    def test_flatten(self):
        self.assertEqual(changes.flatten({"a": {"b": [1, {"c": 2}]}, "d": 3}), {"a.b[0]": 1, "a.b[1].c": 2, "d": 3})

    def test_flatten_keeps_empty(self):
        self.assertEqual(changes.flatten({"a": {}, "b": []}), {"a": {}, "b": []})

    def test_compare(self):
        found = changes.compare({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"x": 1, "y": 3}, "c": 4})
        self.assertEqual(found, {"a.y": (2, 3), "b": (1, None), "c": (None, 4)})

    def test_compare_equal(self):
        self.assertEqual(changes.compare({"a": [1, 2]}, {"a": [1, 2]}), {})
