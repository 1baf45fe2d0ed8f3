"""Models of many kinds at tiny sizes, each with a training step: what `docs/models.md` is measured on.

run = ZOO["bert"].make()         # a Training with three batches; the same each time
run.step(*run.batches[0])

Those of `transformers` are built from their own configurations with random weights; nothing is loaded.
"""

import zoo_own  # noqa: F401
import zoo_senses  # noqa: F401
import zoo_text  # noqa: F401
from zoo_entries import ZOO, Entry

__all__ = ["ZOO", "Entry"]
