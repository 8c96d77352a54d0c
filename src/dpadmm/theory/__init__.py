"""The papers' bounds and conditions that can be computed, as printed and as corrected."""
