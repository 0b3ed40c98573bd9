"""Puts an objective into a function of a host, in the place of PPO's min(A·r, A·clip(r, 1 − ε, 1 + ε)).

The host's own source is parsed, one expression and the exponential that makes its ratio are replaced, and the result is
compiled with the host's file name and line numbers, so that a traceback shows the host's own lines. No host code is
copied, and a release whose expression is gone or doubled is refused by name.
"""

import __future__

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType

from spo.errors import SpoError
from spo.integrations.hosts import Host
from spo.objectives import ratio_of

SMALLER, LARGER = ("min", "minimum"), ("max", "maximum")
CLIPS = ("clamp", "clip")
FUTURE = functools.reduce(int.__or__, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names))
OBJECTIVE, RATIO_OF = "hosted_objective", "hosted_ratio_of"
"""The names by which rewritten code calls the objective, and the guarded exponential of the log-ratio."""


@dataclass(frozen=True)
class Expression:
    """min(A·r, A·clip(r, 1 − low, 1 + high)), or the maximum of the negatives, as found in a function."""

    call: ast.Call
    exponential: ast.Call
    ratio: ast.expr
    advantage: ast.expr
    low: ast.expr
    high: ast.expr
    is_negated: bool

    @property
    def log_ratio(self) -> ast.expr:
        """What the exponential is taken of: its argument, or what its method is called on."""
        return self.exponential.args[0] if self.exponential.args else self.exponential.func.value


def rewrite(
    function: Callable,
    host: Host,
    objective: Callable | None = None,
    *,
    expressions: int = 1,
    inputs: dict[str, str] | None = None,
    ratio_of: Callable = ratio_of,
) -> FunctionType:
    """The host's function with the objective in PPO's place: `objective`, or `self.hosted_objective` of a method.

    `expressions` is how many places the function has, `inputs` what else the objective is given: names of objective
    inputs, and of the function's variables that hold them.
    """
    function = inspect.unwrap(function)
    definition = parse(function, host)
    found = find_expressions(definition)
    where = f"{host.title}: {function.__qualname__}"
    if len(found) != expressions:
        raise SpoError(
            f"{where} has {len(found)} expressions min(A·r, A·clip(r, 1 ± ε)), expected were {expressions}; supported "
            f"are releases {host.oldest} to {host.tested}: {host.remedy}"
        )
    for variable in (inputs or {}).values():
        if variable not in function.__code__.co_varnames + function.__code__.co_cellvars:
            raise SpoError(f"{where} has no variable {variable!r} any more; {host.remedy}")
    is_method = "self" in function.__code__.co_varnames[:1]
    replaced = Replacement(found, f"self.{OBJECTIVE}" if is_method else OBJECTIVE, inputs or {}).visit(definition)
    return compile_like(function, replaced, {OBJECTIVE: objective, RATIO_OF: ratio_of})


def parse(function: FunctionType, host: Host) -> ast.FunctionDef:
    """The function's definition with the line numbers of its file, without its decorators."""
    where = f"{host.title}: {getattr(function, '__qualname__', function)}"
    if getattr(function, "__closure__", None):
        raise SpoError(f"{where} depends on variables around it, so no objective can be put into it; {host.remedy}")
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise SpoError(f"{where} has no source to read, so no objective can be put into it; install it from its wheel")
    is_indented = lines[0][0].isspace()
    tree = ast.parse(("if True:\n" if is_indented else "") + "".join(lines))
    definition = tree.body[0].body[0] if is_indented else tree.body[0]
    ast.increment_lineno(definition, first - 1 - is_indented)
    definition.decorator_list = []
    return definition


def compile_like(function: FunctionType, definition: ast.FunctionDef, names: dict[str, object]) -> FunctionType:
    """A function like the given one, in its module and of its file and flags, with the definition and names given."""
    maker = ast.parse(f"def make({', '.join(names)}):\n    return {definition.name}")
    maker.body[0].body.insert(0, definition)
    flags = function.__code__.co_flags & FUTURE
    code = compile(ast.fix_missing_locations(maker), function.__code__.co_filename, "exec", flags, dont_inherit=True)
    made: dict[str, Callable] = {}
    exec(code, function.__globals__, made)  # the host's own function, of which one expression differs
    return functools.update_wrapper(made["make"](*names.values()), function)


class Replacement(ast.NodeTransformer):
    """Calls the objective where an expression was found, and the guarded exponential where its ratio is made."""

    def __init__(self, found: list[Expression], objective: str, inputs: dict[str, str]):
        self.objective, self.inputs = objective, inputs
        self.calls = {id(one.call): one for one in found}
        self.exponentials = {id(one.exponential): one for one in found}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if id(node) in self.calls:
            return ast.copy_location(self.objective_call(self.calls[id(node)]), node)
        expression = self.exponentials.get(id(node))
        self.generic_visit(node)
        if expression:
            return ast.copy_location(ast.Call(ast.Name(RATIO_OF, ast.Load()), [expression.log_ratio], []), node)
        return node

    def objective_call(self, one: Expression) -> ast.expr:
        widths = [one.low] if same(one.low, one.high) else [one.low, one.high]
        inputs = [ast.keyword(name, ast.Name(variable, ast.Load())) for name, variable in self.inputs.items()]
        call = ast.Call(name_of(self.objective), [one.ratio, one.advantage, *widths], inputs)
        return ast.UnaryOp(ast.USub(), call) if one.is_negated else call


