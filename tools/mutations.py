"""Small edits of a module that nobody chose, made by cosmic-ray and three operators of our own.

Not made, because nothing that runs could differ: edits of annotations, of ``__all__``, of the words
of a refusal, of ``@final`` and ``@abstractmethod``.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from parso.python.tree import ExprStmt, Name, Number

ROOT: Final = Path(__file__).parents[1]

# One edit for each operator where cosmic-ray has eleven: the others die with this one.
_PAIRS: Final = {
    "Binary": "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul BitAnd_BitOr "
    "BitOr_BitAnd LShift_RShift RShift_LShift",
    "Comparison": "Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE "
    "GtE_Gt GtE_Lt",
    "Unary": "Delete_USub Delete_Invert Delete_Not",
}
_CORE: Final = [
    *(f"Replace{kind}Operator_{pair}" for kind, pairs in _PAIRS.items() for pair in pairs.split()),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr"),
    *("ReplaceOrWithAnd", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
    *("ExceptionReplacer", "NumberReplacer", "RemoveDecorator", "ZeroIterationForLoop"),
]


class _Ours(Operator):
    """An edit of single nodes that cosmic-ray has not."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        if self.edited(node) is not None:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        text = self.edited(node)
        prefix = node.get_first_leaf().prefix
        return parso.parse(f"{prefix}{text}")

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()

    def edited(self, node: Any) -> str | None:
        """The text in a node's place; None leaves it."""
        raise NotImplementedError


class DropMargin(_Ours):
    """A number below a thousandth, as margins for rounding are, becomes 0."""

    def edited(self, node: Any) -> str | None:
        """See the class."""
        return "0.0" if isinstance(node, Number) and 0 < abs(eval(node.value)) < 1e-3 else None


class SwapDirection(_Ours):
    """The other direction: max for min, floor for ceil, left for right."""

    words: Final = ["min max", "minimum maximum", "floor ceil", "argmin argmax", "all any"]
    words += ["ROUND_CEILING ROUND_FLOOR", "AtMost AtLeast"]

    def edited(self, node: Any) -> str | None:
        """See the class."""
        if isinstance(node, Name) and node.parent.type not in ("import_from", "import_as_names"):
            for one, other in map(str.split, self.words):
                if node.value in (one, other):
                    return other if node.value == one else one
        return None


class DeleteStatement(_Ours):
    """A statement is not executed: a call, a refusal, an assignment."""

    def edited(self, node: Any) -> str | None:
        """See the class."""
        if node.parent is None or node.parent.type != "simple_stmt":
            return None
        call = node.type == "atom_expr" and node.children[-1].get_code().startswith("(")
        grows = isinstance(node, ExprStmt) and "=" in node.children[1].get_code()[1:].strip()
        return "pass" if call or node.type == "raise_stmt" or grows else None


def operators() -> Iterator[tuple[str, Operator]]:
    """Every kind of edit, by name."""
    for name in _CORE:
        yield name, get_operator(f"core/{name}")()
    for kind in (DropMargin, SwapDirection, DeleteStatement):
        yield kind.__name__, kind()


class _Bare(ast.NodeTransformer):
    """What runs, without annotations, words of refusals, and names and decorators for tools."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        exported = isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
        return None if exported else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        node.annotation = ast.Constant("")
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def _decorated(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        tools = {"final", "abstractmethod", "overload"}
        names = [each for each in node.decorator_list if getattr(each, "id", None) not in tools]
        node.decorator_list = names
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        return node

    visit_FunctionDef = visit_ClassDef = _decorated

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        self.generic_visit(node)
        for each in ast.walk(node):
            if isinstance(each, ast.Call):
                words = (ast.JoinedStr, ast.Constant)
                each.args = [a for a in each.args if not isinstance(a, words)]
        return node


def _bare(text: str) -> str:
    return ast.dump(_Bare().visit(ast.parse(text)))


@dataclass
class Mutant:
    """One edit, and what became of it."""

    module: str
    operator: str
    occurrence: int
    line: int
    before: str
    after: str
    identity: str
    outcome: Literal["", "killed", "timeout", "survived", "unreached"] = ""
    by: str = ""
    seconds: float = 0.0
    text: str = field(default="", repr=False)


def known_mutants(module: str, state: Path) -> list[Mutant]:
    """The mutants of a module as it is now, from a file where they were made before."""
    text = (ROOT / module).read_bytes() + Path(__file__).read_bytes()
    digest = hashlib.sha256(text).hexdigest()
    kept = state / f"made-{digest[:16]}.json"
    if not kept.exists():
        made = make_mutants(module)
        kept.write_text(json.dumps([asdict(mutant) for mutant in made]), encoding="utf-8")
    return [Mutant(**each) for each in json.loads(kept.read_text(encoding="utf-8"))]


def make_mutants(module: str) -> list[Mutant]:
    """All edits of a module that change what runs, each once."""
    original = (ROOT / module).read_text(encoding="utf-8")
    bare, seen, made = _bare(original), set(), []
    tree = get_ast(original)
    for name, operator in operators():
        places = [at for node in ast_nodes(tree) for at in operator.mutation_positions(node)]
        for occurrence in range(len(places)):
            text = mutate_code(original, operator, occurrence)
            try:
                changed = text is not None and _bare(text)
            except SyntaxError:
                continue
            if not changed or changed == bare or changed in seen:
                continue
            seen.add(changed)
            line = places[occurrence][0][0]
            shown = [_line_that_differs(a, b) for a, b in ((original, text), (text, original))]
            key = "\n".join((module, name, str(line), text))
            digest = hashlib.sha256(key.encode()).hexdigest()[:12]
            made.append(Mutant(module, name, occurrence, line, *shown, digest, text=text))
    return made


def _line_that_differs(one: str, other: str) -> str:
    others = other.splitlines()
    for number, line in enumerate(one.splitlines()):
        if number >= len(others) or line != others[number]:
            return line.strip()
    return ""
