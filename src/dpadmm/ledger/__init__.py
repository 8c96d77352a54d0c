"""What was ever spent on a data set: entries, filters, and the file that keeps them."""
