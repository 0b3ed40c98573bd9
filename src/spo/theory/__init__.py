"""The paper's theory, checked on small tabular Markov decision processes that are solved exactly (docs/theory.md)."""
