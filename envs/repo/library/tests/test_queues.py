import unittest

from ledgerline import queues
from ledgerline.queues import Empty, PriorityQueue, RoundRobin, TokenBucket


class PriorityQueueTest(unittest.TestCase):
    def test_order(self):
        queue = PriorityQueue()
        for item, priority in (("low", 0), ("high", 9), ("mid", 5), ("high2", 9)):
            queue.put(item, priority)
        self.assertEqual(queue.drain(), ["high", "high2", "mid", "low"])

    def test_items_need_no_order(self):
        queue = PriorityQueue()
        queue.put({}, 1)
        queue.put({}, 1)
        self.assertEqual(len(queue.drain()), 2)

    def test_peek_leaves_it(self):
        queue = PriorityQueue()
        queue.put("a")
        self.assertEqual((queue.peek(), len(queue)), ("a", 1))

    def test_empty(self):
        for call in (PriorityQueue().take, PriorityQueue().peek, RoundRobin().take):
            with self.subTest(call), self.assertRaises(Empty):
                call()


class RoundRobinTest(unittest.TestCase):
    def test_each_gets_a_turn(self):
        queue = RoundRobin()
        for lane, item in (("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("c", 6)):
            queue.put(lane, item)
        self.assertEqual(len(queue), 6)
        self.assertEqual(list(queue), [("a", 1), ("b", 4), ("c", 5), ("a", 2), ("c", 6), ("a", 3)])

    def test_lane_comes_back_at_the_end(self):
        queue = RoundRobin()
        queue.put("a", 1)
        queue.put("b", 2)
        queue.take()
        queue.put("a", 3)
        self.assertEqual(list(queue), [("b", 2), ("a", 3)])


class TokenBucketTest(unittest.TestCase):
    def test_burst_then_rate(self):
        bucket = TokenBucket(rate=2, burst=3)
        self.assertEqual([bucket.allow(0) for _ in range(4)], [True, True, True, False])
        self.assertEqual([bucket.allow(0.5), bucket.allow(0.5)], [True, False])

    def test_never_more_than_burst(self):
        bucket = TokenBucket(rate=1, burst=2)
        self.assertFalse(bucket.allow(1000, cost=3))
        self.assertTrue(bucket.allow(1000, cost=2))

    def test_wait(self):
        bucket = TokenBucket(rate=2, burst=2)
        self.assertEqual(bucket.wait(0), 0.0)
        bucket.allow(0, cost=2)
        self.assertEqual(bucket.wait(0), 0.5)
        with self.assertRaises(ValueError):
            bucket.wait(0, cost=3)

    def test_clock_does_not_go_back(self):
        bucket = TokenBucket(rate=1, burst=1, now=10)
        self.assertTrue(bucket.allow(10))
        self.assertFalse(bucket.allow(5))
        self.assertTrue(bucket.allow(11))

    def test_bad_settings(self):
        for rate, burst in ((0, 1), (-1, 1), (1, 0)):
            with self.subTest((rate, burst)), self.assertRaises(ValueError):
                TokenBucket(rate, burst)


class HelpersTest(unittest.TestCase):
    def test_backoff(self):
        self.assertEqual([queues.backoff(n) for n in (1, 2, 3, 4)], [0.0, 1.0, 2.0, 4.0])
        self.assertEqual(queues.backoff(30), 60.0)
        with self.assertRaises(ValueError):
            queues.backoff(0)

    def test_batches(self):
        self.assertEqual(queues.batches([1, 2, 3, 4, 5], 2), [[1, 2], [3, 4], [5]])
        self.assertEqual(queues.batches([], 2), [])
        with self.assertRaises(ValueError):
            queues.batches([1], 0)
