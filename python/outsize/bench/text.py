"""Real text that every machine with Python has: its standard library's sources, as tokens.

A byte-level BPE is trained on them once; tokenizer and tokens are cached.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy

VOCABULARY = 8192
CORPUS_BYTES = 6_000_000


def source_files(limit_bytes: int = CORPUS_BYTES) -> list[Path]:
    """The standard library's modules, in the order of their names, until `limit_bytes` are reached."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"site-packages", "dist-packages", "test", "tests", "__pycache__"}
    files: list[Path] = []
    total = 0
    for file in sorted(folder.rglob("*.py")):
        size = file.stat().st_size
        if skipped.isdisjoint(file.relative_to(folder).parts) and size:
            files.append(file)
            total += size
            if total >= limit_bytes:
                break
    if not files:
        raise FileNotFoundError(f"no Python sources under {folder}")
    return files


def tokens_file(
    folder: Path, limit_bytes: int = CORPUS_BYTES, vocabulary: int = VOCABULARY
) -> Path:
    """The path of the tokens (uint16, one after another) in `folder`, made now if they aren't there."""
    files = source_files(limit_bytes)
    named = [(file.name, file.stat().st_size) for file in files]
    made_from = json.dumps([sys.version, vocabulary, named])
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:16]
    tokens_path = folder / f"tokens-{digest}.bin"
    if tokens_path.exists():
        return tokens_path

    from tokenizers import ByteLevelBPETokenizer

    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        texts,
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    end = tokenizer.token_to_id("<|endoftext|>")
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(texts):
        ids += encoding.ids
        ids.append(end)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        tokenizer.save(str(Path(scratch) / "tokenizer.json"))
        numpy.asarray(ids, dtype=numpy.uint16).tofile(Path(scratch) / "tokens.bin")
        os.replace(Path(scratch) / "tokenizer.json", folder / f"tokenizer-{digest}.json")
        os.replace(
            Path(scratch) / "tokens.bin", tokens_path
        )  # last: its presence says all is there
    return tokens_path
