import unittest

from ledgerline import intervals
from ledgerline.intervals import IntervalSet


class IntervalsTest(unittest.TestCase):
    def test_merge(self):
        self.assertEqual(intervals.merge([(5, 7), (1, 3), (3, 4), (6, 9)]), [(1, 4), (5, 9)])

    def test_merge_drops_empty(self):
        self.assertEqual(intervals.merge([(2, 2), (4, 3)]), [])

    def test_merge_contained(self):
        self.assertEqual(intervals.merge([(1, 10), (2, 3)]), [(1, 10)])

    def test_overlap(self):
        self.assertEqual(intervals.overlap((1, 5), (3, 9)), 2)
        self.assertEqual(intervals.overlap((1, 3), (3, 9)), 0)
        self.assertEqual(intervals.overlap((1, 2), (5, 9)), 0)

    def test_subtract(self):
        self.assertEqual(intervals.subtract([(0, 10)], [(2, 4), (8, 12)]), [(0, 2), (4, 8)])
        self.assertEqual(intervals.subtract([(2, 4)], [(0, 10)]), [])
        self.assertEqual(intervals.subtract([(2, 4)], [(4, 10)]), [(2, 4)])

    def test_intersect(self):
        self.assertEqual(intervals.intersect([(0, 5), (8, 12)], [(3, 9)]), [(3, 5), (8, 9)])
        self.assertEqual(intervals.intersect([(0, 5)], [(5, 9)]), [])

    def test_intersect_many(self):
        self.assertEqual(intervals.intersect([(0, 100)], [(1, 2), (3, 4), (5, 6)]), [(1, 2), (3, 4), (5, 6)])

    def test_contains(self):
        numbers = IntervalSet([(1, 3), (5, 6)])
        self.assertEqual([n for n in range(8) if n in numbers], [1, 2, 5])
        self.assertNotIn(0, IntervalSet())

    def test_len_and_iter(self):
        numbers = IntervalSet([(1, 3), (5, 6)])
        self.assertEqual(len(numbers), 3)
        self.assertEqual(list(numbers), [(1, 3), (5, 6)])

    def test_add_and_remove(self):
        numbers = IntervalSet([(1, 3)])
        numbers.add(3, 5)
        numbers.remove(2, 4)
        self.assertEqual(list(numbers), [(1, 2), (4, 5)])

    def test_gaps(self):
        self.assertEqual(IntervalSet([(2, 4)]).gaps(0, 6), [(0, 2), (4, 6)])

    def test_first_free(self):
        numbers = IntervalSet([(0, 2), (4, 10)])
        self.assertEqual(numbers.first_free(2), 2)
        self.assertEqual(numbers.first_free(3), 10)
        self.assertEqual(numbers.first_free(1, start=5), 10)
        self.assertEqual(IntervalSet().first_free(4, start=3), 3)

    def test_busiest(self):
        self.assertEqual(intervals.busiest([(0, 5), (3, 8), (4, 6), (5, 9)]), (3, 4))
        self.assertEqual(intervals.busiest([(0, 5), (5, 9)]), (1, 0))
        self.assertEqual(intervals.busiest([]), (0, 0))
