"""How the bytes of messages travel between nodes, and what is made of them on arrival."""
