import unittest
from datetime import date

from ledgerline.journal import Journal, Unbalanced, match_payments
from ledgerline.money import CurrencyMismatch, Money

D1, D2, D3 = date(2024, 1, 10), date(2024, 1, 20), date(2024, 2, 1)


class JournalTest(unittest.TestCase):
    def setUp(self):
        self.books = Journal()
        self.books.open("1000", "Bank", "asset")
        self.books.open("4000", "Sales", "income")
        self.books.open("5000", "Rent", "expense")

    def sale(self, day, minor):
        return self.books.post(day, "sale", ("1000", Money(minor)), ("4000", Money(-minor)))

    def test_open_twice(self):
        with self.assertRaises(ValueError):
            self.books.open("1000", "Again", "asset")

    def test_unknown_kind(self):
        with self.assertRaises(ValueError):
            self.books.open("9", "x", "weird")

    def test_numbers(self):
        self.assertEqual([self.sale(D1, 1).number, self.sale(D1, 1).number], [1, 2])

    def test_unbalanced(self):
        with self.assertRaisesRegex(Unbalanced, "off by 0.01 EUR"):
            self.books.post(D1, "x", ("1000", Money(100)), ("4000", Money(-99)))
        self.assertEqual(self.books.entries, [])

    def test_one_line_is_no_entry(self):
        with self.assertRaises(Unbalanced):
            self.books.post(D1, "x", ("1000", Money(0)))

    def test_unknown_account_and_currency(self):
        with self.assertRaises(KeyError):
            self.books.post(D1, "x", ("1000", Money(1)), ("7", Money(-1)))
        with self.assertRaises(CurrencyMismatch):
            self.books.post(D1, "x", ("1000", Money(1, "USD")), ("4000", Money(-1, "USD")))

    def test_balance_by_kind(self):
        self.sale(D1, 500)
        self.books.post(D2, "rent", ("5000", Money(200)), ("1000", Money(-200)))
        self.assertEqual([self.books.balance(c).minor for c in ("1000", "4000", "5000")], [300, 500, 200])

    def test_balance_until(self):
        self.sale(D1, 500)
        self.sale(D3, 70)
        self.assertEqual(self.books.balance("1000", until=D1), Money(500))
        self.assertEqual(self.books.balance("1000", until=D3), Money(570))

    def test_reverse(self):
        self.sale(D1, 500)
        entry = self.books.reverse(1, D2)
        self.assertEqual(entry.text, "reversal of 1")
        self.assertEqual(self.books.balance("1000"), Money(0))
        for number in (0, 9):
            with self.subTest(number), self.assertRaises(LookupError):
                self.books.reverse(number, D2)

    def test_trial_balance(self):
        self.sale(D1, 500)
        self.books.post(D2, "rent", ("5000", Money(200)), ("1000", Money(-200)))
        self.assertEqual(self.books.trial_balance(), {"1000": (500, 200), "4000": (0, 500), "5000": (200, 0)})

    def test_statement_runs_in_order_of_days(self):
        self.sale(D3, 70)
        self.sale(D1, 500)
        self.assertEqual(self.books.statement("4000"), [(D1, "sale", 500, 500), (D3, "sale", 70, 570)])

    def test_profit(self):
        self.sale(D1, 500)
        self.sale(D3, 70)
        self.books.post(D2, "rent", ("5000", Money(200)), ("1000", Money(-200)))
        self.assertEqual(self.books.profit(D1, D2), Money(300))
        self.assertEqual(self.books.profit(D2, D3), Money(-130))

    def test_close(self):
        self.books.close(D2)
        for day in (D1, D2):
            with self.subTest(day), self.assertRaises(ValueError):
                self.sale(day, 1)
        self.sale(D3, 1)
        with self.assertRaises(ValueError):
            self.books.close(D1)
        self.books.close(D2)

    def test_match_payments(self):
        invoices = [("a", 100), ("b", 50), ("c", 10)]
        self.assertEqual(match_payments(invoices, 120), ({"a": 100, "b": 20}, 0))
        self.assertEqual(match_payments(invoices, 200), ({"a": 100, "b": 50, "c": 10}, 40))
        self.assertEqual(match_payments(invoices, 0), ({}, 0))
