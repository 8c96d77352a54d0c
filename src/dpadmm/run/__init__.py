"""A run: planned from public facts, charged, trained, and what it leaves behind."""
