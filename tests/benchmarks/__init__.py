"""Benchmarks: what they run through with tiny models, and the pages that they write."""
