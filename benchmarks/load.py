"""Twenty readers at one app for minutes: is each answer the one that a reader alone gets?

`make load`, or python -m benchmarks.load [SECONDS] [READERS] [SEED]. Readers are sessions of a real
server without a browser: each opens an address over a websocket as a browser does, waits for the page's
end, and goes to another. An answer is every chart, table and map of the page, with its numbers. Prompts,
heads and plans of edits differ, and there are more than the server keeps.
"""

import asyncio
import hashlib
import json
import random
import struct
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import psutil
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from tornado.websocket import websocket_connect

from benchmarks.tables import replace_table
from mta_viz.model.interventions import AblateHead, KernelToIdentity
from mta_viz.model.plans import Listed, Plan, to_address
from tests.browser.serving import start_app, wait_for
from tests.tiny_models import write_models

SECONDS, READERS = 300.0, 20
OFFERED = ("id", "crop", "crops", "opening", "spans")  # of maps: what to look at, as a story has it
PATIENCE = 300.0  # seconds between two messages of the server
SHOWN = ("plotly_chart", "dataframe", "bidi_component", "html")
View = dict[str, str]
Answer = dict[tuple[int, ...], str]
Pages = list[tuple[float, str]]  # seconds, and what was wrong


def views() -> list[View]:
    """Twenty addresses: prompts, heads, stages, plans."""
    plans: tuple[Plan, ...]
    plans = (), (KernelToIdentity(1, 2, "pre"),), (AblateHead(1, 0),), (AblateHead(1, 1),)
    found = []
    for at in range(20):
        view = {"ck": "tiny-mta", "p": f"Reader {at} asks", "l": "1", "h": str(at % 4), "s": "kq"}
        if plan := plans[at // 4 % 4]:
            view |= {"p": f"Reader {at % 4} asks", "e": to_address([Listed(step) for step in plan])}
        found.append(view)
    return found


async def answer(address: str, view: View) -> Answer:
    """What the page at an address shows at its end: for each place the digest of its numbers.

    Raises TimeoutError, and RuntimeError where the server ends the connection or shows an exception.
    """
    socket = await websocket_connect(f"ws{address[4:]}/_stcore/stream", subprotocols=["streamlit"])
    asked = BackMsg()
    asked.rerun_script.query_string = urlencode(view)
    await socket.write_message(asked.SerializeToString(), binary=True)
    shown, ended = Answer(), False
    while not ended:
        content = await asyncio.wait_for(socket.read_message(), PATIENCE)
        if not isinstance(content, bytes):
            raise RuntimeError("the connection ended")
        message = ForwardMsg.FromString(content)
        ended = message.WhichOneof("type") == "script_finished" and message.script_finished == 0
        if message.WhichOneof("type") == "delta":
            element = message.delta.new_element
            kind, place = element.WhichOneof("type"), tuple(message.metadata.delta_path)
            if kind in ("exception", "alert"):
                raise RuntimeError(f"{kind}: {getattr(element, kind)}")
            shown.pop(place, None)
            if kind in SHOWN:
                shown[place] = _digest(element)
    socket.close()
    return shown


def _digest(element: Element) -> str:
    """Of what it shows; of maps without what is offered to look at."""
    maps = element.bidi_component.bytes
    if maps:
        size = struct.unpack("<I", maps[:4])[0]
        header = json.loads(maps[4 : 4 + size])
        rest = json.dumps({name: header[name] for name in header if name not in OFFERED})
        element.bidi_component.bytes = rest.encode() + maps[4 + size :]
    return hashlib.sha256(element.SerializeToString(deterministic=True)).hexdigest()


async def answers_alone(address: str) -> list[Answer]:
    """Of each view, one after the other."""
    return [await answer(address, view) for view in views()]


def difference(shown: Answer, alone: Answer) -> str:
    """Where a page shows what it shows to nobody alone; nothing where it does not."""
    places = [place for place in shown | alone if shown.get(place) != alone.get(place)]
    return f"other numbers at {places[:3]}" if places else ""


async def read(address: str, alone: list[Answer], end: float, numbers: random.Random) -> Pages:
    """One reader's pages until `end`."""
    pages, asked = [], views()
    while (start := time.monotonic()) < end:
        at = numbers.randrange(len(asked))
        try:
            problem = difference(await answer(address, asked[at]), alone[at])
        except (RuntimeError, TimeoutError, OSError) as error:
            problem = f"{type(error).__name__}: {error!s:.300}"
        pages.append((time.monotonic() - start, f"view {at}: {problem}" if problem else ""))
    return pages


async def together(address: str, alone: list[Answer], seconds: float, readers: int, seed: int) -> Pages:
    """All pages of all readers."""
    end = time.monotonic() + seconds
    each = [read(address, alone, end, random.Random(f"{seed}-{at}")) for at in range(readers)]
    return [page for pages in await asyncio.gather(*each) for page in pages]


def megabytes(process: psutil.Process) -> float:
    """Of memory that a server and the processes of its tokenizers take."""
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True))) / 1e6


def main(seconds: float = SECONDS, readers: int = READERS, seed: int = 0) -> int:
    """Returns how many answers were wrong."""
    with tempfile.TemporaryDirectory() as folder:
        process, address = start_app(write_models(Path(folder)))
        try:
            wait_for(address, process)
            alone = asyncio.run(answers_alone(address))
            server = psutil.Process(process.pid)
            before = megabytes(server)
            pages = asyncio.run(together(address, alone, seconds, readers, seed))
            after = megabytes(server)
        finally:
            process.terminate()
            process.wait(20)
    wrong = [problem for _, problem in pages if problem]
    print(*sorted(set(wrong)), sep="\n", file=sys.stderr)
    half, most = np.percentile([taken for taken, _ in pages], (50, 95))
    different = len({str(sorted(shown.items())) for shown in alone})
    replace_table(
        "load",
        f"{readers} sessions for {seconds:.0f} s on {psutil.cpu_count()} processors, seed {seed}, "
        f"{different} different pages",
        ("opened", "as alone", "not", "p50", "p95", "memory before", "after"),
        [
            (
                *(len(pages), len(pages) - len(wrong), len(wrong), f"{half:.1f} s", f"{most:.1f} s"),
                *(f"{before:.0f} MB", f"{after:.0f} MB"),
            )
        ],
    )
    return len(wrong)


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:])), 1))
