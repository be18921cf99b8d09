import unittest

from ledgerline import stats


class StatsTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(stats.mean([1, 2, 6]), 3)
        with self.assertRaises(ValueError):
            stats.mean([])

    def test_median(self):
        self.assertEqual(stats.median([9, 1, 5]), 5)
        self.assertEqual(stats.median([1, 2, 3, 10]), 2.5)

    def test_percentile(self):
        values = [10, 20, 30, 40, 50]
        self.assertEqual([stats.percentile(values, p) for p in (0, 25, 90, 100)], [10, 20, 46, 50])

    def test_percentile_bounds(self):
        for rank in (-1, 101):
            with self.subTest(rank), self.assertRaises(ValueError):
                stats.percentile([1], rank)
        with self.assertRaises(ValueError):
            stats.percentile([], 50)

    def test_variance(self):
        self.assertEqual(stats.variance([2, 4, 6]), 4)
        self.assertAlmostEqual(stats.variance([2, 4, 6], sample=False), 8 / 3)
        self.assertEqual(stats.variance([5], sample=False), 0)
        with self.assertRaises(ValueError):
            stats.variance([5])

    def test_moving_average(self):
        self.assertEqual(stats.moving_average([1, 2, 3, 4], 2), [1.5, 2.5, 3.5])
        self.assertEqual(stats.moving_average([1, 2], 3), [])
        self.assertEqual(stats.moving_average([1, 2], 1), [1, 2])
        with self.assertRaises(ValueError):
            stats.moving_average([1], 0)

    def test_histogram(self):
        self.assertEqual(stats.histogram([0, 1, 1.5, 2, 3, 9, -1], [0, 1, 2, 3]), [1, 2, 2])

    def test_histogram_edges(self):
        for edges in ([1], [2, 1], [1, 1]):
            with self.subTest(edges), self.assertRaises(ValueError):
                stats.histogram([], edges)

    def test_mode(self):
        self.assertEqual(stats.mode([3, 1, 3, 2, 1]), [1, 3])
        self.assertEqual(stats.mode([]), [])

    def test_ranks(self):
        self.assertEqual(stats.ranks([10, 30, 20, 30]), [1, 3.5, 2, 3.5])
        self.assertEqual(stats.ranks([]), [])

    def test_growth(self):
        self.assertEqual(stats.growth([100, 150, 0, 5]), [0.5, -1.0, None])

    def test_outliers(self):
        self.assertEqual(stats.outliers([1, 2, 3, 2, 1, 2, 50]), [50])
        self.assertEqual(stats.outliers([-40, 1, 2, 3, 2, 1, 2]), [-40])
        self.assertEqual(stats.outliers([1, 2, 99]), [])
