import unittest

from ledgerline import graph


class GraphTest(unittest.TestCase):
    def test_nodes_include_targets(self):
        self.assertEqual(graph.nodes({"b": ["a"], "c": ["b", "d"]}), ["b", "a", "c", "d"])

    def test_order(self):
        self.assertEqual(graph.order({"app": ["lib", "net"], "net": ["lib"], "lib": []}), ["lib", "net", "app"])

    def test_order_breaks_ties_by_name(self):
        self.assertEqual(graph.order({"z": [], "a": [], "m": ["a"]}), ["a", "m", "z"])

    def test_order_refuses_circles(self):
        with self.assertRaises(graph.CycleError) as caught:
            graph.order({"a": ["b"], "b": ["c"], "c": ["b"]})
        self.assertEqual(caught.exception.path, ["b", "c", "b"])
        self.assertEqual(str(caught.exception), "b -> c -> b")

    def test_find_cycle(self):
        self.assertEqual(graph.find_cycle({"a": ["a"]}), ["a", "a"])
        self.assertEqual(graph.find_cycle({"a": ["b", "c"], "b": ["c"], "c": []}), [])

    def test_reachable(self):
        self.assertEqual(graph.reachable({"a": ["b"], "b": ["a"], "c": ["a"]}, "a"), {"a", "b"})
        self.assertEqual(graph.reachable({}, "x"), {"x"})

    def test_distances(self):
        self.assertEqual(
            graph.distances({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": ["a"]}, "a"), {"a": 0, "b": 1, "c": 1, "d": 2}
        )

    def test_cheapest(self):
        ways = {"a": {"b": 1, "c": 5}, "b": {"c": 1}, "c": {"d": 1}}
        self.assertEqual(graph.cheapest(ways, "a", "d"), (3, ["a", "b", "c", "d"]))
        self.assertEqual(graph.cheapest(ways, "a", "a"), (0, ["a"]))
        self.assertIsNone(graph.cheapest(ways, "d", "a"))

    def test_cheapest_in_a_circle(self):
        self.assertIsNone(graph.cheapest({"a": {"b": 0}, "b": {"a": 0}}, "a", "z"))

    def test_cheapest_refuses_negative_costs(self):
        with self.assertRaises(ValueError):
            graph.cheapest({"a": {"b": -1}}, "a", "b")

    def test_cheapest_takes_free_edges(self):
        self.assertEqual(graph.cheapest({"a": {"b": 0}}, "a", "b"), (0, ["a", "b"]))

    def test_components(self):
        found = graph.components({"a": ["b"], "c": ["b"], "x": ["y"], "q": []})
        self.assertEqual(found, [["a", "b", "c"], ["x", "y"], ["q"]])
