"""Ledgers that somebody changed behind their backs."""

import sqlite3
from contextlib import closing


def edit(path, *statements, keep_triggers=False):
    """Change a ledger behind its back."""
    # Closed also where a statement is refused.
    with closing(sqlite3.connect(path)) as connection:
        if not keep_triggers:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
            for (name,) in names.fetchall():
                connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def edit_and_mend(path, *statements):
    """The same, with the triggers put back as they were."""
    connection = sqlite3.connect(path)
    kept = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    connection.close()
    edit(path, *statements, *(text for (text,) in kept))
