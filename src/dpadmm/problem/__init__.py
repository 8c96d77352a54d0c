"""The problem of a run: losses, graphs, public facts, rows."""
