"""How text and tools map to tokens. What a model generated is never tokenised again."""
