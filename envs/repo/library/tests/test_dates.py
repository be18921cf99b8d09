import unittest
from datetime import date

from ledgerline import dates


class DatesTest(unittest.TestCase):
    def test_leap_years(self):
        self.assertEqual([y for y in (1900, 2000, 2023, 2024, 2100) if dates.is_leap(y)], [2000, 2024])

    def test_days_in_month(self):
        self.assertEqual([dates.days_in_month(2023, m) for m in range(1, 13)], [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
        self.assertEqual(dates.days_in_month(2024, 2), 29)

    def test_add_months_keeps_or_clips_the_day(self):
        self.assertEqual(dates.add_months(date(2024, 1, 31), 1), date(2024, 2, 29))
        self.assertEqual(dates.add_months(date(2024, 1, 15), 1), date(2024, 2, 15))

    def test_add_months_over_years_and_back(self):
        self.assertEqual(dates.add_months(date(2024, 11, 30), 3), date(2025, 2, 28))
        self.assertEqual(dates.add_months(date(2024, 1, 31), -2), date(2023, 11, 30))
        self.assertEqual(dates.add_months(date(2024, 12, 1), 0), date(2024, 12, 1))

    def test_month_end(self):
        self.assertEqual(dates.month_end(date(2024, 2, 3)), date(2024, 2, 29))

    def test_quarter(self):
        self.assertEqual([dates.quarter(date(2024, m, 1)) for m in (1, 3, 4, 6, 7, 12)], [1, 1, 2, 2, 3, 4])

    def test_quarter_bounds(self):
        self.assertEqual(dates.quarter_bounds(2024, 1), (date(2024, 1, 1), date(2024, 3, 31)))
        self.assertEqual(dates.quarter_bounds(2024, 4), (date(2024, 10, 1), date(2024, 12, 31)))

    def test_quarter_bounds_refuses_others(self):
        for number in (0, 5):
            with self.subTest(number), self.assertRaises(ValueError):
                dates.quarter_bounds(2024, number)

    def test_working_day(self):
        self.assertTrue(dates.is_working_day(date(2024, 5, 3)))
        self.assertFalse(dates.is_working_day(date(2024, 5, 4)))
        self.assertFalse(dates.is_working_day(date(2024, 5, 1), {date(2024, 5, 1)}))

    def test_add_working_days_skips_weekends(self):
        self.assertEqual(dates.add_working_days(date(2024, 5, 3), 1), date(2024, 5, 6))
        self.assertEqual(dates.add_working_days(date(2024, 5, 6), -1), date(2024, 5, 3))

    def test_add_no_working_days(self):
        self.assertEqual(dates.add_working_days(date(2024, 5, 4), 0), date(2024, 5, 4))

    def test_add_working_days_skips_holidays(self):
        self.assertEqual(dates.add_working_days(date(2024, 5, 3), 1, {date(2024, 5, 6)}), date(2024, 5, 7))

    def test_working_days_between(self):
        self.assertEqual(dates.working_days_between(date(2024, 5, 3), date(2024, 5, 6)), 2)
        self.assertEqual(dates.working_days_between(date(2024, 5, 6), date(2024, 5, 3)), 0)
        self.assertEqual(dates.working_days_between(date(2024, 5, 6), date(2024, 5, 6)), 1)

    def test_due_date(self):
        day = date(2024, 2, 10)
        self.assertEqual(dates.due_date(day, "net 30"), date(2024, 3, 11))
        self.assertEqual(dates.due_date(day, "EOM"), date(2024, 2, 29))
        self.assertEqual(dates.due_date(day, "eom + 15"), date(2024, 3, 15))
        self.assertEqual(dates.due_date(day, "due"), day)

    def test_due_date_refuses_others(self):
        for terms in ("", "net", "net x", "eom-3", "eom+", "soon"):
            with self.subTest(terms), self.assertRaises(ValueError):
                dates.due_date(date(2024, 1, 1), terms)

    def test_month_starts(self):
        found = list(dates.month_starts(date(2024, 1, 1), date(2024, 3, 1)))
        self.assertEqual(found, [date(2024, 1, 1), date(2024, 2, 1), date(2024, 3, 1)])
        self.assertEqual(list(dates.month_starts(date(2024, 1, 2), date(2024, 1, 31))), [])

    def test_age_bucket(self):
        due = date(2024, 1, 1)
        found = [dates.age_bucket(due, date.fromordinal(due.toordinal() + n)) for n in (-1, 0, 1, 30, 31, 60, 61, 90, 91)]
        self.assertEqual(found, ["current", "current", "1-30", "1-30", "31-60", "31-60", "61-90", "61-90", "90+"])
