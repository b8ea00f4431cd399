"""Write the pages of ``docs/reference`` from the code, and the list of decisions from theirs;
``make generate`` calls this."""

from __future__ import annotations

from pathlib import Path

from architecture import alerts_page, api_page, exit_codes_page, timeouts_page, tree

FOLDER = api_page.FOLDER
DECISIONS = tree.ROOT / "docs/decisions"

DECISIONS_HEAD = """# Decisions

Why Railwright is built as it is. Each page has the context, the decision, what else was \
considered, and the consequences. A decision that no longer holds stays, with its status.

"""


def rendered() -> dict[Path, str]:
    """The text of each page."""
    return {
        **api_page.rendered(),
        exit_codes_page.PAGE: exit_codes_page.rendered(),
        timeouts_page.PAGE: timeouts_page.rendered(),
        alerts_page.PAGE: alerts_page.rendered(),
        DECISIONS / "README.md": DECISIONS_HEAD + "".join(map(_decision, _decisions())),
    }


def _decisions() -> list[Path]:
    return sorted(DECISIONS.glob("0*.md"))


def _decision(path: Path) -> str:
    title, _, rest = path.read_text(encoding="utf-8").partition("\n")
    number, _, name = title.removeprefix("# ").partition(". ")
    status = rest.strip().partition("\n")[0].removeprefix("Status: ")
    return f"{number}. [{name}]({path.name}): {status}\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in rendered().items():
        path.write_text(text, encoding="utf-8")
