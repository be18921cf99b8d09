import unittest

from ledgerline.money import CurrencyMismatch, Money, total


class MoneyTest(unittest.TestCase):
    def test_parse_whole_and_fraction(self):
        self.assertEqual(Money.parse("12.50 EUR"), Money(1250))

    def test_parse_short_fraction_is_filled_up(self):
        self.assertEqual(Money.parse("1,234.5 USD"), Money(123450, "USD"))

    def test_parse_negative(self):
        self.assertEqual(Money.parse("-0.05 EUR"), Money(-5))

    def test_parse_currencies_without_and_with_three_places(self):
        self.assertEqual(Money.parse("300 JPY").minor, 300)
        self.assertEqual(Money.parse("1.234 KWD").minor, 1234)

    def test_parse_refuses_what_is_no_amount(self):
        for text in ("12.505 EUR", "x EUR", "12", "3.5 JPY", "1 XXX", ". EUR"):
            with self.subTest(text), self.assertRaises(ValueError):
                Money.parse(text)

    def test_amounts_are_whole(self):
        for value in (1.5, True, "1"):
            with self.subTest(value), self.assertRaises(TypeError):
                Money(value)

    def test_add_and_subtract(self):
        self.assertEqual(Money(150) + Money(75), Money(225))
        self.assertEqual(Money(150) - Money(175), Money(-25))
        self.assertEqual(-Money(5), Money(-5))

    def test_currencies_do_not_mix(self):
        with self.assertRaises(CurrencyMismatch):
            Money(1) + Money(1, "USD")
        with self.assertRaises(CurrencyMismatch):
            Money(1) < Money(1, "USD")

    def test_order_and_equality(self):
        self.assertTrue(Money(1) < Money(2) <= Money(2))
        self.assertNotEqual(Money(1), Money(1, "USD"))
        self.assertEqual(len({Money(1), Money(1), Money(2)}), 2)

    def test_text(self):
        self.assertEqual(str(Money(123456789)), "1,234,567.89 EUR")
        self.assertEqual(str(Money(-5)), "-0.05 EUR")
        self.assertEqual(str(Money(1500, "JPY")), "1,500 JPY")

    def test_text_and_parse_agree(self):
        for amount in (Money(0), Money(-199), Money(100001, "KWD"), Money(7, "JPY")):
            self.assertEqual(Money.parse(str(amount)), amount)

    def test_percent_rounds_half_away_from_zero(self):
        self.assertEqual(Money(50).percent(100), Money(1))
        self.assertEqual(Money(49).percent(100), Money(0))
        self.assertEqual(Money(-50).percent(100), Money(-1))
        self.assertEqual(Money(10000).percent(1925), Money(1925))

    def test_allocate_loses_nothing(self):
        parts = Money(100).allocate([1, 1, 1])
        self.assertEqual([p.minor for p in parts], [34, 33, 33])

    def test_allocate_skips_empty_weights(self):
        self.assertEqual([p.minor for p in Money(5).allocate([0, 1, 1])], [0, 3, 2])

    def test_allocate_refuses_bad_weights(self):
        for weights in ([], [0, 0], [2, -1]):
            with self.subTest(weights), self.assertRaises(ValueError):
                Money(5).allocate(weights)

    def test_total(self):
        self.assertEqual(total([Money(1), Money(2)]), Money(3))
        self.assertEqual(total([], "USD"), Money(0, "USD"))
