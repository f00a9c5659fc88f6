"""Finds changes that prove nothing, by the syntax alone: tests cannot notice them, or another change of the place proves
more.

Pure, and without libcst. Narrow on purpose: every change that could be noticed, in a file or in a message, is tried,
and named in equivalent.toml if necessary.
"""

import ast
from functools import lru_cache
from typing import Final

_NONE: Final = "Constant(value=None)"
_BOOLS: Final = ("Constant(value=True)", "Constant(value=False)")
_STRICT_ZIP: Final = "strict of zip"
_STRICT: Final = f"keyword(arg='{_STRICT_ZIP}', value=Constant(value=True))"


def proves_nothing(before: str, after: str) -> bool:
    """Whether a function changed from `before` to `after` is not worth a try. Raises SyntaxError.

    Besides what does the same, these are not:

    - None in place of True or False. Tests of its truth treat it as False, and uses of the value notice the opposite as
    well, which is another mutant of this place. The type check of the gate refuses it besides.
    - zip without strict=True: an assertion on lists that are made of one another, which no input breaks.
    """
    old, new = canonical(before), canonical(after)
    return old == new or _loses(old, new, _BOOLS, _NONE) or _loses(old, new, (_STRICT,), "")


def _loses(old: str, new: str, texts: tuple[str, ...], instead: str) -> bool:
    """Whether the only difference is that `new` lacks one of these texts."""
    is_less = sum(map(new.count, texts)) < sum(map(old.count, texts))
    for text in texts:
        old, new = old.replace(text, instead), new.replace(text, instead)
    return is_less and old == new


@lru_cache(maxsize=8)  # many changes share one original function
def canonical(function: str) -> str:
    """One dump for all texts that do the same. Raises SyntaxError.

    - `.get(key, "")`, and with any literal that is false, is `.get(key)` where only the truth of the result counts: in a
      test, and before `or`.
    - `zip(…, strict=False)` is zip without it: the default.
    - `cast(kind, value)` is the value.
    - X is not a character to strip: mutmut writes XX around a text, which adds X alone to the characters of `strip`.
    """
    return ast.dump(_Canonical().visit(ast.parse(f"if 1:\n{function}" if function[:1].isspace() else function)))


class _Canonical(ast.NodeTransformer):
    """Visits a node's children before the node itself."""

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                node.test = _asked(node.test)
            case ast.comprehension():
                node.ifs = [*map(_asked, node.ifs)]
            case ast.UnaryOp(op=ast.Not()):
                node.operand = _asked(node.operand)
            case ast.BoolOp(op=ast.Or()):
                node.values = [*map(_asked, node.values[:-1]), node.values[-1]]
            case ast.Call(func=ast.Name(id="bool"), args=[value], keywords=[]):
                node.args = [_asked(value)]
            case ast.Call(func=ast.Name(id="zip")):
                node.keywords = [_of_zip(each) for each in node.keywords if not _is_false(each.value)]
            case ast.Call(func=ast.Name(id="cast"), args=[_, value], keywords=[]):
                return value
            case ast.Call(func=ast.Attribute(attr="strip" | "lstrip" | "rstrip"), args=[ast.Constant(value=str(text))]):
                node.args = [ast.Constant("".join(sorted(set(text) - {"X"})))]
        return node


def _of_zip(argument: ast.keyword) -> ast.keyword:
    """zip has this argument alone. Renamed, so that another function's argument does not match."""
    return ast.keyword(_STRICT_ZIP, argument.value)


def _asked(test: ast.expr) -> ast.expr:
    """An expression that only counts by its truth."""
    match test:
        case ast.BoolOp():
            test.values = [*map(_asked, test.values)]
        case ast.Call(func=ast.Attribute(attr="get"), args=[key, default], keywords=[]) if _is_false(default):
            test.args = [key]
    return test


def _is_false(value: ast.expr) -> bool:
    match value:
        case ast.Constant():
            return not value.value
        case ast.Tuple(elts=[]) | ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
    return False
