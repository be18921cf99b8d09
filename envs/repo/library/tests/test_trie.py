import unittest

from ledgerline.trie import Trie


class TrieTest(unittest.TestCase):
    def setUp(self):
        self.trie = Trie(["car", "card", "care", "cat", "dog"])

    def test_contains(self):
        self.assertIn("car", self.trie)
        self.assertNotIn("ca", self.trie)
        self.assertNotIn("cars", self.trie)

    def test_len_counts_words_once(self):
        self.trie.put("car")
        self.assertEqual(len(self.trie), 5)

    def test_values(self):
        self.trie.put("car", 7)
        self.assertEqual(self.trie.get("car"), 7)
        self.assertEqual(self.trie.get("ca", "none"), "none")
        self.assertIsNone(self.trie.get("zebra"))

    def test_words(self):
        self.assertEqual(list(self.trie.words("car")), ["car", "card", "care"])
        self.assertEqual(list(self.trie.words()), ["car", "card", "care", "cat", "dog"])
        self.assertEqual(list(self.trie.words("x")), [])

    def test_longest_prefix(self):
        self.assertEqual(self.trie.longest_prefix("cards"), "card")
        self.assertEqual(self.trie.longest_prefix("carpet"), "car")
        self.assertIsNone(self.trie.longest_prefix("ca"))

    def test_longest_prefix_with_the_empty_word(self):
        self.trie.put("")
        self.assertEqual(self.trie.longest_prefix("zebra"), "")

    def test_match(self):
        self.assertEqual(self.trie.match("ca?"), ["car", "cat"])
        self.assertEqual(self.trie.match("??"), [])
        self.assertEqual(self.trie.match("d?g"), ["dog"])

    def test_remove(self):
        self.assertTrue(self.trie.remove("card"))
        self.assertNotIn("card", self.trie)
        self.assertIn("care", self.trie)
        self.assertEqual(len(self.trie), 4)

    def test_remove_keeps_longer_words(self):
        self.trie.remove("car")
        self.assertEqual(list(self.trie.words("car")), ["card", "care"])

    def test_remove_what_is_not_there(self):
        self.assertFalse(self.trie.remove("ca"))
        self.assertFalse(self.trie.remove("zebra"))
        self.assertEqual(len(self.trie), 5)

    def test_remove_frees_branches(self):
        before = self.trie.nodes()
        self.trie.remove("dog")
        self.assertEqual(self.trie.nodes(), before - 3)
        self.trie.remove("card")
        self.assertEqual(self.trie.nodes(), before - 4)
