"""Attacks on what the product says, each as a test that carries the attack out and sees it refused.

A test has the mark `attack(number)`: a number of `ATTACKS`, or 0 for an attack that the list does not name.
`python -m tests.attacks` (`make attacks`) runs all of them, and says for each number what was tried.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ATTACKS = {
    1: "list removed words by comparing a forgotten ranker's weights with its base's",
    2: "have a run that changed no weight, or whose target asks for nothing, called fulfilled",
    3: "give the original, hardly changed, as a retrained reference",
    4: "keep a removed text in the collection under a second id",
    5: "hide a request that did not move in a batch that did",
    6: "find ids or texts of a closed request in the bytes of ledger, ranker or certificate",
    7: "join the audit of one ranker with the weights of another in one certificate",
    8: "cut a request out of a ledger, cut off its tail, or put an old copy back",
    9: "have a certificate verified by an attacker's own ledger that lies beside it",
    10: "hang the reader of a ledger with an endless view",
    11: "point a model's files outside its folder",
    12: "have weights read that are no safetensors",
    13: "exhaust memory with a small file: Arrow dictionary, module sizes, tokenizer",
    14: "guess removed ids against the record that ships with a ranker",
    15: "hang a search or a load with a named pipe",
    16: "put other weights into a certified folder",
    17: "have a finished run thrown away because a request arrived",
    18: "have another job's folder deleted by a name that is a pattern",
    19: "set the clock back between the entries of a history",
    20: "bring a removed text back with invisible characters or a final full stop",
}
"""What each attack of the list tries."""


def attacks_with_tests(folder: Path) -> set[int]:
    """Return the numbers that the marks of the tests in a folder name."""
    return {number for path in sorted(folder.glob("test_*.py")) for number in _marked(ast.parse(path.read_text()))}


def _marked(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "attack":
            yield from (given.value for given in node.args if isinstance(given, ast.Constant))  # type: ignore[misc]
