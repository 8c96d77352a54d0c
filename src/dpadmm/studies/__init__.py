"""Studies: statistics and inference from sums of bounded vectors, each a run of its own."""
