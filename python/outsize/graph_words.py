"""What people read of a graph's parts.

op_words(12, graph["ops"][12])    # "op 12 aten.mm.default (wte, model.py:7)"
"""

from __future__ import annotations

from typing import Any


def module_of(op: dict[str, Any]) -> str:
    """The qualified name of the module that an op runs in; "" outside of modules."""
    return str(op.get("site", {}).get("module", ""))


def op_words(index: int, op: dict[str, Any]) -> str:
    """An op by number and name, with its module and line where those are known."""
    site = op.get("site", {})
    where = [site["module"]] if site.get("module") else []
    if site.get("file"):
        where.append(f"{site['file']}:{site.get('line', 0)}")
    return f"op {index} {op['name']}" + (f" ({', '.join(where)})" if where else "")
