"""Rows of wards, and their schema: what tests of files and of nodes train on."""

SCHEMA = """
constant = true
[label]
column = "y"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
lower = 0
upper = 100
[[columns]]
name = "ward"
kind = "categorical"
levels = ["a", "b"]
"""

#: The same columns as random Fourier features.
FOURIER_SCHEMA = SCHEMA.replace("constant = true", "") + "[fourier]\nfeatures = 12\nseed = 5\n"

#: The same columns and their products, before the constant.
POLYNOMIAL_SCHEMA = SCHEMA + "[polynomial]\ndegree = 2\n"


def write_ward(path, draw, rows):
    """A CSV file of random rows."""
    cells = ["age,ward,y"]
    for _ in range(rows):
        age = draw.randint(0, 100)
        label = "yes" if age + draw.gauss(0, 20) > 50 else "no"
        cells.append(f"{age},{draw.choice('ab')},{label}")
    path.write_text("\n".join(cells) + "\n")
