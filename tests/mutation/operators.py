"""The ways to change a line: a choice of cosmic-ray's operators, and two of our own in its form."""

from collections.abc import Iterator
from typing import Any

import parso
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

# Changes that still run: + to << on tensors dies at once and says nothing about the tests.
_CORE = [
    *(f"ReplaceBinaryOperator_{name}" for name in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul")),
    *(f"ReplaceBinaryOperator_{name}" for name in ("Mod_FloorDiv", "Pow_Mul", "BitOr_BitAnd", "BitAnd_BitOr")),
    *(f"ReplaceComparisonOperator_{name}" for name in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")),
    *(f"ReplaceComparisonOperator_{name}" for name in ("Lt_LtE", "Lt_Gt", "LtE_Lt", "LtE_GtE")),
    *(f"ReplaceComparisonOperator_{name}" for name in ("Gt_GtE", "Gt_Lt", "GtE_Gt", "GtE_LtE")),
    *(f"ReplaceUnaryOperator_{name}" for name in ("USub_UAdd", "Delete_Not", "Delete_Invert")),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer", "NumberReplacer"),
    *("RemoveDecorator", "ZeroIterationForLoop"),
]


class DeleteStatement(Operator):
    """Puts ``pass`` in the place of a call, an assignment to what exists already, a ``raise`` or an ``assert``."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        if getattr(node, "parent", None) is None or node.parent.type != "simple_stmt":
            return
        if node.type in ("raise_stmt", "assert_stmt") or _is_call(node) or _changes_a_part(node):
            yield (node.start_pos, node.end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        return parso.python.tree.Keyword("pass", node.start_pos, node.get_first_leaf().prefix)

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class DeleteKeyword(Operator):
    """Leaves out an argument that is given by its name."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        if node.type == "arglist":
            for argument in self._named(node):
                yield (argument.start_pos, argument.end_pos)

    def mutate(self, node: Any, index: int) -> Any:
        argument = self._named(node)[index]
        place = node.children.index(argument)
        del node.children[place - 1 : place + 1]  # with the comma before it
        return node

    @staticmethod
    def _named(node: Any) -> list[Any]:
        return [
            child
            for child in node.children[1:]
            if child.type == "argument" and child.children[0].type == "name" and child.children[1] == "="
        ]

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def _is_call(node: Any) -> bool:
    """An expression that is evaluated for what it does: ``f(x)``, but neither a string nor a ``yield``."""
    if node.type not in ("power", "atom_expr"):
        return False
    last = node.children[-1]
    return last.type == "trailer" and last.children[0] == "("


def _changes_a_part(node: Any) -> bool:
    """``x += y``, ``x[i] = y`` or ``x.name = y``: without it, what follows still runs."""
    if node.type != "expr_stmt" or len(node.children) < 3:
        return False
    target, sign = node.children[0], node.children[1]
    if sign.type == "operator" and sign.value == "=":
        return target.type in ("power", "atom_expr")
    return sign.type in ("operator", "augassign") and sign.type != "annassign"


OPERATORS: dict[str, Operator] = {name: get_operator(f"core/{name}")() for name in _CORE}
OPERATORS |= {"DeleteStatement": DeleteStatement(), "DeleteKeyword": DeleteKeyword()}
