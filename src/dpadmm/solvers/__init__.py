"""Local solvers: the only code that reads a party's rows."""
