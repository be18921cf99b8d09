import unittest

from ledgerline import text


class TextTest(unittest.TestCase):
    def test_wrap(self):
        self.assertEqual(text.wrap("the quick brown fox", 9), ["the quick", "brown fox"])

    def test_wrap_indents_further_lines(self):
        self.assertEqual(text.wrap("aa bb cc", 4, "  "), ["aa", "  bb", "  cc"])

    def test_wrap_long_word(self):
        self.assertEqual(text.wrap("a extraordinary b", 5), ["a", "extraordinary", "b"])

    def test_wrap_nothing(self):
        self.assertEqual(text.wrap("  ", 5), [])

    def test_wrap_refuses_wide_indent(self):
        with self.assertRaises(ValueError):
            text.wrap("a", 2, "  ")

    def test_shorten(self):
        self.assertEqual(text.shorten("hello world", 8), "hello...")
        self.assertEqual(text.shorten("hello", 5), "hello")
        self.assertEqual(text.shorten("hello world", 9), "hello...")
        self.assertEqual(text.shorten("hello", 2), "..")

    def test_shorten_middle(self):
        self.assertEqual(text.shorten_middle("abcdefghij", 8), "abc...ij")
        self.assertEqual(text.shorten_middle("abcdefghij", 4), "a...")
        self.assertEqual(text.shorten_middle("abcdefghij", 3), "...")
        self.assertEqual(text.shorten_middle("abc", 3), "abc")

    def test_slug(self):
        self.assertEqual(text.slug("Crème brûlée, 2 for 1!"), "creme-brulee-2-for-1")
        self.assertEqual(text.slug("!!"), "")

    def test_slug_limit_keeps_whole_words(self):
        self.assertEqual(text.slug("alpha beta gamma", limit=10), "alpha-beta")
        self.assertEqual(text.slug("alphabetical", limit=5), "alpha")

    def test_distance(self):
        self.assertEqual(text.distance("kitten", "sitting"), 3)
        self.assertEqual(text.distance("", "abc"), 3)
        self.assertEqual(text.distance("same", "same"), 0)
        self.assertEqual(text.distance("ab", "ba"), 2)

    def test_nearest(self):
        self.assertEqual(text.nearest("stats", ["stat", "state", "start"]), "stat")
        self.assertEqual(text.nearest("ab", ["abcd", "xy"]), "abcd")
        self.assertIsNone(text.nearest("ab", ["abcde"]))

    def test_camel_to_snake(self):
        self.assertEqual(text.camel_to_snake("parseHTTPLine2"), "parse_http_line2")
        self.assertEqual(text.camel_to_snake("Simple"), "simple")
        self.assertEqual(text.camel_to_snake("already_snake"), "already_snake")
        self.assertEqual(text.camel_to_snake("with_Upper"), "with_upper")

    def test_initials(self):
        self.assertEqual(text.initials("Anna-Lena van Dyk"), "ALD")
        self.assertEqual(text.initials("a b c d"), "ABC")

    def test_common_prefix(self):
        self.assertEqual(text.common_prefix(["interval", "internal", "into"]), "int")
        self.assertEqual(text.common_prefix(["same", "same"]), "same")
        self.assertEqual(text.common_prefix(["a", "b"]), "")
        self.assertEqual(text.common_prefix([]), "")
