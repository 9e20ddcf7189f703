"""Every error a user can cause. Each message says what came, what was expected and what to do."""

from collections.abc import Callable, Iterable, Sequence

from mta_viz import printed

FEW_FILES = "too few files may be open at a time; raise the limit: ulimit -n 256"
NO_MEMORY = "no memory is left; end other programs, raise the limit (ulimit -v), or take a smaller model"
MOST_LISTED = 20  # problems of one kind that are told one by one


class MtaVizError(Exception):
    """Base of all errors with a message meant for the user, which is safe to print: see printed.py."""

    def __init__(self, message: object = "") -> None:
        super().__init__(printed.message(message))


class ConfigError(MtaVizError, ValueError):
    """Values that describe no model, plan, recipe or result. `problems` lists every fault found."""

    def __init__(self, problems: Sequence[str], subject: str = "The configuration", remedy: str = "") -> None:
        self.problems = tuple(problems)
        message = describe_problems(subject, self.problems)
        super().__init__(f"{message}\n{remedy}" if remedy else message)


class CheckpointError(MtaVizError):
    """A checkpoint that cannot be read. `problems` lists EVERY fault found in one go."""

    def __init__(self, problems: Sequence[str], subject: str = "The checkpoint") -> None:
        self.problems = tuple(problems)
        super().__init__(describe_problems(subject, self.problems))


class FileError(MtaVizError):
    """A file that cannot be opened or is not what it should be; `missing`: nothing is in its place."""

    def __init__(self, name: str, reason: str, remedy: str, *, missing: bool = False) -> None:
        self.reason, self.remedy, self.missing = reason, remedy, missing
        super().__init__(self.of(name))

    def of(self, name: str, remedy: str | None = None) -> str:
        """The message, the file called by another name, with another thing to do if `remedy` is given."""
        return f"{name} {self.reason}; {remedy or self.remedy}"


class TokenizerError(MtaVizError):
    """A tokenizer file that is missing (`missing`) or unreadable, or text it cannot encode."""

    def __init__(self, message: object = "", *, missing: bool = False) -> None:
        self.missing = missing
        super().__init__(message)


class PromptError(MtaVizError):
    """A prompt, token list or selection the model cannot take."""


def check_index(name: str, index: int, count: int) -> None:
    """Raise PromptError for a layer, head, position or token, by its name, that is not one of `count`."""
    if not 0 <= index < count:
        raise PromptError(f"{name} {index} does not exist; expected 0 to {count - 1}")


class TooLongError(PromptError):
    """A prompt that this machine does not run; one of `most` tokens fits."""

    def __init__(self, message: str, most: int) -> None:
        super().__init__(message)
        self.most = most


class MemoryFullError(MtaVizError):
    """A run for which the memory of its device did not suffice; it was tried with less at once, too."""


class Cancelled(MtaVizError):
    """Raised out of a progress callback to stop a run; nothing is left half done."""


def refuse_all(checks: Iterable[Callable[[], object]], subject: str) -> None:
    """Make every check; what is wrong with several of them is one ConfigError with all problems."""
    raised: list[MtaVizError] = []
    for check in checks:
        try:
            check()
        except MtaVizError as error:
            raised.append(error)
    if len(raised) == 1:
        raise raised[0]
    if raised:
        problems = [problem for error in raised for problem in getattr(error, "problems", (str(error),))]
        raise ConfigError(problems, subject)


def describe_problems(subject: str, problems: Sequence[str]) -> str:
    """One line for one problem, a bulleted list for several, of no more lines than a message has."""
    if len(problems) == 1:
        return f"{subject} cannot be used: {problems[0]}"
    listed = [f"  - {problem}" for problem in problems[: printed.LINES - 2]]
    more = [f"  - and {len(problems) - len(listed):,} more problems"] * (len(problems) > len(listed))
    return "\n".join([f"{subject} cannot be used; {len(problems)} problems:", *listed, *more])


def first_problems(problems: Sequence[str], what: str) -> list[str]:
    """At most `MOST_LISTED` problems of one kind, and how many more there are."""
    rest = len(problems) - MOST_LISTED
    if rest <= 0:
        return list(problems)
    return [*problems[:MOST_LISTED], f"and {rest:,} more {what}"]


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether a device, or this machine, had no memory left: torch says so in words."""
    kind, words = type(error).__name__, str(error).lower()
    return isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "allocate memory" in words
