"""What is minimised, and by whom: losses, graphs, schedules, public facts, rows."""
