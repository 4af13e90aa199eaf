#!/usr/bin/env python3
"""Opens a report of `coalesce advise --html` in a real browser.

    coalesce advise snapshot.pickle --html report.html
    pip install playwright && apt-get install chromium
    scripts/report/check.py report.html --out pictures/

On a wide screen and on a phone, light and dark, without a network, the page must load nothing,
report no error, fit the screen, follow the color scheme, and describe the point under the
pointer. Each view is saved as a PNG.
"""

import argparse
import pathlib
import shutil
import sys

from playwright.sync_api import sync_playwright

VIEWS = [
    ("wide", 1200, "light"),
    ("wide-dark", 1200, "dark"),
    ("phone", 375, "light"),
    ("phone-dark", 375, "dark"),
]
BROWSERS = ["chromium", "chromium-browser", "google-chrome"]


def look(browser, report, name, width, scheme, out):
    """The faults of one view, as sentences."""
    wrong = []
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    loaded = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(report.resolve().as_uri())
    wrong += [f"it loads {url}" for url in loaded[1:]]
    full = page.evaluate("document.documentElement.scrollWidth")
    if full > width:
        wrong.append(f"it is {full} pixels wide")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in colour.strip("rgb()").split(",")[:3]) / 3
    if (brightness < 128) != (scheme == "dark"):
        wrong.append(f"its background is {colour}")
    for plot in page.locator(".plot").all():
        plot.hover(position={"x": width // 4, "y": 40})
        said = plot.locator("xpath=..").locator("output").inner_text()
        if "reserved" not in said:
            wrong.append(f"the chart says '{said}'")
    for selector in ["h1", ".answer p", ".chart svg polyline", "svg.map rect", "tbody tr"]:
        if page.locator(selector).count() == 0:
            wrong.append(f"there is no {selector}")
    if out:
        page.screenshot(path=out / f"{name}.png", full_page=True)
    context.close()
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="folder for the PNG files")
    args = parser.parse_args()
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    failed = False
    with sync_playwright() as playwright:
        # Playwright's own browser, if none is installed.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for name, width, scheme in VIEWS:
            wrong = look(browser, args.report, name, width, scheme, args.out)
            print(f"{name}: {'; '.join(wrong) or 'ok'}")
            failed |= bool(wrong)
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
