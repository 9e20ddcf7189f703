"""Small files of results, sessions, plans and prompts in which millions of values are wrong: told at once."""

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from mta_viz.analysis.cause import effects, shapley_file
from mta_viz.analysis.labs import sweep_file
from mta_viz.exporting import saved

ROOT, MIB, SECONDS = Path(__file__).parents[2], 2**20, 10
Make = Callable[[Path], None]


def holding(text: str) -> Make:
    def make(file: Path) -> None:
        file.write_text(text)

    return make


def of_format(name: str, **values: object) -> str:
    return json.dumps({"format": name, **values})


def session(compression: int, text: str) -> Make:
    def make(file: Path) -> None:
        with zipfile.ZipFile(file, "w", compression) as archive:
            archive.writestr("session.json", text)

    return make


def many_records(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(40_000):
            archive.writestr(f"{number:0200}", b"")


OPENED = {"page": "Kernels", "view": {}, "sha256": "", "carried": []}
COSTLY: dict[str, tuple[Make, str, str]] = {
    "effects that lack all": (
        holding(of_format(effects.FORMAT, effects=[{}] * 490_000)),
        "effects.read_effects(file)",
        "'sha256' is missing",
    ),
    "numbers for effects": (
        holding(of_format(effects.FORMAT, effects=[1] * 3_900_000)),
        "effects.read_effects(file)",
        "'sha256' is missing",
    ),
    "a million names": (
        holding(of_format(effects.FORMAT, **{f"k{number}": 1 for number in range(900_000)})),
        "effects.read_effects(file)",
        "it has more values than any file read here",
    ),
    "kernels that lack all": (
        holding(of_format(shapley_file.FORMAT, kernels=[{}] * 490_000)),
        "shapley_file.read_shapley(file)",
        "'sha256' is missing",
    ),
    "samples that lack all": (
        holding(
            of_format(
                sweep_file.FORMAT,
                **{"wording": "a", "needle": "b", "question": None},
                models=[{"name": "a", "sha256": "b", "vocabulary": "c", "samples": [{}] * 400_000}],
            )
        ),
        "sweep_file.read_sweep(file)",
        "of each list only the first fault is told",
    ),
    "a session of wrong ids": (
        session(
            zipfile.ZIP_DEFLATED, of_format(saved.SESSION_FORMAT, **OPENED | {"prompt": [-1] * 1_000_000})
        ),
        "saved.read_session(file.read_bytes())",
        "prompt[0] is -1; expected at least 0",
    ),
    "a session that unpacks": (
        session(zipfile.ZIP_LZMA, "0" * 400 * MIB),
        "saved.read_session(file.read_bytes())",
        "it is packed otherwise than ZIP files usually are",
    ),
    "a session of many records": (
        many_records,
        "saved.read_session(file.read_bytes())",
        "its table of records takes more than 8.4 MB",
    ),
    "lines that are none": (
        holding("1\n" * 16 * MIB),
        "named_tasks.read_task(file)",
        "the 16,777,196 lines after it were not looked at",
    ),
    "a line of many objects": (
        holding('{"prompt": [' + "{}," * 8 * MIB + "1]}"),
        "named_tasks.read_task(file)",
        "line 1: it has more values than any file read here",
    ),
    "a plan of many numbers": (
        holding('[{"kind": "replace_kernel", "taps": [[' + "1," * 16 * MIB + "1]]}]"),
        "plans.plan_from_text(file.read_text())",
        "it has more values than any plan",
    ),
    "passages of a letter": (
        holding("a\n" * 16 * MIB),
        "written.parse_passages(file.read_text(), 'p')",
        "p has 16,777,216 lines; at most 2,000,000 are read",
    ),
    "a passage of many objects": (
        holding('{"text": "a b", "x": [' + "{}," * 8 * MIB + "1]}"),
        "written.parse_passages(file.read_text(), 'p')",
        "are more than any passage has",
    ),
}
READ = """
import json, resource, sys, time
from pathlib import Path
from mta_viz.analysis.cause import effects, shapley_file
from mta_viz.analysis.labs import sweep_file
from mta_viz.errors import MtaVizError
from mta_viz.exporting import saved
from mta_viz.model import plans
from mta_viz.run import named_tasks
from mta_viz.tasks import written

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before, said = peak(), []
for name, call in json.loads(sys.argv[1]):
    file, begun = Path(name), time.process_time()
    try:
        eval(call)
        said.append(["opened", 0, 0])
    except MtaVizError as error:
        said.append([str(error), time.process_time() - begun, peak() - before - file.stat().st_size])
print(json.dumps(said))
"""


def test_files_of_millions_of_faults_are_refused_without_the_cost(tmp_path: Path) -> None:
    asked = []
    for number, (make, call, _) in enumerate(COSTLY.values()):
        make(tmp_path / f"{number}")
        asked.append((str(tmp_path / f"{number}"), call))
    command = [sys.executable, "-c", READ, json.dumps(asked)]
    answer = subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    for (message, seconds, growth), (_, _, words) in zip(
        json.loads(answer.stdout), COSTLY.values(), strict=True
    ):
        assert words in message and len(message.splitlines()) <= 41
        assert seconds < SECONDS and growth < 512 * MIB
