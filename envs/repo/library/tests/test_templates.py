import unittest

from ledgerline.templates import TemplateError, lookup, render


class TemplatesTest(unittest.TestCase):
    def test_values(self):
        self.assertEqual(render("Dear {{ name }}, {{ n }}", {"name": "Ada", "n": 3}), "Dear Ada, 3")

    def test_none_is_empty(self):
        self.assertEqual(render("[{{ x }}]", {"x": None}), "[]")

    def test_lookup(self):
        self.assertEqual(lookup("o.lines.1.sku", {"o": {"lines": [{"sku": "a"}, {"sku": "b"}]}}), "b")

    def test_lookup_attribute(self):
        self.assertEqual(lookup("z.real", {"z": 3 + 4j}), 3.0)

    def test_lookup_misses(self):
        for path in ("y", "x.2", "x.a", "x._hidden", "x.__class__"):
            with self.subTest(path), self.assertRaises(TemplateError):
                lookup(path, {"x": [1, 2]})

    def test_filters(self):
        self.assertEqual(
            render("{{ a|upper }} {{ b | money }} {{ c|length }}", {"a": "x", "b": 123456, "c": [1, 2]}), "X 1,234.56 2"
        )

    def test_filters_in_a_row(self):
        self.assertEqual(render("{{ a|lower|title }}", {"a": "HELLO there"}), "Hello There")

    def test_escape(self):
        self.assertEqual(render("{{ a|escape }}", {"a": '<b a="1">&'}), "&lt;b a=&quot;1&quot;&gt;&amp;")

    def test_unknown_filter(self):
        with self.assertRaisesRegex(TemplateError, "unknown filter 'shout'"):
            render("{{ a|shout }}", {"a": 1})

    def test_if_else(self):
        template = "{% if a %}yes{% else %}no{% endif %}"
        self.assertEqual([render(template, {"a": v}) for v in (1, 0)], ["yes", "no"])
        self.assertEqual(render(template, {}), "no")

    def test_if_not(self):
        self.assertEqual(render("{% if not a %}none{% endif %}!", {"a": []}), "none!")

    def test_dead_branch_is_not_evaluated(self):
        self.assertEqual(render("{% if a %}{{ missing }}{% endif %}ok", {"a": 0}), "ok")

    def test_nested_if_in_dead_branch(self):
        template = "{% if a %}{% if b %}1{% else %}2{% endif %}{% else %}3{% endif %}"
        self.assertEqual([render(template, {"a": a, "b": b}) for a, b in ((1, 1), (1, 0), (0, 1))], ["1", "2", "3"])

    def test_for(self):
        template = "{% for x in xs %}{{ index }}={{ x }}{% if not last %},{% endif %}{% endfor %}."
        self.assertEqual(render(template, {"xs": ["a", "b", "c"]}), "1=a,2=b,3=c.")

    def test_for_over_nothing(self):
        self.assertEqual(render("[{% for x in xs %}{{ x.y }}{% endfor %}]", {"xs": []}), "[]")

    def test_nested_for(self):
        template = "{% for r in rows %}{% for c in r %}{{ c }}{% endfor %};{% endfor %}"
        self.assertEqual(render(template, {"rows": [[1, 2], [], [3]]}), "12;;3;")

    def test_unclosed_and_unopened_blocks(self):
        for template in ("{% if a %}x", "{% for x in a %}x", "x{% endif %}", "{% if a %}{% endfor %}", "{% for x %}{% endfor %}"):
            with self.subTest(template), self.assertRaises(TemplateError):
                render(template, {"a": [1]})
