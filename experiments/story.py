"""docs/reproduction.md: what held, what did not and what is better now, told from the JSON files alone."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from experiments.gist import gist
from experiments.headlines import headlines
from experiments.page import is_private, number, value_and_spread
from experiments.result import NOT_COMPARABLE, Result

Document: TypeAlias = Mapping[str, Any]

OPENING = """# The paper, reproduced

Bellet, Guerraoui, Taziki and Tommasi, "Personalized and Private Peer-to-Peer Machine Learning" (AISTATS
2018): all its experiments again, each published value beside ours, which of its claims hold, and what is
better now. Where its statements had to be corrected stands in [errata.md](errata.md). One command wrote
this page,

```
flockwise reproduce all --out DIR --docs docs/reproduction.md
```

and every number in it comes from the files that the command wrote beside it, in
[reproduction/](reproduction/).

- **Released** models were sent to neighbors. **Own** models never leave their agent and cost no privacy.
- **With a guarantee** means that what one point can change is bounded, and the noise calibrated to that
  bound. **Not private** means that nothing bounds it, whatever ε is printed: such rows only show which noise
  would give the published pattern.
- On the generated task the graph is made from the true models, as in the paper. It is taken as public: no
  guarantee here covers what it tells. What is taken as public in Table 1 is said there.
- A published value **holds** where ours agrees with it within its reading error (figures were read by eye,
  to about .005 in accuracy) and two standard errors; else ours is better or worse.
"""
SIGNIFICANT_DIGITS = 6
KEPT = ("name", "seeds", "rows", "claims", "settings", "quick", "seconds", "version")


def numbers_of(document: Document) -> dict[str, Any]:
    """What the page is told from: a document without curves, guarantees and empty cells, and rounded."""
    rows = [
        {
            key: _rounded(value) if key in ("ours", "sd") else value
            for key, value in row.items()
            if value is not None
        }
        for row in document["rows"]
    ]
    return {key: document[key] for key in KEPT} | {"rows": rows}


def numbers_text(document: Document) -> str:
    """As it lies beside the page: a row a line, so that versions can be compared."""
    lines = []
    for key, value in numbers_of(document).items():
        if key in ("rows", "claims"):
            items = ",\n".join(f"  {_compact(item)}" for item in value)
            text = f"[\n{items}\n ]" if value else "[]"
        else:
            text = _compact(value)
        lines.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tell(documents: Sequence[Document]) -> str:
    """The whole page, in Markdown."""
    documents = [numbers_of(document) for document in documents]
    parts = [OPENING, _in_short(documents), *_claims(documents), _table(documents)]
    parts += [_section(document) for document in documents]
    parts.append(_times(documents))
    return "\n".join(part for part in parts if part)


def _in_short(documents: Sequence[Document]) -> str:
    claims = [claim for document in documents for claim in document["claims"]]
    held = {
        about: [claim["holds"] for claim in claims if claim["about"] == about] for about in ("paper", "ours")
    }
    sentences = gist([Result.from_document(document) for document in documents])
    lines = [
        "## In short\n",
        *([f"{sentences}\n"] if sentences else []),
        f"Of {len(held['paper'])} claims of the paper that were checked, {sum(held['paper'])} hold and "
        f"{len(held['paper']) - sum(held['paper'])} do not. Of {len(held['ours'])} claims of ours, "
        f"{sum(held['ours'])} hold. The published values that can be compared:\n",
        "| ours | values | hold | ours better | ours worse |",
        "|---|--:|--:|--:|--:|",
    ]
    rows = [row for document in documents for row in document["rows"]]
    compared = [row for row in rows if row["verdict"] not in ("", NOT_COMPARABLE)]
    kinds = {
        "without privacy": [row for row in compared if row.get("epsilon") is None],
        "with a guarantee": [row for row in compared if row.get("epsilon") is not None and is_private(row)],
        "not private, with the noise named": [row for row in compared if not is_private(row)],
    }
    for kind, found in kinds.items():
        verdicts = [row["verdict"] for row in found]
        counts = (verdicts.count(word) for word in ("holds", "better", "worse"))
        lines.append(f"| {kind} | {len(found)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def _claims(documents: Sequence[Document]) -> Iterator[str]:
    for heading, about, holds in (
        ("What held", "paper", True),
        ("What did not hold", "paper", False),
        ("What explains it", "cause", True),
        ("What is better now", "ours", True),
        ("What was not reached", "ours", False),
    ):
        found = [
            f"- {claim['words']} ([{document['name']}](#{document['name']}))."
            for document in documents
            for claim in document["claims"]
            if claim["about"] == about and claim["holds"] == holds
        ]
        if found:
            yield f"## {heading}\n\n" + "\n".join(found) + "\n"


def _table(documents: Sequence[Document]) -> str:
    lines = []
    for document in documents:
        name = document["name"]
        for words, row in headlines(Result.from_document(document)):
            paper = "" if row.paper is None else number(row.paper, row.metric)
            lines.append(
                f"| {name} | {words} | {paper} | {value_and_spread(row.document())} | {row.verdict} |"
            )
            name = ""
    if not lines:
        return ""
    return "\n".join(
        ("## The main numbers\n", "| | | paper | ours ± sd | |", "|---|---|--:|--:|---|", *lines, "")
    )


def _section(document: Document) -> str:
    module = importlib.import_module(f"experiments.{document['name']}")
    told = module.story(Result.from_document(document))
    return f'<a id="{document["name"]}"></a>\n\n## {module.TITLE}\n\n{told}\n'


def _times(documents: Sequence[Document]) -> str:
    lines = [
        f"| {document['name']} | {len(document['seeds'])} | {document['seconds'] / 60:.1f} |"
        for document in documents
    ]
    minutes = sum(document["seconds"] for document in documents) / 60
    return "\n".join(
        (
            "## What it takes\n",
            "The full run, in minutes of processor time. It can be stopped at any time and goes on where it "
            "was; `--quick` has a look at everything in two minutes.\n",
            "| | instances | minutes |",
            "|---|--:|--:|",
            *lines,
            f"| all | | {minutes:.0f} |",
            "",
        )
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{SIGNIFICANT_DIGITS}g}")
