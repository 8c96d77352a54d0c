"""How messages travel; the only part of a round that differs between runtimes."""