def find_expressions(definition: ast.FunctionDef) -> list[Expression]:
    """Every place of the function that has PPO's expression."""
    assigned = Assignments(definition)
    calls = [node for node in ast.walk(definition) if isinstance(node, ast.Call)]
    found = [match(call, assigned) for call in calls]
    return [expression for expression in found if expression]


class Assignments:
    """What the variables of a function hold, line by line."""

    def __init__(self, definition: ast.FunctionDef):
        self.values: dict[str, list[tuple[int, ast.expr]]] = {}
        for node in ast.walk(definition):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name) and node.value:
                        self.values.setdefault(target.id, []).append((node.lineno, node.value))

    def before(self, name: str, line: int) -> tuple[int, ast.expr] | None:
        """The last assignment above a line."""
        above = [assignment for assignment in self.values.get(name, ()) if assignment[0] < line]
        return max(above, key=lambda assignment: assignment[0], default=None)

    def resolve(self, node: ast.expr, line: int) -> tuple[ast.expr, int]:
        """What a variable stands for at a line, and since which; anything else stands for itself."""
        assignment = self.before(node.id, line) if isinstance(node, ast.Name) else None
        return (assignment[1], assignment[0]) if assignment else (node, line)

    def are_kept(self, nodes: list[ast.expr], since: int, until: int) -> bool:
        """Whether no variable of the expressions is assigned between two lines."""
        names = {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}
        return not any(since < line < until for name in names for line, _ in self.values.get(name, ()))


def match(call: ast.Call, assigned: Assignments) -> Expression | None:
    """PPO's expression, if the call is one: two products that differ in a clip of one factor."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name not in SMALLER + LARGER or len(call.args) != 2 or call.keywords:
        return None
    (plain, first), (clipped, second) = (assigned.resolve(argument, call.lineno) for argument in call.args)
    for one, two in ((plain, clipped), (clipped, plain)):
        for ratio, advantage, low, high, is_negative in readings(one, two, min(first, second), assigned):
            parts = [ratio, advantage, low, high]
            exponential = find_exponential(ratio, min(first, second), assigned)
            is_kept = assigned.are_kept(parts, min(first, second), call.lineno)
            if exponential and is_kept and is_negative == (name in LARGER):
                return Expression(call, exponential, *parts, is_negative)
    return None


def readings(plain: ast.expr, clipped: ast.expr, line: int, assigned: Assignments) -> Iterator[tuple]:
    """Every way to read two expressions as ±A·r and ±A·clip(r, 1 − low, 1 + high)."""
    for negative, advantage, ratio in factors(plain):
        for other_negative, other_advantage, clip in factors(clipped):
            bounds = clip_bounds(assigned.resolve(clip, line)[0], ratio)
            if bounds and negative == other_negative and same(advantage, other_advantage):
                yield ratio, advantage, *bounds, negative


def factors(node: ast.expr) -> Iterator[tuple[bool, ast.expr, ast.expr]]:
    """Both orders of a product's factors, with its sign."""
    negative, node = strip_minus(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left_negative, left = strip_minus(node.left)
        negative ^= left_negative
        yield from ((negative, left, node.right), (negative, node.right, left))


def strip_minus(node: ast.expr) -> tuple[bool, ast.expr]:
    is_negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return is_negative, node.operand if is_negative else node


def clip_bounds(node: ast.expr, ratio: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The widths of clip(r, 1 − low, 1 + high), called as a function or as a method of r."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLIPS):
        return None
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    arguments = arguments if len(arguments) == 3 else [node.func.value, *arguments]
    if len(arguments) != 3 or not same(arguments[0], ratio):
        return None
    low, high = one_and(arguments[1], ast.Sub), one_and(arguments[2], ast.Add)
    return (low, high) if low and high else None


def one_and(node: ast.expr, operator: type[ast.operator]) -> ast.expr | None:
    """a of 1 − a or 1 + a."""
    is_sum = isinstance(node, ast.BinOp) and isinstance(node.op, operator)
    return node.right if is_sum and isinstance(node.left, ast.Constant) and node.left.value == 1 else None


def find_exponential(ratio: ast.expr, line: int, assigned: Assignments) -> ast.Call | None:
    """The call of exp that makes the ratio, looked for through the variables that it is made of."""
    value, since = assigned.resolve(ratio, line)
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "exp":
            return node
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name)]
    found = (find_exponential(name, since, assigned) for name in names if assigned.before(name.id, since))
    return next((call for call in found if call), None)


def same(one: ast.expr, other: ast.expr) -> bool:
    return ast.dump(one) == ast.dump(other)


def name_of(dotted: str) -> ast.expr:
    return ast.parse(dotted, mode="eval").body
