#!/usr/bin/env python3
"""Uses the page of scripts/page/build as a person does, in a headless Chromium.

Drops snapshots on it, compares its figures with those of `coalesce advise --json`, looks at a
timeline, a moment and a comparison, and ensures that it opens no connection. Does the same with a
report of `coalesce advise --html`, and checks that the blocks of each moment add up, that tables
are as wide as what is in them and that nothing overflows a phone. Needs Chromium and the Python
package playwright. Writes pictures of the pages, to look at, into a folder.
"""

import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

CHECKOUT = Path(__file__).resolve().parents[2]
HOLDERS = CHECKOUT / "benches/advisor/tests/holders"
SNAPSHOT = HOLDERS / "adamw.pickle.gz"
COMPLAINTS = CHECKOUT / "workloads/recordings/complaints"
OTHER = HOLDERS / "amp.pickle.gz"
# Its peak has more holders than a list begins with.
LONG = HOLDERS / "oom.pickle.gz"
# No installed browser is used but this one: those that playwright brings are downloads.
BROWSERS = ["chromium", "chromium-browser", "google-chrome"]

DROP = """(files) => {
  const transfer = new DataTransfer();
  for (const { name, content } of files) {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name));
  }
  document.getElementById('drop').dispatchEvent(
    new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


# Adds up what the viewer of a report shows after each event.
ADDED_UP = """async () => {
  VIEWER
  const view = await View.fetch(engine, 0, replays[0].conf);
  const sum = (all) => all.reduce((total, { bytes }) => total + bytes, 0);
  const events = Array.from({ length: view.events }, (_, event) => event);
  const wrong = events.filter((event) => {
    const segments = segmentsAfter(view, event);
    const blocks = segments.flatMap((segment) => segment.blocks);
    const allocated = blocks.filter(({ state }) => state === 'allocated');
    return sum(segments) !== view.reserved[event] || sum(blocks) !== view.reserved[event]
      || sum(allocated) !== view.allocated[event];
  });
  return { events: events.length, wrong, holders: holdersAfter(view, advice.holdings.event) };
}"""


# The headings of the tables that are wider than what is in them, with by how many pixels. A text
# of several lines may leave less than a word of its column empty.
LOOSE_TABLES = """() => [...document.querySelectorAll('table')].flatMap((table) => {
  const used = (cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const { paddingLeft, paddingRight } = getComputedStyle(cell);
    const edges = [...range.getClientRects()].filter(({ width }) => width > 0);
    if (!edges.length) return 0;
    return Math.max(...edges.map(({ right }) => right)) - Math.min(...edges.map(({ left }) => left))
      + parseFloat(paddingLeft) + parseFloat(paddingRight);
  };
  const rows = [...table.rows].map((row) => [...row.cells]);
  const content = rows[0].map((_, column) => Math.max(...rows.map((cells) => used(cells[column]))));
  const spare = table.getBoundingClientRect().width - content.reduce((a, b) => a + b, 0);
  return spare > 48 ? [`${table.rows[0].innerText}: ${Math.round(spare)}`] : [];
})"""


def amount(bytes_: int) -> str:
    """As format.js writes it."""
    for name, size in [("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)]:
        if abs(bytes_) >= size:
            return f"{bytes_ / size:.2f} {name}"
    return f"{bytes_} bytes"


def advise(coalesce: list[str], *arguments: str) -> dict:
    command = [*coalesce, "advise", "--json", "--time-limit", "0", *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


class Checker:
    def __init__(self, page: Page, shots: Path) -> None:
        self.page, self.shots = page, shots
        self.passed, self.failed = 0, 0

    def check(self, what: str, holds: bool) -> None:
        self.passed += holds
        self.failed += not holds
        if not holds:
            print(f"FAILED: {what}", file=sys.stderr)

    def shot(self, name: str) -> None:
        at = self.page.evaluate("scrollY")
        self.page.screenshot(path=self.shots / f"{name}.png", full_page=True)
        # The window was as high as the page for a moment.
        self.page.evaluate("(at) => scrollTo(0, at)", at)

    def drop(self, *files: Path) -> None:
        content = [(file, base64.b64encode(file.read_bytes()).decode()) for file in files]
        self.page.evaluate(DROP, [{"name": file.name, "content": text} for file, text in content])

    def wait(self) -> None:
        """Until the analysis ended."""
        error = self.page.locator("#error")
        done = self.page.locator("#status", has_text="Done in")
        done.or_(error).and_(self.page.locator(":visible")).first.wait_for(timeout=120_000)
        self.check(f"no error: {error.text_content()}", not error.is_visible())

    def text(self, selector: str) -> str:
        return " ".join(self.page.inner_text(selector).split())

    def answers(self, advice: dict) -> None:
        """The page shows the advice of the program."""
        text = self.page.text_content("#answer")
        for sentence in advice["answer"]["sentences"] + advice["answer"]["also"]:
            self.check(f"the answer contains: {sentence}", sentence.replace("`", "") in text)
        conf = advice["answer"]["conf"]
        if conf:
            command = self.page.text_content("#command")
            self.check(f"the command sets {conf}", conf in command)
        rows = self.page.locator("#settings tbody tr").all()
        own = [one for one in advice["others"] if one["policy"] == "quilt" and one["on_device"]]
        self.check("as many settings as in the advice, and quilt", len(rows) == len(advice["ranking"]) + len(own))
        for row, ranked in zip(rows, advice["ranking"]):
            cells = row.locator("td").all_text_contents()
            expected = [
                ranked["conf"] or "default settings",
                amount(ranked["least_capacity_bytes"]),
                amount((ranked if ranked["on_device"]["ooms"] else ranked["on_device"])["peak_reserved_bytes"]),
                str(ranked["on_device"]["retries"]),
                f"{ranked['on_device']['driver_time_ns'] / 1e6:.1f} ms",
            ]
            self.check(f"{cells} is {expected}", cells[:5] == expected)

    def refuses_connections(self) -> None:
        refused = "fetch('https://example.org').then(() => false, () => true)"
        self.check("a connection would be refused", self.page.evaluate(refused))

    def fits(self, what: str) -> None:
        """Nothing is wider than the window."""
        wide = self.page.evaluate("document.documentElement.scrollWidth > innerWidth")
        self.check(f"{what}: no horizontal scrolling", not wide)

    def narrow_and_wide(self, what: str) -> None:
        """Nothing overflows a phone, and on a wide screen tables are as wide as what is in them."""
        page, before = self.page, self.page.viewport_size
        page.set_viewport_size({"width": 390, "height": 844})
        self.fits(f"{what} at 390 pixels")
        # Its observers of sizes have run after the frame.
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        outside = page.locator(".scroll").evaluate_all(
            "(all) => all.filter((box) => box.getBoundingClientRect().right > innerWidth).length"
        )
        self.check(f"{what} at 390 pixels: tables scroll in their place", outside == 0)
        unreachable = page.locator(".scroll:not([tabindex])").evaluate_all(
            "(all) => all.filter((box) => box.scrollWidth > box.clientWidth).length"
        )
        self.check(f"{what} at 390 pixels: the keyboard scrolls tables", unreachable == 0)
        page.set_viewport_size({"width": 1400, "height": 1000})
        loose = page.evaluate(LOOSE_TABLES)
        self.check(f"{what} at 1400 pixels: tables fit what is in them: {loose}", not loose)
        page.set_viewport_size(before)

    def long_lists(self, holders: int) -> None:
        """A list begins with ten entries; a button shows the others, also by the keyboard."""
        rows = self.page.locator("#panels .held tbody tr")
        button = self.page.locator("#panels .held button.more")
        self.check(f"ten of {holders} holders: {rows.count()}", rows.count() == 10)
        self.check("the button tells how many", button.inner_text() == f"Show all {holders}")
        button.focus()
        self.page.keyboard.press("Enter")
        self.check(f"all {holders} holders: {rows.count()}", rows.count() == holders)
        expanded = button.get_attribute("aria-expanded") == "true"
        focused = self.page.evaluate("document.activeElement.className")
        self.check("the button is expanded and keeps the focus", expanded and focused == "more")
        self.page.keyboard.press("Space")
        self.check(f"ten holders again: {rows.count()}", rows.count() == 10)


def a_text(checker: Checker, coalesce: list[str]) -> None:
    """A pasted error is answered as by the program, and so is a log that is dropped."""
    page = checker.page
    error = (
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total "
        "capacity of 8.00 GiB of which 512.00 MiB is free. Of the allocated memory 3.00 GiB is allocated by "
        "PyTorch, and 4.00 GiB is reserved by PyTorch but unallocated."
    )
    command = [*coalesce, "advise", "--json", "-"]
    done = subprocess.run(command, check=True, input=error.encode(), stdout=subprocess.PIPE)
    found = json.loads(done.stdout)

    def is_answered(how: str) -> None:
        page.locator("#answer", has_text="because of fragmentation").wait_for(timeout=60_000)
        text = page.text_content("#answer")
        for sentence in found["failures"][0]["sentences"]:
            checker.check(f"{how}: the answer contains: {sentence}", sentence.replace("`", "") in text)
        checker.check(f"{how}: the command", page.text_content("#command") == found["command"])

    for name, part in (("kineto.json.gz", "1025.59 MiB"), ("saved.pt", "limits itself")):
        checker.drop(COMPLAINTS / name)
        checker.wait()
        checker.check(f"{name}: {part}", part in checker.text("#answer"))
        checker.narrow_and_wide(name)
        checker.shot(name.split(".")[0])

    page.fill("#text", error)
    is_answered("pasted")
    checker.narrow_and_wide("a pasted error")
    checker.shot("pasted")
    page.fill("#text", "no figures at all")
    page.locator("#error", has_text="no memory figures found").wait_for(timeout=60_000)
    page.fill("#text", "")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "train.log")
        log.write_text(error)
        checker.drop(log)
        is_answered("dropped")


def one_snapshot(checker: Checker, coalesce: list[str]) -> None:
    page = checker.page
    checker.shot("start")
    page.fill("#seconds", "0")
    checker.drop(SNAPSHOT)
    checker.wait()
    checker.answers(advise(coalesce, str(SNAPSHOT)))
    checker.shot("answer")

    advice = advise(coalesce, str(SNAPSHOT), "--capacity", "0.3GiB")
    page.fill("#capacity", "0.3")
    page.click("#again")
    checker.wait()
    checker.answers(advice)
    checker.shot("less-memory")
    checker.narrow_and_wide("the page")
    held = checker.text("#panels table tbody tr:first-child td:first-child")
    largest = amount(advice["holdings"]["holders"][0]["bytes"])
    checker.check(f"the largest holder has {largest}: {held}", largest in held)


def timeline(checker: Checker, name: str) -> None:
    """Points at a timeline, chooses a moment, and points at what it shows."""
    page = checker.page
    canvas = page.locator("canvas.timeline").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    across, down = box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.75
    page.mouse.move(across, down)
    for _ in range(8):
        page.mouse.wheel(0, -100)
    page.mouse.move(across + 3, down)
    point = checker.text(".panel .readout >> nth=0")
    checker.check(f"the timeline tells the block under the pointer: {point}", "stream 0" in point)
    checker.shot(f"{name}-timeline")
    page.mouse.move(across + 3, down)
    page.mouse.click(across + 3, down)
    event = point.split()[1]
    page.get_by_text(f"Segments after event {event}").wait_for()
    blocks = page.locator("canvas.segments").first
    blocks.scroll_into_view_if_needed()
    box = blocks.bounding_box()
    page.mouse.move(box["x"] + 30, box["y"] + 8)
    block = checker.text(".panel .readout >> nth=1")
    checker.check(f"the map tells the block under the pointer: {block}", "in a segment of" in block)
    page.locator(".flame button").nth(1).hover()
    frame = checker.text(".panel .readout >> nth=2")
    checker.check(f"the flame graph tells the frame: {frame}", "%" in frame)
    checker.shot(f"{name}-moment")
    canvas.focus()
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    first = checker.text(".panel .readout >> nth=0")
    checker.check(f"the keyboard moves to the first event: {first}", first.startswith("Event 0 of"))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_text("Segments after event").first.wait_for()


def two_snapshots(checker: Checker, coalesce: list[str]) -> None:
    page = checker.page
    page.fill("#capacity", "")
    checker.drop(SNAPSHOT, OTHER)
    checker.wait()
    job = advise(coalesce, str(SNAPSHOT), str(OTHER))
    text = page.text_content("#answer")
    for sentence in job["sentences"]:
        checker.check(f"the answer for a job contains: {sentence}", sentence in text)
    choices = page.locator("#right option").all_text_contents()
    other = next(text for text in choices if text.startswith("amp, ") and "advised" not in text)
    page.select_option("#right", label=other)
    page.locator("#difference .lead").wait_for()
    command = [*coalesce, "diff", "--json", str(SNAPSHOT), str(OTHER)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    checker.check("two timelines", page.locator("canvas.timeline").count() == 2)
    cells = page.locator("#difference tbody tr").first.locator("td").all_text_contents()
    part = found["parts"][0]
    expected = [part["part"], amount(part["before_bytes"]), amount(part["after_bytes"])]
    checker.check(f"the difference {cells} is {expected}", cells[:3] == expected)
    page.locator("canvas.segments").nth(1).wait_for()
    checker.narrow_and_wide("a comparison")
    checker.shot("comparison")


def other_ways(checker: Checker) -> None:
    """Phone, dark, a file that is none, and cancelling."""
    page = checker.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.select_option("#right", value="")
    checker.drop(SNAPSHOT)
    checker.wait()
    checker.fits("at 390 pixels")
    checker.shot("phone")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.emulate_media(color_scheme="dark")
    checker.drop(SNAPSHOT)
    checker.wait()
    checker.shot("dark")
    page.emulate_media(color_scheme="light")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "notes.txt"
        file.write_text("no snapshot\n")
        checker.drop(file)
        page.locator("#error").wait_for(state="visible")
        error = page.text_content("#error")
        checker.check(f"the error names the file: {error}", "notes.txt" in error)
        checker.check("nothing of the last file is shown", not page.locator("#answer").is_visible())
        checker.shot("error")
    checker.drop(*[SNAPSHOT] * 12)
    page.click("#cancel")
    checker.check("the analysis is cancelled", checker.text("#status") == "Cancelled.")


def report(checker: Checker, coalesce: list[str], file: Path) -> None:
    """A report is the same viewer with its data inside."""
    page = checker.page
    flags = [str(SNAPSHOT), "--capacity", "0.3GiB"]
    command = [*coalesce, "advise", "--time-limit", "0", *flags, "--html", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    advice = advise(coalesce, *flags)
    page.goto(file.as_uri())
    page.locator("canvas.segments").wait_for()
    checker.answers(advice)
    checker.narrow_and_wide("the report")
    checker.shot("report")
    timeline(checker, "report")

    viewer, _ = page.text_content("script[type=module]").split("fill('answer'", 1)
    found = page.evaluate(ADDED_UP.replace("VIEWER", viewer))
    wrong = found["wrong"]
    checker.check(f"the segments of {found['events']} moments add up: {wrong}", not wrong)
    for shown, expected in zip_longest(found["holders"], advice["holdings"]["holders"]):
        checker.check(f"the holder {shown} is {expected}", shown == expected)

    page.select_option("#right", index=2)
    page.locator("canvas.segments").nth(1).wait_for()
    titles = page.locator(".panel > h3 code").all_text_contents()
    expected = ["default settings", advice["ranking"][1]["conf"]]
    checker.check(f"two replays: {titles}", titles[:2] == expected)
    checker.shot("report-comparison")
    page.select_option("#right", value="")
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    checker.fits("the report at 390 pixels")
    checker.shot("report-phone-dark")
    context = page.context.browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(file.as_uri())
    text = " ".join(plain.inner_text("noscript").split())
    sentence = advice["answer"]["sentences"][0]
    checker.check("the answer is there without JavaScript", sentence in text)
    context.close()


def long_report(checker: Checker, coalesce: list[str], file: Path) -> None:
    """A report with many settings, allocators and holders."""
    page = checker.page
    command = [*coalesce, "advise", "--time-limit", "0", str(LONG), "--html", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.goto(file.as_uri())
    page.locator("canvas.segments").wait_for()
    checker.shot("long-report")
    checker.narrow_and_wide("a long report")
    checker.long_lists(len(advise(coalesce, str(LONG))["holdings"]["holders"]))
    page.set_viewport_size({"width": 390, "height": 844})
    checker.shot("long-report-phone")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the page that scripts/page/build wrote")
    parser.add_argument("--coalesce", default="coalesce", help="the program, a command line")
    parser.add_argument("--shots", type=Path, required=True, help="the folder for pictures")
    arguments = parser.parse_args()
    arguments.shots.mkdir(parents=True, exist_ok=True)
    coalesce = arguments.coalesce.split()
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        sys.exit("Chromium is not installed (Debian's package chromium)")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        address = arguments.page.resolve().as_uri()
        requests, complaints = [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda line: complaints.append(line.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        checker = Checker(page, arguments.shots)
        one_snapshot(checker, coalesce)
        timeline(checker, "page")
        two_snapshots(checker, coalesce)
        other_ways(checker)
        a_text(checker, coalesce)
        checker.refuses_connections()
        file = arguments.shots.resolve() / "report.html"
        report(checker, coalesce, file)
        checker.refuses_connections()
        long_file = arguments.shots.resolve() / "long-report.html"
        long_report(checker, coalesce, long_file)
        own = (address, file.as_uri(), long_file.as_uri(), "blob:", "data:")
        outside = [url for url in requests if not url.startswith(own)]
        checker.check(f"no request is made: {outside}", not outside)
        complaints = [line for line in complaints if "example.org" not in line]
        checker.check(f"the browser does not complain: {complaints}", not complaints)
        browser.close()
    print(f"{checker.passed} passed, {checker.failed} failed")
    return min(checker.failed, 1)


if __name__ == "__main__":
    sys.exit(main())
