"""A counter of words that keep strangers out: vague names in code, and dated idioms in prose."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Pronouns and participles. A variable is called by a noun that says what it holds.
VAGUE_NAMES = frozenset(
    re.findall(
        r"\w+",
        "asked awaited come each found given gone had held here kept known lasting left made mine "
        "one ones other others own rest said seen shown some taken theirs there told wanted which "
        "whose",
    )
)
IDIOMS = {
    '"where" for "if"': r"\b[Ww]here (an?|all|it|no|nobody|none|one|some|somebody|that|the|there|"
    r"these|they|this)\b",
    "whoever, whom, somebody, nobody": r"\b([Ww]hoever|[Ww]hom|[Ss]omebody|[Nn]obody)\b",
    '"tell" for "say", "show" or "report"': r"\b(tells?|told|telling)\b",
    '"so many" as a noun': r"\b[Ss]o (few|long|many|much)\b(?! (as|that))",
    "anew, nevertheless, meanwhile": r"\b([Aa]new|[Mm]eanwhile|[Nn]evertheless)\b",
    'a sentence that begins with "Of"': r"(?:^|[.:] )Of (an?|each|keyed|rows|several|the|what)\b",
    '"is none"': r"\b(is|are) none\b",
}
_CODE_BLOCK = re.compile(r"```.*?```", re.DOTALL)
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Words:
    """Counts over some files, and the places that were counted, as `file:line: word`."""

    line_count: int
    word_count: int
    names: list[str]
    idioms: list[str]

    @property
    def names_per_thousand_lines(self) -> float:
        return 1000 * len(self.names) / max(self.line_count, 1)

    @property
    def idioms_per_thousand_words(self) -> float:
        return 1000 * len(self.idioms) / max(self.word_count, 1)


def count_words(paths: Iterable[Path], root: Path) -> Words:
    """Count vague names in Python files, and idioms in their docstrings and comments and in
    Markdown outside blocks of code."""
    line_count = word_count = 0
    names, idioms = list[str](), list[str]()
    for path in paths:
        text, label = path.read_text(encoding="utf-8"), path.relative_to(root)
        if path.suffix == ".py":
            line_count += text.count("\n")
            nodes = list(ast.walk(ast.parse(text)))
            names += [f"{label}:{line}: {name}" for line, name in _vague_names(nodes)]
            passages = _passages_of_python(nodes, text)
        else:
            passages = iter([_CODE_BLOCK.sub("", text)])
        for passage in passages:
            words = passage.split()
            word_count += len(words)
            for pattern in IDIOMS.values():
                matches = re.finditer(pattern, " ".join(words))
                idioms += [f"{label}: {match.group()}" for match in matches]
    return Words(line_count, word_count, names, idioms)


def _vague_names(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Name | ast.arg):
            name = node.id if isinstance(node, ast.Name) else node.arg
            if name.lstrip("_") in VAGUE_NAMES:
                yield node.lineno, name


def _passages_of_python(nodes: list[ast.AST], text: str) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, _DOCUMENTED):
            yield ast.get_docstring(node) or ""
    yield from _comments(nodes, text)


def _comments(nodes: list[ast.AST], text: str) -> Iterator[str]:
    """Yield the comments: from the first `#` of a line that is not in a string, so none
    between the parts of one string. (`tokenize` sees those, too, and takes five times as long.)"""
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    # Python 3.11 has wrong places for what is inside of an f-string.
    inner = {id(part) for node in formatted for part in ast.walk(node) if part is not node}
    # Places are line and byte, as those of syntax trees are.
    strings = sorted(
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in nodes
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in inner
        if isinstance(node, ast.JoinedStr) or isinstance(node.value, str | bytes)
    )
    begins = [begin for begin, _ in strings]
    for number, line in enumerate(text.encode().split(b"\n"), start=1):
        for match in re.finditer(b"#", line):
            place = number, match.start()
            index = bisect.bisect_right(begins, place) - 1
            if index < 0 or strings[index][1] <= place:
                yield line[match.start() :].decode().lstrip("# ")
                break
