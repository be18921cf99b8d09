import unittest

from ledgerline import csvlike
from ledgerline.csvlike import MalformedRow


def rows(text, delimiter=","):
    return list(csvlike.parse(text, delimiter))


class ParseTest(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(rows("a,b\n1,2\n"), [["a", "b"], ["1", "2"]])

    def test_last_line_without_end(self):
        self.assertEqual(rows("a,b"), [["a", "b"]])
        self.assertEqual(rows("a,"), [["a", ""]])

    def test_quotes(self):
        self.assertEqual(rows('"a,b","say ""hi""",c\n'), [["a,b", 'say "hi"', "c"]])

    def test_line_break_within_a_cell(self):
        self.assertEqual(rows('"a\nb",c\n'), [["a\nb", "c"]])

    def test_empty_cells_and_blank_lines(self):
        self.assertEqual(rows(',,\n\n"",x\n'), [["", "", ""], ["", "x"]])
        self.assertEqual(rows('""\n'), [[""]])

    def test_carriage_returns(self):
        self.assertEqual(rows('a,b\r\n"c",d\r\n'), [["a", "b"], ["c", "d"]])

    def test_quote_within_a_plain_cell(self):
        self.assertEqual(rows('5" pipe,x\n'), [['5" pipe', "x"]])

    def test_open_quote(self):
        with self.assertRaises(MalformedRow) as caught:
            rows('a\nb,"c\nd')
        self.assertEqual(caught.exception.line, 2)

    def test_text_after_quote(self):
        with self.assertRaisesRegex(MalformedRow, "line 1: text after"):
            rows('"a"b\n')

    def test_line_numbers_count_breaks_in_cells(self):
        with self.assertRaises(MalformedRow) as caught:
            rows('"a\nb",c\n"x"y\n')
        self.assertEqual(caught.exception.line, 3)

    def test_other_delimiter(self):
        self.assertEqual(rows("a;b,c\n", ";"), [["a", "b,c"]])


class WriteTest(unittest.TestCase):
    def test_quote(self):
        found = [csvlike.quote(c) for c in ("a", "a,b", 'a"b', "a\nb", " a", "")]
        self.assertEqual(found, ["a", '"a,b"', '"a""b"', '"a\nb"', '" a"', ""])

    def test_round_trip(self):
        data = [["a", "b,c", 'd"e'], ["", "x\ny", " z "]]
        self.assertEqual(rows(csvlike.dump(data)), data)

    def test_records(self):
        self.assertEqual(csvlike.records("a,b\n1,2\n3\n"), [{"a": "1", "b": "2"}, {"a": "3", "b": ""}])
        self.assertEqual(csvlike.records(""), [])

    def test_records_refuses_long_rows_and_double_names(self):
        with self.assertRaises(MalformedRow) as caught:
            csvlike.records("a,b\n1,2\n1,2,3\n")
        self.assertEqual(caught.exception.line, 3)
        with self.assertRaises(ValueError):
            csvlike.records("a,a\n")

    def test_from_records(self):
        self.assertEqual(csvlike.from_records([{"a": 1, "b": None}, {"b": 2}]), "a,b\n1,\n,2\n")
        self.assertEqual(csvlike.from_records([{"a": 0}], ["a"]), "a\n0\n")
        self.assertEqual(csvlike.from_records([], ["a"]), "a\n")
        self.assertEqual(csvlike.from_records([]), "")

    def test_sniff(self):
        self.assertEqual(csvlike.sniff("a;b;c\n1;2;3\n"), ";")
        self.assertEqual(csvlike.sniff("a\tb,c\n1\t2\n"), "\t")
        self.assertEqual(csvlike.sniff("plain\n"), ",")
