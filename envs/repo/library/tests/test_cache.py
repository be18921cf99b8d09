import unittest

from ledgerline.cache import LRU, Expiring, memoize


class LRUTest(unittest.TestCase):
    def test_forgets_the_least_recently_used(self):
        cache = LRU(2)
        cache.put("a", 1)
        cache.put("b", 2)
        cache.get("a")
        self.assertEqual(cache.put("c", 3), "b")
        self.assertIn("a", cache)
        self.assertNotIn("b", cache)

    def test_put_again_counts_as_use(self):
        cache = LRU(2)
        cache.put("a", 1)
        cache.put("b", 2)
        cache.put("a", 3)
        self.assertEqual(cache.put("c", 4), "b")
        self.assertEqual(cache.get("a"), 3)

    def test_put_within_bound_evicts_nothing(self):
        cache = LRU(2)
        self.assertIsNone(cache.put("a", 1))
        self.assertIsNone(cache.put("b", 1))
        self.assertEqual(len(cache), 2)

    def test_get_default(self):
        self.assertEqual(LRU(1).get("x", 7), 7)
        self.assertIsNone(LRU(1).get("x"))

    def test_ratio(self):
        cache = LRU(1)
        self.assertEqual(cache.ratio(), 0.0)
        cache.put("a", 1)
        cache.get("a")
        cache.get("b")
        cache.get("a")
        cache.get("a")
        self.assertEqual(cache.ratio(), 0.75)

    def test_size_of_at_least_one(self):
        with self.assertRaises(ValueError):
            LRU(0)
        self.assertEqual(LRU(1).size, 1)


class ExpiringTest(unittest.TestCase):
    def setUp(self):
        self.now = 100.0
        self.cache = Expiring(10, clock=lambda: self.now)

    def test_value_lives_for_its_time(self):
        self.cache.put("a", 1)
        self.now = 109.9
        self.assertEqual(self.cache.get("a"), 1)
        self.now = 110.0
        self.assertIsNone(self.cache.get("a"))
        self.assertEqual(len(self.cache), 0)

    def test_own_time_of_an_entry(self):
        self.cache.put("a", 1, ttl=2)
        self.cache.put("b", 1, ttl=0)
        self.now = 101.0
        self.assertEqual(self.cache.get("a"), 1)
        self.assertIsNone(self.cache.get("b"))

    def test_purge(self):
        self.cache.put("a", 1)
        self.cache.put("b", 1, ttl=50)
        self.now = 110.0
        self.assertEqual(self.cache.purge(), 1)
        self.assertEqual(len(self.cache), 1)

    def test_default(self):
        self.assertEqual(self.cache.get("x", 5), 5)


class MemoizeTest(unittest.TestCase):
    def test_calls_once_per_arguments(self):
        calls = []

        @memoize(size=4)
        def add(a, b=0):
            calls.append((a, b))
            return a + b

        self.assertEqual([add(1), add(1), add(1, b=2), add(1, b=2)], [1, 1, 3, 3])
        self.assertEqual(len(calls), 2)

    def test_remembers_none(self):
        calls = []

        @memoize()
        def nothing(x):
            calls.append(x)

        nothing(1)
        nothing(1)
        self.assertEqual(calls, [1])

    def test_is_bounded(self):
        @memoize(size=1)
        def same(x):
            return x

        same(1)
        same(2)
        self.assertEqual(len(same.cache), 1)
        self.assertEqual(same.__name__, "same")

    def test_keyword_order_plays_no_role(self):
        @memoize()
        def pair(**kw):
            return dict(kw)

        pair(a=1, b=2)
        pair(b=2, a=1)
        self.assertEqual(pair.cache.hits, 1)
