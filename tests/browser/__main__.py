"""Pages in a headless browser: pictures at three widths in both modes, and the faults that axe-core finds.

``python -m tests.browser PAGE ...`` is ``make look``; pages are files or addresses. It needs a Chromium, node and npm,
which fetches axe-core and puppeteer-core once into ``.look/``; without them it says so and ends well.
"""

import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".look"
PACKAGES = ("axe-core@4.14", "puppeteer-core@24")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SERIOUS = ("serious", "critical")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, without a line for each request."""

    def log_message(self, format: str, *args: object) -> None:
        return


def missing() -> str | None:
    """The program that is not there; None where all are."""
    for names in (BROWSERS, ("node",), ("npm",)):
        if not any(map(shutil.which, names)):
            return names[0]
    return None


def fetch() -> None:
    """Install what looks at pages, where it is not there yet."""
    if not (PLACE / "node_modules" / "axe-core").is_dir():
        PLACE.mkdir(exist_ok=True)
        (PLACE / "package.json").write_text('{"private": true}', encoding="utf-8")
        line = ["npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES]
        subprocess.run(line, cwd=PLACE, check=True, env=os.environ | {"PUPPETEER_SKIP_DOWNLOAD": "1"})


def addresses(pages: list[str], port: int) -> list[str]:
    """Addresses of pages, files below the working folder by a server of it, since some browsers open no files."""
    return [
        page if "://" in page else f"http://127.0.0.1:{port}/{Path(page).resolve().relative_to(Path.cwd()).as_posix()}"
        for page in pages
    ]


def main() -> int:
    """Look at pages; the exit code is 1 where a fault is serious or a page is wider than the screen."""
    if (lacks := missing()) is not None:
        print(f"There is no {lacks} here; nothing was looked at.")
        return 0
    fetch()
    pictures = PLACE / "pictures"
    pictures.mkdir(exist_ok=True)
    handler = functools.partial(Quiet, directory=str(Path.cwd()))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = next(found for name in BROWSERS if (found := shutil.which(name)))
    modules = PLACE / "node_modules"
    line = ["node", Path(__file__).with_name("look.cjs"), modules / "axe-core" / "axe.min.js"]
    line += [modules / "puppeteer-core", browser, pictures, *addresses(sys.argv[1:], server.server_port)]
    done = subprocess.run([str(word) for word in line], check=False, capture_output=True, text=True)
    server.shutdown()
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return 1
    found = json.loads(done.stdout)
    wrong = 0
    for one in found:
        serious = [fault for fault in one["faults"] if fault["impact"] in SERIOUS]
        wrong += len(serious) + (one["over"] > 0)
        for fault in serious:
            places = ", ".join(fault["where"])
            print(f"{one['address']}, {one['mode']}, {one['width']} px: {fault['help']} ({fault['count']}: {places})")
        if one["over"] > 0:
            print(f"{one['address']}, {one['mode']}: {one['over']} px wider than the screen of {one['width']} px")
    minor = len({fault["id"] for one in found for fault in one["faults"] if fault["impact"] not in SERIOUS})
    print(f"{len(found)} looks, {wrong} serious faults, {minor} kinds of lesser ones; pictures are in {pictures}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
