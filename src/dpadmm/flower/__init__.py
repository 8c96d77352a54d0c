"""Parties and a server inside Flower's runtime; ledger and policy stay with each party."""
