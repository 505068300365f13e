"""The numbers that steer a search."""

from __future__ import annotations

import ast
from pathlib import Path

from ppopt.search import tuning


def test_every_number_says_where_it_is_from() -> None:
    body = ast.parse(Path(str(tuning.__file__)).read_text()).body[1:]
    numbers = [node for node in body if isinstance(node, ast.Assign)]
    count = sum(isinstance(node, ast.Constant) and not isinstance(node.value, str) for each in numbers for node in ast.walk(each))
    assert count <= 40
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):  # those have a comment for each number
            assert isinstance(after, ast.Expr), ast.unparse(node)
            assert isinstance(after.value, ast.Constant), ast.unparse(node)
