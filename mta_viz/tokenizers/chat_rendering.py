"""Renders one chat template, as a program of its own: what a template may take of the machine is limited.

Reads JSON with `template` and `variables`, writes the text. A template comes from a file and is a little
program: it runs in Jinja's sandbox, as in `transformers`, with limits of processor time, memory and length.
"""

import datetime
import json
import sys
from contextlib import suppress
from typing import Any, NoReturn

SECONDS, BYTES, CHARACTERS = 2, 2**30, 10**6


def limit() -> None:
    """Take the limits on, where the system has them."""
    with suppress(ImportError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def rendered(template: str, variables: dict[str, Any]) -> str:
    """The text. Raises jinja2's errors, SecurityError among them, and ValueError for one that is too long."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    def as_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **how)

    class Answers(Extension):
        """`generation` blocks, by which trainers find what the model wrote: their text, as it is."""

        tags = {"generation"}  # noqa: RUF012 (as Jinja has it)

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}
    room = ImmutableSandboxedEnvironment(**options, extensions=["jinja2.ext.loopcontrols", Answers])
    room.filters["tojson"] = as_json  # Jinja's own escapes for web pages
    room.globals["raise_exception"] = refuse
    room.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    text = room.from_string(template).render(**variables)
    if len(text) > CHARACTERS:
        raise ValueError(f"it makes {len(text):,} characters; at most {CHARACTERS:,}")
    return text


if __name__ == "__main__":
    limit()
    try:
        asked = json.loads(sys.stdin.read())
        sys.stdout.buffer.write(rendered(asked["template"], asked["variables"]).encode())
    except MemoryError:
        sys.exit("it takes more than 1 GiB of memory")
    except Exception as error:  # of the sandbox, of Jinja, and whatever a template's own steps raise
        sys.exit(f"{type(error).__name__}: {error}")
