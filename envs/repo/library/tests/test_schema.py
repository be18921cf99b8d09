import unittest

from ledgerline import schema

ORDER = {
    "type": "object",
    "fields": {
        "id": {"type": "string", "pattern": r"[A-Z]\d+"},
        "qty": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "tags": {"type": "list", "optional": True, "unique": True, "items": {"type": "string", "shortest": 2, "longest": 4}},
    },
}


class SchemaTest(unittest.TestCase):
    def test_fits(self):
        self.assertEqual(schema.check({"id": "A1", "qty": 1, "tags": ["ab", "abcd"]}, ORDER), [])
        self.assertEqual(schema.check({"id": "A1", "qty": 9}, ORDER), [])

    def test_every_fault_is_named(self):
        found = schema.check({"id": "a1", "qty": 10, "tags": ["a", "abcde"], "x": 1}, ORDER)
        self.assertEqual(
            found,
            [
                "$.id: does not match [A-Z]\\d+",
                "$.qty: 10 is above 9",
                "$.tags[0]: shorter than 2",
                "$.tags[1]: longer than 4",
                "$.x: unknown",
            ],
        )

    def test_missing(self):
        self.assertEqual(schema.check({}, ORDER), ["$.id: missing", "$.qty: missing"])

    def test_wrong_type(self):
        self.assertEqual(schema.check([], ORDER), ["$: expected object, found list"])
        self.assertEqual(schema.check("1", {"type": "integer"}), ["$: expected integer, found str"])

    def test_booleans_are_no_numbers(self):
        self.assertEqual(schema.check(True, {"type": "integer"}), ["$: expected integer, found bool"])
        self.assertEqual(schema.check(True, {"type": "boolean"}), [])

    def test_numbers(self):
        self.assertEqual(schema.check(1, {"type": "number", "minimum": 1}), [])
        self.assertEqual(schema.check(0.5, {"type": "number", "minimum": 1}), ["$: 0.5 is below 1"])

    def test_choice(self):
        self.assertEqual(schema.check("c", {"type": "string", "choice": ["a", "b"]}), ["$: 'c' is none of ['a', 'b']"])

    def test_lists(self):
        self.assertEqual(schema.check([1], {"type": "list", "least": 2}), ["$: fewer than 2 items"])
        self.assertEqual(schema.check([1, 2], {"type": "list", "least": 2}), [])
        self.assertEqual(schema.check([1, 2, 1], {"type": "list", "unique": True}), ["$: an item is there twice"])

    def test_pattern_fits_whole_text(self):
        self.assertEqual(schema.check("A1x", {"type": "string", "pattern": r"A\d"}), ["$: does not match A\\d"])

    def test_open_objects(self):
        self.assertEqual(schema.check({"x": 1}, {"type": "object", "open": True}), [])

    def test_defaults(self):
        self.assertEqual(schema.defaults({"id": "A1"}, ORDER), {"id": "A1", "qty": 1})
        self.assertEqual(schema.defaults({"id": "A1", "qty": 3}, ORDER), {"id": "A1", "qty": 3})

    def test_defaults_within_lists(self):
        nested = {"type": "list", "items": {"type": "object", "fields": {"n": {"type": "integer", "default": 0}}}}
        self.assertEqual(schema.defaults([{}, {"n": 4}], nested), [{"n": 0}, {"n": 4}])

    def test_defaults_leave_the_original_alone(self):
        value = {"id": "A1"}
        schema.defaults(value, ORDER)
        self.assertEqual(value, {"id": "A1"})
