#!/usr/bin/env python3
"""Opens a report of `coalesce advise --html` in a real browser.

    coalesce advise snapshot.pickle --html report.html
    pip install playwright && apt-get install chromium
    scripts/report/check.py report.html --out pictures/

On a wide screen, a tablet and a phone, light and dark, without a network, the page must load
nothing, report no error, fit the screen, follow the color scheme, and describe the point of a
chart and the block of a map that is pointed at or tapped. The keyboard must reach and operate
everything that a pointer does, and without JavaScript no control may be left that does nothing.
Each view is saved as a PNG.
"""

import argparse
import pathlib
import shutil
import sys

from playwright.sync_api import sync_playwright

VIEWS = [
    ("wide", 1400, "light"),
    ("wide-dark", 1400, "dark"),
    ("tablet", 800, "light"),
    ("phone", 390, "light"),
    ("phone-dark", 390, "dark"),
]
PHONE = 390
BROWSERS = ["chromium", "chromium-browser", "google-chrome"]
# The elements that take the focus, in the order of the page.
STOPS = ".copy, summary, .plot, svg.map"


def point_at(page, element, x, y, touch):
    """Taps or points at a position in an element."""
    element.scroll_into_view_if_needed()
    box = element.bounding_box()
    at = (box["x"] + x * box["width"], box["y"] + y)
    if touch:
        page.touchscreen.tap(*at)
    else:
        page.mouse.move(*at)


def check_pointer(page, touch):
    """The faults of charts and maps under a pointer or finger."""
    wrong = []
    for figure in page.locator("figure").all():
        plot, block_map = figure.locator(".plot"), figure.locator("svg.map")
        if plot.count():
            point_at(page, plot, 0.25, 40, touch)
            text = figure.locator(".point").inner_text()
            if "reserved" not in text:
                wrong.append(f"the chart says '{text}'")
        if block_map.count():
            point_at(page, block_map, 0.25, 5, touch)
            text = figure.locator(".block").inner_text()
            title = block_map.locator("g.shown title")
            if not text or title.text_content() != text:
                wrong.append(f"the map says '{text}'")
    return wrong


def check_keyboard(page):
    """The faults of the page for somebody without a pointer."""
    wrong = []
    active = "document.activeElement"
    stops = page.locator(STOPS).count()
    for stop in range(stops):
        page.keyboard.press("Tab")
        if not page.evaluate(f"{active}.matches('{STOPS}')"):
            return [f"Tab reaches {stop} of {stops} controls"]
        name = page.evaluate(f"{active}.getAttribute('aria-label') || {active}.textContent")
        if page.evaluate(f"getComputedStyle({active}).outlineStyle") == "none":
            wrong.append(f"no focus is visible on '{name}'")
        if page.evaluate(f"{active}.matches('summary')"):
            is_open = f"{active}.parentElement.open"
            page.keyboard.press("Enter")
            opened = page.evaluate(is_open)
            page.keyboard.press("Space")
            if not opened or page.evaluate(is_open):
                wrong.append(f"Enter and Space do not open and close '{name}'")
        elif page.evaluate(f"{active}.matches('[role=slider]')"):
            page.keyboard.press("End")
            if page.evaluate(f"{active}.ariaValueNow != {active}.ariaValueMax"):
                wrong.append(f"End does not show the last value of '{name}'")
            if not page.evaluate(f"{active}.ariaValueText"):
                wrong.append(f"'{name}' has no text for screen readers")
    return wrong


def overflow(page, width):
    full = page.evaluate("document.documentElement.scrollWidth")
    return [f"it is {full} pixels wide"] if full > width else []


def look(browser, report, name, width, scheme, out):
    """The faults of one view, as sentences."""
    wrong = []
    is_phone = width == PHONE
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        offline=True,
        has_touch=is_phone,
    )
    page = context.new_page()
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    loaded = []
    page.on("request", lambda request: loaded.append(request.url))
    page.goto(report.resolve().as_uri())
    wrong += [f"it loads {url}" for url in loaded[1:]]
    wrong += overflow(page, width)
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in colour.strip("rgb()").split(",")[:3]) / 3
    if (brightness < 128) != (scheme == "dark"):
        wrong.append(f"its background is {colour}")
    for selector in ["h1", ".answer .lead", ".chart svg polyline", "svg.map rect", "tbody tr"]:
        if page.locator(selector).count() == 0:
            wrong.append(f"there is no {selector}")
    if out:
        page.screenshot(path=out / f"{name}.png", full_page=True)
    wrong += check_keyboard(page)
    wrong += check_pointer(page, is_phone)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    wrong += overflow(page, width)
    context.close()
    return wrong


def look_without_script(browser, report):
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(report.resolve().as_uri())
    dead = page.locator(".copy:visible, .hint:visible, [tabindex]").count()
    context.close()
    return [f"{dead} controls do nothing"] if dead else []


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
        wrong = look_without_script(browser, args.report)
        print(f"without JavaScript: {'; '.join(wrong) or 'ok'}")
        failed |= bool(wrong)
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
