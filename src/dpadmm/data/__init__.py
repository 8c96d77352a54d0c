"""From files and tables to rows of norm at most 1, each row by itself."""
