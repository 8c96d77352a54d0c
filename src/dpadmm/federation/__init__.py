"""One process per organisation: certificates, agreement, exchange, watching."""
