"""The page in headless Chromium, where that is installed: no errors, and what the script does."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import tcdsl

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

SOURCE = "def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
# Runs after the page's own script, and writes what it finds into the page.
PROBE = """
<script>
document.getElementById("theme").click();
const line = document.querySelector(".code .line[data-s]");
line.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
const wide = [...document.querySelectorAll("main section")].filter(
  s => s.scrollWidth > s.clientWidth + 1).length;
const note = document.createElement("p");
note.id = "probe";
note.textContent = [document.documentElement.dataset.theme,
  document.querySelector("#source-S0").classList.contains("marked"),
  document.documentElement.scrollWidth <= innerWidth, wide,
  getComputedStyle(document.body).backgroundColor].join(" ");
document.body.append(note);
</script>
"""


def opened(page: Path, width: int) -> tuple[str, str]:
    """Return the page as Chromium has it, and what it wrote to its console."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        f"--window-size={width},900", f"--user-data-dir={page.parent / 'profile'}",
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, "\n".join(x for x in done.stderr.splitlines() if "CONSOLE" in x)


@pytest.mark.slow_but("1400")
@pytest.mark.parametrize("width", [1400, 700])
def test_the_page_opens_without_errors(width: int, tmp_path: Path) -> None:
    specs = [tcdsl.spec((64, 48), "float32"), tcdsl.spec((48, 40), "float32")]
    path = tmp_path / "report.html"
    tcdsl.define(SOURCE).mm.compile(*specs, target="cpu").report(path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    dom, console = opened(path, width)
    assert console == ""
    found = re.search(r'<p id="probe">(.*?)</p>', dom)
    # The dark theme, the statement of the line marked, nothing wider than the window.
    assert found is not None and found[1] == "dark true true 0 rgb(22, 25, 29)"


def test_an_error_on_the_console_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text("<!DOCTYPE html><script>nothing.here();</script>", encoding="utf-8")
    assert "nothing is not defined" in opened(path, 700)[1]
