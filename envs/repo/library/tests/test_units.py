import unittest

from ledgerline import units


class UnitsTest(unittest.TestCase):
    def test_duration_plain(self):
        self.assertEqual(units.parse_duration(" 90 "), 90)

    def test_duration_units(self):
        self.assertEqual(units.parse_duration("1h30m"), 5400)
        self.assertEqual(units.parse_duration("2d 4h"), 187200)
        self.assertEqual(units.parse_duration("1W"), 604800)

    def test_duration_refuses_nonsense(self):
        for text in ("", "h", "1x", "1h-3m", "1h 3", "5m1h", "1h1h"):
            with self.subTest(text), self.assertRaises(ValueError):
                units.parse_duration(text)

    def test_format_duration(self):
        self.assertEqual(units.format_duration(0), "0s")
        self.assertEqual(units.format_duration(59), "59s")
        self.assertEqual(units.format_duration(3600), "1h")
        self.assertEqual(units.format_duration(93784), "1d2h")
        self.assertEqual(units.format_duration(93784, parts=4), "1d2h3m4s")

    def test_format_negative_duration(self):
        self.assertEqual(units.format_duration(-61), "-1m1s")

    def test_duration_round_trip(self):
        for seconds in (1, 60, 3661, 700000):
            self.assertEqual(units.parse_duration(units.format_duration(seconds, parts=5)), seconds)

    def test_size_decimal_and_binary(self):
        self.assertEqual(units.parse_size("512"), 512)
        self.assertEqual(units.parse_size("10k"), 10_000)
        self.assertEqual(units.parse_size("10 KiB"), 10_240)
        self.assertEqual(units.parse_size("1.5 GB"), 1_500_000_000)

    def test_size_refuses_nonsense(self):
        for text in ("", "k", "-1", "1 XB", "1.k"):
            with self.subTest(text), self.assertRaises(ValueError):
                units.parse_size(text)

    def test_format_size(self):
        self.assertEqual(units.format_size(1023), "1023 B")
        self.assertEqual(units.format_size(1024), "1.0 KiB")
        self.assertEqual(units.format_size(5 * 1024**2), "5.0 MiB")
        self.assertEqual(units.format_size(3 * 1024**5), "3072.0 TiB")

    def test_ordinal(self):
        found = [units.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)]
        self.assertEqual(found, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"])

    def test_plural(self):
        self.assertEqual(units.plural(1, "file"), "1 file")
        self.assertEqual(units.plural(0, "file"), "0 files")
        self.assertEqual(units.plural(2, "entry", "entries"), "2 entries")

    def test_range(self):
        self.assertEqual(units.parse_range("1-3, 7"), [1, 2, 3, 7])
        self.assertEqual(units.parse_range("5,4-6"), [5, 4, 6])

    def test_range_refuses_nonsense(self):
        for text in ("", "a", "3-", "-3", "5-4"):
            with self.subTest(text), self.assertRaises(ValueError):
                units.parse_range(text)
