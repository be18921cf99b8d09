import unittest

from ledgerline import tables
from ledgerline.tables import CENTER, RIGHT, Column


class TablesTest(unittest.TestCase):
    def test_pad(self):
        self.assertEqual(tables.pad("ab", 5), "ab   ")
        self.assertEqual(tables.pad("ab", 5, RIGHT), "   ab")
        self.assertEqual(tables.pad("ab", 5, CENTER), " ab  ")
        self.assertEqual(tables.pad("abcdef", 3, CENTER), "abcdef")

    def test_widths(self):
        self.assertEqual(tables.widths([Column("id"), Column("n", width=3)], [["1234", "12345"]]), [4, 3])
        self.assertEqual(tables.widths([Column("title")], []), [5])

    def test_cut(self):
        self.assertEqual(tables.cut("abcdef", 4), "abc~")
        self.assertEqual(tables.cut("abcd", 4), "abcd")

    def test_render(self):
        found = tables.render([Column("item"), Column("n", RIGHT)], [["pen", "12"], ["paper", "3"]])
        self.assertEqual(found, "item    n\n-----  --\npen    12\npaper   3")

    def test_render_cuts_to_width(self):
        self.assertIn("abc~", tables.render([Column("x", width=4)], [["abcdefg"]]))

    def test_render_refuses_uneven_rows(self):
        with self.assertRaisesRegex(ValueError, "row 2 has 1 cells, not 2"):
            tables.render([Column("a"), Column("b")], [["1", "2"], ["1"]])

    def test_markdown(self):
        found = tables.markdown([Column("a"), Column("b", RIGHT), Column("c", CENTER)], [["x|y", "1", "2"]])
        self.assertEqual(found, "| a | b | c |\n|---|--:|:-:|\n| x\\|y | 1 | 2 |")

    def test_group_rows(self):
        rows = [["b", "1"], ["a", "2"], ["b", "3"]]
        self.assertEqual(tables.group_rows(rows, 0), {"b": [["b", "1"], ["b", "3"]], "a": [["a", "2"]]})
        self.assertEqual(list(tables.group_rows(rows, 0)), ["b", "a"])

    def test_add_totals(self):
        found = tables.add_totals([["x", "1", "a"], ["y", "-3", "2"]])
        self.assertEqual(found[-1], ["total", "-2", ""])
        self.assertEqual(len(found), 3)

    def test_add_totals_of_nothing(self):
        self.assertEqual(tables.add_totals([]), [])

    def test_transpose(self):
        self.assertEqual(tables.transpose([["a", "b"], ["c"]]), [["a", "c"], ["b", ""]])
        self.assertEqual(tables.transpose([]), [])
