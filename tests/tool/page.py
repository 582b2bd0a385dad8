#!/usr/bin/env python3
"""page.py TOW: the page of `tow plan --html` in Chromium, by its debugging pipe: real mouse and key events, texts read.

Exit status 77, with the reason, where there is no Chromium. Needs nothing but Python's own library.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HOSTILE = "</script><img src=x onerror=document.title='owned'><script>document.title='owned'</script>&\\\"'"
DOT = "dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()]"
LAYERS = f"""{{ lambda ; x:f32[256,64]"x" w:f32[64,256]"w" v:f32[256,64]"v". let
    a:f32[256,256] = {DOT} x w
    b:f32[256,256] = tanh a
    n:f32[256,256] = name[name="{HOSTILE}"] b
    c:f32[256,64] = {DOT} n v
    d:f32[256,64] = sin c
    e:f32[256,256] = {DOT} d w
    f:f32[256,256] = tanh e
    g:f32[256,64] = {DOT} f v
    h:f32[256,64] = sin g
    s:f32[] = reduce_sum[axes=(0,1)] h
  in (s) }}
"""
LOOP = f"""{{ lambda ; x:f32[64,64]"x" w:f32[5,64,64]"w". let
    y:f32[64,64] = scan[length=5 reverse=false consts=0 carry=1 body={{ lambda ; h:f32[64,64] w:f32[64,64]. let
        a:f32[64,64] = {DOT} h w
        b:f32[64,64] = tanh a
        c:f32[64,64] = {DOT} b w
      in (c) }}] x w
    s:f32[] = reduce_sum[axes=(0,1)] y
  in (s) }}
"""


class Browser:
    """Chromium on two pipes: messages of JSON, each with a zero byte behind it."""

    def __init__(self, program, home):
        to_read, self.to = os.pipe()
        self.back, from_write = os.pipe()

        def set_pipes():
            os.dup2(os.dup(to_read), 3)  # through copies, which neither number can be
            os.dup2(os.dup(from_write), 4)

        command = [program, "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
                   "--window-size=1400,2400", f"--user-data-dir={home}"]
        if os.getuid() == 0:
            command.append("--no-sandbox")
        self.process = subprocess.Popen(command, preexec_fn=set_pipes, close_fds=False, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.number, self.rest, self.session, self.events = 0, b"", None, []

    def message(self):
        while b"\0" not in self.rest:
            part = os.read(self.back, 1 << 16)
            if not part:
                raise SystemExit("page.py: Chromium ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"page.py: {method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path):
        self.session, self.events = None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=path.as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message())

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"page.py: {expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def click(self, selector):
        """Presses the mouse in the middle of the element, which must be what lies on top there."""
        x, y, hit = self.value(f"""(() => {{
            const e = document.querySelector({json.dumps(selector)}), b = e.getBoundingClientRect();
            const x = b.x + b.width / 2, y = b.y + b.height / 2;
            return [x, y, document.elementFromPoint(x, y) === e];
        }})()""")
        expect(hit, f"nothing lies above {selector}")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def reasons(self, plan=0):
        return self.value(f"document.getElementById('reasons-{plan}').innerText")

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(timeout=30)


failed = []


def expect(fine, what):
    if not fine:
        failed.append(what)
        print(f"expected: {what}")


def has(text, *parts):
    for part in parts:
        expect(part in text, f"'{part}' in:\n{text}")


def quiet(browser):
    """Neither errors nor requests but that of the page itself."""
    requests = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    expect(len(requests) <= 1 and all(r.startswith("file:") for r in requests), f"no request, found {requests}")
    for e in browser.events:
        expect(e["method"] not in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"), f"no error, found {e}")


def check_layers(browser, page):
    browser.open(page)
    expect(browser.value("document.title") == "Plan", "a title that no name has changed")
    expect(browser.value("document.images.length") == 0, "no element that a name has made")
    kept = browser.value("""[...document.querySelectorAll('#chart-0 .block.residual')].map(
        e => [e.dataset.block, e.querySelector('title').textContent])""")
    block = next(k for k, title in kept if title.startswith("tanh f32[256,256]"))
    browser.click(f"#chart-0 [data-block='{block}']")
    has(browser.reasons(), "residual: made by the forward pass, read by the backward pass", "262144 bytes",
        "made by tanh, line 3 of the text", "all that the backward pass reads is kept", "the derivative rule of ",
        "for the derivative rule of tanh, line 3 of the text", "to make it again", "if it is not kept", "arena ")
    expect(browser.reasons(1) == "No block is chosen.", "nothing chosen in the other plan")
    before = browser.reasons()
    browser.key("ArrowRight")
    expect(browser.reasons() != before, "another block after an arrow key")
    browser.key("ArrowLeft")
    expect(browser.reasons() == before, "the same block after going back")
    has(browser.value("document.getElementById('differences').innerText"), "What differs", "arena", "time by the model",
        "Residuals that only one of them keeps", "cos f32[256,256]\tline 8 of the text\tnot kept\t256 KiB")
    browser.value("document.querySelectorAll('.plan')[0].querySelectorAll('details')[1].open = true")
    has(browser.value("document.querySelectorAll('.plan')[0].innerText"), HOSTILE.replace('\\\\"', '"').replace('\\"', '"'))
    quiet(browser)


def check_loop(browser, page):
    browser.open(page)
    loop = browser.value("""[...document.querySelectorAll('#chart-0 .block.loop')].sort(
        (a, b) => b.getAttribute('height') - a.getAttribute('height'))[0].dataset.block""")
    browser.click(f"#chart-0 [data-block='{loop}']")
    has(browser.reasons(), "the arena of a loop's body")
    browser.key("Enter")
    has(browser.value("document.getElementById('function-0').selectedOptions[0].textContent"), "body of a loop, 5 ")
    browser.key("Backspace")
    has(browser.value("document.getElementById('function-0').selectedOptions[0].textContent"), "the program")
    block = browser.value("document.querySelector('#chart-0 .block.residual').dataset.block")
    browser.click(f"#chart-0 [data-block='{block}']")
    has(browser.reasons(), "5 iterations, 16.00 KiB (16384 bytes) each")
    quiet(browser)


def main():
    tow = os.path.abspath(sys.argv[1])
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not chromium:
        print("skipped: there is no Chromium; `scripts/test.sh all` installs it")
        return 77
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = pathlib.Path(scratch)
        (folder / "other.tow").write_text(LAYERS.replace("tanh e", "sin e"))
        for name, text, against in (("layers", LAYERS, ["--against", str(folder / "other.tow")]), ("loop", LOOP, [])):
            (folder / f"{name}.tow").write_text(text)
            subprocess.run([tow, "plan", "--grad", "--wrt", "x,w,v" if name == "layers" else "x,w", "--without", "tile",
                            "--html", str(folder / f"{name}.html"), str(folder / f"{name}.tow"), *against], check=True,
                           stdout=subprocess.DEVNULL)
        browser = Browser(chromium, folder / "profile")
        check_layers(browser, folder / "layers.html")
        check_loop(browser, folder / "loop.html")
        browser.close()
    return 1 if failed else 0


sys.exit(main())
